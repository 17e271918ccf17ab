"""The character NUL, which PostgreSQL keeps in no text: an id with it is refused, and in words � takes its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, Keep, Transient, Verdict, mutation
from keepai.model.codec import sound
from keepai.model.errors import ConfigError, NotFound
from keepai.model.principals import Principal
from keepai.model.records import Run
from tests.harness import Story, acting, producer, workflow

pytestmark = pytest.mark.both_stores

INPUT = '{ source: "feed", type: "item", id: "i", title: "a\\0b" }'
POLL = f"const inputId = ctx.registerInput({INPUT});" """
  await ctx.publish('in', { messageId: 'm', inputId, payload: 1 });
"""
PREPARE = """
  const [event] = await ctx.peek("in");
  if (!event) return { reservations: [], data: {} };
  return { reservations: [{ topic: "in", ids: [event.messageId] }], data: { "k\\0": "v\\0" }, ui: { title: "u\\0" } };
"""
ROUTINE = """
export default Keep.workflow({ name: "story", topics: {}, routines: { all: {
  schedule: { interval: "5m" },
  handler: async (ctx, state) => { await ctx.withItem(ID, "t\\0", async ctx => { ctx.log("done"); }); }
} } });
"""


class Odd(Connector):
    """Says NUL in every text that it may say."""

    name = "odd"

    def __init__(self) -> None:
        super().__init__()
        self.refuses = False

    @mutation(identity=("to",), target="to", settle=0)
    async def post(self, params: dict[str, Any], call: Call) -> dict[str, str]:
        """Post."""
        if self.refuses:
            raise Transient("busy\0")
        return {"id\0": "r\0"}

    @post.preview
    def in_words(self, params: dict[str, Any]) -> str:
        """The call."""
        return f"post {params['to']}"

    @post.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Whether it is there."""
        return Verdict.unknown("who\0knows")


@pytest.fixture
async def told(tmp_path: Path) -> Any:
    """A host with that connector."""
    async with Story(tmp_path, connectors=[Odd()]) as story:
        yield story


async def test_a_title_is_shown_without_it(told: Story) -> None:
    source = workflow(producers={"poll": producer(POLL)}, consumers={
        "act": f"Keep.consumer({{ subscribe: ['in'], publishes: [], async prepare(ctx) {{ {PREPARE} }}, "
               "async mutate(ctx, prepared) { await ctx.odd.post({ to: 'x\\0y' }); } })"})
    wf = await told.deploy_and_run(source)
    assert [each.title for each in await told.keep.inputs(wf)] == ["a�b"]
    sent = await told.mutation(wf)
    assert (sent.status, sent.title, sent.target, sent.preview) == ("applied", "u�", "x�y", "post x‹U+0000›y")
    assert (sent.params, sent.result) == ({"to": "x\0y"}, {"id\0": "r\0"})  # values are kept as they are
    assert [run.status for run in await told.runs(wf)] == ["committed", "committed"]


async def test_what_a_script_logs_or_throws_is_shown_without_it(told: Story) -> None:
    body = 'ctx.log("l\\0m"); ctx.log({ a: "\\0" }); throw new Error("e\\0");'
    wf = await told.deploy_and_run(workflow(producers={"poll": producer(body)}))
    run = await told.last(wf)
    assert told.logs(run) == ["l�m", '{a: "\\u0000"}']
    assert said(run) == "Error: e�"


async def test_what_a_connector_says_is_shown_without_it(told: Story) -> None:
    told._more[0].refuses = True  # type: ignore[attr-defined]
    wf = await told.deploy_and_run(acting('await ctx.odd.post({ to: "x" });'), "a")
    assert said(await told.last(wf)) == "busy�"


@pytest.mark.parametrize(("source", "why"), [
    (ROUTINE.replace("ID", '"i\\0"'), "withItem: id contains a NUL character"),
    (acting('await ctx.odd.post({ to: "x", subkey: "k\\0" });'), "subkey contains a NUL character"),
])
async def test_an_id_with_it_is_refused(told: Story, source: str, why: str) -> None:
    wf = await told.deploy_and_run(source, "a")
    run = await told.last(wf)
    assert run.status == "failed:logic"
    assert why in said(run)
    assert await told.keep.mutations(wf) == []


async def test_the_title_of_an_item_is_shown_without_it(told: Story) -> None:
    wf = await told.deploy_and_run(ROUTINE.replace("ID", '"i"'))
    assert [(each.title, each.status) for each in await told.keep.items(wf)] == [("t�", "done")]


async def test_what_people_say_is_kept_without_it(told: Story) -> None:
    wf = await told.deploy_and_run(workflow(producers={"poll": producer('throw new Error("x");')}))
    fix = await told.keep.fix(wf, workflow(producers={"poll": producer('ctx.log("y");')}), note="n\0")
    assert [each["note"] for each in await told.rows("repair_by_id", repair_id=fix)] == ["n�"]
    await told.keep.close()
    ann = Principal.person("an\0n")
    async with Keep(told.path, connectors=[Odd(), told.feed], clock=told.clock, principal=ann) as keep:
        await keep.pause(wf)
        assert [each.by for each in (await keep.explain(wf)).story if each.target == "paused"] == ["person:an�n"]
    await told.open()


LOOKS: dict[str, Callable[[Keep, str], Awaitable[Any]]] = {
    "a workflow": lambda keep, wf: keep.pause("a\0"), "its runs": lambda keep, wf: keep.runs("a\0"),
    "a handler's state": lambda keep, wf: keep.state(wf, "a\0"), "why": lambda keep, wf: keep.explain("a\0"),
    "a run": lambda keep, wf: keep.run("a\0"), "an event": lambda keep, wf: keep.skip_event("a\0"),
}


@pytest.mark.parametrize("what", LOOKS)
async def test_whoever_looks_for_it_finds_nothing(told: Story, what: str) -> None:
    wf = await told.deploy(workflow(producers={"poll": producer()}))
    with pytest.raises(NotFound):
        await LOOKS[what](told.keep, wf)
    assert await told.keep.events(wf, "a\0") == []
    assert await told.keep.inputs(wf, search="a\0") == []
    await told.keep.pause(wf)


@pytest.mark.parametrize("account", ["a\0", "a\udcff", None, 5])
def test_an_account_that_is_no_text_is_refused(tmp_path: Path, account: Any) -> None:
    odd = Odd()
    odd.account = account
    with pytest.raises(ConfigError, match=r"The account of the connector 'odd' is .*Make it a text"):
        Keep(tmp_path / "keep.db", connectors=[odd])


def test_a_sound_text_has_neither_nul_nor_half_characters() -> None:
    assert [sound(text) for text in ("a\0b", "\0é\0", "\udcff", "a", "")] == ["a�b", "�é�", "?", "a", ""]


def said(run: Run) -> str:
    """What a run that stopped says."""
    assert run.error is not None
    return run.error.message
