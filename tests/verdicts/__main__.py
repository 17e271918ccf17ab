"""`python -m tests.verdicts`: is every verdict on a new version what really comes of it? Random pairs, then a table."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from time import perf_counter

from keepai.model.policy import Policy
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.verdicts.trial_of_pair import judge

parser = argparse.ArgumentParser(prog="python -m tests.verdicts", description=__doc__)
parser.add_argument("--pairs", type=int, default=1_000, metavar="N")
parser.add_argument("--first", type=int, default=1, metavar="SEED")
parser.add_argument("--budget", type=float, default=600, metavar="SECONDS")
MEMORY = "/dev/shm"


async def main(pairs: int, first: int, budget: float) -> int:
    """Judge the pairs for which there is time; 1 if a verdict was wrong."""
    begun, fates, tried, wrong, stranded, done = perf_counter(), Counter[str](), Counter[str](), 0, 0, 0
    moved = 0
    runtime = JavaScriptRuntime(workers_max=Policy().workers_max, speculate=Policy().speculate)
    try:
        for seed in range(first, first + pairs):
            if perf_counter() - begun > budget:
                break
            judged = await judge(seed, runtime, MEMORY if os.access(MEMORY, os.W_OK) else None)
            done, fates, tried = done + 1, fates + judged.fates, tried + judged.tried
            moved += judged.moved
            wrong, stranded = wrong + len(judged.wrong), stranded + len(judged.stranded)
            for told in (*judged.wrong, *judged.stranded):
                print(f"seed {seed}: {told}", flush=True)
    finally:
        await runtime.close()
    for name, number in sorted(fates.items()):
        print(f"{name:28} {number:6}")
    for name, number in sorted(tried.items()):
        print(f"tried: {name:21} {number:6}")
    print(f"{done} pairs in {perf_counter() - begun:.0f} s: {sum(fates.values())} verdicts "
          f"({moved} more moved before the deploy), {wrong} wrong, {stranded} pairs with something stranded")
    return int(wrong + stranded > 0 or not done)


chosen = parser.parse_args()
sys.exit(asyncio.run(main(chosen.pairs, chosen.first, chosen.budget)))
