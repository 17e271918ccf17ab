"""The workflow of the simulation: a script, and the same steps in Python for a runtime without a sandbox.

What is simulated is the engine. The sandbox has suites of its own, and a schedule may also run the script for real.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable
from typing import Any

from keepai.model.codec import encode
from keepai.model.errors import Location, ScriptThrew
from keepai.model.operations import Step
from keepai.runtime.base import Ahead, Ended, Fixed, Job, Operation, Reply, StepHost

_HEAD = """
// variant VARIANT
const limit = (VARIANT % 3) + 1;
const broken = VARIANT >= 100 && VARIANT < 200;
const shared = VARIANT >= 200;
export default Keep.workflow({
  name: "orders",
"""
_FLOW = """
  topics: { "orders": {}, "filed": {} },
  producers: {
    poll: {
      publishes: ["orders"], schedule: { interval: "20m" },
      handler: async (ctx, state) => {
        const seen = state?.seen ?? 0;
        const orders = await ctx.orders.list({});
        for (const id of orders.slice(seen)) {
          const inputId = ctx.registerInput({ source: "orders", type: "order", id, title: "Order " + id });
          await ctx.publish("orders", { messageId: shared ? "newest" : id, inputId, payload: { id } });
        }
        return { seen: orders.length };
      },
    },
  },
  consumers: {
    file: Keep.consumer({
      subscribe: ["orders"], publishes: ["filed"],
      async prepare(ctx, state) {
        const events = await ctx.peek("orders", { limit });
        const ids = events.map((e) => e.messageId);
        const unit = shared ? events.map((e) => e.payload.id).join("+") : ids.join("+");
        return { reservations: [{ topic: "orders", ids }], data: { unit }, ui: { title: "File" } };
      },
      async mutate(ctx, prepared) {
        if (broken) throw new Error("broken");
        await ctx.rows.add({ unit: prepared.data.unit });
      },
      async next(ctx, prepared, outcome) {
        if (broken) throw new Error("broken");
        if (outcome.status === "applied") {
          await ctx.publish("filed", { messageId: outcome.result.id, payload: { unit: outcome.result.unit } });
        }
        return { last: outcome.status };
      },
    }),
    tell: Keep.consumer({
      subscribe: ["filed"], publishes: [],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("filed", { limit: 1 });
        if (!event) return { reservations: [], data: {}, ui: { title: "Nothing" } };
        return {
          reservations: [{ topic: "filed", ids: [event.messageId] }],
          data: { unit: event.payload.unit }, ui: { title: "Tell" },
        };
      },
      async mutate(ctx, prepared) { await ctx.hooks.fire({ unit: prepared.data.unit }); },
    }),
  },
"""
_ITEMS = """
  routines: {
    work: {
      schedule: { interval: "30m" },
      handler: async (ctx, state) => {
        for (const id of await ctx.orders.list({})) {
          await ctx.withItem(id, "Item " + id, async (ctx) => {
            if (ctx.item.isDone) return;
            const row = await ctx.rows.add({ unit: "item " + id });
            if (broken) throw new Error("broken");
            await ctx.mails.send({ unit: "item " + id, about: row.id });
            await ctx.hooks.fire({ unit: "item " + id });
          });
        }
        return { runs: (state?.runs ?? 0) + 1 };
      },
    },
  },
"""

#: A routine whose every call carries what those before it gave, and what its item sees of time and chance.
_LETTERS = """
  routines: {
    write: {
      schedule: { interval: "30m" },
      handler: async (ctx, state) => {
        const text = ["hello", "HELLO", "Hello", "goodbye"][VARIANT % 10];
        const after = (count) => {
          if (Math.floor(VARIANT / 10) % 10 === count) throw new Error(`thrown after ${count}`);
        };
        for (const id of await ctx.orders.list({})) {
          await ctx.withItem(id, "Item " + id, async (ctx) => {
            if (ctx.item.isDone) return;
            const unit = "item " + id, subkey = `${Date.now()} ${Math.random()}`;
            after(0);
            const row = await ctx.rows.add({ unit, text, of: [], subkey });
            after(1);
            const mail = await ctx.mails.send({ unit, text, of: [row] });
            after(2);
            await ctx.hooks.fire({ unit, text, of: [row, mail] });
            after(3);
          });
        }
        return { runs: (state?.runs ?? 0) + 1 };
      },
    },
  },
"""

#: What may be parked: two handlers that write to the same few books and share inputs, and one that counts in its state.
_BOOKS = """
  topics: { "orders": {}, "notes": {}, "booked": {} },
  producers: {
    poll: {
      publishes: ["orders", "notes"], schedule: { interval: "20m" },
      handler: async (ctx, state) => {
        const seen = state?.seen ?? 0;
        const orders = await ctx.orders.list({});
        for (const id of orders.slice(seen)) {
          const inputId = ctx.registerInput({ source: "orders", type: "order", id, title: "Order " + id });
          const payload = { id, to: "book " + Number(id.slice(1)) % limit };
          await ctx.publish("orders", { messageId: id, inputId, payload });
          await ctx.publish("notes", { messageId: id, inputId, payload });
        }
        return { seen: orders.length };
      },
    },
  },
  consumers: {
    book: Keep.consumer({
      subscribe: ["orders"], publishes: ["booked"],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("orders", { limit: 1 });
        if (!event) return { reservations: [], data: {}, ui: { title: "Nothing" } };
        const reservations = [{ topic: "orders", ids: [event.messageId] }];
        return { reservations, data: event.payload, ui: { title: "Book" } };
      },
      async mutate(ctx, prepared) {
        if (broken) throw new Error("broken");
        await ctx.books.enter({ unit: "order " + prepared.data.id, to: prepared.data.to });
      },
      async next(ctx, prepared, outcome) {
        if (outcome.status === "applied") {
          await ctx.publish("booked", { messageId: outcome.result.id, payload: { unit: outcome.result.unit } });
        }
      },
    }),
    note: Keep.consumer({
      subscribe: ["notes"], publishes: [],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("notes", { limit: 1 });
        if (!event) return { reservations: [], data: {}, ui: { title: "Nothing" } };
        const reservations = [{ topic: "notes", ids: [event.messageId] }];
        return { reservations, data: event.payload, ui: { title: "Note" } };
      },
      async mutate(ctx, prepared) {
        await ctx.books.enter({ unit: "note " + prepared.data.id, to: prepared.data.to });
      },
    }),
    count: Keep.consumer({
      subscribe: ["booked"], publishes: [],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("booked", { limit: 1 });
        if (!event) return { reservations: [], data: {}, ui: { title: "Nothing" } };
        return {
          reservations: [{ topic: "booked", ids: [event.messageId] }],
          data: { unit: event.payload.unit, before: state?.count ?? 0 }, ui: { title: "Count" },
        };
      },
      async mutate(ctx, prepared) { await ctx.mails.send({ unit: prepared.data.unit }); },
      async next(ctx, prepared, outcome) { return { count: prepared.data.before + 1 }; },
    }),
  },
