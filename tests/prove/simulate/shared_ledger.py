"""A ledger that several simulated hosts share, as ledger/postgres is one: places, leases, fencing, late marks.

The protocol is the product's: `lease.py` and the statements of `hosts.sql` run as they are on the simulation's SQLite;
only words that PostgreSQL alone knows are replaced. Written anew is what `place.py` and `store.py` do: a place's own
count of its lease, its heartbeats, the way to the server and back, and taking another place. A transaction is one
moment here: others come before it and after it, never between. How connections break in the midst of a statement, and
what a server does then, the cluster shows, not this.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Protocol

from keepai.ledger import account, queries
from keepai.ledger.base import Share
from keepai.ledger.postgres import lease
from keepai.ledger.sqlite.connection import Statements, Transaction
from keepai.ledger.sqlite.writer import _translated
from keepai.model.clock import Clock, Ids
from keepai.model.errors import LedgerStopped

_TABLES = ("heartbeat", "owner", "nudge", "late_mark")
_NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"

#: Of the statements that only PostgreSQL has, those that SQLite cannot be told in its words.
_SPELLED = {
    "nudge_take": """delete from nudge where workflow_id in (select workflow_id from owner where epoch = :epoch)
        returning workflow_id""",
    "nudge_others": "select stir()",
    "late_mark_take": """delete from late_mark where mutation_id in (
          select m.id from mutation m join owner o on o.workflow_id = m.workflow_id
          where m.status <> 'in_flight' and o.epoch = :epoch)
        returning mutation_id, (select m.workflow_id from mutation m where m.id = late_mark.mutation_id) as workflow_id,
          said, happened, result, outcome""",
    "ledger_hold": "select 1",
}
_OVERRIDES = ("mutation_unclosed", "mutation_close_dead", "host_over", "workflow_here", "never_two_hosts_at_once")


def statements() -> dict[str, str]:
    """Every statement, with those of hosts that share a ledger."""
    every, hosts = queries.load("postgres"), files("keepai.ledger.postgres").joinpath("queries", "hosts.sql")
    names = [*re.findall(r"^-- name: (\w+)$", hosts.read_text("utf-8"), re.MULTILINE), *_OVERRIDES]
    told = {name: every[name].replace(_NOW, "database_ms()") for name in names}
    return {**queries.load(), **told, **_SPELLED}


def tables() -> str:
    """Their tables."""
    schema = files("keepai.ledger.postgres").joinpath("schema.sql").read_text("utf-8").replace(' collate "C"', "")
    return "".join(re.search(rf"^create table {name} \(.*?^\);\n", schema, re.MULTILINE | re.DOTALL)[0]  # type: ignore[index]
                   for name in _TABLES)


class Way:
    """From one host to the server and back."""

    def __init__(self) -> None:
        self.forth_until = self.back_until = 0.0  # what is sent before that waits
        self.resets = 0  # how often all connections were lost

    def open(self) -> None:
        self.forth_until = self.back_until = 0.0


class Sharer(Protocol):
    """What the simulation gives and knows."""

    memory: Any
    loop: Any
    places: dict[str, str]  # of each host that ever had a place → the process that it was

    def reached(self, point: str) -> None:
        """The process may die at this point."""
        ...

    def stir(self) -> None:
        """All hosts look at once."""
        ...


class Lost(LedgerStopped):
    """The place is lost."""


class SimPlace:
    """One host."""

    def __init__(self, ledger: SharedLedger, works: bool) -> None:
        self._of, self.lost = ledger, None
        connection = ledger.world.memory.connection
        read = Statements(connection)
        newest = read.one("id_newest")
        if newest and newest["id"]:
            ledger.ids.go_on_from(newest["id"])
        self.host, self.heard = ledger.ids.new("hst"), ledger.clock.steady_ms()
        with connection:
            row = read.one("host_insert", id=self.host, machine=ledger.machine, pid=1, now=ledger.clock.now_ms())
            assert row is not None
            self.epoch = int(row["epoch"])
            read.one("heartbeat_begin", epoch=self.epoch, boot=ledger.machine, lock=ledger.process, works=int(works),
                     knows=1)
        ledger.world.places[self.host] = ledger.process
        self.tx = Transaction(connection, ledger.ids, self.host, self.epoch)
        self.own: set[str] = set()

    lost: str | None

    def check(self) -> None:
        unheard = self._of.clock.steady_ms() - self.heard
        if self.lost is None and unheard > lease.LEASE_MS - lease.MARGIN_MS:
            self.lose("The ledger has not answered this host.")
        if self.lost is not None:
            raise LedgerStopped(self.lost)

    def lose(self, why: str) -> LedgerStopped:
        if self.lost is None:
            self.lost = why
            self._of.stir()
        return LedgerStopped(self.lost)

    def stands(self) -> bool:
        """Whether the server still has it at this place."""
        return bool(list(self._of.world.memory.connection.execute(
            "select 1 from heartbeat where epoch = ? and lost_at is null", [self.epoch])))

    def commit(self, verb: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the server does: a verb in a transaction, unless this place is lost."""
        connection, tx = self._of.world.memory.connection, self.tx
        connection.execute("begin immediate")
        try:
            if not self.stands():
                raise Lost("This host was not heard for too long.")
            head = account.head(tx)
            tx.now, tx.entry = self._of.clock.now_ms(), head.seq + 1
            tx.draft.moves.clear()
            result = verb(tx, *args, **kwargs)
            for workflow_id in sorted({each for each, _, _ in tx.draft.moves if each} - self.own):
                tx.run("nudge_insert", workflow_id=workflow_id)
                self._of.world.stir()
            account.append(tx, tx.draft, head)
            self._of.world.reached(f"before:{verb.__name__}")
            connection.execute("commit")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("rollback")
            raise _translated(error) from error
        self._of.world.reached(f"after:{verb.__name__}")
        return result

    async def attend(self) -> None:
        """Say again and again that this host lives."""
        while self.lost is None:
            await asyncio.sleep(lease.BEAT_S)
            asked, resets = self._of.clock.steady_ms(), self._of.way.resets
            try:
                await self._of.passed(self, "forth", resets)
                hit = self.tx.hits("heartbeat_beat", epoch=self.epoch, silent_ms=lease.LEASE_MS)
                await self._of.passed(self, "back", resets)
            except LedgerStopped:
                return
            if not hit:
                self.lose("This host was not heard for too long.")
            self.heard = asked
            if self.tx.one("nudge_waits", epoch=self.epoch) is not None:
                self._of.stir()


