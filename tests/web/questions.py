"""Ways in which a workflow comes to ask a person, one for each kind of question; each has a workflow of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from keepai import Call, Connector, OutcomeUnknown, Policy, PreconditionFailed, Transient, mutation
from keepai.model.records import Mutation, Run
from tests.harness import Story, consumer, producer, take_first, workflow
from tests.routines import GUARD, Desk, guarded, routine

#: For `serve`: a call is given up soon, and nothing is tried often.
POLICY = Policy(retries_max=1, call_s=0.3)

SEND = 'await ctx.gmail.send({ to: "ann@example.com", subject: `Re: ${prepared.data.messageId}`, body: "Thank you." });'
FIRE = "await ctx.webhook.fire({ of: prepared.data.messageId, amount: 120 });"
APPEND = 'await ctx.sheets.appendRow({ spreadsheetId: "book", values: [prepared.data.messageId, 120] });'
THROW = "\n      const total = prepared.data.payload.total;\n      return total.toFixed(2);\n    "

Ask = Callable[..., Awaitable[str]]  #: of a story and, if need be, a name for the workflow


class Line(Connector):
    """Goes on with a call that was given up, until it is told to end; then it says that it happened."""

    def __init__(self) -> None:
        super().__init__()
        self.end = asyncio.Event()

    @mutation(identity=("to",), target="to")
    async def ring(self, params: dict[str, Any], call: Call) -> Any:
        """Ring, without an answer in time."""
        while not self.end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.end.wait()
        return {"answered": "late"}

    @mutation(settle=60)
    async def buzz(self, params: dict[str, Any], call: Call) -> Any:
        """Lose the answer; what was sent may still arrive for a minute."""
        raise OutcomeUnknown("The connection was lost before the answer came.")


LINES: list[Line] = []


def connectors() -> list[Connector]:
    """What some of them need beside the world."""
    LINES.append(Line())
    return [Desk(), LINES[-1]]


TAKE = take_first().replace("title: event.messageId", "title: `Answer to ${event.messageId}`")


def acting(name: str, mutate: str = SEND, first: str = "", **steps: str) -> str:
    """A workflow that takes what is in the feed and acts on it."""
    return workflow(name, producers={"poll": producer()}, consumers={
        "answer": consumer(first + TAKE, mutate=mutate, **steps)})


async def asked(story: Story, source: str, **grants: Any) -> str:
    """The workflow, once it has come to its question."""
    story.feed.put("invoice-7", title="Invoice 7 of Ann")
    return await story.deploy_and_run(source, **grants)


async def unknown_blind(story: Story, name: str = "unknown") -> str:
    """Nobody can look it up, and nothing of it can arrive any more."""
    story.world.on("webhook.fire").fail(OutcomeUnknown("The connection was lost before the answer came."))
    return await asked(story, acting(name, FIRE, next="ctx.log(JSON.stringify(mutationResult));"))


async def unknown_at_once(story: Story, name: str = "unknown-now") -> str:
    """The same, while it may still arrive."""
    return await asked(story, acting(name, "await ctx.line.buzz({ times: 3 });"))


async def unknown_looked_up(story: Story, name: str = "lookup") -> str:
    """It can be looked up, and that told nothing."""
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").unknown("The sent folder does not answer.")
    return await asked(story, acting(name))


async def approval(story: Story, name: str = "approval") -> str:
    """A call is held."""
    return await asked(story, acting(name), grants={"feed.list": "allow", "gmail.send": "ask"})


async def permission(story: Story, name: str = "permission") -> str:
    """Something was not granted."""
    return await asked(story, acting(name, APPEND), grants={"feed.list": "allow"})


async def precondition(story: Story, name: str = "precondition") -> str:
    """Something outside is missing."""
    story.world.on("sheets.appendRow").fail(PreconditionFailed("The spreadsheet “book” does not exist."))
    return await asked(story, acting(name, APPEND))


async def exhausted(story: Story, name: str = "exhausted") -> str:
    """It was tried too often."""
    story.world.on("gmail.send").fail(Transient("The mail server is busy."), times=2)
    wf = await asked(story, acting(name))
    await story.run(seconds=30)
    return wf


async def logic(story: Story, name: str = "logic") -> str:
    """The script throws before anything was sent."""
    return await asked(story, acting(name, THROW + SEND))


async def logic_after(story: Story, name: str = "logic-after") -> str:
    """The script throws after its mutation happened."""
    return await asked(story, acting(name, next=THROW))


async def internal(story: Story, name: str = "internal") -> str:
    """A connector has a bug."""
    story.world.on("gmail.search").fail(ZeroDivisionError("division by zero"))
    return await asked(story, acting(name, first="await ctx.gmail.search({});"))


async def repair(story: Story, name: str = "repair") -> str:
    """A repair waits that may matter for what was done before."""
    wf = await asked(story, acting(name, THROW + SEND))
    await story.keep.fix(wf, acting(name), impact="potentially_impactful", note="There is no total in a mail.")
    return wf


def _filing(name: str, text: str) -> str:
    return routine(f"""
      await ctx.withItem("letter", "The letter to Bob", async (ctx) => {{
        {GUARD}
        await ctx.desk.file({{ folder: "f", name: "n", text: "{text}" }});
        await ctx.webhook.fire({{ of: "letter" }});
      }});
    """, name=name)


async def attention(story: Story, name: str = "attention") -> str:
    """What was applied is not what the script wants now."""
    story.world.on("webhook.fire").fail(Transient("busy"))
    wf = await asked(story, _filing(name, "Dear Bob"))
    await story.deploy_and_run(_filing(name, "Dear Robert"), workflow_id=wf)
    return wf


async def left(story: Story, name: str = "left") -> str:
    """An item was begun, and its routine did not come back to it."""
    story.world.on("gmail.send").fail(Transient("busy"))
    work = 'await ctx.gmail.send({ to: "bob@example.com", body: item.id });'
    wf = await asked(story, routine(guarded(work), name=name))
    story.feed.items = []
    await story.run(seconds=30)
    return wf


async def contradicted(story: Story, name: str = "contradicted") -> str:
    """A call that was given up as skipped answers late that it happened."""
    wf = await asked(story, acting(name, 'await ctx.line.ring({ to: "Ann" });'))
    await story.keep.resolve((await sent(story, wf)).id, "skip")
    await story.run()
    LINES[-1].end.set()
    await asyncio.wait(story.keep.parts.calls, timeout=5)
    return wf


ASKS: Mapping[str, Ask] = {
    "unknown_blind": unknown_blind, "unknown_looked_up": unknown_looked_up, "approval": approval,
    "permission": permission, "precondition": precondition, "exhausted": exhausted, "logic": logic,
    "logic_after": logic_after, "internal": internal, "repair": repair, "attention": attention, "left": left,
    "contradicted": contradicted, "unknown_at_once": unknown_at_once,
}


async def sent(story: Story, wf: str) -> Mutation:
    """What was sent last."""
    return (await story.keep.mutations(wf))[-1]


async def last(story: Story, wf: str) -> Run:
    """The newest run of what acts."""
    return [run for run in await story.runs(wf) if run.kind != "producer"][-1]
