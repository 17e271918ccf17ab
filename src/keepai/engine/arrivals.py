"""What comes in to a connector makes the producers and routines that read it due at once.

A connector notices it (`Connector.arrivals`); the host queues the handlers in the ledger, as "run now" does, and wakes
their workflows. Several signals before a run begins are one. A signal that a crash loses costs nothing but time: the
schedule goes on. A handler with a cron keeps to its times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from logging import getLogger

from ..connectors.base import Connector
from ..ledger.base import Reader
from ..ledger.transitions import workflows
from ..model.errors import KeepError, LedgerStopped
from ..model.states import WorkflowStatus
from .host_parts import Parts

_log = getLogger(__name__)

#: Between two signals of one connector, however much comes in.
PAUSE_S = 0.05
#: Before a connector that failed is listened to again: at first, and at most.
RETRY_S, RETRY_S_MAX = 1.0, 300.0


async def listen(parts: Parts, connector: Connector, runs: Callable[[str], bool]) -> None:
    """Listen to a connector while the host serves. `runs` says which workflows are this host's.

    A connector that fails is listened to again: this host goes on, and until then the schedule alone counts."""
    loop, wait_s = asyncio.get_running_loop(), RETRY_S
    while True:
        began = loop.time()
        try:
            await _queue_what_comes(parts, connector, runs)
            return
        except LedgerStopped:
            return
        except Exception as error:
            if loop.time() - began > RETRY_S_MAX:
                wait_s = RETRY_S
            if wait_s == RETRY_S:  # said once, not at every try
                why = error.message if isinstance(error, KeepError) else f"{type(error).__name__}: {error}"
                _log.warning("Keep cannot see at once what comes in to ctx.%s. Until it can, the schedule counts. %s",
                             connector.name, why)
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_S_MAX)


async def _queue_what_comes(parts: Parts, connector: Connector, runs: Callable[[str], bool]) -> None:
    first = True
    async with aclosing(connector.arrivals()) as arrivals:
        async for _ in arrivals:
            since = parts.clock.now_ms() if first else None  # the first says only that something may have come before
            for workflow_id, handlers in (await parts.ledger.look(woken_by, parts, connector.name)).items():
                if connector.tells_all_hosts or runs(workflow_id):
                    await parts.ledger.write(workflows.arrive, workflow_id, handlers, since)
                    parts.wake(workflow_id)
            first = False
            await asyncio.sleep(PAUSE_S)


def woken_by(read: Reader, parts: Parts, connector: str) -> dict[str, list[str]]:
    """The handlers that are due when something comes in to a connector, by workflow. A paused one runs them later."""
    found = {}
    for row in read.all("workflow_all"):
        manifest = parts.script(read, row["id"], (row["major"], row["minor"])).manifest
        handlers = [each.name for each in manifest.handlers if each.is_woken_by(connector)]
        if handlers and row["status"] != WorkflowStatus.STOPPED:
            found[str(row["id"])] = handlers
    return found
