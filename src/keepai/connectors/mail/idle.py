"""Notices new mail: the server says so on a connection that stays open (IDLE, RFC 2177).

The command is issued anew before servers and routers drop a silent connection. A lost connection is an error; the host
listens again then. A server without IDLE says nothing, and the schedule alone counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .folders import Open
from .imap import ImapMailbox
from .server_errors import nothing_happened

T = TypeVar("T")

#: For how long one IDLE lasts. Servers may end it after 29 minutes, and routers forget silent connections sooner.
IDLE_S = 9 * 60.0
#: How long one step before and after it may take.
STEP_S = 10.0
_MESSAGE = "Keep cannot listen to the mailbox"


async def arriving(open_box: Open, inbox: str) -> AsyncGenerator[None]:
    """Yield once nothing can be missed any more, and then when a message has come."""
    with ThreadPoolExecutor(1, "keep-idle") as thread:  # of its own: it waits for as long as the host serves
        box = await _in(thread, lambda: _opened(open_box, inbox))
        if box is None:
            return
        try:
            yield
            while True:
                if await _in(thread, lambda: _idle(box), box.interrupt):
                    yield
        finally:
            box.drop()


def _opened(open_box: Open, inbox: str) -> ImapMailbox | None:
    """The mailbox with its inbox open; None if the server has no IDLE."""
    with nothing_happened(_MESSAGE):
        box = open_box()
        try:
            if not box.can("IDLE"):
                box.close()
                return None
            box.open(inbox)
        except BaseException:
            box.drop()
            raise
        return box


def _idle(box: ImapMailbox) -> bool:
    with nothing_happened(_MESSAGE):
        return box.idle(IDLE_S)


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T], interrupt: Callable[[], None] = lambda: None) -> T:
    """Run blocking work in a thread. If it is cancelled, it is interrupted, and has ended before this ends."""
    task = asyncio.get_running_loop().run_in_executor(thread, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        interrupt()
        await asyncio.wait({task})
        task.exception()  # read it, or asyncio logs that it was never read
        raise
