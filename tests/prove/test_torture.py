"""The short form of the process torture, and the proof that it finds what it is there for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from tests.prove import torture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are held by pidfd")


def test_hosts_that_are_killed_again_and_again_lose_nothing_and_do_nothing_twice() -> None:
    result = torture.run(4, 1, None)
    assert result.violations == []
    assert result.tried >= 5, result.note


def test_a_recovery_that_takes_what_was_in_flight_for_failed_is_found() -> None:
    result = torture.run(60, 1, None, enough=1, plant="resend")
    assert any(" times" in violation.what for violation in result.violations), result
    assert result.tried <= 200, "it was found by chance alone"


def effect(number: int, kind: str, **body: object) -> dict[str, Any]:
    return {"kind": kind, "key": f"k{number}", "body": {"order": "o0", **body}, "result": {"id": f"{kind}-{number}"}}


EFFECTS = [effect(1, "rows", by="consumer"), effect(2, "rows", by="routine"), effect(3, "mails", row="rows-2")]


@pytest.mark.parametrize(("at", "said"), [(0, "row by consumer"), (1, "row by routine"), (2, "mail")])
def test_the_judge_misses_what_did_not_happen_and_sees_what_happened_twice(tmp_path: Path, at: int, said: str) -> None:
    SqliteLedger(tmp_path / "keep.db")._connection.close()
    assert torture.doubled(EFFECTS) == []
    assert torture.doubled([*EFFECTS, EFFECTS[at]]) == [f"{said} of o0 happened 2 times"]
    assert f"{said} of o0 is lost" in torture.judge(tmp_path / "keep.db", EFFECTS[:at] + EFFECTS[at + 1 :], 1)


def test_the_judge_compares_the_ledger_with_the_service(tmp_path: Path) -> None:
    SqliteLedger(tmp_path / "keep.db")._connection.close()
    found = torture.judge(tmp_path / "keep.db", EFFECTS, 1)
    assert "the service says ('k3', 'mails-3'), the ledger does not" in found
    assert "items that are done: 0 of 1; open: []" in found
