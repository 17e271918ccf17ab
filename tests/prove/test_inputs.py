"""The short form of bad input at scale, what it once found, and the proof that it finds what it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from keepai import Transient, Verdict
from keepai.engine.outside import Answer
from keepai.model import errors
from tests.prove.inputs import hosts
from tests.prove.inputs.hosts import ANSWERS, Act, Hostile, Nasty, Plan
from tests.prove.inputs.property import Holds
from tests.prove.inputs.pure import CODEC
from tests.prove.inputs.suite import PROPERTIES, attempt

#: How many of a seed's inputs are tried here; `make prove` takes whole seeds.
SHARE = {"prepare results": 12, "connector answers": 12, "command lines": 25, "scripts": 25, "control requests": 30}


@pytest.mark.parametrize("each", PROPERTIES, ids=lambda each: each.name.replace(" ", "_"))
def test_whatever_comes_in_gets_an_answer(each: hosts.Property) -> None:
    count, broken = attempt(each, 1, SHARE.get(each.name, 100))
    assert broken is None
    assert count >= SHARE.get(each.name, 100) // 2


@pytest.fixture(scope="module")
def answered() -> Iterator[Holds]:
    with ANSWERS.opened() as holds:
        yield holds


CUT = Act("raise", OSError("cut"))
ONCE = {
    "a read that ends the process": Plan(read=Act("raise", SystemExit(1))),
    "a send that ends the process": Plan(send=Act("raise", SystemExit(1))),
    "a question that ends the process": Plan(send=CUT, find=Act("raise", SystemExit(1))),
    "a read that raises the ledger's conflict": Plan(read=Act("raise", errors.Conflict("mine"))),
    "a read that says that the ledger has stopped": Plan(read=Act("raise", errors.LedgerStopped("mine"))),
    "a read that asks for an approval": Plan(read=Act("raise", errors.ApprovalNeeded("mine"))),
    "a read whose capability is no text": Plan(read=Act("raise", errors.NotGranted("no", "\ud800"))),
    "a read whose error cannot be shown": Plan(read=Act("raise", Nasty())),
    "a send whose error cannot be shown": Plan(send=Act("raise", Nasty())),
    "a question whose error cannot be shown": Plan(send=CUT, find=Act("raise", Nasty())),
    "a verdict that waits for ever": Plan(send=CUT, find=Act("return", Verdict.retry(1e300))),
    "a result that breaks when it is looked into": Plan(send=Act("return", Hostile(a=1))),
}


@pytest.mark.parametrize("what", ONCE)
def test_what_once_broke_a_lane_is_recorded_as_what_it_means(answered: Holds, what: str) -> None:
    answered(ONCE[what])


@pytest.mark.parametrize("wrong", [{"status": "banana"}, {"status": "unknown", "why": 5}])
def test_a_verdict_that_means_nothing_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(errors.ConfigError):
        Verdict(**wrong)  # type: ignore[arg-type]


# The suite finds what it is there to find


def test_any_exception_taken_for_a_failure_is_found(monkeypatch: pytest.MonkeyPatch, answered: Holds) -> None:
    monkeypatch.setattr("keepai.engine.outside._answer", lambda task, name: Answer(refused=Transient("it failed")))
    with pytest.raises(AssertionError, match="never in doubt"):
        answered(Plan(send=CUT))


def test_the_smallest_input_that_breaks_a_property_is_told() -> None:
    def holds(value: object) -> None:
        assert not isinstance(value, float), "a float"

    @contextmanager
    def opened() -> Iterator[Holds]:
        yield holds

    _, broken = attempt(hosts.Property("no floats", CODEC.strategy, opened, 100), 1, 100)
    assert broken is not None
    assert broken.startswith("no floats: AssertionError: a float")
