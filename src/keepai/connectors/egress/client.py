"""Makes one request on one connection, within the rules, and says what is known if it fails.

Connections are not reused: if the server closed a reused one at that moment, the outcome would be unknown for no good
reason. There are no cookies, no proxies and no settings from the environment: exactly what the connector wrote goes to
the address that was checked. After a time-out, a name look-up may continue in its thread; it contains nothing of the
request.
"""

from __future__ import annotations

import asyncio
import json as json_text
import re
import ssl
import zlib
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING

from ...model.clock import Clock, SystemClock
from ...model.codec import Json
from ...model.errors import ConfigError, OutcomeUnknown, Rejected, Transient
from ..kit.lenient_json import parse_json
from ..values import Call
from .dns import Resolve, look_up
from .url_rules import Rules, host_of, origin_of

if TYPE_CHECKING:
    import httpcore2
    from httpx2 import URL

HEADERS_MAX = 64 << 10
_NAME, _VALUE = re.compile(r"[A-Za-z0-9-]{1,80}"), re.compile(r"[^\x00-\x1f\x7f]*")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Response:
    """A complete answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)
    url: str = field(repr=False, default="")

    @property
    def ok(self) -> bool:
        """Whether the status means success."""
        return 200 <= self.status < 300

    def json(self) -> Json:
        """The body as JSON; raises ValueError if it is not JSON."""
        return parse_json(self.content)

    def json_object(self) -> dict[str, Json] | None:
        """The body as a JSON object; None if it is not one."""
        try:
            body = self.json()
        except ValueError:
            return None
        return body if isinstance(body, dict) else None

    def text(self) -> str:
        """The body as text. Bytes that are not UTF-8 are replaced."""
        return self.content.decode("utf-8", "replace")

    def retry_after(self, clock: Clock | None = None) -> float | None:
        """The seconds that the server asks to wait, at most a day."""
        header = self.headers.get("retry-after", "").strip()
        if header.isascii() and header.isdecimal():
            return min(float(header[:9]), 86_400)
        try:
            moment = parsedate_to_datetime(header).timestamp()
        except (ValueError, TypeError, OverflowError):
            return None
        return min(max(0.0, moment - (clock or SystemClock()).now_ms() / 1000), 86_400)


class Client:
    """Sends HTTP requests within `rules`."""

    def __init__(self, rules: Rules | None = None, *, resolve: Resolve = look_up) -> None:
        self.rules = rules or Rules()
        self._resolve = resolve

    async def get(
        self, url: str, call: Call, *, headers: Mapping[str, str] = _NO_HEADERS,
        credentials: Mapping[str, str] = _NO_HEADERS,
    ) -> Response:
        """Read. Redirects are followed, and each is checked again. `credentials` go to the first origin only."""
        origin, here = origin_of(self.rules.check(url)), url
        for _ in range(self.rules.redirects_max + 1):
            parsed = self.rules.check(here)
            own = credentials if origin_of(parsed) == origin else _NO_HEADERS
            answer = await self._once("GET", parsed, call, {**headers, **own}, None)
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                return answer
            here = _joined(parsed, answer.headers["location"])
        raise Rejected(f"{host_of(parsed)} redirected more than {self.rules.redirects_max} times.")

    async def send(
        self, method: str, url: str, call: Call, *, headers: Mapping[str, str] = _NO_HEADERS,
        credentials: Mapping[str, str] = _NO_HEADERS, json: object = None, content: bytes | None = None,
    ) -> Response:
        """Make one request with a side effect. A redirect is not followed."""
        body, kind = content, {}
        if body is None and json is not None:
            body, kind = json_text.dumps(json, ensure_ascii=False, allow_nan=False).encode(), _JSON
        parsed = self.rules.check(url)
        return await self._once(method, parsed, call, {**kind, **headers, **credentials}, body)

    async def _once(
        self, method: str, url: URL, call: Call, headers: Mapping[str, str], content: bytes | None,
    ) -> Response:
        import httpcore2

        from .checked_connection import CheckedConnection, reason

        seconds = min(self.rules.seconds_max, call.remaining_s)
        wire = CheckedConnection(self.rules, self._resolve, seconds)
        if seconds <= 0:
            raise Transient(f"The call's deadline passed before anything was sent to {host_of(url)}.")
        try:
            async with asyncio.timeout(seconds), _pool(self.rules, wire) as pool:
                response = await pool.handle_async_request(_request(method, url, headers, content))
                try:
                    return await self._answer(url, response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpcore2.TimeoutException):
            raise wire.trouble(f"{host_of(url)} did not answer within {seconds:.3g} s") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            raise wire.trouble(f"{host_of(url)}: {reason(error)}", error) from None

    async def _answer(self, url: URL, response: httpcore2.Response) -> Response:
        headers = _headers(response.headers)
        coding = headers.get("content-encoding", "identity").strip().lower()
        assert isinstance(response.stream, AsyncIterable)
        content = await _limited(response.stream, coding, self.rules.bytes_max, f"The answer of {host_of(url)}")
        return Response(response.status, headers, content, str(url))


_JSON = {"Content-Type": "application/json"}


def _pool(rules: Rules, wire: httpcore2.AsyncNetworkBackend) -> httpcore2.AsyncConnectionPool:
    import httpcore2

    return httpcore2.AsyncConnectionPool(
        ssl_context=_trust(rules.certificates), max_connections=1, max_keepalive_connections=0, network_backend=wire,
    )


@cache
def _trust(certificates: str | None) -> ssl.SSLContext:
    """The authorities of the system, and those of the owner."""
    context = ssl.create_default_context()
    try:
        if certificates is not None:
            context.load_verify_locations(cafile=certificates)
    except (OSError, ssl.SSLError):
        raise ConfigError(f"The certificates in {certificates} cannot be read.") from None
    return context


def _request(method: str, url: URL, headers: Mapping[str, str], content: bytes | None) -> httpcore2.Request:
    import httpcore2

    sent = {
        "Host": url.netloc.decode("ascii"), "Accept": "*/*", "Accept-Encoding": "gzip", "Connection": "close",
        "User-Agent": "keep", **headers,
    }
    if content is not None or method not in ("GET", "HEAD"):
        sent["Content-Length"] = str(len(content or b""))
    if sum(len(name) + len(value) for name, value in sent.items()) > HEADERS_MAX:
        raise Rejected(f"The headers of a request to {host_of(url)} have more than {HEADERS_MAX:,} characters.")
    if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in sent.items()):
        # Reported here, because the library's own message would repeat the value.
        raise Rejected(f"A header of a request to {host_of(url)} has characters that HTTP does not allow.")
    raw_headers = [(name.encode("ascii"), value.encode("utf-8")) for name, value in sent.items()]
    place = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    return httpcore2.Request(method, place, headers=raw_headers, content=content)


def _headers(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of an answer. Several headers with one name become one string."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


async def _limited(stream: AsyncIterable[bytes], coding: str, most: int, label: str) -> bytes:
    """The whole body, decompressed. It never takes more than `most` bytes, not even temporarily."""
    if coding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise OutcomeUnknown(f"{label} is compressed in a way that was not asked for ({coding[:20]!r}).")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding not in ("identity", "") else None
    body = bytearray()
    try:
        async for chunk in stream:
            if unpack is not None and unpack.eof:
                raise OutcomeUnknown(f"{label} continues after its end.")
            body += unpack.decompress(chunk, most + 1 - len(body)) if unpack else chunk
            if len(body) > most:
                raise OutcomeUnknown(f"{label} has more than {most:,} bytes.")
    except zlib.error:
        raise OutcomeUnknown(f"{label} cannot be decompressed.") from None
    if unpack is not None and body and not unpack.eof:
        raise OutcomeUnknown(f"{label} ends in the middle.")
    return bytes(body)


def _joined(base: URL, location: str) -> str:
    import httpx2

    try:
        return str(base.join(location))
    except httpx2.InvalidURL:
        raise Rejected(f"{host_of(base)} redirects to something that is not a URL.") from None
