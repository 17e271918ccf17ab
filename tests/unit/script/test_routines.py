"""Routines: how they are declared, what they may call, and how they work through items."""

from __future__ import annotations

import pytest

from keepai.model.operations import Surface
from keepai.script.check import check
from keepai.script.graph import Vertex, as_mermaid, graph
from keepai.script.manifest import Handler, HandlerKind, Manifest, Schedule, from_text
from tests.unit.script.samples import CLEAN, SURFACE


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
    assert checked.manifest.handlers == (Handler("sweep", HandlerKind.ROUTINE, (), (), None),)


def test_a_routine_is_drawn_with_a_shape_of_its_own_and_no_edges() -> None:
    manifest = check(routine("return state;"), SURFACE).manifest
    assert manifest is not None
    drawn = graph(manifest)
    assert (drawn.vertices, drawn.edges) == ((Vertex("sweep", "routine"),), ())
    assert as_mermaid(drawn) == 'flowchart LR\n  n0[["sweep"]]\n'


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
