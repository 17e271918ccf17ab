"""Certifies what is right and what is faulty, and prints what was found, by kind."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from keepai.config import load
from keepai.doors.cli.wiring import make_connector
from keepai.engine.certificate import Certification
from keepai.model.errors import ScriptInvalid
from keepai.model.policy import Policy
from keepai.testing.certify import certify
from keepai.testing.certify.compared import compared
from keepai.testing.certify.life import Seen, SeenEffect
from keepai.testing.certify.try_script import contract_state
from tests.certify.bases import Base, bases
from tests.certify.faulty_connectors import FaultyConnector, faulty_connectors, right_connectors
from tests.certify.faulty_scripts import FaultyScript, faulty_scripts

FOUND_LEAST = 0.95
Row = tuple[str, str, bool]  # kind, name, found


def tried(base: Base, source: str | None = None, *, to_first: bool = False) -> Certification:
    """Certify a script, or another text in its place."""
    return asyncio.run(certify(
        source or base.source, base.cases, base.connectors, Policy(), script=f"{base.name}.js", to_first=to_first))


def found_in_script(each: FaultyScript) -> bool:
    """Whether the fault is found."""
    try:
        return not tried(each.base, each.source, to_first=True).passed
    except ScriptInvalid:  # `check` finds it before any trial
        return True


def found_in_connector(each: FaultyConnector) -> bool:
    """Whether its contract, or the comparison of payloads that certify makes, shows a fault."""
    with tempfile.TemporaryDirectory() as folder:
        each.write(Path(folder))
        [connector] = load(Path(folder) / "keep.toml", make=make_connector).connectors
        specs = {spec.full_name: spec for spec in connector.operations.values()}
        seen = Seen(effects=[SeenEffect("tickets.create", frozenset(), "", {"text": "Water them."}, None)])
        wrong = [fault for _, faults in compared(seen, specs) for fault in faults]
        return bool(wrong) or asyncio.run(contract_state(connector)) != "passed"


def faulty(most: int) -> int:
    """A table of the faults that were made, and of those that were found; 1 if too few were."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = _some(faulty_scripts(bases(Path(folder))), most)
        rows = [("script: " + each.kind, each.base.name, found_in_script(each)) for each in scripts]
        rows += [("connector: " + each.kind, each.name, found_in_connector(each))
                 for each in _some(faulty_connectors(), most)]
    _print(rows)
    return int(sum(found for _, _, found in rows) < FOUND_LEAST * len(rows))


def right() -> int:
    """A line for everything that is right; 1 if a fault is seen in it."""
    with tempfile.TemporaryDirectory() as folder:
        alarms = {base.name: tried(base) for base in bases(Path(folder))}
    connectors = {each.name: found_in_connector(each) for each in right_connectors()}
    for name, done in alarms.items():
        told = f"FALSE ALARM {done.broken[0].what}" if done.broken else "ok"
        print(f"{name:28} {done.trials:5} trials {done.seconds:6.1f} s  {told}")
    wrong = sum(not done.passed for done in alarms.values()) + sum(connectors.values())
    print(f"{len(alarms)} scripts and {len(connectors)} connectors that are right: {wrong} false alarms")
    return int(wrong > 0)


def speed() -> int:
    """How long the template takes, and a thousand trials; 1 if that is more than it may be."""
    with tempfile.TemporaryDirectory() as folder:
        every = {base.name: base for base in bases(Path(folder))}
        template = tried(every["invoices"])
        print(f"the template: {template.trials} trials in {template.seconds:.1f} s")
        begun, trials = perf_counter(), 0
        for base in every.values():
            trials += tried(base).trials
            if trials >= 1_000:
                break
        taken = (perf_counter() - begun) / trials * 1_000
        print(f"1,000 trials: {taken:.1f} s")
    return int(template.seconds > 10 or taken > 120)


T = TypeVar("T", FaultyScript, FaultyConnector)


def _some(every: Iterable[T], most: int) -> list[T]:
    """At most so many of each kind."""
    by_kind: dict[str, list[T]] = defaultdict(list)
    for each in every:
        by_kind[each.kind].append(each)
    return [each for group in by_kind.values() for each in group[:most]]


def _print(rows: list[Row]) -> None:
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row[0]].append(row)
    print(f"{'fault':48} {'made':>5} {'found':>6}  missed")
    for kind, group in kinds.items():
        missed = ", ".join(name for _, name, found in group if not found)
        print(f"{kind:48} {len(group):5} {sum(found for _, _, found in group):6}  {missed}")
    found = sum(each for _, _, each in rows)
    print(f"{'all':48} {len(rows):5} {found:6}  {found / len(rows):.1%}")
