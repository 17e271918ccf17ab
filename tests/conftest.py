"""What all tests share: a time limit, and hosts whose script servers start quickly."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from keepai.runtime.javascript import forks
from tests.limits import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown  # noqa: F401
from tests.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery | None]:
    """One for the session; without pidfds each host starts its own."""
    made = Nursery() if sys.platform == "linux" else None
    yield made
    if made is not None:
        made.close()


@pytest.fixture(autouse=True)
def quick_servers(nursery: Nursery | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of this process get their script servers from the nursery."""
    if nursery is not None:
        monkeypatch.setattr(forks, "_spawn", nursery.spawn)
