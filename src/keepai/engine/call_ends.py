"""Which calls of this process are under way, and when it learned that others had ended: from then on the time runs
after which "not found" is a proof."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.records import Mutation


@dataclass
class CallEnds:
    """Readings of the steady clock by mutation, of calls whose end this process saw.

    When a call of another process ended, no clock of this one tells: its time runs from the moment at which this one
    first knew that it had."""

    started_ms: int
    seen_ms: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, str] = field(default_factory=dict)  # by mutation, its workflow; a call may go on for long

    def begin(self, mutation: Mutation) -> None:
        """A call is made."""
        self.under_way[mutation.id] = mutation.workflow_id

    def seen(self, mutation_id: str, steady_ms: int) -> None:
        """A call has ended."""
        self.under_way.pop(mutation_id, None)
        self.seen_ms.setdefault(mutation_id, steady_ms)

    def forget(self, mutation_id: str) -> None:
        """What became of a mutation is on record: nobody will ask for it again."""
        self.seen_ms.pop(mutation_id, None)

    def settled(self, mutation: Mutation, settle_s: float, steady_ms: int) -> int | None:
        """Milliseconds until "not found" is a proof; None while the call may still be under way."""
        if mutation.closed_at is None:
            return None
        ended = self.seen_ms.setdefault(mutation.id, steady_ms)
        return max(0, ended + int(settle_s * 1000) - steady_ms)
