"""`ctx.<name>.get`, `list`, `post`, `put`, `patch` and `delete`: requests to the URLs that keep.toml allows.

A script gives URL, query and body, never a header: the owner sets credentials, keys and all other headers in keep.toml.
A request that changes something carries the idempotency key. The owner's rules (`lookup`) say how an unknown outcome
can be looked up. Without a rule, Keep asks a person.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict
from urllib.parse import urlencode

from ...model.codec import Json
from ...model.errors import ConfigError, OutcomeUnknown, Rejected, Transient
from ...model.operations import Kind
from ..base import Call, Connector, OperationSpec, Page, Verdict, mutation, read
from ..egress import Client, Response, Rules
from ..kit.params import Url, normal_url
from .http_credentials import SECRETS, Credentials
from .lookup import at, parse_lookups
from .statuses import check_applied, is_found

_IS_NEXT = re.compile(r'\brel="?next\b')
_JSON_TYPE = re.compile(r"application/([\w.+-]+\+)?json\b", re.IGNORECASE)
#: Headers that the connector or the client sets itself.
_OWN = frozenset({"host", "content-length", "transfer-encoding", "connection", "cookie", "accept-encoding"})

Plain = str | int | float | bool


class HttpGet(TypedDict):
    """What to read."""

    url: Url
    query: NotRequired[dict[str, Plain]]


class HttpList(HttpGet):
    """What to read, and where in the answer the list and the URL of the next part are (`data.items`)."""

    items: NotRequired[str]
    next: NotRequired[str]


class HttpSend(HttpGet):
    """What to send."""

    body: NotRequired[Any]


class HttpResult(TypedDict):
    """An answer: its body as JSON, or as text if it is not JSON."""

    status: int
    body: Any


class Http(Connector):
    """Requests to a service over HTTP: `type = "http"`.

    A mutation has class B if a rule in `lookup` covers it, otherwise class C; with `key_window_s` it has class A.

    allow: prefixes of URLs; nothing else is requested
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    auth: how the secret is sent: bearer, basic or header; empty: not at all
    user: the user name for basic
    header: the header for auth header
    headers: further headers of every request; no secrets
    key_header: the header that carries the idempotency key
    key_window_s: for how many seconds the service accepts each idempotency key only once
    lookup: rules that say where to see whether a request was carried out
    certificates: a file of authorities to trust besides those of the system
    """

    secrets: Mapping[str, str] = SECRETS  # type: ignore[misc]

    def __init__(
        self, allow: list[str], *, networks: list[str] | None = None, auth: str = "", user: str = "",
        header: str = "Authorization", headers: dict[str, str] | None = None, key_header: str = "Idempotency-Key",
        key_window_s: float | None = None, lookup: list[dict[str, Any]] | None = None,
        certificates: str | os.PathLike[str] | None = None, name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self._credentials = Credentials(auth, user, header)
        trusted = os.fspath(certificates) if certificates is not None else None
        self.client = Client(Rules.under(allow, networks or (), certificates=trusted))
        first = normal_url(allow[0])
        self.account = f"{user}@{first}" if user else first
        self._headers, self._key_header = _checked(headers or {}), key_header
        self.key_window_s, self.lookups = key_window_s, parse_lookups(lookup or (), self.client.rules)
        self.secrets = self._credentials.secrets

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """Operations with a look-up only where a rule covers them, and with the key window that the owner set."""
        ruled = {rule.method for rule in self.lookups}
        return MappingProxyType({
            name: dataclasses.replace(
                spec, reconciler=spec.reconciler if name.upper() in ruled else None,
                key_window_s=self.key_window_s if spec.kind is Kind.MUTATION else None,
            ) for name, spec in super().operations.items()
        })

    async def check(self) -> None:
        """Check that the secrets exist and that the host of the first prefix answers."""
        credentials, prefix = self._credentials.headers(self), self.client.rules.prefixes[0]
        answer = await self.client.get(prefix, Call(), headers=self._headers, credentials=credentials)
        if answer.status in (401, 403):
            is_found(_host(prefix), answer)

    @read(by_id=True)
    async def get(self, params: HttpGet, call: Call) -> HttpResult | None:
        """Read a URL; null if nothing is there (404, 410)."""
        return await self.read_url(params, call)

    @read
    async def list_(self, params: HttpList, call: Call) -> Page[Any]:
        """Read a URL whose answer has a list; `next` is the URL of the next part, or null."""
        answer = await self._get(_url(params), call)
        if not is_found(_host(params["url"]), answer):
            return Page([], next=None)
        body = _got(answer)["body"]
        try:
            items = at(body, params.get("items", ""))
        except LookupError:
            items = None
        if not isinstance(items, list):
            raise Rejected(f"The answer of {_host(params['url'])} has no list at {params.get('items') or 'its top'!r}.")
        return Page(items, next=_next(answer, body, params.get("next")))

    @mutation(identity=("url", "query"), target="url")
    async def post(self, params: HttpSend, call: Call) -> HttpResult:
        """Send a POST."""
        return await self.send_request("POST", params, call)

    @mutation(identity=("url", "query"), target="url")
    async def put(self, params: HttpSend, call: Call) -> HttpResult:
        """Send a PUT."""
        return await self.send_request("PUT", params, call)

    @mutation(identity=("url", "query"), target="url")
    async def patch(self, params: HttpSend, call: Call) -> HttpResult:
        """Send a PATCH."""
        return await self.send_request("PATCH", params, call)

    @mutation(identity=("url", "query"), target="url")
    async def delete(self, params: HttpSend, call: Call) -> HttpResult:
        """Send a DELETE."""
        return await self.send_request("DELETE", params, call)

    @post.reconcile
    async def find_post(self, params: HttpSend, call: Call) -> Verdict:
        """Look it up by the owner's rule."""
        return await self.look_up("POST", params, call)

    @put.reconcile
    async def find_put(self, params: HttpSend, call: Call) -> Verdict:
        """Look it up by the owner's rule."""
        return await self.look_up("PUT", params, call)

    @patch.reconcile
    async def find_patch(self, params: HttpSend, call: Call) -> Verdict:
        """Look it up by the owner's rule."""
        return await self.look_up("PATCH", params, call)

    @delete.reconcile
    async def find_delete(self, params: HttpSend, call: Call) -> Verdict:
        """Look it up by the owner's rule."""
        return await self.look_up("DELETE", params, call)

    @post.preview
    def say_post(self, params: HttpSend) -> str:
        """The request in full."""
        return described_request("POST", params)

    @put.preview
    def say_put(self, params: HttpSend) -> str:
        """The request in full."""
        return described_request("PUT", params)

    @patch.preview
    def say_patch(self, params: HttpSend) -> str:
        """The request in full."""
        return described_request("PATCH", params)

    @delete.preview
    def say_delete(self, params: HttpSend) -> str:
        """The request in full."""
        return described_request("DELETE", params)

    async def read_url(self, params: HttpGet, call: Call) -> HttpResult | None:
        """What is at a URL; None if nothing is."""
        answer = await self._get(_url(params), call)
        return _got(answer) if is_found(_host(params["url"]), answer) else None

    async def _get(self, url: str, call: Call) -> Response:
        return await self.client.get(url, call, headers=self._headers, credentials=self._credentials.headers(self))

    async def send_request(self, method: str, params: HttpSend, call: Call) -> HttpResult:
        """Send a request that changes something, with its idempotency key."""
        headers = {**self._headers, self._key_header: call.idempotency_key}
        body = json.dumps(params["body"], ensure_ascii=False, allow_nan=False).encode() if "body" in params else None
        answer = await self.client.send(
            method, _url(params), call, headers=headers, credentials=self._credentials.headers(self), content=body,
        )
        check_applied(method, _host(params["url"]), answer)
        return _got(answer)

    async def look_up(self, method: str, params: HttpSend, call: Call) -> Verdict:
        """What the rule of the owner finds out about a request."""
        rule = next((rule for rule in self.lookups if rule.fits(method, params["url"])), None)
        url = rule.address(call.idempotency_key, params) if rule else None  # type: ignore[arg-type]
        if rule is None or url is None:
            return Verdict.unknown("No look-up rule of this connector covers this request.")
        try:
            return rule.verdict(await self._get(url, call), call.idempotency_key)
        except (Transient, OutcomeUnknown) as error:
            return Verdict("retry", why=error.message)


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """The owner's headers, which must not replace the ones that HTTP itself needs."""
    wrong = [name for name in headers if name.lower() in _OWN]
    if wrong:
        raise ConfigError(f"The header {wrong[0]!r} cannot be set: it belongs to the request itself.")
    return {"Accept": "application/json", "Content-Type": "application/json", **headers}


