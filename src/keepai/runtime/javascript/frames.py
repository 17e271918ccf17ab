"""The messages between host and worker: length-prefixed frames over one socket.

A frame is a JSON object, and behind it plain texts: what a script made (arguments, a result, a line of the log), and
what it gets. The object has their sizes. So the host parses a few kilobytes of JSON at most, and no text is escaped.

Host → worker:  script (what several jobs share), job (one step), reply (the answer to a call)
Worker → host:  ready, call, log, then exactly one of end (the step returned), mutation (it made its terminal call) and
                fail

Every frame from `job` on carries the number of its job. The first frame that a step sends after it made the call whose
answer came with the job has the member `used`. The end of a job with `ahead` has the member `mutate` if `mutate` was
tried: the name and place of its call, whose arguments stand behind the result, or null if it did anything else. Both
sides check sizes before they read; the host trusts nothing that a worker sends.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from ...model.errors import Location, ScriptError
from ...model.fast_record import fast_record
from ...model.operations import Kind, Step, Surface
from ..base import Ahead, Cut, Fixed, Job, Limits, Reply
from .loaded_scripts import LoadedScript

HEADER = struct.Struct("<I")
#: The largest frame that a worker takes from its host.
JOB_BYTES_MAX = 256 << 20
#: The most that a worker's frame may have beside a script's message: its JSON, or a line of the log.
HEAD_BYTES_MAX = 64 << 10
_READ_BYTES = 64 << 10
_USED = ',"used":true'

Frame = dict[str, Any]

# Made once: building them costs more than a small frame does.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # it takes one value and no space around it


@fast_record
@dataclass(frozen=True)
class PredictedAnswer:
    """The answer to the call that a step will probably make first, so that it need not ask."""

    call: str  # its name and its arguments' texts, line by line
    texts: list[str]  # of a Reply
    cuts: Sequence[Cut] = ()


def call_text(name: str, args: Sequence[str]) -> str:
    """A call as a worker recognises it."""
    return "\n".join((name, *args))


class Garbled(Exception):
    """Bytes that are no frame."""


def pack(frame: Mapping[str, object]) -> bytes:
    """A frame as bytes; lone surrogates survive as escapes."""
    text = _encode(frame)
    return HEADER.pack(len(text)) + text.encode("ascii")


def frame_bytes(head: str, texts: Sequence[str]) -> bytes:
    """A frame: the members of its JSON object, and the texts behind it."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    start = f'{{{head},"sizes":[{",".join([str(len(part)) for part in parts])}]}}\n'.encode("ascii")
    return b"".join([HEADER.pack(len(start) + sum(map(len, parts))), start, *parts])


def parse_frame(data: bytes | bytearray, head_max: int = HEAD_BYTES_MAX) -> Frame:
    """A frame, whose texts are in `texts`, or `Garbled`; `head_max` limits its JSON."""
    border = data.find(b"\n", 0, head_max)
    if border < 0:
        border = len(data)
        if border > head_max:
            raise Garbled(f"more than {head_max:,} bytes of JSON")
    texts: list[str] = []
    try:
        head = data[:border].decode("utf-8")
        frame, end = _scan(head, 0)
        if end != len(head) or not isinstance(frame, dict) or not isinstance(frame.get("t"), str):
            raise Garbled("not an object with a type")
        start = min(border + 1, len(data))
        for size in frame.pop("sizes", ()):
            if size < 0:  # else the same bytes could be read again and again
                raise Garbled("a text of a negative size")
            texts.append(data[start : start + size].decode("utf-8", "surrogatepass"))
            start += size
    except (ValueError, RecursionError, StopIteration, TypeError) as error:
        raise Garbled(str(error)[:200]) from None
    if start != len(data):
        raise Garbled("texts of another size")
    frame["texts"] = texts
    return frame


@fast_record
@dataclass(frozen=True)
class ScriptCall:
    """A call that a script makes, as it goes into a frame."""

    name: str
    args: Sequence[str]  # JSON texts
    at: Location | None

    @property
    def place(self) -> str:
        """Where the script makes it, as JSON."""
        return "null" if self.at is None else f"[{self.at.line},{self.at.column}]"


def call_frame(number: int, call_number: int, call: ScriptCall, *, used: bool = False) -> bytes:
    """The frame of a call that the host answers, or carries out without an answer."""
    head = f'"t":"call","n":{number},"id":{call_number},"name":{quote(call.name)},"at":{call.place}{_USED * used}'
    return frame_bytes(head, call.args)


def log_frame(number: int, level: str, text: str, *, used: bool = False) -> bytes:
    """The frame of a line of the log."""
    return frame_bytes(f'"t":"log","n":{number},"level":{quote(level)}{_USED * used}', [text])


def end_frame(
    number: int, result: str, *, used: bool = False, tried: bool = False, mutate: ScriptCall | None = None,
) -> bytes:
    """The frame of a step that returned; an empty result is undefined. If `mutate` was tried, its call goes along."""
    head = f'"t":"end","n":{number}{_USED * used}'
    if mutate is not None:
        return frame_bytes(f'{head},"mutate":[{quote(mutate.name)},{mutate.place}]', [result, *mutate.args])
    return frame_bytes(f'{head},"mutate":null' if tried else head, [result] if result else [])


def mutation_frame(number: int, call: ScriptCall) -> bytes:
    """The frame of a `mutate` that ended with its mutation call."""
    return frame_bytes(f'"t":"mutation","n":{number},"name":{quote(call.name)},"at":{call.place}', call.args)


def fail_frame(number: int, error: ScriptError, *, used: bool = False) -> bytes:
    """The frame of a step that ended with an error."""
    at = None if error.at is None else [error.at.line, error.at.column]
    failure = {"t": "fail", "n": number, "code": error.code, "message": error.message, "at": at}
    return pack({**failure, "used": True} if used else failure)


