"""Renews the access of one connection: exchanges a refresh token for an access token, one renewal at a time.

The access token is kept in the vault like other secrets. When it has expired, the API says so before it does anything.
Renewing has no effect that a script could want, so every failure here means that nothing happened.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, MutableMapping

from ...model.errors import Transient
from ..values import Call
from .tokens import REFRESH, TOKEN, Tokens

OF = "access_token_of"
FAILED = "The access could not be renewed"


class Access:
    """The access of one connection."""

    def __init__(
        self, tokens: Tokens, secret: Callable[[str], str], vault: Callable[[], MutableMapping[str, str]],
    ) -> None:
        self._tokens, self._secret, self._vault = tokens, secret, vault
        self._lock = asyncio.Lock()

    async def token(self, call: Call) -> str:
        """An access token, which may have expired."""
        return self._present() or await self.renewed(None, call)

    async def renewed(self, used: str | None, call: Call) -> str:
        """A token other than `used`. Calls that arrive while it is being renewed get the same token."""
        async with self._lock:
            present = self._present()
            if present and present != used:
                return present
            form = {"grant_type": "refresh_token", REFRESH: self._secret(REFRESH)}
            answer = await self._tokens.ask(form, call, FAILED)
            fresh = {key: answer[key] for key in (REFRESH, TOKEN) if key in answer}  # sometimes a new refresh token
            try:
                used_now = fresh.get(REFRESH) or self._secret(REFRESH)
                self._vault().update({**fresh, OF: _digest(used_now)})
            except OSError as error:
                raise Transient(f"The renewed access could not be stored: {error.strerror}.") from None
            return fresh[TOKEN]

    async def check(self) -> None:
        """Renew the access, to check that it works."""
        await self.renewed(self._present(), Call())

    def _present(self) -> str | None:
        """The stored token, if it was made from the present refresh token."""
        vault = self._vault()
        return vault.get(TOKEN) if vault.get(OF) == _digest(self._secret(REFRESH)) else None


def _digest(refresh_token: str) -> str:
    return hashlib.sha256(refresh_token.encode()).hexdigest()[:16]
