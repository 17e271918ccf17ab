"""Random schedules over a routine of three mutations per item: crashes, faults, versions, people, time.

    python -m tests.simulate.items --schedules 10000 --seed 1

Each schedule is a number: the same number gives the same world, the same faults and the same people. The engine, the
SQLite file and the recovery are real; the script runs without a sandbox (see office.py). What is judged is what took
effect outside:

- each mutation at most once per attempt of an item, and exactly once if that attempt was finished;
- every result that the script was given is, byte for byte, that of the effect, in each replay;
- when nothing moves by itself any more, every item is done or skipped, or stands as a question that is explained;
- an act that a question offers is accepted;
- once people have answered everything, nothing is left open.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from keepai import Keep, OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.ledger.rows import item_record
from keepai.model import crash_points
from keepai.model.errors import KeepError, Refused
from keepai.model.records import Escalation, Item
from keepai.testing import Crashed, ManualClock, World
from tests.crashes.invariants import violations
from tests.harness import START, Feed, views
from tests.simulate.office import CALLS, BlindOffice, Office, Plan, Stub, in_memory

ITEMS = ("a", "b", "c")
STEPS = (6, 22)  #: how many things happen in one schedule
ROUNDS_MAX = 80  #: until nothing moves any more
TEXTS = ("hello", "HELLO", "Hello", "goodbye")

#: What INVARIANTS say of events and of consumers' single mutations, and does not hold for items.
NOT_FOR_ROUTINES = ("an event or input of a run that did not commit", "an applied mutation whose lineage")


class Violation(AssertionError):
    """A promise was broken; the seed breaks it again."""

    def __init__(self, seed: int, why: str, told: list[str]) -> None:
        super().__init__("\n  ".join([f"seed {seed}: {why}", *told]))
        self.seed = seed


class CrashSoon:
    """Within it, the nth point that is reached is the host's last."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def crashed(self) -> bool:
        return self.left <= 0

    def __enter__(self) -> CrashSoon:
        crash_points.listen(self._at)
        return self

    def __exit__(self, *error: object) -> None:
        crash_points.listen(None)

    def _at(self, name: str) -> None:
        self.left -= 1
        if self.crashed:
            raise Crashed(name)


