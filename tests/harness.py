"""What stories share: a host on a real ledger with a clock to move, a world to break, and short ways to write scripts.

    async with Story(tmp_path) as story:
        wf = await story.deploy(workflow(producers={"poll": producer(POLL)}, consumers={"take": consumer()}))
        story.feed.put("a", {"amount": 3})
        await story.run()
        await story.run(minutes=5)      # let time pass, then run what is due
        await story.crash("before:commit_producer")
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from keepai import Call, Connector, Keep, OutcomeUnknown, Policy, Verdict, mutation, read
from keepai.engine.certificate import Certification
from keepai.ledger.base import Reader
from keepai.model.errors import KeepError
from keepai.model.records import Escalation, Event, Input, Mutation, Run, Workflow
from keepai.reading.views import Views
from keepai.testing import CrashAt, Crashed, ManualClock, World
from tests.ledger.stores import reads, store_in

IDLE_S_MAX = 120.0  # until a host has done what is due; more means that something spins
START = "2026-01-05T09:00:00Z"  #: a Monday
#: Whether the hosts of the tests foresee anything (policy `speculate`); see conftest.py.
SPECULATE = os.environ.get("KEEP_SPECULATE") != "off"
#: The commits that take the place of one that holds what was foreseen.
_STEP_BY_STEP = {"before:prepare_and_send": "before:prepare", "after:prepare_and_send": "after:send"}


def views(keep: Keep) -> Views:
    """What an open host's ledger has, looked at without waiting; for what the public surface does not show."""
    return keep.views(reads(keep.parts.ledger))


class Feed(Connector):
    """`ctx.feed.list({})` gives what the test put in, every time it is asked; `count` says how often that was."""

    name = "feed"
    input_types = ("item", "note")

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []
        self.count = 0

    def put(self, id: str, payload: Any = None, **more: Any) -> None:
        """Add an item, or replace the one with this id."""
        self.items = [i for i in self.items if i["id"] != id] + [{"id": id, "payload": payload, **more}]

    @read
    async def list(self, params: dict[str, Any], call: Call) -> Any:
        """All items."""
        self.count += 1
        return json.loads(json.dumps(self.items))


