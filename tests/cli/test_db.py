"""`keep db check`: a good file, a tampered one, none; it only reads, also beside a host."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import apsw
import pytest

from .conftest import Place


def test_a_good_file_is_said_to_be_good(worked: Place) -> None:
    before = worked.files()
    told = worked.type("db", "check").stdout
    assert told.startswith("keep.db\n")
    names = ["pages", "references", "account", "invariants"]
    for name in names:
        assert f"  {name:<12} ok: " in told
    found = worked.json("db", "check")
    assert (found["sound"], [each["name"] for each in found["checks"]]) == (True, names)
    assert found["checks"][2]["facts"]["entries"] >= 10
    assert worked.files() == before


@pytest.mark.parametrize(("statement", "said"), [
    ("update account set told = replace(told, 'active', 'paused') where seq = 1", "Entry 1 does not fit"),
    ("delete from account where seq = 1", "Entry 1 is missing"),
])
def test_a_tampered_account_is_named_and_fails(worked: Place, statement: str, said: str) -> None:
    connection = apsw.Connection("keep.db")
    connection.execute(f"drop trigger account_final; drop trigger account_stays; {statement}")
    connection.close()
    assert f"  account      BROKEN: {said}" in worked.type("db", "check", code=1).stdout
    found = worked.json("db", "check", code=1)
    assert (found["sound"], [each["sound"] for each in found["checks"]][:3]) == (False, [True, True, False])
    assert found["checks"][2]["facts"]["first_broken"] == 1


def test_without_a_file_it_says_so(place: Place) -> None:
    result = place.type("db", "check", code=1)
    assert "There is no ledger at keep.db yet." in result.stderr
    assert (result.stdout, (place.folder / "keep.db").exists()) == ("", False)


def test_a_damaged_file_is_an_error_and_no_traceback(worked: Place) -> None:
    file = worked.folder / "keep.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + b"\xff" * 40_000 + whole[48_192:])
    result = worked.type("db", "check", code=1)
    assert "damaged" in result.stdout + result.stderr


def test_it_works_beside_a_host(worked: Place, hosts: Callable[..., subprocess.Popen[str]]) -> None:
    host = hosts()
    assert worked.json("db", "check")["sound"] is True
    assert host.poll() is None


def test_a_ledger_is_moved_and_the_old_place_says_where_it_is(worked: Place) -> None:
    would = worked.json("db", "move", "--to", "new.db", "--dry-run")
    assert (would["state"], (worked.folder / "new.db").exists()) == ("would_move", False)
    done = worked.json("db", "move", "--to", "new.db")
    assert (done["state"], done["rows"]) == ("moved", would["rows"])
    assert f"was moved to {worked.folder / 'new.db'}" in worked.type("pause", "email-to-sheets", code=1).stderr
    assert "was moved to" in worked.type("db", "move", "--to", "new.db", code=1).stderr
    assert "FAIL" in worked.type("doctor", code=1).stdout.upper()
    assert worked.json("--db", "new.db", "db", "check")["sound"] is True
    worked.type("--db", "new.db", "pause", "email-to-sheets")


def test_a_moved_ledger_can_be_accepted_at_the_old_place(worked: Place) -> None:
    worked.type("db", "move", "--to", "new.db")
    assert worked.json("db", "accept-older")["was_older"] is True
    worked.type("pause", "email-to-sheets")


def test_a_ledger_is_not_moved_while_a_host_runs(worked: Place, hosts: Callable[..., subprocess.Popen[str]]) -> None:
    hosts()
    assert "is in use by process" in worked.type("db", "move", "--to", "new.db", code=1).stderr
