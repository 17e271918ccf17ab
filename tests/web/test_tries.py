"""Guessing a password becomes slow for the address that guesses, and for no other; the right one is never shut out."""

from __future__ import annotations

import asyncio

from keepai.doors.web import sessions
from keepai.doors.web.sessions import FORGET_S, FREE, LONGEST_S, WAITING_MAX, PasswordTries


class Waits:
    """A clock that is set, and a wait that ends when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self.hold: asyncio.Event | None = None

    async def wait(self, given_up: asyncio.Event, seconds: float) -> None:
        self.asked.append(seconds)
        if self.hold:
            both = [asyncio.ensure_future(each.wait()) for each in (given_up, self.hold)]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in both:
                each.cancel()

    def tries(self) -> PasswordTries:
        return PasswordTries(lambda: self.now, self.wait)


async def wrong(tried: PasswordTries, host: str, times: int) -> None:
    for _ in range(times):
        assert await tried.turn(host)
        tried.judged(host, is_right=False)


async def test_a_few_mistakes_cost_nothing_and_then_each_doubles_the_wait_up_to_a_bound() -> None:
    waits = Waits()
    tried = waits.tries()
    await wrong(tried, "192.0.2.1", FREE)
    assert waits.asked == []
    await wrong(tried, "192.0.2.1", 2_000)
    assert waits.asked[:5] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert max(waits.asked) == LONGEST_S


async def test_wrong_tries_of_one_address_delay_no_other() -> None:
    waits = Waits()
    tried = waits.tries()
    await wrong(tried, "192.0.2.1", 20)
    waits.asked.clear()
    for host in ("192.0.2.2", "2001:db8:0:1::1"):
        assert await tried.turn(host)
    assert waits.asked == []


async def test_the_addresses_of_one_ipv6_network_are_one_guesser() -> None:
    waits = Waits()
    tried = waits.tries()
    for number in range(FREE + 1):
        await wrong(tried, f"2001:db8::{number:x}", 1)
    assert waits.asked == [1.0]


async def test_the_right_password_and_time_end_the_waiting() -> None:
    waits = Waits()
    tried = waits.tries()
    await wrong(tried, "192.0.2.1", FREE + 1)
    assert await tried.turn("192.0.2.1")
    tried.judged("192.0.2.1", is_right=True)
    waits.asked.clear()
    await wrong(tried, "192.0.2.1", FREE)
    waits.now += FORGET_S + 1
    assert await tried.turn("192.0.2.1")
    assert waits.asked == []


async def test_tries_at_the_same_time_wait_as_those_one_after_the_other_do() -> None:
    waits = Waits()
    waits.hold = asyncio.Event()
    tried = waits.tries()
    await wrong(tried, "192.0.2.1", FREE)
    waiting = [asyncio.ensure_future(tried.turn("192.0.2.1")) for _ in range(4)]
    await asyncio.sleep(0)
    assert waits.asked == [1.0, 2.0, 4.0, 8.0]
    waits.hold.set()
    assert await asyncio.gather(*waiting) == [True] * 4


async def test_of_too_many_at_the_same_time_the_newest_are_judged() -> None:
    waits = Waits()
    waits.hold = asyncio.Event()
    tried = waits.tries()
    await wrong(tried, "192.0.2.1", FREE)
    waiting = [asyncio.ensure_future(tried.turn("192.0.2.1")) for _ in range(WAITING_MAX + 5)]
    await asyncio.sleep(0)
    waits.hold.set()
    assert await asyncio.gather(*waiting) == [False] * 5 + [True] * WAITING_MAX


async def test_the_memory_for_addresses_is_bounded() -> None:
    tried = Waits().tries()
    for number in range(sessions.ADDRESSES_MAX + 10):
        await wrong(tried, f"10.0.{number // 256}.{number % 256}", 1)
    assert len(tried._senders) == sessions.ADDRESSES_MAX
