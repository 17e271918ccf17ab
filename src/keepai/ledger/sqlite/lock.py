"""One host per file: an OS lock that the kernel lets go of when the process is dead, and not before.

The lock's own file also tells how far the ledger had come when it was last synced. It stands beside the ledger and not
in it, so a ledger that was put back from a backup, or whose log is gone, is noticed.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...model.errors import LedgerUnusable

_BYTES = 1024
_MACHINE = socket.gethostname()


@dataclass(frozen=True)
class Mark:
    """How far a ledger had come at some moment."""

    ledger: str  # the id of its first host
    epoch: int
    moves: int  # rows of the account
    at: str


_told = json.JSONEncoder().encode


@lru_cache(maxsize=1)
def _holder(pid: int, host: str, since: str) -> str:
    return _told({"pid": pid, "machine": _MACHINE, "host": host, "since": since})


class HostLock:
    """Holds the lock from opening to closing; a second host is refused with the first one's name.

    A connector's child process that is given `fd` holds it too: the lock is free only when all of them are dead."""

    def __init__(self, ledger: Path) -> None:
        self.path = ledger.with_name(ledger.name + ".lock")
        try:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerUnusable(
                f"The lock file {self.path} cannot be written ({error.strerror}). "
                "Keep needs a folder that it may write to; change its permissions or use another path."
            ) from None
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder()
            os.close(self.fd)
            raise LedgerUnusable(
                f"The ledger {ledger} is in use by {holder}. "
                "One file serves one host: stop that one first, or talk to it with the keep command."
            ) from None

    def left(self) -> Mark | None:
        """How far the last holder had come; None if it left nothing that can be read."""
        try:
            mark = self._entry()["mark"]
            return Mark(str(mark["ledger"]), int(mark["epoch"]), int(mark["moves"]), str(mark["at"]))
        except (ValueError, KeyError, TypeError):
            return None

    def tell(self, host: str, since: str, mark: Mark) -> None:
        """Write who holds the lock, for the sentence that a second host gets, and how far the ledger has come."""
        entry = _holder(os.getpid(), host, since)[:-1] + f', "mark": {_told(vars(mark))}}}'
        os.pwrite(self.fd, entry.encode().ljust(_BYTES), 0)  # as long each time: there is nothing to cut

    def release(self) -> None:
        """Let go."""
        os.close(self.fd)

    def _holder(self) -> str:
        try:
            entry = self._entry()
            return f"process {entry['pid']} on {entry['machine']} (host {entry['host']}, since {entry['since']})"
        except (ValueError, KeyError, TypeError):
            return "another process"

    def _entry(self) -> Any:
        return json.loads(os.pread(self.fd, _BYTES, 0))
