"""Checks the signature of a delivery by its sender's rule, and reads what the delivery is.

Signatures are compared in constant time, before anything is read from the body. What a refused sender hears does not
depend on how much of the signature was right.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..kit.lenient_json import parse_json
from .senders import PLACE, SigningRule
from .signature import key_of

SIGNATURES_MAX = 10
ID_MAX = 200
HEADER_MAX = 1_000
CHALLENGE_MAX = 1_000
_MS_FROM = 10**11  # a time that is larger than this is in milliseconds


@dataclass(frozen=True)
class GenuineDelivery:
    """What a sender with one of the secrets has signed."""

    id: str
    signed_with: str  # the name of that secret
    sent_s: int | None  # when, if it says so
    headers: Mapping[str, str]
    challenge: str | None = None  # it is only this question


@dataclass(frozen=True)
class RefusedDelivery:
    """Why a delivery is not taken: for its sender, who may be anybody."""

    status: int
    text: str


def judged(
    rule: SigningRule, secrets: Mapping[str, str], headers: Mapping[str, str], body: bytes,
) -> GenuineDelivery | RefusedDelivery:
    """Check the signature of a delivery by any of the secrets, which are given by name, and read what it is; whether it
    is too old is for the caller to say."""
    parts = _parts(rule, headers.get(rule.header, ""))
    time = _time(rule, headers, parts)
    id = headers.get(rule.id, "") if rule.id else None
    if time is None or not _is_an_id(id):
        needed = [rule.header, *([rule.id] if rule.id else []), *([rule.timestamp] if _in_header(rule) else [])]
        return RefusedDelivery(400, f"These headers are needed: {', '.join(dict.fromkeys(needed))}.")
    if not headers.get(rule.header):
        return RefusedDelivery(401, f"{rule.header} is missing: its sender does not sign, or signs in another way.")
    signed = _signed(rule, id or "", time, body)
    given = [part.removeprefix(rule.prefix) for part in parts if part.startswith(rule.prefix)][:SIGNATURES_MAX]
    matches = [name for name, secret in secrets.items() if _is_among(rule, given, _signature(rule, secret, signed))]
    if not matches:
        return RefusedDelivery(401, "The signature is wrong.")
    return _read(rule, id, time, signed, headers, body, matches[0])


def _is_among(rule: SigningRule, given: list[str], wanted: bytes) -> bool:
    """Whether one of these signatures is the wanted one; each is compared, whatever the others are."""
    matches = [hmac.compare_digest(wanted, _plain(rule, each)) for each in given]
    return any(matches)


def _read(
    rule: SigningRule, id: str | None, time: str, signed: bytes, headers: Mapping[str, str], body: bytes,
    signed_with: str,
) -> GenuineDelivery:
    seconds = int(time) if time else None
    if seconds is not None and seconds >= _MS_FROM:
        seconds //= 1000
    seen = {name: headers[name][:HEADER_MAX] for name in rule.headers if name in headers}
    content = _object(body) if rule.id_in_body or rule.answers_challenge else {}
    found = id if rule.id else content.get(rule.id_in_body)
    if not (isinstance(found, str) and _is_an_id(found)):
        found = f"sha256:{hashlib.sha256(signed).hexdigest()}"  # the same only if it is the same in every byte
    asked = content.get("challenge") if rule.answers_challenge and content.get("type") == "url_verification" else None
    challenge = asked if isinstance(asked, str) and len(asked) <= CHALLENGE_MAX else None
    return GenuineDelivery(found, signed_with, seconds, seen, challenge)


def _parts(rule: SigningRule, given: str) -> list[str]:
    return [part.strip() for part in given.split(rule.separator)] if rule.separator else [given]


def _in_header(rule: SigningRule) -> bool:
    """Whether the time is in a header of its own."""
    return bool(rule.timestamp) and not rule.timestamp.endswith("=")


def _time(rule: SigningRule, headers: Mapping[str, str], parts: list[str]) -> str | None:
    """The time as it was signed, empty if none is; None if it should be there."""
    if not rule.timestamp:
        return ""
    found = headers.get(rule.timestamp, "") if _in_header(rule) else next(
        (part.removeprefix(rule.timestamp) for part in parts if part.startswith(rule.timestamp)), "")
    return found if found.isascii() and found.isdecimal() and len(found) < 14 else None


def _is_an_id(id: str | None) -> bool:
    return id is None or (0 < len(id) <= ID_MAX and id.isprintable())


def _signed(rule: SigningRule, id: str, time: str, body: bytes) -> bytes:
    """What the sender signed. The body comes in last: braces in it mean nothing."""
    places = {"id": id.encode(), "timestamp": time.encode(), "body": body}
    pieces = PLACE.split(rule.signed)  # text, name, text, name, …
    return b"".join(places[piece] if number % 2 else piece.encode() for number, piece in enumerate(pieces))


def _signature(rule: SigningRule, secret: str, signed: bytes) -> bytes:
    made = hmac.new(_key(rule, secret), signed, rule.algorithm).digest()
    return base64.b64encode(made) if rule.encoding == "base64" else made.hex().encode()


def _plain(rule: SigningRule, given: str) -> bytes:
    return (given if rule.encoding == "base64" else given.lower()).encode()


def _key(rule: SigningRule, secret: str) -> bytes:
    """The key of a secret; the text itself if it is not written as the rule says, which `misspelt` tells the owner."""
    try:
        match rule.key:
            case "whsec":
                return key_of(secret)
            case "base64":
                return base64.b64decode(secret, validate=True)
            case "hex":
                return bytes.fromhex(secret)
    except (binascii.Error, ValueError):
        pass
    return secret.encode()


def misspelt(rule: SigningRule, secret: str) -> str | None:
    """What is wrong with how a secret is written, if something is."""
    wrong = rule.key in ("base64", "hex") and _key(rule, secret) == secret.encode()
    return f"The secret is not {rule.key}, as hmac.key says it is." if wrong else None


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = parse_json(body.decode("utf-8"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
