"""Makes guessing a password slow, for each address by itself, without ever shutting out the right one.

A try waits before it is judged. How long depends on the wrong tries of its own address alone, and has a bound: the
right password works also while others guess, only later. A wrong try from elsewhere delays nobody here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ..connections import network_of

FREE = 3  #: wrong tries that cost nothing: people mistype
FIRST_S, LONGEST_S = 1.0, 8.0  #: each further one doubles the wait
FORGET_S = 900.0  #: after which wrong tries no longer count
WAITING_MAX = 8  #: tries of one address; one more ends the wait of the oldest, which is not judged
ADDRESSES_MAX = 1_000  #: of the one that tried longest ago nothing is remembered then


@dataclass
class _Sender:
    wrong: int = 0
    last: float = 0.0
    waiting: list[asyncio.Event] = field(default_factory=list)


class PasswordTries:
    """Counts; `time` is a clock that only grows, in seconds. `wait` waits for an event, at most for seconds."""

    def __init__(
        self, time: Callable[[], float], wait: Callable[[asyncio.Event, float], Awaitable[None]] | None = None,
    ) -> None:
        self._time, self._wait = time, wait or _wait
        self._senders: OrderedDict[str, _Sender] = OrderedDict()

    async def turn(self, host: str) -> bool:
        """Wait until a try from this address may be judged; False if newer ones took its place."""
        sender = self._sender(host)
        wait_s = _wait_s(sender.wrong + len(sender.waiting))
        if not wait_s:
            return True
        given_up = asyncio.Event()
        sender.waiting.append(given_up)
        if len(sender.waiting) > WAITING_MAX:
            sender.waiting.pop(0).set()
        await self._wait(given_up, wait_s)
        if given_up.is_set():
            return False
        sender.waiting.remove(given_up)
        return True

    def judged(self, host: str, is_right: bool) -> None:
        """What became of a try."""
        sender = self._sender(host)
        sender.wrong, sender.last = 0 if is_right else sender.wrong + 1, self._time()

    def _sender(self, host: str) -> _Sender:
        network = network_of(host)
        found = self._senders.setdefault(network, _Sender(last=self._time()))
        self._senders.move_to_end(network)
        while len(self._senders) > ADDRESSES_MAX:
            self._senders.popitem(last=False)
        if self._time() - found.last > FORGET_S:
            found.wrong = 0
        return found


def _wait_s(wrong: int) -> float:
    return min(FIRST_S * 2.0 ** min(wrong - FREE, 16), LONGEST_S) if wrong >= FREE else 0.0


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
