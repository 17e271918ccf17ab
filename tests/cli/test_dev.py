"""`keep dev`: a host in the foreground that tells what it does and ends when it is asked to."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable

import pytest

from keepai.doors.control import is_running

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
    assert place.json("status") == {"host": True, "refused": None, "shown": 0, "workflows": []}


# The page


def address(host: subprocess.Popen[str]) -> tuple[str, int, str]:
    """The name, the port and the path of the address that a host prints."""
    assert host.stderr is not None
    for line in host.stderr:
        found = re.search(r"Open http://(\w+\.localhost|127\.0\.0\.1):(\d+)(/\S*)", line)
        if found:
            return found[1], int(found[2]), found[3]
    raise AssertionError("no address was printed")


def test_the_printed_address_opens_the_page_and_an_open_page_does_not_hold_up_the_end(
    worked: Place, hosts: Hosts,
) -> None:
    host = hosts()
    name, port, path = address(host)
    assert host.stderr is not None
    assert "works once" in host.stderr.readline()
    assert "If the browser does not find that address, end this and add --host 127.0.0.1." in host.stderr.readline()
    page, ours = http.client.HTTPConnection("127.0.0.1", port, timeout=10), {"Host": f"{name}:{port}"}
    page.request("GET", path, headers=ours)
    entered = page.getresponse()
    assert (entered.status, b"You are signed in" in entered.read()) == (200, True)
    cookie = {**ours, "Cookie": str(entered.getheader("set-cookie")).partition(";")[0]}
    page.request("GET", "/", headers=cookie)
    assert b"email-to-sheets" in page.getresponse().read()
    page.request("GET", "/live", headers=cookie)
    stream = page.getresponse()
    assert stream.readline() == b"retry: 1000\n"
    host.send_signal(signal.SIGINT)
    _, err = host.communicate(timeout=5)
    assert host.returncode == 0, err
    assert "Traceback" not in err
    page.close()


def test_a_plain_address_can_be_asked_for_and_its_weakness_is_said(place: Place) -> None:
    host = place.spawn("dev", "--port", "0", "--host", "127.0.0.1")
    name, port, path = address(host)
    assert name == "127.0.0.1"
    page = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    page.request("GET", path)
    assert page.getresponse().status == 200
    page.close()
    assert host.stderr is not None
    assert "works once" in host.stderr.readline()
    assert "it can look at this page, but not act" in host.stderr.readline()
    host.send_signal(signal.SIGINT)
    _, err = host.communicate(timeout=20)
    assert "does not find" not in err


def test_a_saved_script_is_the_new_version_a_broken_one_is_not_and_a_new_one_waits(place: Place, hosts: Hosts) -> None:
    place.type("deploy", "flow.js", "--grant", "all")
    host, script = hosts(), place.folder / "flow.js"
    address(host)
    text = script.read_text("utf-8")
    script.write_text(text.replace("ctx.sheets.appendRow({", "ctx.sheets.updateRow({ rowId: 'r1',"), "utf-8")
    until(lambda: place.json("status", code=0)["workflows"][0]["version"] == "2.0")
    script.write_text(text.replace("topics: {", "topics: {{"), "utf-8")
    (place.folder / "other.js").write_text(text.replace('"email-to-sheets"', '"other"'), "utf-8")
    assert host.stderr is not None
    told = ""
    while "other.js" not in told or "goes on" not in told:
        told += host.stderr.readline()
    assert "email-to-sheets 2.0 deployed" in told
    assert "not granted  sheets.updateRow" in told
    assert re.search(r"flow\.js:\d+:\d+ error \w+", told)
    assert "flow.js was saved with errors and not deployed: version 2.0 goes on." in told
    assert "other.js: the workflow other is not deployed yet. Type: keep deploy other.js" in told
    assert [each["version"] for each in place.json("status")["workflows"]] == ["2.0"]


def test_a_saved_script_is_granted_what_keep_toml_says_and_the_terminal_says_so(place: Place, hosts: Hosts) -> None:
    place.type("deploy", "flow.js", "--grant", "all")
    with (place.folder / "keep.toml").open("a", encoding="utf-8") as settings:
        settings.write('[workflows.email-to-sheets.grants]\nsheets.updateRow = "ask"\nsheets.appendRow = "deny"\n')
    host, script = hosts(), place.folder / "flow.js"
    address(host)
    text = script.read_text("utf-8")
    script.write_text(text.replace("ctx.sheets.appendRow({", "ctx.sheets.updateRow({ rowId: 'r1',"), "utf-8")
    assert host.stderr is not None
    told = ""
    while "by hand" not in told:
        told += host.stderr.readline()
    assert "email-to-sheets 2.0 deployed" in told
    assert "  keep.toml    sheets.updateRow: ask" in told
    assert "sheets.appendRow: allow; keep.toml says deny" in told


def test_a_script_that_differs_at_the_start_is_told_and_not_deployed(worked: Place, hosts: Hosts) -> None:
    with (worked.folder / "flow.js").open("a", encoding="utf-8") as script:
        script.write("// older, or newer\n")
    host = hosts()
    assert host.stderr is not None
    lines = [host.stderr.readline() for _ in range(2)]
    assert any("flow.js is not version 1.0 of email-to-sheets, which is active." in line for line in lines)
    assert worked.json("status")["workflows"][0]["version"] == "1.0"


def test_a_port_that_is_taken_is_said(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = place.type("dev", "--port", str(port), code=2)
    assert f"The page cannot listen on 127.0.0.1, port {port}: Address already in use." in result.stderr
    assert "--no-ui" in result.stderr


def test_an_address_that_others_reach_needs_a_password(place: Place) -> None:
    result = place.type("dev", "--host", "0.0.0.0", code=2)
    assert "Set a password in the environment variable KEEP_PASSWORD first" in result.stderr
    assert place.type("dev", "--host", "no such name", code=2).stderr.count("\n") <= 2


def test_without_the_page_nothing_listens(worked: Place) -> None:
    host = worked.spawn("dev", "--no-ui")
    until(lambda: is_running(worked.folder / "keep.db"))
    host.send_signal(signal.SIGINT)
    _, err = host.communicate(timeout=20)
    assert host.returncode == 0
    assert "http" not in err
