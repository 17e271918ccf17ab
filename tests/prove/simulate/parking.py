"""Schedules in which runs are parked: `python -m tests.prove --suite parking --budget 35m`.

Two handlers write to the same few books and share inputs, one counts in its state, and people are asked much; in a
third of the schedules a routine works through a list of which it reads each entry once. After every commit, whatever
is under way is compared with what is parked: by what the script is known to do, and never by what the engine has
written down of it.
"""

from __future__ import annotations

import gc
import json
import random
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.folders import memory_folder
from tests.prove.base import Result, rounds, trial
from tests.prove.simulate.judge import judge
from tests.prove.simulate.outside import Manners
from tests.prove.simulate.schedule import Weather, World, weather
from tests.prove.simulate.schedule import play as play_any
from tests.prove.simulate.scripts import OF_BOOKS, book_of

SCHEDULE_S_MAX = 120.0
_APART = 7_000_003  # so that no seed draws what it draws elsewhere


def parking_weather(seed: int) -> Weather:
    """Drawn once per seed: as in any schedule, but for what makes runs wait for people."""
    r = random.Random(seed + _APART)
    usual = weather(seed + _APART)
    while usual.calm:  # nothing goes wrong in those, so nobody is asked
        usual = weather(r.randrange(1 << 40))
    manners = usual.manners
    if r.random() < 0.3:  # nothing but questions
        manners = Manners(never_tells=0.5, lose_answer=0.3 if r.random() < 0.5 else 0.0)
    asks = tuple(name for name in OF_BOOKS[1:] if r.random() < 0.6)
    modes = ("others", *(["intake", "stop", "others"] if r.random() < 0.25 else []))
    if r.random() < 0.1:
        modes = ("intake",)
    return replace(
        usual, manners=manners, shape="list" if seed % 3 == 2 else "books", orders=r.choice([2, 4, 6, 9]), asks=asks,
        waiting=modes, shared=False, skips=0.0, vanishes=0, deploys=usual.deploys if r.random() < 0.5 else 0,
        reprocesses=0 if seed % 3 == 2 else usual.reprocesses,  # the list is read once
    )


def play(seed: int, folder: Path) -> World:
    """One schedule; what is wrong is in `problems`."""
    return play_any(seed, folder, _judge, parking_weather, _watch)


# -- after every commit --------------------------------------------------------------------------------

_PARKED = """
  select p.id, p.lineage, p.handler, p.phase, p.status, p.reason, f.seq,
    exists (select 1 from mutation m where m.run_id = p.id
      and m.status in ('in_flight', 'needs_reconcile', 'indeterminate')) as doubted
  from run p join run f on f.id = p.lineage
  where p.parked <> 0 and p.status in ('paused', 'failed') order by f.seq"""
_ACTIVE = """
  select r.id, r.lineage, r.handler, r.phase, r.status, r.reason, f.seq, 0 as doubted
  from run r join run f on f.id = r.lineage where r.parked = 0 and r.status = 'active'"""
_TAKEN = """
  select v.topic, coalesce(v.payload, e.payload), c.input_id from reservation v join event e on e.id = v.event_id
  left join event_cause c on c.event_id = v.event_id and c.attempt = v.attempt and c.revision <= v.revision
  where v.run_id = ?"""


def _watch(world: World) -> None:
    """Nothing that is under way takes what a parked run holds."""
    if world.weather.shape == "list":
        _watch_list(world)
        return
    connection = world.memory.connection
    active = connection.execute(_ACTIVE).fetchone()
    if active is None:
        return
    sends = connection.execute("select connector || ': ' || target from mutation where status = 'in_flight'").fetchone()
    own = _taken(connection, active[0])
    for parked in connection.execute(_PARKED).fetchall():
        if parked[1] == active[1]:
            world.problems.append(f"a lineage is parked and goes on: {parked[1]}")
        held = _taken(connection, parked[0])
        if held[0] & own[0]:
            world.problems.append(f"cause not held: {active[2]} works on an input of a parked run of {parked[2]}")
        if parked[2] == active[2] == "count":
            world.problems.append("state not held: two runs of a handler that uses state, one of them parked")
        # what `next` of a parked run has still to say goes to nobody's book
        later = parked[6] < active[6] or parked[7]
        if sends and later and parked[3] != "emitting" and sends[0] in held[1]:
            kind = "order broken" if parked[5] == "held" else "target not held"
            world.problems.append(f"{kind}: {active[2]} writes to {sends[0]} before a parked run of {parked[2]}")


