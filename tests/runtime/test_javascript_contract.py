# ruff: noqa: E501 (a script is read best on one line)
"""What a step may do and see, through `JavaScriptRuntime.run` alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from keepai.model.errors import (
    BadValue,
    KeepError,
    LimitExceeded,
    Location,
    PhaseViolation,
    RuleBroken,
    ScriptError,
    ScriptThrew,
    Transient,
)
from keepai.model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from keepai.runtime.base import Ended, Fixed, Operation, Reply
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from keepai.script.globals import ABSENT
from tests.runtime.script_world import LIMITS, SURFACE, FakeHost, Gate, fixed, job, value

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALLS = {
    Kind.PEEK: "ctx.peek('t', {limit: 1})",
    Kind.GET_BY_IDS: "ctx.getByIds('t', ['a'])",
    Kind.REGISTER_INPUT: "ctx.registerInput({source: 'gmail', type: 'email', id: '1', title: 't'})",
    Kind.PUBLISH: "ctx.publish('t', {messageId: 'm', payload: 1})",
    Kind.READ: "ctx.gmail.search({q: 'x'})",
    Kind.READ_BY_ID: "ctx.gmail.get({id: '1'})",
    Kind.MUTATION: "ctx.gmail.send({to: 'x'})",
    Kind.WITH_ITEM: "ctx.withItem('1', 'title', async () => {})",
    Kind.LOG: "ctx.log('line')",
}
MATRIX = [(step, kind) for step in Step for kind in Kind]


async def run(runtime: JavaScriptRuntime, host: FakeHost, body: str, step: Step = Step.PRODUCER, **changes: object):
    return await runtime.run(job(body, step, **changes), host)


async def failure(runtime: JavaScriptRuntime, host: FakeHost, body: str, step: Step = Step.PRODUCER, **changes: object):
    with pytest.raises(KeepError) as caught:
        await run(runtime, host, body, step, **changes)
    return caught.value


# ---- the phase matrix -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "kind"), [p for p in MATRIX if p[1] in ALLOWED[p[0]]], ids=lambda v: v.value)
async def test_an_allowed_operation_reaches_the_host(runtime, host, step, kind) -> None:
    ended = await run(runtime, host, f"await {CALLS[kind]};", step)
    if kind is Kind.LOG:
        assert host.texts == ["line"]
    elif kind is Kind.MUTATION and step is Step.MUTATE:
        assert ended.mutation is not None
        assert ended.mutation.name == "gmail.send"
        assert not host.operations
    else:
        assert host.operations[0].kind is kind


@pytest.mark.parametrize(("step", "kind"), [p for p in MATRIX if p[1] not in ALLOWED[p[0]]], ids=lambda v: v.value)
async def test_a_forbidden_operation_ends_the_step_at_the_call(runtime, host, step, kind) -> None:
    body = f"try {{ await {CALLS[kind]}; }} catch {{ ctx.log('caught'); }} finally {{ ctx.log('finally'); }}"
    error = await failure(runtime, host, body, step)
    assert isinstance(error, PhaseViolation)
    assert f"not allowed in {step}" in error.message
    assert error.at is not None
    assert error.at.line == 2
    assert not host.operations
    assert not host.lines


async def test_the_refusal_says_where_the_operation_belongs(runtime, host) -> None:
    error = await failure(runtime, host, "ctx.gmail.send({});", Step.PREPARE)
    assert error.message == "ctx.gmail.send (a mutation) is not allowed in prepare; it is allowed in mutate, routine."
    assert error.at == Location(2, 11)


async def test_a_policy_can_let_mutate_read_by_id(runtime, host) -> None:
    allowed = ALLOWED[Step.MUTATE] | MUTATE_BY_ID
    ended = await run(runtime, host, "return await ctx.gmail.get({id: 1});", Step.MUTATE, allowed=allowed)
    assert value(ended.value) == [{"id": 1}]


# ---- calls and answers ------------------------------------------------------------------------------------


async def test_register_input_answers_synchronously(runtime, host) -> None:
    host.answers["registerInput"] = lambda _: Reply.of("inp_1")
    ended = await run(runtime, host, "return ctx.registerInput({id: '1'}) + '!';")
    assert value(ended.value) == "inp_1!"


async def test_reads_started_together_run_together(runtime, host) -> None:
    host.answers["gmail.get"] = Gate(3)
    ended = await run(runtime, host, "return await Promise.all([1, 2, 3].map((id) => ctx.gmail.get(id)));")
    assert value(ended.value) == [[1], [2], [3]]


async def test_answers_settle_in_the_order_in_which_they_arrive(runtime, host) -> None:
    second = asyncio.Event()

    async def answer(operation: Operation) -> Reply:
        if operation.args == (1,):
            await second.wait()
        else:
            second.set()
        return Reply.of(None)

    host.answers["gmail.get"] = answer
    body = "const order = []; const get = async (id) => { await ctx.gmail.get(id); order.push(id); };"
    ended = await run(runtime, host, body + "await Promise.all([get(1), get(2)]); return order;")
    assert value(ended.value) == [2, 1]


async def test_no_more_reads_are_under_way_than_allowed_and_all_are_answered(runtime, host) -> None:
    under_way = most = 0

    async def answer(operation: Operation) -> Reply:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return Reply.of(operation.args[0])

    host.answers["gmail.get"] = answer
    body = "return (await Promise.all([...Array(50).keys()].map((i) => ctx.gmail.get(i)))).length;"
    ended = await run(runtime, host, body, limits=replace(LIMITS, concurrent_max=3))
    assert value(ended.value) == 50
    assert most <= 3


async def test_reads_under_way_at_once_were_given_no_more_than_one_message(runtime, host) -> None:
    under_way = most = 0

    async def answer(operation: Operation) -> Reply:
        nonlocal under_way, most
        size = len(str(operation.args[0]))
        under_way += size
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= size
        return Reply.of(size)

    host.answers["gmail.get"] = answer
    body = (
        "const text = 'é'.repeat(15000), all = [...Array(20).keys()].map((i) => ctx.gmail.get(i % 5 ? text : 'x'));"
        " ctx.registerInput(text); return await Promise.all(all);"
    )
    ended = await run(runtime, host, body, limits=replace(LIMITS, message_bytes_max=64 << 10))
    assert value(ended.value) == [15000 if i % 5 else 1 for i in range(20)]
    assert most <= (64 << 10) // 2


async def test_a_blocking_call_between_reads_keeps_their_answers(runtime, host) -> None:
    body = "const r = ctx.gmail.get(1); const i = ctx.registerInput(2); return [await r, i];"
    assert value((await run(runtime, host, body)).value) == [[1], [2]]


async def test_a_page_is_an_array_with_extra_fields(runtime, host) -> None:
    host.answers["gmail.search"] = lambda _: Reply.of([{"id": 1}, {"id": 2}], {"lastCursor": "c", "length": 9})
    body = "const p = await ctx.gmail.search({}); let n = 0; for (const e of p) n += e.id; return [n, p.lastCursor, p.length];"
    assert value((await run(runtime, host, body)).value) == [3, "c", 2]


async def test_arguments_arrive_as_the_script_passed_them(runtime, host) -> None:
    body = """const o = {a: undefined, f() {}, [Symbol('s')]: 1, n: null, z: -0, d: new Date(0), l: [undefined, () => 1, 1.5]};
      await ctx.gmail.search(o); await ctx.gmail.search(undefined); await ctx.gmail.search(); await ctx.publish('t', {x: 'é😀'});"""
    await run(runtime, host, body)
    clean = {"n": None, "z": 0, "d": "1970-01-01T00:00:00.000Z", "l": [None, None, 1.5]}
    assert [o.args for o in host.operations] == [(clean,), (None,), (), ("t", {"x": "é😀"})]


async def test_the_handler_gets_its_arguments_and_returns_json(runtime, host) -> None:
    ended = await run(runtime, host, "return {a: one, b: two === undefined, n: 1.0};", args=('{"x":[1]}', None))
    assert ended == Ended('{"a":{"x":[1]},"b":true,"n":1}')


async def test_a_handler_that_returns_nothing_ends_without_a_value(runtime, host) -> None:
    assert await run(runtime, host, "") == Ended()


async def test_state_in_next_is_a_frozen_copy(runtime, host) -> None:
    body = "'use strict'; try { ctx.state.list.push(1); } catch (e) { return [e.name, ctx.state, Object.isFrozen(ctx)]; }"
    ended = await run(runtime, host, body, Step.NEXT, state='{"list":[0]}')
    assert value(ended.value) == ["TypeError", {"list": [0]}, True]


async def test_ctx_and_everything_on_it_is_frozen(runtime, host) -> None:
    body = """const all = [ctx, ctx.gmail, ctx.gmail.get, ctx.publish, ctx.log, console, console.log, Keep];
      return all.map((o) => Object.isFrozen(o)).concat(Reflect.set(ctx, 'x', 1), Reflect.set(ctx.gmail, 'get', 1));"""
    assert value((await run(runtime, host, body)).value) == [True] * 8 + [False, False]


async def test_log_lines_keep_their_level_and_order(runtime, host) -> None:
    body = "console.log('a', {b: [1, 'x']}); console.warn(new TypeError('bad')); console.error(1n); console.debug(); ctx.log('z');"
    await run(runtime, host, body)
    lines = [(line.level, line.text) for line in host.lines]
    assert lines == [("info", 'a {b: [1, "x"]}'), ("warn", "TypeError: bad"), ("error", "1n"), ("debug", ""), ("info", "z")]


async def test_a_log_that_grows_too_long_is_cut_off_and_the_step_goes_on(runtime, host) -> None:
    body = "for (let i = 0; i < 5000; i++) console.log('x'.repeat(100)); return 1;"
    ended = await run(runtime, host, body, limits=replace(LIMITS, log_bytes_max=1000))
    assert value(ended.value) == 1
    assert host.texts[-1] == "… log limit of 1,000 bytes reached"
    assert len(host.texts) < 12


async def test_a_producer_may_be_a_bare_function(runtime, host) -> None:
    source = "export default Keep.workflow({producers: {h: async (ctx, s) => s}});"
    assert await run(runtime, host, "", source=source, args=("5",)) == Ended("5")


async def test_methods_of_a_handler_share_its_object(runtime, host) -> None:
    source = "export default Keep.workflow({consumers: {h: {async prepare() { return this.help(); }, help: () => 7}}});"
    assert await run(runtime, host, "", Step.PREPARE, source=source) == Ended("7")


async def test_a_routine_gets_the_state_of_its_item(runtime, host) -> None:
    host.answers["withItem"] = lambda o: Reply.of({"isDone": o.args[0] == "2"})
    body = """return await ctx.withItem(one, 'T', async (ctx) => {
        if (!ctx.item.isDone) await ctx.gmail.send({to: 'x'}); return ctx.item.isDone; });"""
    assert await run(runtime, host, body, Step.ROUTINE, args=('"1"',)) == Ended("false")
    assert host.names == ["withItem", "gmail.send", "withItem"]
    assert host.operations[2].args == ("1", "T", "end")
    assert await run(runtime, host, body, Step.ROUTINE, args=('"2"',)) == Ended("true")


# ---- time and chance --------------------------------------------------------------------------------------


async def test_with_fixed_time_and_chance_every_execution_is_the_same(runtime, host) -> None:
    body = "const r = [Date.now(), new Date().toISOString(), Math.random(), Math.random()]; return r;"
    first = await run(runtime, host, body, Step.MUTATE, fixed=fixed())
    again = await run(runtime, host, body, Step.MUTATE, fixed=fixed())
    other = await run(runtime, host, body, Step.MUTATE, fixed=fixed(b"other"))
    assert first == again != other
    assert value(first.value)[:2] == [1_700_000_000_000, "2023-11-14T22:13:20.000Z"]


async def test_without_them_chance_differs_between_steps_and_time_runs(runtime, host) -> None:
    body = "const d = Date.now(); while (Date.now() === d); return [Math.random(), Number.isInteger(d)];"
    first, second = await run(runtime, host, body), await run(runtime, host, body)
    assert first != second
    assert value(first.value)[1] is True


async def test_an_item_has_its_own_time_and_chance_and_uses_up_none_of_those_outside(runtime, host) -> None:
    def item(operation: Operation) -> Reply:
        name, _, border = operation.args
        own = Fixed(5, str(name).encode())
        return Reply('{"isDone":false}', fixed=own) if border == "begin" else Reply("null")

    host.answers["withItem"] = item
    body = """
      const see = () => [Date.now(), Math.random()];
      const seen = [see()];
      for (const id of one) await ctx.withItem(id, id, async () => { seen.push(see(), see()); });
      return [...seen, see()];
    """
    saw = [
        value((await run(runtime, host, body, Step.ROUTINE, fixed=fixed(), args=(names,))).value)
        for names in ('["a","b"]', '["b","a"]', "[]")
    ]
    before, a1, a2, b1, b2, after = saw[0]
    assert saw[1] == [before, b1, b2, a1, a2, after]
    assert saw[2] == [before, after]
    assert {told[0] for told in (a1, a2, b1, b2)} == {5}
    assert {before[0], after[0]} == {1_700_000_000_000}
    assert len({told[1] for told in saw[0]}) == 6


async def test_random_numbers_are_spread_over_the_unit_interval(runtime, host) -> None:
    body = "const r = Array.from({length: 2000}, Math.random); return [Math.min(...r), Math.max(...r), r.reduce((x, y) => x + y) / 2000];"
    low, high, mean = value((await run(runtime, host, body, fixed=fixed())).value)
    assert 0 <= low < 0.01
    assert 0.99 < high < 1
    assert 0.47 < mean < 0.53


# ---- what counts -------------------------------------------------------------------------------------------

ITEMS = """
  for (let n = 0; n < one; n++) await ctx.withItem("item " + n, "Item " + n, async (ctx) => {
    if (!ctx.item.isDone) await ctx.gmail.send({to: "a" + n});
  });
