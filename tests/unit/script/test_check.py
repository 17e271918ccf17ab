"""What `check` answers for whole scripts: the examples, a bad one, odd texts, ways to write it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from keepai.model.operations import Surface
from keepai.script.check import SOURCE_BYTES_MAX, check
from keepai.script.findings import CODES, FINDINGS_MAX
from keepai.script.manifest import Handler, HandlerKind, Manifest, Schedule, from_text
from tests.unit.script.samples import CLEAN, EXAMPLES, SURFACE, example

BAD = """\
let counter = 0;
const cache = new Map();
const LIMIT = 5;

export default Keep.workflow({
  name: "email-to-sheets",
  topics: { "email.received": {}, "row.created": {} },
  producers: {
    pollEmail: {
      publishes: ["email.received"],
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        counter++;
        const emails = await ctx.gmail.search({ after: state?.cursor });
        for (const e of emails) {
          const inputId = ctx.registerInput({ source: "gmail", type: "email", id: e.id, title: `E ${e.id}` });
          await ctx.publish("email.recieved", { messageId: e.id, inputId, payload: {} });
          await ctx.publish(["email.received", "audit"], { messageId: e.id, inputId, payload: {} });
          await ctx.gmail.send({ to: "x" });
        }
        return { cursor: emails.lastCursor };
      }
    }
  },
  consumers: {
    processEmail: Keep.consumer({
      subscribe: ["email.received"],
      publishes: ["row.created"],
      async prepare(ctx, state) {
        const pending = await ctx.peek("email.received");
        const other = await ctx.peek("row.created");
        if (pending.length === 0) return { reservations: [], data: {} };
        const event = pending[0];
        cache.set(event.messageId, 1);
        return { reservations: [{ topic: "email.received", ids: [event.messageId] }], data: { from: 1 } };
      },
      async mutate(ctx, prepared) {
        const { sheets } = ctx;
        const rows = await ctx.sheets.readRange({ spreadsheetId: "s" });
        if (prepared.data.from) {
          await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.from] });
        }
        console.log("done");
      },
      async next(ctx, prepared, mutationResult) {
        const p = ctx.publish;
        await ctx.publish("row.creatd", { messageId: "a", payload: {} });
        const x = await ctx.sheets.getRow({});
      },
    })
  }
});
"""


def codes(source: str, surface: Surface | None = SURFACE, **options: bool) -> list[str]:
    return [f.code for f in check(source, surface, **options).findings]


def in_slot(slot: str, code: str, before: str = "") -> str:
    return before + CLEAN.replace(f"// {slot}", code)


def test_the_example_of_chapter_06a_is_clean_and_fully_read() -> None:
    checked = check(example("email-to-sheets.js"), SURFACE)
    assert checked.findings == ()
    assert checked.manifest == Manifest(
        "email-to-sheets",
        ("email.received", "row.created"),
        (
            Handler("pollEmail", HandlerKind.PRODUCER, ("email.received",), (), Schedule(interval_ms=300_000)),
            Handler(
                "processEmail", HandlerKind.CONSUMER, ("row.created",), ("email.received",), None, True, True, False),
        ),
        ("gmail.search", "sheets.appendRow"),
    )
    assert from_text(checked.manifest.to_text()) == checked.manifest


def test_the_example_of_chapter_06_deploys_with_warnings_that_show_the_newer_form() -> None:
    checked = check(example("chapter-06.js"), SURFACE)
    assert checked.errors == ()
    assert [(f.code, f.line, f.column) for f in checked.warnings] == [
        ("bare-producer", 10, 5),
        ("input-by-title", 16, 11),
        ("publishes-missing", 25, 5),
        ("ui-title-missing", 32, 16),
        ("title-ignored", 49, 13),
    ]
    fixes = " ".join(f.fix for f in checked.warnings)
    assert 'pollEmail: { publishes: ["email.received"], schedule: { interval: "5m" }' in fixes
    assert "const inputId = ctx.registerInput(" in fixes
    assert 'Add `publishes: ["row.created"]`' in fixes
    assert checked.manifest is not None
    poll, process = checked.manifest.handlers
    assert (poll.publishes, poll.schedule, process.publishes) == (None, None, None)
    assert from_text(checked.manifest.to_text()) == checked.manifest


def test_the_examples_are_clean_of_errors_without_a_surface_too() -> None:
    for path in EXAMPLES.glob("*.js"):
        assert check(example(path.name)).errors == ()


def test_a_thoroughly_bad_script_is_told_everything_at_once() -> None:
    assert [(f.code, f.line, f.column) for f in check(BAD, SURFACE).findings] == [
        ("shared-state", 13, 9),
        ("undeclared-topic", 17, 29),
        ("undeclared-topic", 18, 48),
        ("forbidden-call", 19, 17),
        ("topic-not-subscribed", 31, 38),
        ("shared-state", 34, 9),
        ("ui-title-missing", 35, 16),
        ("unknown-operation", 39, 28),
        ("after-conditional-mutation", 43, 9),
        ("undeclared-topic", 47, 27),
        ("forbidden-call", 48, 25),
    ]


def test_errors_outside_the_declaration_leave_the_manifest() -> None:
    assert check(BAD, SURFACE).manifest is not None
    assert check(CLEAN.replace('name: "demo",', "")).manifest is None


@pytest.mark.parametrize("text", ["", " ", "\0", "\0" * 1000, "\ud800", "// only a comment", "﻿", "é" * 100, "\r\n"])
def test_odd_texts_are_answered_with_a_finding(text: str) -> None:
    checked = check(text, SURFACE)
    assert checked.manifest is None
    assert checked.errors


def test_a_script_over_the_limit_is_refused_by_size() -> None:
    assert codes("x" * (SOURCE_BYTES_MAX + 1)) == ["too-large"]
    assert codes("é" * 5_000_000) == ["too-large"]
    assert codes(CLEAN + "/" * 10 + "x" * (SOURCE_BYTES_MAX - len(CLEAN) - 10)) == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 100_000, "syntax"),
        ("(" * 100_000 + ")" * 100_000, "syntax"),
        ("[" * 100_000 + "]" * 100_000, "too-deep"),
        ("x" + "+x" * 100_000, "too-deep"),
        ("if(a)" * 30_000 + "b", "too-deep"),
        ("`${" * 30_000, "syntax"),
        ("f(" * 600 + ")" * 600, "too-deep"),
    ],
)
def test_deep_nesting_is_a_finding_and_not_a_crash(text: str, code: str) -> None:
    assert codes(text) == [code]


def test_a_text_that_takes_too_long_to_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.script.tree.PARSE_SECONDS_MAX", 0.2)
    started = time.process_time()
    assert codes("a b\n" * 200_000) == ["too-slow"]
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text",
    [
        "const a0 = [1];" + "".join(f"const a{i} = [...a{i - 1}, ...a{i - 1}];" for i in range(1, 60)),
        'const a0 = "x";' + "".join(f"const a{i} = a{i - 1} + a{i - 1};" for i in range(1, 60)),
        "const a0 = {};" + "".join(f"const a{i} = {{...a{i - 1}, ...a{i - 1}}};" for i in range(1, 60)),
        "const a59 = b; const b = a59;",
    ],
)
def test_constants_that_multiply_do_not_multiply_the_work(text: str) -> None:
    started = time.process_time()
    for use in ("topics: a59", "topics: { [a59]: {} }", "name: a59", "topics: { ...a59 }"):
        check(f"{text}\nexport default Keep.workflow({{ {use} }});")
    assert time.process_time() - started < 2


def test_a_long_chain_of_consumers_is_checked_in_good_time() -> None:
    topics = ", ".join(f"t{i}: {{}}" for i in range(2001))
    chain = "\n".join(
        f"c{i}: Keep.consumer({{ subscribe: ['t{i}'], publishes: ['t{i + 1}'], async prepare() "
        "{ return { reservations: [], data: {} }; }, next() {} }),"
        for i in range(2000)
    )
    started = time.process_time()
    source = f"export default Keep.workflow({{ name: 'x', topics: {{ {topics} }}, consumers: {{ {chain} }} }});"
    assert codes(source) == []
    assert time.process_time() - started < 5


MANY = 1500
LONG = {
    "calls that share a constant": (
        "const p = { " + ", ".join(f"k{i}: {i}" for i in range(MANY)) + " };" + "await ctx.crm.find(p);\n" * MANY
    ),
    "calls in one try": "try { " + "await ctx.gmail.search({});\n" * MANY + "} catch {}",
    "calls of one async function": "async function g() { " + "await 1;\n" * MANY + "} " + "g();\n" * MANY,
    "uses of one promise": "const p = ctx.gmail.search({}); " + "p.length;\n" * MANY,
    "names of one promise": "const p0 = ctx.gmail.search({});"
    + "".join(f"const p{i + 1} = p{i}; p{i}.x;\n" for i in range(MANY)),
    "ids from one variable": "let x = 0; "
    + 'x += Date.now(); ctx.publish("mail.in", { messageId: x, title: "t", payload: 1 });\n' * MANY,
    "ids from a chain of variables": "const x0 = Date.now();"
    + "".join(f'const x{i + 1} = x{i} + x{i}; ctx.publish("mail.in", {{ messageId: x{i} }});\n' for i in range(MANY)),
    "ids from one function": "function g() { "
    + "if (state) return 1;\n" * MANY
    + "return Date.now(); } "
    + 'ctx.publish("mail.in", { messageId: g() });\n' * MANY,
    "names of a shared list": "const c0 = shared;"
    + "".join(f"const c{i + 1} = c{i}; c{i}.push(1);\n" for i in range(MANY)),
    "missing names": "fetch(process.env.X);\n" * MANY,
}


@pytest.mark.parametrize("what", LONG)
def test_many_mistakes_are_found_in_good_time(what: str) -> None:
    started = time.process_time()
    assert check(in_slot("PRODUCER", LONG[what], "let shared = [];\n"), SURFACE).findings
    assert time.process_time() - started < 5


def test_findings_are_cut_off_and_say_so() -> None:
    findings = check(in_slot("PRODUCER", "await ctx.gmail.send({});\n" * 500), SURFACE).findings
    assert len(findings) == FINDINGS_MAX + 1
    assert findings[-1].code == "too-many-findings"
    assert "300" in findings[-1].message
    assert findings[-1].severity == CODES["too-many-findings"].severity


def test_columns_count_characters_and_not_bytes() -> None:
    (finding,) = check(in_slot("PRODUCER", 'const ä = "😀é"; await ctx.gmail.send({});'), SURFACE).findings
    assert (finding.line, finding.column) == (10, 9 + len('const ä = "😀é"; await '))


def test_lines_ended_by_carriage_returns_are_counted_right() -> None:
    source = in_slot("PRODUCER", "await ctx.gmail.send({});").replace("\n", "\r\n")
    (finding,) = check(source, SURFACE).findings
    assert (finding.line, finding.column) == (10, 15)


def test_a_syntax_error_is_told_alone() -> None:
    source = in_slot("PRODUCER", "await ctx.gmail.send({);")
    (finding,) = check(source, SURFACE).findings
    assert (finding.code, finding.line, finding.column) == ("syntax", 10, 31)


def test_two_syntax_errors_are_two_findings() -> None:
    assert codes("const a = { b: 1 c: 2 };\nconst ok = 1;\nconst d = { e: 1 f: 2 };") == ["syntax", "syntax"]


def test_declarations_are_read_through_constants_spreads_and_helpers() -> None:
    source = """
