"""Runs blocking work in a thread, and refuses to begin work after the deadline of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ...model.errors import Transient
from ..values import Call

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking `work` in a thread. Return only after the thread has ended, even if the call is cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # read it, or asyncio logs that it was never read
        raise cancelled
    return task.result()


def check_deadline(call: Call) -> None:
    """Raise `Transient` if the call's deadline has passed. Call it right before the first effect."""
    if call.remaining_s <= 0:
        raise Transient("The call's deadline passed before the call began; nothing was written.")
