"""The steps that the simulation runs in Python are the steps that the sandbox runs in JavaScript."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from typing import Any

from keepai.connectors.base import surface
from keepai.model.errors import ScriptThrew
from keepai.model.operations import ALLOWED, Kind, Step
from keepai.runtime.base import Ahead, Fixed, Job, Limits, LogLine, Operation, Reply
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.prove.simulate.outside import ODD, Books, Hooks, Mails, Manners, Orders, Outside, Rows
from tests.prove.simulate.scripts import LETTERS, Stub, every_other, script

_EVENTS = [
    {"messageId": id, "payload": {"id": f"{id} itself", "unit": id, "to": "book 1"}} for id in ("o1", "o2", "o3")]
_RESULT = {"id": "r1", "unit": "o1"}
_PREPARED = {"reservations": [], "data": {"unit": "o1"}, "ui": {"title": "File"}}

#: Handler, step, its arguments, and what the host answers to each name in turn.
STEPS: list[tuple[str, Step, list[Any], dict[str, list[Any]]]] = [
    ("poll", Step.PRODUCER, [None], {"orders.list": [["o1", "o2"]], "registerInput": ["i1", "i2"]}),
    ("poll", Step.PRODUCER, [{"seen": 1}], {"orders.list": [["o1", "o2"]], "registerInput": ["i2"]}),
    ("file", Step.PREPARE, [None], {"peek": [_EVENTS[:1]]}),
    ("file", Step.PREPARE, [None], {"peek": [_EVENTS]}),
    ("file", Step.PREPARE, [None], {"peek": [[]]}),
    ("file", Step.MUTATE, [_PREPARED], {}),
    ("file", Step.NEXT, [_PREPARED, {"status": "applied", "result": _RESULT}], {}),
    ("file", Step.NEXT, [_PREPARED, {"status": "skipped"}], {}),
    ("tell", Step.PREPARE, [None], {"peek": [[]]}),
    ("tell", Step.PREPARE, [None], {"peek": [_EVENTS[:1]]}),
    ("tell", Step.MUTATE, [_PREPARED], {}),
    ("work", Step.ROUTINE, [None], {"orders.list": [[]]}),
    ("work", Step.ROUTINE, [{"runs": 2}], {
        "orders.list": [["o1", "o2"]], "withItem": [{"isDone": True}, None, {"isDone": False}, None],
        "rows.add": [{"id": "r7"}], "mails.send": [{}], "hooks.fire": [{}]}),
]
_LETTERS = ("write", Step.ROUTINE, [{"runs": 2}], {
    "orders.list": [["o1", "o2", "o3"]], "withItem": [{"isDone": True}, None, *[{"isDone": False}, None] * 2],
    "rows.add": [{"id": "r7", **ODD}] * 2, "mails.send": [{"id": "m7", **ODD}] * 2, "hooks.fire": [{}] * 2})

_BOOK = {"reservations": [], "data": {"id": "o1", "to": "book 0"}, "ui": {"title": "Book"}}
_COUNTED = {"reservations": [], "data": {"unit": "o1", "before": 4}, "ui": {"title": "Count"}}

BOOKS: list[tuple[str, Step, list[Any], dict[str, list[Any]]]] = [
    ("poll", Step.PRODUCER, [{"seen": 1}], {"orders.list": [["o1", "o2"]], "registerInput": ["i2"]}),
    *[(handler, Step.PREPARE, [{"count": 3}], {"peek": [events]})
      for handler in ("book", "note", "count") for events in (_EVENTS[:1], [])],
    ("book", Step.MUTATE, [_BOOK], {}), ("note", Step.MUTATE, [_BOOK], {}), ("count", Step.MUTATE, [_COUNTED], {}),
    ("book", Step.NEXT, [_BOOK, {"status": "applied", "result": _RESULT}], {}),
    ("book", Step.NEXT, [_BOOK, {"status": "skipped"}], {}),
    ("count", Step.NEXT, [_COUNTED, {"status": "skipped"}], {}),
]

_FIXED = Fixed.by("o2", 1_767_603_600_000)
_AHEAD = Ahead(ALLOWED[Step.MUTATE], 1_767_603_600_000)


class Recorder:
    """A host that answers as it was told to and remembers what was asked."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self._answers = {name: list(values) for name, values in answers.items()}
        self.asked: list[tuple[str, Kind, str]] = []

    async def answer(self, operation: Operation) -> Reply:
        self._note(operation)
        waiting = self._answers.get(operation.name)
        reply = Reply.of(waiting.pop(0) if waiting else None)
        return replace(reply, fixed=_FIXED) if operation.name == "withItem" else reply

    async def foresee(self, operation: Operation) -> Reply | None:
        return Reply.of(self._answers[operation.name][0])

    def used(self, operation: Operation, reply: Reply) -> None:
        self._note(operation)

    def _note(self, operation: Operation) -> None:
        args = re.sub(r'(?<="subkey": ")(\d+) 0\.\d+', r"\1", json.dumps(operation.args, sort_keys=True))
        self.asked.append((operation.name, operation.kind, args))  # the number drawn is another one in the sandbox

    def log(self, line: LogLine) -> None:
        raise AssertionError(f"nothing logs: {line}")


