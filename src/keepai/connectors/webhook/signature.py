"""Signs webhooks: HMAC-SHA256 over id, time and body, in the form of Standard Webhooks.

The signature covers the time, so that an old delivery cannot be sent again. `senders` checks signatures.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

ID, TIME, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
PREFIX = "whsec_"


def sign(secret: str, id: str, seconds: int, body: bytes) -> str:
    """The value of the header `webhook-signature`."""
    signed = hmac.new(key_of(secret), f"{id}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def key_of(secret: str) -> bytes:
    """The key of a secret: `whsec_` and base64, or the text itself."""
    if secret.startswith(PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass
    return secret.encode()
