"""Process torture: real hosts on real files are killed, stopped and doubled; a real HTTP service is the judge.

A seed is one ledger: some dozens of lives that end by SIGKILL, one after the other on the same file, then one that is
left alone until all is done. What the service took down must then be exactly what was wanted, once each, and what the
ledger says. `python -m tests.prove.torture --seconds 60 --seed 1` tortures in this process, which must have one thread
only, because it forks; `run` starts such a process. A ledger that broke a promise is kept, and its folder printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NoReturn

import apsw

from keepai.runtime.javascript import linux
from tests.crashes.invariants import violations
from tests.prove import torture_host, torture_service
from tests.prove.base import Result, rounds
from tests.prove.torture_host import REFUSED, UNDONE, Life, World

ROOT = Path(__file__).parents[2]
LIVES = (40, 90)
ORDERS_MAX = 24
BEHIND_MAX = 12  # effects that are still to come
READY_S_MAX = 30.0
QUIET_S_MAX = 60.0

#: How a life is ended → how often.
ENDS = {"delay": 7, "ready": 4, "call": 8, "point": 8, "stop": 3, "script": 3, "two": 1, "close": 1}

#: Everything that a host commits in this world, and its calls: what comes in every life, and what needs some luck.
_OFTEN = (
    "begin", "carry_on", "commit_producer", "prepare", "prepare_and_send", "advance", "send", "call", "apply",
    "commit_consumer", "begin_item", "end_item", "commit_routine", "adopt", "doubt", "still_doubt", "confirm_applied",
    "stop",
)
_SELDOM = (
    "close_dead", "refuse", "confirm_absent", "happened", "did_not_happen", "retry_run", "grant_all", "deploy",
    "nothing",
)
POINTS = [f"{side}:{verb}" for verb in 3 * _OFTEN + _SELDOM for side in ("before", "after")]

#: Rules of `violations` that hold for producers and consumers alone → what holds with routines, too.
WIDER = {
    "an applied mutation whose lineage was sent once more": """
        select m.id, later.id from mutation m join mutation later on later.workflow_id = m.workflow_id
          and later.mutation_key = m.mutation_key and later.seq > m.seq where m.status <> 'failed'""",
    "an event or input of a run that did not commit": """
        select x.id, r.status from (select id, created_by from event union all
          select id, created_by from input where source <> 'workflow') x
        left join run r on r.id = x.created_by where r.status is not 'committed'""",
}


# Processes


@dataclass
class Process:
    """A host that was forked here; what it says comes through a pipe."""

    pid: int
    status: int
    ended: int | None = None  # its exit code, negative for a signal
    said: str = ""

    @classmethod
    def start(cls, be: Callable[[int], NoReturn]) -> Process:
        """Fork it: there, `be` is called with the pipe to say things on."""
        hear, say = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(hear)
            be(say)
        os.close(say)
        return cls(pid, hear)

    def wait_for(self, word: str, seconds: float) -> bool:
        """Wait until it says a word; False if it ends before, or does not say it in time."""
        until = time.monotonic() + seconds
        while word not in self.said:
            left = max(0.0, until - time.monotonic())
            if not select.select([self.status], [], [], left)[0]:
                return False
            heard = os.read(self.status, 4096).decode()
            if not heard:
                return False
            self.said += heard
        return True

    def over(self, seconds: float = 0) -> bool:
        """Whether it ends within a time."""
        pidfd = os.pidfd_open(self.pid) if self.ended is None else None
        if pidfd is None:
            return True
        try:
            if not select.select([pidfd], [], [], seconds)[0]:
                return False
        finally:
            os.close(pidfd)
        self.ended = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return True

    def signal(self, number: int) -> None:
        """Send a signal; it cannot hit another process, since only `over` lets go of the id."""
        if self.ended is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """SIGKILL, unless it is over; its exit code."""
        self.signal(signal.SIGKILL)
        assert self.over(30), f"process {self.pid} outlives SIGKILL"
        self.wait_for("\0", 0)
        with contextlib.suppress(OSError):
            os.close(self.status)
        assert self.ended is not None
        return self.ended

    @property
    def died_at(self) -> str | None:
        """The named point at which it killed itself."""
        return self.said.rpartition("died ")[2].strip() if "died " in self.said else None

    def server(self) -> int | None:
        """The process id of its newest script server."""
        self.wait_for("\0", 0)  # hear what there is to hear
        found = [line.split()[1] for line in self.said.splitlines() if line.startswith("server ")]
        return int(found[-1]) if found else None


def parent_of(pid: int) -> int | None:
    """Whose child a process is."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def kill_child(pid: int, parent: int) -> bool:
    """SIGKILL for a process that is surely the child of `parent`."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if parent_of(pid) != parent:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)


def children_of(pid: int) -> list[int]:
    """The children of a process, oldest first."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def fork(what: Any, *args: Any) -> int:
    """A process that does one thing and never comes back here."""
    pid = os.fork()
    if pid == 0:
        try:
            linux.die_with_parent()
            what(*args)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    return pid


