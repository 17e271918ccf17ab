# ruff: noqa: E501 (an attack is read best on one line)
"""A worker that was taken over says whatever it likes: the host hears no more than a script could have asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from keepai.model.errors import LimitExceeded, PhaseViolation, ScriptError
from keepai.model.operations import ALLOWED, Kind, Step
from keepai.runtime.base import Ahead, Ended, Job
from keepai.runtime.javascript import step_session
from tests.attack.base import Area, Attack, Broken, Planted, must
from tests.runtime.forger import FORGED, Forger, call, forged, raw
from tests.runtime.script_world import LIMITS, SURFACE, FakeHost, Stalling, job


@asynccontextmanager
async def place(_folder: Path) -> AsyncIterator[None]:
    yield None


def attacks(_place: None) -> Iterator[Attack]:
    for name, said in FORGED.items():
        yield Attack(f"a forged frame: {name}", lambda said=said: _kills(said))
    many = b"".join(call(id=number) for number in range(6))
    yield Attack("a worker makes more calls than a script may",
                 lambda: _stops(many, job("", limits=replace(LIMITS, calls_max=5)), LimitExceeded, 5))
    items = b"".join(call('"a"', '"A"', '"begin"', id=number, name="withItem") for number in range(9))
    yield Attack("a worker begins more items than a script may",
                 lambda: _stops(items, job("", Step.ROUTINE, limits=replace(LIMITS, items_max=2)), LimitExceeded, 4))
    for step in (Step.PRODUCER, Step.PREPARE, Step.NEXT):
        yield Attack(f"a worker sends mail in the step {step}",
                     lambda step=step: _stops(call(name="gmail.send") + raw(b""), job("", step), PhaseViolation, 0))
    yield Attack("a worker that says nothing holds its step for ever",
                 lambda: _stops(b"", job("", limits=replace(LIMITS, compute_s=0.1)), LimitExceeded, 0))


async def _kills(said: bytes) -> None:
    host, forger = Stalling(), Forger()
    try:
        ended = await forger.run(said, job(""), host)
    except ScriptError:
        must(forger.killed, "the worker lives on")
    else:
        raise Broken(f"the step ended as if nothing were wrong: {ended}")
    must(all(name == "gmail.get" for name in host.names), f"the host was asked for {host.names}")


async def _stops(said: bytes, made: Job, error: type[ScriptError], most: int) -> None:
    host, forger, outcome = FakeHost(), Forger(), None
    try:
        await forger.run(said, made, host)
    except ScriptError as raised:
        outcome = raised
    must(len(host.operations) <= most, f"the host was asked {len(host.operations)} times: {host.names[:5]}")
    must(isinstance(outcome, error), f"the step ended with {outcome!r}")
    must(forger.killed, "the worker lives on")


_ODD: list[Any] = [
    None, True, -1, 0, 7, 1 << 70, 1e308, "", "1", "null", '"x"', "gmail.get", "gmail.send", "sheets.appendRow", "peek",
    "publish", "withItem", "__class__", "gmail", "gmail.", ".get", "mutation", "end", "fail", "used", ["gmail.send", None],
    "log", "call", "info", "script_threw", [], [1], ["1"], ['{"a":1}'], {}, {"a": 1}, "\u2028", "x" * 5000, [[]] * 50,
]


def drawn(_place: None, chance: Random) -> Attack:
    """Frames of every kind with members changed, left out and added; the last one ends the step."""
    said = b"".join(_frame(chance) for _ in range(chance.randint(1, 12)))
    step = chance.choice(list(Step))

    async def attack() -> None:
        host, forger = FakeHost(), Forger()
        made = job("", step, limits=replace(LIMITS, calls_max=20))
        if step is Step.PREPARE:
            made = replace(made, ahead=Ahead(ALLOWED[Step.MUTATE], 0))
        try:
            ended = await forger.run(said, made, host, later=raw(b""))
        except ScriptError as error:
            error.message.encode()  # what is kept and shown of it
        else:
            must(isinstance(ended, Ended) and (ended.mutation is None or step is Step.MUTATE), f"{ended} in {step}")
            must(ended.ahead is None or ended.ahead.kind is Kind.MUTATION, f"{ended} foresees another call")
        kinds = {SURFACE.kind(name) for name in host.names}
        must(kinds <= ALLOWED[step], f"in {step} the host was asked for {sorted(host.names)}")
        for operation in host.operations:
            json.dumps(operation.args, allow_nan=False)

    return Attack(f"forged frames in the step {step}", attack)


def _frame(chance: Random) -> bytes:
    if chance.random() < 0.05:
        return raw(chance.randbytes(chance.randint(0, 40)))
    if chance.random() < 0.5:  # one that is well made, so that the others are heard at all
        return call("{}", id=chance.randint(0, 99), name=chance.choice(_NAMES))
    kind = chance.choice(["call", "mutation", "log", "end", "end", "used", "fail", "root"])
    texts = [chance.choice(_TEXTS) for _ in range(chance.choice([0, 1, 1, 1, 2]))]
    members: dict[str, Any] = {
        "call": {"id": chance.randint(0, 9), "name": chance.choice(_NAMES), "at": [1, 1]}, "mutation": {"name": "gmail.send", "at": None},
        "log": {"level": "info"}, "fail": {"code": "script_threw", "message": "m"},
    }.get(kind, {})
    for _ in range(chance.choice([0, 1, 1, 2])):
        members[chance.choice([*members, "n", "sizes", "extra", "fixed", "name", "level", "used", "mutate"])] = chance.choice(_ODD)
    data = bytearray(forged(kind, *texts, **members))
    if chance.random() < 0.2:  # behind the length, so that the next frame is still one
        data[chance.randrange(4, len(data))] = chance.randrange(256)
    return bytes(data)


_NAMES = ("gmail.get", "gmail.search", "gmail.send", "peek", "publish", "registerInput", "sheets.appendRow", "withItem")
_TEXTS = ("1", "null", "{}", '{"a":1}', "", "{", "NaN", '"\\ud800"', "[" * 600, "1" * 400, '{"a":1,"a":2}', '"x"', "\u2028", "ü")


def _any_step(self: step_session.StepSession, name: Any, place: Any, args: Any, step: Step, allowed: Any) -> Any:
    return _operation(self, name, place, args, step, allowed | ALLOWED[Step.MUTATE])


_operation = step_session.StepSession._operation


AREA = Area(
    "frames", "the host, by a sandbox worker that was taken over", place, attacks, drawn,
    (
        Planted("every step may send", lambda: patch.object(step_session.StepSession, "_operation", _any_step), "sends mail in"),
        Planted("every step may send, seen by drawn frames",
                lambda: patch.object(step_session.StepSession, "_operation", _any_step), rounds=200),
    ),
)
