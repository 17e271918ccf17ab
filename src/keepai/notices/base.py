"""The contract of a channel: it sends one message, or says why it could not.

In the texts that a channel gets, every character is visible. A channel must never put a secret into an error, and never
put anything into a message with which a single click would answer a question.
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
    """A message to a person."""

    kind: str  # "question", "reminder", "digest" or "test"
    title: str  # one line
    text: str
    at: int
    key: str  # the same if the same message is sent again, because it was not known whether it had arrived
    link: str | None = None  # a page to look at; opening it changes nothing
    data: Mapping[str, Json] = field(default_factory=dict)  # the same for programs

    def to_json(self) -> dict[str, Json]:
        """The message for a program."""
        return {"kind": self.kind, "title": self.title, "text": self.text, "link": self.link, "key": self.key,
                **self.data}


class Undelivered(KeepError):
    """A message was not delivered."""


class Channel:
    """One way to notify people."""

    secrets: ClassVar[Mapping[str, str]] = MappingProxyType({})  #: the secrets that it needs: name → what to ask for

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder, self.digest = Path(), None  # type: tuple[Path, str | None]
        self._vault: Mapping[str, str] = {}

    async def send(self, message: Message) -> str | None:
        """Send it. Returns a warning if only some recipients were reached; an exception means that nobody was."""
        raise NotImplementedError

    def placed(self: C, folder: Path, digest: str | None) -> C:
        """The same channel with the folder of its keep.toml and the time of its digests."""
        self.folder, self.digest = folder, digest
        return self

    def entrust(self, vault: Mapping[str, str]) -> None:
        """Give the channel its secrets. It reads them when it uses them."""
        self._vault = vault

    def secret(self, name: str) -> str:
        """One of its secrets, for immediate use: never keep it, log it or put it into an error."""
        try:
            return self._vault[name]
        except KeyError:
            message = f"{self.name} has no secret {name}. Run `keep secrets set notify.{self.name} {name}`."
            raise Undelivered(message) from None


def fitting(text: str, bytes_max: int) -> str:
    """As much of a text as a channel can send."""
    if len(text.encode()) <= bytes_max:
        return text
    room = bytes_max - len(_CUT.encode())
    return text.encode()[:room].decode("utf-8", "ignore") + _CUT
