"""Seeds that once broke a promise, or that found a planted fault: each is tried again."""

from __future__ import annotations

import json

import pytest

from tests.prove.program import KEPT, SUITES, suite

SEEDS = [(name, seed) for name, seeds in json.loads(KEPT.read_text()).items() for seed in seeds]


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_a_kept_seed_breaks_no_promise(name: str, seed: str) -> None:
    result = suite(name)(0.0, int(seed), seed)
    assert result.violations == []
    assert result.tried >= 1


def test_every_suite_has_a_module_with_run() -> None:
    assert all(callable(suite(name)) for name in SUITES)
