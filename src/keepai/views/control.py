"""The door to a running host: one request and one answer, each a line of JSON, over a unix socket.

Only the acts named in `ACTS` are accepted, with the parameters named there; two of them are looks that need
what only a host knows. The socket lies beside the ledger and only its owner may use it. Whatever arrives, the
host goes on: a request that is malformed, too large or too slow gets an error or no answer, and nothing else
happens.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from ..model.errors import Finding, KeepError, LedgerUnusable, Refused, ScriptInvalid

if TYPE_CHECKING:
    from ..app import Keep

BYTES_MAX = 8 << 20  #: of a request or an answer
PATH_BYTES_MAX = 100  #: of a socket's path; systems allow 104 to 108
AT_ONCE_MAX = 32  #: connections
TURN_AWAY_S = 1.0  #: for reading what one connection too many asks for
REQUEST_S = 10.0  #: in which a request must have arrived
ENDING_S = 2.0  #: in which acts under way end when the host does
ANSWER_S = 120.0  #: for which a client waits


class NoHost(Exception):
    """Nobody listens on the socket."""


@dataclass(frozen=True)
class Act:
    """Something that may be asked of a host: a method of `Keep`, what it needs and what it may be given."""

    needs: Mapping[str, tuple[type, ...]]
    takes: Mapping[str, tuple[type, ...]]


Types = tuple[type, ...]


def _act(needs: Mapping[str, Types], **takes: Types) -> Act:
    return Act(MappingProxyType(dict(needs)), MappingProxyType(takes))


_TEXT: Types = (str,)
_ANY: Types = (object,)
_WORKFLOW, _ID, _RUN = {"wf": _TEXT}, {"id": _TEXT}, {"run_id": _TEXT}
_SHOWN: Types = (int, type(None))

#: Act → its parameters. Each is the method of that name.
ACTS: Mapping[str, Act] = MappingProxyType({
    "deploy": _act({"source": _TEXT}, grants=(str, dict, type(None)), strand=(bool,)),
    "fix": _act({"wf": _TEXT, "source": _TEXT}, impact=(str, type(None)), note=_TEXT),
    "pause": _act(_WORKFLOW, shown=_SHOWN),
    "resume": _act(_WORKFLOW, shown=_SHOWN),
    "stop": _act(_WORKFLOW, shown=_SHOWN),
    "run_now": _act(_WORKFLOW, shown=_SHOWN),
    "grant": _act({"wf": _TEXT, "capability": _TEXT}, mode=(str, dict), shown=_SHOWN),
    "retry": _act(_RUN, shown=_SHOWN),
    "finish": _act(_RUN, shown=_SHOWN),
    "skip_run": _act(_ID, shown=_SHOWN),
    "skip_event": _act(_ID, shown=_SHOWN),
    "skip_input": _act(_ID, shown=_SHOWN),
    "reprocess": _act(_ID, shown=_SHOWN),
    "approve": _act(_ID, shown=_SHOWN),
    "reject": _act(_ID, shown=_SHOWN),
    "resolve": _act({"mutation_id": _TEXT, "answer": _TEXT}, result=_ANY, shown=_SHOWN),
    "prune": _act({}, days=(int, type(None))),
    "needs_you": _act({}, wf=_TEXT),
    "explain": _act(_ID),
})


async def perform(keep: Keep, act: str, params: Mapping[str, Any]) -> Any:
    """Do one act on an open `Keep`, and give its result as JSON."""
    result = await getattr(keep, act)(**params)
    return [_plain(each) for each in result] if isinstance(result, list) else _plain(result)


def _plain(result: Any) -> Any:
    return result.to_json() if hasattr(result, "to_json") else result


def socket_path(ledger: Path) -> Path:
    """Where the host of a ledger listens: beside it, or in a folder of the user's own if that is too long."""
    ledger = ledger.resolve()
    beside = ledger.with_name(ledger.name + ".sock")
    if len(os.fsencode(beside)) <= PATH_BYTES_MAX:
        return beside
    name = hashlib.sha256(os.fsencode(ledger)).hexdigest()[:32] + ".sock"
    return next((f / name for f in _own_folders() if len(os.fsencode(f / name)) <= PATH_BYTES_MAX), beside)


def _own_folders() -> list[Path]:
    given, own = os.environ.get("XDG_RUNTIME_DIR"), f"keep-{os.geteuid()}"
    return [*([Path(given) / "keep"] if given else []), Path(tempfile.gettempdir()) / own]


# -- the host's side -------------------------------------------------------------------------------


