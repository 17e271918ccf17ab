"""The line in which steps wait for a worker: nobody is passed over, and no slot is lost, whoever is cut off."""

from __future__ import annotations

import asyncio

import pytest

from keepai.runtime.javascript.slots import Slots


async def _waiting(slots: Slots, said: list[str], name: str) -> None:
    await slots.wait()
    said.append(name)


def _line(slots: Slots, said: list[str], names: str) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(_waiting(slots, said, name)) for name in names]


async def test_a_slot_is_handed_to_who_waited_longest() -> None:
    slots, said = Slots(1), list[str]()
    assert slots.take()
    assert not slots.take()
    line = _line(slots, said, "abc")
    await asyncio.sleep(0)
    for _ in line:
        slots.leave()
        assert not slots.take(), "it belongs to the one that waits, though that has not woken yet"
        await asyncio.sleep(0)
    assert said == ["a", "b", "c"]
    slots.leave()
    assert slots.take()


async def test_who_was_cut_off_in_line_is_passed_over() -> None:
    slots, said = Slots(1), list[str]()
    assert slots.take()
    first, _ = _line(slots, said, "ab")
    await asyncio.sleep(0)
    first.cancel()
    slots.leave()
    await asyncio.sleep(0)
    assert said == ["b"]


@pytest.mark.parametrize("others", ["", "b"])
async def test_a_slot_handed_to_who_is_cut_off_at_that_moment_goes_on(others: str) -> None:
    slots, said = Slots(1), list[str]()
    assert slots.take()
    first, *_ = _line(slots, said, "a" + others)
    await asyncio.sleep(0)
    slots.leave()
    first.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert first.cancelled()
    assert said == list(others)
    assert slots.take() is not bool(others)
