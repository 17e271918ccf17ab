"""When this process learned that calls had ended: from then on the time runs after which "not found" is a proof."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.records import Mutation


@dataclass
class CallEnds:
    """Readings of the steady clock by mutation, of calls whose end this process saw.

    A call that an earlier process closed had ended before this one started, for this one has its lock. How long before,
    no clock tells that a restart of the machine does not set back: so its time runs from the start of this process."""

    started_ms: int
    seen_ms: dict[str, int] = field(default_factory=dict)

    def seen(self, mutation_id: str, steady_ms: int) -> None:
        """A call has ended."""
        self.seen_ms.setdefault(mutation_id, steady_ms)

    def forget(self, mutation_id: str) -> None:
        """What became of a mutation is on record: nobody will ask for it again."""
        self.seen_ms.pop(mutation_id, None)

    def settled(self, mutation: Mutation, settle_s: float, steady_ms: int) -> int | None:
        """Milliseconds until "not found" is a proof; None while the call may still be under way."""
        if mutation.closed_at is None:
            return None
        ended = self.seen_ms.get(mutation.id, self.started_ms)
        return max(0, ended + int(settle_s * 1000) - steady_ms)
