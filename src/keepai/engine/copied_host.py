"""A host on a copy of the ledger, on which something is tried: its connectors can send nothing, and the copy is thrown
away.

What is tried there is done by the same engine as for real, so no rule stands here. A mutation is answered with a result
that is made up from its type. A read is made only if whoever tries wants that; otherwise the trial ends there, and says
so.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..connectors.muted import MutedConnector, Muting
from ..ledger.base import Reader
from ..ledger.opening import copy, open_ledger, open_reader
from ..ledger.rows import run_record
from ..ledger.transitions import workflows
from ..model.errors import KeepError, Refused
from ..model.records import Mutation, Run
from ..model.states import OPEN, MutationStatus, Reason, Status
from ..notices.base import Message
from . import approval
from .call_ends import CallEnds
from .commands import Commands
from .host import Host
from .host_parts import Parts
from .relaunch import last_mutation
from .telling import Asked, Teller

#: A ledger that takes more room is not copied.
BYTES_MAX = 64 << 20
#: After so many mutations a trial has shown enough.
MUTATIONS_MAX = 50
#: A trial that takes longer is ended after the run that is under way.
SECONDS_MAX = 5.0


class NotTried(Refused):
    """It cannot be tried on a copy."""


@dataclass
class CopiedHost:
    """The host on the copy."""

    parts: Parts
    host: Host
    muting: Muting
    workflow_id: str
    late: bool = field(default=False)  # whether it took too long

    @property
    def commands(self) -> Commands:
        """What a person does there."""
        return Commands(self.parts, self.host)

    async def go_on(self) -> None:
        """Run everything that is due and what it causes, or as much as there is time for."""
        async def halt() -> None:
            await asyncio.sleep(SECONDS_MAX)
            self.late = True
            with suppress(KeepError):
                await self.commands.pause(self.workflow_id, "a trial")

        halting = asyncio.ensure_future(halt())
        try:
            await self.host.run_until_idle()
        finally:
            halting.cancel()

    @property
    def cut_off(self) -> str | None:
        """Why it did not get to its end, if so."""
        if self.muting.unread:
            return f"it reads {', '.join(sorted(self.muting.unread))}"
        if self.muting.more:
            return f"it makes more than {self.muting.mutations_max} mutations"
        return f"it takes longer than {SECONDS_MAX:g} s" if self.late else None


@asynccontextmanager
async def copied_host(parts: Parts, workflow_id: str, *, reads: bool) -> AsyncIterator[CopiedHost]:
    """A host on a copy of the ledger as it is now; nothing but this workflow does anything there."""
    await asyncio.to_thread(_check_room, parts.place)
    with tempfile.TemporaryDirectory(prefix="keep-trial-") as folder:
        copied = Path(folder) / "keep.db"
        await parts.ledger.barrier()
        await asyncio.to_thread(copy, parts.place, copied, parts.clock)
        muting = Muting(MUTATIONS_MAX, reads)
        ledger = open_ledger(copied, parts.clock)
        ends = CallEnds(parts.call_ends.started_ms, dict(parts.call_ends.seen_ms))
        there = Parts(
            ledger=ledger, runtime=parts.runtime, surface=parts.surface, clock=parts.clock, ids=ledger.ids,
            connectors={name: MutedConnector(each, muting) for name, each in parts.connectors.items()},
            policy=replace(parts.policy, certified="off"), call_ends=ends, place=copied, redactor=parts.redactor,
        )
        host = Host(there, Teller(there, (), _Unasked()))
        try:
            await ledger.write(workflows.rest_but, workflow_id)
            await host.join()
            yield CopiedHost(there, host, muting, workflow_id)
        finally:
            await host.close(0.0)
            await ledger.close()


def _check_room(place: str | Path) -> None:
    if str(place) == ":memory:":
        raise NotTried("the ledger is in memory, where it cannot be copied")
    with closing(open_reader(place)) as read:
        if read.bytes() > BYTES_MAX:
            raise NotTried(f"the ledger is larger than {BYTES_MAX >> 20} MB")


class _Unasked:
    """Nobody is told anything of a trial: it has no channels."""

    def asked(self, read: Reader, now_ms: int) -> list[Asked]:
        return []

    def letter(self, read: Reader, asked: Sequence[Asked], now_ms: int, *, again: bool) -> Message:
        raise AssertionError("a trial has no channels")

    async def digest(self, since_ms: int, until_ms: int) -> Message:
        raise AssertionError("a trial has no channels")


# -- what came of it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """How far a piece of work has come in a trial."""

    run: Run  # the newest of its lineage
    words: str  # "it commits", "it fails at line 12: …"
    sends: str | None = None  # the call that it would make, in the host's words
    asks: str | None = None  # the id of the approval that it waits for

    @property
    def fails(self) -> bool:
        """Whether the script is at fault."""
        return self.run.state is Status.FAILED and self.run.reason is Reason.LOGIC

    @property
    def at(self) -> str | None:
        """Where in the script."""
        error = self.run.error
        return f"{error.line}:{error.column}" if self.fails and error and error.line else None


def ending(read: Reader, run: Run) -> Ending:
    """What has become of the lineage of a run."""
    newest = run_record(read.all("look_lineage", workflow_id=run.workflow_id, lineage=run.lineage)[-1])
    asked, sent = approval.of_run(read, newest), last_mutation(read, newest)
    held = approval.intent_of(asked).preview if asked else None
    return Ending(newest, _words(newest, held), held or _sends(sent, newest), asked.id if asked else None)


def _sends(sent: Mutation | None, run: Run) -> str | None:
    """What it sent in the trial; what was sent before, for real, is not news."""
    here = sent is not None and sent.epoch == run.epoch and sent.status is MutationStatus.APPLIED
    return sent.preview if here and sent is not None else None


def _words(run: Run, held: str | None) -> str:
    error = run.error.message if run.error else ""
    if run.state not in OPEN:
        given_up = "it would be given up, and what it had waits again"
        return "it would commit" if run.state is Status.COMMITTED else given_up
    if held is not None:
        return f"it would ask you whether “{held}” may be sent"
    if run.state is Status.FAILED and run.reason is Reason.LOGIC:
        place = f" at line {run.error.line}" if run.error and run.error.line else ""
        return f"it would fail{place}: {error}"
    return f"it would stop ({run.status}): {error}" if error else f"it would be {run.status}"
