"""The protocol: open a session, list the tools, call one. It says what an answer, or none, proves about a call.

    never written                              Transient          nothing happened
    refused before it was carried out          Rejected           nothing happened: JSON-RPC -32700, -32600 to -32602
    the server refuses to speak with us        PermissionDenied … as the table of HTTP statuses says
    everything else but a complete result      OutcomeUnknown     lost answers, other errors, isError, input_required

`isError` proves nothing: a tool may fail after it has done its work. Servers ask us nothing: whatever a server asks is
answered with "method not found".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from ...model.clock import SystemClock
from ...model.codec import Json
from ...model.errors import OutcomeUnknown, PreconditionFailed, Rejected, Transient
from ..values import Call
from .tool_lock import TOOLS_MAX, Tool, shortened, tool_of

VERSION = "2025-11-25"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", VERSION)
#: JSON-RPC's own errors: the message was not read, is no request, names no method or tool, or its params do not fit.
REFUSED = frozenset({-32700, -32600, -32601, -32602})
METHOD_NOT_FOUND = -32601
LIST_AGE_MS = 300_000  #: after which the tools are listed again before a call
START_SHARE = 0.8  #: of the time of a call that opening a session may take
START_S_MAX = 120.0
_PAGES_MAX = 50

Message = dict[str, Json]


class McpWire(Protocol):
    """How messages reach a server. A request that fails says by its error whether a byte of it may have left."""

    place: str  #: the server, for people
    lock_fd: int | None  #: the host's lock, if the server holds it too
    tools_changed: bool  #: the server said so

    @property
    def is_open(self) -> bool:
        """Whether a session is there."""

    async def open(self, call: Call) -> None:
        """Reach the server. Raises only what proves that nothing was asked."""

    async def request(self, message: Message, call: Call) -> Message:
        """Send a request, and give the answer to it."""

    async def notify(self, message: Message, call: Call) -> None:
        """Send a message that has no answer."""

    async def close(self) -> None:
        """End the session. Nothing of it goes on afterwards."""


class McpClient:
    """One server. Calls wait for each other: a call that is given up ends the server's process."""

    def __init__(self, wire: McpWire) -> None:
        self._wire, self._busy, self._ids = wire, asyncio.Lock(), 0
        self._tools: dict[str, Tool] = {}
        self._listed_at = 0.0

    async def tools(self, call: Call) -> dict[str, Tool]:
        """Name → tool, as the server describes them now."""
        async with self._ready(call, anew=True):
            return self._tools

    async def call_tool(self, confirmed: Tool, arguments: Mapping[str, Json], call: Call) -> dict[str, Any]:
        """Call a tool that is still as it was confirmed; its result."""
        async with self._ready(call):
            now = self._tools.get(confirmed.name)
            if now is None or now.hash != confirmed.hash:
                what = "is gone from" if now is None else "was changed by"
                raise PreconditionFailed(
                    f"The tool {confirmed.name} {what} {self._wire.place} since a person confirmed it. Nothing was "
                    "sent. Run `keep connect` for this connector again to look at it.")
            answer = await self._ask("tools/call", {"name": confirmed.name, "arguments": dict(arguments)}, call)
        return self._result(confirmed.name, answer)

    async def close(self) -> None:
        """End the session."""
        await self._wire.close()

    @asynccontextmanager
    async def _ready(self, call: Call, *, anew: bool = False) -> AsyncIterator[None]:
        """This call's turn, in a session whose list of tools is fresh. If that fails, the call was not sent."""
        if call.remaining_s <= 0:
            raise Transient(f"The call's deadline passed before anything was sent to {self._wire.place}.")
        try:
            async with asyncio.timeout(min(START_S_MAX, call.remaining_s * START_SHARE)):
                await self._busy.acquire()
        except TimeoutError:
            raise Transient(f"{self._wire.place} is busy with another call. Nothing of this one was sent.") from None
        try:
            await self._prepare(call, anew)
            yield
        finally:
            self._busy.release()

    async def _prepare(self, call: Call, anew: bool) -> None:
        place, wire, prepared = self._wire.place, self._wire, False
        seconds = min(START_S_MAX, call.remaining_s * START_SHARE)
        try:
            async with asyncio.timeout(seconds):
                if not wire.is_open or (call.lock_fd is not None and wire.lock_fd != call.lock_fd):
                    await wire.close()
                    await self._open(call)
                if anew or wire.tools_changed or SystemClock().steady_ms() - self._listed_at > LIST_AGE_MS:
                    await self._list(call)
            prepared = True
        except TimeoutError:
            raise Transient(f"{place} was not ready within {seconds:.3g} s. Nothing was asked of it.") from None
        except OutcomeUnknown as error:
            raise Transient(f"{error.message} It was not ready, so nothing was asked of it.") from None
        finally:
            if not prepared:
                await wire.close()

    async def _open(self, call: Call) -> None:
        await self._wire.open(call)
        self._listed_at = float("-inf")
        hello: Message = {"protocolVersion": VERSION, "capabilities": {},
                          "clientInfo": {"name": "keep", "version": "1"}}
        answer = await self._ask("initialize", hello, call)
        result = answer.get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if version not in VERSIONS:
            raise PreconditionFailed(
                f"{self._wire.place} does not begin a session as MCP {VERSION} and earlier versions do"
                f"{_error_words(answer)}. Is it an MCP server?")
        await self._wire.notify({"jsonrpc": "2.0", "method": "notifications/initialized"}, call)

    async def _list(self, call: Call) -> None:
        found: dict[str, Tool] = {}
        params: Message = {}
        self._wire.tools_changed = False
        for _ in range(_PAGES_MAX):
            answer = await self._ask("tools/list", params, call)
            result = answer.get("result")
            entries = result.get("tools") if isinstance(result, dict) else None
            if not isinstance(result, dict) or not isinstance(entries, list):
                raise Transient(f"{self._wire.place} does not list its tools{_error_words(answer)}.")
            found |= {tool.name: tool for entry in entries if (tool := tool_of(entry))}
            if not result.get("nextCursor") or len(found) > TOOLS_MAX:
                break
            params = {"cursor": result["nextCursor"]}
        if len(found) > TOOLS_MAX:
            raise PreconditionFailed(f"{self._wire.place} has more than {TOOLS_MAX} tools.")
        self._tools, self._listed_at = found, SystemClock().steady_ms()

    async def _ask(self, method: str, params: Message, call: Call) -> Message:
        self._ids += 1
        message: Message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        return await self._wire.request(message, call)

    def _result(self, name: str, answer: Message) -> dict[str, Any]:
        """The result of a tool that did its work; otherwise what is known, by the table above."""
        called = f"The tool {name} of {self._wire.place}"
        error, result = answer.get("error"), answer.get("result")
        if isinstance(error, dict):
            kind = Rejected if error.get("code") in REFUSED else OutcomeUnknown
            raise kind(f"{called} was refused{_error_words(answer)}.")
        if not isinstance(result, dict):
            raise OutcomeUnknown(f"{called} answered with nothing that MCP knows.")
        if result.get("resultType") not in (None, "complete"):
            raise OutcomeUnknown(f"{called} wants to be asked again, with more input. Keep does not send it again.")
        if result.get("isError"):
            raise OutcomeUnknown(f"{called} failed, which does not say how far it came: {text_in(result)[:500]}")
        if not isinstance(result.get("content"), list) and "structuredContent" not in result:
            raise OutcomeUnknown(f"{called} answered with nothing that MCP knows.")
        return result


def text_in(result: Mapping[str, Any]) -> str:
    """The text of a result, with nothing hidden in it."""
    parts = [part["text"] for part in result.get("content") or () if isinstance(part, dict)
             and part.get("type") == "text" and isinstance(part.get("text"), str)]
    return shortened("\n".join(parts))


def _error_words(answer: Message) -> str:
    error = answer.get("error")
    if not isinstance(error, dict):
        return ""
    return f": {shortened(str(error.get('message') or 'no reason given'))[:500]} ({error.get('code')})"
