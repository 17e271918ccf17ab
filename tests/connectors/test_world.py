"""The tools for tests: the clock moves, outside systems fail on demand, crashes happen where they should."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from keepai.connectors.base import Call, OperationSpec, surface
from keepai.model import crash_points
from keepai.model.clock import iso
from keepai.model.errors import OutcomeUnknown, PreconditionFailed, Transient
from keepai.testing import CrashAt, Crashed, ManualClock, World
from tests.connectors.cases import SOURCE

ROW: Any = {"spreadsheetId": "s", "values": [1]}


def operation(world: World, name: str) -> OperationSpec:
    connector, _, rest = name.partition(".")
    return next(c for c in world.connectors() if c.name == connector).operations[rest]


async def append(world: World, key: str = "k") -> Any:
    return await operation(world, "sheets.appendRow").invoke(ROW, Call(idempotency_key=key))


def test_the_clock_advances_both_readings_and_jumps_only_the_wall() -> None:
    clock = ManualClock("2026-01-05T09:00:00Z")
    steady = clock.steady_ms()
    clock.advance(days=1, hours=1, minutes=1, seconds=1, ms=1)
    assert iso(clock.now_ms()) == "2026-01-06T10:01:01.001Z"
    assert clock.steady_ms() - steady == 90_061_001
    clock.jump(days=-365)
    assert iso(clock.now_ms()) == "2025-01-06T10:01:01.001Z"
    assert clock.steady_ms() - steady == 90_061_001
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(seconds=-1)


async def test_an_unscripted_world_works_and_keeps_what_took_effect() -> None:
    world = World(ManualClock("2026-01-05T09:00:00Z"))
    world.deliver(from_="bob@example.com", subject="Invoice")
    page: Any = await operation(world, "gmail.search").invoke({}, Call())
    assert (page[0]["from"], page.fields["lastCursor"]) == ("bob@example.com", "1")
    again: Any = await operation(world, "gmail.search").invoke({"after": "1"}, Call())
    assert (list(again), again.fields["lastCursor"]) == ([], "1")
    assert await append(world) == {"rowId": "row-1", "row": 1}
    (effect,) = world.effects
    assert (effect.operation, effect.params, effect.idempotency_key) == ("sheets.appendRow", ROW, "k")
    assert iso(effect.at) == "2026-01-05T09:00:00.000Z"
    row: Any = await operation(world, "sheets.getRow").invoke(
        {"spreadsheetId": "s", "rowId": "row-1"}, Call()
    )
    assert row["values"] == [1]


def test_the_webhook_is_blind_and_the_others_can_look() -> None:
    kinds = surface(World().connectors()).operations
    assert set(kinds) == {"gmail", "sheets", "webhook"}
    world = World()
    assert not operation(world, "webhook.fire").can_reconcile
    assert operation(world, "gmail.send").can_reconcile


async def test_failures_come_in_order_and_end() -> None:
    world = World()
    world.on("sheets.appendRow").fail(Transient("busy"), times=2).raise_(RuntimeError("boom"))
    for expected in (Transient, Transient, RuntimeError):
        with pytest.raises(expected):
            await append(world)
    assert world.effects == []
    await append(world)
    assert (len(world.effects), world.count("sheets.appendRow")) == (1, 4)


async def test_a_lost_answer_took_effect_and_reconcile_finds_it() -> None:
    world = World()
    world.on("sheets.appendRow").lose_answer()
    with pytest.raises(OutcomeUnknown):
        await append(world)
    verdict = await operation(world, "sheets.appendRow").reconcile(ROW, Call(idempotency_key="k"))
    assert (verdict.status, verdict.result) == ("applied", {"rowId": "row-1", "row": 1})
    other = await operation(world, "sheets.appendRow").reconcile(ROW, Call(idempotency_key="other"))
    assert other.status == "failed"


async def test_a_late_request_lands_when_the_test_says_so() -> None:
    world, event = World(), asyncio.Event()
    world.on("sheets.appendRow").apply_late().apply_late(event)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await append(world)
    assert world.effects == []
    assert (world.land(), len(world.effects), world.land()) == (1, 1, 0)
    event.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(world.effects) == 2


async def test_a_hang_ends_by_cancel_or_by_release() -> None:
    world = World()
    world.on("sheets.appendRow").hang(times=2)
    first, second = asyncio.create_task(append(world)), asyncio.create_task(append(world))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert world.effects == []
    world.release()
    await second
    assert len(world.effects) == 1


async def test_a_stubborn_hang_outlives_its_cancel() -> None:
    world = World()
    world.on("sheets.appendRow").hang(stubborn=True, applied=True)
    task = asyncio.create_task(append(world))
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=0.01)
    assert not done
    world.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(world.effects) == 1


async def test_reconcile_says_what_it_is_told() -> None:
    world = World()
    world.on_reconcile("sheets.appendRow").found({"rowId": "x"}).not_found().retry(5).unknown("no").fail(
        OSError("x")
    )
    spec = operation(world, "sheets.appendRow")
    told = [await spec.reconcile(ROW, Call(idempotency_key="k")) for _ in range(4)]
    assert [verdict.status for verdict in told] == ["applied", "failed", "retry", "unknown"]
    with pytest.raises(OSError, match="x"):
        await spec.reconcile(ROW, Call(idempotency_key="k"))
    assert (await spec.reconcile(ROW, Call(idempotency_key="k"))).status == "failed"


async def test_a_callback_runs_before_each_call() -> None:
    world, seen = World(), []

    async def before(params: Any, call: Call) -> None:
        seen.append((params, call.idempotency_key))

    world.on("sheets.appendRow").before(before).before(lambda params, call: seen.append("plain"))
    await append(world)
    assert seen == [(ROW, "k"), "plain"]


async def test_a_world_that_honours_keys_has_one_effect_per_key() -> None:
    world = World(honours_keys=True)
    assert await append(world) == await append(world)
    assert len(world.effects) == 1


async def test_a_refused_effect_is_not_kept() -> None:
    world = World()
    with pytest.raises(PreconditionFailed):
        await operation(world, "sheets.updateRow").invoke({"spreadsheetId": "s", "rowId": "x"}, Call())
    assert world.effects == []


def test_a_crash_comes_at_the_named_arrival_and_at_every_point_after_it() -> None:
    with CrashAt("b", nth=2) as crash:
        for name in ("a", "b", "a"):
            crash_points.reach(name)
        with pytest.raises(Crashed):
            crash_points.reach("b")
        with pytest.raises(Crashed):
            crash_points.reach("c")
    crash_points.reach("b")
    assert crash.crashed
    assert crash.reached == ["a", "b", "a", "b"]


#: Does what the environment wishes, in a fork for each: how far it came, and how it ended.
LIVES = """
import os, sys
from keepai.model import crash_points
from keepai.testing import install_from_env
for wish in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os.environ["KEEP_CRASH_AT"] = wish
        install_from_env()
        for n in (1, 2, 3):
            os.write(1, str(n).encode())
            crash_points.reach("a")
            crash_points.reach("b")
        os._exit(0)
    os.write(1, f" {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n".encode())
"""


def test_a_process_kills_itself_where_the_environment_says() -> None:
    expected = {"b": "1 -9", "b:2": "12 -9", "": "123 0", "x:y": "123 0"}
    done = subprocess.run(
        [sys.executable, "-c", LIVES, *expected], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True,
        timeout=60, check=False)
    assert dict(zip(expected, done.stdout.splitlines(), strict=True)) == expected, done.stderr
