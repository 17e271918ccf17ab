"""Encrypts and decrypts texts, each bound to the place where it belongs; knows neither files nor keys' homes.

AES-256 in GCM mode with a fresh nonce each time. What a text is bound to is authenticated with it: moved to another
place, it does not open. Nothing here is ever logged, and no error says anything of a value.
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
    """It was changed, stands in another place, or belongs to another key."""


def new_key() -> bytes:
    """A key of chance."""
    return os.urandom(KEY_BYTES)


def new_name() -> str:
    """A name of chance, for a vault or a key."""
    return os.urandom(8).hex()


def seal(key: bytes, content: bytes, bound: Sequence[str]) -> str:
    """`content`, readable only with `key` and only as what it is `bound` to."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    return as_text(nonce + AESGCM(key).encrypt(nonce, content, _place(bound)))


def unseal(key: bytes, sealed: object, bound: Sequence[str]) -> bytes:
    """What was sealed; raises `Unsealable`."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    data = as_bytes(sealed)
    try:
        return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _place(bound))
    except (InvalidTag, ValueError):
        raise Unsealable from None


def mark(key: bytes, purpose: str, content: object) -> str:
    """A mark that only the holder of `key` can make over `content`, which is JSON."""
    own = hmac.digest(key, f"keep vault {purpose}".encode(), hashlib.sha256)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return as_text(hmac.digest(own, text.encode(), hashlib.sha256))


def is_mark(given: object, key: bytes, purpose: str, content: object) -> bool:
    """Whether a mark is the one of `content`."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), mark(key, purpose, content).encode())


def stretched(passphrase: str, salt: bytes, cost: int) -> bytes:
    """The key that a passphrase stands for; `cost` makes guessing slow."""
    memory = 256 * cost * 8  # twice what scrypt needs with r = 8
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=cost, r=8, p=1, maxmem=memory, dklen=KEY_BYTES)


def as_text(data: bytes) -> str:
    """Bytes as they stand in a file."""
    return base64.b64encode(data).decode()


def as_bytes(text: object) -> bytes:
    """The bytes of such a text; raises `Unsealable`."""
    try:
        return base64.b64decode(str(text).encode(), validate=True)
    except (binascii.Error, ValueError):
        raise Unsealable from None


def _place(bound: Sequence[str]) -> bytes:
    return json.dumps(["keep vault", *bound]).encode()  # JSON keeps the borders between the parts
