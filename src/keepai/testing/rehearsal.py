"""What a script would do if it were deployed: tried on a copy of the ledger, with real reads and nothing sent.

Every mutation is noted instead of sent, and answered with a result made up from the type that its connector declares.
So the script goes on through its items, `next` and the consumers after it. What comes after such a result is marked: it
may look different for real. The connectors of a rehearsal have no way to send anything. The copy is thrown away.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..app import Keep
from ..connectors.base import Connector
from ..connectors.muted import MutedConnector, Muting
from ..engine.deploy import Configured, Deployment, Grants, modes_of
from ..ledger.base import Reader
from ..ledger.opening import copy
from ..model.clock import SystemClock
from ..model.codec import Json
from ..model.operations import Kind
from ..model.policy import Policy
from ..model.records import Escalation, Mutation, Record, Run, Workflow
from ..model.states import MutationStatus
from ..script.check import check

#: After so many mutations the rehearsal has shown enough.
SHOWN_MAX = 50
#: A rehearsal that takes longer is ended after the run that is under way.
SECONDS_MAX = 120.0


@dataclass(frozen=True)
class RegisteredInput(Record):
    """An input that it registered."""

    source: str
    type: str
    external_id: str
    title: str


@dataclass(frozen=True)
class UnsentMutation(Record):
    """A mutation that was not sent; its result is made up."""

    handler: str
    connector: str
    operation: str
    params: Json
    preview: str  # the host's words
    title: str | None  # the script's
    grant: str | None  # what a person has granted: "allow", "ask", "deny" or nothing
    result: Json  # what was assumed: made up from the type that its connector declares
    assumed: bool  # whether it comes after such a result, and may hold something of it


@dataclass(frozen=True)
class RehearsalStop(Record):
    """What the workflow would stop at."""

    kind: str
    why: str


@dataclass(frozen=True)
class Rehearsal(Record):
    """What the script would do now."""

    deployment: Deployment
    inputs: tuple[RegisteredInput, ...]
    mutations: tuple[UnsentMutation, ...]
    stops: tuple[RehearsalStop, ...]
    more: bool  # whether it was cut off: after `SHOWN_MAX` mutations, or after `SECONDS_MAX`


async def rehearse(
    path: str | Path, source: str, grants: Grants, connectors: Sequence[Connector], policy: Policy,
    strand: bool = False, configured: Configured = None, *, reads_granted_only: bool = False,
) -> Rehearsal:
    """Try a script on a copy of the ledger at `path`, if there is one. Raises what a deploy would.

    With `reads_granted_only` it reads only what the workflow may read now, under the rules of these grants."""
    with tempfile.TemporaryDirectory(prefix="keep-rehearsal-") as folder:
        copied = Path(folder) / "keep.db"
        await asyncio.to_thread(copy, path, copied, SystemClock())
        stage = Muting(SHOWN_MAX)
        muted = [MutedConnector(connector, stage) for connector in connectors]
        async with Keep(copied, connectors=muted, policy=replace(policy, certified="off")) as keep:
            others = await keep.workflows()
            deployed = await keep.deploy(source, grants=grants, strand=strand, configured=configured)
            return await _rehearse(keep, source, deployed, others, stage, reads_granted_only)


async def _rehearse(
    keep: Keep, source: str, deployed: Deployment, others: Sequence[Workflow], stage: Muting,
    reads_granted_only: bool,
) -> Rehearsal:
    workflow_id, ledger = deployed.workflow_id, keep.parts.ledger
    real = await ledger.look(modes_of, keep.parts, workflow_id)
    await _leave_alone(keep, others, workflow_id)
    input, mutation, run = [
        await _newest(keep, workflow_id, each) for each in ("look_inputs", "look_mutations", "look_runs")]
    allowed = _allowed(keep, source, real, reads_granted_only)
    await keep.deploy(source, grants=allowed)
    await keep.run_now(workflow_id)
    await _run(keep, workflow_id, stage)
    inputs = [RegisteredInput(each.source, each.type, each.external_id, each.title)
              for each in await keep.inputs(workflow_id, after=input)]
    sent = [each for each in await keep.mutations(workflow_id, after=mutation)
            if each.status is MutationStatus.APPLIED]
    runs = [*([await keep.run(run)] if run else []), *await keep.runs(workflow_id, after=run)]  # the first may go on
    rests = await ledger.look(_resting_on_assumed, runs, sent)
    handlers = {run.id: run.handler for run in runs}
    held = [_held(each, handlers[each.run_id], real, each.id in rests) for each in sent]
    stops = [] if stage.more else await _stops(keep, workflow_id, rests)
    return Rehearsal(deployed, tuple(inputs), tuple(held), tuple(stops), stage.more)


async def _newest(keep: Keep, workflow_id: str, listing: str) -> str | None:
    """The id of the newest entry that a list has before the rehearsal."""
    row = await keep.parts.ledger.one(listing, workflow_id=workflow_id, limit=1)
    return str(row["id"]) if row else None


async def _run(keep: Keep, workflow_id: str, stage: Muting) -> None:
    """Everything that is due now and what it causes, or as much of it as there is time for."""
    async def halt() -> None:
        await asyncio.sleep(SECONDS_MAX)
        stage.more = True
        await keep.pause(workflow_id)

    halting = asyncio.ensure_future(halt())
    try:
        await keep.run_until_idle()
        while held := [q.id for q in await keep.needs_you(workflow_id) if "approve" in q.actions]:
            for id in held:  # calls that a person was asked about before: the others are allowed here
                await keep.approve(id)
            await keep.run_until_idle()
    finally:
        halting.cancel()


def _resting_on_assumed(read: Reader, runs: Sequence[Run], sent: Sequence[Mutation]) -> set[str]:
    """Of these mutations and all runs, the ids of those that come after an assumed result.

    That is what follows in the same run, what reserves an event that such a run has published, what carries such a run
    on, and a later run of its handler, if that keeps a state."""
    after = set[str]()
    made: dict[str, list[str]] = {}
    for mutation in sent:
        made.setdefault(mutation.run_id, []).append(mutation.id)
    handlers = set[str]()  # that have had such a run
    for run in runs:
        where = {"workflow_id": run.workflow_id}
        pinned = [read.one("event_by_id", event_id=r["event_id"])
                  for r in read.all("reservation_of_run", **where, run_id=run.id)]
        state = read.one("handler_get", **where, handler=run.handler)
        given = (run.retry_of in after or any(event and event["created_by"] in after for event in pinned)
                 or (run.handler in handlers and bool(state and state["state"])))
        own = made.get(run.id, [])
        after.update(own if given else own[1:])
        if own or given:
            after.add(run.id)
            handlers.add(run.handler)
    return after


async def _stops(keep: Keep, workflow_id: str, rests: set[str]) -> list[RehearsalStop]:
    """What the workflow stops at; after an assumed result that may be the result's fault."""
    stops = [_stop(each, each.run_id in rests) for each in await keep.needs_you(workflow_id)]
    if stops:
        return stops
    return [RehearsalStop(each.blocked_status, "it is tried again later") for each in await keep.workflows()
            if each.id == workflow_id and each.blocked_status]


