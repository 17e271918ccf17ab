"""One schedule: a seed decides the weather, the faults, the people and the order of everything; a judge looks on.

Hosts are killed at protocol points and at random moments, frozen and thawed; the wall clock jumps; people in two tabs
look, think for a while and act on what they saw. Then comes a quiet end: everything works, somebody answers, and
after enough time all work is done or stands as an explained question.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from keepai import Connector, Keep, Policy
from keepai.connectors.base import surface
from keepai.engine import deploy, due_times, host, mutation
from keepai.ledger.base import Reader
from keepai.ledger.invariants import Broken, check_invariants, check_rules
from keepai.ledger.sqlite.connection import Statements
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.sqlite.writer import Writer
from keepai.model import clock as clocks
from keepai.model import crash_points
from keepai.model.errors import LedgerUnusable, Refused
from keepai.script.manifest import Manifest
from keepai.testing import Crashed
from tests.prove.simulate.loop import HOST, SimLoop
from tests.prove.simulate.memory import Memory, Patch, replaced
from tests.prove.simulate.outside import SETTLE_S, Books, Hooks, Mails, Manners, Orders, Outside, Rows
from tests.prove.simulate.people import HostGone, Person
from tests.prove.simulate.scripts import GRANTED, LETTERS, OF_BOOKS, SHAPES, TEXTS, Stub, script

HOUR = 3600.0
_START_MS = 1_767_603_600_000  # 2026-01-05T09:00:00Z, a Monday
SPECIAL_EVERY = 32  # seeds
#: Which of them → what they are for; whatever else there is happens in the others.
SPECIAL = {0: "calm", 16: "calm", 17: "doubt", 19: "change", 24: "skips", 28: "shared"}
LETTERS_AT = (5, 13, 21, 29)  #: which of them have the shape "letters", in any weather
CHECKED_EVERY = 4  # seeds: then the ledger's rules are checked after every commit, and its account at the end
#: Events that a consumer left are not looked at again by the hour: nothing may rest on that.
POLICY = Policy(
    call_s=10.0, settle_s=SETTLE_S, reconcile_s=30.0, reconciles_max=6, retries_max=2, recheck_s=30 * 86_400.0,
)


class SimClock:
    """The loop's time as both readings; the wall may be set."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop, self.ahead_ms = loop, 0

    def now_ms(self) -> int:
        return _START_MS + int(self._loop.time() * 1000) + self.ahead_ms

    def steady_ms(self) -> int:
        return 1_000_000 + int(self._loop.time() * 1000)


@dataclass(frozen=True)
class Weather:
    """What one seed has in store; every part may be absent, so that the others are seen alone."""

    manners: Manners
    shape: str  # what the workflow consists of
    orders: int
    hours: float  # of faults, before the quiet end
    kill_at_point: float  # chance at each point that is reached
    kills: int  # at random moments
    cuts: int  # of power: relaxed commits are lost
    freezes: int
    jumps: int
    doubles: int
    deploys: int
    asks: tuple[str, ...]  # capabilities that need approval
    reprocesses: int
    tabs: int
    queues: float  # chance that a commit has to wait for its turn
    calm: bool = False  # nothing goes wrong, so nobody may be asked for anything
    skips: float = 0.0  # chance that somebody skips what `prepare` has just looked at
    shared: bool = False  # every order is published as the same event
    vanishes: int = 0  # times at which the source lists other orders than before
    waiting: tuple[str, ...] = ()  # what else goes on while a run waits; after the first, somebody changes it


def is_checked(seed: int) -> bool:
    """Whether the rules are checked after every commit, not at the end alone, and the account as well."""
    return seed % CHECKED_EVERY == 0


