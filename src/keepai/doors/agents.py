"""The door for agents to a running host: a second socket, beside the one for people.

Each request carries the agent's token. There are the acts and looks of the agent's role, and no others. An agent also
reads the ledger through it, statement by statement, so that the commands that look work as they do for people; what the
ledger keeps of tokens is not among the statements. Any user of the machine who can reach the socket may connect: the
token decides, and the folder's rights decide who can reach it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..engine import tokens_and_pins
from ..ledger import queries
from ..ledger.base import Row, SeenHost
from ..model.errors import LedgerUnusable, Refused
from ..reading.look import LastingLook, Look
from . import control
from .control import NoHost, RequestSocket

if TYPE_CHECKING:
    from ..app import Keep
    from ..config import Settings

AT_ONCE_MAX = 8  #: connections of all agents
EVERYBODY = 0o666
ROWS_MAX = 20_000  #: of one answer
_UNKNOWN = "No agent here has this token. Perhaps it was removed: `keep agent list` tells people. Nothing was done."


class AgentSocket(RequestSocket):
    """The socket for agents."""

    name, mode, at_once_max = "The socket for agents", EVERYBODY, AT_ONCE_MAX

    def __init__(self, keep: Keep, settings: Settings) -> None:
        people = control.socket_path(settings.ledger, keep.parts.ledger.host)
        super().__init__(keep, control.agents_path(people))
        self._settings = settings
        self._look = LastingLook(settings.ledger, settings.policy, keep)
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="keep-agents")  # the host's loop waits for no look

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, where)
        self._reading.shutdown(wait=True, cancel_futures=True)
        self._look.close()

    def refusal(self, uid: int | None) -> Refused | None:
        """Nobody is refused before the token is known."""
        return None

    async def answered(self, request: Mapping[str, Any], uid: int | None) -> Any:
        """The result of what the agent asks for that has the token of the request."""
        token = request.get("token")
        ledger = self._keep.parts.ledger
        agent = await ledger.look(tokens_and_pins.agent_of, token) if isinstance(token, str) else None
        if agent is None:
            raise Refused(_UNKNOWN)
        act, params = request["act"], request.get("params", {})
        if act not in READS and act != TOOL:
            return await control.perform(self._keep.acting_as(agent), act, params)
        if not isinstance(params, dict):
            raise Refused(f"The params of {act} must be an object.")
        if act == TOOL:
            from .agent_tools import AgentDesk  # here, because who asks a host need not load it

            return await AgentDesk(self._keep.acting_as(agent), self._settings).answer(params)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, self._look.ask, lambda look: _read(look, act, params))


# -- reading the ledger: not acts, but what the commands of an agent are made of ------------------------

TOOL = "tool"  #: asks for a tool of `agent_tools.py`, or without a name for their list
#: What `HostReader` asks for.
READS = frozenset({"all", "one", "bytes", "hosts", "host_of", "without_host", "change"})


def readable() -> frozenset[str]:
    """The statements that an agent may have executed: those that only look, but not at tokens."""
    return frozenset(name for name in queries.reading() if not name.startswith("principal"))


def _read(look: Look, asked: str, params: dict[str, Any]) -> Any:
    if asked in ("all", "one"):
        name, given = params.get("statement"), {key: value for key, value in params.items() if key != "statement"}
        if name not in readable():
            raise Refused(f"There is no statement {str(name)[:40]!r}.")
        try:
            return _rows(look, str(name), given, 1 if asked == "one" else ROWS_MAX)
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"The parameters of {name} do not fit: {error!r:.100}.") from None
    if asked == "host_of":
        return look.read.host_of(str(params.get("workflow_id")))
    if asked == "hosts":
        return [vars(each) for each in look.read.hosts()]
    return sorted(look.read.without_host()) if asked == "without_host" else getattr(look.read, asked)()


def _rows(look: Look, name: str, params: dict[str, Any], most: int) -> list[dict[str, Any]]:
    rows = look.read.iterate(name, **params)
    found, room = list[dict[str, Any]](), control.BYTES_MAX
    try:
        for row in rows:
            found.append({key: [value.hex()] if isinstance(value, bytes) else value for key, value in row.items()})
            room -= sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            if room < 0:
                raise Refused(f"This is more than {control.BYTES_MAX >> 20} MiB. Ask for less, such as --last 100.")
            if len(found) == most:
                break
        if most == ROWS_MAX and len(found) == most:
            raise Refused(f"This is more than {ROWS_MAX:,} rows. Ask for less, such as --last 100.")
    finally:
        rows.close()
    return found


# -- the agent's side ------------------------------------------------------------------------------


def ask(
    ledger: str | Path, token: str, act: str, params: Mapping[str, Any], wait_s: float = control.ANSWER_S,
) -> Any:
    """Have a running host do something for the agent that has this token; raises what the host raised."""
    with _to_host(ledger) as connection:
        return control.exchange(connection, {"token": token, "act": act, "params": dict(params)}, wait_s)


def _to_host(ledger: str | Path) -> socket.socket:
    for path in control.sockets(ledger):
        try:
            return control.connect(control.agents_path(path), shared=True)
        except NoHost:
            continue
    raise LedgerUnusable(
        f"No host is running for {ledger}, and an agent acts and looks only through one. Nothing was done. A person "
        "starts one with `keep dev` or `keep serve`."
    )


def _row(sent: dict[str, Any]) -> Row:
    """A row as it was read; bytes were sent as a list with their digits."""
    return {key: bytes.fromhex(value[0]) if isinstance(value, list) else value for key, value in sent.items()}


class HostReader:
    """A ledger as an agent reads it: each statement is executed by the host."""

    path: Path | None = None
    refused: str | None = None

    def __init__(self, ledger: str | Path, token: str) -> None:
        self.name, self._ledger, self._token = "the host's ledger", ledger, token

    def _asked(self, what: str, **params: object) -> Any:
        return ask(self._ledger, self._token, what, params, control.LOOK_S)

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""
        return [_row(each) for each in self._asked("all", statement=query, **params)]

    def one(self, query: str, **params: object) -> Row | None:
        """The first row, if any."""
        rows = self._asked("one", statement=query, **params)
        return _row(rows[0]) if rows else None

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        """Row by row; the host sends all of them at once."""
        yield from self.all(query, **params)

    def bytes(self) -> int:
        """How much room the ledger takes where it lies."""
        return int(self._asked("bytes"))

    def hosts(self) -> list[SeenHost]:
        """The hosts that share the ledger."""
        return [SeenHost(**each) for each in self._asked("hosts")]

    def host_of(self, workflow_id: str) -> str | None:
        """The host that has a workflow."""
        found: str | None = self._asked("host_of", workflow_id=workflow_id)
        return found

    def without_host(self) -> frozenset[str]:
        """The workflows that no host at work runs."""
        return frozenset(self._asked("without_host"))

    def change(self) -> int:
        """A number that changes whenever somebody commits."""
        return int(self._asked("change"))

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Each statement has a moment of its own: an agent holds nothing open in the host."""
        yield

    def close(self) -> None:
        """There is nothing to let go of."""
