"""Mending a script that failed: evidence out, a new version in, by the host's rules.

A hook (a model, a program, a person's tool) is given the evidence of a `failed:logic` run and may offer a script.
The host refuses one that is not valid, changes the topics, the names of events or the failing handler, uses more than
before, or exceeds the budget. Every other one is tried on recorded runs (repair_gate.py), and goes live by itself if
these show that it changes nothing else. If not, it waits for a person, with the list of what the faulty version
touched. What its author says of it decides nothing. An unknown outcome never comes here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..ledger.base import Reader, Row
from ..ledger.transitions import repairs
from ..ledger.transitions.shown_acts import ShownAct, as_shown
from ..model.codec import decode, encode, sound
from ..model.errors import KeepError, Refused
from ..model.records import Error, Record, Run
from ..model.states import Reason, RepairStatus, Status
from ..script.check import check
from ..script.message_ids import renamed
from . import failure
from .deploy import Plan, plan
from .host_parts import Loaded, Parts
from .repair_budget import tries_left
from .repair_gate import try_repair

IMPACTS = ("safe", "potentially_impactful")


@dataclass(frozen=True)
class Evidence(Record):
    """Everything that may help to mend a script."""

    workflow_id: str
    workflow: str
    run_id: str
    handler: str
    version: str
    source: str
    error: Error | None
    trace: tuple[str, ...]  # calls, logs and warnings of the run, in order
    inputs: tuple[str, ...]  # titles of the inputs that it was working on
    tries_left: int


@dataclass(frozen=True)
class Fix:
    """A script offered as a repair, and what its author says of it; a person sees that, and no rule asks for it."""

    source: str
    impact: str | None = None  # whether what was done before may be wrong; one of IMPACTS
    note: str = ""


RepairHook: TypeAlias = Callable[[Evidence], Awaitable["Fix | str | None"]]


def by_command(command: Sequence[str]) -> RepairHook:
    """A hook that is a program: it reads the evidence as JSON and prints {"source", "impact"?, "note"?}, or nothing."""

    async def hook(known: Evidence) -> Fix | None:
        program = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name in _PASSED_ON},
        )
        try:
            said, _ = await program.communicate(encode(known.to_json()).encode())
        except BaseException:
            program.kill()
            raise
        if program.returncode:
            raise RuntimeError(f"{command[0]} ended with code {program.returncode}")
        answer: Any = decode(said, what=f"the answer of {command[0]}") if said.strip() else None
        return Fix(**answer) if isinstance(answer, dict) else None

    return hook


#: What a program needs to run at all. The rest of the host's environment may hold keys, and the program reads what
#: strangers wrote.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")


async def ask_hook(parts: Parts, run: Run, actor: str) -> None:
    """Hand the evidence to the hook and do with its answer what the rules say."""
    repair_id = await parts.ledger.write(repairs.ask_repair, run, barrier=True)
    offered, note = await _offered(parts, await parts.ledger.look(evidence, parts, run))
    if offered is None:
        await _end(parts, repair_id, RepairStatus.DECLINED, note)
        return
    try:
        await _offer(parts, run, repair_id, offered, actor)
    except KeepError as error:
        await _end(parts, repair_id, RepairStatus.REFUSED, error.message)


async def fix(parts: Parts, run: Run, offered: Fix, actor: str) -> str:
    """The same door for a person or an agent; gives the id of the try. Raises what the rules refuse.

    It is judged like any other: who offers a script does not also approve it. A person who is sure deploys it."""
    if run.state is not Status.FAILED or run.reason is not Reason.LOGIC:
        raise Refused(f"Run {run.id} is {run.status}: there is no fault of the script to mend. Use deploy instead.")
    tried = await parts.ledger.one("repair_of_run", run_id=run.id)
    if tried is not None and tried["status"] in (RepairStatus.ASKED, RepairStatus.WAITING):
        waits = "waits for a person: approve or reject it first" if tried["source"] else "is with the repair hook"
        raise Refused(f"Run {run.id} has a repair already: {tried['id']} {waits}.")
    if await parts.ledger.look(tries_left, parts, run) <= 0:
        raise Refused(f"Run {run.id} has used up its {parts.policy.repairs_max} repairs. A person must deploy.")
    repair_id = await parts.ledger.write(repairs.ask_repair, run, barrier=True)
    try:
        await _offer(parts, run, repair_id, offered, actor)
    except KeepError as error:
        await _end(parts, repair_id, RepairStatus.REFUSED, error.message)
        raise
    return repair_id


async def _offer(parts: Parts, run: Run, repair_id: str, offered: Fix, actor: str) -> None:
    """Check what is offered, try it, and let it in or have it wait for a person."""
    if offered.impact is not None and offered.impact not in IMPACTS:
        raise Refused(f"The impact of a repair must be one of {', '.join(IMPACTS)}, not {offered.impact!r}.")
    planned = await planned_repair(parts, run, offered, actor)
    before = (await parts.ledger.look(parts.script, run.workflow_id, run.number)).manifest
    trial = await try_repair(parts, run, before, Loaded(offered.source, planned.manifest))
    offer = repairs.Offer(offered.source, offered.impact, sound(offered.note), encode(trial.to_json()))
    if trial.waits is None:
        await parts.ledger.write(
            repairs.admit_repair, repair_id, run, offer, planned.version, planned.number, barrier=True)
    else:
        await parts.ledger.write(repairs.offer_repair, repair_id, run, offer, barrier=True)


async def approve(parts: Parts, run: Run, row: Row, act: ShownAct) -> None:
    """A person has looked at what the faulty version touched and lets the repair in."""
    offered = Fix(row["source"], row["impact"], row["note"] or "")
    planned = await planned_repair(parts, run, offered, act.actor)
    await parts.ledger.write(
        as_shown(repairs.deploy_repair), act, row["id"], run, planned.version, planned.number, barrier=True,
    )


def evidence(read: Reader, parts: Parts, run: Run) -> Evidence:
    """What is known about a run that failed."""
    where = {"workflow_id": run.workflow_id, "run_id": run.id}
    workflow = read.one("workflow_by_id", workflow_id=run.workflow_id)
    assert workflow is not None, run
    lines = [f"{r['step']} {r['kind']} {r['name']}: {r['args'] or ''} → {r['error'] or r['answer'] or ''}"
             for r in read.all("look_trace", **where)]
    return Evidence(
        workflow_id=run.workflow_id, workflow=workflow["name"], run_id=run.id, handler=run.handler,
        version=run.version, source=parts.script(read, run.workflow_id, run.number).source, error=run.error,
        trace=tuple(lines), inputs=tuple(str(row["title"]) for row in failure.inputs_of(read, run)),
        tries_left=tries_left(read, parts, run),
    )


async def _offered(parts: Parts, known: Evidence) -> tuple[Fix | None, str]:
    """The hook's answer; whatever goes wrong with it means: nothing offered."""
    assert parts.repair is not None, "asked only where there is a hook"
    try:
        async with asyncio.timeout(parts.policy.repair_s):
            answer = await parts.repair(known)
    except TimeoutError:
        return None, f"the repair hook did not answer within {parts.policy.repair_s:g} s"
    except Refused as refusal:
        return None, refusal.message
    except Exception as error:
        return None, f"the repair hook raised {type(error).__name__}: {error}"
    if answer is None:
        return None, "the repair hook had nothing to offer"
    if isinstance(answer, str | Fix):
        return (Fix(answer) if isinstance(answer, str) else answer), ""
    return None, f"the repair hook answered with a {type(answer).__name__}, not with a script or a Fix"


