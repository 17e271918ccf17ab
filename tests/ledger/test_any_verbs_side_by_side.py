"""Whatever verbs of a run are given side by side, they answer and leave what they do one after the other.

Each round has one random verb of every workflow (those of test_same_answers.py, with the same choices). In one ledger
they come one after the other. In the other one those that were done are one group; in every fourth round those that
were refused are part of it: then the group is undone, and its verbs are given again, each alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepai.ledger.base import Row, Tx
from keepai.ledger.checks import check
from keepai.ledger.postgres.store import PostgresLedger
from keepai.model.errors import KeepError
from keepai.testing import ManualClock
from tests.ledger import rows
from tests.ledger import test_same_answers as any_verbs
from tests.ledger.stores import Store, new_store, reads
from tests.ledger.test_same_answers import PROGRAM, Answers, Choose, NothingThere
from tests.ledger.test_side_by_side import Manner, left, one_by_one, together

WORKFLOWS = 6
ROUNDS = 90  #: each has a verb of every workflow
TRIES = 8  #: of verbs, until there is something that one of them can be done to

#: Those that are about one workflow, and how often each is chosen. Any other goes alone in any case.
OFTEN = tuple(zip(*((verb, often) for verb, often in PROGRAM.items()
                    if verb not in (any_verbs.deploy, any_verbs.notice, any_verbs.prune)), strict=True))


@dataclass(frozen=True)
class Turn:
    """What a verb is given: by `workflow_id` the ledger sees that it may run beside those of others."""

    nth: int
    workflow_id: str
    choose: Sequence[Choose]  # the first of them that finds something
    seed: str


@dataclass(kw_only=True)
class AnswersOf(Answers):
    """Of one workflow."""

    workflow_id: str


class OneWorkflow:
    """A transaction in which no other workflow is seen."""

    def __init__(self, tx: Tx, workflow_id: str) -> None:
        self.__dict__.update(_tx=tx, _workflow_id=workflow_id)

    def all(self, query: str, **params: object) -> list[Row]:
        found = self._tx.all(query, **params)
        column = {"workflow_all": "id", "run_open_all": "workflow_id"}.get(query)
        return [row for row in found if row[column] == self._workflow_id] if column else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._tx, name, value)


def verb(tx: Tx, turn: Turn) -> Any:
    for choose in turn.choose:
        with suppress(NothingThere):
            return choose.__name__, choose(OneWorkflow(tx, turn.workflow_id), Random(turn.seed))  # type: ignore[arg-type]
    raise NothingThere


def told(answers: Answers, given: Any) -> Any:
    """What a verb answered, or how it was refused."""
    if isinstance(given, KeepError):
        return type(given).__name__, any_verbs._ID.sub("an id", given.message.partition(" (")[0])
    if isinstance(given, NothingThere | AssertionError | KeyError):  # not meant to be asked: no engine would
        return (type(given).__name__,)
    if isinstance(given, BaseException):
        raise given
    return "done", *answers.plain(given)


@dataclass
class Side:
    """One of the two ledgers."""

    store: Store
    ledger: PostgresLedger
    answers: list[Answers]  # by workflow

    def turn(self, nth: int, choose: Sequence[Choose], seed: str) -> Turn:
        return Turn(nth, self.answers[nth].workflow_id, choose, seed)

    async def play(self, manner: Manner, turns: Sequence[Turn]) -> list[Any]:
        """What the verbs of a round answer, by workflow."""
        given = await manner(self.ledger, [(verb, turn) for turn in turns])
        return [told(self.answers[turn.nth], each) for turn, each in zip(turns, given, strict=True)]

    def left(self) -> list[Any]:
        """All that is left of every workflow."""
        # no engine would have all of these done, so the invariants of a ledger say nothing here
        assert [each for each in check(reads(self.ledger)) if not each.sound and each.name != "invariants"] == []
        return [left(self.store, self.ledger, each.workflow_id) for each in self.answers]


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[list[Side]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            store = new_store("postgres", tmp_path)
            ledger = PostgresLedger(str(store.path), clock := ManualClock())
            stack.push_async_callback(ledger.close)
            tables = stack.enter_context(store.raw())
            ids = [await ledger.write(rows.deploy, f"flow {n}") for n in range(WORKFLOWS)]
            made.append(Side(store, ledger, [AnswersOf(ledger, clock, tables, workflow_id=each) for each in ids]))
        yield made


@pytest.mark.parametrize("seed", ["1", "2"])
async def test_a_group_of_any_verbs_answers_and_leaves_what_they_do_one_after_the_other(
    sides: list[Side], seed: str,
) -> None:
    alone, grouped = sides
    chance, done, held = Random(seed), Counter[str](), 0
    for number in range(ROUNDS):
        passes = chance.choice((0, 1, 30_000))
        for side in sides:
            side.answers[0].clock.advance(ms=passes)
        drawn = [(chance.choices(*OFTEN, k=TRIES), f"{seed}.{number}.{nth}") for nth in range(WORKFLOWS)]
        answers = await alone.play(one_by_one, [alone.turn(nth, *each) for nth, each in enumerate(drawn)])
        fits = [nth for nth in range(WORKFLOWS) if answers[nth][0] == "done" or number % 4 == 0]
        again = await grouped.play(together, [grouped.turn(nth, *drawn[nth]) for nth in fits])
        assert again == [answers[nth] for nth in fits], number
        done.update(answer[1] for answer in again if answer[0] == "done")
        held += number % 4 > 0 and len(fits) > 1
    assert grouped.left() == alone.left()
    assert held > ROUNDS / 3, "many groups have several verbs, of which none is refused"
    assert done.keys() > {"begin", "prepare", "prepare_and_send", "advance", "send", "apply", "finish", "stop", "go_on"}
