"""Where tests get their script servers from: one process that has loaded the interpreter, forked for each host.

A host starts its fork server as a new Python process, which costs a quarter of a second of CPU and is the same each
time. Tests of the engine open thousands of hosts, so here a server is forked from one that is ready. What it runs from
then on is the product's own code; tests/runtime, and every test with a process of its own, start it the long way.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from keepai.runtime.javascript import fork_client, linux

_READY_S_MAX = 60.0


class Ward:
    """A forked server, as `subprocess.Popen` would show it."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd: int | None = pidfd

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self._pidfd is not None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a script server", timeout or 0)
            os.close(self._pidfd)
            self._pidfd = None
        return 0

    def kill(self) -> None:
        """End it."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def spawn(address: str, control: int) -> Ward:
    """A server at the other end of `control`, from the nursery at `address`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.settimeout(_READY_S_MAX)
        asked.connect(address)
        socket.send_fds(asked, [b"fork"], [control])
        _, (pidfd,), _, _ = socket.recv_fds(asked, 64, 1)
    return Ward(pidfd)


class Nursery:
    """The process that forks them; it ends with whoever started it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="keep-nursery-")
        self.address = str(Path(self._folder.name) / "sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.address)
        listener.listen(64)
        environment = {name: os.environ[name] for name in fork_client._ENVIRONMENT if name in os.environ}
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with listener:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.nursery", str(listener.fileno())], pass_fds=(listener.fileno(),),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**environment, "PYTHONPATH": path},
                cwd=Path(__file__).parents[1],
            )

    def spawn(self, control: int) -> Ward:
        """A server of this one."""
        return spawn(self.address, control)

    def close(self) -> None:
        """End it; servers that still live have hosts of their own to end them."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


if __name__ == "__main__":
    from tests.prove.torture_host import nurse

    linux.die_with_parent()
    nurse(socket.socket(fileno=int(sys.argv[1])))