"""

#: What may be parked of a routine: items that write to two books, from a list of which it reads each entry once.
_LIST = """
  routines: {
    list: {
      schedule: { interval: "20m" },
      handler: async (ctx, state) => {
        const seen = state?.seen ?? 0;
        const orders = await ctx.orders.list({});
        for (const id of orders.slice(seen)) {
          await ctx.withItem(id, "Item " + id, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.books.enter({ unit: "item " + id, to: "book " + Number(id.slice(1)) % 2 });
            if (broken) throw new Error("broken");
            await ctx.mails.send({ unit: "item " + id });
          });
        }
        return { seen: orders.length };
      },
    },
  },
"""

#: What a workflow of the simulation consists of; most faults show sooner where little else happens.
SHAPES = {"both": _FLOW + _ITEMS, "flow": _FLOW, "items": _ITEMS}
#: Variants from here on are of letters: their tens say after how many calls they throw (9: never), their ones the text.
LETTERS = 300
TEXTS = ("hello", "HELLO", "Hello", "goodbye")

CALLS = ("rows.add", "mails.send", "hooks.fire")  #: the mutations of an item, in order
GRANTED = ("orders.list", *CALLS)
OF_BOOKS = ("orders.list", "books.enter", "mails.send")  #: what the shapes "books" and "list" may call


def script(variant: int, shape: str = "both") -> str:
    """One version: the variant decides how many orders are filed at once; from 100 on it is broken, and from 200 on
    every order is published as the same event."""
    body = {**SHAPES, "letters": _LETTERS, "books": _BOOKS, "list": _LIST}[shape]
    return (_HEAD + body + "});\n").replace("VARIANT", str(variant))


def every_other(job: Job, ahead: Ahead, prepared: str) -> bool:
    """About half of the runs, whichever they are; nothing is drawn for it."""
    return zlib.crc32(f"{job.source} {ahead.now_ms} {prepared}".encode()) % 2 == 0


class Stub:
    """Runs the same steps in Python; `tries` says in which runs `mutate` is tried right after `prepare`."""

    def __init__(self, tries: Callable[[Job, Ahead, str], bool] = every_other) -> None:
        self._tries = tries

    async def run(self, job: Job, host: Any) -> Ended:
        """One step."""
        found = re.search(r"// variant (\d+)", job.source)
        assert found, "the scripts of the simulation name their variant"
        step = _Step(job, host, int(found[1]))
        args = [None if arg is None else json.loads(arg) for arg in job.args]
        result = await getattr(step, f"{job.handler}_{job.step}")(*args)
        if isinstance(result, Ended):
            return result
        value = None if result is None else encode(result)
        return Ended(value, ahead=await self._ahead(job, step, value))

    async def _ahead(self, job: Job, step: _Step, returned: str | None) -> Operation | None:
        """The call with which `mutate` answers what `prepare` returned; None where the sandbox gives none."""
        if job.ahead is None or returned is None or not self._tries(job, job.ahead, returned):
            return None
        prepared = json.loads(returned)
        try:
            tried = await getattr(step, f"{job.handler}_{Step.MUTATE}")(prepared) if prepared["reservations"] else None
        except ScriptThrew:
            return None  # it throws again when it is run by itself, and is heard
        return tried and tried.mutation

    async def load(self, *script: Any) -> None:
        """There is nothing to load."""

    async def close(self) -> None:
        """Nothing to end."""


def book_of(id: str) -> str:
    """The book to which the routine of the shape "list" writes for an order."""
    return f"book {int(id[1:]) % 2}"


class _Step:
    def __init__(self, job: Job, host: StepHost, variant: int) -> None:
        self._job, self._host = job, host
        self.limit, self.broken, self.shared = variant % 3 + 1, 100 <= variant < 200, variant >= 200
        self.text, self.throws = TEXTS[variant % 10 % len(TEXTS)], variant // 10 % 10

    def _operation(self, name: str, *args: Any) -> Operation:
        kind = self._job.surface.kind(name)
        assert kind is not None, name
        return Operation(name, kind, args, Location(1, 1))

    async def ask(self, name: str, *args: Any) -> Any:
        reply: Reply = await self._host.answer(self._operation(name, *args))
        return reply.value

    async def poll_producer(self, state: Any) -> Any:
        seen = (state or {}).get("seen", 0)
        orders = await self.ask("orders.list", {})
        for id in orders[seen:]:
            entry = {"source": "orders", "type": "order", "id": id, "title": f"Order {id}"}
            input_id = await self.ask("registerInput", entry)
            if "books.enter" in self._job.source.replace("ctx.", ""):
                for topic in ("orders", "notes"):
                    payload = {"id": id, "to": f"book {int(id[1:]) % self.limit}"}
                    await self.ask("publish", topic, {"messageId": id, "inputId": input_id, "payload": payload})
                continue
            name = "newest" if self.shared else id
            await self.ask("publish", "orders", {"messageId": name, "inputId": input_id, "payload": {"id": id}})
        return {"seen": len(orders)}

    async def file_prepare(self, state: Any) -> Any:
        events = await self.ask("peek", "orders", {"limit": self.limit})
        ids = [event["messageId"] for event in events]
        unit = "+".join([event["payload"]["id"] for event in events] if self.shared else ids)
        return {"reservations": [{"topic": "orders", "ids": ids}], "data": {"unit": unit}, "ui": {"title": "File"}}

    async def file_mutate(self, prepared: Any) -> Any:
        if self.broken:
            raise ScriptThrew("Error: broken")
        return Ended(mutation=self._operation("rows.add", {"unit": prepared["data"]["unit"]}))

    async def file_next(self, prepared: Any, outcome: Any) -> Any:
        if self.broken:
            raise ScriptThrew("Error: broken")
        if outcome["status"] == "applied":
            result = outcome["result"]
            await self.ask("publish", "filed", {"messageId": result["id"], "payload": {"unit": result["unit"]}})
        return {"last": outcome["status"]}

    async def tell_prepare(self, state: Any) -> Any:
        events = await self.ask("peek", "filed", {"limit": 1})
        if not events:
            return {"reservations": [], "data": {}, "ui": {"title": "Nothing"}}
        [event] = events
        return {"reservations": [{"topic": "filed", "ids": [event["messageId"]]}],
                "data": {"unit": event["payload"]["unit"]}, "ui": {"title": "Tell"}}

    async def tell_mutate(self, prepared: Any) -> Any:
        return Ended(mutation=self._operation("hooks.fire", {"unit": prepared["data"]["unit"]}))

    async def work_routine(self, state: Any) -> Any:
        for id in await self.ask("orders.list", {}):
            item = await self.ask("withItem", id, f"Item {id}", "begin")
            if not item["isDone"]:
                row = await self.ask("rows.add", {"unit": f"item {id}"})
                if self.broken:
                    raise ScriptThrew("Error: broken")
                await self.ask("mails.send", {"unit": f"item {id}", "about": row["id"]})
                await self.ask("hooks.fire", {"unit": f"item {id}"})
            await self.ask("withItem", id, f"Item {id}", "end")
        return {"runs": (state or {}).get("runs", 0) + 1}


    async def list_routine(self, state: Any) -> Any:
        orders = await self.ask("orders.list", {})
        for id in orders[(state or {}).get("seen", 0):]:
            item = await self.ask("withItem", id, f"Item {id}", "begin")
            if not item["isDone"]:
                await self.ask("books.enter", {"unit": f"item {id}", "to": book_of(id)})
                if self.broken:
                    raise ScriptThrew("Error: broken")
                await self.ask("mails.send", {"unit": f"item {id}"})
            await self.ask("withItem", id, f"Item {id}", "end")
        return {"seen": len(orders)}

    async def write_routine(self, state: Any) -> Any:
        for id in await self.ask("orders.list", {}):
            begun = await self._host.answer(self._operation("withItem", id, f"Item {id}", "begin"))
            if not begun.value["isDone"]:  # type: ignore[index, call-overload]
                await self._write(f"item {id}", begun.fixed)
            await self.ask("withItem", id, f"Item {id}", "end")
        return {"runs": (state or {}).get("runs", 0) + 1}

    async def _write(self, unit: str, fixed: Fixed | None) -> None:
        assert fixed is not None, "an item has time and chance of its own"
        own = {"subkey": f"{fixed.now_ms} {random.Random(fixed.seed).random()}"}
        given: list[Any] = []
        for count, name in enumerate(CALLS):
            self._thrown(count)
            params = {"unit": unit, "text": self.text, "of": list(given), **({} if count else own)}
            given.append(await self.ask(name, params))
        self._thrown(len(CALLS))

    def _thrown(self, count: int) -> None:
        if self.throws == count:
            raise ScriptThrew(f"Error: thrown after {count}")


    # -- books -------------------------------------------------------------------------------------

    async def _first(self, topic: str, title: str) -> tuple[Any, Any]:
        events = await self.ask("peek", topic, {"limit": 1})
        if not events:
            return None, {"reservations": [], "data": {}, "ui": {"title": "Nothing"}}
        [event] = events
        taken = [{"topic": topic, "ids": [event["messageId"]]}]
        return event, {"reservations": taken, "data": event["payload"], "ui": {"title": title}}

    async def book_prepare(self, state: Any) -> Any:
        return (await self._first("orders", "Book"))[1]

    async def book_mutate(self, prepared: Any) -> Any:
        if self.broken:
            raise ScriptThrew("Error: broken")
        return self._entered("order", prepared)

    async def book_next(self, prepared: Any, outcome: Any) -> Any:
        if outcome["status"] == "applied":
            result = outcome["result"]
            await self.ask("publish", "booked", {"messageId": result["id"], "payload": {"unit": result["unit"]}})

    async def note_prepare(self, state: Any) -> Any:
        return (await self._first("notes", "Note"))[1]

    async def note_mutate(self, prepared: Any) -> Any:
        return self._entered("note", prepared)

    def _entered(self, kind: str, prepared: Any) -> Ended:
        data = prepared["data"]
        return Ended(mutation=self._operation("books.enter", {"unit": f"{kind} {data['id']}", "to": data["to"]}))

    async def count_prepare(self, state: Any) -> Any:
        event, result = await self._first("booked", "Count")
        if event is not None:
            result["data"] = {"unit": event["payload"]["unit"], "before": (state or {}).get("count", 0)}
        return result

    async def count_mutate(self, prepared: Any) -> Any:
        return Ended(mutation=self._operation("mails.send", {"unit": prepared["data"]["unit"]}))

    async def count_next(self, prepared: Any, outcome: Any) -> Any:
        return {"count": prepared["data"]["before"] + 1}


assert all(hasattr(_Step, f"{handler}_{step}") for handler, step in (
    ("poll", Step.PRODUCER), ("file", Step.PREPARE), ("file", Step.MUTATE), ("file", Step.NEXT),
    ("tell", Step.PREPARE), ("tell", Step.MUTATE), ("work", Step.ROUTINE), ("write", Step.ROUTINE),
    ("list", Step.ROUTINE),
))
