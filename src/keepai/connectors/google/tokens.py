"""The token endpoint of Google, for renewing an access and for signing in, with one table of refusals.

Google's own words are not passed on, only the codes of RFC 6749 (5.2) in this module. Every failure here means that
nothing happened that a script could want.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import urlencode

from ...model.codec import Json
from ...model.errors import ConnectorError, OutcomeUnknown, PermissionDenied, Transient
from ..egress import Client, Response
from ..values import Call

TOKEN, REFRESH = "access_token", "refresh_token"
AGAIN = "Sign in again: keep connect NAME TYPE --sign-in"
#: Error code → what to do.
REFUSED: Mapping[str, str] = MappingProxyType({
    "invalid_grant": f"the refresh token has expired or was revoked. {AGAIN}",
    "invalid_client": "the client_id and the client_secret do not belong together.",
    "unauthorized_client": "this client may not use the refresh token of another client.",
    "invalid_scope": f"a scope was revoked. {AGAIN}",
})


class Tokens:
    """The endpoint, for one OAuth client."""

    def __init__(self, client: Client, url: str, client_id: str, secret: Callable[[str], str]) -> None:
        self.client_id = client_id
        self._client, self._url, self._secret = client, url, secret

    async def ask(
        self, form: Mapping[str, str], call: Call, failed: str, refused: Mapping[str, str] = REFUSED,
    ) -> dict[str, str]:
        """The strings of an answer, including an access token. An error message begins with `failed`."""
        known = {"client_id": self.client_id, "client_secret": self._secret("client_secret")}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        content = urlencode({**form, **known}).encode()
        try:
            answer = await self._client.send("POST", self._url, call, headers=headers, content=content)
        except OutcomeUnknown as error:
            raise Transient(f"{failed}: {error.message} Nothing else was sent.") from None
        members = answer.json_object() or {}
        texts = {key: value for key, value in members.items() if isinstance(value, str) and value}
        if not answer.ok or TOKEN not in texts:
            raise _problem(answer, members.get("error"), failed, refused)
        return texts


def _problem(answer: Response, word: Json, failed: str, refused: Mapping[str, str]) -> ConnectorError:
    if isinstance(word, str) and word in refused and answer.status in (400, 401, 403):
        return PermissionDenied(f"{failed} ({word}): {refused[word]}")
    if answer.status in (400, 401, 403):
        return PermissionDenied(f"{failed}: Google answered {answer.status}. {AGAIN}")
    return Transient(f"{failed}: Google answered {answer.status}.", retry_after=answer.retry_after())
