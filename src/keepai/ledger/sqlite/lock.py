"""One host per file: an OS lock that the kernel lets go of when the process is dead, and not before."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from ...model.errors import LedgerUnusable


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

    def name_holder(self, host: str, started_at: str) -> None:
        """Write who holds the lock, for the sentence that a second host gets."""
        entry = {"pid": os.getpid(), "machine": socket.gethostname(), "host": host, "since": started_at}
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, json.dumps(entry).encode(), 0)

    def release(self) -> None:
        """Let go."""
        os.close(self.fd)

    def _holder(self) -> str:
        try:
            entry = json.loads(os.pread(self.fd, 4096, 0))
            return f"process {entry['pid']} on {entry['machine']} (host {entry['host']}, since {entry['since']})"
        except (ValueError, KeyError, TypeError):
            return "another process"
