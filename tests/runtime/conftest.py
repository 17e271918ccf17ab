"""One runtime for all tests of this folder: that it survives every script is part of what is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.runtime.script_world import FakeHost


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def runtime() -> AsyncIterator[JavaScriptRuntime]:
    made = JavaScriptRuntime(workers_max=2)
    yield made
    await made.close()


@pytest.fixture
def quick_servers() -> None:
    """Here servers start as they do for everybody."""


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()
