"""Records what one step of a run is given, so that another script can be run over it later (shadow.py).

What the ledger has anyway is only named: events by their numbers, a mutation's result not at all. Time and chance need
nothing but the moment at which the step began. What is too large is left out and named, and then a script that asks for
it cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from ..ledger.base import Row
from ..ledger.transitions.events import Publication, Registration
from ..ledger.transitions.recordings import Recorded
from ..model.codec import Json, canonical, digest, size, text_of
from ..model.operations import Step
from ..model.policy import Policy
from ..model.redaction import Redactor
from ..runtime.base import Reply

#: A text that is longer stands by itself, once for all runs that were given it.
INLINE_MAX = 200
_NOTHING = ("[]", "{}", "null")
#: Recordings that are too old are thrown away with every so manieth that is kept.
TRIM_EVERY = 100


class Recorder:
    """Collects what one step is given."""

    def __init__(self, step: Step, at: int, state: str | None, policy: Policy, redactor: Redactor | None) -> None:
        self._at, self._state, self._redactor = at, state, redactor
        self.something = False  # whether it was given anything that a script could work on
        self.step, self._left, self._over = step, policy.recording_bytes_max, False
        self._pages: list[Json] = []
        self._found: list[Json] = []
        self._absent: list[Json] = []
        self._reads: list[Json] = []
        self._open_items: list[Json] = []
        self._texts: dict[str, str] = {}

    def page(self, topic: str, after: int, rows: Sequence[Row], *, whole: bool) -> None:
        """The step was shown the events that wait in a topic after a place, up to the last of `rows`, or to the end."""
        self.something = self.something or bool(rows)
        if self._has_room(20 + 10 * len(rows)):
            until = None if whole else int(rows[-1]["seq"])
            self._pages.append([topic, after, until, [_event(row) for row in rows]])

    def by_id(self, topic: str, message_id: str, row: Row | None) -> None:
        """The step asked for one event, which waited or did not."""
        self.something = self.something or row is not None
        if not self._has_room(20 + len(message_id)):
            return
        if row is None:
            self._absent.append([topic, message_id])
        else:
            self._found.append(_event(row))

    def read(self, name: str, params: Json, reply: Reply) -> None:
        """A connector answered the step."""
        self.something = self.something or reply.text not in _NOTHING
        if self._has_room(100 + size(reply.fields)):
            more = [reply.fields] if reply.fields else []
            self._reads.append([name, key_of(params), self._kept(reply.text), *more])

    def open_item(self, name: str) -> None:
        """A routine was told that this item is not done."""
        self.something = True
        if self._has_room(10 + size(name)):
            self._open_items.append(name)

    def take(self, made: str | None = None, keep: int = 0) -> Recorded:
        """All of it; `made` stands for what the step brought about."""
        given: dict[str, Json] = {"at": self._at}
        if self._over:
            return Recorded(self.step.value, text_of({**given, "over": True}), keep=keep)
        if self._state is not None:
            given["state"] = self._kept(self._state)
        for name, entries in (("pages", self._pages), ("found", self._found), ("absent", self._absent),
                              ("reads", self._reads), ("open", self._open_items)):
            if entries:
                given[name] = entries
        if made is not None:
            given["made"] = made
        return Recorded(self.step.value, text_of(given), self._texts, keep)

    def _has_room(self, characters: int) -> bool:
        """Whether so much more is recorded; once something was left out, nothing is."""
        self._left -= characters
        self._over = self._over or self._left < 0
        return not self._over

    def _kept(self, text: str) -> Json:
        """The text itself, {"hash": …} if it stands elsewhere, or {"bytes": …} if it is too large to be kept."""
        if size(text) > self._left:
            return {"bytes": size(text)}
        if self._redactor is not None:
            text = self._redactor.text(text)
        self._left -= size(text)
        if len(text) <= INLINE_MAX:
            return text
        name = digest(text)
        self._texts[name] = text
        return {"hash": name}


def key_of(params: Json) -> str:
    """What a read is found again by."""
    return digest(canonical(params))[:24]


def made_of(inputs: Iterable[Registration], publications: Iterable[Publication], state: str | None) -> str:
    """A hash of what a step brought about: inputs, events and the state that it leaves."""
    things = [
        *(("input", each.source, each.type, each.external_id, each.title) for each in inputs),
        *(("event", each.topic, each.message_id, each.payload, *each.causes) for each in publications),
        ("state", *([] if state is None else [state])),
    ]
    # Each with its lengths, so that no other things give the same bytes.
    whole = "".join("\0".join((str([len(text) for text in thing]), *thing)) for thing in things)
    return sha256(whole.encode()).hexdigest()[:32]


def _event(row: Row) -> Json:
    """An event as it was: its number, and which form and attempt it had if these were not the first."""
    number, revision, attempt = int(row["seq"]), int(row["revision"]), int(row["attempt"])
    return number if revision == attempt == 1 else [number, revision, attempt]
