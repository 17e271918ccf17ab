"""E-mail addresses as scripts write them: `ann@example.com`, `Ann <ann@example.com>`, several with commas.

The grammar is narrow on purpose. An address that two mail programs could read in two ways is refused, because the
reader of a preview and the server must see the same recipients.
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from email.header import Header

from ...model.errors import ConfigError, Rejected

ADDRESSES_MAX = 50
_NAME = r'"(?P<quoted>[^"\\]*)"|(?P<plain>[^",;:<>@()\[\]\\]*?)'
_ENTRY = re.compile(rf'\s*(?:(?:{_NAME})\s*<(?P<boxed>[^<>\s,;"]+)>|(?P<bare>[^<>\s,;"]+))\s*(?:,|$)')
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
_UNSURE = frozenset("ßς\u200c\u200d")  # the two standards for such domains lead to different servers
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]*")
_LINES = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True)
class Address:
    """One address. `mailbox` is the address that is sent, with its domain in ASCII."""

    name: str
    mailbox: str

    @property
    def header(self) -> str:
        """The address as it stands in a header. A name beyond ASCII is encoded."""
        name = self.name
        if not name:
            return self.mailbox
        if not name.isascii() or "=?" in name or len(name) > 60:
            name = Header(name, "utf-8").encode(linesep="\r\n")
        elif not _ATOMS.fullmatch(name):
            name = f'"{name}"'
        return f"{name} <{self.mailbox}>"

    @property
    def text(self) -> str:
        """The normal form of the address, which Keep judges, shows and sends."""
        if not self.name:
            return self.mailbox
        name = f'"{self.name}"' if set(",;:<>@()[]") & set(self.name) else self.name
        return f"{name} <{self.mailbox}>"

    @property
    def shown(self) -> str:
        """For people: a domain with letters beyond ASCII is shown both as it is sent and as it is read."""
        local, _, domain = self.mailbox.rpartition("@")
        real = self.mailbox
        if "xn--" in domain:
            with suppress(UnicodeError):  # some domains have no readable spelling
                real = f"{local}@{domain.encode('ascii').decode('idna')} ({self.mailbox})"
        return f"{self.name} <{real}>" if self.name else real


def read(field: str, value: str | list[str] | None) -> list[Address]:
    """Every address in a param, each once. `Rejected` names an entry that is not an address."""
    by_mailbox: dict[str, Address] = {}
    for text in [value] if isinstance(value, str) else value or []:
        for address in _several(field, text):
            by_mailbox.setdefault(address.mailbox, address)
    return list(by_mailbox.values())


def own_address(place: str, address: str, name: str = "", setting: str = "address") -> Address:
    """The address that mail is sent from, as the table `place` of keep.toml names it."""
    try:
        addresses = read(setting, address)
        one_line("from_name", name)
        if len(addresses) != 1:
            raise Rejected(f"there are {len(addresses)}")
        if '"' in name or "\\" in name:
            raise Rejected("from_name must be without quotes and backslashes")
    except Rejected as error:
        raise ConfigError(f"[{place}]: {setting} must be one address: {error.message.rstrip('.')}.") from None
    return Address(name or addresses[0].name, addresses[0].mailbox)


def one_line(field: str, text: str) -> str:
    """The text, if no part of it can begin another line of a header; otherwise `Rejected`."""
    if any(unicodedata.category(character) in _LINES for character in text):
        raise Rejected(f"{field} must be one line of text, without control characters.")
    return text


def encoded(text: str, header_name: str = "") -> str:
    """Text for a header: as it is, or as encoded words if it is not plain."""
    if text.isascii() and "=?" not in text and len(text) <= 70:
        return text
    return Header(text, "utf-8", header_name=header_name).encode(linesep="\r\n")


def _several(field: str, text: str) -> list[Address]:
    one_line(field, text)
    addresses: list[Address] = []
    at = 0
    while at < len(text.rstrip()):
        match = _ENTRY.match(text, at)
        if match is None:
            problem = f"{field}: {text[at:at + 80]!r} is not an address."
            raise Rejected(f"{problem} Write ann@example.com or Ann <ann@example.com>.")
        name = (match["quoted"] or match["plain"] or "").strip()
        addresses.append(_address(field, name, match["boxed"] or match["bare"]))
        at = match.end()
    if len(addresses) > ADDRESSES_MAX:
        raise Rejected(f"{field} names {len(addresses)} people; at most {ADDRESSES_MAX} are allowed.")
    return addresses


def _address(field: str, name: str, given: str) -> Address:
    local, at, domain = given.rpartition("@")
    if not at or len(local) > 64 or not _LOCAL.fullmatch(local):
        raise Rejected(f"{field}: {given[:80]!r} is not an address that every mail server understands.")
    return Address(name, f"{local}@{_domain(field, domain)}")


def _domain(field: str, domain: str) -> str:
    """The domain in ASCII; letters beyond ASCII become `xn--…`."""
    wrong = Rejected(f"{field}: {domain[:80]!r} is not a domain.")
    if _UNSURE.intersection(domain):
        raise Rejected(f"{field}: {domain[:80]!r} can be read in two ways. Write it in its ASCII form, xn--….")
    try:
        wire = domain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise wrong from None
    if len(wire) > 253 or not all(_LABEL.fullmatch(label) for label in wire.split(".")):
        raise wrong
    return wire
