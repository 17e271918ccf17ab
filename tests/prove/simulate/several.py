"""A schedule with several hosts on one ledger: they die, freeze beyond their lease, are cut off, and have clocks of
their own; the rest is as in schedule.py.

What it proves: the engine, `lease.py` and its statements keep every promise in any order in which hosts, calls and
messages can meet, as far as seeds reach; and what rests on "the lease is over" as a proof is found out. What it does
not: `place.py`, PostgreSQL and its connections, which the cluster breaks; and a ledger that loses commits.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from keepai import Keep
from keepai import app as application
from keepai.engine import host
from keepai.ledger.invariants import check_rules
from keepai.ledger.postgres import lease
from keepai.ledger.sqlite import connection as opening
from keepai.model import crash_points
from keepai.model.errors import KeepError, LedgerStopped
from keepai.testing import Crashed
from tests.prove.simulate import bugs, schedule
from tests.prove.simulate.loop import HOST, SimLoop
from tests.prove.simulate.memory import Memory, Patch, replaced
from tests.prove.simulate.outside import Manners, Outside
from tests.prove.simulate.people import HostGone
from tests.prove.simulate.schedule import HOUR, POLICY, SimClock, Weather, World
from tests.prove.simulate.scripts import Stub
from tests.prove.simulate.shared_ledger import SharedLedger, SimPlace, Way, statements, tables

HOSTS = 3
#: Longer than the product's by as much as the simulation would else look in vain.
LEASE_S, MARGIN_S, BEAT_S, SHARE_S, WATCH_S = 30.0, 6.0, 6.0, 10.0, 2.0
FREEZES_S = (5.0, 40.0, 120.0, 400.0)


class HostClock(SimClock):
    """Of one host: set by hand, and a little fast or slow."""

    def __init__(self, loop: SimLoop, ahead_ms: int, rate: float) -> None:
        super().__init__(loop)
        self.ahead_ms, self._rate = ahead_ms, rate

    def steady_ms(self) -> int:
        return 1_000_000 + int(self._loop.time() * 1000 * self._rate)


@dataclass
class Slot:
    """A place for a host: when one has died, another begins there."""

    number: int
    clock: HostClock
    machine: str
    way: Way = field(default_factory=Way)
    name: str = ""  # of the process that lives there
    keep: Keep | None = None
    asked: list[asyncio.Future[Any]] = field(default_factory=list)

    @property
    def serves(self) -> bool:
        return bool(self.name) and self.keep is not None and self.keep._shared.parts is not None


class SeveralWorld(World):
    """All of them, and what befalls them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        draw = self.random.random
        apart = draw() < 0.5  # each has a machine of its own, so that no lock proves a death
        self.slots = [
            Slot(number, HostClock(self.loop, int((draw() - 0.5) * 600_000), 0.97 + 0.06 * draw()),
                 f"machine {number if apart else 0}")
            for number in range(HOSTS)]
        self.places: dict[str, str] = {}
        self.database_ahead_ms = 0
        self.freezes_at_call = draw() * 0.5 if draw() < 0.6 else 0.0

    # What the one-host simulation calls its host is any one that serves.

    @property
    def keep(self) -> Keep | None:  # type: ignore[override]
        serving = [slot for slot in self.slots if slot.serves]
        return self.random.choice(serving).keep if serving and not self.quiet else serving[0].keep if serving else None

    @keep.setter
    def keep(self, value: object) -> None:
        """Slots have them."""

    @property
    def host(self) -> str:  # type: ignore[override]
        return next((slot.name for slot in self.slots if slot.serves), "")

    @host.setter
    def host(self, value: object) -> None:
        """Slots have them."""

    # -- hosts -------------------------------------------------------------------------------------

    def start(self) -> None:
        for slot in self.slots:
            self.start_in(slot)

    def start_in(self, slot: Slot) -> None:
        """A new process."""
        self.lives += 1
        slot.name = f"host {self.lives}"
        self.spawn(self._guarded(self.live_in(slot)), slot.name)

    async def live_in(self, slot: Slot) -> None:
        while self.loop.time() < max(slot.way.forth_until, slot.way.back_until):  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(1.0)
        slot.keep = Keep(self.folder / "keep.db", policy=POLICY, clock=slot.clock, connectors=self.connectors)
        try:
            await slot.keep.__aenter__()
        except LedgerStopped:  # cut off while it began: a process that ends, and is started again
            self.kill(slot)
            raise Crashed("it lost its place at once") from None
        slot.keep.parts.runtime = Stub()
        await slot.keep.serve()

    def opened(self, path: object, clock: object, *, accept_older: bool, works: bool) -> SharedLedger:
        """The ledger of the process that asks."""
        slot = self.slot_of(HOST.get())
        assert slot is not None
        return SharedLedger(self, slot.name, slot.machine, slot.way, slot.clock, works=works)

    def slot_of(self, name: str | None) -> Slot | None:
        return next((slot for slot in self.slots if slot.name == name), None)

    def die(self) -> None:
        living = [slot for slot in self.slots if slot.name]
        if living:
            self.kill(self.random.choice(living))

    def kill(self, slot: Slot) -> None:
        """SIGKILL; another one starts a little later."""
        self.loop.kill(slot.name)
        slot.name, slot.keep = "", None
        for answer in slot.asked:
            if not answer.done():
                answer.set_exception(HostGone())
        slot.asked.clear()
        self.memory.let_go()
        self.loop.call_later(self.random.random() * 90, self.start_in, slot, context=contextvars.Context())

    def reached(self, point: str) -> None:
        crash_points.reach(point)

    def at_point(self, name: str) -> None:
        dying = HOST.get()
        if dying is None:
            return
        slot = self.slot_of(dying)
        if slot is None:
            raise Crashed(name)  # clean-up of the dead does nothing
        if not self.quiet and self.random.random() < self.weather.kill_at_point:
            self.kill(slot)
            raise Crashed(name)
        if name.startswith("after:"):
            self.check(f"after {name.removeprefix('after:')}", check_rules)

    def stir(self) -> None:
        for slot in self.slots:
            if slot.serves:
                slot.keep.parts.ledger.stir()  # type: ignore[union-attr]

    def is_dead(self, row: Any) -> bool:
        """What its lock says, to whoever is on its machine."""
        slot = self.slot_of(HOST.get())
        return slot is not None and slot.machine == row["boot"] and row["lock"] in self.loop._dead

    # -- what befalls ------------------------------------------------------------------------------

    def freeze(self) -> None:
        """SIGSTOP, and SIGCONT later, within the lease or long after it."""
        if living := [slot for slot in self.slots if slot.name]:
            self.loop.freeze(self.random.choice(living).name, self.random.choice(FREEZES_S))

    def stands_still(self) -> bool:
        """SIGSTOP after the last check of a host and before the first byte; the byte leaves with SIGCONT."""
        slot = self.slot_of(HOST.get())
        if slot is None or self.quiet or self.random.random() >= self.freezes_at_call:
            return False
        self.loop.freeze(slot.name, self.random.choice(FREEZES_S))
        return True

    def cut(self) -> None:
        """A way is cut, in one direction or in both; what was on it arrives later, or never."""
        slot = self.random.choice(self.slots)
        until = self.loop.time() + self.random.choice([3.0, 20.0, 60.0, 300.0])
        for way in self.random.choice([["forth"], ["back"], ["forth", "back"]]):
            setattr(slot.way, f"{way}_until", until)
        if self.random.random() < 0.5:
            slot.way.resets += 1

    def jump(self) -> None:
        """Somebody sets a host's clock, or that of the database."""
        ahead = self.random.choice([-3_600_000, -40_000, 20_000, 40_000, 3_600_000])
        if self.random.random() < 0.5:
            self.database_ahead_ms += ahead
        else:
            self.random.choice(self.slots).clock.ahead_ms += ahead

    async def order(self) -> None:
        """An order comes, and somebody does not want to wait until it is looked for."""
        self.outside.order()
        for _ in range(10):
            try:
                [flow] = await self.ask(lambda keep: keep.workflows())
                await self.ask(lambda keep, flow=flow: keep.run_now(flow.id))
            except (KeepError, HostGone, ValueError):  # nobody could do it, or nothing is deployed yet
                await asyncio.sleep(20)
            else:
                return

    async def bury(self) -> None:
        """A person who looks which processes are dead, and says so."""
        while True:
            await asyncio.sleep(60 if self.quiet else self.random.expovariate(1 / 600))
            keep = self.keep
            if keep is None:
                continue
            rows = self.memory.connection.execute(
                "select lock from heartbeat").fetchall()
            for process in [lock for (lock,) in rows if lock in self.loop._dead]:
                for name in [name for name, of in self.places.items() if of == process]:
                    try:
                        await self.ask(lambda host, name=name: host.host_dead(name))
                    except (KeepError, HostGone):
                        continue  # it was heard a moment ago, or is known to be dead

    async def ask(self, act: Callable[[Keep], Awaitable[Any]]) -> Any:
        serving = [slot for slot in self.slots if slot.serves]
        if not serving:
            raise HostGone
        slot = self.random.choice(serving)
        answer = self.loop.create_future()
        slot.asked.append(answer)

        async def perform(keep: Keep) -> None:
            try:
                result = await act(keep)
            except Crashed:
                return
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.spawn(perform(slot.keep), slot.name)  # type: ignore[arg-type]
        return await answer


