"""Why things are in their state, in sentences made from what the ledger holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..ledger.base import Row
from ..model.clock import iso
from ..model.codec import stored
from ..model.records import Approval, Gap, Mutation, Run
from ..model.states import DOUBTFUL, ApprovalStatus, MutationStatus, Phase, Status
from .left_items import why_left
from .wording import count, run_stands

#: Why a run began → how people say it.
TRIGGERS = {
    "event": "an event arrived", "recheck": "events wait that it did not take the last time",
    "wake": "it asked to be woken", "freed": "the parked run that it waited for is done",
    "schedule": "its time had come", "run_now": "a person asked for it",
    "arrival": "a connector that it reads may have something new", "rest": "it goes on without an item that is parked",
    "retry": "it was time to try again", "granted": "what it lacked was granted",
    "connected": "the connector that it lacked is configured",
    "new_version": "a new version is active", "person": "a person asked for it", "recovery": "its host had died",
    "ended": "its host was stopped while it ran",
}

_PHASES = {
    Phase.PREPARING: "prepare selects what to work on", Phase.PREPARED: "prepare has selected, mutate comes next",
    Phase.MUTATING: "mutate runs, or its one call is under way", Phase.MUTATED: "its mutation happened, next follows",
    Phase.EMITTING: "next runs", Phase.EXECUTING: "its handler runs",
}

_MUTATIONS = {
    MutationStatus.IN_FLIGHT: "It was recorded and is being sent; it may or may not have happened yet.",
    MutationStatus.APPLIED: "It happened: the outside system said so.",
    MutationStatus.FAILED: "It did not happen.",
    MutationStatus.NEEDS_RECONCILE: "It is not known yet whether it happened; Keep is asking the outside system.",
    MutationStatus.INDETERMINATE: "Nobody can tell whether it happened.",
    MutationStatus.SKIPPED: "A person chose to go on without knowing whether it happened.",
}

_APPROVALS = {
    ApprovalStatus.PENDING: "This call is held until a person has seen it.",
    ApprovalStatus.APPROVED: "A person said yes to exactly this call; it has not been sent yet.",
    ApprovalStatus.REJECTED: "A person said no: nothing was sent, and the run went on without it.",
    ApprovalStatus.EXPIRED: "It was not answered, or not used, in time; Keep asked again.",
    ApprovalStatus.VOID: "What was asked no longer exists: its run was skipped, or another run carried on.",
    ApprovalStatus.CONSUMED: "It was approved and used up: exactly this call was sent once.",
}


def standing(run: Run) -> str:
    """How a run stands, in a few words."""
    return f"{run.status} in {run.phase}" if run.phase is not Phase.COMMITTED else run.status


def of_run(run: Run, lineage: Sequence[Run]) -> str:
    """Why a run is in its state."""
    match run.state:
        case Status.ACTIVE:
            return f"It began because {TRIGGERS.get(run.trigger, run.trigger)}; {_PHASES[run.phase]}."
        case Status.PAUSED | Status.FAILED:
            return _error(run)
        case Status.COMMITTED:
            return _committed(run)
        case Status.ABANDONED:
            given_up = "A person gave it up, or a new version has no such handler; its events wait again."
            return _after(run, given_up)
    after = next((r for r in lineage if r.retry_of == run.id), None)
    carried = f"run {after.id} carries on, because {TRIGGERS.get(after.trigger, after.trigger)}" if after else ""
    begun = f"Its host died while {_PHASES[run.phase]}" if run.state is Status.CRASHED else "It stopped"
    return _after(run, f"{begun}; {carried}.")


def _error(run: Run) -> str:
    if run.error is None:
        return "It waits for a person."
    place = f" (line {run.error.line} of the script, in {run.error.step})" if run.error.line else ""
    return f"{run.error.message}{place}"


def _after(run: Run, sentence: str) -> str:
    return f"{sentence} It had stopped because: {_error(run)}" if run.error else sentence


def _committed(run: Run) -> str:
    if run.kind == "producer":
        return "It is finished: what it found is registered and published."
    if run.kind == "routine":
        return "It is finished: its handler returned."
    outcome = stored(run.outcome) if run.outcome else None
    became = outcome.get("status") if isinstance(outcome, dict) else None
    return {
        "applied": "It is finished: its mutation happened, and its events are consumed.",
        "skipped": "It is finished: a person chose to go on without the mutation, and its events are skipped.",
    }.get(str(became), "It is finished: it sent nothing.")


def of_mutation(mutation: Mutation) -> str:
    """What is known of a mutation, and from whom."""
    said = f" A person's word: {mutation.resolution}." if mutation.resolution else ""
    if mutation.status is MutationStatus.APPLIED:
        if said:
            return f"It counts as happened.{said}"
        return _MUTATIONS[mutation.status] if mutation.doubted_at is None else (
            "It happened: the outside system was asked and found it.")
    why = f" {mutation.error.message}" if mutation.error and mutation.status is not MutationStatus.SKIPPED else ""
    return f"{_MUTATIONS[mutation.status]}{why}{said}"


def of_approval(approval: Approval) -> str:
    """What became of the question whether a call may be made."""
    by = f" {approval.decided_by} decided." if approval.decided_by else ""
    return f"{_APPROVALS[approval.status]}{by}"


def of_event(event: Row, runs: Sequence[Run], moves: Sequence[Row], left: str, *, is_result: bool) -> str:
    """Why an event waits, or what took it; a result does neither. `left` says who has looked at it and not taken it."""
    if event["status"] == "consumed":
        taken = next((r for r in reversed(runs) if r.state is Status.COMMITTED), None)
        return f"Run {taken.id} took it.{_late_payloads(event)}" if taken else f"A run took it.{_late_payloads(event)}"
    if event["status"] == "skipped":
        return f"{_why_skipped(moves[-1])}{_late_payloads(event)}"
    again = f" This is attempt {event['attempt']}: a person had it processed again." if event["attempt"] > 1 else ""
    held = f" {count(event['held'], 'later payload')} came meanwhile and stays on record." if event["held"] else ""
    if event["reserved_by"]:
        return f"Run {event['reserved_by']} has reserved it.{again}{held}"
    if event["held_by"]:
        return (f"It waits for run {event['held_by']}, which is parked and works on an input of it: what comes of one "
                f"input is done in order.{again}{held}")
    if is_result:
        return f"It is a result: no handler takes events of topic {event['topic']!r}.{again}{held}"
    return f"It has waited in topic {event['topic']!r} since {iso(event['created_at'])}.{left}{again}{held}"


def _why_skipped(move: Row) -> str:
    """Who skipped an event, from the last move that the account has of it."""
    if move["source"] is None:
        return "It was skipped when it came: a person had skipped every input behind it."
    of = f" when run {move['why']} ended" if move["why"] else ""
    return f"A person skipped it{of}."


def _late_payloads(event: Row) -> str:
    """What came after an event was taken or had ended."""
    late = event["newest"] - event["revision"]
    if late <= 0:
        return ""
    lost = late - event["held"]
    gone = f" {count(lost, 'older payload')} of these {'is' if lost == 1 else 'are'} no longer kept." if lost else ""
    if late == 1:
        return f" Revision {event['newest']} came too late and was not processed.{gone}"
    return f" {count(late, 'later payload')} up to revision {event['newest']} came too late: not processed.{gone}"


_ENDED_ITEMS = {
    "done": "Its handler returned", "skipped": "A person skipped it",
}


def of_item(item: Row, runs: Sequence[Run], mutations: Sequence[Mutation]) -> str:
    """Why an item is in its state."""
    applied = sum(m.status is MutationStatus.APPLIED for m in mutations)
    again = f" This is attempt {item['attempt']}: a person had it worked on again." if item["attempt"] > 1 else ""
    again += "".join(f" Nobody knows whether “{m.preview}” happened." for m in mutations if m.status in DOUBTFUL)
    done = f"{count(applied, 'output')} went out for it" if applied else "nothing went out for it"
    if item["status"] in _ENDED_ITEMS:
        return f"{_ENDED_ITEMS[item['status']]}; {done}{' in all' if applied else ''}.{again}"
    if item["held_by"] is None:
        if item["status"] == "processing":
            return f"It waits for its routine {item['handler']!r} to come to it; {done}.{again}"
        return f"{why_left(item, runs[-1].id)} {done[:1].upper()}{done[1:]}.{again}"
    stopped = next((r for r in reversed(runs) if r.id == item["held_by"]), None)
    why = f": {_error(stopped)}" if stopped and stopped.state in (Status.PAUSED, Status.FAILED) else ""
    return f"Run {item['held_by']} holds it{why} ({done}).{again}"


def of_input(
    row: Row, events: Sequence[Row], waiting: int, mutations: Sequence[Mutation], held: Sequence[Row],
) -> str:
    """What came of an input; `waiting` is how many of its events wait."""
    applied = sum(m.status is MutationStatus.APPLIED for m in mutations)
    came = f"“{row['title']}” led to {count(len(events), 'event')} and {count(applied, 'output')}"
    if row["waiting"]:
        return f"{came}; {count(waiting, 'event')} not taken yet."
    if row["status"] == "skipped":
        return f"{came}; a person skipped it."
    if row["late"]:
        return f"{came}; {_unprocessed(held)}."
    later = f" A later payload came too: {_unprocessed(held)}." if held else ""
    return f"{came}; nothing of it waits.{later}"


def _unprocessed(held: Sequence[Row]) -> str:
    """That payloads of an input came too late to be processed."""
    if len({each["event_id"] for each in held}) > 1:
        listed = ", ".join(f"revision {each['revision']} of {each['topic']}/{each['message_id']}" for each in held)
        return f"it came after its events were finished; {listed}: not processed"
    numbers = [str(each["revision"]) for each in held]
    if len(numbers) == 1:
        return f"it came after its event was finished; revision {numbers[0]} was not processed"
    return f"it came after its event was finished; revisions {', '.join(numbers)} were not processed"


def standing_of_workflow(row: Row, run: Run | None) -> str:
    """How a workflow stands, in a few words."""
    blocked = f", blocked by a run that {run_stands(run.status)}" if run and run.state is not Status.ACTIVE else ""
    return f"{row['status']}{blocked}"


def left_by(consumer: str, looks: int, since: str, what: str) -> str:
    """That a consumer has looked and does not take what waits, in words; nothing if it has not looked."""
    return f" {consumer!r} has looked {count(looks, 'time')} since {since} and left {what}." if looks else ""


def of_workflow(row: Row, run: Run | None, gaps: Sequence[Gap] = ()) -> str:
    """Why a workflow runs or does not, and which of its consumers leave what waits."""
    left = "".join(left_by(g.handler, g.looks, iso(g.since_at), "what waits") for g in gaps if g.looks)
    return f"{_of_workflow(row, run)}{left}"


def _of_workflow(row: Row, run: Run | None) -> str:
    version = f"version {row['major']}.{row['minor']}"
    if row["status"] != "active":
        return f"A person {row['status']} it; it starts nothing ({version})."
    if run is None:
        return f"None of its handlers is running ({version})."
    if run.state is Status.ACTIVE:
        return f"{run.handler} is under way as run {run.id} ({version})."
    return f"Run {run.id} of {run.handler} holds it: {_error(run)}"