class Control:
    """Listens while it is entered. Its owner holds the ledger's lock, so an old socket is a dead host's."""

    def __init__(self, keep: Keep, ledger: Path) -> None:
        self._keep, self._path = keep, socket_path(ledger)
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Control:
        try:
            listener = _bind(self._path)
        except OSError as error:
            raise LedgerUnusable(f"The socket {self._path} cannot be made ({error.strerror or error}).") from None
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=BYTES_MAX)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()
        if self._open:
            await asyncio.wait(self._open.values(), timeout=ENDING_S)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        try:
            full = len(self._open) > AT_ONCE_MAX
            answer = await self._turn_away(reader) if full else await self._answer(reader)
            if answer is not None:
                writer.write(answer)
                async with asyncio.timeout(REQUEST_S):
                    await writer.drain()
        except (ConnectionError, TimeoutError):
            return  # whoever asked is gone
        finally:
            del self._open[writer]
            writer.close()

    async def _turn_away(self, reader: asyncio.StreamReader) -> bytes:
        """Refuse, after the request was read: closing with something unread would cut the answer off."""
        try:
            async with asyncio.timeout(TURN_AWAY_S):
                await reader.readline()
        except (ValueError, TimeoutError, ConnectionError):
            pass
        return _refusal(Refused("The host has too many connections. Try again."))

    async def _answer(self, reader: asyncio.StreamReader) -> bytes | None:
        try:
            async with asyncio.timeout(REQUEST_S):
                line = await reader.readline()
        except ValueError:
            return _refusal(Refused(f"The request is longer than {BYTES_MAX:,} bytes."))
        except (TimeoutError, ConnectionError):
            return None
        if not line.endswith(b"\n"):
            return None  # it broke off: nothing was asked
        try:
            act, params = _understood(line)
            return _line({"ok": True, "result": await perform(self._keep, act, params)})
        except KeepError as error:
            return _refusal(error)


def _bind(path: Path) -> socket.socket:
    if path.parent in _own_folders():
        _make_own(path.parent)
    if path.exists() or path.is_symlink():
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError("something else lies there; move it away")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _make_own(folder: Path) -> None:
    """A folder in a shared place counts only if it is really ours and closed to others."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(f"{folder} is not a folder that only you may use; move it away")


def _understood(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        request = json.loads(line)
        json.dumps(request, ensure_ascii=False).encode()  # half a character is no text
    except (ValueError, RecursionError):
        raise Refused("The request is not a line of JSON.") from None
    if not isinstance(request, dict) or not isinstance(request.get("act"), str):
        raise Refused('The request must be {"act": …, "params": {…}}.')
    act, params = request["act"], request.get("params", {})
    if act not in ACTS:
        raise Refused(f"There is no act {act[:40]!r}. There are: {', '.join(ACTS)}.")
    check(act, params)
    return act, params


def check(act: str, params: Any) -> None:
    """Refuse parameters that an act does not take."""
    known = {**ACTS[act].needs, **ACTS[act].takes}
    if not isinstance(params, dict):
        raise Refused(f"The params of {act} must be an object.")
    missing = [name for name in ACTS[act].needs if name not in params]
    unknown = [name[:40] for name in params if name not in known]
    wrong = [name for name, value in params.items() if name in known and not isinstance(value, known[name])]
    if missing or unknown or wrong:
        raise Refused(f"The params of {act} do not fit: missing {missing}, unknown {unknown}, of a wrong type {wrong}.")


def _refusal(error: KeepError) -> bytes:
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if isinstance(error, ScriptInvalid):
        told["findings"] = [vars(finding) for finding in error.findings]
    return _line({"ok": False, "error": told})


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


# -- the other side --------------------------------------------------------------------------------


def ask(ledger: Path, act: str, params: Mapping[str, Any]) -> Any:
    """Have the running host of a ledger do something; raises `NoHost`, or what the host raised."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(str(socket_path(ledger)))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoHost from None
        except OSError as error:
            raise LedgerUnusable(f"The host's socket {socket_path(ledger)} cannot be used: {error.strerror}.") from None
        answer = _asked(connection, _line({"act": act, "params": dict(params)}))
    if answer.get("ok"):
        return answer.get("result")
    raise _raised(answer.get("error") or {})


def is_running(ledger: Path) -> bool:
    """Whether a host listens for this ledger."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(socket_path(ledger)))
        except OSError:
            return False
    return True


def _asked(connection: socket.socket, request: bytes) -> dict[str, Any]:
    silent = LedgerUnusable("The host ended before it answered. Look with `keep status` whether the act took place.")
    received = bytearray()
    try:
        connection.sendall(request)
        while not received.endswith(b"\n"):
            part = connection.recv(1 << 16)
            if not part or len(received) > BYTES_MAX:
                raise silent
            received += part
        answer = json.loads(received)
    except (OSError, ValueError):
        raise silent from None
    return answer if isinstance(answer, dict) else {}


def _raised(told: Mapping[str, Any]) -> KeepError:
    """The error that the host raised, as it was."""
    if told.get("code") == ScriptInvalid.code:
        return ScriptInvalid([Finding(**finding) for finding in told.get("findings", [])])
    kind = _kinds().get(str(told.get("code")), KeepError)
    error = kind.__new__(kind)  # some kinds want more than their message, which the host keeps to itself
    KeepError.__init__(error, str(told.get("message") or "The host gave no reason."))
    return error


def _kinds(base: type[KeepError] = KeepError) -> dict[str, type[KeepError]]:
    found = {base.code: base}
    for kind in base.__subclasses__():
        found.update(_kinds(kind))
    return found
