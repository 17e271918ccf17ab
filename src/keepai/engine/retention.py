"""How long the content of finished work is kept, by policy: when it is thrown away, and how much that would be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..ledger.base import Reader
from ..ledger.transitions import pruning
from ..ledger.transitions.pruning import Emptied
from ..model.errors import LedgerStopped
from ..model.records import Record
from .host_parts import Parts

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
        """With another stretch."""
        return replace(
            self, runs=self.runs + len(emptied.runs), events=self.events + len(emptied.events),
            traces=self.traces + emptied.traces, bytes=self.bytes + emptied.bytes,
        )


def before_ms(now_ms: int, days: int) -> int:
    """The moment before which what ended is old enough; never before 1970, when there was nothing."""
    return max(0, now_ms - days * DAY_MS)


async def prune(parts: Parts, before: int, actor: str, of: Callable[[str], bool] = lambda workflow_id: True) -> Pruned:
    """Throw it away, of these workflows, in short transactions, so that runs go on in between."""
    done = Pruned(before)
    if not before:
        return done
    for window in await parts.ledger.look(pruning.windows, before):
        if not of(window.workflow_id):
            continue
        found = await parts.ledger.look(pruning.to_prune, window)
        if found.runs or found.events:
            await parts.ledger.write(pruning.prune, window, found, actor)
            done = done.and_also(found)
        await asyncio.sleep(0)
    await parts.ledger.barrier()
    return done


def measure(read: Reader, before: int) -> Pruned:
    """How much that would be; nothing is changed."""
    done = Pruned(before)
    for window in pruning.windows(read, before):
        done = done.and_also(pruning.to_prune(read, window))
    return done


async def tend(parts: Parts, runs: Callable[[str], bool]) -> None:
    """Once a day, for as long as a host serves, in the workflows that it runs."""
    while True:
        before = before_ms(parts.clock.now_ms(), parts.policy.retention_days)
        try:
            await prune(parts, before, parts.ledger.host, runs)
        except LedgerStopped:
            return  # whoever looks is told; nothing is written until the ledger is opened again
        await asyncio.sleep(_AGAIN_S)
