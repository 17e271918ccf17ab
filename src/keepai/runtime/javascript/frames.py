"""What host and worker say to each other: length-prefixed JSON frames over one socket.

Host → worker:  job (one step), reply (the answer to a call)
Worker → host:  ready, call, log, then exactly one of end, mutation, fail

Every frame after `ready` carries the number of its job. Both sides check sizes before they read; the host
trusts nothing that a worker says.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...model.operations import Kind, Step, Surface
from ..base import Fixed, Job, Limits

HEADER = struct.Struct("<I")
#: The largest frame that a worker takes from its host.
JOB_BYTES_MAX = 256 << 20

Frame = dict[str, Any]


class Garbled(Exception):
    """Bytes that are no frame."""


def pack(frame: Mapping[str, object]) -> bytes:
    """A frame as bytes; lone surrogates survive as escapes."""
    data = json.dumps(frame, separators=(",", ":")).encode("ascii")
    return HEADER.pack(len(data)) + data


def unpack(data: bytes) -> Frame:
    """The frame in `data`, or `Garbled`."""
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Garbled(str(error)[:200]) from None
    if not isinstance(frame, dict) or not isinstance(frame.get("t"), str):
        raise Garbled("not an object with a type")
    return frame


def frame_bytes_max(limits: Limits) -> int:
    """The largest frame that a step within `limits` can bring about: every character may be escaped."""
    return limits.message_bytes_max * 6 + (64 << 10)


class Channel:
    """The worker's end: blocking, and deaf to the host's death only until the next read or write."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, frame: Mapping[str, object]) -> None:
        """Send one frame whole."""
        self._socket.sendall(pack(frame))

    def receive(self) -> Frame:
        """The next frame; `EOFError` when the host is gone."""
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        if length > JOB_BYTES_MAX:
            raise Garbled(f"a frame of {length:,} bytes")
        return unpack(self._exactly(length))

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:  # once, as a rule: only a signal cuts such a read short
            more = self._socket.recv(length - len(data), socket.MSG_WAITALL)
            if not more:
                raise EOFError
            data += more
        return data


def job_frame(job: Job, number: int) -> bytes:
    """The frame that starts a step."""
    return pack({
        "t": "job", "n": number, "source": job.source, "step": job.step, "handler": job.handler,
        "args": job.args, "state": job.state,
        "operations": {name: dict(operations) for name, operations in job.surface.operations.items()},
        "allowed": sorted(job.allowed), "limits": asdict(job.limits),
        "fixed": None if job.fixed is None else [job.fixed.now_ms, job.fixed.seed.hex()], "begun_ms": job.begun_ms,
    })


def job_of(frame: Frame) -> Job:
    """The step that a frame describes; the worker trusts its host."""
    operations = {
        name: {operation: Kind(kind) for operation, kind in offered.items()}
        for name, offered in frame["operations"].items()
    }
    fixed = frame["fixed"]
    return Job(
        source=frame["source"], step=Step(frame["step"]), handler=frame["handler"], args=tuple(frame["args"]),
        state=frame["state"], surface=Surface(operations, {}), allowed=frozenset(map(Kind, frame["allowed"])),
        limits=Limits(**frame["limits"]), fixed=None if fixed is None else Fixed(fixed[0], bytes.fromhex(fixed[1])),
        begun_ms=frame["begun_ms"],
    )
