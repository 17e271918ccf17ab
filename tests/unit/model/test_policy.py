"""Settings: every one has a default and a sentence, and a bad value is refused by its name."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from keepai.model.errors import ConfigError
from keepai.model.policy import Policy, settings

NUMBERS = [name for name, default, _ in settings() if not isinstance(default, str | bool)]
WHOLE = [name for name, default, _ in settings() if name.endswith(("_max", "_bytes", "_default"))]


@pytest.mark.parametrize("value", [0, -1, None, "5", True, math.nan, math.inf, [], 1j], ids=repr)
def test_a_number_must_be_finite_and_above_zero(value: object) -> None:
    for name in NUMBERS:
        with pytest.raises(ConfigError, match=name):
            replace(Policy(), **{name: value})


def test_what_is_counted_is_whole() -> None:
    for name in WHOLE:
        with pytest.raises(ConfigError, match=name):
            replace(Policy(), **{name: 1.5})


@pytest.mark.parametrize("value", ["", "all", None, True, 1, ["by_id"]], ids=repr)
def test_mutate_reads_is_one_of_two_words(value: object) -> None:
    with pytest.raises(ConfigError, match="mutate_reads"):
        replace(Policy(), mutate_reads=value)


@pytest.mark.parametrize("value", ["", "true", None, 1, 0], ids=repr)
def test_speculate_is_true_or_false(value: object) -> None:
    with pytest.raises(ConfigError, match="speculate"):
        replace(Policy(), speculate=value)


def test_defaults_are_those_of_the_design() -> None:
    policy = Policy()
    assert (policy.producer_interval_s, policy.script_s, policy.call_s, policy.settle_s) == (300, 5, 30, 60)
    assert (policy.retry_first_s, policy.retry_longest_s, policy.retries_max) == (30, 900, 8)
    assert (policy.reconcile_first_s, policy.reconcile_longest_s, policy.reconciles_max) == (30, 1800, 12)
    assert (policy.reconcile_total_s, policy.stale_s, policy.recheck_s) == (86_400, 7 * 86_400, 3_600)
    assert (policy.wake_soonest_s, policy.wake_latest_s, policy.crashes_max) == (30, 86_400, 3)
    assert policy.mutate_reads == "none"


def test_every_setting_has_a_unit_or_count_in_its_name_and_a_sentence() -> None:
    for name, default, meaning in settings():
        assert meaning.endswith("."), name
        assert meaning[0].isupper(), name
        assert isinstance(default, str | bool) or name.endswith(("_s", "_days", "_max", "_bytes", "_default")), name
    assert [*(name for name, _, _ in settings()), "limits"] == [field.name for field in fields(Policy)]


def test_a_policy_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Policy().call_s = 1  # type: ignore[misc]
