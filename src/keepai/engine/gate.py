"""The gate between one running step and everything else: each operation is checked here, then carried out.

Nothing that a script asks for reaches a connector or the ledger on any other way. What it publishes or
registers is gathered and written only when the whole run commits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ..ledger.base import Reader, Row
from ..ledger.transitions.events import Publication, Registration
from ..model.codec import Json, check_id, check_size, digest, shown, size, sound, text_of
from ..model.errors import KeepError, LedgerStopped, LimitExceeded, PhaseViolation, RuleBroken
from ..model.operations import Kind, Step, allowed, where_allowed
from ..model.policy import Policy
from ..model.records import Run
from ..runtime.base import LogLine, Operation, Reply
from ..runtime.event_texts import Shown
from ..runtime.event_texts import listed as listed_events
from ..runtime.event_texts import shown as shown_event
from ..script.manifest import Handler, Manifest
from . import outside
from .host_parts import Parts
from .permission import Permissions
from .recording import Recorder
from .trace import Trace

T = TypeVar("T")

TITLE_MAX = 1_000  #: characters of a title that are kept


class Work(Protocol):
    """What a routine's step may do beyond the others: items, and the mutations inside them."""

    async def with_item(self, args: tuple[Json, ...]) -> Reply:
        """Begin or end an item."""
        ...

    async def mutate(self, operation: Operation) -> Reply:
        """Make a mutation of the item at work."""
        ...

    async def begin_again(self) -> None:
        """The step is run from the top once more; raises what ends it, if it must not be."""
        ...


@dataclass
class Gathered:
    """What a step registered and published, in order."""

    inputs: dict[tuple[str, str, str], Registration] = field(default_factory=dict)
    publications: dict[tuple[str, str], Publication] = field(default_factory=dict)
    input_ids: set[str] = field(default_factory=set)
    published: int = 0
    bytes: int = 0  # of all that it published and registered