const IN = "mail.in", OUT = `row.${"out"}`;
const TOPICS = Object.freeze({ out: "row" + ".out" });
const base = { publishes: [IN], schedule: { cron: "0 9 * * 1-5", tz: "Europe/Berlin" } };
async function handler(ctx, state) { return poll(ctx); }
const poll = async ({ gmail: mail, registerInput }) => mail.search({});
const work = Keep.consumer({
  subscribe: [...[IN]], "publishes": [TOPICS.out],
  prepare: async (ctx) => ({ reservations: [], data: {} }), next() {},
});
const workflow = Keep.workflow({ name: "demo", topics: { [IN]: {}, [OUT]: {} },
  producers: { poll: { ...base, handler } }, consumers: { work } });
export default workflow;
"""
    checked = check(source, SURFACE)
    assert checked.findings == ()
    assert checked.manifest == Manifest(
        "demo",
        ("mail.in", "row.out"),
        (
            Handler(
                "poll",
                HandlerKind.PRODUCER,
                ("mail.in",),
                (),
                Schedule(cron="0 9 * * 1-5", tz="Europe/Berlin"),
            ),
            Handler("work", HandlerKind.CONSUMER, ("row.out",), ("mail.in",), has_next=True, uses_state=False),
        ),
        ("gmail.search",),
    )


def test_strings_are_read_with_their_escapes() -> None:
    source = CLEAN.replace('name: "demo"', r'name: "\x64e\u006d\u{6f} \ud83d\ude00\"\'"')
    manifest = check(source, SURFACE).manifest
    assert manifest is not None
    assert manifest.name == "demo 😀\"'"


@pytest.mark.parametrize(
    "code",
    [
        "const g = ctx.gmail; await g.send({});",
        "const { gmail } = ctx; await gmail.send({});",
        "const { gmail: { send } } = ctx; await send({});",
        "const send = ctx.gmail.send; await send({});",
        "const c = ctx; const d = c; await d.gmail.send({});",
        'await ctx["gmail"]?.["send"]({});',
        "await helper(ctx);",
        "await helper2(1, ctx.gmail);",
        "const inner = async () => { await ctx.gmail.send({}); }; await inner();",
        "await Promise.all([1].map(async (x) => helper(ctx)));",
    ],
)
def test_a_forbidden_call_is_seen_through_names_and_helpers(code: str) -> None:
    helpers = (
        "async function helper(c) { return c.gmail.send({}); }\n"
        "const helper2 = async (x, { send }) => again(send);\nasync function again(f) { await f({}); }\n"
    )
    checked = check(in_slot("PRODUCER", code, helpers), SURFACE)
    assert [f.code for f in checked.findings] == ["forbidden-call"]
    assert checked.manifest is not None
    assert checked.manifest.capabilities == ("gmail.send",)


def test_a_helper_that_calls_itself_is_followed_once() -> None:
    helper = "async function again(c, n) { await c.gmail.search({}); return again(c, n - 1); }\n"
    checked = check(in_slot("PRODUCER", "await again(ctx, 3);", helper), SURFACE)
    assert checked.findings == ()
    assert checked.manifest is not None
    assert checked.manifest.capabilities == ("gmail.search",)


def test_another_variable_of_the_same_name_is_not_ctx() -> None:
    assert codes(in_slot("PRODUCER", "const f = (ctx) => ctx.gmail.send({}); f({ gmail: null });")) == []
    assert codes(in_slot("NEXT", "for (const ctx of [1]) { ctx.gmail.send({}); }")) == []


def test_the_first_parameter_may_have_any_name() -> None:
    source = in_slot("PRODUCER", "").replace("async (ctx, state)", "async (k, state)")
    assert codes(source.replace("return state;", "await k.gmail.send({}); return state;")) == ["forbidden-call"]


def test_plain_data_on_ctx_is_free_to_use() -> None:
    assert codes(in_slot("NEXT", "const { state } = ctx; f(ctx.state.x); return { ...ctx.state, n: 1 };")) == []


def test_time_chance_and_logging_are_fine_everywhere() -> None:
    line = "const x = [Date.now(), new Date(), Math.random()]; console.log(x); ctx.log(x);"
    for slot in ("PRODUCER", "PREPARE", "MUTATE", "NEXT"):
        assert codes(in_slot(slot, line)) == []


def test_without_a_surface_connectors_are_not_judged_but_counted() -> None:
    checked = check(
        in_slot(
            "PRODUCER",
            "await ctx.anything.goes({}); ctx.registerInput({ source: 's', type: 't', id: 1, title: 'x' });",
        )
    )
    assert checked.findings == ()
    assert checked.manifest is not None
    assert checked.manifest.capabilities == ("anything.goes",)


def test_without_a_surface_what_no_connector_may_do_is_still_found() -> None:
    assert codes(in_slot("NEXT", "await ctx.any.thing({});"), None) == ["forbidden-call"]
    assert codes(in_slot("MUTATE", "await ctx.any.thing({}); f();"), None) == ["after-mutation"]
    assert codes(in_slot("MUTATE", "await ctx.any.thing({}); f();"), None, mutate_reads=True) == []


def test_policy_can_allow_reads_by_id_in_mutate_and_no_others() -> None:
    by_id = in_slot("MUTATE", "const r = await ctx.sheets.getRow({}); f(r);")
    assert codes(by_id) == ["forbidden-call"]
    assert codes(by_id, mutate_reads=True) == []
    assert codes(in_slot("MUTATE", "await ctx.sheets.getRows({});"), mutate_reads=True) == ["forbidden-call"]


def test_a_handler_without_publishes_is_no_second_publisher() -> None:
    source = CLEAN.replace("// CONSUMERS", "").replace(
        "  consumers: {",
        """
  consumers: {
    other: Keep.consumer({ subscribe: ["row.out"],
      async prepare(ctx) { return { reservations: [], data: {} }; },
      async next(ctx) { await ctx.publish("mail.in", { messageId: "1", payload: {} }); } }),""",
    )
    assert sorted(codes(source)) == ["publishes-missing", "topic-cycle"]


def test_module_level_work_at_load_time_is_no_shared_state() -> None:
    assert (
        codes(
            in_slot(
                "PRODUCER",
                "f(TABLE.a);",
                "const TABLE = {};\nTABLE.a = 1;\n[1].forEach((x) => { TABLE[x] = x; });\n",
            )
        )
        == []
    )


def test_importing_the_package_does_not_import_the_parser() -> None:
    program = (
        "import sys, keepai.script.check, keepai.script.topic_graph, keepai.script.schedule;"
        "sys.exit(any(m.startswith(('tree_sitter', 'cronsim')) for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_switch_without_default_may_go_on_after_it() -> None:
    switch = "switch (prepared.data.a) { case 1: await ctx.gmail.send({}); break; }"
    assert codes(in_slot("MUTATE", switch)) == []
    assert codes(in_slot("MUTATE", f"{switch} f();")) == ["after-conditional-mutation"]


def test_what_follows_a_caught_mutation_may_still_run() -> None:
    attempt = "try { await ctx.gmail.send(prepared.data.a.b); } catch (e) { f(); }"
    assert codes(in_slot("MUTATE", f"{attempt} f();")) == ["mutation-caught", "after-conditional-mutation"]


def test_the_system_is_a_source_whatever_the_connectors_are() -> None:
    source = in_slot("PRODUCER", "ctx.registerInput({ source: 'system', type: 'random', id: 1, title: '' });")
    assert codes(source, Surface({}, {})) == []


def test_an_error_far_down_in_a_script_is_found_again_and_again() -> None:
    # tree-sitter's own number of a line is freed too often once it is above 256, and that ended the whole process
    source = "\n" * 4_000 + "const a = ;\n" + "\n" * 4_000 + "const b = ;\n"
    for _ in range(300):
        assert [each.line for each in check(source).findings if each.code == "syntax"] == [4_001, 8_002]


@pytest.mark.parametrize(("next", "uses_state"), [
    ("", False), ("async next(ctx, prepared, result) { ctx.log(1); if (result) return; }", False),
    ("async next(ctx, prepared, result) { [1].map((n) => { return n; }); }", False),
    ("async next(ctx, prepared, result) { return { n: 1 }; }", True),
    ("async next(ctx, prepared, result) { if (result) { return ctx.state; } }", True),
    ("next: async (ctx, prepared, result) => ({ n: 1 })", True),
    ("next: async (ctx, prepared, result) => ctx.log(1)", True),
])
def test_a_handler_whose_last_step_may_return_something_may_keep_state(next: str, uses_state: bool) -> None:
    source = (
        'export default Keep.workflow({ name: "w", topics: { "in": {} }, producers: {}, consumers: { '
        'act: Keep.consumer({ subscribe: ["in"], publishes: [], '
        f"async prepare(ctx, state) {{ return {{ reservations: [], data: {{}} }}; }}, {next} }}) }} }});")
    manifest = check(source, SURFACE).manifest
    assert manifest is not None
    assert manifest.handlers[0].uses_state == uses_state
