"""Routines: how they are declared, what they may call, and how they work through items."""

from __future__ import annotations

import pytest

from keepai.model.operations import Surface
from keepai.script.check import check
from keepai.script.manifest import Handler, HandlerKind, Manifest, Schedule, from_text
from keepai.script.topic_graph import Vertex, as_mermaid, graph
from tests.unit.script.samples import CLEAN, EXAMPLES, SURFACE, example


def routine(body: str, before: str = "", *, ctx: str = "ctx") -> str:
    return (
        f"{before}\nexport default Keep.workflow({{ name: 'demo', routines: {{ sweep: {{\n"
        f"  schedule: {{ cron: '0 9 * * *' }},\n  handler: async ({ctx}, state) => {{ {body} }} }} }} }});\n"
    )


def codes(source: str, surface: Surface | None = SURFACE) -> list[str]:
    return [f.code for f in check(source, surface).findings]


def capabilities(source: str) -> tuple[str, ...]:
    manifest = check(source, SURFACE).manifest
    assert manifest is not None
    return manifest.capabilities


# ---- the declaration --------------------------------------------------------------------------------------


def test_a_workflow_of_routines_alone_needs_no_topics_and_is_fully_read() -> None:
    checked = check(routine("return state;"), SURFACE)
    assert checked.findings == ()
    sweep = Handler("sweep", HandlerKind.ROUTINE, (), (), Schedule(cron="0 9 * * *"))
    assert checked.manifest == Manifest("demo", (), (sweep,), ())
    assert from_text(checked.manifest.to_text()) == checked.manifest


def test_topics_are_needed_as_soon_as_there_is_a_producer_or_consumer() -> None:
    for group in ("producers", "consumers"):
        source = routine("return state;").replace("routines:", f"{group}: {{}}, routines:")
        assert codes(source) == ["missing-key"]
        assert codes(source.replace("routines:", "topics: {}, routines:")) == []


def test_a_routine_stands_beside_producers_and_consumers() -> None:
    manifest = check(CLEAN, SURFACE).manifest
    assert manifest is not None
    assert [(h.name, h.kind.value) for h in manifest.handlers] == [
        ("poll", "producer"),
        ("work", "consumer"),
        ("sweep", "routine"),
    ]
    assert from_text(manifest.to_text()) == manifest


def test_a_bare_routine_runs_at_the_default_interval_and_publishes_nothing() -> None:
    checked = check("export default Keep.workflow({ name: 'd', routines: { sweep: async (ctx) => {} } });")
    assert [f.code for f in checked.findings] == ["bare-routine"]
    assert checked.manifest is not None
    assert checked.manifest.handlers == (Handler("sweep", HandlerKind.ROUTINE, (), (), None, uses_state=False),)


def test_a_routine_is_drawn_with_a_shape_of_its_own_and_no_edges() -> None:
    manifest = check(routine("return state;"), SURFACE).manifest
    assert manifest is not None
    drawn = graph(manifest)
    assert (drawn.vertices, drawn.edges) == ((Vertex("sweep", "routine"),), ())
    assert as_mermaid(drawn) == 'flowchart LR\n  n0[["sweep"]]\n'


def test_the_example_is_clean_and_is_the_one_in_the_guide() -> None:
    source = example("routine-invoices.js")
    checked = check(source, SURFACE)
    assert checked.findings == ()
    files = Handler("fileInvoices", HandlerKind.ROUTINE, (), (), Schedule(interval_ms=900_000))
    assert checked.manifest == Manifest(
        "routine-invoices", (), (files,), ("gmail.search", "gmail.send", "sheets.appendRow")
    )
    assert f"```js\n{source}```\n" in (EXAMPLES.parent / "docs/guides/routines.md").read_text(encoding="utf-8")


# ---- capabilities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        "async (ctx) => { if (ctx.item.isDone) return; await ctx.gmail.send({}); }",
        "async (item) => { if (item.item.isDone) return; await item.gmail.send({}); }",
        "async ({ gmail, item }) => { if (item.isDone) return; await gmail.send({}); }",
        "async ({ gmail: { send }, item: { isDone } }) => { if (!isDone) await send({}); }",
        "async (c) => { if (!c.item.isDone) await ctx.gmail.send({}); }",
        "async function (c) { if (!c.item.isDone) await c.gmail.send({}); }",
        "async (c) => work(c, 1)",
        "work",
    ],
)
def test_what_an_item_calls_is_asked_for_at_deploy(item: str) -> None:
    work = "async function work(ctx, n) { if (!ctx.item.isDone) await ctx.gmail.send({}); }"
    source = routine(f"await ctx.withItem('1', 't', {item});", work)
    assert codes(source) == []
    assert capabilities(source) == ("gmail.send",)


