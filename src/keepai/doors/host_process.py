"""A host in this process: how it is made from the settings, and how signals end it."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from ..app import Keep
from ..config import Settings
from ..engine.repair import RepairHook, by_command
from ..model.principals import MAINTAINER, OWNER, Principal
from .script_process import ScriptProcess

#: How long runs under way have to end. Then they are cut off.
FINISH_S = 3.0
#: How long after the first signal the process is ended, whatever it does. Nothing is lost by that.
END_S = 4.6


def new_host(settings: Settings, *, accept_older: bool = False, works: bool = True) -> Keep:
    """A host with these settings, to be entered; what it does is done in the name of this user.

    Without `works` it leaves the workflows of a ledger that hosts share to others."""
    process = ScriptProcess.of(settings)
    keep = Keep(
        settings.ledger, connectors=settings.connectors, policy=settings.policy, principal=user_here(),
        repair=_repair_hook(settings, lambda: keep.acting_as(MAINTAINER)), accept_older=accept_older,
        channels=settings.channels, works=works, certifier=process.certify if process else None,
    )
    return keep


def _repair_hook(settings: Settings, keep: Callable[[], Keep]) -> RepairHook | None:
    """What mends scripts on this host: a program, the model, or nothing."""
    if isinstance(settings.repair, str):
        from .model_plans import by_model  # here, because most hosts ask no model

        return by_model(settings, keep)
    return by_command(settings.repair) if settings.repair else None


def user_here() -> Principal:
    """The person whose process this is. Who can open the ledger's file with their own hands owns it."""
    try:
        return Principal.person(getpass.getuser())
    except (KeyError, OSError):
        return OWNER


def on_signals() -> asyncio.Event:
    """Set by the first signal, which asks the host to end. A second signal ends the process at once: nothing is lost.

    A call may block the event loop. So these are Python's own signal handlers, and a thread ends the process after
    `END_S`, whatever it does then."""
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


async def end_wanted(keep: Keep, told_to_end: asyncio.Event) -> None:
    """Wait until the host is to end: by a signal, or because a person wants it to hand over its work to others."""
    waits = [asyncio.ensure_future(each.wait()) for each in (told_to_end, keep.host.drains)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


def leave(code: int) -> NoReturn:
    """End the process without waiting for calls that do not end; everything else is closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