async def _leave_alone(keep: Keep, others: Sequence[Workflow], workflow_id: str) -> None:
    """Pause every other workflow, and resume this one if a person has paused it."""
    for each in others:
        if each.id != workflow_id and each.status.value == "active":
            await keep.pause(each.id)
        elif each.id == workflow_id and each.status.value != "active":
            await keep.resume(each.id)


def _allowed(keep: Keep, source: str, real: Mapping[str, str], reads_granted_only: bool) -> Grants:
    """Every mutation is allowed, for none can be sent here. A read is real: if there is a rule for it, that holds."""
    surface = keep.parts.surface
    manifest = check(source, surface).manifest
    assert manifest is not None, "it was just deployed"
    return {name: "allow" for name in manifest.capabilities if surface.kind(name) is Kind.MUTATION
            or (name not in real and not reads_granted_only)}


def _held(mutation: Mutation, handler: str, grants: Mapping[str, str], assumed: bool) -> UnsentMutation:
    capability = f"{mutation.connector}.{mutation.operation}"
    return UnsentMutation(
        handler, mutation.connector, mutation.operation, mutation.params, mutation.preview, mutation.title,
        grants.get(capability), mutation.result, assumed,
    )


def _stop(question: Escalation, after_assumed: bool) -> RehearsalStop:
    place = f" (at {question.facts['location']})" if question.facts.get("location") else ""
    doubt = " A result before it was assumed: with the real one it may go on." if after_assumed else ""
    return RehearsalStop(question.kind, f"{question.facts.get('why') or question.title}{place}{doubt}")
