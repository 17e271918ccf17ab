# ruff: noqa: E501 (a script is read best on one line)
"""What need not be asked for: `mutate` tried right after `prepare`, a `peek` answered beforehand, the id of an input.

Nothing of it may be told from a step that asked for everything itself, except by the time that it takes."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from keepai.model.codec import decode, encode, text_of
from keepai.model.errors import (
    HostFault,
    LimitExceeded,
    PhaseViolation,
    RuleBroken,
    ScriptError,
    ScriptThrew,
    WorkerDied,
)
from keepai.model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from keepai.runtime.base import Ahead, Ended, Fixed, Job, LogLine, Operation, Reply
from keepai.runtime.event_texts import listed, shown, with_events
from keepai.runtime.javascript import call_predictor
from keepai.runtime.javascript.call_predictor import CallPredictor
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.runtime.forger import Forger, call, end, forged
from tests.runtime.script_world import LIMITS, FakeHost, children, job, value

asynchronous = pytest.mark.asyncio(loop_scope="session")

NOW_MS = 1_700_000_000_000
AHEAD = Ahead(ALLOWED[Step.MUTATE], NOW_MS)
RESERVED = "return {reservations: [{topic: 't', ids: ['a']}], data: 1};"
SEND = "await ctx.gmail.send({to: 'x'});"
NUMBERS = itertools.count()
PINNED = [("a", '{"n":1,"small":1e-07}'), ("b", encode({"n": 2, "text": "é" + "x" * 5000, "rows": [[1]] * 2000}))]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def alone() -> AsyncIterator[JavaScriptRuntime]:
    """A runtime of one worker, so that every step meets what the steps before it left there."""
    made = JavaScriptRuntime(workers_max=1)
    yield made
    await made.close()


def unique(text: str = "") -> str:
    """Something to stand before a script, so that no test has seen it yet."""
    return f"/* {next(NUMBERS)} */ {text}\n"


def consumer(prepare: str, mutate: str, before: str = "", **changes: object) -> Job:
    """A `prepare` that is to try this `mutate`."""
    source = f"""{before}export default Keep.workflow({{name: 'w', topics: {{}}, consumers: {{h: Keep.consumer({{
      async prepare(ctx, one) {{ {prepare} }},
      async mutate(ctx, one, ...more) {{ {mutate} }},
    }})}}}});"""
    return job("", Step.PREPARE, **{"source": source, "ahead": AHEAD, **changes})


def by_itself(prepare: Job, returned: str | None) -> Job:
    """`mutate` as a host asks for it that has what `prepare` returned, and pinned the events."""
    assert returned is not None
    assert prepare.ahead is not None
    given, cuts = with_events(returned, [shown("t", *event) for event in PINNED])
    return replace(
        prepare, step=Step.MUTATE, args=(given,), cuts=cuts, allowed=prepare.ahead.allowed, ahead=None,
        fixed=Fixed.by(returned, prepare.ahead.now_ms),
    )


def peeked(_: Operation) -> Reply:
    """The events that wait, and one that is not reserved."""
    text, cuts = listed([shown("t", "z", '"other"'), *[shown("t", *event) for event in PINNED[::-1]]])
    return Reply(text, cuts=cuts)


# ---- mutate, right after prepare --------------------------------------------------------------------------


@asynchronous
async def test_the_call_of_mutate_arrives_with_what_prepare_returned(alone, host) -> None:
    ended = await alone.run(consumer(RESERVED, "await ctx.gmail.send({to: one.data, n: 2});"), host)
    assert ended.value == '{"reservations":[{"topic":"t","ids":["a"]}],"data":1}'
    assert ended.mutation is None
    assert ended.ahead is not None
    assert (ended.ahead.name, ended.ahead.kind, ended.ahead.args) == ("gmail.send", Kind.MUTATION, ({"to": 1, "n": 2},))
    assert not host.operations
    assert not host.lines


@asynchronous
async def test_mutate_is_tried_without_the_events_that_prepare_was_not_given_and_ends_when_it_asks_for_them(alone, host) -> None:
    prepare = "const [e] = await ctx.peek('t'); return {reservations: [{topic: 't', ids: [e.messageId, 'unseen']}], data: 1};"
    host.answers["peek"] = peeked
    for touched in ("one.events", "{all: one}", "one"):
        made = consumer(prepare, f"await ctx.gmail.send({touched});", unique())
        ended = await alone.run(made, host)
        assert ended.value is not None
        assert ended.ahead is None
        assert (await alone.run(made, host)).ahead is None
    assert (await alone.run(consumer(prepare, SEND, unique()), host)).ahead is not None


@asynchronous
async def test_mutate_is_not_tried_after_a_result_that_has_events_of_its_own(alone, host) -> None:
    prepare = "return {reservations: [{topic: 't', ids: ['a']}], data: 1, events: []};"
    assert (await alone.run(consumer(prepare, SEND, unique()), host)).ahead is None


@asynchronous
async def test_mutate_is_not_tried_unless_the_job_says_so(alone, host) -> None:
    assert (await alone.run(consumer(RESERVED, SEND, ahead=None), host)).ahead is None


@asynchronous
async def test_only_the_lines_and_calls_of_prepare_are_heard(alone, host) -> None:
    prepare = "ctx.log('one'); await ctx.gmail.get(1); ctx.gmail.get(2); ctx.log('two');" + RESERVED
    assert (await alone.run(consumer(prepare, SEND), host)).ahead is not None
    assert host.names == ["gmail.get"] * 2
    assert host.texts == ["one", "two"]


SEEN = {
    "its argument": "JSON.stringify(one)",
    "the order of the keys": "[Object.keys(one), Object.keys(one.data)]",
    "its events": "[one.events.map((e) => e.messageId), one.events[0], one.events[1].payload.n]",
    "a large payload": "[one.events[1].payload.text, one.events[1].payload.rows.length]",
    "a large payload that it does not read": "one.events[1]",
    "its other arguments": "[more.length, more]",
    "the time": "[Date.now(), new Date().toISOString(), +new Date()]",
    "chance": "[Math.random(), Math.random(), Math.random()]",
    "its ctx": "[Object.keys(ctx), Object.isFrozen(ctx), 'state' in ctx, 'item' in ctx]",
    "its globals": "Object.getOwnPropertyNames(globalThis)",
    "what stands outside of it": "[top.length, top[1], held.list, typeof this.prepare]",
    "its stack": "new Error('x').stack",
    "what it can do with its argument": "(() => { one.data.b = 5; return [one, Object.isFrozen(one)]; })()",
    "after a while": "await (async () => { for (let i = 0; i < 20; i++) await null; return i; })().catch((e) => e.message)",
}
TOPS = {
    "that is the same in every step": "const top = [1]; const held = {list: [2]};",
    "with time and chance": "const top = [Date.now(), Math.random()]; const held = {list: [Math.random()]};",
    "with much memory": "const top = new Uint8Array(4 << 20).fill(7); const held = {list: [top.length]};",
}


@asynchronous
@pytest.mark.parametrize("before", TOPS.values(), ids=TOPS.keys())
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN.keys())
async def test_mutate_sees_ahead_what_it_would_see_alone(alone, runtime, host, before, seen) -> None:
    prepare = "await ctx.peek('t'); return {zeta: -0, reservations: [{topic: 't', ids: ['a', 'b']}], data: {b: 1.0, a: 'é😀\\u2028\\n', 10: [undefined], 9: 1e21 / 1e20, B: null}};"
    host.answers["peek"] = host.foreseeing = peeked
    made = consumer(prepare, f"await ctx.gmail.send({seen});", unique(before))
    first, again = await alone.run(made, host), await alone.run(made, host)
    alone_here, elsewhere = await alone.run(by_itself(made, first.value), host), await runtime.run(by_itself(made, first.value), host)
    assert first.ahead is not None
    assert first.ahead.at is not None
    assert first.ahead == again.ahead == alone_here.mutation == elsewhere.mutation


@asynchronous
async def test_the_argument_the_time_and_the_chance_are_those_of_the_result_as_it_is_kept(alone, host) -> None:
    prepare = "return {b: [1.0, {d: 1, c: 'é'}], reservations: [{topic: 't', ids: ['a']}], a: one};"
    made = consumer(prepare, "delete one.events; await ctx.gmail.send(JSON.stringify(one), Date.now(), Math.random());")
    first, same, other = [await alone.run(replace(made, args=(text,)), host) for text in ("1", "1", "2")]
    later = await alone.run(replace(made, args=("1",), ahead=replace(AHEAD, now_ms=NOW_MS + 1)), host)
    assert all(each.ahead for each in (first, same, other, later))
    assert first.ahead.args[:2] == (first.value, NOW_MS)
    assert first.value == text_of(decode(first.value))
    assert first.ahead.args == same.ahead.args
    assert first.ahead.args[2] == later.ahead.args[2] != other.ahead.args[2]
    assert later.ahead.args[1] == NOW_MS + 1


@asynchronous
async def test_of_two_calls_the_first_counts_ahead_as_it_does_alone(alone, host) -> None:
    made = consumer(RESERVED, "ctx.gmail.send({n: 1}); ctx.log('after'); await ctx.sheets.appendRow({n: 2});")
    ended = await alone.run(made, host)
    assert ended.ahead is not None
    assert (ended.ahead.name, ended.ahead.args) == ("gmail.send", ({"n": 1},))
    assert (await alone.run(by_itself(made, ended.value), host)).mutation == ended.ahead
    assert not host.lines


UNFORESEEN = {
    "a line": "ctx.log('x');",
    "a line of the console": "console.error('x');",
    "a line that is caught": "try { ctx.log('x'); } catch {} finally { ctx.gmail.send({}); }",
    "a read by id": "await ctx.gmail.get(1);",
    "a read by id that is not awaited": "ctx.gmail.get(1).catch(() => 0);",
    "a read that is forbidden": "await ctx.gmail.search({}).catch(() => 0);",
    "a publication": "ctx.publish('t', {});",
    "an input": "ctx.registerInput({source: 'gmail', type: 'email', id: '1'});",
    "a peek": "await ctx.peek('t');",
    "an error": "throw new Error('x');",
    "a rejection": "await Promise.reject(new Error('x'));",
    "a floating rejection": "Promise.reject(new Error('x')); return;",
    "a return": "return;",
    "a return of something": "return {reservations: [], mutation: 'gmail.send'};",
    "a promise for ever": "await new Promise(() => {});",
    "a loop": "for (;;);",
    "a loop that catches": "for (;;) { try { for (;;); } catch {} finally { continue; } }",
    "a storm of microtasks": "await new Promise(() => { (function g() { Promise.resolve().then(g); })(); });",
    "a full stack": "(function f() { f(); })();",
    "a full memory": "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1));",
    "much memory": "if (new Uint8Array(6 << 20).fill(1).length) return;",
    "a member that is not there": "ctx.gmial.send({});",
    "a value that JSON cannot carry": "ctx.gmail.send({n: NaN});",
    "an argument that is too large": "ctx.gmail.send('x'.repeat(2e5));",
}


@asynchronous
@pytest.mark.parametrize("mutate", UNFORESEEN.values(), ids=UNFORESEEN.keys())
async def test_a_mutate_that_does_anything_but_its_call_is_not_heard_of_and_leaves_the_worker_usable(alone, host, mutate) -> None:
    limits = replace(LIMITS, memory_bytes=12 << 20, message_bytes_max=100_000)
    made = consumer(RESERVED, f"{mutate} {SEND}", ahead=replace(AHEAD, allowed=AHEAD.allowed | MUTATE_BY_ID), limits=limits)
    await alone.run(consumer(RESERVED, SEND), host)
    worker = children(alone)
    for _ in range(2):
        ended = await alone.run(made, host)
        assert ended == Ended('{"reservations":[{"topic":"t","ids":["a"]}],"data":1}')
    assert not host.operations
    assert not host.lines
    assert (await alone.run(consumer(RESERVED, SEND, limits=limits), host)).ahead is not None
    assert await alone.run(job("return await ctx.gmail.get(5);", limits=limits), host) == Ended("[5]")
    assert children(alone) == worker


@asynchronous
async def test_a_mutate_that_was_not_foreseen_does_all_of_it_when_it_is_run(alone, host) -> None:
    allowed = AHEAD.allowed | MUTATE_BY_ID
    made = consumer(RESERVED, "ctx.log('before'); await ctx.gmail.send(await ctx.gmail.get(1));", ahead=replace(AHEAD, allowed=allowed))
    ended = await alone.run(made, host)
    assert ended.ahead is None
    run = await alone.run(by_itself(made, ended.value), host)
    assert run.mutation is not None
    assert run.mutation.args == ([1],)
    assert host.texts == ["before"]
    assert host.names == ["gmail.get"]


@asynchronous
async def test_a_line_at_the_top_level_is_heard_once_and_mutate_not_foreseen(alone, host) -> None:
    ended = await alone.run(consumer(RESERVED, SEND, "console.log('loading');\n"), host)
    assert ended.ahead is None
    assert host.texts == ["loading"]


@asynchronous
@pytest.mark.parametrize("declared", ["", "mutate: 5,", "get mutate() { throw 1; },"], ids=["none", "no function", "a getter that throws"])
async def test_a_consumer_without_mutate_returns_from_prepare_all_the_same(alone, host, declared) -> None:
    source = f"export default Keep.workflow({{consumers: {{h: {{{declared} async prepare() {{ {RESERVED} }}}}}}}});"
    ended = await alone.run(job("", Step.PREPARE, source=source, ahead=AHEAD), host)
    assert ended == Ended('{"reservations":[{"topic":"t","ids":["a"]}],"data":1}')


NOTHING_RESERVED = {
    "nothing": "", "null": "return null;", "a text": "return 'reservations';", "a number": "return 5;", "true": "return true;",
    "a list": "return [{reservations: [1]}];", "no reservations": "return {data: 1};", "empty reservations": "return {reservations: [], data: 1};",
    "reservations that are null": "return {reservations: null};", "reservations by inheritance": "return Object.create({reservations: [1]});",
}


@asynchronous
@pytest.mark.parametrize("prepare", NOTHING_RESERVED.values(), ids=NOTHING_RESERVED.keys())
async def test_after_a_prepare_that_reserved_nothing_mutate_is_not_tried(alone, host, prepare) -> None:
    ended = await alone.run(consumer(prepare, SEND), host)
    assert ended == await alone.run(consumer(prepare, SEND, ahead=None), host)
    assert ended.ahead is None


FAILED = {
    "throws": ("throw new Error('x');", ScriptThrew), "floats": ("Promise.reject(new Error('x'));" + RESERVED, ScriptThrew),
    "never ends": ("await new Promise(() => {});", ScriptThrew), "loops": ("for (;;);", LimitExceeded),
    "calls what it may not": ("ctx.gmail.send({});", PhaseViolation), "returns what JSON cannot carry": ("return {reservations: [1n]};", ScriptError),
}


@asynchronous
@pytest.mark.parametrize(("prepare", "error"), FAILED.values(), ids=FAILED.keys())
async def test_after_a_prepare_that_failed_mutate_is_not_tried(alone, host, prepare, error) -> None:
    with pytest.raises(error):
        await alone.run(consumer(prepare, "for (;;);", limits=replace(LIMITS, compute_s=0.1)), host)
    assert (await alone.run(consumer(RESERVED, SEND), host)).ahead is not None


LEAKS = {
    "a global": "globalThis.leak = 1;",
    "a prototype": "Object.prototype.leak = Array.prototype.leak = 1;",
    "time and chance": "Date.now = () => 0; Math.random = () => 4;",
    "built-ins": "JSON.parse = JSON.stringify = () => 'pwned'; Promise.prototype.then = () => {};",
    "a module variable": "leak = 1; held.list.push(1);",
    "the workflow itself": "this.mutate = this.prepare; this.prepare = null;",
    "a registered symbol": "Symbol.for('leak');",
    "a job for later": "Promise.resolve().then(() => { held.list.push(2); });",
    "much memory": "held.list.push(new Uint8Array(4 << 20).fill(7));",
    "chance that was drawn": "Math.random(); Math.random();",
}
LOOK = "[typeof globalThis.leak, typeof {}.leak, typeof [].leak, leak, held.list.length, Date.now() > 1e12, Math.random() < 1, JSON.parse('1'), typeof this.prepare]"
CLEAN = ["undefined", "undefined", "undefined", 0, 0, True, True, 1, "function"]


@asynchronous
@pytest.mark.parametrize("top", ["", "Date.now();"], ids=["from an image", "loaded anew"])
@pytest.mark.parametrize("body", LEAKS.values(), ids=LEAKS.keys())
async def test_nothing_of_prepare_is_there_in_the_mutate_that_follows_nor_the_other_way_round(alone, host, body, top) -> None:
    before = f"let leak = 0; const held = {{list: []}}; {top}\n"
    made = consumer(f"const seen = {LOOK}; {body} return {{reservations: [1], data: seen}};", f"const seen = {LOOK}; {body} await ctx.gmail.send(seen);", before)
    for _ in range(3):
        ended = await alone.run(made, host)
        assert value(ended.value)["data"] == CLEAN
        assert ended.ahead is not None
        assert ended.ahead.args == (CLEAN,)


@asynchronous

async def test_a_prepare_that_made_all_its_calls_returns_whatever_mutate_calls(alone, host) -> None:
    made = consumer("await ctx.gmail.get(1); await ctx.gmail.get(2);" + RESERVED, SEND, limits=replace(LIMITS, calls_max=2))
    ended = await alone.run(made, host)
    assert ended.value == '{"reservations":[{"topic":"t","ids":["a"]}],"data":1}'
    assert host.names == ["gmail.get"] * 2


@asynchronous
async def test_the_try_takes_no_more_than_a_moment_even_of_a_prepare_with_much_time(alone, host) -> None:
    made = consumer(RESERVED, "for (;;);", limits=replace(LIMITS, compute_s=3600))
    async with asyncio.timeout(20):
        assert (await alone.run(made, host)).ahead is None


# ---- forged calls of mutate -------------------------------------------------------------------------------


def tried(*args: str, name: object = "gmail.send", result: str = "1", **changes: object) -> bytes:
    """The end of a step whose `mutate` was tried, with the call that it makes."""
    return end(result, *args or ("1",), **{"mutate": [name, None], **changes})


def mutation(*args: str, **changes: object) -> bytes:
    return forged("mutation", *args or ("1",), **{"id": 1, "name": "gmail.send", "at": None, **changes})


END = end("1")
PREPARE = job("", Step.PREPARE)
TRYING = replace(PREPARE, ahead=AHEAD)


@asynchronous
async def test_a_call_of_mutate_counts_together_with_the_result_before_it(host) -> None:
    ended = await Forger().run(tried(), TRYING, host)
    assert ended == Ended("1", ahead=Operation("gmail.send", Kind.MUTATION, (1,), None))


@asynchronous
async def test_a_call_that_does_not_fit_beside_the_result_is_made_when_mutate_is_run(alone, host) -> None:
    most = replace(LIMITS, message_bytes_max=200_000)
    made = consumer("return {reservations: [1], data: 'x'.repeat(150000)};", "await ctx.gmail.send(one.data);", unique(), limits=most)
    first, second = await alone.run(made, host), await alone.run(replace(made, ahead=None), host)
    assert (first.value, first.ahead) == (second.value, None)
    small = consumer("return {reservations: [1], data: 'x'.repeat(90000)};", "await ctx.gmail.send(one.data);", unique(), limits=most)
    assert (await alone.run(small, host)).ahead is not None


FORGED_CALLS = {
    "in a job that does not try it": (PREPARE, tried()),
    "a miss in a job that does not try it": (PREPARE, end("1", mutate=None)),
    "in a job of another step": (job(""), tried()),
    "in a job of mutate": (job("", Step.MUTATE), tried()),
    "as the end of mutate": (TRYING, mutation() + END),
    "as the end of mutate, after a result": (TRYING, call(name="peek") + mutation()),
    "two results, and no call": (TRYING, end("1", "2")),
    "two results of a try that missed": (TRYING, end("1", "2", mutate=None)),
    "without a result": (TRYING, end(mutate=["gmail.send", None])),
    "a miss without a result": (TRYING, end(mutate=None)),
    "a text": (TRYING, tried(mutate="gmail.send")),
    "a number": (TRYING, tried(mutate=7)),
    "a truth": (TRYING, tried(mutate=True)),
    "an object": (TRYING, tried(mutate={"name": "gmail.send", "at": None})),
    "an empty list": (TRYING, tried(mutate=[])),
    "a name alone": (TRYING, tried(mutate=["gmail.send"])),
    "two of them": (TRYING, tried(mutate=["gmail.send", None, "gmail.send", None])),
    "a list of them": (TRYING, tried(mutate=[["gmail.send", None], ["gmail.send", None]])),
    "a read by id": (replace(TRYING, ahead=replace(AHEAD, allowed=AHEAD.allowed | MUTATE_BY_ID)), tried(name="gmail.get")),
    "a read that prepare may make": (TRYING, tried(name="gmail.search")),
    "a peek": (TRYING, tried(name="peek")),
    "nothing that exists": (TRYING, tried(name="gmail.delete")),
    "a name that is no text": (TRYING, tried(name=None)),
    "what mutate is not allowed": (replace(TRYING, ahead=replace(AHEAD, allowed=frozenset({Kind.LOG}))), tried()),
    "of another job": (TRYING, tried(n=6)),
    "as a call that expects an answer": (TRYING, call(name="gmail.send") + END),
    "while a call is under way": (TRYING, call(name="gmail.search") + tried()),
    "with a result that is no JSON": (TRYING, tried(result="nonsense")),
}


@asynchronous
@pytest.mark.parametrize(("made", "said"), FORGED_CALLS.values(), ids=FORGED_CALLS.keys())
async def test_a_forged_call_of_mutate_kills_the_worker_and_is_a_script_error(host, made, said) -> None:
    async def never(_: Operation) -> Reply:
        await asyncio.Event().wait()
        return Reply.of(None)

    host.answers["gmail.search"] = never
    forger = Forger()
    with pytest.raises(ScriptError):
        await forger.run(said, made, host)
    assert forger.killed
    assert "gmail.send" not in host.names


@asynchronous
async def test_a_call_of_mutate_does_not_make_a_failed_prepare_succeed(host) -> None:
    with pytest.raises(ScriptThrew, match="no"):
        await Forger().run(forged("fail", "1", "1", code="script_threw", message="no", mutate=["gmail.send", None]), TRYING, host)


# ---- a peek that is answered beforehand -------------------------------------------------------------------

PEEK = "return await ctx.peek('t', {limit: 1});"
EVENTS = [{"messageId": "a"}]


def knowing(reply: Reply | None = None) -> FakeHost:
    """A host that says beforehand what it would answer."""
    return FakeHost(foreseeing=lambda _: reply or Reply.of(EVENTS))


def learned(operation: Operation) -> tuple[str, tuple[object, ...]]:
    return operation.name, operation.args


async def habitual(runtime: JavaScriptRuntime, body: str = PEEK, **changes: object) -> Job:
    """A `prepare` that has been run once."""
    made = job(body, Step.PREPARE, **{"before": unique(), **changes})
    await runtime.run(made, FakeHost())
    return made


@asynchronous
async def test_the_first_prepare_of_a_script_asks(alone) -> None:
    host = knowing()
    assert await alone.run(job(PEEK, Step.PREPARE, before=unique()), host) == Ended('["t",{"limit":1}]')
    assert host.names == ["peek"]
    assert (host.foreseen, host.uses) == ([], [])


@asynchronous
async def test_the_second_is_answered_beforehand_and_its_host_is_told_once_that_it_was(alone) -> None:
    made, asked = job(PEEK, Step.PREPARE, before=unique()), FakeHost()
    await alone.run(made, asked)
    for _ in range(3):
        host = knowing()
        assert await alone.run(made, host) == Ended(text_of(EVENTS))
        assert host.operations == []
        assert host.foreseen == asked.operations
        assert host.uses == [(asked.operations[0], Reply.of(EVENTS))]


@asynchronous
async def test_a_script_cannot_tell_whether_its_peek_was_asked_for(alone) -> None:
    body = """const order = []; const asked = ctx.peek('t', {limit: 1}); order.push(asked instanceof Promise);
      Promise.resolve().then(() => order.push('between')); const got = await asked; order.push('got', Array.isArray(got), Object.isFrozen(got), got); return order;"""
    host = FakeHost(answers={"peek": lambda _: Reply.of(EVENTS)}, foreseeing=lambda _: Reply.of(EVENTS))
    made = job(body, Step.PREPARE, before=unique())
    assert await alone.run(made, host) == await alone.run(made, host)
    assert (len(host.operations), len(host.uses)) == (1, 1)


@asynchronous

async def test_an_answer_that_is_a_page_keeps_its_fields_when_it_is_given_beforehand(alone) -> None:
    made, reply = await habitual(alone, "return (await ctx.peek('t')).lastCursor ?? 'none';"), Reply.of(EVENTS, {"lastCursor": "c"})
    host = FakeHost(answers={"peek": lambda _: reply}, foreseeing=lambda _: reply)
    assert await alone.run(made, host) == Ended('"c"')


@asynchronous
async def test_what_prepare_gets_beforehand_is_its_own_hosts_answer(alone) -> None:
    made = await habitual(alone)
    for events in ([], [{"messageId": "b"}], ["é\u2028\"\\"]):
        host = knowing(Reply.of(events))
        assert value((await alone.run(made, host)).value) == events
        assert len(host.uses) == 1


class Ordered(FakeHost):
    """Remembers what it heard, in order."""

    def __init__(self) -> None:
        super().__init__(foreseeing=lambda _: Reply.of(EVENTS))
        self.heard: list[str] = []

    async def answer(self, operation: Operation) -> Reply:
        self.heard.append(operation.name)
        return await super().answer(operation)

    def used(self, operation: Operation, reply: Reply) -> None:
        self.heard.append(f"used {operation.name}")
        super().used(operation, reply)

    def log(self, line: LogLine) -> None:
        self.heard.append(f"log {line.text}")
        super().log(line)


ORDERS = {
    "a read": ("await ctx.peek('t'); await ctx.gmail.get(1);", ["used peek", "gmail.get"]),
    "a read started at once": ("await Promise.all([ctx.peek('t'), ctx.gmail.get(1)]);", ["used peek", "gmail.get"]),
    "the same peek again": ("await ctx.peek('t'); await ctx.peek('t');", ["used peek", "peek"]),
    "lines around it": ("ctx.log(1); await ctx.peek('t'); ctx.log(2);", ["log 1", "used peek", "log 2"]),
    "another call at once": ("await ctx.peek('t'); await ctx.getByIds('t', []); ctx.log(1);", ["used peek", "getByIds", "log 1"]),
    "nothing": ("await ctx.peek('t');", ["used peek"]),
    "not awaited": ("ctx.peek('t'); ctx.log(1);", ["used peek", "log 1"]),
}


@asynchronous
@pytest.mark.parametrize(("body", "heard"), ORDERS.values(), ids=ORDERS.keys())
async def test_a_use_is_told_before_whatever_follows_it(alone, body, heard) -> None:
    made, host = await habitual(alone, body), Ordered()
    await alone.run(made, host)
    assert host.heard == heard


@asynchronous
@pytest.mark.parametrize(("after", "error"), [("throw new Error('x');", ScriptThrew), ("for (;;);", LimitExceeded), ("ctx.publish('t');", PhaseViolation)])
async def test_a_use_is_told_before_the_error_that_ends_the_step(alone, after, error) -> None:
    made = job(f"await ctx.peek('t'); if (one) {{ {after} }}", Step.PREPARE, before=unique(), limits=replace(LIMITS, compute_s=0.5))
    await alone.run(made, FakeHost())
    host = knowing()
    with pytest.raises(error):
        await alone.run(replace(made, args=("true",)), host)
    assert len(host.uses) == 1
    assert host.operations == []


@asynchronous
async def test_a_different_call_is_asked_for_and_the_handler_is_not_guessed_at_again(alone) -> None:
    made = await habitual(alone, "return await ctx.peek('t', {limit: one});", args=("1",))
    host = knowing()
    assert await alone.run(replace(made, args=("2",)), host) == Ended('["t",{"limit":2}]')
    assert [learned(o) for o in host.foreseen] == [("peek", ("t", {"limit": 1}))]
    assert [learned(o) for o in host.operations] == [("peek", ("t", {"limit": 2}))]
    assert host.uses == []
    for limit in ("1", "2", "1", "1"):
        host = knowing()
        assert await alone.run(replace(made, args=(limit,)), host) == Ended(f'["t",{{"limit":{limit}}}]')
        assert (host.names, host.foreseen, host.uses) == (["peek"], [], [])


FIRSTS = {
    "another topic": "await ctx.peek('u', {limit: 1});",
    "no options": "await ctx.peek('t');",
    "other options": "await ctx.peek('t', {limit: 1, x: 1});",
    "one argument more": "await ctx.peek('t', {limit: 1}, null);",
    "a read": "await ctx.gmail.get(1);",
    "another built-in": "await ctx.getByIds('t', {limit: 1});",
}


@asynchronous
@pytest.mark.parametrize("first", FIRSTS.values(), ids=FIRSTS.keys())
async def test_another_call_first_gets_its_own_answer_and_so_does_the_peek_after_it(alone, first) -> None:
    made = await habitual(alone, f"if (one) {{ {first} }} {PEEK}")
    host = knowing()
    assert await alone.run(replace(made, args=("true",)), host) == Ended('["t",{"limit":1}]')
    assert (len(host.operations), host.uses) == (2, [])
    host = knowing()
    await alone.run(made, host)
    assert (host.foreseen, host.uses) == ([], [])


@asynchronous
@pytest.mark.parametrize("body", ["await ctx.gmail.get(1); await ctx.peek('t');", "await ctx.getByIds('t', []);", "await Promise.all([ctx.gmail.get(1), ctx.peek('t')]);", "await ctx.peek('t', {x: 'x'.repeat(1000)});"])
async def test_a_first_call_that_is_no_peek_or_a_long_one_is_never_guessed_at(alone, body) -> None:
    made, host = await habitual(alone, body), knowing()
    await alone.run(made, host)
    await alone.run(made, host)
    assert (host.foreseen, host.uses) == ([], [])


@asynchronous
@pytest.mark.parametrize("body", ["return 1;", "ctx.log('x'); return 1;", "throw new Error('x');", "for (;;);"])
async def test_an_answer_that_was_not_used_is_not_told_as_used_and_goes_along_the_next_time(alone, body) -> None:
    made = await habitual(alone, f"if (one) {{ {body} }} {PEEK}", limits=replace(LIMITS, compute_s=0.1))
    host = knowing()
    await asyncio.gather(alone.run(replace(made, args=("true",)), host), return_exceptions=True)
    assert (len(host.foreseen), host.operations, host.uses) == (1, [], [])
    await alone.run(made, host)
    assert (host.operations, len(host.uses)) == ([], 1)


@asynchronous
async def test_a_host_that_foresees_nothing_is_asked(alone) -> None:
    made, host = await habitual(alone), FakeHost()
    for times in (1, 2):
        assert await alone.run(made, host) == Ended('["t",{"limit":1}]')
        assert (len(host.foreseen), len(host.operations), host.uses) == (times, times, [])
    host = knowing()
    await alone.run(made, host)
    assert (host.operations, len(host.uses)) == ([], 1)


@asynchronous
async def test_an_answer_that_may_be_too_large_is_asked_for(alone) -> None:
    made = await habitual(alone, "return (await ctx.peek('t')).length;", limits=replace(LIMITS, message_bytes_max=1000))
    large = Reply.of("x" * 300)
    host = FakeHost(answers={"peek": lambda _: large}, foreseeing=lambda _: large)
    assert await alone.run(made, host) == Ended("300")
    assert (host.names, host.uses) == (["peek"], [])


@asynchronous
async def test_a_peek_that_was_refused_is_refused_again_at_its_place(alone) -> None:
    def refuse(_: Operation) -> Reply:
        raise RuleBroken("No such topic.")

    made = job(f"\n{PEEK}", Step.PREPARE, before=unique())
    for _ in range(3):
        host = FakeHost(answers={"peek": refuse})
        with pytest.raises(RuleBroken, match="No such topic") as caught:
            await alone.run(made, host)
        assert caught.value.at is not None
        assert host.names == ["peek"]


@asynchronous
async def test_another_handler_another_script_and_another_step_get_nothing_of_it(alone) -> None:
    handlers = "{async prepare(ctx) { return await ctx.peek('t'); }, async next(ctx) { return 1; }}"
    source = f"{unique()}export default Keep.workflow({{consumers: {{h: {handlers}, g: {handlers}}}, producers: {{h() {{ return 1; }}}}}});"
    made = job("", Step.PREPARE, source=source)
    await alone.run(made, FakeHost())
    others = {
        "handler": replace(made, handler="g"), "script": replace(made, source=source + "\n"),
        "next": replace(made, step=Step.NEXT, allowed=ALLOWED[Step.NEXT]), "producer": replace(made, step=Step.PRODUCER, allowed=ALLOWED[Step.PRODUCER]),
    }
    for other in others.values():
        host = knowing()
        await alone.run(other, host)
        assert (host.foreseen, host.uses) == ([], [])
    host = knowing()
    await alone.run(made, host)
    assert len(host.uses) == 1


@asynchronous
async def test_every_workflow_of_a_script_is_answered_by_its_own_host(alone) -> None:
    made = await habitual(alone)
    host = knowing(Reply.of("of the second"))
    assert await alone.run(made, host) == Ended('"of the second"')
    assert len(host.uses) == 1


@asynchronous
async def test_a_use_counts_as_a_call(alone) -> None:
    made = await habitual(alone, f"const got = {PEEK[7:]} if (one) await ctx.gmail.get(1); return got;", limits=replace(LIMITS, calls_max=1))
    host = knowing()
    assert await alone.run(made, host) == Ended(text_of(EVENTS))
    with pytest.raises(LimitExceeded, match="limit of 1"):
        await alone.run(replace(made, args=("true",)), host)
    assert host.operations == []


@asynchronous
async def test_a_peek_and_a_mutate_can_both_be_foreseen(alone) -> None:
    made = consumer("const [e] = await ctx.peek('t'); return {reservations: [{topic: 't', ids: [e.messageId]}], data: e};", "await ctx.gmail.send(one.data);", unique())
    asked = FakeHost(answers={"peek": lambda _: Reply.of(EVENTS)})
    first, host = await alone.run(made, asked), knowing()
    assert await alone.run(made, host) == first
    assert first.ahead is not None
    assert first.ahead.args == (EVENTS[0],)
    assert (host.operations, len(host.uses)) == ([], 1)


@asynchronous
async def test_mutate_has_nothing_at_hand_of_what_prepare_was_given(alone, host) -> None:
    made = consumer(f"const got = {PEEK[7:]} return {{reservations: got}};", "await ctx.peek('t', {limit: 1}); await ctx.gmail.send({});", unique(), ahead=replace(AHEAD, allowed=AHEAD.allowed | {Kind.PEEK}))
    await alone.run(made, host)
    host = knowing()
    assert (await alone.run(made, host)).ahead is None
    assert (host.operations, len(host.uses)) == ([], 1)


@asynchronous
async def test_of_a_worker_that_died_before_it_used_anything_no_use_is_told(alone) -> None:
    made, host = await habitual(alone), knowing()
    os.kill(children(alone)[0], signal.SIGKILL)
    with pytest.raises(WorkerDied):
        await alone.run(made, host)
    assert (host.operations, host.uses) == ([], [])
    assert await alone.run(made, host) == Ended(text_of(EVENTS))
    assert (host.operations, len(host.uses)) == ([], 1)


@asynchronous
async def test_a_host_that_fails_when_it_is_told_of_a_use_ends_the_run(alone, host) -> None:
    class Broken(FakeHost):
        def used(self, operation: Operation, reply: Reply) -> None:
            raise HostFault("disk full")

    made = await habitual(alone, f"const got = {PEEK[7:]} ctx.log('x'); if (one) for (;;); return got;")
    with pytest.raises(HostFault, match="disk full"):
        await alone.run(replace(made, args=("true",)), Broken(foreseeing=lambda _: Reply.of(EVENTS)))
    assert await alone.run(job("return 1;"), host) == Ended("1")


@asynchronous

async def test_a_host_that_fails_to_foresee_ends_the_run_and_no_worker_is_lost(host) -> None:
    def broken(_: Operation) -> Reply:
        raise ZeroDivisionError("bug")

    runtime = JavaScriptRuntime(workers_max=1)
    made = await habitual(runtime)
    with pytest.raises(ZeroDivisionError):
        await runtime.run(made, FakeHost(foreseeing=broken))
    ended, workers = await runtime.run(job("return 1;"), host), children(runtime)
    await runtime.close()
    assert ended == Ended("1")
    assert len(workers) == 1


# ---- forged uses ------------------------------------------------------------------------------------------

USED = end("1", used=True)


async def practised(handler: str = "h") -> CallPredictor:
    """The predictor of a runtime in which `prepare` has begun with a peek."""
    forger = Forger()
    await forger.run(call('"t"', name="peek") + END, replace(PREPARE, handler=handler), FakeHost())
    return forger.predictor


@asynchronous
async def test_a_use_of_what_is_at_hand_is_told_to_the_host() -> None:
    host = knowing()
    assert await Forger(await practised()).run(USED, PREPARE, host) == Ended("1")
    assert [(learned(operation), reply) for operation, reply in host.uses] == [(("peek", ("t",)), Reply.of(EVENTS))]


FORGED_USES = {
    "twice": (forged("log", "x", level="info", used=True) + USED, 1),
    "after a call": (call() + USED, 0),
    "after the same call": (call('"t"', name="peek") + USED, 0),
    "after a use and a call": (call(used=True) + USED, 1),
    "of another job": (end("1", used=True, n=6), 0),
    "that is false": (end("1", used=False), 0),
    "that is none": (end("1", used=None), 0),
    "that is a number": (end("1", used=1), 0),
    "in a frame by itself": (forged("used") + END, 0),
    "in a frame of no known kind": (forged("used", used=True) + END, 1),
}


@asynchronous
@pytest.mark.parametrize(("said", "uses"), FORGED_USES.values(), ids=FORGED_USES.keys())
async def test_a_forged_use_kills_the_worker_and_is_a_script_error(said, uses) -> None:
    host, forger = knowing(), Forger(await practised())
    with pytest.raises(ScriptError):
        await forger.run(said, PREPARE, host)
    assert forger.killed
    assert len(host.uses) == uses


EMPTY_HANDS = {
    "a handler that nothing is known of": replace(PREPARE, handler="g"),
    "another script": job("return 2;", Step.PREPARE),
    "another step": replace(PREPARE, step=Step.NEXT, allowed=ALLOWED[Step.NEXT]),
}


@asynchronous
@pytest.mark.parametrize("made", EMPTY_HANDS.values(), ids=EMPTY_HANDS.keys())
async def test_a_use_of_nothing_kills_the_worker_and_is_a_script_error(made) -> None:
    host, forger = knowing(), Forger(await practised())
    with pytest.raises(ScriptError):
        await forger.run(USED, made, host)
    assert forger.killed
    assert host.uses == []


@asynchronous
async def test_a_use_of_what_the_host_did_not_foresee_kills_the_worker(host) -> None:
    forger = Forger(await practised())
    with pytest.raises(ScriptError):
        await forger.run(USED, PREPARE, host)
    assert forger.killed
    assert (len(host.foreseen), host.uses) == (1, [])


@asynchronous
async def test_no_more_handlers_are_remembered_than_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(call_predictor, "_HANDLERS_MAX", 3)
    forger, host = Forger(), knowing()
    for number in range(8):
        await forger.run(call(name="peek") + END, replace(PREPARE, handler=f"h{number}"), FakeHost())
    for number in range(8):
        await forger.run(END, replace(PREPARE, handler=f"h{number}"), host)
    assert 1 <= len(host.foreseen) <= 3


@pytest.mark.parametrize("arg", ["{", '"' + "x" * (4 << 20) + '"', '"\\ud800"'], ids=["no JSON", "too large", "a lone surrogate"])
async def test_a_foreseen_call_that_the_host_would_refuse_is_none_and_not_tried_again(arg: str) -> None:
    forger = Forger()
    assert await forger.run(tried(arg), TRYING, FakeHost()) == Ended("1")
    assert not forger.killed
    planned, _ = await forger.predictor.plan(TRYING, FakeHost())
    assert planned.ahead is None
