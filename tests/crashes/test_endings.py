"""Hosts that end in other ways than by SIGKILL: closed in the middle, cut off, stopped by their own ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keepai import Keep
from keepai.testing import CrashAt, Crashed, World
from tests.crashes.driver import SCRIPTS
from tests.crashes.invariants import violations
from tests.ledger.stores import place_in


def world_with(mails: int) -> World:
    world = World()
    for number in range(mails):
        world.deliver(from_=f"ann{number}@example.com", subject=f"s{number}")
    return world


def host(path: Path | str, world: World) -> Keep:
    return Keep(path, connectors=world.connectors(), clock=world.clock)


async def deploy(keep: Keep, way: str = "straight") -> str:
    return (await keep.deploy(SCRIPTS[way], grants="all")).workflow_id


async def drain(path: Path | str, world: World) -> None:
    async with host(path, world) as keep:
        for _ in range(6):
            await keep.run_until_idle()
            world.clock.advance(minutes=1)  # type: ignore[attr-defined]


def rows_written(world: World) -> list[object]:
    return [effect.params["values"] for effect in world.effects_of("sheets.appendRow")]


def called(world: World, operation: str) -> asyncio.Event:
    """Set when the operation is first called."""
    event = asyncio.Event()
    world.on(operation).before(lambda params, call: event.set())
    return event


@pytest.mark.parametrize("way", SCRIPTS)
@pytest.mark.parametrize("applied", [True, False])
async def test_a_call_that_was_cut_off_is_in_doubt_even_if_its_host_then_closed_in_order(
    tmp_path: Path, applied: bool, way: str,
) -> None:
    path, world = place_in(tmp_path), world_with(1)
    world.on("sheets.appendRow").hang(applied=applied)
    sent = called(world, "sheets.appendRow")
    async with host(path, world) as keep:
        workflow_id = await deploy(keep, way)
        running = asyncio.ensure_future(keep.run_until_idle())
        await asyncio.wait_for(sent.wait(), 20)
        for lane in list(keep.host._lanes.values()):
            lane.cancel()
        await asyncio.wait({running}, timeout=5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert violations(path) == []
    await drain(path, world)
    assert rows_written(world) == [["ann0@example.com", "s0"]], "it is never sent again on a guess"
    assert violations(path) == []
    async with host(path, world) as keep:
        assert [event.status for event in await keep.events(workflow_id, topic="email.received")] == ["consumed"]


@pytest.mark.parametrize("way", SCRIPTS)
async def test_closing_in_the_middle_lets_the_call_end_and_starts_nothing_more(tmp_path: Path, way: str) -> None:
    path, world = place_in(tmp_path), world_with(3)
    world.on("sheets.appendRow").hang()
    sent = called(world, "sheets.appendRow")
    keep = host(path, world)
    await keep.__aenter__()
    await deploy(keep, way)
    running = asyncio.ensure_future(keep.run_until_idle())
    await asyncio.wait_for(sent.wait(), 20)
    closing = asyncio.ensure_future(keep.close())
    await asyncio.sleep(0.05)
    world.release()
    await asyncio.gather(closing, running, return_exceptions=True)
    assert world.count("sheets.appendRow") == 1
    assert violations(path) == []
    await drain(path, world)
    assert rows_written(world) == [[f"ann{n}@example.com", f"s{n}"] for n in range(3)]
    assert world.count("sheets.appendRow") == 3, "an orderly end interrupts nothing"


async def test_hosts_that_end_in_order_do_not_count_as_crashes(tmp_path: Path) -> None:
    path, world = place_in(tmp_path), world_with(1)
    for _ in range(5):
        async with host(path, world) as keep:
            workflow_id = await deploy(keep)
    await drain(path, world)
    async with host(path, world) as keep:
        assert {run.status for run in await keep.runs(workflow_id)} == {"committed"}


POINTS = {
    "straight": ["before:prepare_and_send", "after:prepare_and_send", "after:call", "before:commit_consumer"],
    "apart": ["before:prepare", "after:prepare", "before:send", "after:send", "after:call", "before:commit_consumer"],
}


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(("way", "point"), [(way, point) for way in SCRIPTS for point in POINTS[way]])
async def test_a_host_whose_code_breaks_off_leaves_what_a_killed_one_leaves(
    tmp_path: Path, way: str, point: str, nth: int,
) -> None:
    """The same as with SIGKILL, in one process: what `CrashAt` promises to whoever writes tests."""
    path, world = place_in(tmp_path), world_with(2)
    async def live() -> None:
        async with host(path, world) as keep:
            await deploy(keep, way)
            await keep.run_until_idle()

    with CrashAt(point, nth=nth) as crash, pytest.raises(Crashed):
        await live()
    assert crash.crashed
    assert crash.reached[-1] == point
    await drain(path, world)
    assert violations(path) == []
    assert rows_written(world) == [["ann0@example.com", "s0"], ["ann1@example.com", "s1"]]