class Slow(Connector):
    """An outside system in which an effect may show a minute after the call ended."""

    def __init__(self, verdict: Verdict | None = None) -> None:
        super().__init__()
        self.effects: list[str] = []
        self.sent: list[Call] = []
        self.verdict = verdict or Verdict.failed()
        self.asked = 0

    @mutation(identity=("to",), settle=60)
    async def post(self, params: dict[str, Any], call: Call) -> dict[str, int]:
        """Post, and lose the answer the first time."""
        self.sent.append(call)
        if len(self.sent) == 1:
            raise OutcomeUnknown("lost")
        self.effects.append(call.idempotency_key)
        return {"n": len(self.sent)}

    @post.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Say what the test wants."""
        self.asked += 1
        return self.verdict


class Story:
    """A `Keep` that can be closed, killed and opened again; clock, world and feed outlive it.

    Its ledger is `folder`/keep.db, or a database of its own."""

    def __init__(
        self, folder: Path, *, start: str = START, policy: Policy | None = None, connectors: Sequence[Connector] = (),
    ) -> None:
        self.store = store_in(folder)
        self.path: Any = self.store.path
        self.clock, self.policy = ManualClock(start), policy
        self.world, self.feed, self._more = World(self.clock), Feed(), list(connectors)

    async def __aenter__(self) -> Story:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        self.world.release()  # a hang that a failed test left behind must not outlive it
        await self.keep.close()

    async def open(self) -> None:
        """Start a host."""
        connectors = [*self.world.connectors(), self.feed, *self._more]
        self.keep = Keep(self.path, connectors=connectors, policy=self.policy, clock=self.clock)
        await self.keep.__aenter__()

    async def reopen(self) -> None:
        """Stop the host and start another one on the same file."""
        await self.keep.close()
        await self.open()

    async def deploy(self, source: str, **options: Any) -> str:
        """Deploy with every capability granted; gives the workflow's id."""
        done = await self.keep.deploy(source, **{"grants": "all", **options})
        return str(done.workflow_id)

    async def certified(self, source: str, cases: str | None = None) -> None:
        """Have a certificate for a script, as a process of Keep that has tried it would."""
        marks = {name: each.fingerprint() for name, each in self.keep.parts.connectors.items()}
        await self.keep.keep_certificate(source, cases, Certification(12, (), (), (), (), marks, {}, 0.5))

    async def deploy_and_run(self, source: str, *items: str, **options: Any) -> str:
        """Put items with these ids into the feed, deploy, and run what is due; gives the workflow's id."""
        for item in items:
            self.feed.put(item)
        wf = await self.deploy(source, **options)
        await self.run()
        return wf

    async def run(self, **span: float) -> None:
        """Let time pass (`minutes=5`), then run what is due."""
        self.clock.advance(**span)
        async with asyncio.timeout(IDLE_S_MAX):
            await self.keep.run_until_idle()

    async def crash(self, point: str, *, nth: int = 1, **span: float) -> None:
        """Run until the host dies at a crash point, then start another one. For one workflow at a time."""
        self.clock.advance(**span)
        parts, point = self.keep.parts, point if SPECULATE else _STEP_BY_STEP.get(point, point)
        with CrashAt(point, nth=nth) as crash:
            with contextlib.suppress(Crashed):
                await self.keep.run_until_idle()
            assert crash.crashed, f"{point} was never reached; these were: {crash.reached}"
            with contextlib.suppress(Crashed, KeepError):
                await self.keep.host.close()  # the dead write nothing, not even their end
        await parts.runtime.close()
        await parts.ledger.close()  # the lock of a dead process is free
        await self.open()

    # -- looking, for the workflow that the test has in hand ---------------------------------------------

    async def workflow(self, wf: str) -> Workflow:
        """One workflow as it stands."""
        return next(w for w in await self.keep.workflows() if w.id == wf)

    async def events(self, wf: str, topic: str | None = None, status: str | None = None) -> list[Event]:
        """Events in stream order."""
        return await self.keep.events(wf, topic, status)

    async def ids(self, wf: str, topic: str | None = None, status: str | None = None) -> list[str]:
        """The message ids of events in stream order."""
        return [e.message_id for e in await self.keep.events(wf, topic, status)]

    async def event(self, wf: str, topic: str, message_id: str) -> Event:
        """The one event with this address."""
        [found] = [e for e in await self.keep.events(wf, topic) if e.message_id == message_id]
        return found

    async def inputs(self, wf: str) -> dict[str, Input]:
        """Inputs by their id outside."""
        return {i.external_id: i for i in await self.keep.inputs(wf)}

    async def runs(self, wf: str, handler: str | None = None) -> list[Run]:
        """Runs, oldest first, of one handler or of all."""
        return [r for r in await self.keep.runs(wf) if handler in (None, r.handler)]

    async def last(self, wf: str, handler: str | None = None) -> Run:
        """The newest run."""
        return (await self.runs(wf, handler))[-1]

    async def mutation(self, wf: str) -> Mutation:
        """The one mutation."""
        [found] = await self.keep.mutations(wf)
        return found

    async def question(self, wf: str | None = None) -> Escalation:
        """The one thing that a person is asked."""
        [asked] = await self.keep.needs_you(wf)
        return asked

    def moves(self, wf: str, subject: str, machine: str = "mutation") -> list[str]:
        """Every state that a mutation, or another subject, was in."""
        return [str(r["target"]) for r in views(self.keep).history(wf, subject) if r["machine"] == machine]

    def reader(self) -> Reader:
        """What reads the ledger."""
        return reads(self.keep.parts.ledger)

    async def rows(self, query: str, **params: Any) -> Sequence[Any]:
        """What a query of the ledger finds."""
        return self.reader().all(query, **params)

    def logs(self, run: Run) -> list[str]:
        """What the script logged in a run."""
        return [t.answer or "" for t in views(self.keep).trace(run.id) if t.kind == "log"]

    def warnings(self, run: Run) -> list[str]:
        """What the host noted about a run."""
        return [t.answer or "" for t in views(self.keep).trace(run.id) if t.kind == "warning"]


# -- scripts -------------------------------------------------------------------------------------------------

#: A producer's body: register and publish everything in the feed. Items may name their own topic or title.
POLL = """
  for (const item of await ctx.feed.list({})) {
    const inputId = ctx.registerInput({
      source: "feed", type: "item", id: item.id, title: item.title ?? `Item ${item.id}`
    });
    await ctx.publish(item.topic ?? "in", { messageId: item.id, inputId, payload: item.payload });
  }
"""