async def planned_repair(parts: Parts, run: Run, offered: Fix, actor: str) -> Plan:
    """The version that a repair would be; raises what breaks a rule of the host."""
    planned = await plan(
        parts, offered.source, workflow_id=run.workflow_id, grants=None, author="maintainer",
        impact=offered.impact or "potentially_impactful", strand=False, actor=actor,
    )
    if planned.same:
        raise Refused("The repair is the script that failed.")
    if planned.before != run.number:
        raise Refused(f"The repair is for version {run.version}, and another one is active by now.")
    before = (await parts.ledger.look(parts.script, run.workflow_id, run.number)).manifest
    if set(planned.manifest.topics) != set(before.topics):
        raise Refused(f"A repair keeps the topics ({', '.join(before.topics)}). A person must deploy other ones.")
    if planned.manifest.handler(run.handler) is None:
        raise Refused(f"A repair keeps the handler that failed, {run.handler!r}, and this one has none.")
    await _check_names(parts, run, planned)
    return planned


async def _check_names(parts: Parts, run: Run, planned: Plan) -> None:
    """An event that got another name would be taken for another one, and what was done for it would be done again."""
    failed = await parts.ledger.look(parts.script, run.workflow_id, run.number)
    before = await asyncio.to_thread(check, failed.source, parts.surface)
    found = renamed(before.message_ids, planned.message_ids)
    if found is None:
        return
    place, old, new = found
    raise Refused(
        f"A repair keeps the messageIds, for events that got other ones would be processed again. "
        f"{place.handler!r} named those of {place.topic!r} {old.text} in {place.step}, and this repair names them "
        f"{', '.join(each.text for each in new)}. A person may deploy it."
    )


async def _end(parts: Parts, repair_id: str, target: RepairStatus, note: str) -> None:
    await parts.ledger.write(repairs.end_repair, repair_id, target, sound(note), barrier=True)
