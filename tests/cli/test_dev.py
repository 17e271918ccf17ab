"""`keep dev`: a host in the foreground that tells what it does and ends when it is asked to."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from .conftest import Place, until

Hosts = Callable[..., subprocess.Popen[str]]


def test_once_runs_what_is_due_and_tells_it(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "all")
    result = place.type("dev", "--once")
    assert "email-to-sheets/pollEmail  committed" in result.stdout
    assert "applied sheets.appendRow: Add row for Ann <ann@example.com>" in result.stdout
    assert "Keep runs 1 workflow from keep.db; connectors: gmail, sheets." in result.stderr
    assert place.type("dev", "--once").stdout == ""


def test_once_as_json_is_a_stream_of_lines(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "all")
    told = [json.loads(line) for line in place.type("dev", "--once", "--json").stdout.splitlines()]
    assert {"mutation", "run"} == {each["kind"] for each in told}
    assert all(each["at"].endswith("Z") and each["workflow"] == "email-to-sheets" for each in told)


def test_once_ends_with_four_if_a_person_must_act(place: Place) -> None:
    place.type("deploy", "flow.js")
    result = place.type("dev", "--once", code=4)
    assert "type: keep grant email-to-sheets gmail.search" in result.stdout


def test_a_broken_script_is_told_with_its_line(place: Place) -> None:
    text = (place.folder / "flow.js").read_text().replace("return { cursor:", "null.x; return { cursor:")
    (place.folder / "flow.js").write_text(text)
    place.type("deploy", "flow.js", "--grant", "all")
    assert "failed:logic" in place.type("dev", "--once", code=4).stdout
    assert "at line" in place.type("status", code=4).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_host_in_peace(worked: Place, hosts: Hosts, number: signal.Signals) -> None:
    host = hosts()
    host.send_signal(number)
    out, err = host.communicate(timeout=20)
    assert host.returncode == 0, out + err
    assert "Ended." in err
    assert "Traceback" not in err
    assert not (worked.folder / "keep.db.sock").exists()


def test_a_killed_host_is_taken_over_and_told(place: Place, hosts: Hosts) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "all")
    host = hosts(KEEP_CRASH_AT="after:call")
    until(lambda: host.poll() is not None)
    assert host.returncode == -signal.SIGKILL
    assert (place.folder / "keep.db.sock").exists()
    assert place.json("status")["host"] is False
    assert "being sent: Add row for Ann" in place.type("inputs", "email-to-sheets").stdout
    result = place.type("dev", "--once")
    assert "applied sheets.appendRow" in result.stdout
    assert len(place.rows()) == 1
    assert not (place.folder / "keep.db.sock").exists()


def test_a_host_without_any_ledger_makes_one_and_waits(place: Place, hosts: Hosts) -> None:
    host = hosts()
    assert host.poll() is None
    assert place.json("status") == {"host": True, "shown": 0, "workflows": []}
