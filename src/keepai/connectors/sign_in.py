"""The contract of a sign-in: how a connector obtains a secret from a person who signs in with a browser.

It is OAuth 2.0 for installed programs (RFC 8252) with PKCE (RFC 7636). The connector knows the addresses and what to
ask for. The command line opens the browser, listens on the loopback and checks the `state`. Nothing of an attempt is
kept after it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field


def _unguessable() -> str:
    return secrets.token_urlsafe(48)


@dataclass(frozen=True)
class Attempt:
    """One try to sign in."""

    redirect_uri: str  # where the browser sends the answer
    state: str = field(default_factory=_unguessable, repr=False)  # proves that an answer belongs to this attempt
    verifier: str = field(default_factory=_unguessable, repr=False)  # without it the code is useless

    @property
    def challenge(self) -> str:
        """The hash of the verifier that is sent first (S256)."""
        digest = hashlib.sha256(self.verifier.encode("ascii")).digest()
        return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


class SignIn:
    """What a connector offers to people who prefer to sign in over entering a secret."""

    secret: str  #: the secret that the sign-in obtains
    needs: tuple[str, ...] = ()  #: the secrets that must be set before

    def address(self, attempt: Attempt) -> str:
        """The address to open in a browser."""
        raise NotImplementedError

    async def redeem(self, code: str, attempt: Attempt) -> Mapping[str, str]:
        """Exchange a code for secrets. An error contains neither the code nor a secret."""
        raise NotImplementedError
