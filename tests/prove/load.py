"""Load: many workflows, many events in the file, one poisonous workflow among many.

What is judged is results: everything due is done, nothing is lost, the file is sound, the same number of statements
decides what is due whatever is in the file, and none of them scans a table that grows. Seconds are printed beside a
calibration of the same run and judged by bounds so wide that only a wrong order of growth can meet them.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from keepai import Keep, Policy
from keepai.ledger.base import Tx
from keepai.ledger.checks import check
from keepai.ledger.queries import load
from keepai.ledger.sqlite.connection import Statements, Transaction
from keepai.ledger.transitions import runs
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.runs import Begin, ConsumerEnd, Prepared
from keepai.model.clock import Clock, SystemClock
from keepai.model.states import Phase
from keepai.testing import ManualClock, World
from tests.harness import Feed, consumer, producer, take_all, views, workflow
from tests.prove.base import Result, rounds

#: Budget in seconds from which on a size is tried → (workflows, events).
SIZES = {0: (30, 3_000), 60: (200, 50_000), 300: (1_000, 1_000_000)}
FEW = 1_000  # events that the figures are compared with
BATCH = 5_000
RATIO_MAX = 5.0  # of the time for a decision or a run, with many events against few
SLACK_S = 0.05  # below which a ratio says nothing
POISON_RATIO_MAX = 15.0
POISON_SLACK_S = 10.0

#: Tables that grow with the work.
GROWING = (
    "event",
    "event_cause",
    "event_revision",
    "input",
    "run",
    "reservation",
    "mutation",
    "trace",
    "account",
    "account_subject",
    "action",
    "item",
    "item_run",
    "approval",
    "repair",
)


@dataclass
class Judged:
    """What a part found, and its figures."""

    broken: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)

    def ratio(self, what: str, few: float, many: float) -> None:
        """Keep a figure; one that grows with what is in the file is broken."""
        self.figures[what] = f"{many * 1000:.2f} ms ({few * 1000:.2f} with few)"
        if many > RATIO_MAX * few + SLACK_S:
            self.broken.append(f"{what} takes {many:.3f} s, {few:.3f} s with few")


def run(seconds: float, first: int, only: str | None) -> Result:
    """Each part once, as large as there is time for."""
    result = Result("load", "events")
    seed = next(rounds(0, first, only))
    workflows, events = SIZES[max(least for least in SIZES if least <= seconds)]
    with tempfile.TemporaryDirectory(prefix="keep-load-") as folder:
        parts = [
            asyncio.run(part(Path(folder)))
            for part in (
                lambda home: many_workflows(home / "flows.db", workflows),
                lambda home: many_events(home / "events.db", events),
                lambda home: poisoned(home, max(workflows // 20, 8)),
            )
        ]
    result.tried = events
    result.note = "; ".join(f"{what}: {told}" for part in parts for what, told in part.figures.items())
    for part in parts:
        for what in part.broken:
            result.broke(seed, what)
    return result


# What happens with one workflow


def script(name: str) -> str:
    """Takes what the feed has and files it, one mutation each."""
    return workflow(
        name,
        producers={"poll": producer(interval="1h")},
        consumers={
            "take": consumer(
                mutate='await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.messageId] });'
            )
        },
    )


class Desk:
    """A host on a file, its feed, and a clock to move, or the system's."""

    def __init__(self, path: Path, clock: Clock | None = None, **policy: Any) -> None:
        self.clock, self.feed, self.path = clock or ManualClock(), Feed(), path
        self.world, self._policy = World(self.clock), Policy(**policy)

    def keep(self) -> Keep:
        """A new host."""
        return Keep(self.path, connectors=[*self.world.connectors(), self.feed], policy=self._policy, clock=self.clock)

    async def once(self, keep: Keep, item: str) -> float:
        """Seconds from a new thing in the feed until it is filed everywhere."""
        self.feed.items = [{"id": item, "payload": {}}]
        self.clock.advance(hours=1)
        began = time.perf_counter()
        await keep.run_until_idle()
        return time.perf_counter() - began


# Many workflows


async def many_workflows(path: Path, count: int) -> Judged:
    """All of them run; then a host is started on them, and one works beside all the others."""
    judged, desk = Judged(), Desk(path)
    desk.feed.put("a", {})
    async with desk.keep() as keep:
        began = time.perf_counter()
        ids = [(await keep.deploy(script(f"w{n}"), grants="all")).workflow_id for n in range(count)]
        deployed = time.perf_counter()
        await keep.run_until_idle()
        ran = time.perf_counter()
        undone = [wf for wf in ids if [e.status for e in await keep.events(wf, "in")] != ["consumed"]]
        judged.broken += [f"{len(undone)} of {count} workflows did not file their event"] if undone else []
        alone = statistics.median([await _timed(keep.host._is_due, wf) for wf in ids[:50]])
    judged.figures |= {
        f"{count:,} workflows, each": f"deployed in {(deployed - began) / count * 1000:.1f} ms",
        "run once": f"in {(ran - deployed) / count * 1000:.1f} ms",
        "to decide about one": f"{alone * 1000:.2f} ms",
    }
    await _restarted(desk, judged, f"restart with {count:,} workflows")
    judged.broken += unsound(path)
    return judged


