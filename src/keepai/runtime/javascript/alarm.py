"""One timer for all the steps of a worker.

Most steps end long before their time is up. So the timer is not set and taken back for each: it stays where an earlier
step has set it, and when it goes off, the step that is there then looks at its own clock and sets it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Look = Callable[[], None]


class Alarm:
    """Calls whoever set it last, at the time that was asked for or earlier."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._look: Look | None = None

    def set(self, when: float, look: Look) -> None:
        """Have `look` called by `when` on the loop's clock, if nothing else is set until then."""
        self._look = look
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._ring)

    def forget(self) -> None:
        """Nobody is to be called."""
        self._look = None

    def _ring(self) -> None:
        self._timer = None
        if self._look is not None:
            self._look()
