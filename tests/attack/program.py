# ruff: noqa: E501 (an attack is read best on one line)
"""`python -m tests.attack --budget 3m`: every attack on every door, then one table; exit code 1 if one got through.

`--only AREA` attacks one area, `--attack "words"` only the attacks with these words in their names (a number: the drawn
attack of that seed; drawn: those alone), `--rounds N` draws so many per area instead of going by time, `--seed N` begins elsewhere, and
`--plant "words"` puts a weakness in first, which the table must then show as broken; `--plants` lists them.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import importlib
import json
import logging
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from unittest.mock import patch

from keepai.runtime.javascript import fork_client
from tests.attack.base import Area, Tally, run, table
from tests.nursery import Nursery
from tests.prove.program import seconds_of

#: The modules of this folder, in the order of the table.
AREAS = (
    "scripts", "frames", "rules", "approvals", "letters", "strangers", "egress", "webhook",
    "page", "connections", "control", "agents", "files", "disk", "vault", "secrets",
    "sql", "repair", "models", "packages",
)


def area(name: str) -> Area:
    """One area by its name."""
    found: Area = importlib.import_module(f"tests.attack.{name}").AREA
    return found


#: Here workers are what is attacked: their server starts as it does for everybody.
PLAIN = ("scripts",)


@cache
def nursery() -> Nursery:
    """One process from which hosts get their script servers: areas open many hosts, and each server would cost a second."""
    made = Nursery()
    atexit.register(made.close)
    return made


def quick_servers(name: str) -> AbstractContextManager[object]:
    """Within it, hosts of an area start quickly."""
    plain = name in PLAIN or sys.platform != "linux"
    return nullcontext() if plain else patch.object(fork_client, "_spawn", nursery().spawn)


def attacked(
    names: list[str], *, budget: float, rounds: int | None, seed: int, only: str = "", plant: str = "",
    first: bool = False,
) -> list[Tally]:
    """Attack these areas one after the other; what time is left is shared among those to come."""
    tallies, until = [], time.monotonic() + budget
    for left, name in zip(range(len(names), 0, -1), names, strict=True):
        each = area(name)
        share = max(0.0, until - time.monotonic()) / left
        print(f"{name}: {each.says} …", file=sys.stderr, flush=True)
        weak = next((one for one in each.planted if plant and plant in one.name), None)
        with quick_servers(name), tempfile.TemporaryDirectory() as folder, weak.weaken() if weak else nullcontext():
            attack = run(each, Path(folder), seed=seed, rounds=rounds, seconds=share, only=only, first=first)
            tallies.append(asyncio.run(attack))
    return tallies


def main() -> int:
    """Attack, print, and say whether anything got through."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--budget", type=seconds_of, default=60.0)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=AREAS, action="append")
    parser.add_argument("--attack", default="")
    parser.add_argument("--plant", default="")
    parser.add_argument("--plants", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = given.only or list(AREAS)
    if given.plants:
        print("\n".join(f"{name}: {each.name}" for name in names for each in area(name).planted))
        return 0
    logging.lastResort = None  # hosts are killed on purpose, and say so
    tallies = attacked(
        names, budget=given.budget, rounds=given.rounds, seed=given.seed, only=given.attack, plant=given.plant)
    print(json.dumps([{**vars(each), "held": each.held, "broken": [vars(one) for one in each.broken]}
                      for each in tallies], indent=1) if given.json else table(tallies))
    return int(any(each.broken for each in tallies))
