"""`keep serve`, `keep doctor`, and `keep db backup`, `vacuum` and `prune`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from keepai.doors.control import is_running
from keepai.model.clock import SystemClock

from .conftest import Place, until

Hosts = Callable[..., subprocess.Popen[str]]


def states(place: Place, code: int = 0) -> dict[str, str]:
    """What the doctor says of each thing."""
    return {each["name"]: each["state"] for each in place.json("doctor", code=code)}


# -- serve -----------------------------------------------------------------------------------------


def test_serve_runs_what_is_due_says_so_on_stderr_and_ends_cleanly(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "all")
    served = place.spawn("serve")
    until(lambda: len(place.rows()) == 1 or served.poll() is not None)
    assert "is in use by process" in place.type("db", "vacuum", code=1).stderr
    served.send_signal(signal.SIGTERM)
    out, err = served.communicate(timeout=20)
    assert (served.returncode, out) == (0, "")
    assert "host serves 1 workflow from keep.db" in err
    assert "mutation email-to-sheets/processEmail run_" in err
    assert err.splitlines()[-1].endswith("host ended")


def test_serve_logs_json_lines(place: Place) -> None:
    place.type("deploy", "flow.js", "--grant", "all")
    served = place.spawn("serve", "--json")
    until(lambda: is_running(place.folder / "keep.db") or served.poll() is not None)
    served.send_signal(signal.SIGINT)
    _, err = served.communicate(timeout=20)
    lines = [json.loads(line) for line in err.splitlines()]
    assert {"at", "kind", "text"} <= set(lines[0])
    assert lines[-1]["text"] == "ended"


def test_serve_shows_the_page_and_answers_probes_and_the_api(place: Place) -> None:
    place.type("deploy", "flow.js", "--grant", "all")
    served = place.spawn("serve", "--json", "--page", "--host", "127.0.0.1", "--port", "0", "--probes", "127.0.0.1:0",
                         "--api", "127.0.0.1:0")
    assert served.stderr is not None
    told = ""
    while "has its API" not in told:
        told += served.stderr.readline()
    probes = str(re.findall(r"answers probes at (http://[^/ ]+)", told)[0])
    api = str(re.findall(r"has its API at (http://[^; ]+)", told)[0])
    page = str(re.findall(r"shows its page at (http://[^/ ]+)", told)[0])
    found = {path: httpx2.get(probes + path, timeout=20) for path in ("/healthz", "/readyz", "/metrics", "/")}
    assert [each.status_code for each in found.values()] == [200, 200, 200, 404]
    assert 'keep_workflows{status="active"} 1' in found["/metrics"].text
    assert httpx2.get(page, timeout=20).status_code == 401, "the page wants people to sign in"
    token = place.json("user", "add", "ann")["token"]
    seen = httpx2.get(f"{api}/workflows", timeout=20, headers={"Authorization": f"Bearer {token}"}).json()["result"]
    assert [each["status"] for each in seen] == ["active"]
    served.send_signal(signal.SIGTERM)
    served.communicate(timeout=20)
    assert served.returncode == 0


def test_the_places_of_a_service_are_checked_before_anything_starts(place: Place) -> None:
    assert "such as 127.0.0.1:7790" in place.type("serve", "--probes", "7790", code=2).stderr
    assert "Add --page" in place.type("serve", "--port", "8000", code=2).stderr


# -- doctor ----------------------------------------------------------------------------------------


def test_a_sound_place_is_ok_line_by_line(worked: Place) -> None:
    before = worked.files()
    found = states(worked)
    sound = ("Python", "SQLite", "sandbox", "keep.toml", "ctx.gmail", "ctx.sheets", "ledger", "clock")
    of_machine = {name: found[name] for name in ("disk", "connections")}
    assert found == {**dict.fromkeys(sound, "ok"), "host": "warn", **of_machine}
    assert "ok    ledger" in worked.type("doctor").stdout
    after = worked.files()
    assert {name for name in before if before[name] != after.get(name)} == set()


def test_an_empty_place_has_only_warnings(place: Place) -> None:
    (place.folder / "keep.toml").unlink()
    found = states(place)
    assert (found["keep.toml"], found["ledger"]) == ("warn", "warn")
    assert not (place.folder / "keep.db").exists()


def test_what_is_wrong_fails_with_what_to_do(place: Place) -> None:
    (place.folder / "keep.toml").write_text('[connectors.gmail]\ntype = "local.mial"\n')
    result = place.type("doctor", code=1)
    assert "fail  keep.toml" in result.stdout
    assert "Did you mean 'local.mail'?" in result.stdout
    (place.folder / "keep.toml").write_text('[connectors.gmail]\ntype = "local.mail"\npath = "none"\n')
    assert states(place, code=1)["ctx.gmail"] == "fail"
    assert "[connectors.gmail] in keep.toml" in place.type("doctor", code=1).stdout


def test_a_damaged_ledger_fails(worked: Place) -> None:
    file = worked.folder / "keep.db"
    file.write_bytes(file.read_bytes()[:5000])
    assert states(worked, code=1)["ledger"] == "fail"
    file.write_bytes(b"no database at all" * 100)
    assert states(worked, code=1)["ledger"] == "fail"


def test_a_clock_that_was_set_back_is_a_warning(worked: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: 1_600_000_000_000)
    assert states(worked)["clock"] == "warn"


def test_too_little_space_is_told_before_the_disk_is_full(worked: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    for free, state in ((500 << 20, "warn"), (1 << 20, "fail")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert states(worked, code=1 if state == "fail" else 0)["disk"] == state


# -- db --------------------------------------------------------------------------------------------


def test_a_backup_is_the_ledger_and_can_take_its_place(worked: Place) -> None:
    before = worked.json("inputs", "email-to-sheets")
    made = worked.json("db", "backup", "copy.db")
    assert (made["file"], {each["sound"] for each in made["checks"]}) == ("copy.db", {True})
    assert made["bytes"] == (worked.folder / "copy.db").stat().st_size
    assert (worked.folder / "copy.db").stat().st_mode & 0o777 == 0o600
    assert worked.json("--db", "copy.db", "inputs", "email-to-sheets") == before
    assert worked.json("--db", "copy.db", "db", "check")["sound"]
    worked.type("--db", "copy.db", "dev", "--once")
    assert not list(worked.folder.glob("*.part"))


def test_a_backup_overwrites_nothing(worked: Place) -> None:
    (worked.folder / "copy.db").write_text("mine")
    assert "exists already" in worked.type("db", "backup", "copy.db", code=1).stderr
    assert (worked.folder / "copy.db").read_text() == "mine"
    told = worked.type("db", "backup", "none/copy.db", code=1).stderr
    assert "The backup none/copy.db cannot be written: No such file or directory." in told


def test_a_backup_of_a_broken_ledger_is_thrown_away(worked: Place) -> None:
    from keepai.ledger.sqlite.triggers import statements
    from tests.ledger.rows import raw

    with raw(worked.folder / "keep.db") as connection:
        connection.execute("drop trigger account_final")
        connection.execute("update account set at = 0 where seq = 3")
    assert "account_final" in statements()
    assert "is not sound, so it was thrown away" in worked.type("db", "backup", "copy.db", code=1).stderr
    assert not list(worked.folder.glob("copy.db*"))


def test_a_backup_is_made_beside_a_running_host(worked: Place, hosts: Hosts) -> None:
    hosts()
    worked.type("db", "backup", "copy.db")
    assert worked.json("--db", "copy.db", "db", "check")["sound"]


def test_pruning_and_then_vacuum_makes_the_file_smaller(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (place.folder / "flow.js").read_text()
    (place.folder / "flow.js").write_text(source.replace("from: e.from }", 'from: e.from, x: "y".repeat(99999) }'))
    for number in range(5):
        place.deliver(f"Invoice {number}")
    place.type("deploy", "flow.js", "--grant", "all")
    place.type("dev", "--once")
    assert "keeps everything" in place.type("db", "prune").stdout
    now = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now + 10 * 86_400_000)
    would = place.json("db", "prune", "--days", "5", "--dry-run")
    assert would["bytes"] > 500_000
    assert "Would throw away the content of" in place.type("db", "prune", "--days", "5", "--dry-run").stdout
    done = place.json("db", "prune", "--days", "5")
    assert {**done, "dry_run": True, "before_at": ""} == {**would, "before_at": ""}
    assert "has content left" in place.type("db", "prune", "--days", "5").stdout
    smaller = place.json("db", "vacuum")
    assert smaller["bytes"] < smaller["bytes_before"] - 500_000
    assert place.json("db", "check")["sound"]
    assert len(place.json("outputs", "email-to-sheets")) == 5
    assert Path(smaller["path"]) == Path("keep.db")


def test_a_running_host_prunes_when_it_is_asked(worked: Place, hosts: Hosts) -> None:
    hosts()
    assert worked.json("db", "prune", "--days", "30")["runs"] == 0


# -- a ledger that was put back -----------------------------------------------------------------------


def test_a_ledger_that_was_put_back_is_refused_until_a_person_accepts_it(worked: Place) -> None:
    assert worked.json("db", "accept-older")["was_older"] is False
    worked.type("db", "backup", "old.db")
    worked.deliver("Invoice 9")
    worked.type("dev", "--once")
    (worked.folder / "old.db").replace(worked.folder / "keep.db")
    for left in ("keep.db-wal", "keep.db-shm"):
        (worked.folder / left).unlink(missing_ok=True)
    refused = worked.type("dev", "--once", code=1)
    assert "is older than it was" in refused.stderr
    assert "keep db accept-older" in refused.stderr
    assert worked.json("status", code=4)["workflows"] != []  # looking is allowed
    assert "is the ledger from now on" in worked.type("db", "accept-older").stdout
    worked.type("dev", "--once")
