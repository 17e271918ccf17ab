"""The door for people to a running host: one request and one answer, each a line of JSON, over a unix socket.

Whoever asks is the person whose process it is, and owns the ledger; what is accepted is what an owner has, with the
parameters that `model/acts.py` names. Once an agent is registered, acts of people also need the PIN: `presence.py`
judges it here, in the host. Agents have a socket of their own, in `agents.py`. This one lies beside the ledger's file;
if the ledger is in a database, it lies in a folder of the user's own, and each host of the user has one there. Only its
owner may use it. Whatever arrives, the host goes on: a request that is malformed, too large or too slow gets
an error or no answer, and nothing else happens.
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
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..model.acts import requests_of
from ..model.errors import Finding, KeepError, LedgerUnusable, ParamsWrong, Refused, ScriptInvalid
from ..model.ledger_address import database_of, is_address
from ..model.principals import MODELS, Principal, Role
from .connections import Acceptor, ConnectionLimits, Progress, StreamProtocol, descriptors
from .peers import misplaced, peer_uid, user, user_name
from .presence import Presence

if TYPE_CHECKING:  # who asks a host need not load one
    from ..app import Keep

BYTES_MAX = 8 << 20  #: of a request or an answer
PATH_BYTES_MAX = 100  #: of a socket's path; systems allow 104 to 108
AT_ONCE_MAX = 32  #: connections
OWN_MODE = 0o600  #: only the user who runs the host
ENDING_S = 2.0  #: in which acts under way end when the host does
CONNECT_S = 5.0  #: in which a host takes a connection
ANSWER_S = 120.0  #: for which a client waits
LOOK_S = 10.0  #: for which it waits where the ledger alone could tell nearly as much


class NoHost(Exception):
    """Nobody listens on the socket."""


async def perform(keep: Keep, act: str, params: Any) -> Any:
    """Do one act on an open `Keep`, if its principal has it, and give the result as JSON."""
    check(keep.principal, act, params)
    return plain(await getattr(keep, act)(**params))


def plain(result: Any) -> Any:
    """A result as JSON."""
    if isinstance(result, list | tuple):
        return [plain(each) for each in result]
    return result.to_json() if hasattr(result, "to_json") else result


def socket_path(ledger: str | Path, host: str = "") -> Path:
    """Where a host listens: beside its file, or in a folder of the user's own if that is too long; for a database, in
    such a folder, by the host's id: processes of two containers may have the same number, and share the folder."""
    if is_address(ledger):
        name = f"{_known_by(ledger)}-{host}.sock"
        folders = _own_folders()
        return next((f / name for f in folders if len(os.fsencode(f / name)) <= PATH_BYTES_MAX), folders[-1] / name)
    file = Path(ledger).resolve()
    beside = file.with_name(file.name + ".sock")
    if len(os.fsencode(beside)) <= PATH_BYTES_MAX:
        return beside
    name = hashlib.sha256(os.fsencode(file)).hexdigest()[:32] + ".sock"
    return next((f / name for f in _own_folders() if len(os.fsencode(f / name)) <= PATH_BYTES_MAX), beside)


def agents_path(control: Path) -> Path:
    """Where a host listens for agents: beside its socket for people."""
    return control.with_name(control.name.removesuffix(".sock") + ".agents")


def sockets(ledger: str | Path) -> list[Path]:
    """Where hosts of a ledger may listen. Some of these may be what a dead host has left."""
    if not is_address(ledger):
        return [socket_path(ledger)]
    return [path for folder in _own_folders() for path in sorted(folder.glob(f"{_known_by(ledger)}-*.sock"))]


def _known_by(address: str | Path) -> str:
    """The same for everybody who means this database, whatever user and password they give."""
    return hashlib.sha256(database_of(str(address)).encode()).hexdigest()[:16]


def _own_folders() -> list[Path]:
    given, own = os.environ.get("XDG_RUNTIME_DIR"), f"keep-{os.geteuid()}"
    return [*([Path(given) / "keep"] if given else []), Path(tempfile.gettempdir()) / own]


# -- the host's side -------------------------------------------------------------------------------


