"""Objects keep the order of their keys, as scripts and connectors wrote them; what is hashed does not depend on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest

from keepai import Call, Connector, OutcomeUnknown, Page, Transient, mutation, read
from tests.harness import Story, consumer, js, producer, workflow
from tests.routines import routine

#: Neither sorted nor reversed, with an inner object and with a key that is no identifier.
ROW = {"zulu": 1, "alpha": {"y": 1, "b": 2, "x": 3}, "Mike": 3, "a key": 4}
ORDER = json.dumps(ROW, separators=(",", ":"))


class Declared(TypedDict):
    """The connector below fills it in another order."""

    alpha: dict[str, int]
    zulu: int
    Mike: int


class Ordered(Connector):
    """Gives back what it was given, in the order in which it stands."""

    name = "table"
    input_types = ("row",)

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []
        self.keys: list[str] = []

    @read
    async def rows(self, params: dict[str, Any], call: Call) -> Page[dict[str, Any]]:
        """One row, as a page that carries another."""
        return Page([ROW], header=ROW)

    @read
    async def declared(self, params: dict[str, Any], call: Call) -> Declared:
        """One row with a declared type."""
        return {"zulu": 1, "Mike": 3, "alpha": {"y": 1, "b": 2}}

    @mutation(identity=("key",), target="target", settle=0)
    async def put(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        """Take a row."""
        self.given.append(json.dumps(params, separators=(",", ":")))
        self.keys.append(call.idempotency_key)
        return {"row": params["row"]}


ALL_THE_WAY = workflow(
    producers={"poll": producer("""
      const rows = await ctx.table.rows({});
      ctx.log("read " + JSON.stringify(rows[0]));
      ctx.log("page " + JSON.stringify(rows.header));
      const inputId = ctx.registerInput({ source: "table", type: "row", id: "1", title: "Row" });
      await ctx.publish("in", { messageId: "1", inputId, payload: rows[0] });
      return { of: rows[0], before: state };
    """)},
    consumers={"take": consumer(
        """
          const [event] = await ctx.peek("in");
          if (!event) return { reservations: [], data: {} };
          const [again] = await ctx.getByIds("in", ["1"]);
          ctx.log("peek " + JSON.stringify(event.payload));
          ctx.log("get " + JSON.stringify(again.payload));
          return { reservations: [{ topic: "in", ids: ["1"] }], data: event.payload, ui: { title: "Row" } };
        """,
        mutate="await ctx.table.put({ target: 't', row: prepared.data, key: 'k' });",
        next="""
          ctx.log("data " + JSON.stringify(prepared.data));
          ctx.log("result " + JSON.stringify(mutationResult.result.row));
          await ctx.publish("out", { messageId: "1", payload: mutationResult.result.row });
          return { kept: prepared.data };
        """,
        publishes=("out",),
    )},
)


async def test_a_row_keeps_its_columns_in_order_all_the_way(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[table := Ordered()]) as story:
        wf = await story.deploy_and_run(ALL_THE_WAY)
        lines = [line for run in await story.runs(wf) for line in story.logs(run)]
        assert sorted(lines) == sorted(f"{at} {ORDER}" for at in ("read", "page", "peek", "get", "data", "result"))
        assert table.given == [f'{{"target":"t","row":{ORDER},"key":"k"}}'], "what is sent is what the script wrote"
        [out] = await story.events(wf, "out")
        [sent] = await story.keep.mutations(wf)
        kept = [out.payload, sent.params["row"], sent.result["row"], (await story.keep.state(wf, "take"))["kept"],
                (await story.keep.state(wf, "poll"))["of"]]
        assert [json.dumps(each, separators=(",", ":")) for each in kept] == [ORDER] * 5
        await story.run(minutes=5)  # a state that is read back
        state = await story.keep.state(wf, "poll")
        assert json.dumps(state["before"]["of"], separators=(",", ":")) == ORDER


async def test_a_declared_result_keeps_the_order_that_the_connector_wrote(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[Ordered()]) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(
            "ctx.log(JSON.stringify(await ctx.table.declared({})));",
        )}))
        assert story.logs(await story.last(wf)) == ['{"zulu":1,"Mike":3,"alpha":{"y":1,"b":2}}']


async def test_a_person_sees_the_parameters_in_their_order(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[Ordered()]) as story:
        wf = await story.deploy_and_run(ALL_THE_WAY, grants={"table.rows": "allow", "table.put": "ask"})
        [asked] = await story.keep.needs_you(wf)
        assert json.dumps(asked.facts["params"], separators=(",", ":")).startswith(f'{{"target":"t","row":{ORDER}')
        assert asked.facts["attempted"] == f'table.put: key="k", row={ORDER}, target="t"'


async def test_another_order_of_keys_is_the_same_mutation_with_the_same_key(tmp_path: Path) -> None:
    def work(target: str, row: str) -> str:
        return routine(f"""
          await ctx.withItem("a", "A", async (ctx) => {{
            if (ctx.item.isDone) return;
            await ctx.table.put({{ target: {target}, key: {{ p: 1, o: 2 }}, row: {row} }});
            await ctx.gmail.send({{ to: "x", body: "" }});
          }});
        """)

    async with Story(tmp_path, connectors=[table := Ordered()]) as story:
        story.world.on("gmail.send").fail(Transient("busy"))
        wf = await story.deploy_and_run(work("{ t: 1, s: 2 }", "{ b: 1, a: { d: 1, c: 2 } }"))
        again = work("{ s: 2, t: 1 }", "{ a: { c: 2, d: 1 }, b: 1 }").replace("{ p: 1, o: 2 }", "{ o: 2, p: 1 }")
        await story.deploy(again, workflow_id=wf)
        await story.run(minutes=5)
        assert len(table.given) == 1, "what was applied is found under its key, and its content is the same"
        assert [i.status for i in await story.keep.items(wf)] == ["done"]


async def test_a_resend_in_another_order_carries_the_same_idempotency_key(tmp_path: Path) -> None:
    class Flaky(Ordered):
        @mutation(identity=("key",), settle=0)
        async def put(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
            """Lose the first answer."""
            self.keys.append(call.idempotency_key)
            if len(self.keys) == 1:
                raise OutcomeUnknown("lost")
            return {"row": params["row"]}

    def taking(row: str) -> str:
        return workflow(
            producers={"poll": producer("""
              const inputId = ctx.registerInput({ source: "table", type: "row", id: "1", title: "Row" });
              await ctx.publish("in", { messageId: "1", inputId, payload: 1 });
            """)},
            consumers={"take": consumer(mutate=f"await ctx.table.put({{ key: 'k', row: {row} }});")},
        )

    async with Story(tmp_path, connectors=[table := Flaky()]) as story:
        wf = await story.deploy_and_run(taking("{ b: 1, a: 2 }"))
        [asked] = await story.keep.needs_you(wf)
        story.clock.advance(minutes=5)
        await story.keep.resolve(asked.mutation_id, "did_not_happen")
        await story.deploy_and_run(taking("{ a: 2, b: 1 }"), workflow_id=wf)
        assert len(table.keys) == 2
        assert len(set(table.keys)) == 1


@pytest.mark.parametrize("taken", [False, True])
async def test_a_payload_in_another_order_is_no_new_revision(story: Story, taken: bool) -> None:
    consumers = {"take": consumer()} if taken else {}
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers=consumers))
    story.feed.put("a", {"b": 1, "a": {"d": 1, "c": 2}})
    await story.run()
    runs = len(await story.runs(wf, "take"))
    story.feed.put("a", {"a": {"c": 2, "d": 1}, "b": 1})
    await story.run(minutes=5)
    event = await story.event(wf, "in", "a")
    assert (event.revision, list(event.payload)) == (1, ["b", "a"])
    assert len(await story.runs(wf, "take")) == runs, "nothing new is there to look at"
    assert event.revisions_held == 0


async def test_mutate_draws_the_same_lots_again_whatever_the_order(story: Story) -> None:
    """Time and chance in `mutate` follow from the PrepareResult as it is kept, also when it was run ahead of time."""
    source = workflow(
        producers={"poll": producer()},
        consumers={"take": consumer(
            """
              const [event] = await ctx.peek("in");
              if (!event) return { reservations: [], data: {} };
              const reservations = [{ topic: "in", ids: [event.messageId] }];
              return { ui: { title: "T" }, data: { z: 1, a: 2 }, reservations };
            """,
            mutate="await ctx.gmail.send({ to: 'x' + Math.random(), body: JSON.stringify(prepared) });",
        )},
    )
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(source, "a")
    await story.run(minutes=5)
    sent = await story.keep.mutations(wf)
    assert len(sent) == 2
    assert sent[0].params == sent[1].params
    assert sent[0].params["body"].startswith('{"ui":{"title":"T"},"data":{"z":1,"a":2}'), js(sent[0].params)
