"""What is kept of a call with its run is bounded, and says when it is not the whole."""

from __future__ import annotations

import pytest

from keepai.engine.trace import Trace
from keepai.model.operations import Step
from keepai.testing import ManualClock


@pytest.mark.parametrize(("length", "kept"), [
    (10, "x" * 10), (11, "x" * 10 + "… (11 characters)"), (5000, "x" * 10 + "… (5,000 characters)"),
])
def test_arguments_and_answers_are_shortened_and_say_so(length: int, kept: str) -> None:
    trace = Trace("run_1", ManualClock(), 10, 0)
    trace.call(Step.PREPARE, "feed.list", "x" * length, "x" * length, None, 1)
    [line] = trace.take()
    assert (line.args, line.answer) == (kept, kept)
    assert trace.take() == []
