"""Which network addresses may be connected to: the public ones, and those that the owner names.

If an address contains another one (mapped, NAT64, 6to4), both are judged. Nothing here looks up a name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from ...model.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Special addresses that Python's tables lack, each with the reason.
_SPECIAL: tuple[tuple[Network, str], ...] = (
    (ipaddress.ip_network("168.63.129.16/32"), "the metadata service of a cloud"),
    (ipaddress.ip_network("192.0.0.0/24"), "set aside for protocols"),
    (ipaddress.ip_network("192.88.99.0/24"), "a relay that is out of use"),
    (ipaddress.ip_network("64:ff9b:1::/48"), "a local translation of addresses"),
    (ipaddress.ip_network("2001::/23"), "set aside for protocols"),
    (ipaddress.ip_network("3fff::/20"), "set aside for examples"),
    (ipaddress.ip_network("5f00::/16"), "set aside for routing"),
    (ipaddress.ip_network("fec0::/10"), "private"),
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks as the owner writes them: `10.1.0.0/16`, or a single address."""
    networks: list[Network] = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            raise ConfigError(f"{text!r} is not a network. Write it as 10.1.0.0/16, or write one address.") from None
    return tuple(networks)


def forbidden(text: str, allowed: Iterable[Network] = ()) -> str | None:
    """Why an address may not be connected to; None if it may."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "no address"
    layers = _layers(address)
    if any(layer in network for network in allowed for layer in layers if layer.version == network.version):
        return None
    return next((why for layer in layers if (why := _special(layer))), None)


def _layers(address: Address) -> list[Address]:
    """The address, unless it only wraps another one, and the address that it contains."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address, address.sixtofour] if address.sixtofour is not None else [address]


def _special(address: Address) -> str | None:
    named = next((why for network, why in _SPECIAL if address.version == network.version and address in network), None)
    kinds = {
        "the machine itself": address.is_loopback or address.is_unspecified,
        "link-local, where clouds keep their metadata": address.is_link_local,
        "for many receivers (multicast)": address.is_multicast,
        "reserved": address.is_reserved,
        "private": address.is_private or not address.is_global,
    }
    return named or next((why for why, holds in kinds.items() if holds), None)
