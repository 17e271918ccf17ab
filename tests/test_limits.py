"""A test that hangs, spins or leaves something behind that will not end fails, and the next one is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
from tests import limits
from tests.limits import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown
limits.PHASE_S_MAX = 1.0
"""
TESTS = """
import asyncio, time
import pytest

def test_waits():
    time.sleep(3600)

async def test_hangs():
    await asyncio.Event().wait()

async def test_spins():
    while True:
        await asyncio.sleep(0)

async def test_leaves_a_stubborn_task():
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
    task = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)

@pytest.fixture
def endless():
    time.sleep(3600)

def test_waits_for_a_fixture(endless):
    pass

async def test_ends():
    await asyncio.sleep(0)
"""


def test_a_test_without_an_end_fails_and_the_next_one_is_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_endless.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
        check=False,
    )
    told = [line.partition(" - ")[0].replace("test_endless.py::", "") for line in done.stdout.splitlines()
            if " test_endless.py::" in line]
    ended = {name for word, _, name in (line.partition(" ") for line in told) if word in ("FAILED", "ERROR")}
    assert ended == {
        "test_waits", "test_hangs", "test_spins", "test_leaves_a_stubborn_task", "test_waits_for_a_fixture",
    }, done.stdout
    assert "PASSED test_ends" in told
    assert "it did not end within 1 s" in done.stdout
