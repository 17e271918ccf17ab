"""A ledger that hosts refuse, and one that is lost under a running host: what people read, and what happens."""

from __future__ import annotations

import shutil

import pytest

from .conftest import Place

SOON_S = 20.0  #: for a process to start or end on a busy machine; what is measured is much shorter


@pytest.fixture
def older(worked: Place) -> Place:
    """A place whose ledger was put back from a backup, after one more e-mail was filed."""
    worked.json("db", "backup", "copy.db")
    worked.deliver("Invoice 2")
    worked.type("run-now", "email-to-sheets")
    worked.type("dev", "--once")
    shutil.move(worked.folder / "copy.db", worked.folder / "keep.db")
    return worked


def examined(place: Place) -> tuple[str, bool]:
    """What the doctor says of the ledger, and whether it says that it is refused."""
    [found] = [each for each in place.json("doctor", code=1) if each["name"] == "ledger"]
    return found["state"], "refused" in found["said"]


def remove(place: Place) -> None:
    """The ledger is gone; its lock file stays."""
    for file in place.folder.glob("keep.db*"):
        if file.suffix != ".lock":
            file.unlink()


def test_every_look_at_a_refused_ledger_says_that_it_is_refused(older: Place) -> None:
    said = "keep.db is refused: it is older than it was"
    shown = older.type("status", code=4)
    assert said in shown.stdout
    assert "No host is running" not in shown.stdout
    assert said in older.json("status", code=4)["refused"]
    assert said in older.type("why", "email-to-sheets", code=None).stderr
    assert said in older.type("inputs", "email-to-sheets").stderr
    assert examined(older) == ("fail", True)
    assert said in older.type("dev", "--once", code=1).stderr


def test_an_accepted_older_ledger_files_nothing_twice(older: Place) -> None:
    before = older.rows()
    assert older.json("db", "accept-older")["was_older"]
    assert older.json("status")["refused"] is None
    older.type("run-now", "email-to-sheets")
    older.type("dev", "--once", code=None)
    assert older.rows() == before


def test_a_sound_ledger_is_not_refused(worked: Place) -> None:
    assert worked.json("status")["refused"] is None
    assert "refused" not in worked.type("inputs", "email-to-sheets").stderr


def test_a_vanished_ledger_is_not_replaced_in_silence(worked: Place) -> None:
    before = worked.rows()
    remove(worked)
    for command in (("status",), ("deploy", "flow.js", "--grant", "all"), ("dev", "--once"), ("serve",)):
        assert "a new one is refused" in worked.type(*command, code=1).stderr
    assert examined(worked) == ("fail", True)
    assert not (worked.folder / "keep.db").exists()
    assert worked.rows() == before
    assert worked.json("db", "accept-older")["was_older"]
    worked.type("deploy", "flow.js", "--grant", "all")


@pytest.mark.parametrize("lost", ["ledger", "lock"])
def test_a_served_ledger_that_is_removed_is_noticed_and_stops_the_host(worked: Place, lost: str) -> None:
    served = worked.spawn("serve")
    try:
        assert served.stderr is not None
        assert "host serves" in served.stderr.readline()
        if lost == "ledger":
            remove(worked)
        else:
            (worked.folder / "keep.db.lock").unlink()
        _, err = served.communicate(timeout=SOON_S)
    finally:
        served.kill()
    assert served.returncode == 1
    assert "was removed while a host worked with it" in err
    assert "sends nothing any more" in err


def test_a_served_ledger_that_is_replaced_is_noticed_and_stops_the_host(worked: Place) -> None:
    shutil.copyfile(worked.folder / "keep.db", worked.folder / "copy.db")
    served = worked.spawn("serve")
    try:
        assert served.stderr is not None
        assert "host serves" in served.stderr.readline()
        (worked.folder / "copy.db").replace(worked.folder / "keep.db")
        _, err = served.communicate(timeout=SOON_S)
    finally:
        served.kill()
    assert served.returncode == 1
    assert "was replaced by another file while a host worked with it" in err
