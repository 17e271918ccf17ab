"""What all tests share: a time limit, files in memory, a story, script servers that start quickly, and two variables.

With the environment variable `KEEP_SPECULATE=off` every host in the tests' own process has the policy `speculate` off.
With `KEEP_TEST_LEDGER=postgres` the ledgers of stories are in PostgreSQL; without it only what is marked `both_stores`
runs there too. What is marked `sqlite` is skipped there, with its reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

from keepai.runtime.javascript import fork_client
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.folders import memory_folder
from tests.harness import SPECULATE, Story
from tests.ledger.stores import LEDGER, STORES, chosen
from tests.limits import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown  # noqa: F401
from tests.nursery import Nursery

if (memory := memory_folder()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))  # where pytest makes what `tmp_path` gives

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
def store_of_stories(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where the ledgers of the test are."""
    with chosen(getattr(request, "param", LEDGER)):
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked so and is not slow runs on both stores, if none was asked for."""
    marked = metafunc.definition.get_closest_marker
    if STORES[0] == LEDGER and marked("both_stores") and not marked("slow"):
        metafunc.parametrize("store_of_stories", STORES, indirect=True)


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    """A host on a ledger in `tmp_path`."""
    async with Story(tmp_path) as begun:
        yield begun


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test says nothing of what is foreseen where nothing is, nor of a file where there is none."""
    for item in items:
        if not SPECULATE and item.get_closest_marker("speculates"):
            item.add_marker(pytest.mark.skip(reason="KEEP_SPECULATE=off"))
        of_file = item.get_closest_marker("sqlite")
        if of_file and STORES[0] != LEDGER:
            item.add_marker(pytest.mark.skip(reason=f"about SQLite alone: {of_file.args[0]}"))