def _taken(connection: Any, run_id: int) -> tuple[set[int], set[str]]:
    """The inputs behind what a run has reserved, and where it writes because of it."""
    inputs, targets = set[int](), set[str]()
    for topic, payload, input_id in connection.execute(_TAKEN, [run_id]):
        inputs |= {input_id} - {None}
        data = json.loads(payload)
        targets.add(f"mails: {data['unit']}" if topic == "booked" else f"books: {data['to']}")
    return inputs, targets


_SENDING = """
  select m.target, i.external_id, m.lineage, f.seq from mutation m join item i on i.id = m.item_id
  join run f on f.id = m.lineage where m.status = 'in_flight' and m.parked = 0"""
_BEGUN = """
  select i.external_id, i.status from item i join item_run x on x.item_id = i.id and x.attempt = i.attempt
  join run r on r.id = x.run_id where r.lineage = ? order by x.seq desc limit 1"""
_ENTERED = """
  select 1 from mutation m join item i on i.id = m.item_id
  where i.external_id = ? and m.operation = 'enter' and m.status in ('applied', 'skipped')"""
_LEFT = """
  select i.external_id from item i where i.status = 'failed' and not exists (
    select 1 from item_run x join run r on r.id = x.run_id join run o on o.lineage = r.lineage
    where x.item_id = i.id and o.status in ('active', 'paused', 'failed'))"""


def _watch_list(world: World) -> None:
    """An item with which a run is parked is not another's, its book is held for it, and none is lost; what the routine
    has read it never reads again."""
    connection = world.memory.connection
    row = connection.execute("select state from handler_state where handler = 'list'").fetchone()
    seen = json.loads(row[0])["seen"] if row and row[0] else 0
    if seen < world.seen:
        world.problems.append(f"state went back: the routine had read {world.seen} orders, and now it is {seen}")
    world.seen = seen
    gave_up = connection.execute("select 1 from action where act = 'skip_run' limit 1").fetchone()
    for (id,) in [] if gave_up else connection.execute(_LEFT).fetchall():
        world.problems.append(f"item lost: {id} is unfinished, and no run has it in hand")
    sending = connection.execute(_SENDING).fetchone()
    for parked in connection.execute(_PARKED).fetchall() if sending else []:
        begun = connection.execute(_BEGUN, [parked[1]]).fetchone()
        if begun is None or begun[1] in ("done", "skipped") or parked[1] == sending[2]:
            continue
        if begun[0] == sending[1]:
            world.problems.append(f"item not held: {sending[1]} is worked on while a run is parked with it")
        later = parked[6] < sending[3] or parked[7]
        if later and sending[0] == book_of(begun[0]) and connection.execute(_ENTERED, [begun[0]]).fetchone() is None:
            world.problems.append(f"target not held: {sending[1]} is entered in {sending[0]} before {begun[0]}")


# -- at the end ----------------------------------------------------------------------------------------


def _judge(world: World) -> None:
    judge(world)
    if world.weather.shape == "books":
        _counted(world)


def _counted(world: World) -> None:
    """The handler that counts in its state has lost no count."""
    connection = world.memory.connection
    acts = {act for (act,) in connection.execute("select distinct act from action")}
    row = connection.execute("select state from handler_state where handler = 'count'").fetchone()
    counted = json.loads(row[0])["count"] if row and row[0] else 0
    [[committed]] = connection.execute(
        "select count(distinct r.id) from run r join reservation v on v.run_id = r.id "
        "where r.handler = 'count' and r.status = 'committed'")
    if "finish" not in acts and counted != committed:
        world.problems.append(f"state not held: {committed} runs have counted, and the count is {counted}")


def run(seconds: float, first: int, only: str | None) -> Result:
    """Schedules until the time is up."""
    result, parked, virtual = Result("parking", "schedules"), Counter[str](), 0.0
    gc.freeze()
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        for seed in rounds(seconds, first, only):
            with trial(result, seed, SCHEDULE_S_MAX):
                world = play(seed, Path(folder) / "sim")
                virtual += world.loop.time()
                parked["runs"] += world.parked
                for problem in world.problems:
                    result.broke(seed, problem)
            result.tried += 1
    result.note = f"{virtual / 86_400:,.0f} days of virtual time, {parked['runs']:,} runs were parked"
    return result
