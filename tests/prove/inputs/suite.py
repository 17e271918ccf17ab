"""Bad input at scale: whatever comes in by any door, Keep answers with a value or a classified error.

Each property draws its input with hypothesis from a seed, so that a failing one is made small and comes again:
`python -m tests.prove --suite inputs --only SEED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from keepai.model.errors import in_words
from tests.prove.base import Result, TooLong, limited, rounds
from tests.prove.inputs.doors import COMMANDS, REQUESTS
from tests.prove.inputs.hosts import ANSWERS, PREPARED
from tests.prove.inputs.property import Property, shown
from tests.prove.inputs.pure import CODEC, CRON, DURATIONS, TEXTS
from tests.prove.inputs.scripts import SCRIPTS

PROPERTIES = (CODEC, TEXTS, DURATIONS, CRON, SCRIPTS, PREPARED, ANSWERS, REQUESTS, COMMANDS)


INPUT_S_MAX = 60.0  # for one input, where a few milliseconds are usual


def run(seconds: float, first: int, only: str | None, properties: Sequence[Property] = PROPERTIES) -> Result:
    """Every property with one seed after the other, until the time is up."""
    result = Result("inputs", "inputs")
    tried = dict.fromkeys((p.name for p in properties), 0)
    for number in rounds(seconds, first, only):
        for each in properties:
            count, broken = attempt(each, number, each.examples)
            tried[each.name] += count
            if broken is not None:
                result.broke(number, broken)
    result.tried = sum(tried.values())
    result.note = ", ".join(f"{name} {count:,}" for name, count in tried.items())
    return result


def attempt(
    each: Property, number: int, examples: int, seconds: float = INPUT_S_MAX,
) -> tuple[int, str | None]:
    """How many inputs were tried with a seed, and the smallest that broke the property; no end breaks it too."""
    count, broken = 0, None

    def one(value: Any) -> None:
        nonlocal count, broken
        count += 1
        try:
            with limited(seconds):
                holds(value)
        except (Exception, TooLong) as error:  # kept here: hypothesis writes the input out, and that may fail
            broken = f"{each.name}: {in_words(error)[:300]} for {shown(value)}"
            raise

    drawn = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        print_blob=False,
    )(given(each.strategy)(one))
    with each.opened() as holds:
        try:
            seeded(number)(drawn)()
        except (Exception, TooLong):  # the very thing that is looked for
            assert broken is not None, "hypothesis failed by itself"
            return count, broken
    return count, None