async def test_every_step_asks_and_answers_the_same() -> None:
    sandbox, always = JavaScriptRuntime(workers_max=1), Stub(lambda *run: True)
    try:
        letters = [(LETTERS + 10 * throws + throws % 4, _LETTERS) for throws in (0, 1, 2, 3, 9)]
        flow = [(variant, case, "both") for variant, case in product((1, 2, 3, 101, 201), STEPS)]
        books = [(variant, case, "books") for variant, case in product((1, 2, 101), BOOKS)]
        for variant, case, shape in [*flow, *books, *((*each, "letters") for each in letters)]:
            real, stub = [await _did(runtime, shape, variant, *case) for runtime in (sandbox, always)]
            assert real == stub, (variant, case)
    finally:
        await sandbox.close()


async def _did(
    runtime: Any, shape: str, variant: int, handler: str, step: Step, args: list[Any], answers: dict[str, list[Any]],
) -> list[Any]:
    outside, recorder = Outside(0, Manners()), Recorder(answers)
    given = tuple(None if arg is None else json.dumps(arg) for arg in args)
    job = Job(
        script(variant, shape), step, handler, given, None,
        surface([kind(outside) for kind in (Orders, Rows, Mails, Hooks, Books)]), frozenset(Kind), Limits(),
        ahead=_AHEAD if step is Step.PREPARE else None,
    )
    try:
        ended = await runtime.run(job, recorder)
    except ScriptThrew as error:
        return [recorder.asked, error.message.splitlines()[0]]
    return [recorder.asked, ended.value and json.loads(ended.value), _call(ended.mutation), _call(ended.ahead)]


def _call(operation: Operation | None) -> tuple[str, Kind, Any] | None:
    return operation and (operation.name, operation.kind, operation.args)


async def test_the_call_of_mutate_comes_with_the_prepare_result_of_every_other_run() -> None:
    prepare, always = next(case for case in STEPS if case[1] is Step.PREPARE), Stub(lambda *run: True)
    assert (await _did(always, "both", 1, *prepare))[3] == ("rows.add", Kind.MUTATION, ({"unit": "o1"},))
    assert (await _did(always, "both", 101, *prepare))[3] is None, "a script that throws is run by itself"
    assert (await _did(Stub(lambda *run: False), "both", 1, *prepare))[3] is None
    job = Job("", Step.PREPARE, "file", (), None, surface([]), frozenset(), Limits())
    tried = [every_other(job, Ahead(frozenset(), ms), "{}") for ms in range(1000)]
    assert 400 < sum(tried) < 600