def _url(params: HttpGet) -> str:
    """The URL with its query."""
    query = params.get("query")
    if not query:
        return params["url"]
    pairs = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    return f"{params['url']}{'&' if '?' in params['url'] else '?'}{urlencode(pairs, doseq=True)}"


def described_request(method: str, params: HttpSend) -> str:
    """A request in full, as people see it."""
    body = json.dumps(params["body"], ensure_ascii=False, indent=2) if "body" in params else ""
    return f"{method} {_url(params)}" + (f"\n{body}" if body else "")


def _got(answer: Response) -> HttpResult:
    if not answer.content:
        return {"status": answer.status, "body": None}
    if not _JSON_TYPE.match(answer.headers.get("content-type", "")):
        return {"status": answer.status, "body": answer.text()}
    try:
        return {"status": answer.status, "body": answer.json()}
    except ValueError:
        raise OutcomeUnknown("The answer claims to be JSON and is not.") from None


def _next(answer: Response, body: Json, path: str | None) -> str | None:
    """The URL of the next part: where the script says that it is, or from the header `Link`."""
    try:
        following = at(body, path) if path else None
    except LookupError:
        following = None
    if isinstance(following, str) and following:
        return following
    for link in answer.headers.get("link", "").split("<")[1:]:
        url, closed, params = link.partition(">")
        if closed and _IS_NEXT.search(params):
            return url
    return None


def _host(url: str) -> str:
    return url.split("/")[2] if url.count("/") > 1 else "the host"
