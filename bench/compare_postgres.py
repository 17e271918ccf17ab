"""`make bench-postgres`: Keep and DBOS on one PostgreSQL do the same work on this machine, turn by turn; one table.

    python bench/compare_postgres.py [--quick] [--only keep] [--part far] [--json FILE] [--folder /a/disk]

The server is started here, with PostgreSQL's own settings: `fsync` and `synchronous_commit` are on, and its data are on
a disk. Every measurement is a process of its own on a database of its own. The CPU of the server is that of all its
processes, as the kernel counts it. A network is imitated by `bench/network.py`, which also counts round trips.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from compare import AT_ONCE, BOTH, Part, disk, latency, measure, options, show, throughput, trial
from session import HERE, NAMES, Session
from table import MANY, Results, Row, pair, ratio, spread
from work import Place

sys.path.append(str(HERE.parent))
from tests.postgres import PASSWORD, Postgres, binaries, server

#: Amounts of work: (full, quick).
ROUNDS = (3, 1)
COUNTED_RUNS = {"one": (64, 24), "many": (640, 64)}
FAR_RUNS = {"one": (100, 16), "many": (3_200, 64)}
SHARED_RUNS = (3_200, 128)  # of all hosts together
IDLE_WORKFLOWS, IDLE_S = (1_000, 20), (20, 4)
HOSTS, IDLE_HOSTS = (1, 2), 3
FAR_MS = 1.0  # that the network adds to a round trip

#: The server is as PostgreSQL comes, but for the connections, of which DBOS may want many.
SETTINGS = {"max_connections": 200}

#: The arrangements of DBOS that are tried, for one run at a time and for many: where, way, connections.
WAYS = {
    "one": ([("postgres", "call"), ("postgres", "start")], [("postgres", "call")]),
    "many": (
        [("postgres", "call"), ("postgres", "call", MANY), ("postgres", "start"), ("postgres", "start", MANY),
         ("postgres", "queue", MANY)],
        [("postgres", "call", MANY)],
    ),
}  # fmt: skip
_EFFECT = struct.Struct("<dI")  # when, and in which process; as bench/keep_side.py writes it


class ServerSession(Session):
    """A session on one server, with a database for each measurement."""

    def __init__(self, postgres: Postgres, **given: Any) -> None:
        super().__init__(postgres.folder, **given)
        self.server, self.as_it_comes = postgres, False
        self.delay_ms = FAR_MS / 2  # in each direction, before what the network needs for itself is known

    def file(self, side: str) -> Place:
        """The address of a new database."""
        return self.server.url(database=self.database(side))

    def database(self, side: str) -> str:
        """A new database."""
        self._files += 1
        name = f"{side}_{self._files}"
        self.server.run(f"create database {name}")
        return name


@contextlib.contextmanager
def network(port: int, delay_ms: float, trace: Path | None = None) -> Iterator[int]:
    """The port of a network before the server, as long as it is needed; then the trace is complete."""
    command = [sys.executable, HERE / "network.py", str(port), str(delay_ms), *([str(trace)] if trace else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


def arrangements(session: Session) -> None:
    """Which arrangement is the fastest for DBOS."""
    trial(session, WAYS, ())


# Side by side


def counts(session: Session) -> None:
    """Round trips, statements and commits of a run, counted between the client and the server."""
    for which in BOTH:
        for side in session.sides:
            session.plan(f"round trips per run, {AT_ONCE[which]} at a time: {NAMES[side]}", _counts, side, which)


def _counts(session: ServerSession, side: str, which: str) -> None:
    trace, how, events = session.folder / "trace", session.how(side, which, way=True), session.of(COUNTED_RUNS[which])
    database = session.database(side)
    with network(session.server.port, 0, trace) as port:
        path = session.server.url(port, database=database)
        got = session.ask(side, "runs", path, at_once=AT_ONCE[which], events=events, **how)
    found = counted(trace, got["from"], got["to"])
    session.keep("runs", which, side, **{f"{what}s_per_run": found.get(what, 0) / got["runs"] for what in
                                         ("trip", "statement", "commit")})


def counted(trace: Path, began: float, ended: float) -> dict[str, int]:
    """What passed the network in a time: how many of each."""
    found: dict[str, int] = {}
    for at, what in (line.split() for line in trace.read_text("ascii").splitlines()):
        if began <= float(at) <= ended:
            found[what] = found.get(what, 0) + 1
    return found


def far(session: Session) -> None:
    """With a network between them and the server."""
    session.plan("what the network adds to a round trip", _added)
    for which in BOTH:
        for side, label in session.turns(f"far from the server, {AT_ONCE[which]} at a time", session.of(ROUNDS)):
            session.plan(label, _far, side, which)


def _added(session: ServerSession) -> None:
    """Once to take off what the network needs for itself, and once to know what it adds then."""
    for _ in range(2):
        with network(session.server.port, session.delay_ms) as port:
            near, there = round_trip_ms(session.server.port), round_trip_ms(port)
        session.keep("round_trip", near_ms=near, far_ms=there, delay_ms=session.delay_ms)
        session.delay_ms -= (there - near - FAR_MS) / 2
    session.delay_ms = session.found["round_trip"]["delay_ms"][-1]


def round_trip_ms(port: int, count: int = 200) -> float:
    """Of the smallest statement, in the middle."""
    took = []
    with psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres", autocommit=True) as asking:
        for _ in range(count):
            began = time.perf_counter()
            asking.execute("select 1")
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def _far(session: ServerSession, side: str, which: str) -> None:
    how, events = session.how(side, which, way=True), session.of(FAR_RUNS[which])
    database = session.database(side)
    with network(session.server.port, session.delay_ms) as port:
        path = session.server.url(port, database=database)
        got = session.ask(side, "runs", path, at_once=AT_ONCE[which], events=events, **how)
    session.keep("far", which, side, runs_per_s=got["runs_per_s"])


# Keep alone: several hosts


def hosts(session: Session) -> None:
    """One host and several on one ledger, with the same work."""
    for turn in range(1, session.of(ROUNDS) + 1):
        for number in HOSTS:
            session.plan(f"{several(number)} on one ledger: Keep, round {turn} of {session.of(ROUNDS)}", _hosts, number)


def _hosts(session: ServerSession, number: int) -> None:
    path, each = session.file("keep"), session.of(SHARED_RUNS) // MANY
    effects = session.folder / f"effects-{number}"
    effects.write_bytes(b"")
    session.ask("keep", "deployed", path, workflows=MANY)
    got = session.ask_several(number, "keep", "host", path, each=each, effects=str(effects), wanted=each * MANY)
    made = list(_EFFECT.iter_unpack(effects.read_bytes()))
    assert len(made) == each * MANY, f"{len(made)} effects for {each * MANY} events"
    times = sorted(at for at, _ in made)
    of_host = [sum(pid == one for _, pid in made) for one in {pid for _, pid in made}]
    session.keep("hosts", number, runs_per_s=(len(made) - 1) / (times[-1] - times[0]),
                 largest_part=max(of_host) / len(made), worked=len(of_host))
    _note_refused(session.found["hosts"][str(number)], got)


def idle(session: Session) -> None:
    """What a server is asked while there is nothing to do."""
    path = session.server.url(database=session.database("keep"))
    workflows = session.of(IDLE_WORKFLOWS)
    session.plan(f"{workflows:,} workflows are deployed", _deployed, path, workflows)
    for number in (1, IDLE_HOSTS):
        session.plan(f"{workflows:,} workflows with nothing to do, {several(number)}", _idle, path, workflows, number)


def _deployed(session: ServerSession, path: str, workflows: int) -> None:
    session.ask("keep", "idle", path, seconds=1, workflows=workflows)


def _idle(session: ServerSession, path: str, workflows: int, number: int) -> None:
    trace, seconds = session.folder / "trace", session.of(IDLE_S)
    with network(session.server.port, 0, trace) as port:
        there = path.replace(f":{session.server.port}/", f":{port}/")
        got = session.ask_several(number, "keep", "idle", there, seconds=seconds, workflows=workflows)
    lived = [each for each in got if "refused" not in each]
    began, ended = max(each["from"] for each in lived), min(each["to"] for each in lived)
    assert began < ended, "the hosts did not live at the same time"
    found = counted(trace, began, ended)
    session.keep("idle", number, statements_per_s=found.get("statement", 0) / (ended - began), workflows=workflows,
                 lived=len(lived), idle_percent=statistics.mean(each["idle_percent"] for each in lived))
    _note_refused(session.found["idle"][str(number)], got)


def _note_refused(found: Results, got: list[Results]) -> None:
    if refused := [each["refused"] for each in got if "refused" in each]:
        found["refused"] = refused


PARTS: tuple[Part, ...] = (disk, throughput, counts, latency, far, hosts, idle, disk)


# The table


def rows(found: Results) -> Iterator[Row]:
    """What only a server has: the network, and several hosts."""
    for which in BOTH:
        words = f"runs/s, {AT_ONCE[which]} at a time, far from the server"
        yield from pair(words, found.get("far", {}).get(which, {}), "runs_per_s", "{:,.1f}")
    alone = found.get("hosts", {}).get("1", {}).get("runs_per_s", [])
    for number, figures in found.get("hosts", {}).items():
        words = f"runs/s, {MANY} workflows, {several(number)} on one ledger{_refused(figures)}"
        note = f"{ratio(figures['runs_per_s'], alone)} one host" if alone and number != "1" else ""
        yield Row(words, spread(figures["runs_per_s"], "{:,.1f}"), "", note)
        if number != "1":
            part = spread([100 * each for each in figures["largest_part"]], "{:.0f}")
            yield Row("  of these by the host that had most, %", part)
    for number, figures in found.get("idle", {}).items():
        words = f"{figures['workflows'][0]:,.0f} workflows with nothing to do, {several(number)}{_refused(figures)}"
        yield Row(f"statements/s, {words}", spread(figures["statements_per_s"], "{:,.1f}"))
        yield Row(f"% of a core each, {words}", spread(figures["idle_percent"], "{:.1f}"))


def several(number: int | str) -> str:
    """So many hosts."""
    return f"{number} host{'' if str(number) == '1' else 's'}"


def _refused(figures: Results) -> str:
    return f" ({len(figures['refused'])} refused)" if "refused" in figures else ""


def words(session: ServerSession) -> Iterator[str]:
    """About the server, and how far it is."""
    [(version,)] = session.server.run("select split_part(version(), ' on ', 1)")
    yield f"{version} with its own settings, fsync and synchronous_commit on; its clients are on the same machine."
    if "round_trip" in session.found:
        near, there = (session.found["round_trip"][name][-1] for name in ("near_ms", "far_ms"))
        yield f"A round trip takes {near:.2f} ms; far from the server {there:.2f} ms, which is {there - near:.2f} more."
    refused = [each["refused"][0] for part in ("hosts", "idle") for each in session.found.get(part, {}).values()
               if "refused" in each]
    if refused:
        yield f"A host was refused: {refused[0]}"


def main() -> None:
    """Measure, show, keep."""
    given = options(__doc__, PARTS)
    if binaries() is None:
        raise SystemExit("There is no PostgreSQL here. `make setup` installs one; KEEP_TEST_POSTGRES names another.")
    place = given.folder or Path(tempfile.gettempdir())
    system = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True, check=True).stdout
    if system.strip() in ("tmpfs", "ramfs"):
        raise SystemExit(f"{place} is in memory, where syncing costs nothing. Name a folder on a disk with --folder.")
    os.environ["PGPASSWORD"] = PASSWORD
    with server(place, SETTINGS) as postgres:
        session = ServerSession(postgres, quick=given.quick, sides=given.sides)
        show(measure(session, arrangements, PARTS, given.part), given, words(session), rows(session.found))


if __name__ == "__main__":
    main()
