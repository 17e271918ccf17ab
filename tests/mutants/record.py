"""A plugin of pytest that keeps which functions of Keep each test calls: `pytest -p tests.mutants.record`.

Only this process is seen, not the script servers and commands that a test starts.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

FOLDER = "KEEP_MUTANTS_MAP"  # the environment variable that names where to write
_found: dict[str, tuple[float, list[str]]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """From the first fixture to the last."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.add(frame.f_code)

    began = time.monotonic()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        places = {f"{code.co_filename}:{code.co_qualname}" for code in called if "/src/keepai/" in code.co_filename}
        _found[item.nodeid] = time.monotonic() - began, sorted(p.partition("/src/keepai/")[2] for p in places)


def pytest_sessionfinish() -> None:
    """One file for each process."""
    if _found:
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        Path(os.environ[FOLDER], f"{name}.json").write_text(json.dumps(_found))
