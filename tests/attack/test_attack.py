"""The short form of `make attack`: every fixed attack and a few drawn ones; and each planted weakness is found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.attack.base import Attack, Planted, Tally, run, table
from tests.attack.program import AREAS, area, attacked

ROUNDS = 3
SEED = 1

PLANTS = [(name, weak) for name in AREAS for weak in area(name).planted]


@pytest.fixture
def quick_servers() -> None:
    """The program of the attacks says itself which servers start quickly."""


@pytest.mark.parametrize("name", AREAS)
def test_no_attack_gets_through(name: str) -> None:
    [tally] = attacked([name], budget=0, rounds=ROUNDS, seed=SEED)
    assert not tally.broken, table([tally])
    assert tally.tried > ROUNDS


@pytest.mark.parametrize(("name", "weak"), PLANTS, ids=[f"{name}: {weak.name}" for name, weak in PLANTS])
def test_a_planted_weakness_is_found(name: str, weak: Planted) -> None:
    [tally] = attacked([name], budget=0, rounds=weak.rounds, seed=SEED, only=weak.breaks, plant=weak.name, first=True)
    assert tally.broken, f"nothing got through with {weak.name}"
    told = table([tally])
    assert f"{name:<13}{tally.tried:>9,}{tally.held:>9,}{len(tally.broken):>9,}" in told
    assert f"python -m tests.attack --only {name} --attack" in told


def test_every_area_has_a_planted_weakness() -> None:
    assert [name for name in AREAS if not area(name).planted] == []


def test_an_attack_that_raises_anything_else_counts_as_broken(tmp_path: Path) -> None:
    from dataclasses import replace

    def raises() -> None:
        raise ValueError("the attack itself is wrong")

    odd = replace(area("frames"), attacks=lambda _: [Attack("an attack with a mistake", raises)], drawn=None)
    tally: Tally = asyncio.run(run(odd, tmp_path))
    assert (tally.tried, tally.held) == (1, 0)
    assert "ValueError: the attack itself is wrong" in table([tally])
