"""How much memory a host takes while a worker that lies sends it one thing: run as a program, so that it is alone.

Says the growth of its peak in bytes, then what came of the step.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from keepai.model.errors import KeepError
from keepai.model.operations import Step
from keepai.runtime.base import Operation, Reply
from keepai.runtime.javascript.call_predictor import CallPredictor
from keepai.runtime.javascript.fork_client import Worker
from keepai.runtime.javascript.frames import HEAD_BYTES_MAX, HEADER, ScriptCall, call_frame
from keepai.runtime.javascript.step_session import StepSession
from keepai.runtime.javascript.worker_link import WorkerLink
from tests.runtime.script_world import LIMITS, FakeHost, job

MOST = LIMITS.message_bytes_max + HEAD_BYTES_MAX
#: Of all JSON, many small lists take the most memory.
TEXT = "[" + ",".join(["[]"] * (LIMITS.message_bytes_max // 3 - 1)) + "]"


def brackets(size: int) -> bytes:
    """A frame of this size whose JSON is a list of lists."""
    begin, piece, end = b'{"t":"end","n":7,"value":[[]', b",[]", b"]}"
    data = begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end
    return HEADER.pack(len(data)) + data


def calls(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield call_frame(7, number, ScriptCall("gmail.get", [TEXT], None))


#: What the worker says → piece by piece.
SAID: dict[str, Callable[[], Iterator[bytes]]] = {
    "a length of 4 GiB": lambda: iter([HEADER.pack(0xFFFFFFFF), *[b" " * (1 << 20)] * 64]),
    "one byte more than allowed": lambda: iter([HEADER.pack(MOST + 1), *[b" " * (1 << 20)] * 64]),
    "the largest frame, of nothing but brackets": lambda: iter([brackets(MOST)]),
    "the largest call": lambda: calls(1),
    "sixty-four of the largest calls at once": lambda: calls(64),
}


class Waiting(FakeHost):
    """Answers no call."""

    async def answer(self, operation: Operation) -> Reply:
        self.operations.append(operation)
        return await asyncio.get_running_loop().create_future()


async def run(sock: socket.socket, calls_max: int) -> str:
    """What came of the step, or that it made so many calls."""
    host, worker = Waiting(), Worker(0, await WorkerLink.over(sock), asyncio.get_running_loop().create_future())
    session = StepSession(job("", Step.PRODUCER), host, worker, 7, worker.link.abort, CallPredictor())
    running = asyncio.create_task(session.run())
    while not running.done() and len(host.operations) < calls_max:
        await asyncio.wait([running], timeout=0.05)
    if not running.done():
        return "its calls are under way"
    error = running.exception()
    return error.message if isinstance(error, KeepError) else repr(error)


def peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) << 10


def main() -> None:
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        try:
            for piece in SAID[sys.argv[1]]():
                theirs.sendall(piece)
            while theirs.recv(65536):
                pass
        finally:
            os._exit(0)
    theirs.close()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak()
    came = asyncio.run(run(ours, int(sys.argv[2])))
    print(peak() - before, came)


if __name__ == "__main__":
    main()
