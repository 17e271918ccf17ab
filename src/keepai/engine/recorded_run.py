"""Runs a script over what one earlier run was given, by the engine's own steps, without a host's rights.

Reads are answered from the recording. The gate has no way to a connector, and nothing here writes to the ledger. A
mutation is checked and put into its connector's words as the engine does before it sends it; then it is only noted.
Whatever the script asks for that was not recorded ends it with `NotRecorded`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..ledger.transitions.events import Publication, Registration
from ..ledger.transitions.runs import moved
from ..model.codec import Json, sound, stored, text_of
from ..model.errors import RuleBroken
from ..model.operations import Step
from ..model.records import Run
from ..model.states import ItemStatus, MutationStatus
from ..runtime.base import Operation, Reply
from ..runtime.event_texts import in_pieces
from ..script.manifest import Handler, HandlerKind
from . import consumer_run, mutation
from .consumer_run import Chosen
from .gate import Gate, Work
from .host_parts import Loaded, Parts
from .mutation import Unit, Wanted
from .producer_run import kept_state
from .recording import key_of, made_of
from .routine_run import Items, fixed_by_lineage
from .run_context import RunContext


class NotRecorded(Exception):
    """The script asked for something that the earlier run was not given, or that is no longer kept."""


class Given:
    """What one step of the run was given."""

    def __init__(self, given: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        self._given, self._texts = given, texts
        self.at = int(given["at"])
        self.made: str | None = given.get("made")
        self.open_items = frozenset[str](given.get("open", ()))
        self._reads: dict[tuple[str, str], list[list[Any]]] = defaultdict(list)
        for entry in given.get("reads", ()):
            self._reads[entry[0], entry[1]].append(entry)

    @property
    def state(self) -> str | None:
        """The state of the handler as the step saw it."""
        return self._text(self._given["state"], "the state of the handler") if "state" in self._given else None

    def read(self, name: str, params: Json, asked: Counter[tuple[str, str]]) -> Reply:
        """What a connector answered to a call that was `asked` so often before."""
        call = (name, key_of(params))
        if asked[call] >= len(self._reads[call]):
            self.check_whole()
            raise NotRecorded(f"it calls ctx.{name} in a way in which the run did not")
        entry = self._reads[call][asked[call]]
        asked[call] += 1
        text, cuts = in_pieces(stored(self._text(entry[2], f"the answer of ctx.{name}")))
        return Reply(text, entry[3] if len(entry) > 3 else None, cuts=cuts)

    def page(self, topic: str, after: int) -> tuple[int | None, Sequence[Any]]:
        """A stretch of the events that waited in a topic after a place: up to where it is known, and its events."""
        for name, begins, until, entries in self._given.get("pages", ()):
            if name == topic and begins <= after and (until is None or until > after):
                return until, [each for each in entries if _number(each) > after]
        self.check_whole()
        raise NotRecorded(f"it looks at events of {topic!r} that the run did not look at")

    def event(self, read: Reader, workflow_id: str, topic: str, message_id: str) -> Row | None:
        """An event that waited, by its name; None if none of that name did."""
        pages = [page for page in self._given.get("pages", ()) if page[0] == topic]
        entries = [*self._given.get("found", ()), *(entry for page in pages for entry in page[3])]
        known = read.one("event_find", workflow_id=workflow_id, topic=topic, message_id=message_id)
        entry = next((each for each in entries if known is not None and _number(each) == known["seq"]), None)
        if entry is not None:
            return event_as_it_was(read, workflow_id, entry)
        if [topic, message_id] in self._given.get("absent", ()) or any(p[1] == 0 and p[2] is None for p in pages):
            return None
        self.check_whole()
        raise NotRecorded(f"it asks for the event {message_id!r} of {topic!r}, and the run did not")

    def check_whole(self) -> None:
        """Raise if the step was given more than is recorded."""
        if self._given.get("over"):
            raise NotRecorded("the run was given more than one recording holds (policy recording_bytes_max)")

    def _text(self, kept: Any, what: str) -> str:
        if isinstance(kept, str):
            return kept
        if "bytes" in kept:
            raise NotRecorded(
                f"{what} had {kept['bytes']:,} bytes and was not recorded whole (policy recording_bytes_max)")
        if kept["hash"] not in self._texts:
            raise NotRecorded(f"{what} is no longer kept")
        return self._texts[kept["hash"]]


def _number(entry: Any) -> int:
    return int(entry[0] if isinstance(entry, list) else entry)


def event_as_it_was(read: Reader, workflow_id: str, entry: Any) -> Row:
    """An event in the form and the attempt in which a run was shown it."""
    number, revision, attempt = entry if isinstance(entry, list) else (entry, 1, 1)
    row = read.one("event_by_seq", workflow_id=workflow_id, seq=number)
    assert row is not None, f"event {number} is never deleted"
    payload = row["payload"]
    if row["revision"] != revision:
        pinned = read.one("event_pinned_as", workflow_id=workflow_id, event_id=row["id"], revision=revision)
        payload = pinned["payload"] if pinned else ""
    if payload == "":
        raise NotRecorded(f"the payload of {row['message_id']!r} in {row['topic']!r} is no longer kept as it was")
    return {**row, "event_id": row["id"], "payload": payload, "revision": revision, "attempt": attempt,
            "status": "pending", "reserved_by": None}


@dataclass(frozen=True)
class RecordedRun:
    """An earlier run, and what it was given, step by step."""

    run: Run
    steps: Mapping[str, Given]
    mutations: tuple[Row, ...] = ()  # that its lineage sent, in order
    reserved: tuple[Row, ...] = ()
    titles: tuple[str, ...] = ()  # of the inputs that it worked on

    def step(self, step: Step) -> Given:
        """What a step was given."""
        if step.value not in self.steps:
            raise NotRecorded(f"what its {step} was given was not recorded")
        return self.steps[step.value]


def load(read: Reader, run: Run) -> RecordedRun:
    """A run with what it was given; what `prepare` was given may stand with a run that it carries on."""
    steps = _steps(read, run)
    earlier: Run | None = run
    while Step.PREPARE.value not in steps and run.prepared_at is not None and earlier and earlier.retry_of:
        row = read.one("run_by_id", run_id=earlier.retry_of)
        earlier = run_record(row) if row and row["prepared_at"] == run.prepared_at else None
        found = _steps(read, earlier) if earlier else {}
        steps |= {name: given for name, given in found.items() if name == Step.PREPARE.value}
    where = {"workflow_id": run.workflow_id}
    inputs = read.all("look_inputs_of_run", **where, run_id=run.id)
    return RecordedRun(
        run, steps, tuple(read.all("mutations_of_lineage", **where, lineage=run.lineage)),
        tuple(read.all("reservation_of_run", **where, run_id=run.id)), tuple(str(row["title"]) for row in inputs),
    )


def _steps(read: Reader, run: Run) -> dict[str, Given]:
    found = {}
    for row in read.all("recording_of_run", workflow_id=run.workflow_id, seq=run.seq):
        given: Any = stored(row["given"])
        kept = [given.get("state"), *(entry[2] for entry in given.get("reads", ()))]
        hashes = {each["hash"] for each in kept if isinstance(each, dict) and "hash" in each}
        texts = {name: each["text"] for name in hashes if (
            each := read.one("recorded_text_get", workflow_id=run.workflow_id, hash=name)) is not None}
        found[str(row["step"])] = Given(given, texts)
    return found


@dataclass(frozen=True)
class NotedCall:
    """A mutation as it was sent, or would be."""

    unit: str  # the item, or nothing in a consumer
    capability: str
    target: str
    identity: str
    subkey: str | None
    payload: str
    params: str
    preview: str


@dataclass
class Made:
    """What a script brings about in one run."""

    calls: list[NotedCall] = field(default_factory=list)
    taken: list[tuple[str, str]] = field(default_factory=list)  # events: (topic, messageId)
    items: list[tuple[str, str]] = field(default_factory=list)  # that were not done when it came to them: (id, title)
    inputs: tuple[Registration, ...] = ()
    events: tuple[Publication, ...] = ()
    state: str | None = None  # None: it stays
    stops: str | None = None  # why it is not known what follows its last call

    @property
    def hash(self) -> str:
        """The same as that of the recording if inputs, events and state are."""
        return made_of(self.inputs, self.events, self.state)


async def perform(parts: Parts, recorded: RecordedRun, loaded: Loaded) -> Made:
    """Run a script over what a run was given. Raises `NotRecorded`, or the error by which the script fails."""
    run = recorded.run
    handler = loaded.manifest.handler(run.handler)
    if handler is None or handler.kind.value != run.kind:
        raise RuleBroken(f"The script has no {run.kind} {run.handler!r}.")
    first = {HandlerKind.PRODUCER: Step.PRODUCER, HandlerKind.CONSUMER: Step.PREPARE, HandlerKind.ROUTINE: Step.ROUTINE}
    context = ShadowContext(parts, recorded, loaded, handler, recorded.step(first[handler.kind]).state)
    if handler.kind is HandlerKind.CONSUMER:
        return await _consumer(context)
    made = Made()
    if handler.kind is HandlerKind.PRODUCER:
        ended, gate = await context.step(Step.PRODUCER, (context.state,))
        made.inputs = tuple(gate.gathered.inputs.values())
        made.events = tuple(gate.gathered.publications.values())
    else:
        fixed = await parts.ledger.look(fixed_by_lineage, run)
        try:
            ended, _ = await context.step(
                Step.ROUTINE, (context.state,), items=ShadowItems(context, made), fixed=fixed)
        except _ResultUnknown as unknown:
            made.stops = str(unknown)
            return made
    made.state = kept_state(parts, ended.value, handler.name)
    return made


async def _consumer(context: ShadowContext) -> Made:
    chosen = await consumer_run.choose(context)
    reserved = await context.parts.ledger.look(context.pin, chosen)
    made = Made(taken=[(row["topic"], row["message_id"]) for row in reserved])
    context.reserved, run = reserved, context.run
    context.run = moved(run, prepare_result=chosen.prepared.text, prepared_at=chosen.prepared.at)
    called = await consumer_run.called_by(context, chosen) if reserved and context.handler.has_mutate else None
    if called is not None:
        made.calls.append(noted(mutation.checked_call(context, called, Step.MUTATE), ""))
    if not same_calls(context.parts, sent_by(context.recorded_run), made.calls):
        made.stops = "its result is not known"
    elif context.handler.has_next and run.outcome is not None:
        context.state = context.recorded_run.step(Step.NEXT).state
        made.events, made.state, _ = await consumer_run.follow_up(context)
    return made


def noted(call: Wanted, unit: str) -> NotedCall:
    """A call that was checked, as it would be sent."""
    return NotedCall(
        unit, call.operation.name, sound(call.target), call.identity, call.subkey, call.payload, text_of(call.params),
        call.preview,
    )


def sent_by(recorded: RecordedRun) -> list[NotedCall]:
    """What the run sent itself, or found that an earlier run of its lineage had sent for the same."""
    given = recorded.steps.get(Step.ROUTINE.value)
    of = None if given is None else given.open_items
    return [_noted_row(row) for row in recorded.mutations
            if row["status"] == MutationStatus.APPLIED and (of is None or row["item_name"] in of)]


def _noted_row(row: Row) -> NotedCall:
    return NotedCall(
        row["item_name"] or "", f"{row['connector']}.{row['operation']}", row["target"], row["identity"],
        row["subkey"], row["payload"], row["params"], row["preview"],
    )


def same_calls(parts: Parts, one: Sequence[NotedCall], other: Sequence[NotedCall]) -> bool:
    """Whether the same calls are made, in the same order."""
    return len(one) == len(other) and all(same_call(parts, a, b) for a, b in zip(one, other, strict=True))


def same_call(parts: Parts, one: NotedCall, other: NotedCall) -> bool:
    """Whether two calls do the same to the same thing, as their connector judges it."""
    return is_same_thing(one, other) and (one.payload == other.payload or _equivalent(parts, one, other))


def is_same_thing(one: NotedCall, other: NotedCall) -> bool:
    """Whether two calls are about the same thing: the engine would find the one for the other in its ledger."""
    return (one.unit, one.capability, one.target, one.identity, one.subkey) == (
        other.unit, other.capability, other.target, other.identity, other.subkey)


def _equivalent(parts: Parts, one: NotedCall, other: NotedCall) -> bool:
    connector, _, operation = one.capability.partition(".")
    spec = parts.connectors[connector].operations[operation]
    return spec.compare(stored(one.payload), stored(other.payload)) == "equivalent"


class ShadowContext(RunContext):
    """A run whose steps are given what an earlier run was given."""

    def __init__(
        self, parts: Parts, recorded: RecordedRun, loaded: Loaded, handler: Handler, state: str | None,
    ) -> None:
        super().__init__(
            parts, recorded.run, loaded, handler, _nothing, state=state, grants={}, reserved=[], traced=0)
        self.recorded_run = recorded

    def begin(self, step: Step) -> int:
        """The moment at which the step began then; `mutate` sees that of `prepare`."""
        return self.recorded_run.step(Step.PREPARE if step is Step.MUTATE else step).at

    def gate_of(self, step: Step, begun_ms: int, items: Work | None) -> Gate:
        """What answers a step, from the recording."""
        return ShadowGate(self, step, begun_ms, items)

    def pin(self, read: Reader, chosen: Chosen) -> list[Row]:
        """The events that `prepare` chose, as the ledger would have pinned them."""
        given, workflow_id = self.recorded_run.step(Step.PREPARE), self.run.workflow_id
        rows = [given.event(read, workflow_id, *address) for address in chosen.prepared.wanted]
        absent = next((a for a, row in zip(chosen.prepared.wanted, rows, strict=True) if row is None), None)
        if absent is not None:
            raise RuleBroken(f"prepare reserved {absent[1]!r} of topic {absent[0]!r}, which does not wait.")
        return [row for row in rows if row is not None]


async def _nothing(leaves: object, published: object) -> None:
    """No run follows."""


class ShadowGate(Gate):
    """Answers a step from a recording. It has no way to a connector."""

    def __init__(self, context: ShadowContext, step: Step, begun_ms: int, items: Work | None) -> None:
        super().__init__(
            context.parts, context.run, context.loaded.manifest, context.handler, step, context.permissions,
            context.trace, begun_ms, items,
        )
        self._recorded = context.recorded_run
        self._asked: Counter[tuple[str, str]] = Counter()  # how often the step has made each read

    async def foresee(self, operation: Operation) -> Reply | None:
        try:
            return await super().foresee(operation)
        except NotRecorded:
            return None  # it is said when the script calls

    async def _look(self, question: Any, operation: Operation, count: int) -> Any:
        args = (*operation.args, *(None,) * count)[:count]

        def asked(read: Reader) -> Any:
            return question(RecordedReader(read, self._recorded, self._step), *args)

        return await self._parts.ledger.look(asked)

    async def _read(self, operation: Operation) -> Reply:
        connector, _, name = operation.name.partition(".")
        params = self._parts.connectors[connector].operations[name].parse(operation.args[0] if operation.args else None)
        return self._recorded.step(self._step).read(operation.name, params, self._asked)


class RecordedReader:
    """A ledger as a step saw it: events that waited are those that it was given; all else is as it is now."""

    def __init__(self, read: Reader, recorded: RecordedRun, step: Step) -> None:
        self._read, self._recorded, self._step = read, recorded, step

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""
        return self._read.all(query, **params)

    def one(self, query: str, **params: Any) -> Row | None:
        """The first row, if any."""
        if query == "event_find":
            return self._recorded.step(self._step).event(self._read, **params)
        return self._read.one(query, **params)

    def iterate(self, query: str, **params: Any) -> Generator[Row]:
        """The events that waited, as far as they are known."""
        assert query == "event_peek", query
        given, after, left = self._recorded.step(self._step), int(params["after"]), int(params["limit"])
        while left > 0:
            until, entries = given.page(params["topic"], after)
            for entry in entries[:left]:
                yield event_as_it_was(self._read, params["workflow_id"], entry)
            left -= len(entries)
            if until is None:
                return
            after = until


class _ResultUnknown(Exception):
    """A routine makes a call that the earlier run did not make: nobody knows what it would answer."""


class ShadowItems(Items):
    """The items of a routine as an earlier run found them; calls are noted, and answered as they were then."""

    def __init__(self, context: ShadowContext, made: Made) -> None:
        super().__init__(context)
        self._shadow, self._made = context, made

    async def begin(self, name: str, title: str) -> Row:
        """The item, done or not as it was."""
        run, ledger = self._shadow.run, self._shadow.parts.ledger
        given = self._shadow.recorded_run.step(Step.ROUTINE)
        row = await ledger.one("item_find", workflow_id=run.workflow_id, external_id=name)
        if name not in given.open_items:
            given.check_whole()
            if row is not None and row["created_at"] <= run.updated_at:
                return {**row, "status": ItemStatus.DONE}
        self._made.items.append((name, title))
        if row is None:
            return {"id": f"new item {name}", "external_id": name, "title": title, "attempt": 1,
                    "status": ItemStatus.PROCESSING}
        worked = await ledger.one(
            "item_attempt_of_lineage", workflow_id=run.workflow_id, item_id=row["id"], lineage=run.lineage)
        attempt = worked["attempt"] if worked and worked["attempt"] else row["attempt"]
        return {**row, "status": ItemStatus.PROCESSING, "attempt": attempt}

    async def finish(self, item: Row) -> None:
        """Nothing is written."""

    async def begin_again(self) -> None:
        """The worker died: what was noted did not happen."""
        await super().begin_again()
        self._made.calls.clear()
        self._made.items.clear()

    async def perform(self, operation: Operation, unit: Unit) -> str:
        """Note a call, and answer it as it was answered then."""
        call = mutation.checked_call(self._shadow, operation, unit.step)
        key = mutation.key_of(self._shadow.run, call, unit)
        rows = await self._shadow.parts.ledger.all(
            "mutation_same", workflow_id=self._shadow.run.workflow_id, mutation_key=key)
        assert self.current is not None, "a mutation is made in an item"
        self._made.calls.append(noted(call, str(self.current["external_id"])))
        applied = next((row for row in rows if row["status"] == MutationStatus.APPLIED), None)
        if applied is None:
            raise _ResultUnknown("its result is not known")
        return str(applied["result"])
