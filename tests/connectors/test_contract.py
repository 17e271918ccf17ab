"""Every mutation of every connector is tested against one contract, and so are connectors that are wrong on purpose."""

from __future__ import annotations

import pytest

from keepai.testing.contract import Subject, examine
from tests.connectors.subjects import SUBJECTS, WRONG

#: What a subject's outside cannot do: a local folder answers at once, or not at all.
_AT_ONCE = {
    "answer lost", "request lost", "late", "held", "wrong answer", "lookup broken", "lookup denied",
    "killed: while the answer is held back",
}
UNTRIED = {
    "local": _AT_ONCE,
    "sqlite": {*_AT_ONCE, "the same key twice"},
    "postgres": {"the same key twice", "lookup broken", "lookup denied"},
    "http": {"the same key twice"},
    "mcp": {"the same key twice"},
    "blind": {"the same key twice", "lookup broken", "lookup denied"},
}


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__)
async def test_no_second_effect_and_no_false_word(subject: type[Subject]) -> None:
    report = await examine(subject)
    assert not report.broken, str(report)
    assert all(trial.effects <= 1 for trial in report.trials)
    assert set(report.untried) <= UNTRIED.get(subject.kind, set())  # type: ignore[attr-defined]
    [at_its_end] = [trial for trial in report.trials if trial.name == "killed: when it has returned"]
    assert at_its_end.effects == 1
    assert "failed" not in at_its_end.said[1]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
async def test_a_connector_that_lies_is_told_what_it_got_wrong(wrong: type[Subject]) -> None:
    report = await examine(wrong)
    for trial, rule in WRONG[wrong].items():
        found = [each for each in report.broken if each.name.startswith(trial)]
        assert any(rule in " ".join(each.broken) for each in found), f"{trial}: {rule}\n{report}"
