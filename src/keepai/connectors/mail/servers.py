"""The addresses of the two servers of a mailbox, and how connections to them are encrypted.

TLS with a checked certificate is the default. A connection without encryption is allowed only to a server on this
machine, and only if the settings say so.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...model.errors import PreconditionFailed

SECURITY = ("tls", "starttls", "none")
STEP_S_MAX = 30.0  #: how long one step with a server may take, whatever time the call has


@dataclass(frozen=True)
class MailServer:
    """One server, as the settings describe it."""

    kind: str  # "imap" or "smtp": the prefix of its settings
    host: str
    port: int
    security: str
    certificates: str = ""

    def problems(self) -> Iterator[str]:
        """What is wrong with its settings."""
        if not self.host or any(c.isspace() or not c.isprintable() for c in self.host):
            yield f"{self.kind}_host must be the name of a server"
        if not 1 <= self.port <= 65_535:
            yield f"{self.kind}_port must be between 1 and 65535"
        if self.security not in SECURITY:
            yield f"{self.kind}_security must be tls, starttls or none, not {self.security!r}"
        elif self.security == "none" and not is_loopback(self.host):
            yield f'{self.kind}_security = "none" is only for a server on this machine, and {self.host} is another'

    def context(self) -> ssl.SSLContext:
        """The authorities that a certificate is checked against: the system's, and those of `certificates`."""
        try:
            return _context(self.certificates)
        except OSError:
            raise PreconditionFailed(f"{self.certificates} cannot be read as a file of certificates.") from None

    @property
    def place(self) -> str:
        """For people: `imap.example.com:993`."""
        return f"{self.host}:{self.port}"


@lru_cache(maxsize=8)
def _context(certificates: str) -> ssl.SSLContext:
    """Cached, because reading the system's authorities takes longer than sending a mail."""
    context = ssl.create_default_context()
    if certificates:
        context.load_verify_locations(certificates)
    return context


def is_loopback(host: str) -> bool:
    """Whether a connection to this host stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def step_s(remaining_s: float) -> float:
    """How long the next step may take. Sockets need a number above zero."""
    return max(0.05, min(STEP_S_MAX, remaining_s))
