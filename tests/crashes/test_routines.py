"""Kill the host at every point of a routine with two items of three mutations each: everything happens once.

The points are found by a run that nobody disturbs; then one world per point is made, and its host dies there. Most of
it runs the routine without a sandbox (see tests/prove/simulate/scripts.py); a part of it with the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, OutcomeUnknown, Transient, Verdict, mutation
from keepai.ledger.opening import is_address
from keepai.model.errors import KeepError
from keepai.testing import CrashAt, Crashed, World
from tests.harness import Story
from tests.ledger.stores import Store
from tests.prove.simulate.outside import ODD, Hooks, Mails, Manners, Orders, Outside, Rows
from tests.prove.simulate.scripts import CALLS, LETTERS, Stub, script

ITEMS = ("a", "b")
LETTER = script(LETTERS + 90, "letters")

#: What the world does to the calls, by name.
WORLDS = ("works", "loses answers", "loses requests", "is busy")


class Office(Outside):
    """The outside of the simulation, where what happens is what a story's world says."""

    def __init__(self, world: World) -> None:
        super().__init__(0, Manners())
        self.world, self.quiet, self.orders = world, True, list(ITEMS)

    async def send(self, operation: str, params: dict[str, Any], call: Call, *, honours_key: bool) -> Any:
        """A side effect with a result of its own."""
        return await self.world.act(operation, params, call, lambda: {"id": f"{len(self.world.effects) + 1}", **ODD})

    async def look_up(self, call: Call) -> Verdict:
        """What became of a call."""
        earlier = next((e for e in self.world.effects if e.idempotency_key == call.idempotency_key), None)
        return Verdict.applied(earlier.result) if earlier else Verdict.failed()


class SeenHooks(Hooks):
    """Hooks that can be looked up."""

    name = "hooks"

    @mutation(identity=("unit",), target="unit", settle=0)
    async def fire(self, params: dict[str, Any], call: Call) -> Any:
        """Call a hook."""
        return await self._outside.send("hooks.fire", params, call, honours_key=False)

    @fire.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Look for the call."""
        return await self._outside.look_up(call)


class Routine(Story):
    """A story with the simulation's letters; its scripts run in the sandbox only if that is wanted."""

    def __init__(
        self, tmp_path: Path, world: str = "works", *, like: Store | None = None, sandbox: bool = False,
    ) -> None:
        tmp_path.mkdir(exist_ok=True)
        super().__init__(tmp_path)
        office = Office(self.world)
        self._more = [kind(office) for kind in (Orders, Rows, Mails, SeenHooks)]
        self.sandbox = sandbox
        if like is not None:  # a ledger in which the script is deployed already
            self.store.become(like)
        for call in CALLS:
            on = self.world.on(call)
            match world:
                case "loses answers":
                    on.lose_answer()
                case "loses requests":
                    on.fail(OutcomeUnknown("The request was lost."))
                case "is busy":
                    on.fail(Transient("Come later."))

    async def open(self) -> None:
        await super().open()
        if not self.sandbox:
            self.keep.parts.runtime = Stub()

    async def live(self, crash: CrashAt) -> bool:
        """Start a host and let it work until all is done; False if it died, and if it did not, all is right."""
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # a lane that died is no news
        try:
            with crash:
                await self.open()
                if not await self.keep.workflows():
                    await self.deploy(LETTER)
                while await self._open_runs():
                    await self.run(seconds=30)
                if crash.name is None:
                    await self.check()
                await self.keep.close()
        except Crashed:
            await self._bury()
            return False
        return True

    async def _open_runs(self) -> list[str]:
        """The runs that are not finished; before the first one, that it is to begin."""
        [wf] = [w.id for w in await self.keep.workflows()]
        runs = [r.status for r in await self.runs(wf)]
        return [r for r in runs if r.startswith(("active", "paused", "failed"))] if runs else ["to begin"]

    async def _bury(self) -> None:
        """What is left of a dead process goes: its lock is free."""
        if self.keep._shared.parts is None:
            return  # it died while it started or ended
        parts = self.keep.parts
        dead = CrashAt("dead")
        dead.crashed = True
        with dead, contextlib.suppress(Crashed, KeepError):
            await self.keep.host.close()  # the dead write nothing, not even their end
        await parts.runtime.close()
        await parts.ledger.close()

    async def check(self) -> None:
        """Each effect exactly once; whatever replay saw was the same."""
        [wf] = [w.id for w in await self.keep.workflows()]
        effects = Counter((e.operation, e.params["unit"]) for e in self.world.effects)
        assert effects == {(call, f"item {name}"): 1 for call in CALLS for name in ITEMS}, "each exactly once"
        results = {(e.params["unit"], e.operation): json.dumps(e.result) for e in self.world.effects}
        runs = await self.runs(wf)
        for effect in self.world.effects:
            earlier = [results[effect.params["unit"], call] for call in CALLS[: CALLS.index(effect.operation)]]
            assert [json.dumps(each) for each in effect.params["of"]] == earlier, "byte for byte what it was first"
        rows = await self.keep.mutations(wf)
        applied = [m for m in rows if m.status == "applied"]
        assert len(applied) == len({m.mutation_key for m in applied}) == 6
        assert {m.status for m in rows} <= {"applied", "failed"}
        assert {(i.status, i.attempt) for i in await self.keep.items(wf)} == {("done", 1)}
        assert await self.keep.needs_you() == []
        assert {r.status for r in runs} <= {"committed", "superseded", "crashed"}
        assert await self.keep.state(wf, "write") == {"runs": 1}