def reply_frame(number: int, call: int, reply: Reply, *, known: bool = False) -> bytes:
    """The frame that answers a call; `known` if the host will know the answer's cuts by name."""
    head = f'"t":"reply","n":{number},"id":{call},"known":{"true" if known else "false"}'
    return frame_bytes(f"{head},{_given_text(reply.cuts, reply.fixed)}", reply.texts)


class HostChannel:
    """The worker's end: blocking. It notices at the next read or write that the host is gone."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._unread = b""
        self._later: deque[Frame] = deque()

    def send(self, data: bytes) -> None:
        """Send frames whole."""
        self._socket.sendall(data)

    def receive(self) -> Frame:
        """The next frame; `EOFError` when the host is gone."""
        return self._later.popleft() if self._later else self._next()

    def reply(self, number: int) -> Frame:
        """The next answer to the job with this number. Jobs that come meanwhile wait; answers to an earlier job, which
        were on their way when it ended, are dropped."""
        while True:
            frame = self._next()
            if frame["t"] != "reply":
                self._later.append(frame)
            elif frame["n"] == number:
                return frame

    def _next(self) -> Frame:
        self._read(HEADER.size)
        (length,) = HEADER.unpack_from(self._unread)
        if length > JOB_BYTES_MAX:
            raise Garbled(f"a frame of {length:,} bytes")
        end = HEADER.size + length
        if end > len(self._unread):
            self._read(end)
        data, self._unread = self._unread[HEADER.size : end], self._unread[end:]
        return parse_frame(data, head_max=length)

    def _read(self, length: int) -> None:
        """Read until there are at least so many unread bytes."""
        while (missing := length - len(self._unread)) > 0:
            if missing <= _READ_BYTES:
                more = self._socket.recv(_READ_BYTES)
            else:
                more = self._socket.recv(missing, socket.MSG_WAITALL)  # at once, or it would be copied again and again
            if not more:
                raise EOFError
            self._unread += more


def script_frame(number: int, job: Job, forget: list[int]) -> bytes:
    """The frame that gives a worker a script, and the numbers of those to forget for it."""
    return pack({
        "t": "script", "script": number, "forget": forget, "source": job.source,
        "operations": {name: dict(operations) for name, operations in job.surface.operations.items()},
        "limits": asdict(job.limits),
    })


def script_of(frame: Frame) -> LoadedScript:
    """The script that a frame describes; the worker trusts its host."""
    operations = {
        name: {operation: Kind(kind) for operation, kind in offered.items()}
        for name, offered in frame["operations"].items()
    }
    return LoadedScript(frame["source"], Surface(operations, {}), Limits(**frame["limits"]))


def job_frame(job: Job, number: int, script: int, predicted: PredictedAnswer | None = None) -> bytes:
    """The frame that starts a step of a script that the worker knows."""
    texts = [text for text in (*job.args, job.state) if text is not None]
    if predicted is not None:
        texts += [predicted.call, *predicted.texts]
    given = ",".join(["0" if text is None else "1" for text in (*job.args, job.state)])
    begun_ms = "null" if job.begun_ms is None else job.begun_ms
    ahead = "null" if job.ahead is None else f'[{job.ahead.now_ms},"{_listed(job.ahead.allowed)}"]'
    return frame_bytes(
        f'"t":"job","n":{number},"script":{script},"step":"{job.step}","handler":{quote(job.handler)},"given":[{given}],'
        f'"allowed":"{_listed(job.allowed)}",{_given_text(job.cuts, job.fixed)},"begun_ms":{begun_ms},"ahead":{ahead},'
        f'"predicted":{"null" if predicted is None else _encode(predicted.cuts)},'
        f'"only_load":{"true" if job.only_load else "false"}', texts,
    )


def _given_text(cuts: Sequence[Cut], fixed: Fixed | None) -> str:
    """What a job and a reply have beside their texts: where large values are in the first, time and chance."""
    seen = "null" if fixed is None else f'[{fixed.now_ms},"{fixed.seed.hex()}"]'
    return f'"cuts":{_encode(cuts) if cuts else "[]"},"fixed":{seen}'


def fixed_of(frame: Frame) -> Fixed | None:
    """Time and chance that a job or a reply brings."""
    fixed = frame["fixed"]
    return None if fixed is None else Fixed(fixed[0], bytes.fromhex(fixed[1]))


def predicted_of(frame: Frame) -> PredictedAnswer | None:
    """The answer that goes along with the step that a frame describes."""
    if frame["predicted"] is None:
        return None
    call, *texts = frame["texts"][sum(frame["given"]) :]
    return PredictedAnswer(call, texts, frame["predicted"])


def job_of(frame: Frame, script: LoadedScript) -> Job:
    """The step that a frame describes."""
    ahead, texts = frame["ahead"], iter(frame["texts"])
    *args, state = [next(texts) if given else None for given in frame["given"]]
    return Job(
        source=script.source, step=_STEPS[frame["step"]], handler=frame["handler"], args=tuple(args), state=state,
        surface=script.surface, allowed=_kinds(frame["allowed"]), limits=script.limits, fixed=fixed_of(frame),
        begun_ms=frame["begun_ms"], cuts=frame["cuts"],
        ahead=None if ahead is None else Ahead(_kinds(ahead[1]), ahead[0]), only_load=frame["only_load"],
    )


_STEPS = {step.value: step for step in Step}


@lru_cache(maxsize=64)
def _listed(kinds: frozenset[Kind]) -> str:
    return " ".join(sorted(kinds))


@lru_cache(maxsize=64)
def _kinds(listed: str) -> frozenset[Kind]:
    return frozenset(map(Kind, listed.split()))
