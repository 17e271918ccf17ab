"""Signs in at Google: makes the address for the browser, and exchanges the code for a refresh token.

Besides the scope of the API it asks whose account it is (`openid email`), because Sheets and Calendar do not say. The
answer comes from Google itself over TLS, so its signature need not be checked (OpenID Connect Core, 3.1.3.7).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlencode

from ...model.errors import PermissionDenied
from ..kit.lenient_json import parse_json
from ..sign_in import Attempt, SignIn
from ..values import Call
from .tokens import REFRESH, REFUSED, Tokens

SIGNED_IN_AT = "https://accounts.google.com/o/oauth2/v2/auth"
ADDRESS_MAX = 254
FAILED = "The sign-in failed"
_REFUSED: Mapping[str, str] = MappingProxyType({
    **REFUSED,
    "invalid_grant": "it took too long, or the code was used already. Sign in again.",
    "unauthorized_client": "create an OAuth client of the type Desktop app.",
    "redirect_uri_mismatch": "create an OAuth client of the type Desktop app.",
})


class GoogleSignIn(SignIn):
    """How one account signs in for one API."""

    secret = REFRESH
    needs = ("client_secret",)

    def __init__(self, tokens: Tokens, url: str, account: str, scope: str) -> None:
        self._tokens, self._url, self._account, self._scope = tokens, url, account, scope

    def address(self, attempt: Attempt) -> str:
        """Google's page, with this account already chosen."""
        query = urlencode({
            "client_id": self._tokens.client_id, "redirect_uri": attempt.redirect_uri, "response_type": "code",
            "scope": f"{self._scope} openid email", "state": attempt.state, "code_challenge": attempt.challenge,
            "code_challenge_method": "S256", "access_type": "offline", "prompt": "consent",
            "login_hint": self._account,
        })
        return f"{self._url}{'&' if '?' in self._url else '?'}{query}"

    async def redeem(self, code: str, attempt: Attempt) -> Mapping[str, str]:
        """The refresh token, if it is for this account and for everything that was asked for."""
        answer = await self._tokens.ask({
            "grant_type": "authorization_code", "code": code, "code_verifier": attempt.verifier,
            "redirect_uri": attempt.redirect_uri,
        }, Call(), FAILED, _REFUSED)
        self._check_account(_address_of(answer.get("id_token", "")))
        if self._scope not in answer.get("scope", self._scope).split():
            raise PermissionDenied(f"{FAILED}: not everything was allowed. Sign in again, and allow everything.")
        if self.secret not in answer:
            raise PermissionDenied(
                f"{FAILED}: Google returned no refresh token. Remove the access of this client at "
                "https://myaccount.google.com/connections and sign in again.",
            )
        return {self.secret: answer[self.secret]}

    def _check_account(self, address: str) -> None:
        if address and address.lower() != self._account.lower():
            raise PermissionDenied(
                f"{FAILED}: it was for {address}, but the setting account is {self._account}. Sign in as "
                f"{self._account}, or change the setting.",
            )


def _address_of(id_token: str) -> str:
    """The account that an ID token is about; empty if it does not say."""
    payload = id_token.split(".")[1] if id_token.count(".") == 2 else ""
    try:
        claims = parse_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return ""
    address = claims.get("email") if isinstance(claims, dict) else None
    return address if isinstance(address, str) and len(address) <= ADDRESS_MAX and address.isprintable() else ""