def numbered(reached: list[str]) -> list[tuple[str, int]]:
    """Every arrival at every point; what a timer brings may stand anywhere."""
    seen: Counter[str] = Counter()
    found = []
    for point in reached:
        seen[point] += 1
        if not point.endswith(":nothing"):
            found.append((point, seen[point]))
    return found


async def deployed(tmp_path: Path) -> Store:
    """A ledger in which the script is deployed and nothing has run."""
    story = Routine(tmp_path)
    async with story:
        await story.deploy(LETTER)
    return story.store


async def points_of(story: Routine, *, after: tuple[str, int] | None = None) -> list[tuple[str, int]]:
    """Every point that a life passes; with `after`, a life that follows one that ended there."""
    if after is not None:
        assert not await story.live(CrashAt(after[0], nth=after[1])), after
    undisturbed = CrashAt(None)
    assert await story.live(undisturbed)
    return numbered(undisturbed.reached)


async def survives(story: Routine, *crashes: tuple[str, int]) -> None:
    """Die at these points, one life after the other; then live."""
    for point, nth in crashes:
        assert not await story.live(CrashAt(point, nth=nth)), f"{point}:{nth} was not reached"
    try:
        assert await story.live(CrashAt(None))
    except AssertionError as error:
        raise AssertionError(f"after a crash at {crashes}") from error


VERBS = {
    "works": {"begin", "begin_item", "send", "call", "apply", "end_item", "commit_routine", "end_host"},
    "loses answers": {"doubt", "confirm_applied"},
    "loses requests": {"doubt", "still_doubt", "confirm_absent", "carry_on"},
    "is busy": {"refuse", "carry_on"},
}


@pytest.mark.parametrize("world", WORLDS)
async def test_a_host_killed_at_any_point_of_a_routine_leaves_nothing_lost_and_nothing_twice(
    tmp_path: Path, world: str,
) -> None:
    # R287, R293; before a call the world has not applied it, after it has, and it may lose either on the way
    like = await deployed(tmp_path / "deployed")
    points = await points_of(Routine(tmp_path / "undisturbed", world, like=like))
    shared = {"share"} if is_address(like.path) else set()
    verbs = VERBS["works"] | VERBS[world] | shared
    assert {point.partition(":")[2] for point, _ in points} == verbs, "no verb is forgotten"
    assert len(points) >= 48
    every = 3 if world == "is busy" else 1  # its two halves are in the other worlds
    for number, crash in list(enumerate(points))[::every]:
        await survives(Routine(tmp_path / str(number), world, like=like), crash)


@pytest.mark.parametrize("world", WORLDS)
async def test_a_host_killed_again_while_it_recovers_changes_nothing(tmp_path: Path, world: str) -> None:
    # R293: a sample of first crashes, and after each a sample of second ones
    chance, like = random.Random(world), await deployed(tmp_path / "deployed")
    firsts = await points_of(Routine(tmp_path / "undisturbed", world, like=like))
    for first in chance.sample([p for p in firsts if "end_host" not in p[0]], 3):
        below = tmp_path / f"{first[0]} {first[1]}".replace(":", " ")
        seconds = await points_of(Routine(below, world, like=like), after=first)
        for number, second in enumerate(chance.sample(seconds, 6)):
            await survives(Routine(below / str(number), world, like=like), first, second)


def sampled() -> Iterator[tuple[str, int]]:
    """A few points around the first call, the middle of an item, and its end."""
    for verb in ("begin_item", "send", "call", "apply", "end_item"):
        for side in ("before", "after"):
            for nth in ((2,) if verb in ("begin_item", "end_item") else (1, 5)):
                yield f"{side}:{verb}", nth


@pytest.mark.parametrize(("point", "nth"), list(sampled()))
async def test_the_same_in_the_sandbox(tmp_path: Path, point: str, nth: int) -> None:
    await survives(Routine(tmp_path, sandbox=True), (point, nth))


async def test_a_routine_that_kills_its_host_three_times_in_a_row_is_stopped_and_told_of(tmp_path: Path) -> None:
    # R294: and a person has it tried again, with what is missing. The first life brought something about.
    story = Routine(tmp_path)
    for _ in range(4):
        assert not await story.live(CrashAt("before:end_item"))
    await story.open()
    [wf] = [w.id for w in await story.keep.workflows()]
    [asked] = await story.keep.needs_you(wf)
    assert (asked.kind, asked.facts["status"]) == ("internal", "failed:internal")
    assert len(story.world.effects) == 3
    await story.keep.retry(asked.run_id)
    await story.keep.close()
    assert await story.live(CrashAt(None))
