"""The contract, for every mutation of the connectors for outside services."""

from __future__ import annotations

import pytest

from keepai.testing.contract import Subject, examine
from tests.connectors.google_subjects import GOOGLE
from tests.connectors.slack_subjects import SLACK


@pytest.mark.parametrize("subject", [*GOOGLE, *SLACK], ids=lambda subject: subject.__name__)
async def test_no_second_effect_and_no_false_word(subject: type[Subject]) -> None:
    report = await examine(subject)
    assert not report.broken, str(report)
    assert all(trial.effects <= 1 for trial in report.trials)
    assert set(report.untried) <= {"the same key twice"}