def test_an_item_worked_on_by_a_function_that_cannot_be_seen_hides_its_capabilities() -> None:
    assert codes(routine("await ctx.withItem('1', 't', make(state));")) == ["capability-hidden"]


def test_withitem_taken_out_of_ctx_is_followed() -> None:
    source = routine("const { withItem } = ctx; await withItem('1', 't', async (c) => { await c.gmail.search({}); });")
    assert codes(source) == []
    assert capabilities(source) == ("gmail.search",)


# ---- what a routine may not call --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("ctx.publish('a', { messageId: '1', payload: {} })", "A routine does not publish; "),
        ("ctx.registerInput({})", "A routine does not register inputs; "),
        ("ctx.peek('a')", "A routine takes no events; "),
        ("ctx.getByIds('a', [])", "A routine takes no events; "),
    ],
)
def test_what_belongs_to_producers_and_consumers_is_refused_in_a_routine(call: str, says: str) -> None:
    for body in (f"await {call};", f"await ctx.withItem('1', 't', async (ctx) => {{ await {call}; }});"):
        (finding,) = check(routine(body), SURFACE).findings
        assert finding.code == "forbidden-call"
        assert "is not allowed in a routine; " in finding.message
        assert finding.fix.startswith(says)


# ---- what is found in items, and what is not --------------------------------------------------------------

GUARD = "if (ctx.item.isDone) return;"
SEND = "await ctx.gmail.send({});"
NOTHING = "async () => {}"


def item(body: str, ctx: str = "ctx") -> str:
    return f"await ctx.withItem('1', 't', async ({ctx}) => {{ {body} }});"


def found(body: str, before: str = "") -> list[str]:
    return codes(routine(body, before))


@pytest.mark.parametrize(
    "body",
    [
        SEND,
        f"for (const m of await ctx.gmail.search({{}})) {{ {SEND} }}",
        "const { gmail } = ctx; await gmail.send({});",
        f"state.mails.forEach(async (m) => {{ {SEND} }});",
        "await ctx.gmail.search({}).then((found) => ctx.gmail.send(found));",
        f"{item(GUARD)} {SEND}",
        "const mail = async () => { await ctx.gmail.send({}); }; await mail(); await mail();",
        "await helper(ctx);",
    ],
)
def test_a_mutation_that_is_certainly_outside_of_an_item_is_found(body: str) -> None:
    helper = f"async function helper(ctx) {{ {SEND} }}"
    assert found(body, helper) == ["mutation-outside-item"]


@pytest.mark.parametrize(
    "body",
    [
        item(f"{GUARD} await helper(ctx);"),
        "await ctx.withItem('1', 't', helper);",
        f"const mail = async () => {{ {SEND} }}; {item(GUARD + ' await mail();')}",
        f"const mail = async () => {{ {SEND} }}; {item(GUARD + ' await mail();')} await mail();",
        f"const work = {{ mail: async () => {{ {SEND} }} }}; await state.run(work);",
        f"await retry(async () => {{ {SEND} }});",
        "await ctx.gmail.search({});",
        item(f"{GUARD} for (const x of state) {{ {SEND} }}"),
    ],
)
def test_a_mutation_that_may_be_inside_of_an_item_is_not_judged(body: str) -> None:
    helper = f"const retry = (f) => f();\nasync function helper(ctx) {{ {SEND} }}"
    assert set(found(body, helper)) <= {"done-not-checked"}


def test_without_a_surface_nothing_is_known_to_be_a_mutation() -> None:
    assert codes(routine(SEND + item(SEND)), None) == []


@pytest.mark.parametrize(
    "inner",
    [
        f"await ctx.withItem('2', 'u', {NOTHING});",
        f"for (const x of state) {{ await ctx.withItem(x, 'u', {NOTHING}); }}",
        f"const f = async () => {{ await ctx.withItem('2', 'u', {NOTHING}); }}; await f();",
    ],
)
def test_an_item_inside_of_an_item_is_found(inner: str) -> None:
    assert found(item(inner)) == ["nested-item"]
    assert found(item(inner.replace("ctx.", "c."), "c")) == ["nested-item"]


@pytest.mark.parametrize(
    "body",
    [
        f"{item('')} {item('')}",
        f"for (const x of state) {{ {item('')} }}",
        f"const one = async (x) => {{ await ctx.withItem(x, 't', {NOTHING}); }}; for (const x of state) await one(x);",
    ],
)
def test_items_that_follow_one_another_are_fine(body: str) -> None:
    assert found(body) == []


