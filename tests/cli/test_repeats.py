"""What Python's logging says while a host runs: each kind of line once, and then how many more came."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from keepai.doors import log_repeats
from keepai.doors.log_repeats import KINDS_MAX, LINE_MAX, RepeatCounter, repeats_counted

LOG = logging.getLogger("some.library")


async def test_lines_that_repeat_are_counted_and_not_written() -> None:
    told: list[str] = []
    with repeats_counted(told.append):
        for number in range(4_113):
            LOG.error("No connection from %s", number)
        LOG.error("Something else")
    assert told == [
        "No connection from 0", "Something else",
        "… and 4,112 more like this in 10 s: No connection from 0",
    ]


async def test_the_count_is_told_at_the_end_of_a_window_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_repeats, "WINDOW_S", 0.05)
    told: list[str] = []
    summed_up = asyncio.Event()

    def tell(text: str) -> None:
        told.append(text)
        if text.startswith("…"):
            summed_up.set()

    with repeats_counted(tell):
        for _ in range(3):
            LOG.error("Again")
        await asyncio.wait_for(summed_up.wait(), 10)
        LOG.error("Again")
    assert told == ["Again", "… and 2 more like this in 0.05 s: Again", "Again"]


async def test_lines_that_differ_only_behind_their_first_line_are_one_kind() -> None:
    told: list[str] = []
    with repeats_counted(told.append):
        for number in range(3):
            LOG.error(f"Task exception was never retrieved\nfuture: <Task {number}>")  # as asyncio writes them
    assert len(told) == 2


async def test_a_flood_of_different_lines_is_bounded() -> None:
    told: list[str] = []
    with repeats_counted(told.append):
        for number in range(5_000):
            LOG.error("x" * 10_000 + str(number))
    assert len(told) == KINDS_MAX + 2
    assert max(map(len, told)) <= LINE_MAX
    assert told[-1].endswith(f"{5_000 - KINDS_MAX - 1:,} more like this in 10 s: lines of other kinds")


async def test_other_threads_are_counted_too_and_remarks_are_left_out() -> None:
    told: list[str] = []
    with repeats_counted(told.append):
        threads = [threading.Thread(target=LOG.warning, args=("From a thread",)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        LOG.info("A remark")
    assert told == ["From a thread", "… and 4 more like this in 10 s: From a thread"]


async def test_a_line_that_cannot_be_made_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    handler = RepeatCounter(told.append)
    for message, given in (("%d", "no number"), ("The %s", "next")):
        handler.handle(logging.makeLogRecord({"name": "x", "levelno": 40, "msg": message, "args": (given,)}))
    assert told == ["The next"]
    assert "no number" in capsys.readouterr().err
