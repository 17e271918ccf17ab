"""How long the content of finished work is kept, by policy: when it is thrown away, and how much that would be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ledger.base import Reader
from ..ledger.transitions import retention as verbs
from ..ledger.transitions.retention import Emptied
from ..model.errors import LedgerStopped
from ..model.records import Record
from .parts import Parts

DAY_MS = 86_400_000
_AGAIN_S = 86_400.0


@dataclass(frozen=True)
class Pruned(Record):
    """What was, or would be, thrown away of work that ended before a moment."""

    before_at: int
    runs: int = 0
    events: int = 0
    traces: int = 0
    bytes: int = 0

    def and_also(self, emptied: Emptied) -> Pruned:
        """With another batch."""
        return replace(
            self, runs=self.runs + emptied.runs, events=self.events + emptied.events,
            traces=self.traces + emptied.traces, bytes=self.bytes + emptied.bytes,
        )


def before_ms(now_ms: int, days: int) -> int:
    """The moment before which what ended is old enough; never before 1970, when there was nothing."""
    return max(0, now_ms - days * DAY_MS)


async def prune(parts: Parts, before: int, actor: str) -> Pruned:
    """Throw it away, in short transactions, so that runs go on in between."""
    done = Pruned(before)
    if not before:
        return done
    for row in parts.ledger.read().all("workflow_all"):
        for verb in (verbs.prune_runs, verbs.prune_events):
            after: int | None = 0
            while after is not None:
                emptied = await parts.ledger.write(verb, row["id"], before, after, actor)
                done, after = done.and_also(emptied), emptied.after
    await parts.ledger.barrier()
    return done


def measure(read: Reader, before: int) -> Pruned:
    """How much that would be; nothing is changed."""
    done = Pruned(before)
    for row in read.all("workflow_all"):
        for emptied in _batches(read, str(row["id"]), before):
            done = done.and_also(emptied)
    return done


def _batches(read: Reader, workflow_id: str, before: int) -> Iterator[Emptied]:
    after: int | None = 0
    while after is not None:
        emptied = verbs.size_of_runs(read, workflow_id, verbs.runs_to_prune(read, workflow_id, before, after))
        yield emptied
        after = emptied.after
    after = 0
    while after is not None:
        emptied = verbs.size_of_events(verbs.events_to_prune(read, workflow_id, before, after))
        yield emptied
        after = emptied.after


async def tend(parts: Parts) -> None:
    """Once a day, for as long as a host serves."""
    while True:
        before = before_ms(parts.clock.now_ms(), parts.policy.retention_days)
        try:
            await prune(parts, before, parts.ledger.host)
        except LedgerStopped:
            return  # whoever looks is told; nothing is written until the ledger is opened again
        await asyncio.sleep(_AGAIN_S)
