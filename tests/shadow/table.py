"""Offers bad repairs to the gate, and runs unchanged scripts over many recorded runs; prints what came of it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from keepai.engine import repair
from keepai.engine.host_parts import Loaded
from keepai.engine.repair_gate import RepairTrial, try_repair
from keepai.model.errors import Refused, ScriptInvalid
from keepai.model.policy import Policy
from keepai.script.check import check
from tests.harness import Story
from tests.shadow.bad_repairs import UNSEEN, BadRepair, made
from tests.shadow.worlds import World, worlds

ACCEPTED_MOST = 0.01
SAME_LEAST = 0.99


async def failed(story: Story, world: World) -> str:
    """The workflow, which has done well with some inputs and failed with one."""
    wf = await story.deploy(world.faulty)
    for numbers in ((1,), (2,), (3, 4), (5,), (0,)):
        for number in numbers:
            world.deliver(story, number)
        await story.run(minutes=5)
    assert (await story.last(wf)).status == "failed:logic"
    return wf


async def judged(story: Story, wf: str, source: str) -> str | None:
    """Why a repair does not go live by itself; None: it would. Nothing changes by asking."""
    parts = story.keep.parts
    run = await story.last(wf)
    try:
        await repair.planned_repair(parts, run, repair.Fix(source), "maintainer")  # the rules that come before the gate
    except (Refused, ScriptInvalid) as error:
        return f"refused: {error.message}"
    before = (await parts.ledger.look(parts.script, wf, run.number)).manifest
    manifest = check(source, parts.surface).manifest
    assert manifest is not None
    trial: RepairTrial = await try_repair(parts, run, before, Loaded(source, manifest))
    return trial.waits


async def bad_repairs(most: int, seed: int, budget_s: float) -> int:
    """A table of the bad repairs that were made, and of those that the gate let in; 1 if there are too many."""
    began, offered, accepted = monotonic(), Counter[str](), Counter[str]()
    while True:
        for kind, why in await outcomes(list(made(most, seed))):
            offered[kind] += 1
            accepted[kind] += why is None
        seed += 1
        if monotonic() - began > budget_s:
            break
    for kind, count in sorted(offered.items()):
        print(f"{kind:48} {count:5} offered {accepted[kind]:5} let in")
    unseen = Counter({kind: count for kind, count in offered.items() if kind in UNSEEN})
    total, through = offered.total() - unseen.total(), sum(accepted[kind] for kind in offered if kind not in UNSEEN)
    print(f"{total:,} bad repairs: {through} let in ({100 * through / total:.1f} %), in {monotonic() - began:.0f} s")
    print(f"{unseen.total():,} more say something else only for the input that failed, to a target seen before: "
          f"{sum(accepted[kind] for kind in unseen)} let in. The gate does not see these.")
    return int(through >= ACCEPTED_MOST * total)


async def outcomes(repairs: Iterable[BadRepair]) -> list[tuple[str, str | None]]:
    """Of each, its kind and why it waits; the good repair of each world must go live."""
    repairs, found = list(repairs), list[tuple[str, str | None]]()
    for world in worlds():
        with tempfile.TemporaryDirectory() as folder:
            async with Story(Path(folder)) as story:
                wf = await failed(story, world)
                good = await judged(story, wf, world.repair)
                assert good is None, f"the good repair of {world.name} waits: {good}"
                found += [(each.kind, await judged(story, wf, each.source))
                          for each in repairs if each.world.name == world.name]
    return found


async def unchanged(runs: int) -> int:
    """So many recorded runs of scripts that did not change; 1 if too few are the same, or 200 take too long."""
    world = worlds()[0]
    with tempfile.TemporaryDirectory() as folder:
        async with Story(Path(folder), policy=Policy(recordings_max=runs + 100)) as story:
            wf = await story.deploy(world.repair)
            for first in range(1, runs, 500):
                for number in range(first, min(first + 500, runs)):
                    world.deliver(story, number)
                await story.run(minutes=5)
            began = monotonic()
            some = await story.keep.shadow(wf, world.repair, last=200)
            took = monotonic() - began
            report = await story.keep.shadow(wf, world.repair, last=runs)
    print(f"{some.runs} runs were compared in {took:.1f} s")
    print(f"an unchanged script: {report.words} ({100 * report.same / report.runs:.2f} % the same)")
    return int(report.runs < runs or report.same < SAME_LEAST * report.runs or took > 5)