def weather(seed: int) -> Weather:
    """Drawn once per seed."""
    r = random.Random(seed)

    def maybe(most: float, chance: float = 0.6) -> float:
        return r.random() * most if r.random() < chance else 0.0

    def some(most: int, chance: float = 0.5) -> int:
        return r.randint(1, most) if r.random() < chance else 0

    manners = Manners(
        refuse=r.choice([0.0, 0.0, 0.1, 0.3, 0.8]), lose_request=maybe(0.3), lose_answer=maybe(0.4),
        late=maybe(0.4), odd=maybe(0.2), hang=maybe(0.2), stubborn=maybe(1.0), ask_fails=maybe(0.5),
        never_tells=maybe(0.2, 0.3),
    )
    mild = Weather(
        Manners(), shape=r.choice(list(SHAPES)), orders=3, hours=1.2, kill_at_point=0.0, kills=0, cuts=0, freezes=0,
        jumps=0, doubles=0, deploys=0, asks=(), reprocesses=some(2), tabs=1, queues=maybe(0.5), calm=True,
    ) if seed % SPECIAL_EVERY in SPECIAL else None
    match mild and SPECIAL[seed % SPECIAL_EVERY]:
        case "calm":
            return mild
        case "doubt":  # nothing but unknown outcomes, and three people who answer
            return replace(mild, manners=Manners(lose_answer=0.7, never_tells=0.8), tabs=3, calm=False)
        case "change":  # versions with and without handlers, while much is refused
            return replace(mild, manners=Manners(refuse=0.5, lose_answer=0.2), shape="both", deploys=8, calm=False)
        case "skips":  # nothing but people who are quicker than `prepare`
            return replace(mild, shape="flow", orders=8, reprocesses=0, calm=False, skips=0.4)
        case "shared":  # inputs that come before, while and after their one event is worked on
            return replace(mild, shape="flow", orders=5, shared=True)
    asks = tuple(name for name in ("rows.add", "mails.send", "hooks.fire") if r.random() < 0.15)
    usual = Weather(
        manners, shape=r.choice(list(SHAPES)), orders=r.choice([1, 1, 2, 3]), hours=r.choice([0.25, 0.5, 1.2]),
        kill_at_point=maybe(0.08), kills=some(4), cuts=some(3, 0.4), freezes=some(2, 0.3), jumps=some(2, 0.3),
        doubles=some(1, 0.2), deploys=some(2, 0.4), asks=asks, reprocesses=some(2, 0.3),
        tabs=r.choice([1, 2, 3]), queues=maybe(0.5),
    )
    if seed % SPECIAL_EVERY not in LETTERS_AT:
        return usual
    return replace(usual, shape="letters", hours=1.2, deploys=r.randint(2, 8), reprocesses=some(3), vanishes=some(3))


