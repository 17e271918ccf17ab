"""Notices new mail: the server says so on a connection that stays open (IDLE, RFC 2177).

The command is issued anew before servers and routers drop a silent connection. A lost connection is an error; the host
listens again then. A server without IDLE says nothing, and the schedule alone counts. It waits in a thread of its own,
which no end of a host waits for: those that others share are few, and a server may be silent for long.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
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
    box = await _apart(lambda: _opened(open_box, inbox))
    if box is None:
        return
    try:
        yield
        while True:
            if await _apart(lambda: _idle(box)):
                yield
    finally:
        box.interrupt()  # what waits for it ends, too
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


async def _apart(work: Callable[[], T]) -> T:
    """Run blocking work in a thread of its own. If it is cancelled, the thread ends by itself, and nobody hears it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: Exception | None) -> None:
        if done.cancelled():
            if isinstance(result, ImapMailbox):
                result.drop()
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: the host has ended
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name="keep-idle", daemon=True).start()
    return await done