class RequestSocket:
    """Listens while it is entered. Its owner holds the ledger's lock, so an old socket is a dead host's."""

    name: str  # for a sentence
    mode: int  # of the socket's file
    at_once_max: int  # connections

    def __init__(self, keep: Keep, path: Path) -> None:
        self._keep, self._path = keep, path
        self._serving: set[asyncio.Task[None]] = set()

    async def answered(self, request: Mapping[str, Any], uid: int | None) -> Any:
        """The result of a request that a process of this user makes; raises `KeepError`."""
        raise NotImplementedError

    def refusal(self, uid: int | None) -> Refused | None:
        """Why nothing is heard from a process of this user."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        why = misplaced(self._path, shared=self.mode != OWN_MODE)
        if why:
            raise LedgerUnusable(f"The host did not start. {why}")
        try:
            listener = _bind(self._path, self.mode)
        except OSError as error:
            raise LedgerUnusable(f"The socket {self._path} cannot be made ({error.strerror or error}).") from None
        # A command must get through when the other doors have used up their share: half of the reserve is for it.
        spare, request_s = descriptors()[1] // 2, self._keep.parts.policy.request_s
        bounds = ConnectionLimits(self.name, self.at_once_max, self.at_once_max, request_s, spare, _TOO_MANY)
        make = lambda connection: StreamProtocol(connection, self._serve, b"\n", BYTES_MAX)  # noqa: E731
        self._acceptor = Acceptor([listener], bounds, make)
        self._acceptor.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        await self._acceptor.close()
        for connection in [each for each in self._acceptor.held if each.progress is not Progress.WHOLE]:
            connection.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=ENDING_S)
        for connection in list(self._acceptor.held):
            connection.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            uid = peer_uid(writer.get_extra_info("socket"))
            refused = self.refusal(uid)
            answer = _refusal(refused) if refused else await self._answer(reader, uid)
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        except ConnectionError:
            return  # the one who asked is gone
        finally:
            self._serving.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, uid: int | None) -> bytes | None:
        try:
            line = await reader.readline()
        except ValueError:
            return _refusal(Refused(f"The request is longer than {BYTES_MAX:,} bytes."))
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None  # it broke off: nothing was asked
        try:
            answer = _line({"ok": True, "result": await self.answered(_understood(line), uid)})
        except KeepError as error:
            return _refusal(error)
        return answer if len(answer) <= BYTES_MAX else _TOO_LONG


class ControlSocket(RequestSocket):
    """The socket for people: only the user who runs the host may use it."""

    name, mode, at_once_max = "The control socket", OWN_MODE, AT_ONCE_MAX

    def __init__(self, keep: Keep, ledger: str | Path) -> None:
        super().__init__(keep, socket_path(ledger, keep.parts.ledger.host))
        self._ledger, self._presence = ledger, Presence(keep)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(_clear, self._ledger)
        return await super().__aenter__()

    async def answered(self, request: Mapping[str, Any], uid: int | None) -> Any:
        """The result of what the person asks for whose process it is."""
        keep = self._keep if uid is None else self._keep.acting_as(Principal.person(user_name(uid)))
        await self._presence.judge(request["act"], request.get("pin"))
        return await perform(_as_model(keep, request.get("as")), request["act"], request.get("params", {}))

    def refusal(self, uid: int | None) -> Refused | None:
        """Other users are refused."""
        if uid in (None, 0, os.geteuid()):
            return None
        return Refused(f"This host runs as {user(os.geteuid())}, and you are {user(uid)}. Nothing was done. "
                       "Use the account that runs the host.")


def _clear(ledger: str | Path) -> None:
    """Remove what dead hosts have left of a ledger in a database: nobody else looks at those places again."""
    for path in sockets(ledger) if is_address(ledger) else ():
        try:
            connect(path).close()
        except NoHost:
            path.unlink(missing_ok=True)
            agents_path(path).unlink(missing_ok=True)
        except LedgerUnusable:
            continue  # it is not ours


def _bind(path: Path, mode: int) -> socket.socket:
    """A socket that listens. It gets its name when it does, so nobody takes it for one of a dead host."""
    if path.parent in _own_folders():
        _make_own(path.parent)
    if (path.exists() or path.is_symlink()) and not stat.S_ISSOCK(path.lstat().st_mode):
        raise OSError("something else lies there; move it away")
    listener = socket.socket(socket.AF_UNIX)
    before, new = os.umask(0o777 & ~mode), path.with_name(path.name[:-1] + "~")  # no longer than its name
    try:
        new.unlink(missing_ok=True)
        listener.bind(str(new))
        listener.listen()
        new.replace(path)
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


def _as_model(keep: Keep, model: object) -> Keep:
    """The host for one of Keep's own models, if an owner asks for that: what the model wrote is kept as the model's."""
    if model is None:
        return keep
    known = MODELS.get(model) if isinstance(model, str) and keep.principal.role is Role.OWNER else None
    if known is None:
        raise Refused(f"An act cannot be done as {str(model)[:40]!r} here.")
    return keep.acting_as(known)


def parsed(text: bytes) -> Any:
    """A request that arrived as JSON."""
    try:
        request = json.loads(text, parse_int=_stored_int)
        json.dumps(request, ensure_ascii=False).encode()  # half a character is no text
    except (ValueError, RecursionError):
        raise ParamsWrong("The request is not JSON, or has a number of more than 64 bits.") from None
    return request


def _understood(line: bytes) -> dict[str, Any]:
    request = parsed(line)
    if not isinstance(request, dict) or not isinstance(request.get("act"), str):
        raise Refused('The request must be {"act": …, "params": {…}}.')
    return request


def _stored_int(digits: str) -> int:
    """A number that a ledger can take; ValueError for any other."""
    number = int(digits)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(digits)
    return number


def check(principal: Principal, act: str, params: Any) -> None:
    """Refuse an act that a principal does not have, and parameters that it does not take."""
    there = requests_of(principal.role)
    if act not in there:
        raise Refused(f"There is no act {act[:40]!r}. There are: {', '.join(there)}.")
    known = there[act]
    if not isinstance(params, dict):
        raise ParamsWrong(f"The params of {act} must be an object.")
    missing = [name for name, param in known.items() if param.required and name not in params]
    unknown = [name[:40] for name in params if name not in known]
    wrong = [name for name, value in params.items() if name in known and not _is_of(value, known[name].types)]
    if missing or unknown or wrong:
        raise ParamsWrong(
            f"The params of {act} do not fit: missing {missing}, unknown {unknown}, of a wrong type {wrong}."
        )


def _is_of(value: Any, types: tuple[type, ...]) -> bool:
    """Whether a value is of one of these types. True is no number, and a ledger has none of more than 64 bits."""
    if object in types:
        return True
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types) and not (isinstance(value, int) and abs(value) >> 63)


def _refusal(error: KeepError) -> bytes:
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if isinstance(error, ScriptInvalid):
        told["findings"] = [vars(finding) for finding in error.findings]
    return _line({"ok": False, "error": told})


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


_TOO_LONG = _refusal(Refused(f"The answer is longer than {BYTES_MAX:,} bytes. Ask for less, such as --last 100. If you "
                             "asked for an act, it was done."))
_TOO_MANY = _refusal(Refused("The host does as many acts at one time as it can. Nothing was done. Try again."))


# -- the other side --------------------------------------------------------------------------------


def ask(
    ledger: str | Path, act: str, params: Mapping[str, Any], wait_s: float = ANSWER_S, pin: str | None = None,
    model: Principal | None = None,
) -> Any:
    """Have a running host of a ledger do something, as the owner or as one of Keep's own models.

    Raises `NoHost`, or what the host raised."""
    more = {**({"pin": pin} if pin is not None else {}), **({"as": str(model)} if model else {})}
    with _to_host(ledger) as connection:
        return exchange(connection, {"act": act, "params": dict(params), **more}, wait_s)


def exchange(connection: socket.socket, request: Mapping[str, Any], wait_s: float) -> Any:
    """The host's answer to a request; raises what the host raised."""
    connection.settimeout(wait_s)
    answer = _asked(connection, _line(dict(request)))
    if answer.get("ok"):
        return answer.get("result")
    raise _raised(answer.get("error") or {})


