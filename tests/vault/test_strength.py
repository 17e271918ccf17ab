"""Which secrets can be guessed: those that people invent, not those that programs make."""

from __future__ import annotations

import secrets
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepai.vault.strength import BITS_LEAST, bits

WEAK = (
    "hunter2", "password", "P@ssw0rd2024", "Summer2024!", "letmein123", "s3cr3t-token", "12345678901234567890",
    "aaaaaaaaaaaaaaa", "abcdefghijklmnop", "qwertz123", "19841984", "Welcome1!", "10.02.1987", "",
)


@pytest.mark.parametrize("secret", WEAK)
def test_what_people_make_up_is_weak(secret: str) -> None:
    assert bits(secret) < BITS_LEAST


@pytest.mark.parametrize("make", [
    lambda: secrets.token_hex(16), lambda: secrets.token_urlsafe(24),
    lambda: " ".join("".join(secrets.choice(string.ascii_lowercase) for _ in range(4)) for _ in range(4)),
])
def test_what_machines_make_is_not(make) -> None:  # type: ignore[no-untyped-def]
    assert all(bits(make()) >= BITS_LEAST for _ in range(200))


@given(st.text(max_size=200))
def test_any_text_has_a_number_of_bits(secret: str) -> None:
    assert 0 <= bits(secret) <= 8 * max(1, len(secret))
