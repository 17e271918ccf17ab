"""The contract of a channel: it takes one message and has sent it, or says why not.

A channel is given texts in which everything is visible already. It must never put anything that it was entrusted with
into an error, and never anything into a message by which a click alone would answer a question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, TypeVar

from ..model.codec import Json
from ..model.errors import KeepError

C = TypeVar("C", bound="Channel")

_CUT = "\n… the rest does not fit here; `keep todo` shows everything."


@dataclass(frozen=True)
class Message:
    """What a person is told."""

    kind: str  # "question", "reminder", "digest" or "test"
    title: str  # one line
    text: str
    at: int
    key: str  # the same for the same thing told once more because nobody knew whether it had arrived
    link: str | None = None  # a page to look at; opening it changes nothing
    data: Mapping[str, Json] = field(default_factory=dict)  # the same for programs

    def to_json(self) -> dict[str, Json]:
        """What a program is given."""
        return {"kind": self.kind, "title": self.title, "text": self.text, "link": self.link, "key": self.key,
                **self.data}


class Undelivered(KeepError):
    """A message was not taken."""


class Channel:
    """One way to tell people something."""

    secrets: ClassVar[Mapping[str, str]] = MappingProxyType({})  #: what it is entrusted with: name → what to ask for

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder, self.digest = Path(), None  # type: tuple[Path, str | None]
        self._vault: Mapping[str, str] = {}

    async def send(self, message: Message) -> str | None:
        """Send it; gives what is wrong though somebody was told. Whatever is raised means that nobody was."""
        raise NotImplementedError

    def placed(self: C, folder: Path, digest: str | None) -> C:
        """The same, with the folder of its keep.toml and when it wants digests."""
        self.folder, self.digest = folder, digest
        return self

    def entrust(self, vault: Mapping[str, str]) -> None:
        """Give it its secrets; they are read when they are used."""
        self._vault = vault

    def secret(self, name: str) -> str:
        """One of its secrets, for this moment: never keep it, log it or put it into an error."""
        try:
            return self._vault[name]
        except KeyError:
            message = f"{self.name} was not given its {name}. Say `keep secrets set notify.{self.name} {name}`."
            raise Undelivered(message) from None


def fitting(text: str, bytes_max: int) -> str:
    """As much of a text as a channel takes."""
    if len(text.encode()) <= bytes_max:
        return text
    room = bytes_max - len(_CUT.encode())
    return text.encode()[:room].decode("utf-8", "ignore") + _CUT
