"""A ledger in a real file, and a disk under it that can be counted on and broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from keepai.ledger.base import Ledger
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.testing import ManualClock
from tests.ledger.disk import Disk
from tests.ledger.stores import STORES, Store, new_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keep.db"


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteLedger]:
    """One in a file, for tests that are about files."""
    opened = SqliteLedger(path, ManualClock())
    yield opened
    await opened.close()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store: each test of the contract runs on every one."""
    return new_store(request.param, tmp_path)


@pytest.fixture
async def any_ledger(store: Store) -> AsyncIterator[Ledger]:
    """A ledger in it."""
    opened = store.open(ManualClock())
    yield opened
    await opened.close()
