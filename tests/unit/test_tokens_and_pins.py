"""Tokens and PINs: what is kept of them, and what guessing costs."""

from __future__ import annotations

import pytest

from keepai.engine.tokens_and_pins import FREE, LONGEST_S, PinTries, is_pin, new_token, pin_hash, token_hash
from keepai.model.errors import Refused
from keepai.model.principals import PrincipalKind

PIN, WRONG = "123456", "654321"


def test_what_is_kept_of_a_proof_does_not_show_it_and_differs_each_time_for_a_pin() -> None:
    token, kept = new_token(PrincipalKind.AGENT), pin_hash(PIN)
    assert new_token(PrincipalKind.AGENT) != token
    assert token not in token_hash(token)
    assert PIN not in kept
    assert pin_hash(PIN) != kept
    assert [is_pin(each, kept) for each in (PIN, WRONG, "", "x" * 300)] == [True, False, False, False]


@pytest.mark.parametrize("pin", ["", "12345", "x" * 201])
def test_a_pin_that_is_too_short_or_too_long_is_refused(pin: str) -> None:
    with pytest.raises(Refused, match="6 to 200 characters"):
        pin_hash(pin)


async def test_after_a_few_wrong_pins_the_right_one_waits_too_and_each_further_one_doubles_that() -> None:
    now, kept = [0.0], pin_hash(PIN)
    tries = PinTries(lambda: now[0])

    async def refused(pin: str, said: str) -> None:
        with pytest.raises(Refused, match=said):
            await tries.judge(pin, kept)

    for _ in range(FREE):
        await refused(WRONG, "not the PIN")
    for wait_s in (30, 60, 120, 240, 480, LONGEST_S, LONGEST_S):
        await refused(PIN, f"judged in {wait_s:.0f} s")
        now[0] += wait_s
        await refused(WRONG, "not the PIN")
    now[0] += LONGEST_S
    await tries.judge(PIN, kept)
    await refused(WRONG, "not the PIN")
    await tries.judge(PIN, kept)  # the count began anew