async def _restarted(desk: Desk, judged: Judged, what: str) -> None:
    """Seconds from opening the file to the first committed run."""
    desk.feed.put("after", {})
    desk.clock.advance(hours=2)
    began = time.perf_counter()
    async with desk.keep() as keep:
        ready = time.perf_counter()
        before = {wf.id for wf in await keep.workflows()}
        serving = asyncio.create_task(keep.serve())
        while not any(
            run.trigger != "deploy" and run.created_at >= desk.clock.now_ms() and run.status == "committed"
            for wf in list(before)[:1]
            for run in views(keep).newest_runs(wf, last=1)
        ):
            await asyncio.sleep(0.002)
            if time.perf_counter() - began > 120:
                judged.broken.append(f"{what}: no run was committed within two minutes")
                break
        first = time.perf_counter()
        serving.cancel()
    judged.figures[what] = f"open in {ready - began:.2f} s, first run after {first - began:.2f} s"


def _mebibytes(path: Path) -> str:
    return f"{path.stat().st_size / (1 << 20):,.0f} MiB"


async def _timed(act: Callable[..., Awaitable[object]], *args: object) -> float:
    began = time.perf_counter()
    await act(*args)
    return time.perf_counter() - began


# Many events


async def many_events(path: Path, count: int) -> Judged:
    """One workflow with ever more behind it; what is decided, run and looked at must not cost more."""
    judged, desk = Judged(), Desk(path)
    async with desk.keep() as keep:
        wf = str((await keep.deploy(script("bulk"), grants="all")).workflow_id)
        await keep.run_until_idle()
        few = await _measured(desk, keep, wf, min(FEW, count // 3), "few")
        began = time.perf_counter()
        many = await _measured(desk, keep, wf, count, "many")
        judged.figures[f"{count:,} events put in by the ledger's verbs"] = (
            f"{(time.perf_counter() - began) / count * 1e6:.0f} µs each"
        )
        for what in few:
            judged.ratio(what, few[what], many[what])
        waiting = await keep.events(wf, "in", "pending")
        judged.broken += [f"{len(waiting)} events wait that were taken"] if waiting else []
    judged.figures["file"] = _mebibytes(path)
    await _restarted(desk, judged, f"restart with {count:,} events")
    began = time.perf_counter()
    judged.broken += unsound(path)
    judged.figures["keep db check"] = f"{time.perf_counter() - began:.0f} s"
    return judged


async def _measured(desk: Desk, keep: Keep, wf: str, until: int, name: str) -> dict[str, float]:
    """Fill up to so many events, all of them taken, then measure."""
    for first in range(0, until, BATCH):
        await keep.parts.ledger.write(bulk, wf, f"{name}-{first}", min(BATCH, until - first))
    await desk.once(keep, f"{name}-warm")
    return {
        "a decision": statistics.median([await _timed(keep.host._is_due, wf) for _ in range(30)]),
        "an event from feed to sheet": statistics.median([await desk.once(keep, f"{name}-{n}") for n in range(5)]),
        "keep status": statistics.median([await _timed(keep.workflows) for _ in range(5)]),
        "keep todo": statistics.median([await _timed(keep.needs_you) for _ in range(5)]),
    }


def bulk(tx: Tx, workflow_id: str, name: str, count: int) -> None:
    """A producer's run that brought many events, and the runs that took them: the verbs of a host, without a script."""
    run = runs.begin(tx, Begin(workflow_id, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule"))
    inputs = [Registration(tx.new_id("inp"), "feed", "item", f"{name}.{n}", f"Item {n}") for n in range(count)]
    events = [Publication("in", entry.external_id, '{"n":1}', (entry.input_id,)) for entry in inputs]
    runs.commit_producer(tx, run, inputs, events, None, tx.now + 3_600_000, [])
    for first in range(0, count, 1000):
        taking = runs.begin(tx, Begin(workflow_id, "take", "consumer", (1, 0), Phase.PREPARING, "event"))
        wanted = [("in", event.message_id) for event in events[first : first + 1000]]
        prepared, _ = runs.prepare(tx, taking, Prepared(tx.now, '{"data":{},"reservations":[]}', wanted), [])
        emitting = runs.advance(tx, prepared, Phase.EMITTING, '{"status":"none"}')
        runs.commit_consumer(tx, emitting, ConsumerEnd())


def unsound(path: Path) -> list[str]:
    """What `keep db check` says that is not sound."""
    connection = apsw.Connection(str(path))
    try:
        return [f"{found.name}: {found.said}" for found in check(Statements(connection)) if not found.sound]
    finally:
        connection.close()


# Statements


@contextmanager
def statements() -> Iterator[Counter[str]]:
    """Counts by name what is executed meanwhile."""
    made: Counter[str] = Counter()
    reads, writes = Statements.all, Transaction.run

    def read(self: Statements, query: str, **params: object) -> Any:
        made[query] += 1
        return reads(self, query, **params)

    def write(self: Transaction, query: str, **params: object) -> int:
        made[query] += 1
        return writes(self, query, **params)

    Statements.all, Transaction.run = read, write  # type: ignore[method-assign]
    try:
        yield made
    finally:
        Statements.all, Transaction.run = reads, writes  # type: ignore[method-assign]


def scans(path: Path, names: set[str]) -> list[str]:
    """Statements that go through a whole table that grows, or through all that a workflow has in it.

    An index that holds a few open rows alone may be gone through, and so may a statement with a limit."""
    connection = apsw.Connection(str(path))
    partial = {row[0] for row in connection.execute("select name from sqlite_schema where sql like 'create % where %'")}
    try:
        return [f"{name}: {step}" for name in sorted(names) for step in _steps(connection, load()[name], partial)]
    finally:
        connection.close()


class _Nothing(dict[str, None]):
    def __missing__(self, key: str) -> None:
        return None


def _steps(connection: apsw.Connection, text: str, partial: set[str]) -> list[str]:
    if " limit :" in text:
        return []
    growing = {alias or table for table, alias in _TABLES.findall(text)} | set(GROWING)
    steps = [str(row[3]) for row in connection.execute(f"explain query plan {text}", _Nothing())]
    through = [step for step in steps if step.startswith("SCAN") or step.endswith("(workflow_id=?)")]
    return [step for step in through if step.split()[1] in growing and not partial.intersection(step.split())]


_TABLES = re.compile(
    rf"\b(?:from|join|update|into)\s+({'|'.join(GROWING)})\b(?:\s+(?!where|set|on|cross|join|order|group)(\w+))?"
)


# Poison

_WELL = producer(interval="1h")
POISONS = {
    "throws": producer('throw new Error("poison");', interval="1s"),
    "loops": producer("for (;;) {}", interval="1s"),
    "floods": producer(
        """
  const inputId = ctx.registerInput({ source: "feed", type: "item", id: "flood", title: "Flood" });
  for (let n = 0; n < 2000; n++) await ctx.publish("in", { messageId: `${state?.n ?? 0}-${n}`, inputId, payload: {} });
  return { n: (state?.n ?? 0) + 1 };
""",
        interval="1s",
    ),
}


async def poisoned(home: Path, count: int) -> Judged:
    """Others get on as they would without it."""
    judged = Judged()
    alone = await _others(home / "alone.db", count, None)
    judged.figures[f"{count} workflows side by side"] = f"{alone:.2f} s"
    for name, poison in POISONS.items():
        taken = await _others(home / f"{name}.db", count, poison)
        judged.figures[f"beside one that {name}"] = f"{taken:.2f} s" if taken is not None else "not done"
        if taken is None or alone is None or taken > POISON_RATIO_MAX * alone + POISON_SLACK_S:
            judged.broken.append(
                f"beside a workflow that {name}, {count} others are not done in time ({taken} s, {alone} s alone)"
            )
    return judged


async def _others(path: Path, count: int, poison: str | None) -> float | None:
    """Seconds until so many workflows have filed three things each; None if that takes far too long."""
    desk = Desk(path, SystemClock(), script_s=2, retry_first_s=0.05)
    for n in range(3):
        desk.feed.put(f"t{n}", {})
    async with desk.keep() as keep:
        if poison is not None:
            takes = consumer(take_all("in"), next='ctx.log("taken");')
            bad = (
                await keep.deploy(
                    workflow("poison", producers={"poll": poison}, consumers={"take": takes}), grants="all"
                )
            ).workflow_id
        ids = [str((await keep.deploy(script(f"w{n}"), grants="all")).workflow_id) for n in range(count)]
        began, serving = time.perf_counter(), asyncio.create_task(keep.serve())
        while not all(len(views(keep).events(wf, "in", "consumed")) == 3 for wf in ids):
            if poison is not None:
                await _again(keep, str(bad))
            if serving.done() or time.perf_counter() - began > 120:
                return None
            await asyncio.sleep(0.02)
        taken = time.perf_counter() - began
        serving.cancel()
    return taken


async def _again(keep: Keep, bad: str) -> None:
    """Whoever owns the poison never learns: it is tried again at once."""
    for question in await keep.needs_you(bad):
        if "retry" in question.actions:
            await keep.retry(question.run_id)
