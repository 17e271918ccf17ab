"""A verdict with what was tried: the new version runs on a copy of the ledger, over the events that wait now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..model.errors import KeepError
from ..model.records import Run
from ..model.states import Phase, Status, WorkflowStatus
from .copied_host import CopiedHost, Ending, NotTried, copied_host, ending
from .deploy import Grants, deploy
from .host_parts import Parts
from .next_step import look
from .verdict import DeployVerdict, Fate, OpenThing, Tried, can_be_tried, untried

#: After so many runs that fail or ask, a trial has shown enough.
STOPS_MAX = 20
_ACTOR = "a trial"


async def tried(
    parts: Parts, source: str, verdict: DeployVerdict, *, grants: Grants, rehearse: bool,
) -> DeployVerdict:
    """The verdict, with what became on a copy of everything that the new version can take. With `rehearse`, reads are
    made for real."""
    if verdict.workflow_id is None or not untried(verdict.things):
        return verdict
    if any(each.what is Fate.UNDER_WAY for each in verdict.things):
        return replace(verdict, because=("a run is under way",))
    try:
        async with copied_host(parts, verdict.workflow_id, reads=rehearse) as there:
            await deploy(
                there.parts, source, workflow_id=verdict.workflow_id, grants=grants, author="person", strand=True,
                actor=_ACTOR)
            return await _seen(there, verdict)
    except NotTried as why:
        return replace(verdict, because=(why.message,))


async def _seen(there: CopiedHost, verdict: DeployVerdict) -> DeployVerdict:
    workflow_id, ledger = there.workflow_id, there.parts.ledger
    row = await ledger.one("workflow_by_id", workflow_id=workflow_id)
    if row is not None and row["status"] != WorkflowStatus.ACTIVE:
        await there.commands.resume(workflow_id, _ACTOR)
    stops, because = await _to_its_end(there)
    things = await ledger.look(_told, there, verdict, stops, held=because is not None)
    left = untried(things)
    return replace(verdict, things=things, not_tried=left, because=(because,) if because and left else ())


async def _to_its_end(there: CopiedHost) -> tuple[Mapping[str, Ending], str | None]:
    """Run everything, past every run that fails or asks: what these came to, by lineage, and why it ended early."""
    stops = dict[str, Ending]()
    for _ in range(STOPS_MAX):
        await there.go_on()
        if there.cut_off:
            return stops, there.cut_off
        stopped = await there.parts.ledger.look(_stopped, there)
        if stopped is None:
            return stops, None
        stops.setdefault(stopped.run.lineage, stopped)
        held = f"{stopped.run.handler!r} comes first, and {stopped.words}"
        try:
            if stopped.asks:
                await there.commands.approve(stopped.asks, _ACTOR)
            elif stopped.fails and stopped.run.phase is not Phase.PREPARING:
                await there.commands.skip_run(stopped.run.id, _ACTOR)
            else:
                return stops, held
        except KeepError:
            return stops, held
    return stops, f"more than {STOPS_MAX} runs would stop"


def _stopped(read: Reader, there: CopiedHost) -> Ending | None:
    """The run that holds the workflow."""
    now = look(read, there.workflow_id, there.parts.clock.now_ms(), there.parts.policy, there.parts)
    return ending(read, now.run) if now.run is not None else None


def _told(
    read: Reader, there: CopiedHost, verdict: DeployVerdict, stops: Mapping[str, Ending], *, held: bool,
) -> tuple[OpenThing, ...]:
    first = _first_assumed(read, there)
    return tuple(
        _of(read, there, each, stops, first, held=held) if can_be_tried(each) else each for each in verdict.things)


def _first_assumed(read: Reader, there: CopiedHost) -> int | None:
    """The place of the first run that got a result that was made up: what comes after it may rest on that."""
    rows = read.all("look_mutations", workflow_id=there.workflow_id, limit=2 * there.muting.mutations_max)
    runs = [read.one("run_by_id", run_id=row["run_id"]) for row in rows if row["epoch"] == there.parts.ledger.epoch]
    return min((int(run["seq"]) for run in runs if run is not None), default=None)


def _of(
    read: Reader, there: CopiedHost, thing: OpenThing, stops: Mapping[str, Ending], first: int | None, *, held: bool,
) -> OpenThing:
    run = _run_of(read, there, thing)
    if run is None:
        left = thing.kind == "event" and not held
        return replace(thing, tried=Tried.LEFT, came="it would be looked at, and left") if left else thing
    found = stops.get(run.lineage) or ending(read, run)
    came = _came(found)
    if came is Tried.STOPS and there.cut_off:
        return thing  # the trial ended in the midst of it
    sends = f"it would send “{found.sends}”, and then " if found.sends and not found.asks else ""
    assumed = first is not None and run.seq > first
    return replace(thing, tried=came, came=f"{sends}{found.words}", at=found.at, assumed=assumed)


def _came(found: Ending) -> Tried:
    if found.asks:
        return Tried.ASKS
    if found.run.state is not Status.COMMITTED:
        return Tried.FAILS if found.fails else Tried.STOPS
    return Tried.TAKEN if found.sends else Tried.PASSED


def _run_of(read: Reader, there: CopiedHost, thing: OpenThing) -> Run | None:
    """The newest run of the trial that had a thing in hand."""
    rows: list[Row] = []
    if thing.kind == "event":
        rows = read.all("look_runs_of_event", workflow_id=there.workflow_id, event_id=thing.id)
    elif thing.run_id is not None:
        row = read.one("run_by_id", run_id=thing.run_id)
        rows = read.all("look_lineage", workflow_id=there.workflow_id, lineage=row["lineage"]) if row else []
    here = [run_record(row) for row in rows if row["epoch"] == there.parts.ledger.epoch]
    return here[-1] if here else None
