"""Whether what Keep needs is there and works: each check gives a line, with what to do if something is wrong.

`keep doctor` and the page's health show the same lines.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..connectors.base import Connector
from ..model.errors import KeepError
from ..model.visible_text import visible
from ..reading.look import Look
from ..reading.shared_hosts import heard, place
from ..reading.wording import ago, size
from ..runtime.javascript.runtime import JavaScriptRuntime

FREE_FAIL, FREE_WARN = 64 << 20, 1 << 30  #: bytes of the ledger's disk
CLOCK_BACK_MS = 60_000
CONNECTOR_S = 10.0

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class HealthLine:
    """One line."""

    name: str
    state: str
    said: str
    do: str = ""


async def check_sandbox() -> list[HealthLine]:
    """A worker is started, and says which locks hold."""
    runtime = JavaScriptRuntime(workers_max=1)
    try:
        locks = await runtime.protections()
    except (KeepError, OSError) as error:
        do = "Install Keep again (make setup, or pip install --force-reinstall keepai)."
        return [HealthLine("sandbox", FAIL, f"no script can run: {error}.", do)]
    finally:
        await runtime.close()
    missing = [lock for lock in locks if not lock.active]
    held = f"{len(locks) - len(missing)} of {len(locks)}"
    return [
        HealthLine("sandbox", OK, f"WebAssembly, and {held} protections of the system"),
        *(HealthLine("sandbox", WARN, f"without “{lock.name}”: {lock.why}.", "Scripts still run in WebAssembly.")
          for lock in missing),
    ]


async def check_connector(connector: Connector, seconds: float = CONNECTOR_S) -> HealthLine:
    """What a connector says of itself; it may raise anything, and that is its answer."""
    name = f"ctx.{connector.name}"
    [answer] = await asyncio.gather(asyncio.wait_for(connector.check(), seconds), return_exceptions=True)
    if isinstance(answer, TimeoutError):
        return HealthLine(name, FAIL, f"did not answer within {seconds:g} s.", "Is its system reachable from here?")
    if isinstance(answer, BaseException):
        told = answer.message if isinstance(answer, KeepError) else f"{type(answer).__name__}: {answer}"
        return HealthLine(name, FAIL, visible(told), f"Look at [connectors.{connector.name}] in keep.toml.")
    account = f" ({visible(connector.account)})" if connector.account else ""
    if isinstance(answer, str):
        return HealthLine(name, WARN, f"was not tried{account}: {visible(answer)}.")
    return HealthLine(name, OK, f"answers{account}")


def check_disk(ledger: Path) -> HealthLine:
    """How much room the ledger has."""
    folder = ledger.resolve().parent
    if not folder.is_dir():
        return HealthLine("disk", FAIL, f"there is no folder {folder}.", "Make it, or name another ledger with --db.")
    free = shutil.disk_usage(folder).free
    if free < FREE_FAIL:
        return HealthLine("disk", FAIL, f"{size(free)} free.", "Free some space: without it the host stops.")
    if free < FREE_WARN:
        return HealthLine("disk", WARN, f"{size(free)} free.", "`keep db prune` and then `keep db vacuum` make some.")
    return HealthLine("disk", OK, f"{size(free)} free")


def check_channels(look: Look) -> list[HealthLine]:
    """How each channel does that a host has used."""
    found = []
    for row in look.read.all("channel_all"):
        name, told_at = f"notify.{visible(row['name'])}", row["told_at"]
        last = f"told somebody {ago(told_at, look.now_ms)}" if told_at else "has told nobody yet"
        if row["error"] is None:
            found.append(HealthLine(name, OK, last))
            continue
        again = f" It is tried again {ago(row['retry_at'], look.now_ms)}." if row["retry_at"] else ""
        since = ago(row["failing_since_at"], look.now_ms)
        said = f"fails, since {since}: {visible(row['error'])} It {last}.{again}"
        do = f"Mend it, then say: keep notify test {row['name']}"
        found.append(HealthLine(name, FAIL if row["attempts"] else WARN, said, do))
    return found


def check_hosts(look: Look) -> list[HealthLine]:
    """The hosts that are silent: each may be dead, and only then is it known what became of its last calls."""
    return [
        HealthLine(
            "host", WARN,
            f"{host.id} ({visible(place(host))}) was last heard {heard(host)}. It is not known to be dead.",
            f"Start Keep on {visible(host.machine)}, where one can see that it has ended. If that machine is off for "
            f"good, say `keep host dead {host.id}`.")
        for host in look.read.hosts() if host.works and not host.lives
    ]


def check_clock(look: Look) -> HealthLine:
    """Whether the clock is behind what was already written."""
    row: Any = look.read.one("account_last")
    newest = int(row["at"]) if row and row["at"] is not None else 0
    if newest > look.now_ms + CLOCK_BACK_MS:
        told = f"it was set back: the newest row of the ledger is of {ago(newest, look.now_ms)}."
        do = "Set it right. Nothing is lost meanwhile: order does not go by the clock."
        return HealthLine("clock", WARN, told, do)
    return HealthLine("clock", OK, "not behind the ledger")
