"""What the tests of the command share: a place with a keep.toml, a mailbox and a sheet, and a way to type."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from keepai.doors.cli.main import keep
from keepai.doors.control import is_running

from . import shapes

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "email-to-sheets.js"
COMMAND = (sys.executable, "-m", "keepai.doors.cli.main")
SETTINGS = """\
[connectors.gmail]
type = "local.mail"
path = "mail"
create = true

[connectors.sheets]
type = "local.sheets"
path = "sheets"
create = true
"""


@dataclass
class Place:
    """A folder in which `keep` is typed."""

    folder: Path

    def type(self, *args: str, code: int | None = 0, columns: int | None = None, stdin: str | None = None) -> Result:
        """Type a command in this process; the exit code is what it is expected to be."""
        env = {"COLUMNS": str(columns) if columns else None}
        result = CliRunner().invoke(keep, list(args), env=env, input=stdin, prog_name="keep")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, f"exit {result.exit_code}: {result.stdout}{result.stderr}"
        return result

    def json(self, *args: str, code: int = 0) -> Any:
        """What a command prints for programs; it has the shape that the reference says."""
        printed = json.loads(self.type(*args, "--json", code=code).stdout)
        shapes.check(args, printed)
        return printed

    def spawn(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """Type a command in a process of its own."""
        return subprocess.Popen(
            [*COMMAND, *args], cwd=self.folder, env={**os.environ, "PYTHONUNBUFFERED": "1", **env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def deliver(self, subject: str, sender: str = "Ann <ann@example.com>") -> None:
        """Put an e-mail into the mailbox."""
        new = self.folder / "mail" / "new"
        new.mkdir(parents=True, exist_ok=True)
        for part in ("cur", "tmp"):
            (new.parent / part).mkdir(exist_ok=True)
        number = len(list(new.iterdir())) + 1
        (new / f"{number:04}.mail").write_text(f"From: {sender}\nSubject: {subject}\n\nHello\n", "utf-8")

    def settles(self, seconds: float) -> None:
        """How long after its end a request may still arrive, where no connector says so."""
        (self.folder / "keep.toml").write_text(f"{SETTINGS}\n[policy]\nsettle_s = {seconds}\n", "utf-8")

    def rows(self) -> list[str]:
        """The lines of the sheet."""
        return [line for path in (self.folder / "sheets").glob("*.csv") for line in path.read_text().splitlines()]

    def files(self) -> dict[str, bytes]:
        """Every file here with its bytes; where SQLite keeps its locks is nobody's content."""
        found = [p for p in self.folder.rglob("*") if p.is_file() and not p.name.endswith("-shm")]
        return {p.relative_to(self.folder).as_posix(): p.read_bytes() for p in found}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place with a keep.toml and the example, and nothing deployed."""
    for name in [name for name in os.environ if name.startswith("KEEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "keep.toml").write_text(SETTINGS, "utf-8")
    shutil.copy(EXAMPLE, tmp_path / "flow.js")
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


@pytest.fixture
def worked(place: Place, ledger_of_two: Path) -> Place:
    """A place in which two e-mails came in and were filed."""
    shutil.copytree(ledger_of_two, place.folder, dirs_exist_ok=True)
    place.type("deploy", "flow.js", "--grant", "all")  # mailbox and sheets are others there, and grants know that
    return place


@pytest.fixture(scope="session")
def ledger_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once and copied: it takes a host to make it."""
    made = Place(tmp_path_factory.mktemp("two"))
    (made.folder / "keep.toml").write_text(SETTINGS, "utf-8")
    made.deliver("Invoice 1")
    made.deliver("Lunch?", "Bob <bob@example.com>")
    before = Path.cwd()
    os.chdir(made.folder)
    try:
        made.type("deploy", str(EXAMPLE), "--grant", "all")
        made.type("dev", "--once")
    finally:
        os.chdir(before)
    return made.folder


@pytest.fixture
def blocked(place: Place) -> Place:
    """A place whose workflow may search for mail but was not allowed to write rows."""
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "gmail.search")
    place.type("dev", "--once", code=4)
    return place


@pytest.fixture
def hosts(place: Place) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts hosts as processes of their own, and ends them with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, **env: str) -> subprocess.Popen[str]:
        host = place.spawn(*args, "dev", **env)
        started.append(host)
        until(lambda: is_running(place.folder / "keep.db") or host.poll() is not None)
        return host

    yield start
    for host in started:
        if host.poll() is None:
            host.send_signal(signal.SIGTERM)
        try:
            host.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            host.kill()
            host.communicate()


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for another process."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
