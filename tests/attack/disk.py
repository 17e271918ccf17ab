# ruff: noqa: E501 (an attack is read best on one line)
"""Scripts without any grant that try to fill the disk: by events, ids, titles, logs, state, and by time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from unittest.mock import AsyncMock, patch

from keepai import Policy
from keepai.engine import gate, runner
from keepai.model.errors import ScriptInvalid
from tests.attack.base import Area, Attack, Planted, must
from tests.harness import Story, producer, workflow
from tests.stories.test_budgets import FILL, FLOOD, FLOODS, on_disk, publishing

RUN_BYTES = 200_000
ROOM_BYTES = 1_000_000
#: A row costs more than what is counted of it, and SQLite's log more than its rows; without limits it would be hundreds.
LEDGER_BYTES = 24 << 20
SMALL = Policy(run_bytes_max=RUN_BYTES, workflow_bytes_max=ROOM_BYTES, trace_bytes_per_run_max=50_000)
INPUT = 'const inputId = ctx.registerInput({ source: "system", type: "random", id: "a" + (state?.n ?? 0), title: "x" });'
#: What a run may do to keep bytes; each is tried in as many runs as five hours have.
PARTS = {
    "events": INPUT + 'await ctx.publish("in", { messageId: "m" + (state?.n ?? 0), inputId, payload: "x".repeat(SIZE) });',
    "many small events": INPUT + 'for (let n = 0; n < SIZE / 50; n++) await ctx.publish("in", { messageId: `m${state?.n ?? 0}.${n}`, inputId, payload: n });',
    "inputs": 'for (let n = 0; n < SIZE / 400; n++) ctx.registerInput({ source: "system", type: "random", id: `i${state?.n ?? 0}.${n}`, title: "x".repeat(300) });',
    "log lines": 'for (let n = 0; n < SIZE / 100; n++) console.log("x".repeat(100));',
    "one event over and over": INPUT + 'for (let n = 0; n < 20; n++) await ctx.publish("in", { messageId: "m", inputId, payload: "x".repeat(SIZE / 20) + n });',
    "a state that grows": 'state = { ...state, x: (state?.x ?? "") + "x".repeat(SIZE) };',
    "a thrown text": 'if (SIZE > 40000) throw new Error("x".repeat(SIZE));',
}


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Path]:
    yield folder


def _fresh(folder: Path) -> Path:
    made = folder / str(len(list(folder.iterdir())))
    made.mkdir()
    return made


def attacks(folder: Path) -> Iterator[Attack]:
    yield Attack("five publishes to a hundred topics", lambda: _once(folder, publishing(FLOOD), Policy(), 1 << 20))
    for name, source in FLOODS.items():
        yield Attack(f"a run that floods the ledger with {name}", lambda source=source: _once(folder, source, Policy(run_bytes_max=10_000), 400_000))
    for name in PARTS:
        yield Attack(f"a workflow that fills the disk run by run with {name}", lambda name=name: _for_hours(folder, [name], 40_000, runs=20))
    yield Attack("a workflow that fills the disk run by run with payloads", lambda: _for_hours(folder, [FILL.replace("return { n };", "")], 0, 3 * ROOM_BYTES))


async def _once(folder: Path, source: str, policy: Policy, most: int) -> None:
    async with Story(_fresh(folder), policy=policy) as story:
        wf = await story.deploy(source, grants=None)
        before, begun = on_disk(story), time.process_time()
        await story.run()
        grown, took_s = on_disk(story) - before, time.process_time() - begun
        must(grown < most, f"one run made the ledger grow by {grown:,} bytes")
        must(took_s < 3, f"it held the host for {took_s:.1f} s of processor time")
        must(await story.events(wf) == [], "a part of it was kept")


async def _for_hours(folder: Path, parts: list[str], size: int, most: int = LEDGER_BYTES, runs: int = 40) -> None:
    bodies = [PARTS.get(part, part) for part in parts]
    body = f"const SIZE = {size}; {' '.join(f'{{ {each} }}' for each in bodies)} return {{ ...state, n: (state?.n ?? 0) + 1 }};"
    async with Story(_fresh(folder), policy=SMALL) as story:
        try:
            wf = await story.deploy(workflow("filling", topics=("in",), producers={"poll": producer(body)}), grants=None)
        except ScriptInvalid as error:
            raise AssertionError(f"the attack is no script: {json.dumps([str(each) for each in error.findings])}") from None
        before = on_disk(story)
        for _ in range(runs):
            await story.run(minutes=5)
            if await story.keep.needs_you(wf):
                break
        grown = on_disk(story) - before
        must(grown < most, f"the ledger grew by {grown:,} bytes, of {ROOM_BYTES:,} for the workflow")
        kept = (await story.workflow(wf)).bytes.total
        must(kept <= most, f"the ledger counts {kept:,} bytes for the workflow")
        await asyncio.sleep(0)


def drawn(folder: Path, chance: Random) -> Attack:
    """Several ways at once, and in any amount."""
    names = chance.sample(sorted(PARTS), chance.randint(1, 3))
    size = chance.choice([100, 5_000, 20_000, 60_000, 150_000, 500_000])
    return Attack(f"a workflow that fills the disk with {', '.join(names)} of {size:,}", lambda: _for_hours(folder, names, size))


AREA = Area(
    "disk", "the disk, by scripts without a grant", place, attacks, drawn,
    (
        Planted("a workflow has room without end", lambda: patch.object(runner, "_check_room", AsyncMock()), "run by run with payloads"),
        Planted("a run may keep what it likes", lambda: patch.object(gate.Gate, "_spend", lambda *_: None), "a run that floods"),
    ),
)
