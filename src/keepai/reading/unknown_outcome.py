"""What is known of a mutation in doubt beyond its row: who could verify it, and whether it may still arrive.

Only a host knows its connectors; it passes on what it knows as `HostFacts`. Without a host, the history says whether
the outside system could be asked, and for everything else the text says that only a running host knows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

from ..engine.host_parts import Parts
from ..engine.reconcile import key_of_try
from ..model.clock import iso
from ..model.codec import Json
from ..model.errors import SenderNotDead
from ..model.records import Mutation
from ..model.visible_text import visible

NOT_ENDED = "the call has not ended yet"
HOST_KNOWS = "not known here: a running host measures how long the request may still arrive"


@dataclass(frozen=True)
class CallFacts:
    """What a host knows of the operation that a mutation was sent with, and of its end."""

    configured: bool  # its connector is there
    looks_up: bool  # and can be asked what became of it
    key_window_s: float | None  # how long the outside system honours an idempotency key; None: it does not
    settles_at: int | None  # the moment after which it can no longer arrive; None: the call has not ended
    settled: bool  # that moment has passed


class HostFacts(Protocol):
    """A host in this process, which knows more than its ledger."""

    @property
    def parts(self) -> Parts:
        """What it is configured with: this decides what comes next."""
        ...

    def known(self, mutation: Mutation) -> CallFacts:
        """What it knows of a mutation in doubt."""
        ...


@dataclass(frozen=True)
class DoubtfulMutation:
    """A mutation whose outcome is unknown, and what is known about that."""

    mutation: Mutation
    asked_before: bool  # the history says that the outside system could be asked
    known: CallFacts | None  # None: there is no host

    @property
    def can_verify(self) -> bool:
        """Whether the outside system can be asked what became of it."""
        return self.known.looks_up if self.known else self.asked_before

    @property
    def actions(self) -> tuple[str, ...]:
        """The answers that would be accepted now."""
        settled = self.known is not None and self.known.settled
        offered = {"try_again": self.can_verify, "did_not_happen": settled, "happened": True, "skip": True}
        return tuple(act for act, fits in offered.items() if fits)

    @property
    def arrives_until(self) -> str | None:
        """Until when the request may still arrive: a time, or why there is none; None: it can no longer arrive."""
        if self.mutation.closed_at is None:
            error, sender = self.mutation.error, self.mutation.sender
            if error is None or error.code != SenderNotDead.code:
                return NOT_ENDED
            return f"host {sender} may still send it; if that host is dead for good, say `keep host dead {sender}`"
        if self.known is None:
            return HOST_KNOWS
        return None if self.known.settled or self.known.settles_at is None else iso(self.known.settles_at)

    def facts(self) -> dict[str, Json]:
        """Everything that a person must know to answer."""
        mutation, until = self.mutation, self.arrives_until
        later: dict[str, Json] = {} if until is None else {"did_not_happen": until}
        return {
            "can_verify": self.can_verify, "connector_class": self._class(), "verifying": self._verifying(),
            "check_by_hand": by_hand(mutation), "idempotency_key": mutation.idempotency_key,
            "sent_at": iso(mutation.first_sent_at),
            "ended_at": None if mutation.closed_at is None else iso(mutation.closed_at),
            "may_arrive_until": until, "possible_from": later, "late_evidence": late_evidence(mutation),
        }

    def _class(self) -> str | None:
        """A: it honours keys. B: it can be looked up. C: neither. None: not known here."""
        if self.known is None or not self.known.configured:
            return None
        return "A" if self.known.key_window_s is not None else "B" if self.known.looks_up else "C"

    def _verifying(self) -> str:
        name = f"{self.mutation.connector}.{self.mutation.operation}"
        if self.known is None:
            could = "could" if self.asked_before else "could not"
            return f"{name} {could} be looked up when it was sent; only a running host knows whether that still holds."
        if not self.known.configured:
            return f"The connector and account that {name} was sent with are no longer configured, so Keep cannot ask."
        asked = "can be looked up" if self.known.looks_up else "cannot be looked up"
        if self.known.key_window_s is None:
            return f"{name} {asked}" + ("." if self.known.looks_up else ": only a person can find out.")
        until = iso(self.mutation.first_sent_at + int(self.known.key_window_s * 1000))
        return f"{name} {asked}, and honours the idempotency key for {self.known.key_window_s:g} s, until {until}."


def late_evidence(mutation: Mutation) -> list[Json]:
    """The evidence that came after the call was given up, oldest first."""
    text, found, decoder = mutation.evidence or "", [], json.JSONDecoder()
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def by_hand(mutation: Mutation) -> str:
    """What a person should look for, in the host's words only."""
    where = f" at {visible(mutation.target)}" if mutation.target else ""
    first = key_of_try(mutation.idempotency_key, 1)
    return (
        f"Look in {mutation.connector}{where} whether this took effect: “{visible(mutation.preview)}”, sent at "
        f"{iso(mutation.first_sent_at)}. Where {mutation.connector} keeps idempotency keys, look for all that "
        f"begin with {first}: what was refused is sent again with a number after that."
    )