@dataclass
class World:
    """Everything of one schedule."""

    seed: int
    folder: Path
    memory: Memory
    loop: SimLoop
    clock: SimClock
    outside: Outside
    weather: Weather
    random: random.Random
    keep: Keep | None = None
    host: str = ""
    number: int = 0
    lives: int = 0
    visitors: int = 0  # second hosts that are about to come in
    quiet: bool = False
    powerless: bool = False
    deploying: int = 0  # versions that somebody is about to bring in
    text: int = 0  # of the letters
    asked: list[asyncio.Future[Any]] = field(default_factory=list)  # what the living host was asked for
    problems: list[str] = field(default_factory=list)
    watch: Callable[[World], None] | None = None  # looks on after every commit
    parked: int = 0  # how often a run was parked
    seen: int = 0  # how much of its list the routine of the shape "list" has read
    connectors: list[Connector] = field(init=False)

    def __post_init__(self) -> None:
        self.connectors = [kind(self.outside) for kind in (Orders, Rows, Mails, Hooks, Books)]

    # -- hosts -------------------------------------------------------------------------------------

    def spawn(self, coroutine: Awaitable[Any], host: str | None = None) -> None:
        """Start something that belongs to a host, or to the world."""
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        self.loop.create_task(coroutine, context=context)  # type: ignore[arg-type]

    def _new(self) -> Keep:
        if self.powerless:
            self.memory.let_go()
            self.check("before a power cut", check_invariants)  # of what is lost now, nobody will see the history
            self.memory.cut()
        self.powerless = False
        return Keep(
            self.folder / "keep.db", policy=POLICY, clock=self.clock,
            connectors=self.connectors,
        )

    async def live(self) -> None:
        """One host from its start to its death."""
        keep = self.keep = self._new()
        try:
            await keep.__aenter__()
        except LedgerUnusable:
            if not self.visitors:
                raise
            self.host, self.keep = "", None  # refused rightly: a second host has come in between, and leaves soon
            self.loop.call_later(5, self.start, context=contextvars.Context())
            return
        keep.parts.runtime = Stub()
        await keep.serve()

    def start(self) -> None:
        """A new process."""
        self.lives += 1
        self.host = f"host {self.lives}"
        self.spawn(self._guarded(self.live()), self.host)

    async def _guarded(self, life: Awaitable[None]) -> None:
        try:
            await life
        except Crashed:
            return
        except Exception as error:  # a host that ends by itself is a finding
            self.problems.append(f"a host ended: {type(error).__name__}: {error}")

    def die(self) -> None:
        """SIGKILL: nothing of the host runs on, the kernel lets go of its files; another one starts a little later."""
        if not self.host:
            return
        self.loop.kill(self.host)
        self.host = ""
        for answer in self.asked:
            if not answer.done():
                answer.set_exception(HostGone())
        self.asked.clear()
        keep, self.keep = self.keep, None
        if keep is not None and keep._shared.parts is not None:
            _let_go(keep)
        self.memory.let_go()
        self.loop.call_later(self.random.random() * 5, self.start, context=contextvars.Context())

    def lose_power(self) -> None:
        """The process dies, and what was not on disk is lost."""
        self.die()
        self.seen = 0  # what it had read is perhaps lost as well, and is read again
        self.powerless = True  # before the next host starts: this one may be in the middle of a commit

    def in_turn(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """A ledger's `write` that sometimes waits in the writer's queue, so that others commit before it."""

        async def written(ledger: Any, verb: Any, *args: Any, **kwargs: Any) -> Any:
            if self.random.random() < self.weather.queues:
                await asyncio.sleep(self.random.choice([0.0, 0.0, 0.002, 2.0]))
            if self.weather.skips and verb.__name__ in ("prepare", "prepare_and_send"):
                await self._skip_something()
            return await write(ledger, verb, *args, **kwargs)

        return written

    async def _skip_something(self) -> None:
        """A person skips an event that waits, or the input behind it."""
        keep = self.keep
        if keep is None or self.random.random() >= self.weather.skips:
            return
        waiting = [e for e in await keep.events("orders", status="pending") if not e.reserved_by and e.caused_by]
        if waiting:
            event = self.random.choice(waiting)
            with contextlib.suppress(Refused):  # the input has another event in hand
                if self.random.random() < 0.5:
                    await keep.skip_event(event.id)
                else:
                    await keep.skip_input(event.caused_by[0])

    def at_point(self, name: str) -> None:
        """The process may die at any named point."""
        dying = HOST.get()
        if dying is None:
            return
        if dying != self.host:
            raise Crashed(name)  # clean-up of the dead does nothing
        if not self.quiet and self.random.random() < self.weather.kill_at_point:
            if self.weather.cuts and self.random.random() < 0.5:
                self.lose_power()
            else:
                self.die()
            raise Crashed(name)
        self.parked += name == "after:park"
        if name.startswith("after:") and self.watch is not None:
            self.watch(self)
        if name.startswith("after:"):
            self.check(f"after {name.removeprefix('after:')}", check_rules)

    def check(self, when: str, find: Callable[[Reader], list[Broken]]) -> None:
        """Look for what is broken, in the schedules that are looked at so closely."""
        if is_checked(self.seed):
            self.problems += [f"{when}: {broken}" for broken in find(Statements(self.memory.connection))]

    # -- what befalls ------------------------------------------------------------------------------

    def double(self) -> None:
        """Somebody starts a second host on the same file; it must be refused."""
        self.number += 1
        self.spawn(self._second(), f"double {self.number}")

    async def _second(self) -> None:
        keep, first = self._new(), self.keep
        self.visitors += 1
        try:
            await keep.__aenter__()
        except LedgerUnusable:
            return
        finally:
            self.visitors -= 1
        if first is not None and first is self.keep and first._shared.parts is not None:
            self.problems.append("a second host was let in")
        else:
            _let_go(keep)  # the first one was dead, so this one was right to start; it ends at once

    def befall(self, count: int, what: Callable[[], None]) -> None:
        """Have something happen so many times during the faulty hours."""
        for _ in range(count):
            at = self.random.random() * self.weather.hours * HOUR
            self.loop.call_later(at, self._unless_quiet, what, context=contextvars.Context())

    def _unless_quiet(self, what: Callable[[], None]) -> None:
        if not self.quiet:
            what()

    def freeze(self) -> None:
        """SIGSTOP, and SIGCONT later."""
        if self.host:
            self.loop.freeze(self.host, self.random.choice([1.0, 15.0, 90.0]))

    def jump(self) -> None:
        """Somebody sets the wall clock."""
        self.clock.ahead_ms += self.random.choice([-10 * 365 * 86_400_000, -3_600_000, 3_600_000, 86_400_000])

    def alarmed(self) -> None:
        """Somebody watches just now, and is there within seconds."""
        if self.random.random() < 0.5:
            delay = self.random.random() * 6
            self.loop.call_later(delay, self.spawn_turn, context=contextvars.Context())

    def spawn_turn(self) -> None:
        """One look at the questions, and one act."""
        self.spawn(self.person().turn(slow=0.0))

    def redeploy(self) -> None:
        """A new version; now and then a broken one, or one without some handlers, which the next one mends."""
        if self.weather.shape == "letters":
            throws = self.random.choice([9, 9, 9, 0, 1, 2, 3])
            self.text = self.random.randrange(len(TEXTS)) if self.random.random() < 0.5 else self.text
            self.spawn(self._bring_in(script(LETTERS + 10 * throws + self.text, "letters")))
            return
        variant = self.random.choice([1, 2, 3, 101])
        shapes = list(SHAPES) if self.weather.shape == "both" else [self.weather.shape]
        self.spawn(self._bring_in(script(variant, self.random.choice(shapes))))

    async def begin(self, source: str, grants: Any) -> None:
        """The first version, and what goes on while a run of it waits."""
        await self.person().deploy(source, grants)
        if self.weather.waiting:
            await self.person().set_waiting(self.weather.waiting[0])

    def change(self, waiting: str) -> None:
        """Somebody wants something else to go on while a run waits."""
        self.spawn(self.person().set_waiting(waiting))

    async def _bring_in(self, source: str) -> None:
        self.deploying += 1
        await self.person().deploy(source)
        self.deploying -= 1

    def vanish(self) -> None:
        """The source no longer lists some orders, and lists others again."""
        self.outside.hidden = {order for order in self.outside.orders if self.random.random() < 0.5}

    def sound(self, variant: int) -> str:
        """A version that does not throw; of letters, one with the text of the last."""
        letters = self.weather.shape == "letters"
        return script(LETTERS + 90 + self.text if letters else variant, self.weather.shape)

    async def standing(self) -> None:
        """While nobody answers: each item is finished, or waits for an answer of a person, and is explained."""
        assert self.keep is not None
        cards = await self.keep.needs_you()
        asked = {card.run_id for card in cards} | {card.id.removeprefix("ask_") for card in cards}
        for item in await self.keep.items("orders"):
            told = await self.keep.explain(item.id)
            if not (told.standing == item.status and told.because and told.moved_by):
                self.problems.append(f"{item} is not explained: {told}")
            waits = item.status == "processing" and (cards or item.external_id in self.outside.hidden)
            if item.status not in ("done", "skipped") and not waits and not asked & {
                item.id, *(mover.subject for mover in told.moved_by)
            }:
                self.problems.append(f"{item.external_id} is {item.status}, and nobody is asked: {told.because}")

    def person(self) -> Person:
        """Somebody at a screen."""
        return Person(lambda: self.keep if self.host else None, self.ask, self.outside, self.random, self.problems)

    async def ask(self, act: Callable[[Keep], Awaitable[Any]]) -> Any:
        """Have the living host do something. It does it in its own name, so its death ends that too."""
        if self.keep is None:
            raise HostGone
        answer = self.loop.create_future()
        self.asked.append(answer)

        async def perform(keep: Keep) -> None:
            try:
                result = await act(keep)
            except Crashed:
                return  # the host died of it, and whoever asked knows
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.spawn(perform(self.keep), self.host)
        return await answer


@contextmanager
def patched(world: World) -> Iterator[None]:
    """Time, chance and threads come from the seed."""
    ids = random.Random(world.seed ^ 0x5EED)
    patches: list[Patch] = [
        (clocks, "os", SimpleNamespace(urandom=ids.randbytes)),
        (mutation, "time", SimpleNamespace(monotonic=world.loop.time)),
        (Writer, "_alone", lambda self: True),
        (SqliteLedger, "write", world.in_turn(SqliteLedger.write)),
        (deploy, "check", _checked),
        (Manifest, "to_text", _to_text),
        (due_times, "LONGEST_SLEEP_S", 1200.0),
        (host, "LONGEST_SLEEP_S", 1200.0),
        (host, "WATCH_S", 1e9),
        *world.memory.patches(),
    ]
    crash_points.listen(world.at_point)
    try:
        with replaced(patches):
            yield
    finally:
        crash_points.listen(None)


_check = deploy.check


@lru_cache(maxsize=64)
def _checked_source(source: str) -> Any:
    outside = Outside(0, Manners())
    return _check(source, surface([kind(outside) for kind in (Orders, Rows, Mails, Hooks, Books)]))


def _checked(source: str, *args: Any, **options: Any) -> Any:
    """`check` is pure, and slow for a simulation: once per script is enough."""
    return _checked_source(source)


_texts: dict[int, tuple[Manifest, str]] = {}
_written = Manifest.to_text


def _to_text(manifest: Manifest) -> str:
    """The same for the few manifests that `_checked_source` keeps."""
    if id(manifest) not in _texts:
        _texts[id(manifest)] = manifest, _written(manifest)
    return _texts[id(manifest)][1]


def _let_go(keep: Keep) -> None:
    """What the kernel does for a dead process: the lock is free."""
    ledger = keep.parts.ledger
    keep._shared.parts = keep._shared.host = None  # what is cleaned up after a death cleans up nothing
    os.close(ledger._lock.fd)  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def _memory() -> Memory:
    """One for all schedules of a process."""
    return Memory()


def play(
    seed: int, folder: Path, judge: Callable[[World], None], draw: Callable[[int], Weather] = weather,
    watch: Callable[[World], None] | None = None,
) -> World:
    """Run one schedule; what is wrong is in `problems`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sky = draw(seed)
    loop = SimLoop(seed)
    outside = Outside(seed, sky.manners)
    memory = _memory()
    memory.reset(has_power_cuts=sky.cuts > 0)
    chance = random.Random(seed ^ 0xFA7E)
    world = World(seed, folder, memory, loop, SimClock(loop), outside, sky, chance, watch=watch)
    with patched(world):
        try:
            _play(world)
            judge(world)
        except Exception as error:  # the simulation itself must not hide what broke it
            world.problems.append(f"{type(error).__name__}: {error}")
            if os.environ.get("KEEP_SIM_RAISE"):
                raise
        finally:
            if world.keep is not None and world.keep._shared.parts is not None:
                _let_go(world.keep)
            _bury(loop)
    return world


def _bury(loop: SimLoop) -> None:
    """What the dead had planned and never began is not worth a warning."""
    for task in loop.tasks:
        coroutine = task.get_coro()
        if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()


def _play(world: World) -> None:
    loop, sky = world.loop, world.weather
    granted = OF_BOOKS if sky.shape in ("books", "list") else GRANTED
    grants = {name: "ask" if name in sky.asks else "allow" for name in granted}
    world.start()
    first = 200 if sky.shared else 0
    world.spawn(world.begin(world.sound(first + world.random.randint(1, 3)), grants))
    for _ in range(sky.orders):
        world.loop.call_later(world.random.random() * sky.hours * HOUR / 2, world.outside.order,
                              context=contextvars.Context())
    world.befall(sky.kills, world.die)
    world.befall(sky.cuts, world.lose_power)
    world.befall(sky.freezes, world.freeze)
    world.befall(sky.jumps, world.jump)
    world.befall(sky.doubles, world.double)
    world.befall(sky.deploys, world.redeploy)
    world.befall(sky.vanishes, world.vanish)
    for waiting in sky.waiting[1:]:
        world.befall(1, partial(world.change, waiting))
    world.outside.alarm, world.outside.quiet = world.alarmed, sky.calm
    for _ in range(sky.tabs):
        world.spawn(world.person().watch(lambda: world.quiet, sky.reprocesses))
    loop.run(sky.hours * HOUR)
    world.quiet = world.outside.quiet = True
    loop.thaw()
    if not world.host:
        loop.run(loop.time() + 10)
    loop.run(loop.time() + HOUR, stop=lambda: not world.deploying)  # no other version comes after the sound one
    world.spawn(world.person().deploy(world.sound(first + 3)))
    if sky.shape == "letters":
        loop.run(loop.time() + 2 * HOUR)
        world.spawn(world.standing())
        loop.run(loop.time() + 1)
        world.outside.hidden.clear()
    world.spawn(world.person().tidy())
    loop.run(loop.time() + 10)  # until that version is there: without a consumer for them, events count as at rest
    ends = loop.time() + 72 * HOUR
    while loop.time() < ends and not _rests(world) and not (world.problems or loop.errors):
        loop.run(loop.time() + HOUR / 6)


def _rests(world: World) -> bool:
    """Whether every order came in and nothing of it is left to do."""
    if world.keep is None or world.keep._shared.parts is None:
        return False
    connection = world.keep.parts.ledger._reader  # type: ignore[attr-defined]
    [[left]] = connection.execute("select (select count(*) from input_standing where waiting) "
                                  "+ (select count(*) from run where status in ('active', 'paused', 'failed'))")
    orders = "input where source = 'orders'"
    counts = {"flow": orders, "books": orders, "items": "item", "letters": "item", "list": "item"}
    tables = counts.values() if world.weather.shape == "both" else [counts[world.weather.shape]]
    known = [count for table in tables for (count,) in connection.execute(f"select count(*) from {table}")]
    return left == 0 and set(known) == {len(world.outside.orders)}
