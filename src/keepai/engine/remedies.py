"""What a person could do about something that stands still, tried on a copy first: does it lead on?

An act is done there by the same code as for real, and the workflow runs on. What cannot be known on a copy is not
guessed: no outside system is asked or read, and a call that would be sent counts as if it were taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ledger.base import Reader
from ..ledger.rows import run_record
from ..model.errors import KeepError
from ..model.records import Record, Run
from ..model.states import OPEN, Status
from .copied_host import CopiedHost, Ending, NotTried, copied_host, ending
from .host_parts import Parts

#: Of so many acts it is tried what comes of them.
ACTS_MAX = 6
#: No other act is tried after so long.
SECONDS_MAX = 6.0
_ACTOR = "a trial"
_OF_MUTATION = ("happened", "did_not_happen", "skip", "keep")
_OUTSIDE = {"try_again": "the outside system would be asked, and only it knows the answer",
            "deploy": "there is no mended script yet: keep deploy --verdict FILE tries one"}


@dataclass(frozen=True)
class OfferedAct:
    """An act that is offered, and what it is done to."""

    act: str
    subject: str
    capability: str | None = None


@dataclass(frozen=True)
class Remedy(Record):
    """An act that is offered, and what came of it on a copy."""

    act: str
    subject: str
    leads_on: bool | None  # None: that cannot be known on a copy
    words: str


def stopped_run(read: Reader, workflow_id: str, id: str) -> str | None:
    """The run that an explanation of something is about: its own, or the one that holds its workflow."""
    row = None
    if id.startswith("run_"):
        row = read.one("run_by_id", run_id=id)
    elif id.startswith("evt_"):
        event = read.one("event_by_id", event_id=id)
        row = read.one("run_by_id", run_id=event["reserved_by"]) if event and event["reserved_by"] else None
    elif id.startswith(("mut_", "apr_")):
        about = read.one("mutation_by_id", mutation_id=id) if id.startswith("mut_") else (
            read.one("approval_by_id", approval_id=id))
        row = read.one("run_by_id", run_id=about["run_id"]) if about else None
    row = row or read.one("run_open", workflow_id=workflow_id)
    return str(row["id"]) if row is not None else None


async def try_remedies(
    parts: Parts, workflow_id: str, run_id: str | None, offered: Sequence[OfferedAct],
) -> tuple[Remedy, ...]:
    """What comes of each of these acts. `run_id` is the run that it is about, if it is about one."""
    found, begun = list[Remedy](), parts.clock.steady_ms()
    for each in dict.fromkeys(offered):
        late = len(found) >= ACTS_MAX or parts.clock.steady_ms() - begun > SECONDS_MAX * 1_000
        if each.act in _OUTSIDE or late:
            why = _OUTSIDE.get(each.act, "there was no time to try it")
            found.append(Remedy(each.act, each.subject, None, f"not tried: {why}"))
            continue
        found.append(await _tried(parts, workflow_id, run_id, each))
    return tuple(found)


async def _tried(parts: Parts, workflow_id: str, run_id: str | None, offered: OfferedAct) -> Remedy:
    try:
        async with copied_host(parts, workflow_id, reads=False) as there:
            before = await there.parts.ledger.look(_ending, run_id)
            leads_on, words = await _lead(there, before, offered)
    except NotTried as why:
        leads_on, words = None, f"not tried: {why.message}"
    return Remedy(offered.act, offered.subject, leads_on, words)


async def _lead(there: CopiedHost, before: Ending | None, offered: OfferedAct) -> tuple[bool | None, str]:
    """Whether an act leads on, and how that is seen."""
    try:
        await _act(there, offered)
    except KeepError as refused:
        return False, f"tried: it would be refused: {refused.message}"
    await there.go_on()
    after = await there.parts.ledger.look(_ending, before.run.id if before else None)
    if before is None or after is None:
        return True, "tried: it would be done"
    if there.cut_off and after.run.state in OPEN:
        return None, f"not tried to its end: {there.cut_off}"
    if _the_same(before.run, after.run):
        place = f" at line {after.run.error.line}" if after.run.error and after.run.error.line else ""
        how = "fail again" if after.fails else "stop again"
        return False, f"tried: it would {how}{place}, the same way"
    sends = f"“{after.sends}” would be sent; if it is taken, " if after.sends and not after.asks else ""
    return not after.fails, f"tried: {sends}{_told(after)}"


def _told(after: Ending) -> str:
    return "the run would commit" if after.run.state is Status.COMMITTED else after.words


def _the_same(before: Run, after: Run) -> bool:
    """Whether a run has stopped as it did before: in the same status, by the same error at the same place."""
    if (before.state, before.reason) != (after.state, after.reason) or after.state not in OPEN:
        return False
    if before.error is None or after.error is None or before.lacks != after.lacks:
        return before.error is after.error
    was, now = before.error, after.error
    return (was.code, was.message, was.line, was.column) == (now.code, now.message, now.line, now.column)


def _ending(read: Reader, run_id: str | None) -> Ending | None:
    row = read.one("run_by_id", run_id=run_id) if run_id else None
    return ending(read, run_record(row)) if row is not None else None


async def _act(there: CopiedHost, offered: OfferedAct) -> None:
    """What a person does, done on the copy."""
    acts, subject = there.commands, offered.subject
    if offered.act in _OF_MUTATION:
        await acts.resolve(subject, offered.act, None, _ACTOR)
    elif offered.act == "grant":
        await acts.grant(there.workflow_id, str(offered.capability), "allow", _ACTOR)
    else:
        await getattr(acts, offered.act)(subject, _ACTOR)
