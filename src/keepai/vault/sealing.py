"""Encrypts and decrypts values, each bound to its place. It knows neither files nor where keys are.

It uses AES-256 in GCM mode with a new nonce each time. The place is authenticated with the value: a value that was
moved to another place cannot be decrypted. Nothing here is logged, and no error contains a value.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
from collections.abc import Sequence

KEY_BYTES, NONCE_BYTES = 32, 12


class Unsealable(Exception):
    """The value was changed, is in another place, or belongs to another key."""


def new_key() -> bytes:
    """A random key."""
    return os.urandom(KEY_BYTES)


def new_name() -> str:
    """A random name for a vault or a key."""
    return os.urandom(8).hex()


def seal(key: bytes, content: bytes, bound: Sequence[str]) -> str:
    """Encrypt `content`, so that it can be decrypted only with `key` and in the place `bound`."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    return as_text(nonce + AESGCM(key).encrypt(nonce, content, _place(bound)))


def unseal(key: bytes, sealed: object, bound: Sequence[str]) -> bytes:
    """Decrypt; raises `Unsealable`."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    data = as_bytes(sealed)
    try:
        return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _place(bound))
    except (InvalidTag, ValueError):
        raise Unsealable from None


def mark(key: bytes, purpose: str, content: object) -> str:
    """A message authentication code over `content`, which is JSON."""
    own = hmac.digest(key, f"keep vault {purpose}".encode(), hashlib.sha256)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return as_text(hmac.digest(own, text.encode(), hashlib.sha256))


def is_mark(given: object, key: bytes, purpose: str, content: object) -> bool:
    """Whether `given` is the code of `content`."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), mark(key, purpose, content).encode())


def stretched(passphrase: str, salt: bytes, cost: int) -> bytes:
    """The key that is derived from a passphrase; `cost` makes guessing slow."""
    memory = 256 * cost * 8  # twice what scrypt needs with r = 8
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=cost, r=8, p=1, maxmem=memory, dklen=KEY_BYTES)


def as_text(data: bytes) -> str:
    """Bytes as text for a file."""
    return base64.b64encode(data).decode()


def as_bytes(text: object) -> bytes:
    """The bytes of such a text; raises `Unsealable`."""
    try:
        return base64.b64decode(str(text).encode(), validate=True)
    except (binascii.Error, ValueError):
        raise Unsealable from None


def _place(bound: Sequence[str]) -> bytes:
    return json.dumps(["keep vault", *bound]).encode()  # JSON separates the parts unambiguously
