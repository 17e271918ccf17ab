"""A test that does not end fails, and the next one begins; tests/conftest.py puts this to use.

Pytest's own faulthandler_timeout comes later and ends the whole process: it is there for what no signal interrupts.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator

import pytest

from tests.prove.base import TooLong, limited

PHASE_S_MAX = 200.0  # for a test, its fixtures' beginning, or their end; ten seconds are many


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Fixtures begin."""
    return (yield from _ends())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """The test itself."""
    return (yield from _ends())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Fixtures end."""
    return (yield from _ends())


def _ends() -> Generator[None, object, object]:
    if threading.current_thread() is not threading.main_thread():
        return (yield)  # signals reach the main thread alone
    try:
        with limited(PHASE_S_MAX):
            return (yield)
    except TooLong as error:
        raise AssertionError(str(error)) from error


def budget_s() -> float:
    """KEEP_BUDGET as seconds: "90", "90s", "10m"."""
    number, unit = re.fullmatch(r"(\d+)([smh]?)", os.environ.get("KEEP_BUDGET", "0")).groups()  # type: ignore[union-attr]
    return int(number) * {"": 1, "s": 1, "m": 60, "h": 3600}[unit]
