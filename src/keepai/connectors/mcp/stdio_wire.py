"""A server that is a program of this machine: one JSON message per line, on its standard input and output.

It is started for the first call and kept for the next ones. A call that does not get its answer ends the program with
all that it started, so that nothing of a call goes on after it; the next call starts it again. It gets the host's lock,
so that no other host begins while it lives, and it dies with the host. It sees the environment that keep.toml gives it,
and nothing else of the host's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from ...model.codec import Json, encode
from ...model.errors import OutcomeUnknown, PreconditionFailed, Transient
from ..kit.blocking import in_thread
from ..kit.lenient_json import parse_json
from ..values import Call
from .mcp_client import METHOD_NOT_FOUND, Message
from .tool_lock import shortened

LINE_MAX = 8 << 20
SECONDS_MAX = 3_600.0
INHERITED = ("PATH", "HOME", "LANG")  #: of the host's environment; everything else is the owner's to give
_STDERR_KEPT = 2_000
_PR_SET_PDEATHSIG = 1


class StdioWire:
    """The program, while it runs."""

    def __init__(self, command: Sequence[str], folder: str, environment: Callable[[], Mapping[str, str]]) -> None:
        self.place, self.tools_changed = command[0], False
        self.lock_fd: int | None = None
        self._command, self._folder, self._environment = command, folder, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: asyncio.StreamReader | None = None
        self._errors, self._greeted = _LastWords(), False
        self._pipes: list[asyncio.BaseTransport] = []
        self._input: asyncio.WriteTransport | None = None

    @property
    def is_open(self) -> bool:
        """Whether the program runs and can still answer."""
        runs = self._process is not None and self._process.poll() is None
        return runs and self._answers is not None and not self._answers.at_eof()

    async def open(self, call: Call) -> None:
        loop, self.lock_fd = asyncio.get_running_loop(), call.lock_fd
        self._process = self._start(call.lock_fd)
        answers = self._answers = asyncio.StreamReader(limit=LINE_MAX)
        self._errors, self._greeted = _LastWords(), False
        stdin, stdout, stderr = _pipes(self._process)
        self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, stdin)
        self._pipes = [
            self._input, (await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(answers), stdout))[0],
            (await loop.connect_read_pipe(lambda: self._errors, stderr))[0],
        ]

    def _start(self, lock_fd: int | None) -> subprocess.Popen[bytes]:
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            return subprocess.Popen(
                self._command, cwd=self._folder, env={**kept, **self._environment()}, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                pass_fds=() if lock_fd is None else (lock_fd,),
                preexec_fn=_die_with_host if sys.platform == "linux" else None,  # noqa: PLW1509 (one call to the system)
            )
        except OSError as error:
            raise PreconditionFailed(
                f"The command {self.place!r} cannot be started: {error.strerror}. Is it installed, and on the PATH?",
            ) from None

    async def request(self, message: Message, call: Call) -> Message:
        line = encode(message).encode() + b"\n"
        await asyncio.sleep(0)  # so that an end of the program that the system has told is heard
        if not self.is_open or self._input is None or self._answers is None:
            await self.close()
            raise Transient(f"{self.place} ended before anything was sent to it{self._errors}.")
        answered = False
        try:
            self._input.write(line)
            async with asyncio.timeout(min(SECONDS_MAX, call.remaining_s)):
                answer = await self._answer(self._answers, message["id"])
            answered = True
            return answer
        except TimeoutError:
            raise OutcomeUnknown(f"{self.place} did not answer in time. It may have done what was asked.") from None
        finally:
            if not answered:
                await self.close()

    async def notify(self, message: Message, call: Call) -> None:
        if self._input is not None:
            self._input.write(encode(message).encode() + b"\n")

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in [each for each in self._pipes if not each.is_closing()]:
            pipe.abort() if isinstance(pipe, asyncio.WriteTransport) else pipe.close()
        for end in _pipes(process):  # also of a program that was given up before they were listened to
            end.close()
        self._pipes, self._input = [], None
        await in_thread(process.wait)

    async def _answer(self, answers: asyncio.StreamReader, wanted: Json) -> Message:
        """The answer to a request. What the program says besides is heard, and whatever it asks is refused."""
        while True:
            try:
                line = await answers.readline()
            except ValueError:
                raise OutcomeUnknown(f"{self.place} answered with more than {LINE_MAX >> 20} MiB.") from None
            if not line.endswith(b"\n"):
                await asyncio.sleep(0)
                raise OutcomeUnknown(f"{self.place} ended before it answered{self._errors}.")
            try:
                message = parse_json(line)
            except ValueError:
                if not self._greeted:
                    continue  # some programs greet people before they speak the protocol
                raise OutcomeUnknown(f"{self.place} wrote something that is no message of MCP.") from None
            if isinstance(message, dict) and "method" not in message and message.get("id") == wanted:
                self._greeted = True
                return message
            self._hear(message)

    def _hear(self, message: Json) -> None:
        if not isinstance(message, dict):
            return
        self.tools_changed = self.tools_changed or message.get("method") == "notifications/tools/list_changed"
        if "method" in message and "id" in message and self._input is not None:
            said: Message = {"result": {}} if message["method"] == "ping" else {
                "error": {"code": METHOD_NOT_FOUND, "message": "Keep does not do this."}}
            self._input.write(encode({"jsonrpc": "2.0", "id": message["id"], **said}).encode() + b"\n")


class _LastWords(asyncio.Protocol):
    """The end of what the program wrote to its standard error, for people."""

    def __init__(self) -> None:
        self._kept = b""

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_STDERR_KEPT:]

    def __str__(self) -> str:
        text = shortened(self._kept.decode("utf-8", "replace")).strip()
        return f" (its last words: {text})" if text else ""


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr


_libc = ctypes.CDLL(None)  # loaded here, because a forked process must not load anything


def _die_with_host() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
