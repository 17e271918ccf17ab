"""Looks up a host name and returns only the addresses that may be connected to.

A connection must use an address from here and never the name again: a second look-up may return another address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable

from ...model.errors import PermissionDenied, Transient
from .networks import Network, forbidden

#: Looks up a name: host and port → addresses.
Resolve = Callable[[str, int], Awaitable[list[str]]]

ADDRESSES_MAX = 16


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, in the order in which the system prefers them."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def reachable(
    host: str, port: int, networks: Iterable[Network] = (), resolve: Resolve = look_up,
) -> list[str]:
    """The addresses of a host that may be connected to: at least one, or an error. Nothing was sent."""
    allowed = tuple(networks)
    refused = {address: forbidden(address, allowed) for address in await _addresses(host, port, resolve)}
    allowed_addresses = [address for address, why in refused.items() if why is None]
    if not allowed_addresses:
        reasons = "; ".join(f"{address} is {why}" for address, why in refused.items())
        raise PermissionDenied(
            f"{host} may not be connected to: {reasons[:300]}. "
            "If you want to allow it, name its network in the settings of the connector.",
        )
    return allowed_addresses


async def _addresses(host: str, port: int, resolve: Resolve) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host.strip("[]")))]
    except ValueError:
        pass
    try:
        addresses = await resolve(host, port)
    except (socket.gaierror, UnicodeError):
        addresses = []
    if not addresses:
        raise Transient(f"The name {host} cannot be looked up. Nothing was sent.")
    return addresses[:ADDRESSES_MAX]
