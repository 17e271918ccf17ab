"""How many steps may run at once, and the line of those that wait for their turn.

It does what asyncio's semaphore does; that makes four coroutines for each step, and looks at the whole line each time.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """A number of slots. Whoever comes when none is free waits in line, and is handed one by who leaves."""

    def __init__(self, count: int) -> None:
        self._free = count  # none while somebody waits
        self._line: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Have a slot, if one is free; if not, `wait` for it."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Have a slot when one is handed over."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was handed over at the very moment
                self.leave()
            raise

    def leave(self) -> None:
        """Hand a slot to the next in line who still waits."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
