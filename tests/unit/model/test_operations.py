"""Which step allows which operation: the whole matrix."""

from __future__ import annotations

import pytest

from keepai.model.operations import ALLOWED, BUILT_IN, Kind, Step, Surface, allowed, where_allowed

#: Rows and columns of DESIGN.md section 3: producer, prepare, mutate, next, routine.
MATRIX = {
    "peek": "-x---", "getByIds": "-x---", "registerInput": "x----", "publish": "x--x-", "read": "xx--x",
    "read_by_id": "xx--x", "mutation": "--x-x", "withItem": "----x", "log": "xxxxx",
}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("step", Step)
def test_a_step_may_ask_for_what_the_design_says(step: Step, kind: Kind) -> None:
    assert allowed(step, kind) == (MATRIX[kind][list(Step).index(step)] == "x")


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("step", Step)
def test_policy_adds_reads_by_id_to_mutate_and_nothing_else(step: Step, kind: Kind) -> None:
    added = step is Step.MUTATE and kind is Kind.READ_BY_ID
    assert allowed(step, kind, mutate_reads=True) == (allowed(step, kind) or added)


@pytest.mark.parametrize("kind", Kind)
def test_where_an_operation_is_allowed_is_said_in_words(kind: Kind) -> None:
    assert where_allowed(kind).split(", ") == [step.value for step in Step if kind in ALLOWED[step]]


def test_names_that_ctx_carries_itself_come_before_connectors() -> None:
    surface = Surface({"gmail": {"search": Kind.READ}, "peek": {"peek": Kind.MUTATION}}, {})
    assert surface.kind("gmail.search") is Kind.READ
    assert surface.kind("peek") is Kind.PEEK
    assert [surface.kind(name) for name in ("gmail", "gmail.", "gmail.send", "", ".", "slack.post")] == [None] * 6
    assert set(BUILT_IN) == {"peek", "getByIds", "registerInput", "publish", "withItem"}