# One ledger


@dataclass
class Torture:
    """One seed: a ledger, its service, and what is done to its hosts."""

    seed: int
    nursery: tuple[Path, int]  # its address, its process
    until: float  # the moment from which on no further life is begun
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="keep-torture-")))
    kills: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)  # at files that hosts left, and how often a call was open
    points: set[str] = field(default_factory=set)  # at which a host died
    found: list[str] = field(default_factory=list)
    orders: int = 0
    lives: int = 0
    effects: int = 0  # before the quiet life

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        listening = torture_service.listen()
        self.world = World(
            self.folder, listening.getsockname()[1], apart=self.chance.random() < 0.5,
            blind=self.chance.random() < 0.5, call_s=self.chance.choice([0.15, 0.3, 0.6]),
            crashes_max=self.chance.choice([2, 3, 1000]),
        )
        self.service = fork(torture_service.serve, listening, self.folder, self.seed)
        listening.close()

    def run(self) -> None:
        """Lives that are ended, then one that is not; then the judge."""
        try:
            for _ in range(self.chance.randint(*LIVES)):
                if time.monotonic() > self.until or self.found:
                    break
                self._more_orders()
                getattr(self, f"_{self.chance.choices(list(ENDS), list(ENDS.values()))[0]}")()
                self.found += doubled(self._tell("/log", None))
                if self.chance.random() < 0.3:
                    self._check_file()
            self.effects = len(self._tell("/log", None))
            self._quiet()
        finally:
            os.kill(self.service, signal.SIGKILL)
            os.waitpid(self.service, 0)
            if not self.found or os.environ.get(torture_host.PLANT):
                shutil.rmtree(self.folder)

    # -- lives -------------------------------------------------------------------------------------

    def _start(self, point: str = "", orders: int | None = None) -> Process:
        self.lives += 1
        return Process.start(partial(torture_host.be, self.world, Life(self.lives, point, orders), self.nursery[0]))

    def _end(self, host: Process, how: str, *also: int) -> None:
        """Kill a host; one that has ended by itself must have had a reason."""
        code = host.kill()
        if code == -signal.SIGKILL:
            self.kills[how if host.died_at is None else "point reached"] += 1
            self.points |= {host.died_at} if host.died_at else set()
        elif code not in also:
            self.found.append(f"life {self.lives} ({how}) ended by itself with {code}: {self._last_words()}")

    def _wait(self, mean_s: float) -> None:
        time.sleep(min(self.chance.expovariate(1 / mean_s), 3.0))

    def _until_ready(self, host: Process) -> None:
        if not host.wait_for("ready", READY_S_MAX) and not host.over():
            self.found.append(f"life {self.lives} was not ready within {READY_S_MAX:g} s")

    def _delay(self) -> None:
        """Soon after its start, often before it is ready: this hits recovery."""
        host = self._start()
        self._wait(self.chance.choice([0.003, 0.02, 0.06, 0.15]))
        self._end(host, "delay")

    def _ready_then(self, mean_s: float) -> Process:
        host = self._start()
        self._until_ready(host)
        self._wait(mean_s)
        return host

    def _ready(self) -> None:
        """In the middle of its work."""
        self._end(self._ready_then(self.chance.choice([0.01, 0.05, 0.1, 0.25])), "ready")

    def _call(self) -> None:
        """While a call is under way, or just after."""
        host = self._start()
        host.wait_for("calls", 1.0)
        self._wait(self.chance.choice([0.001, 0.01, 0.03]))
        self._end(host, "call")

    def _point(self) -> None:
        """At a named point if it comes there, or at one that is counted out."""
        named = self.chance.random() < 0.4
        point = f"{self.chance.choice(POINTS)}:{self.chance.choice([1, 1, 1, 2])}"
        host = self._start(point if named else f"*:{1 + int(self.chance.expovariate(1 / 20))}")
        host.over(self.chance.choice([0.4, 0.6]))
        self._end(host, "point")

    def _stop(self) -> None:
        """Frozen, for less or more than a call may take; then killed as it is, or a while after it went on."""
        host = self._ready_then(0.06)
        if self.chance.random() < 0.6:
            host.wait_for("calls", 0.5)
            self._wait(0.003)
        host.signal(signal.SIGSTOP)
        time.sleep(self.chance.choice([0.03, 0.1, 0.4, 0.8]))
        if self.chance.random() < 0.7:
            host.signal(signal.SIGCONT)
            self._wait(0.2)
        self._end(host, "stop")

    def _script(self) -> None:
        """Script workers and their fork server first, the host after them."""
        host = self._ready_then(0.02)
        for _ in range(self.chance.randint(1, 4)):
            self._wait(0.03)
            server = host.server()
            if server is None:
                continue
            if self.chance.random() < 0.3:
                self.kills["script server"] += kill_child(server, self.nursery[1])
            elif workers := children_of(server):
                self.kills["script worker"] += kill_child(self.chance.choice(workers), server)
        self._wait(0.1)
        self._end(host, "script")

    def _two(self) -> None:
        """Two hosts at once: exactly one of them may have the file."""
        hosts = [self._start(), self._start()]
        until = time.monotonic() + READY_S_MAX
        while time.monotonic() < until and not any(host.over(0.01) for host in hosts):
            if all(host.wait_for("ready", 0) for host in hosts):
                self.found.append("two hosts have the same ledger")
                break
        self._wait(0.05)
        for host in hosts:
            self._end(host, "two", REFUSED)
        if [host.ended for host in hosts].count(REFUSED) != 1:
            self.found.append(f"of two hosts at once, these ended as {[host.ended for host in hosts]}")

    def _close(self) -> None:
        """Told to end, and perhaps killed while it does."""
        host = self._start(self.chance.choice(["", "before:end_host:1", "after:end_host:1"]))
        self._until_ready(host)
        self._wait(0.05)
        host.signal(signal.SIGTERM)
        host.over(self.chance.choice([0, 0.02, 0.1, 1.0]))
        self._end(host, "close", 0)

    def _last_words(self) -> str:
        log = self.folder / "host.log"
        return log.read_text()[-600:].strip() if log.exists() else "it said nothing"

    # -- judging -----------------------------------------------------------------------------------

    def _quiet(self) -> None:
        self._tell("/calm")
        host = self._start(orders=self.orders)
        if not host.over(QUIET_S_MAX):
            host.signal(signal.SIGTERM)
            host.over(30)
        code = host.kill()
        if code not in (0, UNDONE):
            self.found.append(f"the quiet life ended with {code}: {self._last_words()}")
        time.sleep(torture_service.SETTLE_S)
        self._check_file()
        self.found += judge(self.world.path, self._tell("/log", None), self.orders)

    def _check_file(self) -> None:
        """Look at a copy, so that the next host finds the file as the last one left it."""
        if not self.world.path.exists():
            return
        copy = self.folder / "copy"
        copy.mkdir()
        for suffix in ("", "-wal"):
            file = self.folder / f"keep.db{suffix}"
            if file.exists():
                shutil.copyfile(file, copy / file.name)
        self.found += [f"after life {self.lives}: {what}" for what in broken(copy / "keep.db")]
        self.looks["in flight"] += in_flight(copy / "keep.db")
        self.looks["all"] += 1
        shutil.rmtree(copy)

    def _more_orders(self) -> None:
        """Always some work, never much."""
        more = self.chance.choice([0, 0, 1, 1, 2])
        if more and self.orders < ORDERS_MAX and 3 * self.orders - len(self._tell("/log", None)) < BEHIND_MAX:
            self.orders = self._tell("/orders", {"more": more})

    def _tell(self, path: str, body: object = 0) -> Any:
        return tell(self.world.port, path, body)


