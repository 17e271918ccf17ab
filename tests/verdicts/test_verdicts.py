"""What `python -m tests.verdicts` shows of a thousand pairs, on a few: what a verdict says is what comes of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from keepai.model.policy import Policy
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.verdicts.trial_of_pair import judge

PAIRS = 12


async def test_the_verdict_on_a_version_is_what_comes_of_it(tmp_path: Path) -> None:
    runtime = JavaScriptRuntime(workers_max=Policy().workers_max, speculate=Policy().speculate)
    try:
        found = [await judge(seed, runtime, str(tmp_path)) for seed in range(1, PAIRS + 1)]
    finally:
        await runtime.close()
    assert [told for each in found for told in (*each.wrong, *each.stranded)] == []
    fates = sum((each.fates for each in found), Counter[str]())
    assert {"run: starts_again", "run: finishes", "approval: void", "event: waits"} <= fates.keys()