class Schedule:
    """One world, one ledger, and what happens to them."""

    def __init__(self, folder: Path, seed: int, like: Path) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.path = folder / "keep.db"
        shutil.copy(like, self.path)
        self.clock = ManualClock(START)
        self.world, self.feed = World(self.clock), Feed()
        self.offered = list(ITEMS[:1])
        blind = self.chance.random() < 0.5
        self.office = (BlindOffice if blind else Office)(self.world)
        self.office.on_effect = self._effect
        self.grants: Any = {
            "feed.list": "allow", "office.add": "allow", "office.ring": "allow",
            "office.tell": "ask" if self.chance.random() < 0.25 else "allow",
        }
        self.plan = Plan()
        self.reached: Counter[str] = Counter()  # kinds of questions, and what became of items and mutations
        self.told: list[str] = []  # what happened, for whoever has to understand a violation
        self.effects: dict[tuple[str, int, str], int] = {}
        self.given: dict[tuple[str, int, str], set[str]] = {}
        self.ended: dict[tuple[str, int], str] = {}  # attempts that were over before the next began

    # -- the host ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start a host."""
        self.keep = Keep(self.path, connectors=[self.feed, self.office], clock=self.clock)
        await self.keep.__aenter__()
        self.keep.parts.runtime = Watched(self)
        [row] = await self.keep.workflows()
        self.wf = row.id

    async def bury(self) -> None:
        """A dead host's lock is free."""
        if self.keep._parts is None:
            return
        parts = self.keep.parts
        with CrashSoon(1), contextlib.suppress(Crashed, KeepError):
            await self.keep.host.close()
        await parts.ledger.close()

    async def living(self, doing: Callable[[], Awaitable[object]], crash: CrashSoon | None = None) -> None:
        """Do it; if the host dies of it, start another, which may die while it recovers."""
        try:
            with crash or contextlib.nullcontext():
                await doing()
        except Crashed:
            await self.bury()
            again = self.chance.random() < 0.3
            try:
                with CrashSoon(self.chance.randint(1, 8)) if again else contextlib.nullcontext():
                    await self.open()
            except Crashed:
                await self.bury()
                await self.open()

    # -- judging -------------------------------------------------------------------------------------

    def item(self, name: str) -> Item | None:
        """An item as the ledger has it."""
        row = self.keep.parts.ledger.reads.one("item_find", workflow_id=self.wf, external_id=name)
        return item_record(row) if row else None

    def attempt(self, name: str) -> int:
        found = self.item(name)
        return found.attempt if found else 1

    def _effect(self, call: str, name: str) -> None:
        key = (name, self.attempt(name), call)
        self.effects[key] = self.effects.get(key, 0) + 1

    def gave(self, name: str, call: str, result: str) -> None:
        """The script was given a result."""
        self.given.setdefault((name, self.attempt(name), call), set()).add(result)

    def judge(self) -> None:
        """What must hold at any time."""
        for key, results in self.given.items():
            self.need(len(results) == 1, f"{key} gave {results}")
        for key, count in self.effects.items():
            self.need(count == 1, f"{key} took place {count} times")

    def need(self, holds: object, why: str) -> None:
        if not holds:
            raise Violation(self.seed, why, self.told)

    def judge_attempts(self) -> None:
        """Each mutation once per finished attempt, and never more."""
        over = {(n, i.attempt): str(i.status) for n in ITEMS if (i := self.item(n))} | self.ended
        for (name, attempt), status in over.items():
            for call in CALLS:
                made = self.effects.get((name, attempt, call), 0)
                if status == "done":
                    self.need(made == 1, f"{name} is done in attempt {attempt} and {call} took place {made} times")

    async def judge_standing(self) -> None:
        """When nothing moves by itself: each item is finished, or is a question, and everything is explained."""
        asked = await self.keep.needs_you(self.wf)
        held = {q.run_id for q in asked} | {q.id.removeprefix("ask_") for q in asked}
        runs = {r.id: r for r in await self.keep.runs(self.wf)}
        for found in await self.keep.items(self.wf):
            told = await self.keep.explain(found.id)
            self.need(told.standing == found.status and told.because and told.moved_by, f"{found} is not explained")
            if found.status in ("done", "skipped"):
                continue
            movers = {m.subject for m in told.moved_by} | {found.id}
            waits = found.status == "processing" and (asked or found.external_id not in self.offered)
            self.need(movers & held or waits, f"{found.external_id} is {found.status} and nobody is asked: {told}")
        self.reached.update(f"item {i.status} at rest" for i in await self.keep.items(self.wf))
        for question in asked:
            self.need(question.actions, f"{question} can only be looked at")
            await self.keep.explain(question.id)
        for run in runs.values():
            await self.keep.explain(run.id)

    # -- what can happen -----------------------------------------------------------------------------

    async def step(self) -> None:
        """One thing."""
        happens = self.chance.choices(list(_HAPPENS), list(_HAPPENS.values()))[0]
        self.told.append(happens.__name__)
        await happens(self)
        self.judge()

    def note(self, more: object) -> None:
        self.told[-1] += f" {more}"

    async def run_now(self) -> None:
        with contextlib.suppress(Refused):
            await self.keep.run_now(self.wf)
        await self.living(self.keep.run_until_idle)

    async def time_passes(self) -> None:
        minutes = self.chance.choice((1, 5, 20, 180, 1500))
        self.note(f"{minutes} min")
        self.clock.advance(minutes=minutes)
        await self.living(self.keep.run_until_idle)

    async def crash(self) -> None:
        crash = CrashSoon(self.chance.randint(1, 40))
        self.note(f"in {crash.left} points")
        if self.chance.random() < 0.7:
            self.clock.advance(minutes=self.chance.choice((1, 5, 20)))
        await self.living(self.keep.run_until_idle, crash)

    async def fault(self) -> None:
        call, kind = self.chance.choice(CALLS), self.chance.choice(list(_FAULTS))
        times = self.chance.choice((1, 1, 2))
        self.note(f"{call}: {kind} {times} times")
        _FAULTS[kind](self.world, f"office.{call}", times)

    async def deploy(self) -> None:
        """A new version: it throws, is repaired, or wants another content."""
        throws = self.chance.choice((None, None, None, 0, 1, 2, 3))
        text = self.chance.choice(TEXTS) if self.chance.random() < 0.5 else self.plan.text
        self.plan = Plan(text, throws, self.plan.number + 1)
        self.note(self.plan)
        await self.keep.deploy(self.plan.script(), workflow_id=self.wf, grants=self.grants)
        await self.living(self.keep.run_until_idle)

    async def reprocess(self) -> None:
        found = self.item(self.chance.choice(ITEMS))
        if found is None:
            return
        self.note(found.external_id)
        try:
            await self.keep.reprocess(found.id)
        except Refused as refused:
            self.note(refused.message)
            return
        self.ended[found.external_id, found.attempt] = str(found.status)

    async def person(self) -> None:
        """Somebody answers a question, truthfully."""
        asked = await self.keep.needs_you(self.wf)
        if asked:
            await self.answer(self.chance.choice(asked))

    async def answer(self, question: Escalation) -> None:
        if not question.actions:
            return self.note("it has expired")
        act = self.chance.choice(question.actions)
        self.note(f"{question.kind}: {act}")
        self.reached[f"{question.kind}: {act}"] += 1
        happened = self._effect_of(question.mutation_id) if question.mutation_id else None
        if act in ("happened", "did_not_happen"):
            act = "happened" if happened else "did_not_happen"
        try:
            await self._do(question, act, happened)
        except Refused as refused:
            later = act == "did_not_happen" and act not in question.actions
            self.need(later, f"{act} is offered and refused: {refused.message}")

    async def _do(self, question: Escalation, act: str, happened: Any) -> None:
        keep = self.keep
        match act:
            case "happened":
                await keep.resolve(str(question.mutation_id), act, happened.result)
            case "did_not_happen" | "try_again" | "skip" | "keep":
                await keep.resolve(str(question.mutation_id), act)
            case "approve" | "reject":
                await getattr(keep, act)(question.id)
            case "retry" | "skip_run":
                await getattr(keep, act)(question.run_id)
            case "deploy":
                await self._repair()
            case "reprocess":
                found = self.item(str(question.title).removeprefix("Item "))
                assert found is not None
                await keep.reprocess(found.id)
                self.ended[found.external_id, found.attempt] = str(found.status)
            case "skip_input":
                await keep.skip_input(str(question.facts["input_id"]))
            case _:
                raise AssertionError(f"{act} of {question}")

    async def _repair(self) -> None:
        self.plan = Plan(self.plan.text, None, self.plan.number + 1)
        await self.keep.deploy(self.plan.script(), workflow_id=self.wf, grants=self.grants)

    def _effect_of(self, mutation_id: str) -> Any:
        """What a person finds who looks outside."""
        key = views(self.keep).mutation(mutation_id).idempotency_key
        return next((e for e in self.world.effects if e.idempotency_key == key), None)

    async def pause(self) -> None:
        with contextlib.suppress(Refused):
            await self.keep.pause(self.wf)

    async def resume(self) -> None:
        with contextlib.suppress(Refused):
            await self.keep.resume(self.wf)
        await self.living(self.keep.run_until_idle)

    async def reopen(self) -> None:
        await self.keep.close()
        await self.open()

    async def arrive(self) -> None:
        """The feed has one item more."""
        missing = [n for n in ITEMS if n not in self.offered]
        self.offered = sorted([*self.offered, *missing[:1]])
        self.note(self.offered)
        self.show()
        await self.living(self.keep.run_until_idle)

    async def vanish(self) -> None:
        """The feed no longer has an item."""
        self.offered = [n for n in self.offered if self.chance.random() < 0.5]
        self.note(self.offered)
        self.show()

    def show(self) -> None:
        self.feed.items = [{"id": name} for name in self.offered]

    # -- a whole schedule ----------------------------------------------------------------------------

    async def live(self) -> None:
        """Everything that happens, then a quiet end."""
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        self.show()
        await self.open()
        await self.keep.grant(self.wf, "office.tell", self.grants["office.tell"])
        try:
            for _ in range(self.chance.randint(*STEPS)):
                await self.step()
            self.told.append("-- nothing more goes wrong")
            self.world._plans.clear()
            with contextlib.suppress(Refused):
                await self.keep.resume(self.wf)
            await self._quiet()
            await self.judge_standing()
            self.told.append("-- people answer everything")
            self.offered = list(ITEMS)
            self.show()
            await self._repair()
            await self._answered()
            self.clock.advance(minutes=5)
            await self._answered()
            await self._whole()
        finally:
            await self.keep.close()
        broken = [v for v in violations(self.path) if not v.startswith(NOT_FOR_ROUTINES)]
        self.need(not broken, f"the ledger is broken: {broken}")

    async def _quiet(self) -> None:
        """Let pass whatever time it takes until nothing moves by itself."""
        for _ in range(ROUNDS_MAX):
            await self.keep.run_until_idle()
            self.judge()
            waits = [r for r in await self.keep.runs(self.wf) if r.state in ("active", "paused", "failed")]
            if not waits or waits[0].retry_at is None or waits[0].reason == "approval":
                return
            self.clock.advance(ms=max(1, waits[0].retry_at - self.clock.now_ms()))
        self.need(False, "it never comes to rest")

    async def _answered(self) -> None:
        for _ in range(ROUNDS_MAX):
            await self._quiet()
            asked = await self.keep.needs_you(self.wf)
            unfinished = [i for i in await self.keep.items(self.wf) if i.status not in ("done", "skipped")]
            if not asked and not unfinished:
                return
            for question in asked[:1]:
                self.told.append("person")
                await self.answer(question)
            if not asked:
                self.clock.advance(minutes=5)  # its routine comes to it
        self.need(False, "there is no end of questions")

    async def _whole(self) -> None:
        self.judge()
        self.judge_attempts()
        statuses = {i.external_id: str(i.status) for i in await self.keep.items(self.wf)}
        self.need(set(statuses) == set(ITEMS) and set(statuses.values()) <= {"done", "skipped"}, f"{statuses}")
        rows = views(self.keep).mutations(self.wf)
        self.reached.update(f"mutation {m.status}" for m in rows)
        self.reached.update(f"run {r.status}" for r in await self.keep.runs(self.wf))
        self.need({m.status for m in rows} <= {"applied", "failed", "skipped"}, "a mutation is open")
        sent = {(e.operation, encode_(e.result)) for e in self.world.effects}
        kept = {(f"{m.connector}.{m.operation}", encode_(m.result)) for m in rows if m.status == "applied"}
        unknown = {m.id for m in rows if m.status == "skipped"}
        self.need(kept <= sent, f"the ledger has what nobody did: {kept - sent}")
        self.need(len(sent - kept) <= len(unknown), f"nobody knows of {sent - kept}")


