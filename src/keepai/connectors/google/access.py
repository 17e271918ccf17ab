"""Renews the access of one connection: a refresh token becomes an access token, one renewal at a time.

The access token rests in the vault, where it is a secret like others; when it has expired the API says so before it
does anything. Renewing has no effect that a script could want, so that whatever goes wrong here means: nothing
happened.
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
        """Another one than `used`; who comes while it is being renewed gets the same."""
        async with self._lock:
            present = self._present()
            if present and present != used:
                return present
            fresh = await self._ask(call)
            try:
                used_now = fresh.get(REFRESH) or self._secret(REFRESH)
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
        return vault.get(TOKEN) if vault.get(OF) == _digest(self._secret(REFRESH)) else None

    async def _ask(self, call: Call) -> dict[str, str]:
        """A token, and now and then another refresh token, which is stored first."""
        form = {"grant_type": "refresh_token", REFRESH: self._secret(REFRESH)}
        answer = await self._tokens.ask(form, call, FAILED)
        return {key: answer[key] for key in (REFRESH, TOKEN) if key in answer}


def _digest(refresh_token: str) -> str:
    return hashlib.sha256(refresh_token.encode()).hexdigest()[:16]