def weather(seed: int) -> Weather:
    """Drawn once per seed; people answer, and versions come, as in other schedules."""
    r = random.Random(f"several {seed}")

    def maybe(most: float, chance: float = 0.5) -> float:
        return r.random() * most if r.random() < chance else 0.0

    manners = Manners(
        refuse=r.choice([0.0, 0.0, 0.1]), lose_request=maybe(0.2), lose_answer=maybe(0.3), late=maybe(0.3),
        hang=maybe(0.2), stubborn=maybe(1.0), ask_fails=maybe(0.3))
    return replace(
        schedule.weather(1), manners=manners, shape=r.choice(["flow", "items"]), orders=r.choice([3, 5, 8]),
        hours=r.choice([0.25, 0.4]), kill_at_point=maybe(0.03), kills=r.randint(0, 4), cuts=r.randint(0, 5),
        freezes=r.randint(0, 6), jumps=r.choice([0, 0, 2]), doubles=0, deploys=r.choice([0, 0, 1]), asks=(),
        reprocesses=0, tabs=r.choice([1, 2]), queues=0.0, calm=False, skips=0.0, shared=False, vanishes=0)


@contextmanager
def patched(world: SeveralWorld) -> Iterator[None]:
    """Of each host time, chance and the ledger come from the seed."""
    texts = statements()
    world.memory.connection.create_scalar_function(
        "database_ms", lambda: 1_000_000_000 + int(world.loop.time() * 1000) + world.database_ahead_ms, 0)
    world.memory.connection.create_scalar_function("stir", world.stir, 0)
    patches: list[Patch] = [
        (opening, "load", lambda: texts),
        (application, "open_ledger", world.opened),
        (lease, "_is_dead", world.is_dead),
        (lease, "LEASE_MS", int(LEASE_S * 1000)), (lease, "MARGIN_MS", int(MARGIN_S * 1000)),
        (lease, "BEAT_S", BEAT_S), (lease, "SHARE_S", SHARE_S),
    ]
    with schedule.patched(world), replaced([*patches, (host, "WATCH_S", WATCH_S)]):
        yield