@pytest.mark.parametrize(
    "call",
    [
        "ctx.withItem()",
        "ctx.withItem('1')",
        f"ctx.withItem('1', {NOTHING})",
        f"ctx.withItem(null, 't', {NOTHING})",
        f"ctx.withItem('1', undefined, {NOTHING})",
        f"ctx.withItem('1', `${{''}}`, {NOTHING})",
        "ctx.withItem('1', 't', null)",
        "ctx.withItem('1', 't', 'work')",
        "ctx.withItem('1', 't', function* () {})",
    ],
)
def test_an_item_without_id_title_or_function_is_found(call: str) -> None:
    assert found(f"await {call};") == ["item-incomplete"]


@pytest.mark.parametrize(
    "call",
    [
        f"ctx.withItem(mail.id, mail.title, {NOTHING})",
        f"ctx.withItem(`mail:${{state.id}}`, `Mail ${{state.title}}`, {NOTHING})",
        f"ctx.withItem(...state.head, {NOTHING})",
        "ctx.withItem('1', 't', work)",
        f"ctx.withItem(7, 't', {NOTHING})",
    ],
)
def test_an_item_whose_parts_are_not_known_is_not_judged(call: str) -> None:
    assert found(f"await {call};", "const mail = f(); function work() {}") == []


@pytest.mark.parametrize(
    "body",
    [
        f"ctx.withItem('1', 't', {NOTHING});",
        f"void ctx.withItem('1', 't', {NOTHING});",
        f"ctx.withItem('1', 't', {NOTHING}).then(() => 1);",
        f"state && ctx.withItem('1', 't', {NOTHING});",
        f"const p = ctx.withItem('1', 't', {NOTHING});",
        f"await Promise.all([ctx.withItem('1', 't', {NOTHING}), 1]);",
        f"await Promise.all(state.map((x) => ctx.withItem(x, 't', {NOTHING})));",
        f"await Promise.all(state.map(async (x) => {{ await ctx.withItem(x, 't', {NOTHING}); }}));",
        f"state.forEach(async (x) => {{ await ctx.withItem(x, 't', {NOTHING}); }});",
        f"await Promise.all(Array.from(state, (x) => {{ return ctx.withItem(x, 't', {NOTHING}); }}));",
        f"const all = []; for (const x of state) all.push(ctx.withItem(x, 't', {NOTHING})); await Promise.all(all);",
    ],
)
def test_an_item_that_is_not_waited_for_is_found(body: str) -> None:
    assert found(body) == ["item-not-awaited"]


@pytest.mark.parametrize(
    "body",
    [
        f"return ctx.withItem('1', 't', {NOTHING});",
        f"return state ? ctx.withItem('1', 't', {NOTHING}) : null;",
        f"const made = await ctx.withItem('1', 't', {NOTHING}); return {{ made }};",
        f"const p = ctx.withItem('1', 't', {NOTHING}); await p;",
        f"await ctx.withItem('1', 't', {NOTHING}).then(() => 1);",
        f"await (state && ctx.withItem('1', 't', {NOTHING}));",
        f"const one = (x) => ctx.withItem(x, 't', {NOTHING}); for (const x of state) await one(x);",
        f"const ended = async (p) => await p; await ended(ctx.withItem('1', 't', {NOTHING}));",
        f"const works = state.map((x) => () => ctx.withItem(x, 't', {NOTHING})); for (const w of works) await w();",
        f"await state.reduce(async (before, x) => {{ await before; await ctx.withItem(x, 't', {NOTHING}); }}, null);",
    ],
)
def test_an_item_that_is_waited_for_is_fine(body: str) -> None:
    assert found(body) == []


@pytest.mark.parametrize(
    "body",
    [
        SEND,
        f"console.log(ctx.item.isDone); {SEND}",
        f"ctx.log(`${{ctx.item.isDone}}`); {SEND}",
        f"const done = ctx.item.isDone; {SEND}",
        f"const {{ isDone }} = ctx.item; console.log(isDone); {SEND}",
        f"{SEND} if (ctx.item.isDone) return;",
        "const row = await ctx.sheets.appendRow({}); return row;",
        f"if (state) {{ {SEND} }}",
        "for (const x of state) { await ctx.gmail.send(x); }",
        f"if (ctx.item.isDone) {{ {SEND} }}",
        f"if (ctx.item.isDone) {{ if (state) {SEND} }} else {{ return; }}",
    ],
)
def test_a_mutation_that_does_not_ask_whether_its_item_is_done_is_found(body: str) -> None:
    assert found(item(body)) == ["done-not-checked"]


