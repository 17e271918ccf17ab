"""Runs a new script over what earlier runs were given, and compares what it would do with what they did.

Nothing is called and nothing is written: reads are answered as they were recorded, and each mutation is noted where
the real engine would send it, after the same checks. A run is comparable only if everything that the new script asks
for was recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..ledger.transitions.events import Publication
from ..model.codec import Json, digest, same, stored
from ..model.errors import KeepError, LedgerStopped, NotFound, Refused, ScriptInvalid
from ..model.operations import Step
from ..model.records import Record, Run
from ..model.states import MutationStatus
from ..script.check import check
from .host_parts import Loaded, Parts
from .outcome import SKIPPED
from .recorded_run import Made, NotedCall, NotRecorded, RecordedRun, is_same_thing, load, perform, same_call, sent_by

T = TypeVar("T")

#: So many runs that are not the same are shown; further ones are counted.
SHOWN_MAX = 20
#: So many of the newest recorded runs are compared if nobody says otherwise.
LAST = 200

SAME, CHANGED, FAILS, NOT_COMPARABLE = "same", "changed", "fails", "not_comparable"  # what came of one run
ADDED, MISSING = "added", "missing"  # beside `changed`, what came of one thing that a run does


@dataclass(frozen=True)
class ShadowDifference(Record):
    """One thing that a recorded run did and the new script would not do so, or the other way round."""

    kind: str  # "mutation", "taken" (an event that is reserved), "item" (begun), "input", "event" or "state"
    verdict: str  # CHANGED, ADDED or MISSING
    name: str  # a capability such as `sheets.appendRow`, a topic, or the source of an input
    identity: Json  # by which the two were found to be the same thing
    before: Json  # what the run did; None if added
    after: Json  # what the new script would do; None if missing
    before_words: str = ""  # the connector's words for it
    after_words: str = ""


@dataclass(frozen=True)
class ShadowedRun(Record):
    """What the new script would do with what one recorded run was given."""

    run_id: str
    handler: str
    version: str  # that it ran with
    title: str  # of what it worked on
    verdict: str  # SAME, CHANGED, FAILS or NOT_COMPARABLE
    why: str | None = None  # the error of the script, or what was not recorded
    differences: tuple[ShadowDifference, ...] = ()


@dataclass(frozen=True)
class ShadowReport(Record):
    """A new script beside the recorded runs of its workflow."""

    workflow_id: str
    name: str
    version: str  # the active one
    script_hash: str  # of the new script
    runs: int  # that were compared
    same: int
    changed: int  # with a difference, or the new script fails
    not_comparable: int
    differing: tuple[ShadowedRun, ...]  # every run that is not the same, the newest first, as far as they are shown
    not_shown: int = 0  # how many more there are
    handlers: tuple[str, ...] = ()  # those of the runs that were compared

    @property
    def all_same(self) -> bool:
        """Whether runs were compared, and the new script does the same in all of them."""
        return 0 < self.runs == self.same

    @property
    def words(self) -> str:
        """The report in one sentence."""
        if not self.runs:
            return "nothing to compare with: no run of this version was recorded"
        if self.all_same:
            return f"the same in {'the one recorded run' if self.runs == 1 else f'all {self.runs:,} recorded runs'}"
        told = [f"{count:,} {what}" for count, what in (
            (self.same, "the same"), (self.changed, "changed"), (self.not_comparable, "not comparable")) if count]
        return f"of {self.runs:,} recorded {'run' if self.runs == 1 else 'runs'}: {', '.join(told)}"

    @classmethod
    def shown_too(cls) -> tuple[str, ...]:
        return ("all_same", "words")


async def shadow(
    parts: Parts, workflow: str, source: str, *, last: int | None = None, since_ms: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> ShadowReport:
    """Run `source` over the newest recorded runs of a workflow, or those that began since a moment.

    Only runs of the active major version count: what another script did is not what this one is to be compared with."""
    loaded = await _loaded(parts, source)
    row, found = await parts.ledger.look(_recorded, workflow, last, since_ms)
    if loaded.manifest.name != row["name"]:
        raise Refused(f"The script is named {loaded.manifest.name!r}, and the workflow {row['name']!r}.")
    done: list[ShadowedRun] = []
    for run in found:
        done.append(await compare(parts, run, loaded))
        progress(len(done), len(found))
    differing = [each for each in done if each.verdict != SAME]
    unknown = sum(each.verdict == NOT_COMPARABLE for each in done)
    return ShadowReport(
        row["id"], row["name"], f"{row['major']}.{row['minor']}", digest(source), len(done),
        len(done) - len(differing), len(differing) - unknown, unknown, tuple(differing[:SHOWN_MAX]),
        len(differing[SHOWN_MAX:]), tuple(sorted({each.handler for each in done})),
    )


async def _loaded(parts: Parts, source: str) -> Loaded:
    by_id = parts.policy.mutate_reads == "by_id"
    checked = await asyncio.to_thread(check, source, parts.surface, mutate_reads=by_id)
    if checked.manifest is None or checked.errors:
        raise ScriptInvalid(checked.findings)
    return Loaded(source, checked.manifest)


def _recorded(read: Reader, workflow: str, last: int | None, since_ms: int | None) -> tuple[Row, list[Run]]:
    """The workflow, and its recorded runs, the newest first."""
    row = read.one("workflow_by_id", workflow_id=workflow) or read.one("workflow_by_name", name=workflow)
    if row is None:
        raise NotFound(f"There is no workflow {workflow!r}. `keep status` lists them.")
    if last is not None and last < 1:
        raise Refused(f"There is nothing to compare with in the last {last} runs: last is 1 or more.")
    limit = last if last is not None else LAST if since_ms is None else _ALL
    found = read.all(
        "recorded_runs", workflow_id=row["id"], major=row["major"], since_at=since_ms or 0, limit=limit)
    return row, [run_record(each) for each in found]


_ALL = 1_000_000


async def compare(parts: Parts, run: Run, loaded: Loaded) -> ShadowedRun:
    """What a script would do with what one run was given, beside what that run did."""
    recorded = await parts.ledger.look(load, run)

    def came(verdict: str, why: str | None = None, differences: Sequence[ShadowDifference] = ()) -> ShadowedRun:
        title = ", ".join(recorded.titles[:3]) + (", …" if len(recorded.titles) > 3 else "")
        return ShadowedRun(run.id, run.handler, run.version, title, verdict, why, tuple(differences))

    try:
        new = await perform(parts, recorded, loaded)
        if _is_as_recorded(parts, recorded, new):
            return came(SAME)
        before = await parts.ledger.look(parts.script, run.workflow_id, run.number)
        old = await _again(parts, recorded, before)
    except LedgerStopped:
        raise
    except NotRecorded as missing:
        return came(NOT_COMPARABLE, str(missing))
    except KeepError as error:
        place = f" (line {error.at.line})" if error.at else ""
        return came(FAILS, f"{error.message}{place}")
    differences = list(_differences(parts, old, new))
    return came(CHANGED, None, differences) if differences else came(SAME)


async def _again(parts: Parts, recorded: RecordedRun, before: Loaded) -> Made:
    """What the version that ran does with the recording. If that is not what it did then, the recording is not all that
    it depends on, and a difference says nothing about the new script."""
    unlike = NotRecorded(f"version {recorded.run.version} itself would not do the same again")
    try:
        old = await perform(parts, recorded, before)
    except LedgerStopped:
        raise
    except KeepError as error:
        raise unlike from error
    if not _is_as_recorded(parts, recorded, old):
        raise unlike
    return old


def _is_as_recorded(parts: Parts, recorded: RecordedRun, made: Made) -> bool:
    """Whether a script does what the run did: the same calls, the same events and items taken, all else by its hash."""
    sent, run = sent_by(recorded), recorded.run
    taken = [(row["topic"], row["message_id"]) for row in recorded.reserved]
    if run.outcome == SKIPPED or any(row["status"] == MutationStatus.SKIPPED for row in recorded.mutations):
        raise NotRecorded("a person skipped what the run wanted to send")
    if made.stops is not None or made.taken != taken or len(made.calls) != len(sent):
        return False
    routine = recorded.steps.get(Step.ROUTINE.value)
    if routine is not None and {id for id, _ in made.items} != routine.open_items:
        return False
    if not all(same_call(parts, a, b) for a, b in zip(sent, made.calls, strict=True)):
        return False
    last = recorded.steps.get({"producer": "producer", "consumer": "next", "routine": "routine"}[run.kind])
    return made.hash == (last.made if last is not None else Made().hash)


def _differences(parts: Parts, old: Made, new: Made) -> Iterator[ShadowDifference]:
    """What two scripts do otherwise, given the same."""
    yield from _calls(parts, old.calls, new.calls)
    yield from _listed("taken", old.taken, new.taken, lambda each: each, lambda each: each[0])
    yield from _listed("item", old.items, new.items, lambda each: each[:1], lambda each: each[1])
    if new.stops is not None:
        return  # what follows is not known
    yield from _listed(
        "input", old.inputs, new.inputs, lambda each: (each.source, each.type, each.external_id, each.title),
        lambda each: each.source)
    yield from _events(old.events, new.events)
    if (old.state, new.state) != (None, None) and (
            old.state is None or new.state is None or not same(old.state, new.state)):
        yield ShadowDifference("state", CHANGED, "state", None, _value(old.state), _value(new.state))


def _calls(parts: Parts, old: Sequence[NotedCall], new: Sequence[NotedCall]) -> Iterator[ShadowDifference]:
    """Calls for the same thing belong together; of what is left, those of the same operation for the same unit do."""
    left, added = list(old), list[NotedCall]()
    pairs: list[tuple[NotedCall, NotedCall]] = []
    for call in new:
        match = next((each for each in left if is_same_thing(each, call)), None)
        if match is None:
            added.append(call)
        else:
            left.remove(match)
            pairs.append((match, call))
    for call in list(added):
        match = next((each for each in left if (each.unit, each.capability) == (call.unit, call.capability)), None)
        if match is not None:
            left.remove(match)
            added.remove(call)
            pairs.append((match, call))
    for before, after in pairs:
        if not same_call(parts, before, after):
            yield _call(CHANGED, before, after)
    yield from (_call(MISSING, each, None) for each in left)
    yield from (_call(ADDED, None, each) for each in added)


def _call(verdict: str, before: NotedCall | None, after: NotedCall | None) -> ShadowDifference:
    known = before or after
    assert known is not None
    return ShadowDifference(
        "mutation", verdict, known.capability, stored(known.identity), _value(before.params if before else None),
        _value(after.params if after else None), before.preview if before else "", after.preview if after else "",
    )


def _events(old: Sequence[Publication], new: Sequence[Publication]) -> Iterator[ShadowDifference]:
    before, after = [{(each.topic, each.message_id): each for each in events} for events in (old, new)]
    for address in {**before, **after}:
        one, other = before.get(address), after.get(address)
        if one and other and same(one.payload, other.payload) and one.causes == other.causes:
            continue
        verdict = CHANGED if one and other else MISSING if one else ADDED
        yield ShadowDifference(
            "event", verdict, address[0], address[1], _value(one.payload if one else None),
            _value(other.payload if other else None))


def _listed(
    kind: str, old: Sequence[T], new: Sequence[T], shown: Callable[[T], Sequence[str]], name: Callable[[T], str],
) -> Iterator[ShadowDifference]:
    """Things that are there or not, and have nothing that could change."""
    before, after = {shown(each): each for each in old}, {shown(each): each for each in new}
    for key, each in before.items():
        if key not in after:
            yield ShadowDifference(kind, MISSING, name(each), None, list(key), None)
    for key, each in after.items():
        if key not in before:
            yield ShadowDifference(kind, ADDED, name(each), None, None, list(key))


def _value(text: str | None) -> Json:
    return None if text is None else stored(text)