#: A body of `prepare` that takes nothing.
NOTHING = "return { reservations: [], data: {} };"

#: Bodies of `mutate` for the event that `take_first` took: one call each.
SEND = "await ctx.gmail.send({ to: prepared.data.messageId });"
FIRE = "await ctx.webhook.fire({ of: prepared.data.messageId });"
APPEND = 'await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.messageId] });'
POST = "await ctx.slow.post({ to: prepared.data.messageId });"
#: Not known with the result of `prepare`, so that prepare and send are two commits.
SEND_APART = "ctx.log('now');" + SEND

#: A body of `next` that logs what it was told.
TOLD = "ctx.log(JSON.stringify(mutationResult));"


def take_first(topic: str = "in") -> str:
    """Reserve the oldest event, if any."""
    return f"""
  const [event] = await ctx.peek({js(topic)});
  if (!event) return {{ reservations: [], data: {{}} }};
  return {{
    reservations: [{{ topic: {js(topic)}, ids: [event.messageId] }}], data: event, ui: {{ title: event.messageId }}
  }};
"""


def take_all(*topics: str) -> str:
    """Reserve every event of the topics in one run."""
    return f"""
  const reservations = [];
  const data = {{ events: [] }};
  for (const topic of {js(list(topics or ("in",)))}) {{
    const events = await ctx.peek(topic);
    if (events.length) reservations.push({{ topic, ids: events.map(e => e.messageId) }});
    data.events.push(...events);
  }}
  return {{ reservations, data, ui: {{ title: "All" }} }};
"""


def workflow(
    name: str = "story", *, topics: Sequence[str] = ("in", "out"), producers: Mapping[str, str] | None = None,
    consumers: Mapping[str, str] | None = None, head: str = "",
) -> str:
    """A whole script; `producers` and `consumers` map names to texts of `producer` and `consumer`."""
    declared = ", ".join(f"{js(topic)}: {{}}" for topic in topics)
    return f"""{head}
export default Keep.workflow({{
  name: {js(name)},
  topics: {{ {declared} }},
  producers: {{ {_entries(producers)} }},
  consumers: {{ {_entries(consumers)} }}
}});
"""


def acting(
    mutate: str | None = SEND, *, name: str = "story", before: str = "", prepare: str | None = None,
    next: str | None = TOLD, publishes: Sequence[str] = (), head: str = "",
) -> str:
    """A workflow that polls the feed and acts on its events, one by one; `prepare` does `before` first of all."""
    act = consumer(before + (prepare or take_first()), mutate=mutate, next=next, publishes=publishes)
    return workflow(name, producers={"poll": producer()}, consumers={"act": act}, head=head)


def producer(
    body: str = POLL, *, publishes: Sequence[str] = ("in",), interval: str = "5m", cron: str | None = None,
    tz: str | None = None,
) -> str:
    """A producer with `body` as its handler."""
    schedule: dict[str, str] = {"cron": cron} if cron else {"interval": interval}
    if tz:
        schedule["tz"] = tz
    return (
        f"{{ publishes: {js(list(publishes))}, schedule: {js(schedule)}, "
        f"handler: async (ctx, state) => {{ {body} }} }}"
    )


def consumer(
    prepare: str | None = None, *, subscribe: Sequence[str] = ("in",), publishes: Sequence[str] | None = (),
    mutate: str | None = None, next: str | None = None,
) -> str:
    """A consumer; without a body of `prepare` it takes the oldest event of its first topic.

    `publishes=None` leaves the key out: then it may publish to any topic and counts as nobody's publisher.
    """
    body = take_first(subscribe[0]) if prepare is None else prepare
    steps = [f"async prepare(ctx, state) {{ {body} }}"]
    if mutate is not None:
        steps.append(f"async mutate(ctx, prepared) {{ {mutate} }}")
    if next is not None:
        steps.append(f"async next(ctx, prepared, mutationResult) {{ {next} }}")
    declared = [f"subscribe: {js(list(subscribe))}"]
    if publishes is not None:
        declared.append(f"publishes: {js(list(publishes))}")
    return f"Keep.consumer({{ {', '.join(declared + steps)} }})"


def js(value: Any) -> str:
    """A value as JavaScript."""
    return json.dumps(value)


def _entries(parts: Mapping[str, str] | None) -> str:
    return ",\n    ".join(f"{js(name)}: {text}" for name, text in (parts or {}).items())