@pytest.mark.parametrize(
    "body",
    [
        f"{GUARD} {SEND}",
        f"if (ctx.item.isDone) {{ ctx.log('done'); return null; }} {SEND} {SEND}",
        f"if (ctx.item.isDone === true || state) return; {SEND}",
        f"if (!ctx.item.isDone) {{ {SEND} }}",
        f"if (!ctx.item.isDone && state) {{ {SEND} }}",
        f"if (ctx.item.isDone) {{ ctx.log('done'); }} else {{ {SEND} }}",
        f"if (ctx.item['isDone']) return; {SEND}",
        f"const {{ isDone }} = ctx.item; if (isDone) return; {SEND}",
        f"const {{ isDone: over }} = ctx.item; if (!over) {SEND}",
        f"const {{ item: {{ isDone }} }} = ctx; if (isDone) return; {SEND}",
        f"const {{ item }} = ctx; if (item.isDone) return; {SEND}",
        f"const done = ctx.item.isDone; if (done) return; {SEND}",
        f"const open = !ctx.item.isDone; if (open) {{ {SEND} }}",
        f"let done; done = ctx.item.isDone; if (done) return; {SEND}",
        "ctx.item.isDone || await ctx.gmail.send({});",
        "return ctx.item.isDone ? null : ctx.gmail.send({});",
        f"switch (ctx.item.isDone) {{ case true: return; default: {SEND} }}",
        f"const over = () => ctx.item.isDone; if (over()) return; {SEND}",
        f"if (isOver(ctx)) return; {SEND}",
        f"if (isDoneItem(ctx.item)) return; {SEND}",
        f"const it = ctx.item; if (isDoneItem(it)) return; {SEND}",
        f"const mail = async () => {{ {SEND} }}; {GUARD} await mail();",
        f"{GUARD} if (state.isDone) {{ {SEND} }}",
        f"{GUARD} await Promise.all(state.map(async (x) => {{ {SEND} }}));",
        "await ctx.gmail.search({});",
    ],
)
def test_an_item_that_asks_whether_it_is_done_is_fine(body: str) -> None:
    helpers = "function isOver(ctx) { return ctx.item.isDone; }\nconst isDoneItem = (x) => x.isDone;"
    assert found(item(body), helpers) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (GUARD, "only inside"),
        ("const { item } = ctx;", "only inside"),
        ("const c = ctx; f(c.item);", "only inside"),
        ("await helper(ctx);", "only inside"),
        (f"await ctx.withItem('1', 't', async () => {{ {GUARD} {SEND} }});", "the handler's own `ctx`"),
        (f"await ctx.withItem('1', 't', async (c) => {{ {GUARD} {SEND} }});", "the handler's own `ctx`"),
    ],
)
def test_an_item_asked_of_a_ctx_that_has_none_is_found(body: str, says: str) -> None:
    (finding,) = check(routine(body, "function helper(x) { return x.item.isDone; }"), SURFACE).findings
    assert finding.code == "item-outside"
    assert says in finding.message


@pytest.mark.parametrize(
    "body",
    [
        item(f"{GUARD} {SEND}"),
        item("if (helper(ctx)) return;"),
        item("if (helper(c)) return; helper(ctx);", "c"),  # the helper is given both, so it is not judged
        "const item = { isDone: true }; if (item.isDone) return;",
    ],
)
def test_an_item_asked_of_its_own_ctx_is_fine(body: str) -> None:
    assert found(body, "function helper(x) { return x.item.isDone; }") == []


@pytest.mark.parametrize("slot", ["PRODUCER", "PREPARE", "MUTATE", "NEXT"])
def test_producers_and_consumers_have_no_items(slot: str) -> None:
    for code in ("f(ctx.item);", "const { item } = ctx;"):
        assert codes(CLEAN.replace(f"// {slot}", code)) == ["item-outside"]


def test_mutations_of_an_item_return_results_and_may_follow_one_another() -> None:
    body = f"""{GUARD}
      const row = await ctx.sheets.appendRow({{}});
      for (const to of state.people) {{ await ctx.gmail.send({{ to, body: row.rowId }}); }}
      try {{ {SEND} }} finally {{ ctx.log("sent"); }}
      if (state) {{ {SEND} }}
      return row;"""
    assert found(item(body)) == []


def test_two_mails_to_one_person_are_told_apart_by_their_subkeys() -> None:
    source = routine(
        item(
            f"""{GUARD}
      await ctx.gmail.send({{ to: "alice@example.com", body: "First message", subkey: "welcome" }});
      await ctx.gmail.send({{ to: "alice@example.com", body: "Second message", subkey: "confirmation" }});"""
        )
    )
    assert codes(source) == []
    assert capabilities(source) == ("gmail.send",)


def test_a_function_that_hands_parts_of_ctx_to_itself_is_followed_to_an_end() -> None:
    assert codes(routine("again(ctx);", "function again(c) { again(c.x); }")) == ["capability-hidden"]
    many = "".join(f"again(c.a{i});" for i in range(300))
    assert codes(routine("again(ctx);", f"function again(c) {{ {many} }}")) == ["capability-hidden"]