def is_running(ledger: str | Path) -> bool:
    """Whether a host of this user listens on this machine for this ledger."""
    try:
        _to_host(ledger).close()
    except (NoHost, LedgerUnusable):
        return False
    return True


def _to_host(ledger: str | Path) -> socket.socket:
    """A connection to a host of a ledger."""
    for path in sockets(ledger):
        try:
            return connect(path)
        except NoHost:
            continue
    raise NoHost


def connect(path: Path, *, shared: bool = False) -> socket.socket:
    """Connect to a host, and make sure whose it is before anything is sent: this user's, or for a `shared` socket that
    of the user to whom its folder belongs."""
    why = misplaced(path, shared=shared)
    if why and path.exists():
        raise LedgerUnusable(f"Nothing was sent. {why}")
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(CONNECT_S)
    try:
        connection.connect(str(path))
        _check_peer(connection, path, {0, path.parent.stat().st_uid if shared else os.geteuid()})
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise NoHost from None
    except OSError as error:
        connection.close()
        slow = f"it took no connection within {CONNECT_S:g} s"
        told = slow if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise LedgerUnusable(f"The host's socket {path} cannot be used: {told}. Nothing was sent.") from None
    except LedgerUnusable:
        connection.close()
        raise
    return connection


def _check_peer(connection: socket.socket, path: Path, trusted: set[int]) -> None:
    uid = peer_uid(connection)
    if uid is not None and uid not in trusted:
        raise LedgerUnusable(f"The process that listens at {path} runs as {user(uid)}, not as you. Nothing was sent. "
                             "Use the account that runs the host; if that is yours, end the other process.")


def _asked(connection: socket.socket, request: bytes) -> dict[str, Any]:
    silent = LedgerUnusable("The host ended before it answered. Look with `keep status` whether the act took place.")
    received = bytearray()
    try:
        try:
            connection.sendall(request)
        except BrokenPipeError:
            pass  # a host that turns a connection away says why
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
    """Code → the kind of error; of several with one code, the one that the others are kinds of."""
    found = {base.code: base}
    for kind in base.__subclasses__():
        found = {**_kinds(kind), **found}
    return found
