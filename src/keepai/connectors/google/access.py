"""Renews the access of one connection: a refresh token becomes an access token, one renewal at a time.

The access token rests in the vault, where it is a secret like others; when it has expired the API says so before it
does anything. Renewing has no effect that a script could want, so that whatever goes wrong here means: nothing
happened.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from urllib.parse import urlencode

from ...model.codec import Json
from ...model.errors import ConnectorError, OutcomeUnknown, PermissionDenied, Transient
from ..egress import Answer, Client
from ..values import Call

TOKEN, OF = "access_token", "access_token_of"
#: What the token endpoint says (RFC 6749, 5.2) → what to do about it.
_REFUSED: Mapping[str, str] = MappingProxyType({
    "invalid_grant": "the refresh token has expired or was taken back. Sign in again.",
    "invalid_client": "the client_id and the client_secret do not belong together.",
    "unauthorized_client": "this client may not use a refresh token of another one.",
    "invalid_scope": "a scope was taken back. Sign in again.",
})


class Access:
    """The access of one connection."""

    def __init__(
        self, client: Client, url: str, client_id: str, secret: Callable[[str], str],
        vault: Callable[[], MutableMapping[str, str]],
    ) -> None:
        self._client, self._url, self._client_id = client, url, client_id
        self._secret, self._vault = secret, vault
        self._lock = asyncio.Lock()

    async def token(self, call: Call) -> str:
        """An access token, which may have expired."""
        return self._present() or await self.renewed(None, call)

    async def renewed(self, used: str | None, call: Call) -> str:
        """Another one than `used`; who comes while it is being renewed gets the same."""
        async with self._lock:
            present = self._present()
            if present and present != used:
                return present
            fresh = self._read(await self._ask(call))
            try:
                used_now = fresh.get("refresh_token") or self._secret("refresh_token")
                self._vault().update({**fresh, OF: _digest(used_now)})
            except OSError as error:
                raise Transient(f"The renewed access could not be stored: {error.strerror}.") from None
            return fresh[TOKEN]

    async def check(self) -> None:
        """Renew it, to see that it can be."""
        await self.renewed(self._present(), Call())

    def _present(self) -> str | None:
        """The token that is there, if it was made of the refresh token that is there now."""
        vault = self._vault()
        return vault.get(TOKEN) if vault.get(OF) == _digest(self._secret("refresh_token")) else None

    async def _ask(self, call: Call) -> Answer:
        form = urlencode({
            "grant_type": "refresh_token", "client_id": self._client_id,
            "client_secret": self._secret("client_secret"), "refresh_token": self._secret("refresh_token"),
        })
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            return await self._client.send("POST", self._url, call, headers=headers, content=form.encode())
        except OutcomeUnknown as error:
            raise Transient(f"The access could not be renewed: {error.message} Nothing else was sent.") from None

    def _read(self, answer: Answer) -> dict[str, str]:
        """What the answer brings: a token, and now and then another refresh token, which is stored first."""
        try:
            said = answer.json()
        except (ValueError, RecursionError):
            said = None
        found = {key: said.get(key) for key in ("refresh_token", TOKEN)} if isinstance(said, dict) else {}
        fresh = {key: each for key, each in found.items() if isinstance(each, str) and each}
        if not answer.ok or TOKEN not in fresh:
            raise _problem(answer, said)
        return fresh


def _digest(refresh_token: str) -> str:
    return hashlib.sha256(refresh_token.encode()).hexdigest()[:16]


def _problem(answer: Answer, said: Json) -> ConnectorError:
    word = said.get("error") if isinstance(said, dict) else None
    if isinstance(word, str) and word in _REFUSED and answer.status in (400, 401, 403):
        return PermissionDenied(f"The access could not be renewed ({word}): {_REFUSED[word]}")
    if answer.status in (400, 401, 403):
        return PermissionDenied(f"The access could not be renewed: Google answered {answer.status}. Sign in again.")
    return Transient(
        f"The access could not be renewed: Google answered {answer.status}.", retry_after=answer.retry_after(),
    )
