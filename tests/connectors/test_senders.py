"""Deliveries as the services send them: each with a signature that their own documentation gives, or that openssl made.

GitHub's, Slack's and Standard Webhooks' pages have a secret, a body and the signature of it; Stripe's and Shopify's
have the form only. What openssl made says how in a comment.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepai.config import Settings
from keepai.connectors import make
from keepai.connectors.base import Call, Page
from keepai.connectors.egress import Client, Response, Rules
from keepai.connectors.webhook import signature_check
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.senders import SENDERS
from keepai.doors.webhooks import WebhookPort
from keepai.model.errors import ConfigError, PreconditionFailed
from keepai.testing import ManualClock

GITHUB_SECRET = "It's a Secret to Everybody"
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_AT, STRIPE_AT = "2018-07-12T18:36:58Z", "2017-04-21T11:36:17Z"
SLASH_COMMAND = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
    b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015."
    b"47445629121.803a0bc887a14d10d2c447fce8b6703c")
SLACK_EVENT = b'{"type":"event_callback","event_id":"Ev9UQ52YNA","event":{"type":"app_mention"}}'
CHALLENGE = (b'{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",'
             b'"type":"url_verification"}')
STRIPE_EVENT = b'{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","type":"payment_intent.succeeded"}'
# printf %s "1492774577.$BODY" | openssl dgst -sha256 -hmac "$SECRET"
STRIPE_V1 = "5de2c4981eddbc86aec5907ec83592f6d1f7f2b43214ae6367e4d8e2160c127e"
STRIPE_V1_OF_BEFORE = "a8d967d1e3d09d67799df522d479ca0fec4635e27c5828f7360cf2cac17cce77"
STRIPE_V0 = "6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"


@dataclass(frozen=True)
class Sent:
    """A delivery as a service sends it, and what is kept of it."""

    sender: str
    secret: str
    headers: Mapping[str, str]
    body: bytes
    id: str
    at: str = "2026-01-05T09:00:00Z"
    seen: Mapping[str, str] | None = None  # headers that scripts see
    status: int = 202

    def __str__(self) -> str:
        return f"{self.sender} {self.id[:12]}"


GITHUB = Sent(
    "github", GITHUB_SECRET, {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "x-github-event": "issues",
        "content-type": "application/json"},
    b"Hello, World!", "72d3162e-cc78-11e3-81ab-4c9367dc0958", seen={"x-github-event": "issues"})
STANDARD = Sent(
    "standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
    b'{"test": 2432232314}', "msg_p5jXN8AQM9LWM0D4loKWxJek", at="2021-02-25T15:02:10Z")
SLACK_COMMAND = Sent(
    "slack", SLACK_SECRET, {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
    SLASH_COMMAND, "sha256:", at=SLACK_AT, status=200)
SLACK = Sent(  # printf %s "v0:1531420618:$BODY" | openssl dgst -sha256 -hmac "$SECRET"
    "slack", SLACK_SECRET, {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=686a5119426344f7a5a853b8a4e961c387d0c6512d6ff8ebc0a6cf00ff4b30f5",
        "x-slack-retry-num": "1"},
    SLACK_EVENT, "Ev9UQ52YNA", at=SLACK_AT, seen={"x-slack-retry-num": "1"}, status=200)
STRIPE = Sent(
    "stripe", "whsec_c2VjcmV0IG9mIHN0cmlwZQ==",
    {"stripe-signature": f"t=1492774577,v0={STRIPE_V0},v1={STRIPE_V1}"},
    STRIPE_EVENT, "evt_1NG8Du2eZvKYlo2CUI79vXWy", at=STRIPE_AT)
SHOPIFY = Sent(  # printf %s "$BODY" | openssl dgst -sha256 -hmac hush -binary | base64
    "shopify", "hush", {
        "x-shopify-hmac-sha256": "gtPhVzwalO5wwOen0RsrC5+qBBLb8l1ByAzpN+a6shU=", "x-shopify-topic": "orders/create",
        "x-shopify-shop-domain": "example.myshopify.com", "x-forwarded-for": "192.0.2.7",
        "x-shopify-webhook-id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043"},
    b'{"id":820982911946154508,"email":"jon@example.com","total_price":"254.98"}',
    "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
    seen={"x-shopify-topic": "orders/create", "x-shopify-shop-domain": "example.myshopify.com"})
ALL = [GITHUB, STANDARD, SLACK_COMMAND, SLACK, STRIPE, SHOPIFY]
TIMED = [STANDARD, SLACK, STRIPE]


def inbox(folder: Path, sent: Sent, **settings: Any) -> tuple[Inbox, ManualClock]:
    clock = ManualClock(sent.at)
    made = Inbox(folder, create=True, name="shop", clock=clock, **{"sender": sent.sender, **settings})
    made.entrust({"secret": sent.secret})
    return made, clock


async def listed(box: Inbox) -> Page[Any]:
    spec = box.operations["list"]
    found: Any = await spec.invoke(spec.parse({}), Call())
    return found


@pytest.mark.parametrize("sent", ALL, ids=str)
async def test_a_genuine_delivery_is_kept_once_under_the_id_of_its_service(tmp_path: Path, sent: Sent) -> None:
    box, _ = inbox(tmp_path, sent)
    assert [(await box.accept(sent.headers, sent.body)).status for _ in range(2)] == [sent.status, 200]
    [kept] = await listed(box)
    assert kept["id"].startswith(sent.id)
    assert kept["headers"] == (sent.seen or {})
    assert kept["sentAt"] == (sent.at.replace("Z", ".000Z") if sent in (*TIMED, SLACK_COMMAND) else None)


@pytest.mark.parametrize("sent", ALL, ids=str)
async def test_a_delivery_that_its_service_did_not_sign_is_not_kept(tmp_path: Path, sent: Sent) -> None:
    box, _ = inbox(tmp_path, sent)
    name = SENDERS[sent.sender].header
    good = sent.headers[name]
    forged = [good[:-8] + "AAAAAAA=", "", good.split("=", 1)[-1][:8], "=", ",", good.swapcase() + "x", "é" * 64]
    said = [await box.accept({**sent.headers, name: each}, sent.body) for each in forged]
    said += [await box.accept(sent.headers, sent.body + b" ")]
    box.entrust({"secret": sent.secret + "x"})
    said += [await box.accept(sent.headers, sent.body)]
    without = {key: value for key, value in sent.headers.items() if key != name}
    said += [await box.accept(without, sent.body)]
    assert {each.status for each in said} <= {400, 401}
    assert await listed(box) == []


@pytest.mark.parametrize("sent", ALL, ids=str)
async def test_what_a_refused_sender_hears_does_not_depend_on_how_wrong_it_was(tmp_path: Path, sent: Sent) -> None:
    box, _ = inbox(tmp_path, sent)
    name = SENDERS[sent.sender].header
    good = sent.headers[name]
    nearly = good[:-2] + ("B=" if good.endswith("=") else "00" if not good.endswith("00") else "11")
    far = good[: len(good) // 2] + "0" * (len(good) - len(good) // 2)
    assert await box.accept({**sent.headers, name: nearly}, sent.body) == await box.accept(
        {**sent.headers, name: far}, sent.body)


@pytest.mark.parametrize("sent", ALL, ids=str)
async def test_signatures_are_compared_in_constant_time(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(signature_check.hmac, "compare_digest", compare)
    box, _ = inbox(tmp_path, sent)
    await box.accept(sent.headers, sent.body)
    assert compared


@pytest.mark.parametrize("sent", TIMED, ids=str)
async def test_an_old_delivery_is_refused_where_the_service_signs_a_time(tmp_path: Path, sent: Sent) -> None:
    box, clock = inbox(tmp_path, sent)
    clock.advance(seconds=301)
    late = await box.accept(sent.headers, sent.body)
    assert (late.status, late.text) == (401, "The delivery is older than 300 seconds, or from the future.")
    rule = SENDERS[sent.sender]
    fresh = clock.now_ms() // 1000
    renewed = {name: value.replace("1492774577", str(fresh)) for name, value in sent.headers.items()}
    if rule.timestamp in renewed:
        renewed[rule.timestamp] = str(fresh)
    assert (await box.accept(renewed, sent.body)).status == 401, "the time is signed"
    assert await listed(box) == []


@pytest.mark.parametrize("sent", [GITHUB, SHOPIFY], ids=str)
async def test_where_no_time_is_signed_a_delivery_has_no_age(tmp_path: Path, sent: Sent) -> None:
    box, clock = inbox(tmp_path, sent)
    clock.advance(days=30)
    assert (await box.accept(sent.headers, sent.body)).status == 202


async def test_slack_hears_its_challenge_and_only_if_it_signed_it(tmp_path: Path) -> None:
    sent = replace(SLACK, body=CHALLENGE, headers={
        **SLACK.headers, "x-slack-signature": "v0=f9bd80929259f3f6d5fe3a3186c453c89cd1ad4862815a15837584f31c993652"})
    box, clock = inbox(tmp_path, sent)
    heard = await box.accept(sent.headers, sent.body)
    assert (heard.status, heard.challenge) == (200, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
    forged = await box.accept({**sent.headers, "x-slack-signature": "v0=00"}, sent.body)
    assert (forged.status, forged.challenge) == (401, None)
    clock.advance(minutes=6)
    assert (await box.accept(sent.headers, sent.body)).challenge is None
    assert await listed(box) == [], "it is a question, and no delivery"


async def test_slack_gets_an_empty_answer_since_people_would_see_any_other(tmp_path: Path) -> None:
    box, _ = inbox(tmp_path, SLACK_COMMAND)
    assert (await box.accept(SLACK_COMMAND.headers, SLACK_COMMAND.body)).text == ""


@pytest.mark.parametrize("given", [
    f"t=1492774577,v1={STRIPE_V1_OF_BEFORE},v1={STRIPE_V1}", f"t=1492774577,v1={STRIPE_V1},v0={STRIPE_V0}",
    f"t=1492774577, v1={STRIPE_V1}", f"t=1492774577,v1={STRIPE_V1.upper()}",
])
async def test_stripe_may_sign_twice_while_its_secret_changes(tmp_path: Path, given: str) -> None:
    box, _ = inbox(tmp_path, STRIPE)
    assert (await box.accept({"stripe-signature": given}, STRIPE.body)).status == 202


@pytest.mark.parametrize(("given", "status"), [
    (f"v1={STRIPE_V1}", 400), (f"t=,v1={STRIPE_V1}", 400), (f"t=1492774577,v0={STRIPE_V1}", 401),
    ("t=1492774577", 401), ("t=-1,v1=0", 400), (f"t=1492774577,{STRIPE_V1}", 401), ("t=1,t=1492774577,v1=0", 401),
    (f"t=1492774577,v1={'0' * 64}," * 50 + f"v1={STRIPE_V1}", 401),
])
async def test_a_header_of_stripe_that_is_not_as_documented_is_refused(tmp_path: Path, given: str, status: int) -> None:
    box, _ = inbox(tmp_path, STRIPE)
    assert (await box.accept({"stripe-signature": given}, STRIPE.body)).status == status


async def test_a_delivery_without_a_signature_is_told_apart_from_a_wrong_one(tmp_path: Path) -> None:
    """GitHub sends none if no secret was typed there."""
    box, _ = inbox(tmp_path, GITHUB)
    unsigned = await box.accept({"x-github-delivery": "7"}, b"{}")
    assert (unsigned.status, unsigned.text) == (
        401, "x-hub-signature-256 is missing: its sender does not sign, or signs in another way.")


async def test_the_owner_reads_in_the_log_why_a_delivery_was_refused_and_no_flood(
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    box, clock = inbox(tmp_path, GITHUB)
    for _ in range(50):
        await box.accept({**GITHUB.headers, "x-hub-signature-256": "sha256=00"}, GITHUB.body)
    [told] = [each.getMessage() for each in caplog.records]
    assert told.startswith("A delivery to ctx.shop was refused: The signature is wrong. If it was genuine")
    assert GITHUB_SECRET not in told
    clock.advance(minutes=1)
    await box.accept({**GITHUB.headers, "x-hub-signature-256": "sha256=00"}, GITHUB.body)
    assert len(caplog.records) == 2


# -- a sender of one's own ---------------------------------------------------------------------------

BODY = b'{"a":1}'
TODAY = "2026-01-05T09:00:00Z"
#: Rule → secret, headers of a genuine delivery, time. Every signature is by openssl; the first two are
#: printf %s "$BODY" | openssl dgst -sha256 -hmac k, and the same with -sha1.
OWN: dict[str, tuple[dict[str, Any], str, dict[str, str], str]] = {
    "the body alone": (
        {"header": "X-Signature"}, "k",
        {"x-signature": "c3a92ff9e274cdcce27a58c15a78ec6dcbbdbd0038a87e7a11baef2028fd8bff"}, TODAY),
    "sha1 with a prefix": (
        {"header": "X-Hub-Signature", "algorithm": "sha1", "prefix": "sha1=", "id": "X-Request-Id"}, "k",
        {"x-hub-signature": "sha1=7b4ab6898ab862077e9caf504b39982f2bc41453", "x-request-id": "7"}, TODAY),
    # printf %s "1531420618123.$BODY" | openssl dgst -sha256 -hmac k
    "a time in milliseconds": (
        {"header": "x-signature", "timestamp": "X-Timestamp", "signed": "{timestamp}.{body}"}, "k",
        {"x-signature": "f2082fbfe74b0be917ef990b4f2be6f51dad90d4f1e82528b3a4991c1397eb6e",
         "x-timestamp": "1531420618123"}, SLACK_AT),
    # printf %s "1531420618|req-7|$BODY" | openssl dgst -sha512 -mac HMAC -macopt hexkey:00ff10 -binary | base64
    "everything": (
        {"header": "x-sig", "algorithm": "sha512", "encoding": "base64", "prefix": "v=", "separator": ";", "key": "hex",
         "timestamp": "ts=", "signed": "{timestamp}|{id}|{body}", "id": "X-Id", "headers": ["X-Event"]}, "00ff10",
        {"x-sig": "ts=1531420618;v=Ay0PAhYmzSqBevE83FFe7apD7XvBcBWN10GzlVxod07RqwoUF5vQ0QIhtjdiEK6J"
                  "ksc9dVey9M2cxhvqpip1Hg==",
         "x-id": "req-7", "x-event": "paid"}, SLACK_AT),
}


@pytest.mark.parametrize("name", OWN)
async def test_a_rule_in_keep_toml_describes_any_other_sender(tmp_path: Path, name: str) -> None:
    rule, secret, headers, at = OWN[name]
    box, clock = inbox(tmp_path, Sent("hmac", secret, headers, BODY, "", at), hmac=rule)
    assert await box.check()
    assert [(await box.accept(headers, BODY)).status for _ in range(2)] == [202, 200]
    [kept] = await listed(box)
    assert kept["body"] == {"a": 1}
    assert kept["headers"] == ({"x-event": "paid"} if name == "everything" else {})
    assert (await box.accept(headers, BODY + b" ")).status == 401
    clock.advance(minutes=6)
    assert (await box.accept(headers, BODY)).status == (401 if "timestamp" in rule else 200)


async def test_without_an_id_the_same_bytes_are_the_same_delivery(tmp_path: Path) -> None:
    rule, secret, headers, at = OWN["the body alone"]
    box, _ = inbox(tmp_path, Sent("hmac", secret, headers, BODY, "", at), hmac=rule)
    await box.accept(headers, BODY)
    [kept] = await listed(box)
    assert kept["id"] == "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


@pytest.mark.parametrize(("rule", "told"), [
    ({}, "hmac.header is missing"),
    ({"header": "x", "algorithm": "md5"}, "hmac.algorithm must be one of sha256, sha512, sha384, sha1, not 'md5'"),
    ({"header": "x", "encoding": "hexx"}, "hmac.encoding must be one of hex, base64"),
    ({"header": "x", "colour": "red"}, "hmac.colour is unknown; known are algorithm, encoding, header"),
    ({"header": 7}, "hmac.header must be a string"),
    ({"header": "x", "headers": "y"}, "hmac.headers must be a list of strings"),
    ({"header": "x", "signed": "{timestamp}"}, "hmac.signed must have {body} in it"),
    ({"header": "x", "signed": "{body}{url}"}, "hmac.signed must have {body} in it"),
    ({"header": "x", "timestamp": "t"}, "an unsigned time proves nothing"),
    ({"header": "x", "signed": "{timestamp}{body}"}, "belong together"),
    ({"header": "x", "signed": "{id}{body}"}, "hmac.id must name the header"),
    ({"header": "x", "id": "a", "id_in_body": "b"}, "two places for one id"),
    ({"header": "x", "timestamp": "t=", "signed": "{timestamp}{body}"}, "hmac.separator is needed"),
    ({"header": "x", "silent": "yes"}, "hmac.silent is unknown"),
])
def test_a_rule_that_cannot_be_right_is_refused_with_what_is_wrong(
    tmp_path: Path, rule: dict[str, Any], told: str,
) -> None:
    with pytest.raises(ConfigError) as refused:
        make("webhook.inbox", "erp", {"path": str(tmp_path), "sender": "hmac", "hmac": rule})
    assert told in refused.value.message
    assert "[connectors.erp]" in refused.value.message


def test_a_sender_that_is_not_known_and_a_rule_that_nobody_asks_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sender must be one of standard, github, stripe, slack, shopify, hmac"):
        make("webhook.inbox", "erp", {"path": str(tmp_path), "sender": "gitlab"})
    with pytest.raises(ConfigError, match='Set sender = "hmac"'):
        make("webhook.inbox", "erp", {"path": str(tmp_path), "sender": "github", "hmac": {"header": "x"}})


async def test_a_secret_that_is_not_written_as_the_rule_says_is_found_by_check(tmp_path: Path) -> None:
    box, _ = inbox(tmp_path, Sent("hmac", "no hex", {}, b"", ""), hmac={"header": "x", "key": "hex"})
    with pytest.raises(PreconditionFailed, match="The secret is not hex"):
        await box.check()


def test_what_was_kept_before_headers_were_kept_is_still_read(tmp_path: Path) -> None:
    old = {"id": "d1", "received": 1, "sent": 1000, "type": "text/plain", "body": "a", "cursor": "000000000000001"}
    box, _ = inbox(tmp_path, GITHUB)
    (tmp_path / f"000000000000001-{'0' * 40}.json").write_text(json.dumps(old))
    shown = box._shown("000000000000001")
    assert shown is not None
    assert shown["headers"] == {}


# -- over the port -----------------------------------------------------------------------------------


async def test_over_the_port_a_challenge_is_echoed_as_slack_documents_it_and_a_command_hears_nothing(
    tmp_path: Path,
) -> None:
    box, _ = inbox(tmp_path, SLACK)
    signature = "v0=f9bd80929259f3f6d5fe3a3186c453c89cd1ad4862815a15837584f31c993652"
    async with WebhookPort(Settings(connectors=(box,), hooks=("127.0.0.1", 0))) as hooks:
        assert hooks.origin
        client = Client(Rules.under([hooks.origin], ["127.0.0.1"]))

        async def post(headers: Mapping[str, str], body: bytes) -> Response:
            return await client.send("POST", f"{hooks.origin}shop", Call(), headers=headers, content=body)

        asked = await post({**SLACK.headers, "x-slack-signature": signature}, CHALLENGE)
        assert (asked.status, json.loads(asked.content)) == (200, {
            "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"})
        told = await post(SLACK_COMMAND.headers, SLACK_COMMAND.body)
        assert (told.status, told.content) == (200, b"")
        refused = await post({**SLACK.headers, "x-slack-signature": "v0=00"}, SLACK_EVENT)
        assert (refused.status, json.loads(refused.content)) == (401, {"told": "The signature is wrong."})


@pytest.mark.parametrize("sent", ALL, ids=str)
async def test_whatever_stands_in_the_headers_is_refused_and_breaks_nothing(tmp_path: Path, sent: Sent) -> None:
    chance = Random(7)
    box, _ = inbox(tmp_path, sent)
    rule = SENDERS[sent.sender]
    names = [name for name in (rule.header, rule.timestamp, rule.id) if name and name in sent.headers]
    for _ in range(300):
        headers, name = dict(sent.headers), chance.choice([rule.header, *names])
        value = list(headers[name])
        for _ in range(chance.randint(1, 3)):
            value[chance.randrange(len(value))] = chr(chance.choice([*range(32, 127), *range(160, 256)]))
        headers[name] = "".join(value)
        same = headers[name] == sent.headers[name] or (
            rule.encoding == "hex" and headers[name].lower() == sent.headers[name].lower())
        unsigned = (name == rule.id and "{id}" not in rule.signed) or STRIPE_V1 in headers[name]
        receipt = await box.accept(headers, sent.body)
        if not (same or unsigned):
            assert receipt.status in (400, 401), headers[name]
