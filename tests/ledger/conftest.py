"""A ledger in a real file, and a disk under it that can be counted on and broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.testing import ManualClock
from tests.ledger.disk import Disk


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
    opened = SqliteLedger(path, ManualClock())
    yield opened
    await opened.close()
