# ruff: noqa: E501 (a script is read best on one line)
"""What is tried in the same breath as `next`: the `prepare` of a run that is likely to follow, and its `mutate`.

Nothing of it may be told from a `prepare` that was run by itself, and whatever comes of it `next` has ended as it would
have without it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from keepai.model.errors import BadValue, LimitExceeded, PhaseViolation, ScriptError, ScriptThrew, WorkerDied
from keepai.model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from keepai.runtime.base import Ahead, Ended, Followed, Job, LogLine, Operation, Reply, Then
from keepai.runtime.javascript import habits as habits_module
from keepai.runtime.javascript.frames import left_frame, missed_frame, used_frame
from keepai.runtime.javascript.habits import Habits
from keepai.runtime.javascript.link import Lost
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.runtime.forger import Forger, call, end, forged
from tests.runtime.script_world import LIMITS, FakeHost, children, job, value
from tests.runtime.test_javascript_ahead import CLEAN, LEAKS, LOOK

asynchronous = pytest.mark.asyncio(loop_scope="session")

NOW_MS = 1_700_000_000_000
AHEAD = Ahead(ALLOWED[Step.MUTATE], NOW_MS)
EVENTS = [{"messageId": "a"}, {"messageId": "b"}]
PEEK = "const got = await ctx.peek('t', {limit: 1});"
RESERVED = "return {reservations: [{topic: 't', ids: ['a']}], data: one === undefined ? 'none' : one};"
SEND = "await ctx.gmail.send({to: one.data});"
STATE = "return {b: 1, a: [2]};"
NUMBERS = itertools.count()


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def alone() -> AsyncIterator[JavaScriptRuntime]:
    """A runtime of one worker, so that every step meets what the steps before it left there."""
    made = JavaScriptRuntime(workers_max=1)
    yield made
    await made.close()


def unique(text: str = "") -> str:
    """Something to stand before a script, so that no test has seen it yet."""
    return f"/* then {next(NUMBERS)} */ {text}\n"


def knowing(reply: Reply | None = None) -> FakeHost:
    """A host that says beforehand what it would answer."""
    return FakeHost(foreseeing=lambda _: reply or Reply.of(EVENTS))


def consumer(prepare: str = RESERVED, mutate: str | None = SEND, then: str = STATE, before: str | None = None, **changes: object) -> Job:
    """A `next` that is to be followed by this `prepare`, which is given nothing if `next` returns nothing."""
    steps = [f"async prepare(ctx, one) {{ {prepare} }}", f"async next(ctx, one, two) {{ {then} }}"]
    steps += [] if mutate is None else [f"async mutate(ctx, one, ...more) {{ {mutate} }}"]
    source = f"{unique() if before is None else before}export default Keep.workflow({{name: 'w', topics: {{}}, consumers: {{h: Keep.consumer({{ {', '.join(steps)} }})}}}});"
    limits = changes.pop("limits", LIMITS)
    first = job("", Step.PREPARE, **{"source": source, "args": (None,), "ahead": None if mutate is None else AHEAD, "begun_ms": NOW_MS, "limits": limits, **changes})
    return job("", Step.NEXT, source=source, args=("1", "2"), limits=limits, then=Then(first, knowing()))


def after(made: Job, **changes: object) -> Job:
    """The `prepare` that is to follow, with these changes."""
    assert made.then is not None
    return replace(made.then.job, **changes)  # type: ignore[arg-type]


def behind(made: Job) -> FakeHost:
    """The host that `prepare` was to have."""
    assert made.then is not None
    assert isinstance(made.then.host, FakeHost)
    return made.then.host


def untried(made: Job) -> Job:
    """The same `next`, with nothing after it."""
    return replace(made, then=None)


async def practised_in(runtime: JavaScriptRuntime, made: Job, *args: str | None) -> Job:
    """The same job, after its `prepare` has been run once by itself, so that its peek is foreseen."""
    await runtime.run(after(made, args=args or (None,), ahead=None), FakeHost())
    return made


async def followed_by(runtime: JavaScriptRuntime, made: Job) -> Followed:
    """What came of the `prepare`."""
    ended = await runtime.run(made, FakeHost())
    assert ended.followed is not None
    return ended.followed


# ---- what comes of it -------------------------------------------------------------------------------------


@asynchronous
async def test_what_prepare_returned_and_what_mutate_calls_arrive_with_the_end_of_next(alone, host) -> None:
    made = consumer()
    ended = await alone.run(made, host)
    assert ended == Ended('{"b":1,"a":[2]}')
    assert ended.followed is not None
    assert ended.followed.ended == Ended(
        '{"reservations":[{"topic":"t","ids":["a"]}],"data":{"b":1,"a":[2]}}',
        ahead=Operation("gmail.send", Kind.MUTATION, ({"to": {"a": [2], "b": 1}},), ended.followed.ended.ahead.at),
    )
    assert ended.followed.ended.ahead.at is not None
    assert ended.followed.ended.read() == value(ended.followed.ended.value)
    assert ended.followed.used is None
    assert ended.followed.job == after(made, args=('{"b":1,"a":[2]}',))


@asynchronous
async def test_a_prepare_without_mutate_comes_without_a_call(alone) -> None:
    followed = await followed_by(alone, consumer(mutate=None))
    assert followed.ended == Ended('{"reservations":[{"topic":"t","ids":["a"]}],"data":{"b":1,"a":[2]}}')


@asynchronous
async def test_nothing_is_tried_unless_the_job_says_so(alone, host) -> None:
    assert (await alone.run(untried(consumer()), host)).followed is None


@asynchronous
async def test_the_foreseen_peek_is_given_and_its_use_is_told_with_the_result(alone, host) -> None:
    made = await practised_in(alone, consumer(PEEK + "return {reservations: [{topic: 't', ids: [got[0].messageId]}], data: [one, got]};"))
    for events in (EVENTS, EVENTS[1:]):
        reply = Reply.of(events)
        asked = replace(made, then=replace(made.then, host=knowing(reply)))
        ended = await alone.run(asked, host)
        assert ended.followed is not None
        assert value(ended.followed.ended.value) == {"data": [{"a": [2], "b": 1}, events], "reservations": [{"topic": "t", "ids": [events[0]["messageId"]]}]}
        operation, given = ended.followed.used
        assert ((operation.name, operation.kind, operation.args), given) == (("peek", Kind.PEEK, ("t", {"limit": 1})), reply)
        assert behind(asked).foreseen == [operation]
        assert (behind(asked).operations, behind(asked).uses, behind(asked).lines) == ([], [], []), "it is told by the result alone"
        assert (host.foreseen, host.uses, host.operations) == ([], [], []), "and not to the host of next"


@asynchronous
async def test_a_peek_that_was_not_made_is_not_used(alone) -> None:
    made = await practised_in(alone, consumer(f"if (one === undefined) {{ {PEEK} }} {RESERVED}"))
    followed = await followed_by(alone, made)
    assert (len(behind(made).foreseen), followed.used) == (1, None)
    assert followed.ended.ahead is not None


@asynchronous
async def test_next_is_heard_as_without_it_and_nothing_of_prepare(alone) -> None:
    then = "ctx.log('one'); ctx.publish('t', {n: 1}); ctx.publish('u', {n: 2}); ctx.log('two'); " + STATE
    made, heard, alike = await practised_in(alone, consumer(PEEK + RESERVED, then=then)), FakeHost(), FakeHost()
    ended = await alone.run(made, heard)
    assert ended.followed is not None
    assert ended.followed.used is not None
    assert ended == await alone.run(untried(made), alike)
    assert (heard.operations, heard.lines) == (alike.operations, alike.lines)
    assert (heard.names, heard.texts) == (["publish", "publish"], ["one", "two"])


RETURNS = {
    "an object with keys in any order": ("{z: 1.0, b: {d: 'é\\u2028', c: [undefined, -0]}, B: null, aa: 1e21 / 1e20, a: 0}", '{"z":1,"b":{"d":"é\u2028","c":[null,0]},"B":null,"aa":10,"a":0}'),
    "null": ("null", "null"), "zero": ("0", "0"), "an empty text": ("''", '""'), "false": ("false", "false"), "a list": ("[]", "[]"),
}


@asynchronous
@pytest.mark.parametrize(("returned", "text"), RETURNS.values(), ids=RETURNS.keys())
async def test_prepare_is_given_what_next_returned_as_it_is_kept(alone, host, returned, text) -> None:
    made = consumer("return {reservations: [1], data: [arguments.length, JSON.stringify(one), one && Object.keys(one)]};", "await ctx.gmail.send(one.data);", f"return {returned};", args=('"the state before"',))
    ended = await alone.run(made, host)
    assert ended.value == text
    followed = ended.followed
    assert followed is not None
    assert followed.job == after(made, args=(text,))
    by_itself = await alone.run(followed.job, host)
    assert followed.ended == by_itself
    assert value(by_itself.value)["data"][:2] == [2, text]
    assert followed.ended.ahead is not None


@asynchronous
@pytest.mark.parametrize("state", [None, "null", '{"count":1}'])
@pytest.mark.parametrize("then", ["", "return;", "return undefined;", "ctx.publish('t', {});"])
async def test_prepare_is_given_the_state_before_if_next_returned_nothing(alone, host, state, then) -> None:
    made = consumer("return {reservations: [1], data: one === undefined ? 'none' : one};", then=then, args=(state,))
    ended = await alone.run(made, host)
    assert ended == Ended(None)
    assert ended.followed is not None
    assert ended.followed.job == after(made)
    assert ended.followed.ended == await alone.run(after(made), host)
    assert value(ended.followed.ended.value)["data"] == ("none" if state is None else value(state))


SEEN = {
    "its argument": "JSON.stringify(one)",
    "its other arguments": "[arguments.length]",
    "the time": "new Date().toISOString().slice(0, 16)",
    "its ctx": "[Object.keys(ctx), Object.isFrozen(ctx), 'state' in ctx, 'item' in ctx]",
    "its globals": "Object.getOwnPropertyNames(globalThis)",
    "what stands outside of it": "[top.length, held.list, typeof this.prepare]",
    "its stack": "new Error('x').stack",
    "what it can do with its argument": "(() => { one.b = 5; return [one, Object.isFrozen(one)]; })()",
    "the peek": "[got instanceof Array, Object.isFrozen(got), got, got.lastCursor]",
    "after a while": "await (async () => { for (let i = 0; i < 20; i++) await null; return i; })().catch((e) => e.message)",
}
TOPS = {
    "that is the same in every step": "const top = [1]; const held = {list: [2]};",
    "with time": "const top = [Date.now()]; const held = {list: [typeof Math.random()]};",
}


@asynchronous
@pytest.mark.parametrize("before", TOPS.values(), ids=TOPS.keys())
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN.keys())
async def test_prepare_and_mutate_see_what_they_would_see_alone(alone, runtime, before, seen) -> None:
    prepare = f"{PEEK} return {{reservations: [1], data: {seen}}};"
    made = await practised_in(alone, consumer(prepare, "await ctx.gmail.send(one, Date.now(), Math.random(), Object.keys(one));", before=unique(before)), '{"b":1}')
    first, again = await followed_by(alone, made), await followed_by(alone, made)
    asking, given = FakeHost(answers={"peek": lambda _: Reply.of(EVENTS)}), knowing()
    assert first == again
    assert first.ended == await runtime.run(first.job, asking) == await alone.run(first.job, given)
    assert first.ended.ahead is not None
    assert first.ended.ahead.args[1] == NOW_MS
    assert given.uses == [first.used]
    assert asking.names == ["peek"]


@asynchronous
@pytest.mark.parametrize("top", ["", "Date.now();"], ids=["from an image", "loaded anew"])
@pytest.mark.parametrize("body", LEAKS.values(), ids=LEAKS.keys())
async def test_nothing_of_next_is_there_in_the_prepare_that_follows_nor_the_other_way_round(alone, host, body, top) -> None:
    before = unique(f"let leak = 0; const held = {{list: []}}; {top}")
    look = f"const seen = {LOOK}; {body}"
    made = consumer(f"{look} return {{reservations: [1], data: [seen, one]}};", f"{look} await ctx.gmail.send([seen, one.data]);", f"{look} return seen;", before)
    for _ in range(3):
        ended = await alone.run(made, host)
        assert value(ended.value) == CLEAN
        assert ended.followed is not None
        assert value(ended.followed.ended.value)["data"] == [CLEAN, CLEAN]
        assert ended.followed.ended.ahead is not None
        assert ended.followed.ended.ahead.args == ([CLEAN, [CLEAN, CLEAN]],)


@asynchronous
async def test_the_calls_of_next_are_not_those_of_prepare(alone) -> None:
    made = await practised_in(alone, consumer(PEEK + RESERVED, then="ctx.publish('t', {});" + STATE, limits=replace(LIMITS, calls_max=1)))
    host = FakeHost()
    ended = await alone.run(made, host)
    assert ended.followed is not None
    assert ended.followed.used is not None
    assert host.names == ["publish"]


@asynchronous
async def test_a_script_that_the_worker_does_not_know_yet_is_tried_too(host) -> None:
    runtime = JavaScriptRuntime(workers_max=1)
    made = consumer()
    ended = await runtime.run(made, host)
    await runtime.close()
    assert ended.followed is not None
    assert ended.followed.job == after(made, args=(ended.value,))


# ---- mutate after it --------------------------------------------------------------------------------------


@asynchronous
@pytest.mark.parametrize("mutate", ["ctx.log('x');" + SEND, "throw new Error('x');", "for (;;);", "return;"])
async def test_a_mutate_that_does_anything_but_its_call_leaves_the_prepare_as_it_is(alone, host, mutate) -> None:
    made, worker = consumer(mutate=mutate), children(alone)
    for _ in range(3):
        ended = await alone.run(made, host)
        assert ended == Ended('{"b":1,"a":[2]}')
        assert ended.followed is not None
        assert ended.followed.ended == Ended('{"reservations":[{"topic":"t","ids":["a"]}],"data":{"b":1,"a":[2]}}')
        assert ended.followed.job == after(made, args=(ended.value,)), "the job that was asked for"
        assert ended.followed.job.ahead == AHEAD
    assert not host.lines
    assert children(alone) == worker or not worker


@asynchronous
@pytest.mark.parametrize("then", [STATE, ""], ids=["a state", "no state"])
async def test_what_followed_is_the_job_that_was_asked_for_also_if_its_mutate_is_known_not_to_be_worth_trying(alone, host, then) -> None:
    made = consumer(mutate="ctx.log('x');" + SEND, then=then)
    assert (await alone.run(after(made), host)).ahead is None
    habits = alone._habits.fit(made).then
    assert habits is not None
    assert (habits.job, habits.asked) == (after(made, ahead=None), after(made)), "another job is given to the same end"
    ended = await alone.run(made, host)
    assert ended.followed is not None
    assert ended.followed.job == (after(made, args=(ended.value,)) if then else after(made))
    assert ended.followed.job.ahead == AHEAD
    assert ended.followed.ended.ahead is None


@asynchronous
@pytest.mark.parametrize("prepare", ["", "return null;", "return {data: 1};", "return {reservations: [], data: 1};", "return [1];", "return 'x';"])
async def test_after_a_prepare_that_reserved_nothing_mutate_is_not_tried_and_the_result_counts(alone, host, prepare) -> None:
    made = consumer(prepare, "for (;;);")
    for _ in range(2):
        ended = await alone.run(made, host)
        assert ended.followed is not None
        assert ended.followed.ended == await alone.run(after(made, args=(ended.value,)), host)
        assert ended.followed.ended.ahead is None
    assert alone._habits.fit(made) is made, "nothing was in vain"


# ---- a prepare that is not to be heard of -----------------------------------------------------------------

UNFORESEEN = {
    "a line": "ctx.log('x');",
    "a line of the console": "console.error('x');",
    "a line that is caught": "try { ctx.log('x'); } catch {}",
    "a read": "await ctx.gmail.search({});",
    "a read that is not awaited": "ctx.gmail.get(1).catch(() => 0);",
    "a read that is caught": "await ctx.gmail.get(1).catch(() => 0);",
    "a second peek": "await ctx.peek('t', {limit: 1});",
    "events by id": "await ctx.getByIds('t', ['a']);",
    "a mutation": "await ctx.gmail.send({});",
    "a publication": "ctx.publish('t', {});",
    "a member that is not there": "ctx.gmial.send({});",
    "an error": "throw new Error('x');",
    "a rejection": "await Promise.reject(new Error('x'));",
    "a floating rejection": "Promise.reject(new Error('x'));",
    "a promise for ever": "await new Promise(() => {});",
    "a loop": "for (;;);",
    "a loop that catches": "for (;;) { try { for (;;); } catch {} finally { continue; } }",
    "a storm of microtasks": "await new Promise(() => { (function g() { Promise.resolve().then(g); })(); });",
    "a full stack": "(function f() { f(); })();",
    "a full memory": "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1));",
    "a value that JSON cannot carry": "return {n: 1n};",
    "a result that is too large": "return 'x'.repeat(2e5);",
    "a result that is round": "const round = {}; round.of = round; return round;",
}
TIGHT = replace(LIMITS, memory_bytes=12 << 20, message_bytes_max=100_000)


@asynchronous
@pytest.mark.parametrize("body", UNFORESEEN.values(), ids=UNFORESEEN.keys())
async def test_a_prepare_that_needs_more_spoils_nothing_and_is_not_tried_again(alone, host, body) -> None:
    made = await practised_in(alone, consumer(f"{PEEK} if (one === 'bad') {{ {body} }} {RESERVED}", then="return ctx.state;", limits=TIGHT))
    good, bad = replace(made, state='"good"'), replace(made, state='"bad"')
    assert (await alone.run(good, host)).followed is not None
    worker, tries = children(alone), len(behind(made).foreseen)
    ended = await alone.run(bad, host)
    assert (ended, ended.followed) == (Ended('"bad"'), None)
    assert len(behind(made).foreseen) == tries + 1
    for again in (bad, good):
        ended = await alone.run(again, host)
        assert (ended, ended.followed) == (Ended(again.state), None)
    assert len(behind(made).foreseen) == tries + 1, "it was not even asked what is foreseen"
    assert (host.operations, host.lines, host.uses) == ([], [], [])
    assert (behind(made).operations, behind(made).lines, behind(made).uses) == ([], [], [])
    assert (await alone.run(consumer(limits=TIGHT), host)).followed is not None, "another handler is"
    assert children(alone) == worker


@asynchronous
async def test_a_prepare_whose_peek_is_not_foreseen_is_left(alone, host) -> None:
    made = consumer(PEEK + RESERVED)
    for _ in range(2):
        ended = await alone.run(made, host)
        assert (ended, ended.followed) == (Ended('{"b":1,"a":[2]}'), None)
    assert (behind(made).operations, behind(made).uses) == ([], [])


@asynchronous
@pytest.mark.parametrize("peek", ["await ctx.peek('u', {limit: 1});", "await ctx.peek('t', {limit: 2});", "await ctx.peek('t');"])
async def test_a_prepare_that_peeks_differently_is_left(alone, host, peek) -> None:
    made = await practised_in(alone, consumer(f"if (one) {{ {peek} }} else {{ {PEEK} }} {RESERVED}"))
    assert (await alone.run(made, host)).followed is None
    assert (behind(made).operations, behind(made).uses) == ([], [])


@asynchronous
async def test_what_was_left_does_all_of_it_when_it_is_run(alone, host) -> None:
    made = await practised_in(alone, consumer(PEEK + "ctx.log('before'); await ctx.gmail.get(1);" + RESERVED))
    ended = await alone.run(made, host)
    assert ended.followed is None
    own = knowing()
    run = await alone.run(after(made, args=(ended.value,)), own)
    assert run.value == '{"reservations":[{"topic":"t","ids":["a"]}],"data":{"b":1,"a":[2]}}'
    assert (own.texts, own.names, len(own.uses)) == (["before"], ["gmail.get"], 1)


@asynchronous
async def test_a_result_with_a_lone_surrogate_does_not_count_and_the_next_one_may(alone, host) -> None:
    made = await practised_in(alone, consumer(f"{PEEK} if (one === 'bad') return {{reservations: [1], data: '\\ud800'}}; {RESERVED}", then="return ctx.state;"))
    for state, counts in (('"bad"', False), ('"good"', True), ('"bad"', False), ('"good"', True)):
        ended = await alone.run(replace(made, state=state), host)
        assert ended == Ended(state)
        assert (ended.followed is not None) == counts
    with pytest.raises(BadValue, match="surrogate"):
        await alone.run(after(made, args=('"bad"',)), knowing())


@asynchronous
async def test_a_line_at_the_top_level_is_heard_with_next_and_prepare_is_left(alone, host) -> None:
    made = consumer(before=unique("console.log('loading');"))
    for times in (1, 2):
        ended = await alone.run(made, host)
        assert (ended, ended.followed) == (Ended('{"b":1,"a":[2]}'), None)
        assert host.texts == ["loading"] * times


@asynchronous
async def test_the_try_takes_no_more_than_a_moment_even_of_a_prepare_with_much_time(alone, host) -> None:
    made = consumer("for (;;);", limits=replace(LIMITS, compute_s=3600))
    async with asyncio.timeout(20):
        assert (await alone.run(made, host)).followed is None


@asynchronous
async def test_no_more_handlers_are_remembered_than_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(habits_module, "_MOST", 3)
    forger, jobs = Forger(), [consumer() for _ in range(8)]
    for each in jobs:
        assert (await forger.run(END + left_frame(7), each, FakeHost())).followed is None
    assert 1 <= len([each for each in jobs if forger.habits.fit(each).then is None]) <= 3


# ---- a next that does not end well ------------------------------------------------------------------------

FAILED = {
    "throws": ("throw new Error('x');", ScriptThrew), "floats": ("Promise.reject(new Error('x'));" + STATE, ScriptThrew),
    "never ends": ("await new Promise(() => {});", ScriptThrew), "loops": ("for (;;);", LimitExceeded),
    "calls what it may not": ("ctx.gmail.send({});", PhaseViolation), "returns what JSON cannot carry": ("return {n: 1n};", BadValue),
    "returns a lone surrogate": ("return {s: '\\ud800'};", BadValue), "returns a lone surrogate as a key": ("return {'\\udc00': 1};", BadValue),
    "returns what is too deep": ("let deep = 1; for (let n = 0; n < 70; n++) deep = [deep]; return deep;", BadValue),
    "returns too much": ("return 'x'.repeat(2e5);", LimitExceeded),
}


@asynchronous
@pytest.mark.parametrize(("body", "error"), FAILED.values(), ids=FAILED.keys())
async def test_after_a_next_that_failed_nothing_is_tried_and_its_error_is_the_same(alone, body, error) -> None:
    limits = replace(LIMITS, compute_s=0.1, message_bytes_max=100_000, calls_max=5)
    made = await practised_in(alone, consumer(PEEK + RESERVED, then=f"ctx.log('first'); if (ctx.state) {{ {body} }} {STATE}", limits=limits))
    told = []
    for each in (made, untried(made)):
        host = FakeHost()
        with pytest.raises(error) as caught:
            await alone.run(replace(each, state="true"), host)
        told.append((type(caught.value), caught.value.message, caught.value.at, host.names, host.texts))
    assert told[0] == told[1]
    assert told[0][4] == ["first"]
    assert (behind(made).uses, behind(made).operations) == ([], [])
    assert (await alone.run(made, FakeHost())).followed is not None, "it was not the fault of prepare"


# ---- workers that die -------------------------------------------------------------------------------------


@asynchronous
async def test_a_worker_that_died_before_is_replaced(alone, host) -> None:
    made = await practised_in(alone, consumer(PEEK + RESERVED))
    os.kill(children(alone)[0], signal.SIGKILL)
    with pytest.raises(WorkerDied):
        await alone.run(made, host)
    ended = await alone.run(made, host)
    assert ended == Ended('{"b":1,"a":[2]}')
    assert ended.followed is not None
    assert ended.followed.used is not None


@asynchronous
async def test_a_worker_that_is_killed_during_the_try_leaves_next_to_be_run_again(alone) -> None:
    class Killing(FakeHost):
        def log(self, line: LogLine) -> None:
            if not self.lines:
                os.kill(children(alone)[0], signal.SIGKILL)  # what follows on the line is the try: it takes 50 ms
            super().log(line)

    made, host = consumer("for (;;);", then="ctx.log('last'); ctx.publish('t', {});" + STATE), Killing()
    with pytest.raises(WorkerDied):
        await alone.run(made, host)
    ended = await alone.run(made, host)
    assert (ended, ended.followed) == (Ended('{"b":1,"a":[2]}'), None)
    assert set(host.texts) == {"last"}
    assert host.names == ["publish"], "what was not told before is told once"
    assert (await alone.run(consumer(), FakeHost())).followed is not None


class Dying(Forger):
    """A worker that is gone when it has said everything."""

    @staticmethod
    async def _speak(sock: socket.socket, said: bytes, later: bytes, reads: bool) -> None:
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(sock, said)
            sock.shutdown(socket.SHUT_WR)


# ---- forged frames ----------------------------------------------------------------------------------------


def mutation(*args: str, **changes: object) -> bytes:
    return forged("mutation", *args or ("1",), **{"id": 1, "name": "gmail.send", "at": None, **changes})


END, RESULT = end('{"b":1, "a":2}'), end('{"z":1, "data":3}')
USED, MISSED, LEFT = used_frame(7), missed_frame(7), left_frame(7)
LOG = forged("log", "x", level="info")
PREPARE = job("", Step.PREPARE, args=('"before"',), ahead=AHEAD)
NEXT = job("", Step.NEXT, source=PREPARE.source)
KEPT = '{"b":1,"a":2}'


async def practised(handler: str = "h") -> Habits:
    """Habits of a runtime in which `prepare` has begun with a peek."""
    forger = Forger()
    await forger.run(call('"t"', name="peek") + end("1"), replace(PREPARE, handler=handler), FakeHost())
    return forger.habits


def trying(**changes: object) -> Job:
    """A `next` with a `prepare` after it that is changed so."""
    return replace(NEXT, then=Then(replace(PREPARE, **changes), knowing()))  # type: ignore[arg-type]


@asynchronous
async def test_the_frames_of_prepare_follow_on_the_end_of_next() -> None:
    forger, made = Forger(await practised()), trying()
    ended = await forger.run(END + USED + mutation() + RESULT, made, FakeHost())
    assert ended == Ended(KEPT)
    [operation] = behind(made).foreseen
    assert ended.followed == Followed(
        replace(PREPARE, args=(KEPT,)), Ended('{"z":1,"data":3}', ahead=Operation("gmail.send", Kind.MUTATION, (1,), None)),
        (operation, Reply.of(EVENTS)),
    )
    assert (operation.name, operation.args) == ("peek", ("t",))
    assert (forger.killed, forger.habits.fit(made) is made) == (False, True)


@asynchronous
async def test_a_next_without_a_result_is_followed_by_the_job_as_it_was_asked_for() -> None:
    ended = await Forger().run(end() + RESULT, trying(), FakeHost())
    assert ended == Ended(None)
    assert ended.followed == Followed(PREPARE, Ended('{"z":1,"data":3}'), None)


@asynchronous
@pytest.mark.parametrize("said", [LEFT, USED + LEFT, USED + mutation() + LEFT, MISSED + LEFT])
async def test_what_was_left_is_none_and_is_not_asked_for_again(said) -> None:
    forger, made = Forger(await practised()), trying()
    ended = await forger.run(END + said, made, FakeHost())
    assert (ended, ended.followed, forger.killed) == (Ended(KEPT), None, False)
    assert forger.habits.fit(made).then is None
    ended = await forger.run(END, made, FakeHost())
    assert (ended, ended.followed, len(behind(made).foreseen)) == (Ended(KEPT), None, 1), "nothing more is waited for"


@asynchronous
async def test_what_was_left_of_one_handler_says_nothing_of_another() -> None:
    forger, made = Forger(), trying()
    await forger.run(END + LEFT, made, FakeHost())
    other = replace(trying(handler="g"), handler="g")
    assert forger.habits.fit(other) is other
    assert (await forger.run(END + RESULT, other, FakeHost())).followed is not None


@asynchronous
@pytest.mark.parametrize("text", ["nonsense", '"\\ud800"', "{", '"' + "x" * (4 << 20) + '"'], ids=["no JSON", "a lone surrogate", "half of it", "too large"])
async def test_a_result_of_prepare_that_cannot_be_read_does_not_count(text) -> None:
    forger, made = Forger(await practised()), trying()
    ended = await forger.run(END + USED + mutation() + end(text), made, FakeHost())
    assert (ended, ended.followed, forger.killed) == (Ended(KEPT), None, False)
    assert forger.habits.fit(made) is made


@asynchronous
@pytest.mark.parametrize("arg", ["{", '"' + "x" * (4 << 20) + '"', '"\\ud800"'], ids=["no JSON", "too large", "a lone surrogate"])
async def test_a_call_of_mutate_that_the_host_would_refuse_is_none_and_not_tried_again(arg) -> None:
    forger, made = Forger(), trying()
    ended = await forger.run(END + mutation(arg) + RESULT, made, FakeHost())
    assert ended.followed == Followed(replace(PREPARE, args=(KEPT,)), Ended('{"z":1,"data":3}'), None)
    assert not forger.killed
    assert forger.habits.fit(PREPARE).ahead is None
    ended = await forger.run(END + RESULT, made, FakeHost())
    assert ended.followed == Followed(replace(PREPARE, args=(KEPT,)), Ended('{"z":1,"data":3}'), None)


@asynchronous
@pytest.mark.parametrize("said", [b"", USED, USED + mutation(), MISSED, RESULT[:-1], RESULT[:2]], ids=["at once", "after a use", "after a call", "after a miss", "in the end", "in its length"])
async def test_a_worker_that_dies_during_the_try_leaves_what_next_returned(said) -> None:
    forger, made, host = Dying(await practised()), trying(), FakeHost()
    ended = await forger.run(call('"t"', "{}", name="publish") + END + said, made, host)
    assert (ended, ended.followed) == (Ended(KEPT), None)
    assert (host.names, behind(made).uses) == (["publish"], [])
    assert forger.habits.fit(made).then is not None, "it was not its fault"


@asynchronous
@pytest.mark.parametrize("said", [b"", USED + mutation(), RESULT[:-1]], ids=["at once", "after a call", "in the end"])
async def test_a_worker_that_falls_silent_during_the_try_is_killed_and_leaves_what_next_returned(said) -> None:
    limits = replace(LIMITS, compute_s=0.1)
    forger, made = Forger(await practised()), replace(trying(limits=limits), limits=limits)
    ended = await forger.run(END + said, made, FakeHost())
    assert (ended, ended.followed, forger.killed) == (Ended(KEPT), None, True)


@asynchronous
async def test_a_worker_that_dies_before_next_has_ended_is_lost() -> None:
    with pytest.raises(Lost):
        await Dying().run(END[:-1], trying(), FakeHost())


FORGED = {
    "a call": (trying(), call('"t"', name="peek") + RESULT),
    "a call that prepare may make": (trying(), call(name="gmail.search") + RESULT),
    "a publication": (trying(), call('"t"', "{}", name="publish") + RESULT),
    "a mutation that expects an answer": (trying(), call(name="gmail.send") + RESULT),
    "a call after a use": (trying(), USED + call() + RESULT),
    "a line": (trying(), LOG + RESULT),
    "a line after a use": (trying(), USED + LOG + RESULT),
    "a failure": (trying(), forged("fail", code="script_threw", message="no")),
    "two mutations": (trying(), mutation() + mutation() + RESULT),
    "two mutations that differ": (trying(), mutation() + mutation(id=2, name="sheets.appendRow") + RESULT),
    "a mutation after one that cannot be read": (trying(), mutation("nonsense") + mutation() + RESULT),
    "a mutation and a miss": (trying(), mutation() + MISSED + RESULT),
    "a miss and a mutation": (trying(), MISSED + mutation() + RESULT),
    "two misses": (trying(), MISSED + MISSED + RESULT),
    "a mutation that was not to be tried": (trying(ahead=None), mutation() + RESULT),
    "a miss of what was not to be tried": (trying(ahead=None), MISSED + RESULT),
    "a mutation that is a read by id": (trying(ahead=replace(AHEAD, allowed=AHEAD.allowed | MUTATE_BY_ID)), mutation(name="gmail.get") + RESULT),
    "a mutation that is a peek": (trying(), mutation(name="peek") + RESULT),
    "a mutation that is not there": (trying(), mutation(name="gmail.delete") + RESULT),
    "a mutation that is not allowed": (trying(ahead=replace(AHEAD, allowed=frozenset({Kind.LOG}))), mutation() + RESULT),
    "two uses": (trying(), USED + USED + RESULT),
    "a use of another job": (trying(), used_frame(6) + RESULT),
    "an end of another job": (trying(), end("1", n=8)),
    "a leaving of another job": (trying(), left_frame(8)),
    "two results": (trying(), end("1", "2")),
    "a frame of no known kind": (trying(), forged("ready") + RESULT),
    "no object": (trying(), b"\x00\x00\x00\x02[]" + RESULT),
    "garbage": (trying(), b"\xff\xff\xff\xff garbage"),
}


@asynchronous
@pytest.mark.parametrize(("made", "said"), FORGED.values(), ids=FORGED.keys())
async def test_a_forged_frame_after_the_end_of_next_kills_the_worker_and_is_a_script_error(made, said) -> None:
    forger, host = Forger(await practised()), FakeHost()
    with pytest.raises(ScriptError):
        await forger.run(END + said, made, host)
    assert forger.killed
    for each in (host, behind(made)):
        assert (each.operations, each.lines, each.uses) == ([], [], [])


@asynchronous
@pytest.mark.parametrize("known", [False, True], ids=["nothing is known", "its host foresees nothing"])
async def test_a_use_of_nothing_kills_the_worker_and_is_a_script_error(known) -> None:
    forger, made = Forger(await practised() if known else None), replace(NEXT, then=Then(PREPARE, FakeHost()))
    with pytest.raises(ScriptError):
        await forger.run(END + USED + RESULT, made, FakeHost())
    assert forger.killed
    assert len(behind(made).foreseen) == int(known)


TOO_SOON = {
    "a mutation": mutation(), "a miss": MISSED, "a leaving": LEFT, "a leaving alone": LEFT + END,
    "a use": USED,  # of what is at hand for the `prepare`: `next` itself may not peek at all
}


@asynchronous
@pytest.mark.parametrize("said", TOO_SOON.values(), ids=TOO_SOON.keys())
async def test_what_only_prepare_can_say_kills_the_worker_before_the_end_of_next(said) -> None:
    forger, host = Forger(await practised()), FakeHost()
    with pytest.raises(ScriptError):
        await forger.run(said + END + RESULT, trying(), host)
    assert forger.killed
    assert (host.uses, host.operations) == ([], [])


@asynchronous
@pytest.mark.parametrize("text", ["nonsense", '"\\ud800"'])
async def test_a_result_of_next_that_cannot_be_read_is_its_error_whatever_follows(text) -> None:
    forger, made = Forger(), trying()
    with pytest.raises(BadValue):
        await forger.run(end(text) + mutation() + RESULT, made, FakeHost())
    assert forger.killed
    assert forger.habits.fit(made) is made


def test_a_job_is_the_same_with_or_without_what_is_to_be_tried_after_it() -> None:
    assert trying() == NEXT
    assert Ended("1", followed=Followed(PREPARE, Ended("2"), None)) == Ended("1")
