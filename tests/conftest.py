"""What all tests share: a time limit, a story, hosts whose script servers start quickly, and KEEP_SPECULATE.

With the environment variable `KEEP_SPECULATE=off` every host in the tests' own process has the policy `speculate` off.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

from keepai.runtime.javascript import fork_client
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.harness import SPECULATE, Story
from tests.ledger.stores import forgotten
from tests.limits import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown  # noqa: F401
from tests.nursery import Nursery

settings.register_profile("keep", deadline=None)  # a busy machine is no fault
settings.load_profile("keep")


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
        monkeypatch.setattr(fork_client, "_spawn", nursery.spawn)


@pytest.fixture(autouse=True)
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of this process foresee nothing, if so asked."""
    if not SPECULATE:
        off = partial(JavaScriptRuntime, speculate=False)
        monkeypatch.setattr("keepai.app.JavaScriptRuntime", lambda *, workers_max, speculate: off(workers_max))


@pytest.fixture(autouse=True)
def databases_of_the_test() -> Iterator[None]:
    """What databases a test makes are dropped when it has ended."""
    with forgotten():
        yield


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    """A host on a ledger in `tmp_path`."""
    async with Story(tmp_path) as begun:
        yield begun


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of what is foreseen has nothing to say where nothing is."""
    for item in items:
        if not SPECULATE and item.get_closest_marker("speculates"):
            item.add_marker(pytest.mark.skip(reason="KEEP_SPECULATE=off"))
