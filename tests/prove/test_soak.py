"""The short form of the soak, and the proof that its judge finds what grows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.prove import soak
from tests.prove.soak_host import POLICY, Sample

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes and descriptors are counted in /proc")


def test_a_host_at_rest_holds_what_it_held_after_its_first_runs(tmp_path: Path) -> None:
    samples, broken = soak.live(tmp_path, 1, 7, every=2)
    assert broken + soak.judge(samples) + soak.sound(tmp_path / "keep.db") == []
    assert samples[-1].runs >= 5, "hardly anything ran"
    worked = samples[1:]
    assert max(s.children for s in worked) <= 1 + POLICY.workers_max
    assert max(s.descriptors for s in worked) <= samples[0].descriptors + 1 + POLICY.workers_max
    assert worked[-1].rss < worked[0].rss + soak.GROWTH_MAX


REST = Sample(0, 0, 40 * soak.MIB, 0, 13, 1, 0, 4096, 0, 1)
STEADY = [
    Sample(10.0 * n, 1000 * n, 48 * soak.MIB, 90 * soak.MIB, 16, 3, 3, 8_000_000 * n, 32 * soak.MIB, 3)
    for n in range(1, 40)
]


def test_a_steady_series_is_flat() -> None:
    assert soak.judge([REST, *STEADY]) == []


GROWING = {
    "the host's memory grew": lambda n, s: replace(s, rss=s.rss + n * soak.MIB // 2),
    "descriptors at rest": lambda n, s: replace(s, descriptors=16 + n // 38),
    "children at rest": lambda n, s: replace(s, children=3 + n // 38),
    "threads at rest": lambda n, s: replace(s, threads=3 + n),
    "log bytes at rest": lambda n, s: replace(s, log=n * 4 * soak.MIB),
    "a committed run takes": lambda n, s: replace(s, ledger=8_000 * n * n),
    "nothing was committed": lambda n, s: replace(s, runs=min(s.runs, 30_000)),
}


@pytest.mark.parametrize("what", GROWING)
def test_what_grows_is_found(what: str) -> None:
    series = [GROWING[what](n, sample) for n, sample in enumerate(STEADY)]
    assert any(what in found for found in soak.judge([REST, *series]))
