"""A routine of three mutations per item, the office that it works in, and the same routine without a sandbox.

The script is written twice: as JavaScript, and as `Stub`, a runtime that does in Python what the script says. Both
read the plan in the script's first line, so that a version can be told from another. `test_items.py` shows that the
two do the same.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keepai import Call, Connector, Verdict, mutation
from keepai.model.codec import Json, encode
from keepai.model.errors import Location, ScriptThrew
from keepai.model.operations import Kind
from keepai.runtime.base import Ended, Fixed, Job, LogLine, Operation, StepHost
from keepai.testing import World

CALLS = ("add", "tell", "ring")  #: the mutations of an item, in order


@dataclass(frozen=True)
class Plan:
    """What one version of the script does."""

    text: str = "hello"  # the content of what it sends
    throws: int | None = None  # after how many mutations of an item it throws
    number: int = 0  # tells versions apart

    def script(self) -> str:
        """The version's source."""
        return f"const PLAN = {json.dumps(asdict(self))};\n{_SCRIPT}"


_SCRIPT = """
const throwAfter = (count) => { if (PLAN.throws === count) throw new Error(`thrown after ${count}`); };
export default Keep.workflow({ name: "office", routines: { work: { schedule: { interval: "5m" },
  handler: async (ctx, state) => {
    for (const item of await ctx.feed.list({})) {
      await ctx.withItem(item.id, `Item ${item.id}`, async (ctx) => {
        if (ctx.item.isDone) return;
        const subkey = `${Date.now()} ${Math.random()}`;
        throwAfter(0);
        const row = await ctx.office.add({ item: item.id, text: PLAN.text, subkey });
        ctx.log(JSON.stringify([item.id, "add", row]));
        throwAfter(1);
        const mail = await ctx.office.tell({ item: item.id, text: PLAN.text, of: row.id });
        ctx.log(JSON.stringify([item.id, "tell", mail]));
        throwAfter(2);
        const bell = await ctx.office.ring({ item: item.id, text: PLAN.text, of: [row.id, mail.id] });
        ctx.log(JSON.stringify([item.id, "ring", bell]));
        throwAfter(3);
      });
    }
    return { n: (state?.n ?? 0) + 1 };
  } } } });
"""
_AT = Location(1, 1)


class Stub:
    """A runtime that runs the routine above without a sandbox."""

    async def run(self, job: Job, host: StepHost) -> Ended:
        """One step."""
        plan = Plan(**json.loads(job.source.partition("\n")[0].removeprefix("const PLAN = ").rstrip(";")))
        for item in _objects((await host.answer(_read("feed.list"))).value):
            await _item(host, plan, str(item["id"]))
        before = json.loads(job.args[0]) if job.args[0] else {}
        return Ended(encode({"n": before.get("n", 0) + 1}))

    async def load(self, *script: Any) -> None:
        """There is nothing to load."""

    async def close(self) -> None:
        """There is nothing to end."""


async def _item(host: StepHost, plan: Plan, name: str) -> None:
    reply = await host.answer(_border(name, "begin"))
    opened: Any = reply.value
    if not opened["isDone"]:
        ids: list[Json] = []
        subkeys: dict[str, dict[str, Json]] = {"add": {"subkey": _stamp(reply.fixed)}}
        for count, call in enumerate(CALLS):
            _throw_after(plan, count)
            of: dict[str, Json] = {} if not ids else {"of": ids[0] if len(ids) == 1 else list(ids)}
            params: dict[str, Json] = {"item": name, "text": plan.text, **of, **subkeys.get(call, {})}
            got: Any = (await host.answer(Operation(f"office.{call}", Kind.MUTATION, (params,), _AT))).value
            host.log(LogLine("info", _json([name, call, got])))
            ids.append(got["id"])
        _throw_after(plan, len(CALLS))
    await host.answer(_border(name, "end"))


