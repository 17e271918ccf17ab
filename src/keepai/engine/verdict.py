"""What a new version does to everything of its workflow that is open.

There is one decision, and it is not made here: the verb that activates the version runs, `next_step` says what each
open run does under it, and this module puts that into words. A deploy asks in the transaction in which it happens; a
verdict asks in one that is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..ledger.base import Reader, Row
from ..model.records import Record, Run
from ..model.states import DOUBTFUL, Phase, Reason, Status, WorkflowStatus
from .approval import intent_of
from .host_parts import Parts
from .next_step import Abandon, CarryOn, Continue, Now, Stopped, look, step_of_run

#: Of each kind, so many things are named; the others are only counted.
NAMED_MAX = 200


class Fate(StrEnum):
    GOES_ON = "goes_on"  #: it stays as it is
    UNDER_WAY = "under_way"  #: its run works at this moment, and ends under the version that it began with
    STARTS_AGAIN = "starts_again"  #: its run starts again at `prepare`, or a producer or routine at its top
    FINISHES = "finishes"  #: its call has happened: only `next` of the new version runs, with that outcome
    GIVEN_UP = "given_up"  #: the new version has no such handler: the run ends, and its events wait again
    NOBODY = "nobody"  #: nobody takes it any more
    VOID = "void"  #: the question to a person goes away unanswered
    WAITS = "waits"  #: a handler of the new version is offered it
    BECOMES_WORK = "becomes_work"  #: it was a result that nobody took, and the new version takes it


class Tried(StrEnum):
    """What came of it on a copy."""

    TAKEN = "taken"  #: it would be taken, and a call would be made for it
    PASSED = "passed"  #: it would be taken, and nothing would be sent for it
    LEFT = "left"  #: the handler would look at it and leave it
    ASKS = "asks"  #: it would be taken, and a person would be asked
    STOPS = "stops"  #: the run that takes it would stop
    FAILS = "fails"  #: the same, by a fault of the script


@dataclass(frozen=True)
class OpenThing(Record):
    """Something that is open, and what becomes of it."""

    kind: str  # "run", "parked run", "event", "approval", "repair" or "item"
    id: str
    title: str
    what: Fate
    words: str
    run_id: str | None = None  # the run that has it in hand
    tried: Tried | None = None  # None: it was not tried
    came: str | None = None  # what came of that, in words
    at: str | None = None  # line and column of the new script, where it would fail
    assumed: bool = False  # it was tried with a result that was made up, and may come out differently


@dataclass(frozen=True)
class DeployVerdict(Record):
    """What a deploy would do, or did, to each open thing of its workflow."""

    workflow_id: str | None  # None: it is a new workflow
    name: str
    version: str
    before: str | None
    changed: bool
    refused: str | None  # why the deploy is refused as it is; the rest is what it does with --strand
    things: tuple[OpenThing, ...]
    more: int  # things beyond those that are named
    not_tried: int  # of those that are named, and that a handler of the new version can take
    because: tuple[str, ...] = ()  # why they were not tried


@dataclass(frozen=True)
class Outlook:
    """The part of it that one look gives."""

    things: tuple[OpenThing, ...] = ()
    more: int = 0


def subscribed(read: Reader, workflow_id: str | None) -> frozenset[str]:
    """The topics whose events a handler takes now."""
    rows = read.all("look_topics", workflow_id=workflow_id) if workflow_id else ()
    return frozenset(str(row["name"]) for row in rows if row["subscriber"] is not None)


def outlook(read: Reader, parts: Parts, workflow_id: str, before: frozenset[str]) -> Outlook:
    """What the active version, as `read` sees it, does to what is open; `before` are the topics that were taken under
    the version before. Inside the transaction of a deploy that version is the new one."""
    unknowing = replace(parts, _scripts={})  # what is read here may be taken back, and must not be remembered
    now = look(read, workflow_id, parts.clock.now_ms(), parts.policy, unknowing)
    runs = list(_runs(read, now, at_work=parts.at_work(workflow_id)))
    fates = {thing.run_id: thing for _, _, thing in runs}
    asked = [each for run, stopped, thing in runs for each in _asked(read, run, stopped, thing)]
    events, more_events = _events(read, now, before, fates)
    items, more_items = _items(read, now, fates)
    return Outlook((*(thing for _, _, thing in runs), *asked, *events, *items), more_events + more_items)


# -- runs ------------------------------------------------------------------------------------------


def _runs(read: Reader, now: Now, *, at_work: bool) -> Iterator[tuple[Run, Stopped, OpenThing]]:
    held = [(now.run, now.stopped or Stopped(), "run")] if now.run else []
    for run, stopped, kind in [*held, *((each, facts, "parked run") for each, facts in now.parked)]:
        works = at_work and run.state is Status.ACTIVE and not run.parked
        what, words = _under_way(run) if works else _of_run(now, run, stopped)
        paused = now.workflow["status"] != WorkflowStatus.ACTIVE and what is not Fate.GOES_ON
        words += f" That is when the workflow is resumed: it is {now.workflow['status']}." if paused else ""
        yield run, stopped, OpenThing(kind, run.id, _title(read, run), what, words, run.id)


def _title(read: Reader, run: Run) -> str:
    inputs = read.all("look_inputs_of_run", workflow_id=run.workflow_id, run_id=run.id)
    about = ", ".join(str(row["title"]) for row in inputs[:3])
    return f"{run.handler}: {about}" if about else run.handler


def _under_way(run: Run) -> tuple[Fate, str]:
    return Fate.UNDER_WAY, f"It is under way, and ends under version {run.version}, unless it stops before."


def _of_run(now: Now, run: Run, stopped: Stopped) -> tuple[Fate, str]:
    """What `next_step` does with a run that rests."""
    version, step = "{}.{}".format(*now.active), step_of_run(now, run, stopped)
    present = now.manifest.handler(run.handler) is not None
    match step:
        case CarryOn(_, how) if how.phase is Phase.EMITTING:
            return Fate.FINISHES, f"Its call is done with. Only `next` of version {version} runs, with that outcome."
        case CarryOn(_, how) if how.keep:
            return Fate.GOES_ON, "It goes on from where it stopped, with what it had prepared."
        case CarryOn():
            if run.phase is Phase.EXECUTING:
                return Fate.STARTS_AGAIN, f"It runs again from its top, under version {version}."
            return Fate.STARTS_AGAIN, f"It starts again at prepare, under version {version}; its events are let go."
        case Abandon():
            return Fate.GIVEN_UP, f"Version {version} has no handler {run.handler!r}: the run is ended."
        case Continue():
            return Fate.UNDER_WAY, f"It goes on now, and ends under version {run.version}, unless it stops before."
    sent = stopped.mutation
    if sent is not None and sent.status in DOUBTFUL:
        after = f"then version {version} goes on" if present else f"version {version} has no handler {run.handler!r}"
        return Fate.GOES_ON, f"It waits as before until it is known whether “{sent.preview}” happened; {after}."
    if not present:
        return Fate.NOBODY, (
            f"Its call is done with, and version {version} has no handler {run.handler!r}: only `finish` can end it.")
    waits = "for a person" if run.reason is Reason.INTERNAL else "as before"
    return Fate.GOES_ON, f"It waits {waits}; the new version changes nothing for it."


def _asked(read: Reader, run: Run, stopped: Stopped, thing: OpenThing) -> Iterator[OpenThing]:
    """The questions to a person that hang on a run: they go with it."""
    stays = thing.what in (Fate.GOES_ON, Fate.UNDER_WAY, Fate.NOBODY)
    what = Fate.GOES_ON if stays else Fate.VOID
    words = "It waits for an answer as before." if stays else "The card becomes void: the run goes on without it."
    if stopped.approval is not None:
        yield OpenThing("approval", stopped.approval.id, intent_of(stopped.approval).preview, what, words, run.id)
    repair = read.one("repair_of_run", run_id=run.id)
    if repair is not None and repair["status"] == "waiting":
        yield OpenThing("repair", str(repair["id"]), str(repair["note"] or "a repair"), what, words, run.id)


# -- events and items ------------------------------------------------------------------------------


def _events(
    read: Reader, now: Now, before: frozenset[str], runs: Mapping[str | None, OpenThing],
) -> tuple[list[OpenThing], int]:
    """Every event that waits in a topic that somebody took before, or takes now."""
    named, more, workflow_id = list[OpenThing](), 0, now.workflow["id"]
    for topic in read.all("look_topics", workflow_id=workflow_id):
        if topic["name"] not in before and topic["subscriber"] is None:
            continue
        where = {"workflow_id": workflow_id, "topic": topic["name"]}
        rows = read.all("event_open_in_topic", **where, limit=NAMED_MAX - len(named))
        if len(named) + len(rows) >= NAMED_MAX:
            count = read.one("event_open_count", **where)
            more += int(count["waiting"]) - len(rows) if count else 0
        named += [_event(each, topic, now, before, runs) for each in rows]
    return named, more


def _event(
    row: Row, topic: Row, now: Now, before: frozenset[str], runs: Mapping[str | None, OpenThing],
) -> OpenThing:
    version, holder = "{}.{}".format(*now.active), runs.get(row["reserved_by"])
    what, words = _of_event(row, topic, version, before, holder)
    working = next((each for each in runs.values() if each.what is Fate.UNDER_WAY), None)
    if working is not None and holder is None:
        words += f" Unless run {working.id} takes it, which is under way."
    title = row["title"] or f"{row['topic']}/{row['message_id']}"
    return OpenThing("event", str(row["id"]), str(title), what, words, row["reserved_by"])


def _of_event(
    row: Row, topic: Row, version: str, before: frozenset[str], holder: OpenThing | None,
) -> tuple[Fate, str]:
    taker = topic["subscriber"]
    if holder is not None and holder.what in (Fate.GOES_ON, Fate.UNDER_WAY, Fate.FINISHES):
        return holder.what, f"Run {holder.id} has reserved it, and keeps it."
    if holder is not None and holder.what is Fate.NOBODY:
        return Fate.NOBODY, f"Run {holder.id} has reserved it, and only `finish` can end that."
    if taker is None:
        return Fate.NOBODY, f"Version {version} takes no events of {row['topic']!r}: it stays without a taker."
    if row["topic"] not in before:
        return Fate.BECOMES_WORK, f"It was a result that nobody took; {taker!r} of version {version} takes such events."
    if holder is not None:
        return Fate.STARTS_AGAIN, f"Run {holder.id} lets it go, and {taker!r} of version {version} is offered it."
    return Fate.WAITS, f"{taker!r} of version {version} is offered it."


def _items(read: Reader, now: Now, runs: Mapping[str | None, OpenThing]) -> tuple[list[OpenThing], int]:
    """Every item that was begun and is not finished."""
    rows = read.all("item_open", workflow_id=now.workflow["id"], limit=NAMED_MAX)
    count = read.one("item_open_count", workflow_id=now.workflow["id"])
    more = int(count["unfinished"]) - len(rows) if count else 0
    return [_item(each, now, runs.get(each["held_by"])) for each in rows], more


def _item(row: Row, now: Now, holder: OpenThing | None) -> OpenThing:
    version = "{}.{}".format(*now.active)
    if holder is not None and holder.what is not Fate.GIVEN_UP:
        what, words = holder.what, f"Run {holder.id} has it in hand: {holder.words}"
    elif now.manifest.handler(row["handler"]) is None:
        what, words = Fate.NOBODY, f"Version {version} has no routine {row['handler']!r} to finish it."
    else:
        what, words = Fate.WAITS, f"{row['handler']!r} of version {version} may come to it when it runs."
    return OpenThing("item", str(row["id"]), str(row["title"]), what, words, row["held_by"])


def can_be_tried(thing: OpenThing) -> bool:
    """Whether a handler of the new version can take it."""
    goes_to = (Fate.WAITS, Fate.BECOMES_WORK, Fate.STARTS_AGAIN)
    return thing.what in goes_to or (thing.what is Fate.FINISHES and thing.kind != "event")


def untried(things: Sequence[OpenThing]) -> int:
    """How many of these a handler of the new version can take, without anybody having tried what it does."""
    return sum(each.tried is None and can_be_tried(each) for each in things)
