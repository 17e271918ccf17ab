"""The clock of the compute limit: whoever computes is watched, and nobody is watched for nothing."""

from __future__ import annotations

import threading
import time

from keepai.runtime.javascript.deadline import Deadline

WAIT_S = 20.0


def watched() -> tuple[Deadline, threading.Event]:
    interrupted = threading.Event()
    deadline = Deadline(interrupted.set)
    deadline.watch()
    return deadline, interrupted


def compute(until: threading.Event) -> float:
    """Use the processor until `until`; how much it took."""
    begun = time.thread_time()
    while not until.is_set() and time.thread_time() - begun < WAIT_S:
        pass
    return time.thread_time() - begun


def fall_asleep(deadline: Deadline) -> None:
    until = time.monotonic() + WAIT_S
    while deadline._awake.is_set() and time.monotonic() < until:
        time.sleep(0.005)
    assert not deadline._awake.is_set()


def test_a_step_that_computes_too_long_is_interrupted() -> None:
    deadline, interrupted = watched()
    deadline.begin(0.1)
    assert 0.09 < compute(interrupted) < 1.0
    assert deadline.spent


def test_the_watch_sleeps_when_nothing_computes() -> None:
    deadline, interrupted = watched()
    deadline.begin(0.05)
    deadline.end()
    fall_asleep(deadline)
    assert not interrupted.is_set()


def test_who_computes_again_after_the_watch_fell_asleep_is_watched() -> None:
    deadline, interrupted = watched()
    deadline.begin(0.1)
    deadline.pause()
    fall_asleep(deadline)
    deadline.resume()
    assert compute(interrupted) < 1.0
    assert interrupted.is_set()


def test_a_step_with_little_time_is_watched_in_time_after_one_with_much() -> None:
    deadline, interrupted = watched()
    deadline.begin(3600)
    deadline.end()
    deadline.begin(0.1)
    assert compute(interrupted) < 1.0
    assert interrupted.is_set()


def test_a_step_that_is_over_is_not_interrupted() -> None:
    deadline, interrupted = watched()
    for _ in range(30):
        deadline.begin(0.01)
        deadline.end()
        assert not interrupted.wait(0.01)
