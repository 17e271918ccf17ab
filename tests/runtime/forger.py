
"""A worker that lies, and the frames it says it with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct

from keepai.runtime.base import Ended, Job
from keepai.runtime.javascript.call_predictor import CallPredictor
from keepai.runtime.javascript.fork_client import Worker
from keepai.runtime.javascript.frames import HEAD_BYTES_MAX, frame_bytes
from keepai.runtime.javascript.step_session import StepSession
from keepai.runtime.javascript.worker_link import WorkerLink
from tests.runtime.script_world import FakeHost


class Forger:
    """A worker that says whatever the test wants."""

    def __init__(self, predictor: CallPredictor | None = None) -> None:
        self.killed = False
        self.predictor = predictor or CallPredictor()

    async def run(self, frames: bytes, made: Job, host: FakeHost, *, reads: bool = True, later: bytes = b"") -> Ended:
        ours, theirs = socket.socketpair()
        link = await WorkerLink.over(ours)
        worker = Worker(0, link, asyncio.get_running_loop().create_future())
        theirs.setblocking(False)

        def kill() -> None:
            self.killed = True
            link.abort()

        speaking = asyncio.create_task(self._speak(theirs, frames, later, reads))
        try:
            planned, predicted = await self.predictor.plan(made, host)
            link.send(worker.message(planned, 7, predicted and predicted.answer))
            session = StepSession(planned, host, worker, 7, kill, self.predictor, predicted)
            return await asyncio.wait_for(session.run(), 5)
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            theirs.close()
            link.abort()

    @staticmethod
    async def _speak(sock: socket.socket, frames: bytes, later: bytes, reads: bool) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.sock_sendall(sock, frames)
            if later:
                await asyncio.sleep(0.003)  # the host has heard the first part by then, and begun with it
                await loop.sock_sendall(sock, later)
            while reads and await loop.sock_recv(sock, 65536):
                pass


def forged(t: str, *texts: str, **members: object) -> bytes:
    """A frame of any kind, of job 7 if nothing else is said."""
    return frame_bytes(json.dumps({"t": t, "n": 7, **members})[1:-1], texts)


def call(*args: str, **changes: object) -> bytes:
    return forged("call", *args or ("1",), **{"id": 1, "name": "gmail.get", "at": [1, 1], **changes})


def end(*texts: str, **changes: object) -> bytes:
    return forged("end", *texts, **changes)


def raw(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


END = end("1")
#: Each must kill the worker, as an error of its script.
FORGED = {
    "no JSON": raw(b"\x00\xff garbage"),
    "no object": raw(b"[1,2]"),
    "no type": raw(b"{}"),
    "type that is no text": raw(b'{"t": 1, "n": 7}'),
    "deep nesting": raw(b"[" * 100_000),
    "huge number": raw(b'{"t": ' + b"1" * 5000 + b"}"),
    "empty frame": raw(b""),
    "huge frame": struct.pack("<I", 0xFFFFFFFF) + b"x" * 100,
    "unknown frame": forged("root"),
    "ready again": forged("ready", protections=[]),
    "another job's end": end("1", n=6),
    "no job's end": frame_bytes('"t":"end"', ["1"]),
    "unknown operation": call(name="gmail.delete"),
    "built-in of Python": call(name="__class__"),
    "name that is no text": call(name=["gmail.get"]),
    "forbidden operation": call(name="gmail.send"),
    "texts that are shorter than said": raw(b'{"t":"end","n":7,"sizes":[2]}\n1'),
    "texts that are longer than said": raw(b'{"t":"end","n":7,"sizes":[1]}\n12'),
    "texts of no size": raw(b'{"t":"end","n":7}\n1'),
    "a text of a negative size": raw(b'{"t":"end","n":7,"sizes":[2,-1]}\n1'),
    "a size that is no number": raw(b'{"t":"end","n":7,"sizes":["1"]}\n1'),
    "sizes that are no list": raw(b'{"t":"end","n":7,"sizes":1}\n1'),
    "a text that is not UTF-8": raw(b'{"t":"end","n":7,"sizes":[1]}\n\xff'),
    "more JSON than a head may have": raw(b'{"t":"end","n":7,"x":"' + b"x" * HEAD_BYTES_MAX + b'","sizes":[1]}\n1'),
    "two results": end("1", "2"),
    "arguments that are no JSON": call("{"),
    "argument NaN": call("NaN"),
    "argument with a key twice": call('{"a":1,"a":2}'),
    "argument nested deep": call("[" * 5000 + "]" * 5000),
    "argument with a huge integer": call("1" * 5000),
    "argument with a lone surrogate": call('"\\ud800"'),
    "argument that is too large": call('"' + "x" * (4 << 20) + '"'),
    "arguments that are too large at once": b"".join(call('"' + "x" * (3 << 20) + '"', id=i) for i in range(3)),
    "frame that is too large": call('"' + "x" * (5 << 20) + '"'),
    "number of another call": call() + call(),
    "number that is no number": call(id="1"),
    "too many at once": b"".join(call(id=i) for i in range(100)),
    "mutation outside of mutate": forged("mutation", name="gmail.send", at=None),
    "mutation that is a read": forged("mutation", name="gmail.get", at=None),
    "end while a call is under way": call() + END,
    "result that is no JSON": end("nonsense"),
    "failure of a kind that scripts cannot bring about": forged("fail", code="outcome_unknown", message="x"),
    "log line of a strange level": forged("log", "x", level="root"),
    "log line whose level is no text": forged("log", "x", level={}),
    "log line without a text": forged("log", level="info"),
    "log flood": b"".join(forged("log", "x" * 1000, level="info") for _ in range(400)),
    "log flood of nothing": b"".join(forged("log", "", level="info") for _ in range(20_000)),
}
