"""Reads what strangers wrote in a process of its own, which has little time, little memory and no secret.

The libraries that know mails and feeds take quadratic time on some texts: read in the host, one mail of 1 MB would hold
every workflow for a quarter of a minute, and one feed for minutes. The process is started with the first text and kept
for the next ones. One that takes too much is ended, and the next text gets a new one.
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

#: What is smaller is read in the host: no parser here takes long for it.
INSIDE_MAX = 64 << 10
MEMORY_BYTES = 1 << 30
ANSWER_MAX = 64 << 20
_WAIT = 3  #: times its processor time, that a text may take on a busy machine
_START_S = 20.0
_READY = b"ready\n"


class ParserProcess:
    """A function, `module:name`, that is run in a process of its own; used in `with`.

    Its first argument is bytes, the others and what it returns are JSON.
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
        """What a text may take, in words."""
        return f"{self.cpu_s} s of processor time and {MEMORY_BYTES >> 20:,} MiB of memory"

    def read(self, data: bytes, *args: Json) -> tuple[Json] | None:
        """What the function returns, in a tuple; None if it failed or took too much. Raises `Transient`."""
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
            pass  # it was ended, or said nonsense: both are said by what comes back
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
        raise Transient("The process that reads what strangers wrote could not be started.")

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
    """In the process: read one text after another, each under its limit."""
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