def tell(port: int, path: str, body: object = 0) -> Any:
    """What the service answers the judge."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def broken(path: Path) -> list[str]:
    """The rules that a ledger file breaks."""
    if not _has(path, "host"):
        return []  # it was killed while it made the tables: each migration is whole, and there are no rows yet
    found = [what for what in violations(path) if not what.startswith(tuple(WIDER))]
    return found + [f"{rule}: {row}" for rule, statement in WIDER.items() for row in _rows(path, statement)]


def in_flight(path: Path) -> bool:
    """Whether the host that left this file had a call under way."""
    return _has(path, "mutation where status = 'in_flight'")


def _has(path: Path, where: str) -> bool:
    table = where.split()[0]
    known = _rows(path, f"select 1 from sqlite_schema where name = '{table}'")
    return bool(known and _rows(path, f"select 1 from {where} limit 1"))


def _rows(path: Path, statement: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(statement))
    finally:
        connection.close()


def judge(path: Path, effects: list[dict[str, Any]], orders: int) -> list[str]:
    """What the service took down against what was wanted and what the ledger says; empty if all is well."""
    connection = apsw.Connection(str(path))
    try:
        return [*_effects(connection, effects, orders), *_ledger(connection, effects, orders)]
    finally:
        connection.close()


def _effects(connection: apsw.Connection, effects: list[dict[str, Any]], orders: int) -> list[str]:
    """Exactly one of each; nothing may be missing unless a question about it stands open."""
    asked = "select params from mutation where status in ('needs_reconcile', 'indeterminate')"
    open_ = {json.loads(params)["order"] for (params,) in connection.execute(asked)}
    done = {_what(effect) for effect in effects}
    wanted = [(f"o{n}", what) for n in range(orders) for what in ("row by consumer", "row by routine", "mail")]
    found = doubled(effects)
    found += [f"{what} of {order} was not wanted" for order, what in done if (order, what) not in wanted]
    return found + [f"{w} of {o} is lost" for o, w in wanted if (o, w) not in done and o not in open_]


def doubled(effects: list[dict[str, Any]]) -> list[str]:
    """What happened more than once; this must be empty at any time."""
    done = Counter(_what(effect) for effect in effects)
    return [f"{what} of {order} happened {times} times" for (order, what), times in done.items() if times > 1]


def _what(effect: dict[str, Any]) -> tuple[str, str]:
    body = effect["body"]
    return body["order"], f"row by {body['by']}" if effect["kind"] == "rows" else "mail"


def _ledger(connection: apsw.Connection, effects: list[dict[str, Any]], orders: int) -> list[str]:
    """What the ledger says has happened is what happened, and everything is done."""
    applied = "select idempotency_key, result from mutation where status = 'applied'"
    told = Counter((key, json.loads(result)["id"]) for key, result in connection.execute(applied))
    real = Counter((effect["key"], effect["result"]["id"]) for effect in effects)
    found = [f"the ledger says {entry}, the service does not" for entry in told - real]
    found += [f"the service says {entry}, the ledger does not" for entry in real - told]
    rows = {e["body"]["order"]: e["result"]["id"] for e in effects if e["body"].get("by") == "routine"}
    mails = [e["body"] for e in effects if e["kind"] == "mails"]
    found += [f"the mail of {m['order']} names {m['row']}" for m in mails if rows.get(m["order"]) != m["row"]]
    counts = {
        "orders that were seen": "event where topic = 'order.seen' and status = 'consumed'",
        "rows that were told of": "event where topic = 'row.added'",
        "items that are done": "item where status = 'done'",
    }
    for what, where in counts.items():
        ((count,),) = connection.execute(f"select count(*) from {where}")
        if count != orders:
            found.append(f"{what}: {count} of {orders}; open: {_open(connection)}")
    return found


def _open(connection: apsw.Connection) -> list[Any]:
    runs = "select handler, phase, status, reason, error from run where status in ('active', 'paused', 'failed')"
    return list(connection.execute(runs))


# The suite


LEDGER_S_MAX = 600.0  # for one ledger, beyond the time that it was given


def run(seconds: float, first_seed: int, only: str | None, *, enough: int = 3, plant: str = "") -> Result:
    """Torture in a process of its own; `plant` builds a fault into the hosts."""
    command = [sys.executable, "-m", "tests.prove.torture", "--seconds", str(seconds), "--seed", str(first_seed)]
    command += ["--enough", str(enough)]
    command += ["--only", only] if only is not None else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), torture_host.PLANT: plant}
    limit = LEDGER_S_MAX + (0 if only else seconds)
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True,
                              timeout=limit)
    except subprocess.TimeoutExpired:
        result = Result("torture", "kills")
        result.broke(only or first_seed, f"it did not end within {limit:g} s")
        return result
    told = json.loads(done.stdout.splitlines()[-1])
    result = Result("torture", "kills", told["tried"], seconds=told["seconds"], note=told["note"])
    for seed, what in told["violations"]:
        result.broke(seed, what)
    return result


def torture(seconds: float, first_seed: int, only: str | None, enough: int) -> dict[str, Any]:
    """Ledger after ledger, until the time is up or enough of them broke a promise."""
    began, kills, looks, points, ledgers = time.monotonic(), Counter[str](), Counter[str](), set[str](), 0
    found: list[tuple[str, str]] = []
    with nursery() as nurse:
        for seed in rounds(seconds, first_seed, only):
            one = Torture(seed, nurse, float("inf") if only else began + seconds)
            one.run()
            kills, looks, points, ledgers = kills + one.kills, looks + one.looks, points | one.points, ledgers + 1
            found += [(str(seed), what) for what in dict.fromkeys(one.found)]
            _say(one, kills, time.monotonic() - began)
            if len({seed for seed, _ in found}) >= enough:
                break
    print(f"points: {' '.join(sorted(points))}", file=sys.stderr)
    note = f"{ledgers} ledgers, {len(points)} points, a call open at {looks['in flight']} of {looks['all']} looks; "
    note += ", ".join(f"{how} {n}" for how, n in kills.most_common())
    return {"tried": kills.total(), "violations": found, "seconds": time.monotonic() - began, "note": note}


def _say(one: Torture, kills: Counter[str], seconds: float) -> None:
    print(
        f"seed {one.seed}: {one.kills.total()} kills, {one.effects} effects of {3 * one.orders}; "
        f"{kills.total()} kills in {seconds:.0f} s", file=sys.stderr, flush=True,
    )
    for what in dict.fromkeys(one.found):
        print(f"  {what} (kept: {one.folder})", file=sys.stderr, flush=True)


@contextlib.contextmanager
def nursery() -> Any:
    """A process that forks script servers: its address and its id."""
    folder = Path(tempfile.mkdtemp(prefix="keep-nursery-"))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(str(folder / "socket"))
    sock.listen(64)
    pid = fork(torture_host.nurse, sock)
    sock.close()
    try:
        yield folder / "socket", pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        shutil.rmtree(folder)


def main() -> None:
    """Torture here, and say on the last line what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--enough", type=int, default=3)
    given = parser.parse_args()
    print(json.dumps(torture(given.seconds, given.seed, given.only, given.enough)))


if __name__ == "__main__":
    main()
