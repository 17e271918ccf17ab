"""How a host in the foreground is told to end."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def on_signals() -> asyncio.Event:
    """The first signal asks to end, the second does not ask: the ledger is made for that."""
    import asyncio

    told_to_end = asyncio.Event()

    def end() -> None:
        if told_to_end.is_set():
            os._exit(130)
        told_to_end.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    return told_to_end
