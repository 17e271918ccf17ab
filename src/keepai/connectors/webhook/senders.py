"""How each service signs what it sends, as data.

Every service computes an HMAC over the body, most with the time before it, and puts it into a header. A rule of the
user's own, `[connectors.NAME.hmac]`, has the same form as the built-in ones. `signature_check` applies a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from ...model.errors import ConfigError
from .signature import ID, SIGNATURE, TIME

ALGORITHMS = ("sha256", "sha512", "sha384", "sha1")
ENCODINGS = ("hex", "base64")
KEYS = ("text", "base64", "hex", "whsec")
#: A place in `SigningRule.signed`.
PLACE = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class SigningRule:
    """How one service signs. Names of headers are in lower case."""

    header: str  # where the signature is
    algorithm: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""  # before the signature
    separator: str = ""  # between the parts of the header, if it has several
    timestamp: str = ""  # the header of the time; with "=" at its end, the part of the signature's header
    signed: str = "{body}"  # what is signed
    id: str = ""  # the header of the delivery's id
    id_in_body: str = ""  # or the member of the body that has it
    headers: tuple[str, ...] = ()  # that scripts see
    key: str = "text"  # how the secret is written: text, base64, hex, or whsec (Standard Webhooks)
    answers_challenge: bool = False  # Slack: a signed question whether this address is the right one
    silent: bool = False  # the answer has no text: a service would show it to people

    def problems(self) -> Iterator[str]:
        """What is wrong with a rule that a person wrote."""
        for name, known in (("algorithm", ALGORITHMS), ("encoding", ENCODINGS), ("key", KEYS)):
            if getattr(self, name) not in known:
                yield f"hmac.{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}"
        if not self.header:
            yield "hmac.header is missing: the header that has the signature, such as x-signature"
        places = PLACE.findall(self.signed)
        if "body" not in places or set(places) - {"body", "timestamp", "id"}:
            yield 'hmac.signed must have {body} in it, and may have {timestamp} and {id}, such as "{timestamp}.{body}"'
        elif ("timestamp" in places) != bool(self.timestamp):
            yield "hmac.timestamp and {timestamp} in hmac.signed belong together: an unsigned time proves nothing"
        if "id" in places and not self.id:
            yield "hmac.signed has {id}, so hmac.id must name the header of the id"
        if self.id and self.id_in_body:
            yield "hmac.id and hmac.id_in_body are two places for one id: leave one out"
        if self.timestamp.endswith("=") and not self.separator:
            yield f"hmac.timestamp is a part of the signature's header ({self.timestamp}), so hmac.separator is needed"


#: Name in keep.toml → how that service signs.
SENDERS: Mapping[str, SigningRule] = MappingProxyType({
    "standard": SigningRule(
        SIGNATURE, encoding="base64", prefix="v1,", separator=" ", timestamp=TIME, signed="{id}.{timestamp}.{body}",
        id=ID, key="whsec"),
    "github": SigningRule(
        "x-hub-signature-256", prefix="sha256=", id="x-github-delivery",
        headers=("x-github-event", "x-github-hook-id", "x-github-hook-installation-target-id")),
    "stripe": SigningRule(
        "stripe-signature", prefix="v1=", separator=",", timestamp="t=", signed="{timestamp}.{body}", id_in_body="id"),
    "slack": SigningRule(
        "x-slack-signature", prefix="v0=", timestamp="x-slack-request-timestamp", signed="v0:{timestamp}:{body}",
        id_in_body="event_id", headers=("x-slack-retry-num", "x-slack-retry-reason"), answers_challenge=True,
        silent=True),
    "shopify": SigningRule(
        "x-shopify-hmac-sha256", encoding="base64", id="x-shopify-webhook-id",
        headers=("x-shopify-topic", "x-shopify-shop-domain", "x-shopify-api-version", "x-shopify-event-id",
                 "x-shopify-triggered-at")),
})


def rule_of(connector: str, sender: str, given: Mapping[str, Any] | None) -> SigningRule:
    """The rule that settings name, or describe; `ConfigError` says everything that is wrong."""
    where = f"[connectors.{connector}]"
    if sender != "hmac":
        if sender not in SENDERS:
            raise ConfigError(f"{where}: sender must be one of {', '.join(SENDERS)}, hmac; not {sender!r}.")
        if given is not None:
            raise ConfigError(f'{where}: hmac is for a sender that Keep does not know. Set sender = "hmac" beside it.')
        return SENDERS[sender]
    given = given or {}
    wrong = list(_misfits(given))
    if not wrong:
        rule = SigningRule(**{"header": "", **_lowered(given)})
        wrong = list(rule.problems())
    if wrong:
        raise ConfigError(f"{where}: {'; '.join(wrong)}.")
    return rule


def _misfits(given: Mapping[str, Any]) -> Iterator[str]:
    known = {each.name for each in fields(SigningRule)} - {"answers_challenge", "silent"}
    for name, value in given.items():
        if name not in known:
            yield f"hmac.{name} is unknown; known are {', '.join(sorted(known))}"
        elif name == "headers":
            if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
                yield "hmac.headers must be a list of strings"
        elif not isinstance(value, str):
            yield f"hmac.{name} must be a string"


def _lowered(given: Mapping[str, Any]) -> dict[str, Any]:
    """Names of headers as they arrive; a part of a header (`t=`) is left as it is."""
    found = dict(given)
    for name in ("header", "id", "timestamp"):
        if name in found and not found[name].endswith("="):
            found[name] = found[name].lower()
    return {**found, "headers": tuple(each.lower() for each in given.get("headers", ()))}
