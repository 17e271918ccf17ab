"""The subjects of the contract for MCP: a server that is a program, with and without a rule, and one by HTTP."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keepai import Connector, OutcomeUnknown, PermissionDenied, Rejected, Transient
from keepai.connectors import make
from keepai.connectors.mcp import mcp_client, stdio_wire
from keepai.connectors.mcp.tool_lock import tool_of, write_lock
from keepai.testing.contract import CANARY, HttpSubject, Subject
from keepai.testing.contract.subject import Fault
from keepai.testing.loopback import HttpReply, Request
from tests.connectors import mcp_server

RULE = MappingProxyType({
    "on": "addNote", "tool": "findNotes", "args": {"ref": "{key}"}, "items": "notes", "match": "ref", "key": "ref",
})


def locked(folder: Path, tools: list[Any] = mcp_server.TOOLS, name: str = "notes") -> Path:
    """A lock in which a person has confirmed these tools; those that find something as reads."""
    lock = folder / "keep.mcp.lock"
    found = [tool for each in tools if (tool := tool_of(each))]
    kinds = [replace(tool, kind="read" if tool.name.startswith("find") else "mutation") for tool in found]
    lock.write_text(write_lock(lock, name, kinds))
    return lock


def program(folder: Path, **more: Any) -> Connector:
    """A connector to the server as a program in this folder."""
    command = shlex.join([sys.executable, "-S", mcp_server.__file__, str(folder)])
    made = make("mcp", "notes", {"command": command, "lock": str(locked(folder)), "env_secrets": ["TOKEN"], **more})
    made.entrust({"TOKEN": CANARY})
    return made


class NotesProgram(Subject):
    """A program, whose notes can be found by the key that Keep puts into one of the params."""

    kind = "mcp"
    operation, params, same_result = "addNote", MappingProxyType({"text": "a line"}), False
    rules: tuple[Any, ...] = (RULE,)
    refusals = MappingProxyType(dict.fromkeys(mcp_server.REFUSED, Rejected))
    oddities = tuple(mcp_server.ODD)
    crash_lines_max, crash_in = 8, (mcp_client, stdio_wire)

    def connector(self) -> Connector:
        return program(self.folder, lookup=[dict(rule) for rule in self.rules])

    def effects(self) -> int:
        return len(mcp_server.notes(self.folder))

    def fault(self, fault: Fault) -> AbstractContextManager[object]:
        return self._wrong(fault.value)

    def refusal(self, name: str) -> AbstractContextManager[object]:
        return self._wrong(name)

    def oddity(self, name: str) -> AbstractContextManager[object]:
        return self._wrong(name)

    @contextmanager
    def _wrong(self, name: str) -> Iterator[None]:
        place = self.folder / "fault"
        place.write_text(name)
        yield
        place.unlink()

    def land(self) -> None:
        mcp_server.land(self.folder)


class NotesProgramBlind(NotesProgram):
    """The same without a rule."""

    kind, how, rules, crash_lines_max = "blind", "without a rule", (), 0
    oddities = ("isError",)


class NotesOverHttp(HttpSubject):
    """A server behind HTTP with a session, which answers calls with a stream of events."""

    kind, how = "mcp", "over HTTP"
    operation, params, same_result = "addNote", MappingProxyType({"text": "a line"}), False
    refusals = MappingProxyType({
        "400": Rejected, "401": PermissionDenied, "404": Transient, "429": Transient, "503": OutcomeUnknown,
        "says invalid params": Rejected, "says unknown tool": Rejected,
    })
    retry_after = MappingProxyType({"429": 7.0})
    oddities = (*HttpSubject.oddities, "202 nothing", *(f"says {name}" for name in mcp_server.ODD))
    crash_lines_max = 0

    def connector(self) -> Connector:
        made = make("mcp", "notes", {
            "url": f"{self.server.url}/mcp", "networks": ["127.0.0.1"], "auth": "bearer", "lookup": [dict(RULE)],
            "lock": str(locked(self.folder)),
        })
        made.entrust({"token": CANARY})
        return made

    def is_write(self, request: Request) -> bool:
        return b"add_note" in request.body

    def handle(self, request: Request) -> HttpReply:
        if request.headers.get("authorization") != f"Bearer {CANARY}":
            return HttpReply(401, {})
        if request.method == "DELETE":
            return HttpReply(204, content=b"")
        message = request.json()
        if message["method"] != "initialize" and request.headers.get("mcp-session-id") != "session-7":
            return HttpReply(404, {})
        said = mcp_server.answer(self.folder, message)
        if said is None:
            return HttpReply(202, content=b"")
        if message["method"] != "tools/call":
            return HttpReply(200, said, {"Content-Type": "application/json", "Mcp-Session-Id": "session-7"})
        return _stream({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, said)

    def refused(self, name: str) -> HttpReply:
        return self._said(name, mcp_server.REFUSED) or super().refused(name)

    def odd(self, name: str) -> HttpReply:
        return self._said(name, mcp_server.ODD) or super().odd(name)

    def _said(self, name: str, known: dict[str, Any]) -> HttpReply | None:
        said = known.get(name.removeprefix("says ")) if name.startswith("says ") else None
        return HttpReply(200, {"jsonrpc": "2.0", "id": CALL_ID, **said}, _JSON) if said else None

    def effects(self) -> int:
        return len(mcp_server.notes(self.folder))


CALL_ID = 3  # of the call, after the handshake and the list of tools
_JSON = MappingProxyType({"Content-Type": "application/json"})


def _stream(*messages: Any) -> HttpReply:
    events = "".join(f"event: message\r\ndata: {json.dumps(each)}\r\n\r\n" for each in messages)
    return HttpReply(200, headers={"Content-Type": "text/event-stream"}, content=events.encode())


MCP: list[type[Subject]] = [NotesProgram, NotesProgramBlind, NotesOverHttp]
