"""Domains that look alike: people see a URL or an address in the spelling in which it is sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypedDict

import pytest

import keepai
from keepai import Call, Connector, Transient, mutation
from keepai.connectors.google.calendar import Calendar
from keepai.connectors.google.gmail import Gmail
from keepai.connectors.http.http_connector import Http
from keepai.connectors.kit import addresses
from keepai.connectors.kit.params import AddressList, Url
from keepai.connectors.local.mail import LocalMail
from keepai.connectors.mail.mail_connector import Mail
from keepai.connectors.rss.rss_connector import Rss
from keepai.connectors.webhook.outgoing import Webhook
from keepai.model.errors import Rejected

LIKE_APPLE = "\u0430\u0440\u0440\u04cf\u0435.com"  # Cyrillic letters, every one
WIRE = "xn--80ak6aa92e.com"
MIXED, MIXED_WIRE = "ex\u0430mple.com", "xn--exmple-4nf.com"
DOMAINS = [(LIKE_APPLE, WIRE), (WIRE, WIRE), (MIXED, MIXED_WIRE), ("b\u00fccher.example", "xn--bcher-kva.example")]


class Post(TypedDict):
    """What it is given."""

    url: Url
    to: AddressList


class Own(Connector):
    """A connector that says nothing of its own about its calls."""

    @mutation
    async def post(self, params: Post, call: Call) -> None:
        """Do nothing."""


def shown(connector: Connector, operation: str, params: dict[str, Any]) -> str:
    """Everything that a card has of a call: its preview, its target and its params."""
    spec = connector.operations[operation]
    parsed = spec.parse(params)
    return f"{spec.preview(parsed)} {spec.target(parsed)} {parsed}"


@pytest.mark.parametrize(("domain", "wire"), DOMAINS)
def test_a_url_is_shown_as_the_wire_has_it(domain: str, wire: str) -> None:
    url = f"https://{domain}/x"
    said = [
        shown(Http(["https://a.example/"], name="api"), "post", {"url": url}), Http([url], name="api").account,
        shown(Own(), "post", {"url": url, "to": "ann@example.com"}), Rss(url).account,
        shown(Webhook(url, name="hook"), "send", {"event": "e"}), Webhook(url, name="hook").account,
    ]
    for each in said:
        assert each.isascii(), each
    assert all(wire in each for each in [*said[:4], said[5]])
    assert f"Send to {wire}: e" in said[4]


@pytest.mark.parametrize(("domain", "wire"), DOMAINS)
def test_an_address_is_never_shown_without_its_spelling_on_the_wire(domain: str, wire: str) -> None:
    to, google = f"Ann <ann@{domain}>", {"account": "me@example.com", "client_id": "c"}
    said = [
        shown(LocalMail("mail"), "send", {"to": to, "subject": "s", "body": "b"}),
        shown(Gmail(**google), "send", {"to": to, "subject": "s", "body": "b"}),
        shown(Calendar(**google), "create", {
            "title": "t", "start": "2026-01-05T09:00:00Z", "end": "2026-01-05T10:00:00Z", "attendees": [to]}),
        shown(Own(), "post", {"url": "https://a.example", "to": to}),
    ]
    for each in said:
        assert f"ann@{wire}" in each
        assert domain not in each.replace(f"ann@{domain} (ann@{wire})", "") or domain == wire
    assert mailbox(f"ann@{domain}") == f"ann@{wire}"


def mailbox(address: str) -> str:
    """The account of a mailbox."""
    return Mail(address, imap_host="a.example", smtp_host="a.example").account


@pytest.mark.parametrize("domain", ["xn--0.example", "xn--999999999.com", f"xn--{'a' * 59}.com"])
def test_a_domain_that_only_the_wire_can_spell_is_shown_so(domain: str) -> None:
    # such a preview raised, which was told as a fault of the connector
    [address] = addresses.read("to", f"Ann <ann@{domain}>")
    assert address.shown == f"Ann <ann@{domain}>"


@pytest.mark.parametrize("url", [f"https://u:p@{LIKE_APPLE}/", f"https://{LIKE_APPLE}/a/../b"])
def test_an_error_about_a_url_names_the_host_as_the_wire_has_it(url: str) -> None:
    with pytest.raises(Rejected, match=re.escape(WIRE)) as caught:
        Http(["https://a.example/"], name="api").client.rules.check(url)
    assert caught.value.message.isascii()


async def test_a_request_that_fails_names_the_host_as_the_wire_has_it() -> None:
    api = Http([f"https://{LIKE_APPLE}/"], name="api")
    with pytest.raises(Transient, match=re.escape(WIRE)) as caught:
        await api.client.get(f"https://{LIKE_APPLE}/", Call(deadline=-1))
    assert caught.value.message.isascii()


def test_no_connector_takes_the_host_of_a_url_in_its_readable_spelling() -> None:
    # `url.host` undoes xn--; `host_of` is for everything that people see or rules judge
    folder = Path(keepai.__file__).parent / "connectors"
    found = {
        str(path.relative_to(folder)): re.findall(r"\b\w+(?:\([^()]*\))?\.host\b", path.read_text("utf-8"))
        for path in folder.rglob("*.py") if path.parent.name != "mail"  # there it is a setting
    }
    assert {path: hits for path, hits in found.items() if hits} == {"egress/url_rules.py": ["parsed.host"]}