class SharedLedger:
    """A process's hold on the ledger."""

    accepted, behind, lock_fd = False, None, None

    def __init__(self, world: Sharer, process: str, machine: str, way: Way, clock: Clock, *, works: bool) -> None:
        self.world, self.process, self.machine, self.way, self.clock = world, process, machine, way, clock
        self._works, self._had, self._before = works, set[int](), list[SimPlace]()
        self._stirring, self._context = asyncio.Event(), contextvars.copy_context()
        self.ids = Ids(clock)
        self.reads = Statements(world.memory.connection)
        self._reader = world.memory.connection
        self._take_place()

    def _take_place(self) -> None:
        self.place = SimPlace(self, self._works)
        self._attending = asyncio.ensure_future(self.place.attend())

    @property
    def sharing(self) -> SharedLedger:
        return self

    @property
    def host(self) -> str:
        return self.place.host

    @property
    def epoch(self) -> int:
        return self.place.epoch

    # -- the way -----------------------------------------------------------------------------------

    async def passed(self, place: SimPlace, way: str, resets: int) -> None:
        """A message has gone this way, or the place is lost with its connection."""
        while self.world.loop.time() < getattr(self.way, f"{way}_until"):
            await asyncio.sleep(0.5)
            place.check()
        if self.way.resets != resets:
            raise place.lose("The connection was lost.")

    async def write(self, verb: Callable[..., Any], *args: Any, barrier: bool = False, **kwargs: Any) -> Any:
        place, resets = self.place, self.way.resets
        place.check()
        await self.passed(place, "forth", resets)
        try:
            result = place.commit(verb, args, kwargs)
        except Lost as error:
            raise place.lose(error.message) from None
        await self.passed(place, "back", resets)
        return result

    async def look(self, question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        place, resets = self.place, self.way.resets
        place.check()
        await self.passed(place, "forth", resets)
        answer = question(self.reads, *args, **kwargs)
        await self.passed(place, "back", resets)
        return answer

    async def one(self, query: str, **params: object) -> Any:
        return await self.look(lambda read: read.one(query, **params))

    async def all(self, query: str, **params: object) -> Any:
        return await self.look(lambda read: read.all(query, **params))

    async def barrier(self) -> None:
        self.place.check()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        yield

    async def kept_bytes(self, workflow_id: str) -> int:
        return 0  # there is always room

    # -- sharing it --------------------------------------------------------------------------------

    def check(self) -> None:
        self.place.check()

    def stopped(self) -> None:
        return None

    def lost(self) -> str | None:
        return self.place.lost

    def was(self, epoch: int) -> bool:
        return epoch in self._had

    async def share(self, spare: Collection[str]) -> Share:
        place = self.place
        done: Share = await self.write(lease.share, self._works, list(spare), [])
        place.own = (place.own | done.claimed) - done.given
        return done

    async def own(self) -> set[str]:
        return {str(row["workflow_id"]) for row in await self.all("owner_of", epoch=self.place.epoch)}

    async def stirred(self) -> None:
        try:
            async with asyncio.timeout(lease.SHARE_S):
                await self._stirring.wait()
        except TimeoutError:
            pass
        self._stirring.clear()

    def stir(self) -> None:
        """Somebody has done something; who cannot be reached does not hear of it."""
        if self.world.loop.time() >= self.way.back_until:
            self.world.loop.call_soon(self._stirring.set, context=self._context)

    async def end_host(self, host: str, actor: str, *, dead: bool) -> None:
        await self.write(lease.bury if dead else lease.drain, host, actor)

    async def rejoin(self, under_way: Collection[str]) -> None:
        if self.place.epoch not in self._had:
            self._had.add(self.place.epoch)
            self._before.append(self.place)
        while self.world.loop.time() < max(self.way.forth_until, self.way.back_until):  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(1.0)
        self._take_place()
        for each in list(self._before):
            if await self.write(lease.leave, each.epoch, frozenset(under_way)):
                self._before.remove(each)

    async def close(self, *, keep_lock: bool = False) -> None:
        self._attending.cancel()