class Gate:
    """Answers one step of one run."""

    def __init__(
        self, parts: Parts, run: Run, manifest: Manifest, handler: Handler, step: Step,
        permissions: Permissions, trace: Trace, begun_ms: int, items: Work | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.begun_ms = begun_ms  # when the step began
        self.recorder = recorder
        self._parts, self._run, self._manifest, self._handler = parts, run, manifest, handler
        self._step, self._permissions, self._trace, self._items = step, permissions, trace, items
        self.gathered = Gathered()
        self.given: dict[tuple[str, str], Row] = {}  # by topic and messageId, the events that the step has been shown
        self._warned = False  # of a limit that is too high

    async def answer(self, operation: Operation) -> Reply:
        """Check an operation, carry it out, and keep it with the run."""
        started = time.monotonic()
        try:
            reply = await self._carry_out(operation)
        except KeepError as error:
            self._note(operation, None, error.message, started)
            raise
        self._note(operation, reply.text, None, started)
        return reply

    async def foresee(self, operation: Operation) -> Reply | None:
        """The answer to a `peek` that the step may make; None if it would be refused, or to any other call."""
        try:
            return await self._look(self._peek, operation, 2) if operation.kind is Kind.PEEK else None
        except LedgerStopped:
            raise
        except KeepError:
            return None  # it is said when the script calls

    def used(self, operation: Operation, reply: Reply) -> None:
        """The step has made a call that was foreseen."""
        self._note(operation, reply.text, None, time.monotonic())

    def log(self, line: LogLine) -> None:
        """Keep a line with the run."""
        self._trace.log(self._step, line.level, line.text)

    def _note(self, operation: Operation, answer: str | None, error: str | None, started: float) -> None:
        if operation.kind in _SHOWN_ELSEWHERE and error is None:
            return
        if operation.kind is Kind.PEEK and error is None:
            self._warn_of_limit(_padded(operation.args, 2)[1])
        duration = int((time.monotonic() - started) * 1000)
        self._trace.call(self._step, operation.name, text_of(list(operation.args)), answer, error, duration)

    async def _carry_out(self, operation: Operation) -> Reply:
        check_allowed(self._step, operation, mutate_reads=self._parts.policy.mutate_reads == "by_id")
        match operation.kind:
            case Kind.PEEK:
                return await self._look(self._peek, operation, 2)
            case Kind.GET_BY_IDS:
                return await self._look(self._get_by_ids, operation, 2)
            case Kind.REGISTER_INPUT:
                return Reply(text_of(await self._look(self._register, operation, 1)))
            case Kind.PUBLISH:
                await self._look(self._publish, operation, 2)
                return Reply("null")
            case Kind.READ | Kind.READ_BY_ID:
                return await self._read(operation)
            case Kind.WITH_ITEM if self._items:
                return await self._items.with_item(operation.args)
            case Kind.MUTATION if self._items:
                return await self._items.mutate(operation)
        raise PhaseViolation(f"ctx.{operation.name} cannot be answered in {self._step}.")

    async def _look(self, question: Callable[..., T], operation: Operation, count: int) -> T:
        """The answer to `question(read, …)` with so many of the call's arguments."""
        return await self._parts.ledger.look(question, *_padded(operation.args, count))

    def _warn_of_limit(self, options: Json) -> None:
        """Once a step: a script that asks for more than it gets must not take the page for everything."""
        limit, most = self._limit(options), self._parts.policy.peek_max
        if limit > most and not self._warned:
            self._warned = True
            self._trace.warning(
                self._step, f"ctx.peek: limit {limit:,} is more than {most:,}, the most that one page holds. "
                "Go on with {after: page.cursor}.",
            )

    # -- topics ------------------------------------------------------------------------------------

    def _peek(self, read: Reader, topic: Json, options: Json) -> Reply:
        """A page of what waits: as many events as fit its bounds, and where to go on if more wait."""
        policy, found, looked = self._parts.policy, list[Shown](), list[Row]()
        name, cursor = self._subscribed(topic, "peek"), options.get("after") if isinstance(options, dict) else None
        if cursor is not None and not (isinstance(cursor, str) and _CURSOR.fullmatch(cursor)):
            raise RuleBroken(
                f"ctx.peek: after must be the cursor of an earlier page of this topic, not {shown(cursor)}."
            )
        last = int(cursor or 0)  # the place in the topic that a cursor names; 0 is its beginning
        limit = min(self._limit(options), policy.peek_max)
        left = min(policy.peek_bytes_max, policy.message_bytes_max) - len("[]")
        rows = read.iterate(
            "event_peek", workflow_id=self._run.workflow_id, topic=name, after=last, limit=limit + 1,
        )
        with closing(rows):
            for row in rows:
                event = shown_event(name, row["message_id"], row["payload"])
                left -= size(event.text) + len(",")
                looked.append(row)
                if found and (left < 0 or len(found) == limit):
                    self._record_page(name, cursor, looked, whole=False)
                    text, cuts = listed_events(found)
                    return Reply(text, f'{{"cursor":"{last}"}}', cuts=cuts)
                found.append(event)
                self.given[name, row["message_id"]] = row
                last = row["seq"]
        self._record_page(name, cursor, looked, whole=True)
        text, cuts = listed_events(found)
        return Reply(text, cuts=cuts)

    def _record_page(self, topic: str, cursor: str | None, rows: list[Row], *, whole: bool) -> None:
        if self.recorder is not None:
            self.recorder.page(topic, int(cursor or 0), rows, whole=whole)

    def _get_by_ids(self, read: Reader, topic: Json, ids: Json) -> Reply:
        name = self._subscribed(topic, "getByIds")
        if not isinstance(ids, list):
            raise RuleBroken("ctx.getByIds takes a topic and an array of messageIds.")
        found, taken = list[Shown](), 0
        if len(ids) > self._parts.policy.peek_max:
            limit = self._parts.policy.peek_max
            raise LimitExceeded(f"ctx.getByIds was given {len(ids):,} ids; the limit is {limit:,}.")
        for message_id in ids:
            row = read.one(
                "event_find", workflow_id=self._run.workflow_id, topic=name,
                message_id=check_id(message_id, "a messageId in getByIds"),
            )
            waits = row is not None and row["status"] == "pending" and row["reserved_by"] is None
            if self.recorder is not None:
                self.recorder.by_id(name, str(message_id), row if waits else None)
            if row and waits:
                found.append(shown_event(name, row["message_id"], row["payload"]))
                self.given[name, row["message_id"]] = row
                taken += size(found[-1].text)
                if taken > self._parts.policy.message_bytes_max:
                    raise LimitExceeded(
                        f"ctx.getByIds: the first {len(found):,} of these events have {taken:,} bytes; the limit is "
                        f"{self._parts.policy.message_bytes_max:,}. Ask for fewer ids at a time."
                    )
        text, cuts = listed_events(found)
        return Reply(text, cuts=cuts)

    def _limit(self, options: Json) -> int:
        policy = self._parts.policy
        limit = options.get("limit") if isinstance(options, dict) else None
        if limit is None:
            return policy.peek_default
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise RuleBroken(f"ctx.peek: limit must be a whole number above zero, not {shown(limit)}.")
        return limit

    def _subscribed(self, topic: Json, what: str) -> str:
        if isinstance(topic, str) and topic in self._handler.subscribe:
            return topic
        raise RuleBroken(
            f"ctx.{what}: {self._handler.name} does not subscribe to the topic {shown(topic)}. "
            f"It subscribes to {_listed(self._handler.subscribe)}."
        )

    # -- what a producer brings in, what a step publishes ------------------------------------------

    def _register(self, read: Reader, entry: Json) -> str:
        if not isinstance(entry, dict):
            raise RuleBroken("ctx.registerInput takes one object.")
        source = check_id(entry.get("source"), "registerInput: source")
        kind = check_id(entry.get("type"), "registerInput: type")
        types = self._parts.surface.input_types.get(source)
        if types is None:
            known = _listed(tuple(self._parts.surface.input_types))
            raise RuleBroken(f"registerInput: there is no source {shown(source)}. Known sources: {known}.")
        if kind not in types:
            raise RuleBroken(
                f"registerInput: the source {shown(source)} has no type {shown(kind)}; it has {_listed(types)}."
            )
        self._permissions.check_inputs(source)
        external_id = check_id(entry.get("id"), "registerInput: id")
        title = check_title(entry.get("title"), "registerInput", self._trace, self._step)
        return self._input(read, source, kind, external_id, title)

    def _input(self, read: Reader, source: str, kind: str, external_id: str, title: str) -> str:
        key = (source, kind, external_id)
        if key not in self.gathered.inputs:
            limit = self._parts.policy.events_per_run_max
            if len(self.gathered.inputs) >= limit:
                raise LimitExceeded(f"This run registered over {limit:,} inputs, the limit. Spread them over runs.")
            known = read.one(
                "input_find", workflow_id=self._run.workflow_id, source=source, type=kind, external_id=external_id,
            )
            if known is None:
                self._spend(size(external_id) + size(title))
            input_id = str(known["id"]) if known else self._parts.ids.new("inp")
            self.gathered.inputs[key] = Registration(input_id, source, kind, external_id, title)
            self.gathered.input_ids.add(input_id)
        return self.gathered.inputs[key].input_id

    def _publish(self, read: Reader, topics: Json, entry: Json) -> None:
        names = self._publishable(topics)
        if not isinstance(entry, dict):
            raise RuleBroken("ctx.publish takes a topic and an object {messageId, inputId, payload}.")
        self.gathered.published += len(names)
        limit, given = self._parts.policy.events_per_run_max, entry.get("messageId")
        if self.gathered.published > limit:
            raise LimitExceeded(f"This run published more than {limit:,} events, the limit. Spread them over runs.")
        if given is not None:
            message_id = check_id(given, "publish: messageId")
        else:
            message_id = "auto:" + digest(self._run.lineage, names[0], str(self.gathered.published))[:24]
        payload, bytes_max = text_of(entry.get("payload")), self._parts.policy.payload_bytes_max
        if len(payload) * 4 > bytes_max:  # else it fits, whatever its characters are
            check_size(payload, f"the payload of {shown(message_id)}", bytes_max)
        self._spend(len(names) * (size(message_id) + size(payload)))
        causes = self._causes(read, entry, names[0], message_id)
        for name in names:
            earlier = self.gathered.publications.get((name, message_id))
            united = tuple(dict.fromkeys((earlier.causes if earlier else ()) + causes))
            self.gathered.publications[name, message_id] = Publication(name, message_id, payload, united)

    def _publishable(self, topics: Json) -> list[str]:
        names = topics if isinstance(topics, list) else [topics]
        if not names:
            raise RuleBroken("ctx.publish was given an empty list of topics.")
        may = self._manifest.topics if self._handler.publishes is None else self._handler.publishes
        for name in names:
            if name not in self._manifest.topics:
                raise RuleBroken(
                    f"ctx.publish: the topic {shown(name)} is not declared. Declared: {_listed(self._manifest.topics)}."
                )
            if name not in may:
                raise RuleBroken(
                    f"ctx.publish: {self._handler.name} does not list {shown(name)} in publishes ({_listed(may)}). "
                    "Add it there."
                )
        return list(dict.fromkeys(map(str, names)))

    def _spend(self, more: int) -> None:
        """Count what would be kept, before it is."""
        self.gathered.bytes += more
        check_spent(self.gathered.bytes, self._parts.policy)

    def _causes(self, read: Reader, entry: Mapping[str, Json], topic: str, message_id: str) -> tuple[str, ...]:
        if self._step is not Step.PRODUCER:
            return ()  # inherited from what the run reserved, when it commits
        given = entry.get("inputId")
        if given is None and entry.get("title") is not None:
            title = check_title(entry.get("title"), "publish", self._trace, self._step)
            return (self._input(read, "workflow", topic, message_id, title),)
        known = isinstance(given, str) and given in self.gathered.input_ids
        if isinstance(given, str) and not known:
            found = read.one("input_exists", workflow_id=self._run.workflow_id, input_id=given)
            if found is not None:
                self._permissions.check_inputs(found["source"])
                known = True
        if not isinstance(given, str) or not known:
            what = "missing" if given is None else "not an input of this workflow"
            raise RuleBroken(
                f"ctx.publish of {shown(message_id)}: inputId is {what}. "
                "Register the input first: const inputId = ctx.registerInput({source, type, id, title})."
            )
        return (given,)

    # -- the outside world -------------------------------------------------------------------------

    async def _read(self, operation: Operation) -> Reply:
        connector, _, name = operation.name.partition(".")
        spec = self._parts.connectors[connector].operations[name]
        params = spec.parse(_padded(operation.args, 1)[0])
        await self._parts.ledger.look(self._permissions.check, operation.name, params)
        seconds, skipped = self._parts.policy.call_s, list[str]()
        call = outside.call_of(
            self._run, seconds, lambda text: self._trace.log(self._step, connector, str(text)), skip=skipped.append,
            lock_fd=self._parts.ledger.lock_fd,
        )
        reply = await outside.read(spec, operation.name, params, call, seconds)
        if skipped:
            named = "; ".join(skipped[:_NAMED_MAX]) + ("; …" if len(skipped) > _NAMED_MAX else "")
            told = f"could not read {len(skipped):,} of what it found, and left it out: {named}"
            self._trace.warning(self._step, f"ctx.{operation.name} {told}")
        if self.recorder is not None:
            self.recorder.read(operation.name, params, reply)
        return reply


_NAMED_MAX = 5  # of what a read left out
#: The commit itself, the items and the ledger show them.
_SHOWN_ELSEWHERE = (Kind.REGISTER_INPUT, Kind.PUBLISH, Kind.WITH_ITEM, Kind.MUTATION)


def check_allowed(step: Step, operation: Operation, *, mutate_reads: bool) -> None:
    """Refuse what the table of phases does not list."""
    if not allowed(step, operation.kind, mutate_reads=mutate_reads):
        raise PhaseViolation(
            f"ctx.{operation.name} ({operation.kind}) is not allowed in {step}; "
            f"it is allowed in {where_allowed(operation.kind)}."
        )


def check_spent(spent: int, policy: Policy) -> None:
    """Refuse a run that would keep more than one run may."""
    if spent > policy.run_bytes_max:
        raise LimitExceeded(
            f"This run published and registered more than {policy.run_bytes_max:,} bytes, the limit (policy "
            "run_bytes_max): payloads, ids and titles count, and an event counts once for each topic. Spread it over "
            "runs, or publish less."
        )


_CURSOR = re.compile("[0-9]{1,18}")


def _padded(args: tuple[Json, ...], count: int) -> tuple[Json, ...]:
    return (*args, *(None,) * count)[:count]


def check_title(value: Json, what: str, trace: Trace, step: Step) -> str:
    """A title in words for people; what is too long is cut, and the run keeps a warning that says so."""
    if not isinstance(value, str) or not value.strip():
        raise RuleBroken(f"ctx.{what}: title must say what this is, in words for people; it is {shown(value)}.")
    if len(value) > TITLE_MAX:
        trace.warning_once(step, f"{what}: title", (
            f"ctx.{what}: the title {shown(value)} has {len(value):,} characters. People see the first {TITLE_MAX:,}; "
            "of further titles like it, this run says nothing."
        ))
    return sound(value[:TITLE_MAX])


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(shown(n) for n in names) or "nothing"
