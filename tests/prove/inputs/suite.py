"""Bad input at scale: whatever comes in by any door, Keep answers with a value or a classified error.

Each property draws its input with hypothesis from a seed, so that a failing one is made small and comes again:
`python -m tests.prove --suite inputs --only SEED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.prove.base import Result, rounds
from tests.prove.inputs.doors import COMMANDS, REQUESTS
from tests.prove.inputs.hosts import ANSWERS, PREPARED
from tests.prove.inputs.property import Property
from tests.prove.inputs.pure import CODEC, CRON, DURATIONS, TEXTS
from tests.prove.inputs.scripts import SCRIPTS

PROPERTIES = (CODEC, TEXTS, DURATIONS, CRON, SCRIPTS, PREPARED, ANSWERS, REQUESTS, COMMANDS)


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


def attempt(each: Property, number: int, examples: int) -> tuple[int, str | None]:
    """How many inputs were tried with a seed, and the smallest that broke the property."""
    count, last = 0, None

    def one(value: Any) -> None:
        nonlocal count, last
        count, last = count + 1, value
        holds(value)

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
        except Exception as error:  # the very thing that is looked for
            return count, f"{each.name}: {type(error).__name__}: {str(error)[:300]} for {_shown(last)}"
    return count, None


def _shown(value: Any) -> str:
    """An input for people; some of them cannot be shown, which is what they are for."""
    try:
        return f"{value!r:.600}"
    except Exception as error:
        return f"(an input that cannot be shown: {type(error).__name__})"
