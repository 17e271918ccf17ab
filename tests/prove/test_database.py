"""The short form of tests/prove/database: a few hosts killed between COMMIT and its answer, on a real server."""

from __future__ import annotations

import sys

import pytest

from tests.postgres import binaries
from tests.prove import killing

pytestmark = pytest.mark.skipif(sys.platform != "linux" or binaries() is None, reason="needs pidfds and PostgreSQL")


@pytest.mark.parametrize("known_by", ["key", "receipt"])
def test_hosts_killed_between_commit_and_its_answer_write_every_row_once(known_by: str) -> None:
    found = killing.run("tests.prove.database", 5, 3, known_by)
    assert found["problems"] == []
    assert (found["kills"], found["effects"]) == (5, found["orders"])
