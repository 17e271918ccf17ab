"""Which host has the ledger: one at a time, by a row in the database and a lock on its machine.

A host says every 3 s that it lives. One that has been silent for 15 s, by the database's clock, no longer keeps another
from the ledger: whatever it still writes is refused. But silent is not dead: a call of it may be on its way. So if one
is on record that is not known to have ended, another host comes in only when the first has certainly ended: on the same
machine, when the lock is free that it and the processes of its connectors hold.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from ...model.clock import iso
from ...model.errors import LedgerUnusable
from ..base import Reader, Row

SILENT_MS_MAX = 15_000
BEAT_S = 3.0

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class MachineLock:
    """A lock that is free when the host and all processes that inherited it are dead, and not before."""

    def __init__(self, host: str) -> None:
        self.boot = boot()
        self.path = Path(tempfile.gettempdir()).resolve() / f"keep-{host}.lock"
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def release(self, *, told: bool) -> None:
        """Let go. If the database was told, nobody will ask; if not, the file stays: that it is free says so."""
        if told:
            self.path.unlink(missing_ok=True)
        os.close(self.fd)


def boot() -> str:
    """This boot of this machine; empty where the system does not say."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def refuse_if_taken(read: Reader, name: str) -> None:
    """Refuse a ledger that another host has, or whose last calls may still be on their way."""
    holder = read.one("heartbeat_of_host")
    if holder is None or _is_dead(holder):
        return
    said = (
        f"host {holder['id']} (process {holder['pid']} on {holder['machine']}, since {iso(holder['started_at'])})"
    )
    silent_s = holder["silent_ms"] // 1000
    if holder["silent_ms"] < SILENT_MS_MAX:
        raise LedgerUnusable(
            f"The ledger {name} is in use by {said}, which was heard {silent_s} s ago. For now one host at a time "
            "works on a ledger: stop that one first."
        )
    unclosed = read.one("mutation_unclosed", epoch=holder["epoch"] + 1)
    if unclosed is not None:
        raise LedgerUnusable(
            f"The ledger {name} was left by {said}, which has been silent for {silent_s} s and is not known to be "
            f"dead: a call of it ({unclosed['id']}) may be on its way. Start Keep on {holder['machine']}, where it "
            "can be seen that the host has ended. If that machine is lost, docs/operating/postgres.md says what to do."
        )


def _is_dead(holder: Row) -> bool:
    """Whether it is certain that a host has ended: nobody holds its lock on this machine."""
    if not holder["boot"] or holder["boot"] != boot():
        return False
    try:
        fd = os.open(holder["lock"], os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        with suppress(OSError):
            os.unlink(holder["lock"])
        return True
    finally:
        os.close(fd)


def machine() -> str:
    """The name of this machine, for people."""
    return socket.gethostname()
