"""The timer that all the steps of one worker share: nobody is called late, and a step that has ended not at all."""

from __future__ import annotations

import asyncio

from keepai.runtime.javascript.fork_client import StepTimer


async def test_a_later_step_hears_the_timer_that_an_earlier_one_set() -> None:
    timer, rung, now = StepTimer(), list[str](), asyncio.get_running_loop().time()
    timer.set(now + 0.02, lambda: rung.append("first"))
    timer.look = None
    timer.set(now + 5, lambda: rung.append("second"))
    await asyncio.sleep(0.05)
    assert rung == ["second"], "it looks at its own clock and sets the timer anew"


async def test_a_step_with_less_time_is_not_called_late() -> None:
    timer, rung, now = StepTimer(), asyncio.Event(), asyncio.get_running_loop().time()
    timer.set(now + 60, rung.set)
    timer.set(now + 0.02, rung.set)
    await asyncio.wait_for(rung.wait(), 5)


async def test_nobody_is_called_for_a_step_that_has_ended() -> None:
    timer, rung = StepTimer(), list[str]()
    timer.set(asyncio.get_running_loop().time() + 0.01, lambda: rung.append("late"))
    timer.look = None
    await asyncio.sleep(0.05)
    assert rung == []


async def test_it_can_be_set_again_from_inside_its_own_call() -> None:
    timer, done, times, loop = StepTimer(), asyncio.Event(), list[float](), asyncio.get_running_loop()

    def look() -> None:
        times.append(loop.time())
        if len(times) == 3:
            done.set()
        else:
            timer.set(loop.time() + 0.01, look)

    timer.set(loop.time() + 0.01, look)
    await asyncio.wait_for(done.wait(), 5)
    assert times == sorted(times)
