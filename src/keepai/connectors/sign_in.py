"""The contract of a sign-in: how a connector earns a secret from a person who signs in with a browser.

It is OAuth 2.0 for installed programs (RFC 8252) with PKCE (RFC 7636). The connector knows the addresses and what to
ask for; whoever sits between it and the person opens the browser, listens on loopback and checks the `state`.
Nothing of an attempt outlives it.
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

    redirect_uri: str  # where the browser brings the answer
    state: str = field(default_factory=_unguessable, repr=False)  # by which the answer is known to be of this attempt
    verifier: str = field(default_factory=_unguessable, repr=False)  # without it the code is of no use

    @property
    def challenge(self) -> str:
        """What the verifier is told from later (S256)."""
        digest = hashlib.sha256(self.verifier.encode("ascii")).digest()
        return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


class SignIn:
    """What a connector offers to people who would rather sign in than bring a secret."""

    secret: str  #: the secret that is earned
    needs: tuple[str, ...] = ()  #: the secrets that must be there before

    def address(self, attempt: Attempt) -> str:
        """What to open in a browser."""
        raise NotImplementedError

    async def redeem(self, code: str, attempt: Attempt) -> Mapping[str, str]:
        """The secrets that a code is worth; an error says neither the code nor any of them."""
        raise NotImplementedError
