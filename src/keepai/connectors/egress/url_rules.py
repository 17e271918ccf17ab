"""Where a client may connect to: schemes, ports, prefixes and networks, and how much and how long it may read.

A URL is parsed before it is compared. So capital letters, default ports, a user name before `@` and dots in paths
cannot bypass a rule. Nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ...model.errors import ConfigError, Rejected
from .networks import Network, parse_networks

if TYPE_CHECKING:
    from httpx2 import URL

PORTS = {"http": 80, "https": 443}
URL_MAX = 8_000
Origin = tuple[str, str, int]


@dataclass(frozen=True)
class Rules:
    """What one connector may do on the network. The default is https on port 443 to public addresses."""

    schemes: frozenset[str] = frozenset({"https"})
    ports: frozenset[int] = frozenset({443})
    prefixes: tuple[str, ...] = ()  # a URL must begin with one of them; if empty, only schemes and ports decide
    networks: tuple[Network, ...] = ()  # special networks that may be connected to as well
    bytes_max: int = 8 << 20  # of an answer after decompression
    seconds_max: float = 30  # for the whole request; the call's own time may be shorter
    redirects_max: int = 5  # of a read; a mutation follows none
    certificates: str | None = None  # a file of authorities to trust besides the public ones

    @classmethod
    def under(cls, prefixes: Iterable[str], networks: Iterable[str] = (), **more: object) -> Rules:
        """Rules for URLs below these prefixes. Their schemes and ports are allowed, because the owner wrote them."""
        given = tuple(prefixes)
        try:
            origins = [origin_of(parse(prefix)) for prefix in given]
        except Rejected as error:
            raise ConfigError(f"A prefix cannot be used: {error.message}") from None
        if not given:
            raise ConfigError("Name at least one prefix of URLs, such as https://api.example.com/.")
        return cls(
            schemes=frozenset(origin[0] for origin in origins), ports=frozenset(origin[2] for origin in origins),
            prefixes=given, networks=parse_networks(networks), **more,  # type: ignore[arg-type]
        )

    def check(self, url: str) -> URL:
        """The parsed URL; `Rejected` says which rule it breaks."""
        parsed = parse(url)
        scheme, host, port = origin_of(parsed)
        if scheme not in self.schemes or port not in self.ports:
            raise Rejected(f"{host} may not be reached by {scheme} on port {port}.")
        if self.prefixes and not any(_below(parsed, parse(prefix)) for prefix in self.prefixes):
            raise Rejected(f"This URL of {host} is not below any prefix that is allowed.")
        return parsed


def parse(url: str) -> URL:
    """The parsed URL; `Rejected` if it could be read in two ways."""
    import httpx2

    if len(url) > URL_MAX or any(not "!" <= character <= "\uffff" for character in url) or "\\" in url:
        raise Rejected(f"A URL is text of at most {URL_MAX:,} characters without spaces and backslashes.")
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        raise Rejected("This is not a URL.") from None
    if parsed.scheme not in PORTS or not parsed.host:
        raise Rejected("A URL begins with https:// (or http://) and a host.")
    if parsed.userinfo:
        raise Rejected(f"The URL of {host_of(parsed)} contains a name or password; credentials belong into secrets.")
    if _climbs(parsed.raw_path.decode("ascii").partition("?")[0]):
        raise Rejected(f"The path of a URL of {host_of(parsed)} has `.` or `..` in it.")
    return parsed


def origin_of(url: URL) -> Origin:
    """Scheme, host and port: credentials belong to an origin."""
    return url.scheme, url.raw_host.decode("ascii").lower().rstrip("."), url.port or PORTS[url.scheme]


def host_of(url: URL) -> str:
    """The host as it is sent, with `xn--…` for letters beyond ASCII, so that names that look alike differ."""
    return origin_of(url)[1]


def _below(url: URL, prefix: URL) -> bool:
    path, head = url.raw_path.decode("ascii"), prefix.raw_path.decode("ascii")
    if origin_of(url) != origin_of(prefix) or not path.startswith(head):
        return False
    return head.endswith(("/", "?", "=", "&")) or path[len(head):][:1] in ("", "/", "?")


def _climbs(path: str) -> bool:
    """Whether a path has dot segments in any spelling. Some servers read `..;x` as one."""
    for _ in range(4):
        if any(part.partition(";")[0] in (".", "..") for part in path.replace("\\", "/").split("/")):
            return True
        path = unquote(path)
    return False
