"""Parses untrusted text in its own process, which has little time, little memory and no secret.

The libraries for mails and feeds take quadratic time on some texts. In the host, one mail of 1 MB would block every
workflow for 15 seconds, and one feed for minutes. The process is started with the first text and reused for the next
ones. If it takes too much, it is killed, and the next text gets a new process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from ...model.codec import Json
from ...model.errors import Transient

#: Smaller texts are parsed in the host, because no parser takes long for them.
INSIDE_MAX = 64 << 10
MEMORY_BYTES = 1 << 30
ANSWER_MAX = 64 << 20
_WAIT = 3  #: a text may take this many times its processor time on a busy machine
_START_S = 20.0
_READY = b"ready\n"


class ParserProcess:
    """Runs a function, `module:name`, in its own process; use it in `with`.

    The first argument of the function is bytes. Its other arguments and its result are JSON.
    """

    def __init__(self, function: str, cpu_s: int) -> None:
        self.cpu_s = cpu_s
        self._command = [sys.executable, "-I", "-m", __name__, function, str(cpu_s)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ParserProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()

    @property
    def limits(self) -> str:
        """The limits for one text, in words."""
        return f"{self.cpu_s} s of processor time and {MEMORY_BYTES >> 20:,} MiB of memory"

    def read(self, data: bytes, *args: Json) -> tuple[Json] | None:
        """The result of the function in a tuple; None if it failed or exceeded a limit. Raises `Transient`."""
        process = self._process or self._start()
        stdin, stdout = _pipes(process)
        timer = threading.Timer(self.cpu_s * _WAIT, process.kill)
        timer.start()
        try:
            stdin.write(json.dumps({"size": len(data), "args": args}).encode() + b"\n" + data)
            stdin.flush()
            line = stdout.readline(ANSWER_MAX)
            if line.endswith(b"\n"):
                return (json.loads(line),)
        except (OSError, ValueError, RecursionError):
            pass  # it was killed or wrote nonsense: the result is None
        finally:
            timer.cancel()
        self._end()
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        process = self._process = subprocess.Popen(
            self._command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        timer = threading.Timer(_START_S, process.kill)
        timer.start()
        try:
            if _pipes(process)[1].readline(len(_READY)) == _READY:
                return process
        finally:
            timer.cancel()
        self._end()
        raise Transient("The process that parses untrusted text could not be started.")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in _pipes(process):
            with contextlib.suppress(OSError):
                pipe.close()
        process.wait()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _main(name: str, cpu_s: int) -> None:
    """In the process: handle one text after another, each within its limits."""
    import resource

    module, _, function = name.partition(":")
    act: Callable[..., Any] = getattr(importlib.import_module(module), function)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.stdout.buffer.write(_READY)
    sys.stdout.flush()
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        most = math.ceil(used.ru_utime + used.ru_stime) + cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        sys.stdout.write(json.dumps(act(sys.stdin.buffer.read(request["size"]), *request["args"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
