"""The port of the API: who asks, what is asked, and the answer.

Each request carries a token, and there are only the acts of the role behind it. An act goes the same way as one of the
command line: through `control.perform`. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ...app import Keep
from ...config import Settings
from ...engine import tokens_and_pins
from ...model.acts import REQUESTS, Act
from ...model.errors import ConfigError, Conflict, KeepError, LedgerError, NotFound, ParamsWrong, ScriptInvalid
from ...model.principals import Principal
from .. import control
from ..http_server import HttpServer, http_bounds, listening_at
from ..live import STREAMS_MAX, LiveUpdates
from .api_views import ROWS_MAX, ROWS_USUAL, VIEWS, ApiView
from .openapi import PREFIX, document

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_UNKNOWN = ("This needs the token of a user or an agent, as `Authorization: Bearer TOKEN`, and nobody here has the one "
            "that was sent, if any. `keep user add NAME` makes one.")


class ApiPort:
    """Answers while it is entered."""

    def __init__(self, keep: Keep, settings: Settings, address: tuple[str, int]) -> None:
        self._keep, self._policy, self._address = keep, settings.policy, address
        self._live = LiveUpdates(keep.version)

    async def __aenter__(self) -> ApiPort:
        listener, self.origin = listening_at(self._address, "The API", "api")
        await self._live.start()
        self._server = HttpServer(self._app(), [listener], http_bounds("The API", self._policy))
        self._server.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        await self._live.close()
        await self._server.end()

    def _app(self) -> Starlette:
        looks = [Route(f"{PREFIX}{view.path}", self._for(self._look(name, view))) for name, view in VIEWS.items()]
        return Starlette(
            routes=[
                *looks, Route(f"{PREFIX}/acts/{{name}}", self._for(_act), methods=["POST"]),
                Route(f"{PREFIX}/changes", self._for(self._changes)), Route(f"{PREFIX}/openapi.json", _document),
            ],
            exception_handlers={KeepError: _refused, HTTPException: _nothing},
        )

    def _for(self, answer: Callable[[Request, Keep], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for whoever has the token of the request."""

        async def endpoint(request: Request) -> Response:
            principal = await self._principal(request)
            if principal is None:
                return _told("unknown_token", _UNKNOWN, 401, {"www-authenticate": "Bearer"})
            return await answer(request, self._keep.acting_as(principal))

        return endpoint

    async def _principal(self, request: Request) -> Principal | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        return await self._keep.parts.ledger.look(tokens_and_pins.principal_of, token)

    def _look(self, name: str, view: ApiView) -> Callable[[Request, Keep], Awaitable[Response]]:
        async def answer(request: Request, keep: Keep) -> Response:
            params = {**request.path_params, **_query(view, request)}
            result = await getattr(keep, name)(**params)
            found = {"result": control.plain(result)}
            return _json({**found, "cursor": result.cursor} if view.pages else found)

        return answer

    async def _changes(self, request: Request, _keep: Keep) -> Response:
        """Events for as long as the program listens."""
        if self._live.streams >= STREAMS_MAX:
            return _told("busy", f"{STREAMS_MAX} programs listen already. Try again later.", 503)
        return StreamingResponse(self._events(request), media_type="text/event-stream", headers=_HEADERS)

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        async for event in self._live.events(-1):
            if await self._principal(request) is None:
                return  # the token was taken back meanwhile
            yield event


async def _act(request: Request, keep: Keep) -> Response:
    name = request.path_params["name"]
    act = REQUESTS.get(name)
    if act is None or keep.principal.role not in act.roles:
        raise NotFound(f"There is no act {name[:40]!r} for {keep.principal}.")
    return _json({"result": await control.perform(keep, name, _whole(act, await _body(request)))})


def _whole(act: Act, params: Any) -> Any:
    """The parameters with 3 for 3.0 where a whole number is wanted: JSON has one kind of number."""
    if not isinstance(params, dict):
        return params
    wanted = {name for name, param in act.params.items() if int in param.types}
    return {name: int(value) if name in wanted and isinstance(value, float) and value.is_integer() else value
            for name, value in params.items()}


async def _body(request: Request) -> Any:
    received = bytearray()
    try:
        async for part in request.stream():
            received += part
            if len(received) > control.BYTES_MAX:
                raise HTTPException(413)
    except ClientDisconnect:
        raise HTTPException(400) from None
    return control.parsed(bytes(received))


def _query(view: ApiView, request: Request) -> dict[str, Any]:
    """The parameters behind the path, as the look wants them."""
    given: dict[str, Any] = dict(request.query_params)
    known = {*view.params, *(("limit", "after") if view.pages else ())}
    unknown = [each[:40] for each in given if each not in known]
    wrong = [f"{each} must be one of {', '.join(values)}" for each, values in view.params.items()
             if values and each in given and given[each] not in values]
    if unknown or wrong:
        told = [f"unknown: {', '.join(unknown)}" if unknown else "", *wrong]
        raise ParamsWrong(f"The parameters do not fit: {'; '.join(filter(None, told))}.")
    if not view.pages:
        return given
    limit = given.pop("limit", str(ROWS_USUAL))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= ROWS_MAX):
        raise ParamsWrong(f"The parameter limit must be a number from 1 to {ROWS_MAX}.")
    return {**given, "limit": int(limit)}


async def _document(_request: Request) -> Response:
    return _json(document())


# -- answers -----------------------------------------------------------------------------------------


def _status(error: KeepError) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, ParamsWrong | ConfigError):
        return 400
    if isinstance(error, ScriptInvalid):
        return 422
    return 503 if isinstance(error, LedgerError) and not isinstance(error, Conflict) else 409


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, KeepError), error
    findings = [vars(each) for each in error.findings] if isinstance(error, ScriptInvalid) else None
    return _told(error.code, error.message, _status(error), findings=findings)


async def _nothing(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), error
    words = {404: "There is nothing at this path.", 405: "There is another method at this path.",
             413: f"A request has at most {control.BYTES_MAX:,} bytes."}
    return _told("http", words.get(error.status_code, error.detail), error.status_code, error.headers)


def _told(code: str, message: str, status: int, headers: Any = None, findings: Any = None) -> Response:
    more = {"findings": findings} if findings is not None else {}
    return _json({"error": {"code": code, "message": message, **more}}, status, headers)


def _json(value: Any, status: int = 200, headers: Any = None) -> Response:
    return JSONResponse(value, status, {**_HEADERS, **(headers or {})})
