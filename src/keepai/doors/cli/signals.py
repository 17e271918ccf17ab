"""How a host in the foreground is told to end, and how long it may take."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import asyncio

#: How long runs under way have to end. Then they are cut off.
FINISH_S = 3.0
#: After so long the process ends, whatever it does: nothing is lost by that.
END_S = 4.6


def on_signals() -> asyncio.Event:
    """The first signal asks to end, the second does not ask: the ledger is made for that.

    A call may block the loop: so Python's own handlers are used, and a thread that does not ask either."""
    import asyncio
    import threading

    told_to_end, loop = asyncio.Event(), asyncio.get_running_loop()
    told: list[int] = []

    def end(number: int, _frame: object) -> None:
        if told:
            os._exit(130)
        told.append(number)
        loop.call_soon_threadsafe(told_to_end.set)
        watchdog = threading.Timer(END_S, os._exit, (130,))
        watchdog.daemon = True
        watchdog.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return told_to_end


def leave(code: int) -> NoReturn:
    """End the process without waiting for calls that do not end; everything else is closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
