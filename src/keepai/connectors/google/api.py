"""Requests to a Google API: JSON over HTTPS, with an access token that is renewed when it has expired.

A request is repeated only if it was answered with 401, so that it was not carried out, and the access could be renewed.
A read whose answer is lost has no unknown outcome, because it changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from ...model.errors import ConfigError, OutcomeUnknown, Transient
from ..base import Connector
from ..egress import Client, Response, Rules
from ..values import Call
from .access import Access
from .google_errors import problem, problem_of_read
from .google_sign_in import SIGNED_IN_AT, GoogleSignIn
from .tokens import Tokens

RENEWED_AT = "https://oauth2.googleapis.com/token"
ANSWER_MAX = 32 << 20
Query = Mapping[str, str | int | bool | Sequence[str] | None]
_NONE: Query = {}


class Google(Connector):
    """What the connectors for Google share."""

    api: ClassVar[str]  #: the address of the API
    title: ClassVar[str]  #: the name that people know
    scope: ClassVar[str]  #: what a person must allow
    secrets = MappingProxyType({
        "client_secret": "The secret of the OAuth client",
        "refresh_token": "The refresh token that Google gave when you signed in",
    })

    def __init__(
        self, account: str, client_id: str, *, api: str = "", token_url: str = RENEWED_AT,
        auth_url: str = SIGNED_IN_AT, networks: list[str] | None = None, name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if "@" not in account or not account.isprintable() or " " in account:
            raise ConfigError(f"account must be an address such as ann@example.com, not {account!r}.")
        self.account = account
        self._root = (api or type(self).api).rstrip("/") + "/"
        rules = Rules.under([self._root, token_url], networks or (), bytes_max=ANSWER_MAX)
        self._client = Client(rules)
        self._tokens = Tokens(self._client, token_url, client_id, self.secret)
        self._access = Access(self._tokens, self.secret, lambda: self._vault)
        self._auth_url = Rules.under([auth_url]).prefixes[0]  # only a browser opens it

    def sign_in(self) -> GoogleSignIn:
        """A person can obtain a refresh token with a browser."""
        return GoogleSignIn(self._tokens, self._auth_url, self.account, self.scope)

    async def _get(self, path: str, call: Call, query: Query = _NONE) -> Any:
        """The answer to a read."""
        return _read(self.title, await self._asked(path, call, query))

    async def _find(self, path: str, call: Call, query: Query = _NONE) -> Any | None:
        """The answer to a read; None if the object does not exist."""
        answer = await self._asked(path, call, query)
        return None if answer.status in (404, 410) else _read(self.title, answer)

    async def _send(
        self, method: str, path: str, call: Call, json: object, query: Query = _NONE,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        """Change something, and return the answer."""
        answer = await self._answer(method, path, call, json, query, headers)
        if not answer.ok:
            raise problem(self.title, answer)
        return result(self.title, answer)

    async def _answer(
        self, method: str, path: str, call: Call, json: object, query: Query = _NONE,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Response:
        """Change something, and return the answer with any status except 401."""
        url = self._url(path, query)
        return await self._with_token(call, lambda credentials: self._client.send(
            method, url, call, json=json, headers=headers, credentials=credentials,
        ))

    async def _asked(self, path: str, call: Call, query: Query) -> Response:
        url = self._url(path, query)
        try:
            return await self._with_token(
                call, lambda credentials: self._client.get(url, call, credentials=credentials),
            )
        except OutcomeUnknown as error:
            raise Transient(f"{self.title} could not be read: {error.message}") from None

    async def _with_token(self, call: Call, ask: Callable[[Mapping[str, str]], Awaitable[Response]]) -> Response:
        token = await self._access.token(call)
        answer = await ask({"Authorization": f"Bearer {token}"})
        if answer.status != 401:
            return answer
        token = await self._access.renewed(token, call)
        return await ask({"Authorization": f"Bearer {token}"})

    def _url(self, path: str, query: Query) -> str:
        pairs = [
            (name, str(item).lower() if isinstance(item, bool) else str(item))
            for name, value in query.items() if value is not None
            for item in ([value] if isinstance(value, str | int) else value)
        ]
        return self._root + path + (f"?{urlencode(pairs)}" if pairs else "")


def part(text: str) -> str:
    """A text as one part of a path, whatever it contains."""
    return quote(text, safe="").replace(".", "%2E") if text.strip(".") == "" else quote(text, safe="")


def result(service: str, answer: Response) -> Any:
    """The answer to a change. If it is not a JSON object, the outcome is unknown."""
    body = answer.json_object()
    if body is None:
        raise OutcomeUnknown(f"The answer of {service} is not a JSON object.")
    return body


def _read(service: str, answer: Response) -> Any:
    if not answer.ok:
        raise problem_of_read(service, answer)
    body = answer.json_object()
    if body is None:
        raise Transient(f"The answer of {service} is not a JSON object.")
    return body
