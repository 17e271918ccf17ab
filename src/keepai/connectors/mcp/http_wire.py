"""A server that is reached by HTTP: each message is a POST, and its answer is JSON or a stream of events.

It connects by the rules of `egress`: only to the address that keep.toml names, never with a redirect, and it knows
whether a byte of a request has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from ...model.clock import SystemClock
from ...model.codec import Json, encode
from ...model.errors import ConnectorError, OutcomeUnknown, Transient
from ..egress import Client, Response
from ..http.statuses import check_applied
from ..kit.lenient_json import parse_json
from ..values import Call
from .mcp_client import VERSION, Message

_GOODBYE_S = 2.0
_ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class HttpWire:
    """One session with the server at `url`."""

    def __init__(
        self, client: Client, url: str, headers: Mapping[str, str], credentials: Callable[[], dict[str, str]],
    ) -> None:
        self.place, self.tools_changed, self.is_open = url.split("/")[2], False, False
        self.lock_fd: int | None = None
        self._client, self._url, self._headers, self._credentials = client, url, headers, credentials
        self._session = ""

    async def open(self, call: Call) -> None:
        self.is_open, self.lock_fd = True, call.lock_fd

    async def request(self, message: Message, call: Call) -> Message:
        answer = await self._post(message, call)
        if answer.status == 404 and self._session:
            self.is_open, self._session = False, ""
            raise Transient(f"The session with {self.place} has expired, so nothing was done. The next call opens one.")
        check_applied("POST", self.place, answer)
        if message["method"] == "initialize":
            self._session = answer.headers.get("mcp-session-id", "")
        return self._found(answer, message["id"])

    async def notify(self, message: Message, call: Call) -> None:
        check_applied("POST", self.place, await self._post(message, call))

    async def close(self) -> None:
        session, self._session, self.is_open = self._session, "", False
        if not session:
            return
        call = Call(deadline=SystemClock().steady_ms() + _GOODBYE_S * 1000)
        with suppress(ConnectorError):  # a server that does not hear of it forgets the session by itself
            await self._client.send(
                "DELETE", self._url, call, headers=self._shown(session), credentials=self._credentials())

    async def _post(self, message: Message, call: Call) -> Response:
        return await self._client.send(
            "POST", self._url, call, headers=self._shown(self._session), credentials=self._credentials(),
            content=encode(message).encode(),
        )

    def _shown(self, session: str) -> dict[str, str]:
        of_session = {"Mcp-Session-Id": session} if session else {}
        return {**self._headers, **_ACCEPT, "MCP-Protocol-Version": VERSION, **of_session}

    def _found(self, answer: Response, wanted: Json) -> Message:
        """The answer to a request, among whatever else the server says."""
        try:
            messages = list(_messages(answer))
        except ValueError:
            raise OutcomeUnknown(f"{self.place} answered with something that is no message of MCP.") from None
        changed = any(each.get("method") == "notifications/tools/list_changed" for each in messages)
        self.tools_changed = self.tools_changed or changed
        found = [each for each in messages if "method" not in each and each.get("id") == wanted]
        if not found:
            raise OutcomeUnknown(f"{self.place} ended before it answered.")
        return found[0]


def _messages(answer: Response) -> Iterator[Message]:
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        events = answer.text().replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
        texts = ["\n".join(line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:"))
                 for event in events]
    else:
        texts = [answer.text()]
    for text in filter(str.strip, texts):
        found = parse_json(text)
        yield from (each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict))