@lru_cache(maxsize=1)
def _memory() -> Memory:
    return Memory("/shared", tables())


def play(
    seed: int, folder: Path, judge: Callable[[World], None], faults: Sequence[Patch] = (),
) -> SeveralWorld:
    """Run one schedule, with faults that are planted; what is wrong is in `problems`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sky, loop, memory = weather(seed), SimLoop(seed), _memory()
    memory.reset(has_power_cuts=False)
    world = SeveralWorld(
        seed, folder, memory, loop, SimClock(loop), Outside(seed, sky.manners), sky, random.Random(seed ^ 0x5E7E))
    with patched(world), replaced(faults):
        try:
            _play(world)
            judge(world)
        except Exception as error:  # the simulation itself must not hide what broke it
            world.problems.append(f"{type(error).__name__}: {error}")
        finally:
            for slot in world.slots:
                if slot.keep is not None:
                    slot.keep._shared.parts = slot.keep._shared.host = None
            schedule._bury(loop)
    return world


def _play(world: SeveralWorld) -> None:
    loop, sky = world.loop, world.weather
    world.start()
    grants = dict.fromkeys(schedule.GRANTED, "allow")
    world.spawn(world.person().deploy(world.sound(world.random.randint(1, 3)), grants))
    for _ in range(sky.orders):
        at = world.random.random() * sky.hours * HOUR * 0.8
        loop.call_later(at, lambda: world.spawn(world.order()), context=contextvars.Context())
    for count, what in ((sky.kills, world.die), (sky.freezes, world.freeze), (sky.cuts, world.cut),
                        (sky.jumps, world.jump), (sky.deploys, world.redeploy)):
        world.befall(count, what)
    world.outside.alarm, world.outside.stands_still = world.alarmed, world.stands_still
    for _ in range(sky.tabs):
        world.spawn(world.person().watch(lambda: world.quiet, 0))
    world.spawn(world.bury())
    loop.run(sky.hours * HOUR)
    world.quiet = world.outside.quiet = True
    for slot in world.slots:
        slot.way.open()
    loop.thaw()
    loop.run(loop.time() + 120)  # whoever has died has begun again by then
    loop.run(loop.time() + HOUR, stop=lambda: not world.deploying)
    world.spawn(world.person().deploy(world.sound(3)))
    world.spawn(world.person().tidy())
    loop.run(loop.time() + 10)
    ends = loop.time() + 12 * HOUR
    while loop.time() < ends and not schedule._rests(world) and not (world.problems or loop.errors):
        loop.run(loop.time() + HOUR / 12)


# Faults to plant


def _silent_is_dead(row: Any) -> bool:
    """"The lease is over" taken for a proof that nothing can leave any more."""
    return bool(row["silent_ms"] >= lease.LEASE_MS)


#: Name → what to replace by what.
BUGS: Mapping[str, Sequence[Patch]] = {
    "silent_is_dead": [(lease, "_is_dead", _silent_is_dead)],
    "no_closure": bugs.BUGS["no_closure"](),
    "no_settle": bugs.BUGS["no_settle"](),
    "no_fencing": [(SimPlace, "stands", lambda self: True)],
    "what_was_taken_over_is_guessed": bugs.BUGS["recovery_guesses"](),
}