"""
OPEN = Reply('{"isDone":false}')


async def test_what_is_registered_published_begun_or_sent_is_no_call_that_reads(runtime, host) -> None:
    few = replace(LIMITS, calls_max=1)
    await run(runtime, host, "for (let n = 0; n < 50; n++) { ctx.registerInput({}); ctx.publish('t', {}); } await ctx.gmail.get(1);", limits=few)
    assert len(host.operations) == 101
    host.answers["withItem"] = lambda _: OPEN
    await run(runtime, host, ITEMS + "await ctx.gmail.get(1);", Step.ROUTINE, args=("50",), limits=few)
    with pytest.raises(LimitExceeded, match="limit of 1"):
        await run(runtime, host, ITEMS + "await ctx.gmail.get(1); await ctx.gmail.get(1);", Step.ROUTINE, args=("50",), limits=few)


async def test_a_long_list_of_items_has_the_time_that_it_takes_and_each_item_no_more(runtime, host) -> None:
    short = replace(LIMITS, compute_s=0.1)
    host.answers["withItem"] = lambda _: OPEN
    await run(runtime, host, ITEMS, Step.ROUTINE, args=("3000",), limits=short)
    assert host.names.count("gmail.send") == 3000
    with pytest.raises(LimitExceeded, match="time limit"):
        await run(runtime, host, "await ctx.withItem('a', 'A', async () => { for (;;); });", Step.ROUTINE, limits=short)


async def test_thousands_of_items_are_within_the_limits(runtime, host) -> None:
    host.answers["withItem"] = lambda _: OPEN
    await run(runtime, host, ITEMS, Step.ROUTINE, args=("6000",))
    assert host.names.count("gmail.send") == 6_000


async def test_items_without_end_meet_their_limit(runtime, host) -> None:
    host.answers["withItem"] = lambda _: OPEN
    with pytest.raises(LimitExceeded, match="limit of 100"):
        await run(runtime, host, ITEMS, Step.ROUTINE, args=("1e9",), limits=replace(LIMITS, items_max=100))
    assert host.names.count("gmail.send") == 100


# ---- the terminal mutation --------------------------------------------------------------------------------

TERMINAL = {
    "awaited": "await ctx.gmail.send({n: 1}); ctx.log('after');",
    "un-awaited": "ctx.gmail.send({n: 1}); ctx.gmail.send({n: 2}); ctx.log('after');",
    "Promise.all": "await Promise.all([ctx.gmail.send({n: 1}), ctx.sheets.appendRow({n: 2})]);",
    "thenable": "await {then(done) { ctx.gmail.send({n: 1}); ctx.log('after'); done(); }};",
    "finally": "try { await ctx.gmail.send({n: 1}); } finally { ctx.log('after'); await ctx.gmail.send({n: 2}); }",
    "catch": "try { ctx.gmail.send({n: 1}); } catch { ctx.log('after'); }",
    "nested async": "const f = async () => { await null; await ctx.gmail.send({n: 1}); ctx.log('after'); }; await Promise.race([f(), f()]);",
    "a microtask queued before": "Promise.resolve().then(() => ctx.log('after')); ctx.gmail.send({n: 1});",
    "in a getter of its own arguments": "ctx.sheets.appendRow({get x() { ctx.gmail.send({n: 1}); return ctx.log('after'); }});",
    "generator return": "function* g() { try { yield ctx.gmail.send({n: 1}); } finally { ctx.log('after'); } } for (const x of g()) break;",
    "using aliased member": "const {send} = ctx.gmail; [1, 2].forEach((n) => send({n}));",
}


@pytest.mark.parametrize("body", TERMINAL.values(), ids=TERMINAL.keys())
async def test_a_mutation_call_ends_the_step_and_only_the_first_counts(runtime, host, body) -> None:
    ended = await run(runtime, host, body, Step.MUTATE)
    assert ended.mutation is not None
    assert ended.value is None
    assert (ended.mutation.name, ended.mutation.args) == ("gmail.send", ({"n": 1},))
    assert not host.lines
    assert not host.operations


async def test_a_mutate_that_makes_no_call_returns(runtime, host) -> None:
    assert await run(runtime, host, "if (one) await ctx.gmail.send({});", Step.MUTATE, args=("false",)) == Ended()


async def test_the_mutation_carries_its_place(runtime, host) -> None:
    ended = await run(runtime, host, "  await ctx.sheets.appendRow({\n    when: new Date(0),\n  });", Step.MUTATE)
    assert ended.mutation is not None
    assert ended.mutation.at == Location(2, 20)


# ---- places -----------------------------------------------------------------------------------------------

PLACES = {
    "simple": ("ctx.publish('t', {});", Location(2, 5)),
    "second line": ("\n   ctx.publish('t', {});", Location(3, 8)),
    "calls in the arguments": ("ctx.publish(String('t'), {a: parseInt('1'),\n b: new Date(0)});", Location(2, 5)),
    "after text that is not ASCII": ("/* é😀 */ ctx.publish('t');", Location(2, 14)),
    "in an inner function": ("const f = () =>\n  ctx.publish('t');\nf();", Location(3, 7)),
    "an alias": ("const p = ctx.publish;\np('t');", Location(3, 1)),
    "nested in itself": ("ctx.publish('t', ctx.registerInput({a: 1}));", Location(2, 5)),
    "a chain over lines": ("ctx\n  .publish('t');", Location(3, 4)),
}


@pytest.mark.parametrize(("body", "place"), PLACES.values(), ids=PLACES.keys())
async def test_a_call_carries_its_place_in_the_script(runtime, host, body, place) -> None:
    await run(runtime, host, body)
    assert host.operations[-1].at == place


async def test_an_exception_carries_name_message_and_place(runtime, host) -> None:
    error = await failure(runtime, host, "\n  throw new TypeError('no such thing');")
    assert type(error) is ScriptThrew
    assert error.message == "TypeError: no such thing"
    assert error.at == Location(3, 13)


async def test_an_exception_after_an_await_carries_its_place(runtime, host) -> None:
    error = await failure(runtime, host, "await ctx.gmail.get(1);\nnull.x;")
    assert isinstance(error, ScriptThrew)
    assert error.at is not None
    assert error.at.line == 3


async def test_a_syntax_error_carries_its_place(runtime, host) -> None:
    error = await failure(runtime, host, "", source="let a = 1;\nlet b = ;\n")
    assert isinstance(error, ScriptThrew)
    assert "SyntaxError" in error.message
    assert error.at == Location(2, 9)


THROWN = {
    "a string": ("throw 'no';", "no"),
    "null": ("throw null;", "null"),
    "an object": ("throw {code: 7};", "{code: 7}"),
    "a long message": ("throw new Error('x'.repeat(1e5));", "Error: " + "x" * 1993 + "…"),
    "a symbol": ("throw Symbol('s');", "Symbol(s)"),
    "a rejection": ("await Promise.reject(new RangeError('r'));", "RangeError: r"),
    "a floating rejection": ("(async () => { throw new Error('floats'); })();", "Error: floats"),
}


@pytest.mark.parametrize(("body", "message"), THROWN.values(), ids=THROWN.keys())
async def test_whatever_is_thrown_is_put_into_words(runtime, host, body, message) -> None:
    error = await failure(runtime, host, body)
    assert type(error) is ScriptThrew
    assert error.message == message


async def test_a_rejection_that_is_handled_later_is_no_error(runtime, host) -> None:
    assert await run(runtime, host, "const p = Promise.reject(1); await null; try { await p; } catch { return 2; }") == Ended("2")


# ---- broken scripts ---------------------------------------------------------------------------------------

WRONG = {
    "no default export": ("export const a = 1;", "export default Keep.workflow"),
    "another default export": ("export default {producers: {}};", "export default Keep.workflow"),
    "no such handler": ("export default Keep.workflow({producers: {g() {}}});", "no producers.h"),
    "inherited handler": ("export default Keep.workflow({producers: Object.create({h() {}})});", "no producers.h"),
    "handler without function": ("export default Keep.workflow({producers: {h: {handler: 1}}});", "is not a function"),
    "throws at load": ("throw new Error('at load');", "at load"),
    "never loads": ("await new Promise(() => {}); export default 1;", "never comes"),
    "imports": ("import fs from 'fs'; export default 1;", "could not load module"),
    "workflow of nothing": ("export default Keep.workflow(1);", "takes an object"),
}


@pytest.mark.parametrize(("source", "words"), WRONG.values(), ids=WRONG.keys())
async def test_a_script_without_the_step_is_refused_in_clear_words(runtime, host, source, words) -> None:
    error = await failure(runtime, host, "", source=source)
    assert isinstance(error, ScriptError)
    assert words in error.message


MISSING = {
    "connector": ("ctx.gmial.search({});", "ctx has no 'gmial'. Did you mean ctx.gmail?"),
    "operation": ("ctx.gmail.serach({});", "ctx.gmail has no 'serach'. Did you mean ctx.gmail.search?"),
    "built-in": ("ctx.publsh('t');", "Did you mean ctx.publish?"),
    "nothing near": ("ctx.gmail.zzz;", "It has get, search, send."),
    "state outside of next": ("ctx.state;", "only there in next"),
}


@pytest.mark.parametrize(("body", "words"), MISSING.values(), ids=MISSING.keys())
async def test_a_member_that_does_not_exist_ends_the_step_with_a_hint(runtime, host, body, words) -> None:
    error = await failure(runtime, host, f"try {{ {body} }} catch {{ ctx.log('caught'); }}")
    assert isinstance(error, RuleBroken)
    assert words in error.message
    assert error.at
    assert not host.lines


async def test_looking_at_ctx_is_harmless(runtime, host) -> None:
    body = "console.log(ctx, `${ctx}`, 'gmail' in ctx, 'x' in ctx); await ctx; await ctx.gmail; return Object.keys(ctx.gmail);"
    assert value((await run(runtime, host, body)).value) == ["search", "get", "send"]


# ---- values that JSON cannot carry ------------------------------------------------------------------------

BAD = {
    "NaN": ("{x: [NaN]}", "argument of ctx.gmail.search.x[0] is NaN"),
    "Infinity": ("Infinity", "is Infinity"),
    "a large integer": ("{n: 2 ** 53}", "beyond"),
    "a BigInt": ("{n: 1n}", "BigInt"),
    "a lone surrogate": ("{s: '\\ud800'}", "lone surrogate"),
    "a lone surrogate in a key": ("{['\\udfff']: 1}", "lone surrogate"),
    "a cycle": ("(() => { const o = {}; o.o = o; return o; })()", "contains itself"),
    "depth": ("JSON.parse('['.repeat(65) + ']'.repeat(65))", "nested deeper than 64"),
    "toJSON for ever": ("(() => { const o = {toJSON: () => o}; return o; })()", "nested deeper"),
}


@pytest.mark.parametrize(("argument", "words"), BAD.values(), ids=BAD.keys())
async def test_a_value_that_json_cannot_carry_ends_the_step_at_the_call(runtime, host, argument, words) -> None:
    error = await failure(runtime, host, f"try {{ await ctx.gmail.search({argument}); }} catch {{ ctx.log('caught'); }}")
    assert isinstance(error, BadValue)
    assert words in error.message
    assert error.at == Location(2, 23)
    assert not host.operations
    assert not host.lines


@pytest.mark.parametrize("result", [pair[0] for pair in BAD.values()], ids=BAD.keys())
async def test_a_result_that_json_cannot_carry_is_refused(runtime, host, result) -> None:
    assert isinstance(await failure(runtime, host, f"return {result};"), BadValue)


async def test_the_deepest_value_that_is_allowed_passes(runtime, host) -> None:
    ended = await run(runtime, host, "return JSON.parse('['.repeat(64) + ']'.repeat(64));")
    assert ended.value == "[" * 64 + "]" * 64


# ---- the host's errors ------------------------------------------------------------------------------------


async def test_an_error_of_the_host_ends_the_step_and_gets_the_place_of_the_call(runtime, host) -> None:
    def refuse(_: Operation) -> Reply:
        raise RuleBroken("No such topic.")

    host.answers["publish"] = refuse
    error = await failure(runtime, host, "try {\n await ctx.publish('t');\n } catch { ctx.log('caught'); } finally { ctx.log('f'); }")
    assert error.message == "No such topic."
    assert error.at == Location(3, 12)
    assert not host.lines


async def test_what_a_script_says_after_a_refused_publication_is_never_heard(runtime, host) -> None:
    def refuse(operation: Operation) -> Reply:
        raise RuleBroken("No such topic.")

    host.answers["publish"] = refuse
    body = "ctx.publish('t', {n: 1}); ctx.publish('t', {n: 2}); ctx.log('after'); ctx.peek('t'); ctx.log('and later');"
    error = await failure(runtime, host, body, step=Step.NEXT)
    assert error.message == "No such topic."
    assert host.names == ["publish"]
    assert host.texts == []


async def test_publications_arrive_in_order_and_before_whatever_is_said_next(runtime, host) -> None:
    body = """for (let i = 0; i < 300; i++) ctx.publish('t', {n: i, text: 'x'.repeat(1000)});
      ctx.log('done'); ctx.registerInput({id: 'a'}); ctx.publish('t', {n: 300}); return 1;"""
    assert await run(runtime, host, body, Step.PRODUCER) == Ended("1")
    assert host.names == ["publish"] * 300 + ["registerInput", "publish"]
    assert [o.args[1]["n"] for o in host.operations if o.name == "publish"] == list(range(301))


async def test_a_script_that_fails_after_it_published_fails_for_that(runtime, host) -> None:
    error = await failure(runtime, host, "await ctx.publish('t', {}); throw new Error('later');", step=Step.NEXT)
    assert "later" in error.message
    assert host.names == ["publish"]


async def test_a_failed_read_ends_the_step_and_cancels_the_others(runtime, host) -> None:
    cancelled = []

    async def answer(operation: Operation) -> Reply:
        if operation.args == (2,):
            raise Transient("later", retry_after=3)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(operation.args)
            raise
        return Reply.of(None)

    host.answers["gmail.get"] = answer
    error = await failure(runtime, host, "await Promise.allSettled([ctx.gmail.get(1), ctx.gmail.get(2)]);")
    assert isinstance(error, Transient)
    assert error.retry_after == 3
    assert cancelled == [(1,)]


async def test_a_floating_read_is_waited_for_and_its_failure_counts(runtime, host) -> None:
    async def answer(_: Operation) -> Reply:
        await asyncio.sleep(0)
        raise Transient("later")

    assert await run(runtime, host, "ctx.gmail.get(1); return 5;") == Ended("5")
    assert host.names == ["gmail.get"]
    host.answers["gmail.get"] = answer
    assert isinstance(await failure(runtime, host, "ctx.gmail.get(1).catch(() => 0); return 5;"), Transient)


async def test_an_exception_that_is_not_ours_comes_out_as_it_is(runtime, host) -> None:
    def broken(_: Operation) -> Reply:
        raise ZeroDivisionError("bug")

    host.answers["gmail.get"] = broken
    with pytest.raises(ZeroDivisionError):
        await run(runtime, host, "await ctx.gmail.get(1);")


async def test_an_answer_that_json_cannot_carry_is_the_hosts_error(runtime, host) -> None:
    host.answers["gmail.get"] = lambda _: Reply.of(float("nan"))
    assert isinstance(await failure(runtime, host, "await ctx.gmail.get(1);"), BadValue)


async def test_an_answer_that_is_too_large_names_the_limit(runtime, host) -> None:
    host.answers["gmail.get"] = lambda _: Reply.of("x" * 2000)
    error = await failure(runtime, host, "await ctx.gmail.get(1);", limits=replace(LIMITS, message_bytes_max=1000))
    assert isinstance(error, LimitExceeded)
    assert "1,000" in error.message


async def test_waiting_for_the_host_does_not_count_as_computing(runtime, host) -> None:
    async def slow(_: Operation) -> Reply:
        await asyncio.sleep(0.5)
        return Reply.of(1)

    host.answers["registerInput"] = host.answers["gmail.get"] = slow
    limits = replace(LIMITS, compute_s=0.25)
    assert await run(runtime, host, "return ctx.registerInput({}) + await ctx.gmail.get(1);", limits=limits) == Ended("2")


async def test_short_bursts_of_computing_add_up(runtime, host) -> None:
    body = "for (;;) { const d = Date.now(); while (Date.now() < d + 3); ctx.registerInput({}); }"
    error = await failure(runtime, host, body, limits=replace(LIMITS, compute_s=0.15))
    assert isinstance(error, LimitExceeded)
    assert "0.15 s" in error.message


async def test_what_check_calls_missing_is_missing_here(runtime, host) -> None:
    names = sorted(ABSENT)
    ended = await run(runtime, host, f"return {names}.filter((name) => name in globalThis);")
    assert value(ended.value) == []


# ---- small conveniences -----------------------------------------------------------------------------------

GLOBALS = {
    "structuredClone": ("const x = {x: [1]}; const y = structuredClone(x); y.x.push(2); return [x, y];", [{"x": [1]}, {"x": [1, 2]}]),
    "TextEncoder": ("return [...new TextEncoder().encode('aé😀\\ud800')];", [97, 195, 169, 240, 159, 152, 128, 239, 191, 189]),
    "TextDecoder": ("return new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 97, 0xc3, 0xa9, 0xff, 0xf0, 0x9f, 0x98, 0x80, 0xe2, 0x82]));", "aé\ufffd😀\ufffd"),
    "URL": ("const u = new URL('HTTPS://User:p@Example.com:443/a b?q=1&q=2#h'); return [u.hostname, u.port, u.searchParams.getAll('q'), u.href];",
            ["example.com", "", ["1", "2"], "https://User:p@example.com/a%20b?q=1&q=2#h"]),
    "URLSearchParams": ("const p = new URLSearchParams({a: 'x y', b: 'é&'}); p.append('a', 2); return p.toString();", "a=x+y&b=%C3%A9%26&a=2"),
    "bad URL": ("try { new URL('nothing'); } catch (e) { return e.name; }", "TypeError"),
    "base64": ("return atob(btoa('hi'));", "hi"),
    "time zone": ("return new Date(2020, 0, 1).toISOString();", "2020-01-01T00:00:00.000Z"),
}


@pytest.mark.parametrize(("body", "result"), GLOBALS.values(), ids=GLOBALS.keys())
async def test_what_scripts_expect_of_javascript_is_there(runtime, host, body, result) -> None:
    assert value((await run(runtime, host, body)).value) == result


async def test_the_surface_without_connectors_still_works(runtime, host) -> None:
    bare = replace(SURFACE, operations={})
    assert await run(runtime, host, "return Object.keys(ctx).sort();", surface=bare) == Ended(
        '["getByIds","log","peek","publish","registerInput","withItem"]'
    )


async def test_with_the_smallest_limits_a_script_still_ends_in_order(runtime, host) -> None:
    limits = replace(LIMITS, memory_bytes=1 << 20, stack_bytes=16 << 10, message_bytes_max=64, calls_max=1)
    assert await runtime.run(job("return await ctx.gmail.get(1);", limits=limits), host) == Ended("[1]")