def encode_(value: object) -> str:
    return json.dumps(value, sort_keys=True)


class Watched(Stub):
    """The script, with somebody who notes what it is given."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    async def run(self, job: Any, host: Any) -> Any:
        """One step."""
        return await super().run(job, _Listening(host, self._schedule))


class _Listening:
    def __init__(self, host: Any, schedule: Schedule) -> None:
        self._host, self._schedule = host, schedule

    async def answer(self, operation: Any) -> Any:
        reply = await self._host.answer(operation)
        if operation.name.startswith("office."):
            call = operation.name.partition(".")[2]
            self._schedule.gave(operation.args[0]["item"], call, json.dumps(reply.value))
        return reply

    def log(self, line: Any) -> None:
        self._host.log(line)


#: What may happen, and how often.
_HAPPENS: dict[Callable[[Schedule], Awaitable[None]], int] = {
    Schedule.crash: 8, Schedule.fault: 12, Schedule.time_passes: 6, Schedule.run_now: 3, Schedule.deploy: 4,
    Schedule.person: 5, Schedule.reprocess: 4, Schedule.reopen: 1, Schedule.pause: 1, Schedule.resume: 2,
    Schedule.arrive: 4, Schedule.vanish: 1,
}

Fault = Callable[[World, str, int], object]


def _raises(error: BaseException) -> Fault:
    return lambda world, name, times: world.on(name).fail(error, times=times)


_FAULTS: dict[str, Fault] = {
    "transient": _raises(Transient("Come later.")),
    "rejected": _raises(Rejected("This is wrong.")),
    "permission": _raises(PermissionDenied("The login has expired.")),
    "precondition": _raises(PreconditionFailed("It is gone.")),
    "request lost": _raises(OutcomeUnknown("The request was lost.")),
    "odd error": _raises(ValueError("What?")),
    "answer lost": lambda world, name, times: world.on(name).lose_answer(times=times),
    "cannot tell yet": lambda world, name, times: world.on_reconcile(name).retry(times=times),
    "can never tell": lambda world, name, times: world.on_reconcile(name).unknown(times=times),
    "asking fails": lambda world, name, times: world.on_reconcile(name).fail(OSError("no line"), times=times),
}


async def first_ledger(folder: Path) -> Path:
    """A ledger in which the first version is deployed and nothing has run."""
    path, world = folder / "first.db", World()
    async with Keep(path, connectors=[Feed(), BlindOffice(world)], clock=ManualClock(START)) as keep:
        await keep.deploy(Plan().script(), grants="all")
    return path


async def simulate(
    seeds: Iterable[int], *, reached: Counter[str] | None = None,
) -> list[Violation]:
    """Live through these schedules; gives what was broken."""
    found: list[Violation] = []
    with in_memory() as folder:
        like = await first_ledger(folder)
        for seed in seeds:
            own = folder / str(seed)
            own.mkdir()
            schedule = Schedule(own, seed, like)
            try:
                await schedule.live()
            except Violation as violation:
                found.append(violation)
            except Exception as error:
                broke = Violation(seed, f"{type(error).__name__}: {error}", schedule.told)
                broke.__cause__ = error
                found.append(broke)
            if reached is not None:
                reached.update(schedule.reached)
            shutil.rmtree(own)
    return found


def main() -> int:
    """The command; what was found until it is interrupted is told as well."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate.items", description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first one; the others follow")
    given = parser.parse_args()
    began, begun_cpu = time.monotonic(), time.process_time()
    reached: Counter[str] = Counter()
    done, broken, end = given.seed, 0, given.seed + given.schedules
    with contextlib.suppress(KeyboardInterrupt):
        while done < end:
            seeds = range(done, min(done + 50, end))
            found = asyncio.run(simulate(seeds, reached=reached))
            for violation in found:
                print(violation, file=sys.stderr, flush=True)
            done, broken = seeds.stop, broken + len(found)
    seconds, cpu, count = time.monotonic() - began, time.process_time() - begun_cpu, done - given.seed
    print("; ".join(f"{what} {times}" for what, times in sorted(reached.items())))
    print(
        f"{count} schedules, seeds {given.seed} to {done - 1}: {broken} violations, {seconds:.0f} s "
        f"({count / seconds:.1f} per second, {cpu:.0f} s of CPU)"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