def _stamp(fixed: Fixed | None) -> str:
    """Time and chance as the item sees them."""
    assert fixed is not None, "an item has time and chance of its own"
    return f"{fixed.now_ms} {random.Random(fixed.seed).random()}"


def _throw_after(plan: Plan, count: int) -> None:
    if plan.throws == count:
        raise ScriptThrew(f"Error: thrown after {count}", at=_AT)


def _read(name: str) -> Operation:
    return Operation(name, Kind.READ, ({},), _AT)


def _border(name: str, which: str) -> Operation:
    return Operation("withItem", Kind.WITH_ITEM, (name, f"Item {name}", which), _AT)


def _objects(value: Json) -> list[dict[str, Json]]:
    return value  # type: ignore[return-value]


def _json(value: object) -> str:
    """As JSON.stringify writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Desks(Connector):
    """`office`: what all offices can do. Every effect has a result of its own."""

    name = "office"

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.on_effect: Callable[[str, str], None] = lambda call, item: None

    async def act(self, call: str, params: dict[str, Any], made: Call) -> Any:
        """Take effect, as the world's plan for this call says."""
        def take_effect() -> Json:
            self.on_effect(call, params["item"])
            return {"id": f"{call}-{len(self.world.effects) + 1}", "é": [0.5, None, {"z": 1, "a": "„“ 🎉"}]}
        return await self.world.act(f"office.{call}", params, made, take_effect)

    async def look(self, call: str, params: dict[str, Any], made: Call) -> Verdict:
        """What became of a call."""
        return await self.world.judge(f"office.{call}", params, made)


def compared(old: Any, new: Any) -> Any:
    """A text in other letters matters little, another text a lot."""
    before, now = str(old["text"]), str(new["text"])
    if old.get("of") != new.get("of"):
        return "significant"
    return "equivalent" if before == now else "minor" if before.lower() == now.lower() else "significant"


class Office(_Desks):
    """All three can be looked up."""

    @mutation(identity=("item",), target="item", settle=0)
    async def add(self, params: dict[str, Any], call: Call) -> Any:
        """Add a row."""
        return await self.act("add", params, call)

    @add.reconcile
    async def find_row(self, params: dict[str, Any], call: Call) -> Verdict:
        """Look for the row."""
        return await self.look("add", params, call)

    @add.compare_payload
    def same_row(self, old: Any, new: Any) -> Any:
        """Compare two rows."""
        return compared(old, new)

    @mutation(identity=("item",), target="item", settle=0)
    async def tell(self, params: dict[str, Any], call: Call) -> Any:
        """Send a mail."""
        return await self.act("tell", params, call)

    @tell.reconcile
    async def find_mail(self, params: dict[str, Any], call: Call) -> Verdict:
        """Look for the mail."""
        return await self.look("tell", params, call)

    @tell.compare_payload
    def same_mail(self, old: Any, new: Any) -> Any:
        """Compare two mails."""
        return compared(old, new)

    @mutation(identity=("item",), target="item", settle=0)
    async def ring(self, params: dict[str, Any], call: Call) -> Any:
        """Ring a bell."""
        return await self.act("ring", params, call)

    @ring.reconcile
    async def find_ring(self, params: dict[str, Any], call: Call) -> Verdict:
        """Ask who heard it."""
        return await self.look("ring", params, call)

    @ring.compare_payload
    def same_ring(self, old: Any, new: Any) -> Any:
        """Compare two rings."""
        return compared(old, new)


class BlindOffice(Office):
    """Nobody can say whether the bell rang."""

    name = "office"

    @mutation(identity=("item",), target="item", settle=0)
    async def ring(self, params: dict[str, Any], call: Call) -> Any:  # type: ignore[override]
        """Ring a bell."""
        return await self.act("ring", params, call)

    @ring.compare_payload
    def alike(self, old: Any, new: Any) -> Any:
        """Compare two rings."""
        return compared(old, new)


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder that need not be on a disk, where the machine has such."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="keep-items-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
