"""The explorations that take a minute each, for `make prove`; test_explore.py has the short ones."""

from __future__ import annotations

from tests.explore import parking
from tests.explore.explore import Broken, explore
from tests.explore.machine import Setting
from tests.prove.base import Result, rounds, trial

SETTING_S_MAX = 900.0  # for one setting, where a minute is usual

WIDE: dict[str, Setting] = {
    "it can be asked, and scripts throw": Setting(),
    "a person approves each call, and new versions come": Setting(grant="ask", ends=False),
    "the grant changes and the workflow is paused": Setting(
        grant="ask", grants=True, pauses=True, throws=False, versions=False, ends=False),
    "nothing is foreseen": Setting(foreseen=False),
}


def run(seconds: float, first: int, only: str | None) -> Result:
    """One setting after the other until the time is up or each was explored; a seed is the number of a setting."""
    result = Result("exploration", "states")
    names = [*WIDE, *parking.WIDE]
    done = set[str]()
    for seed in rounds(seconds, first, only):
        name = names[seed % len(names)]
        if name in done:
            break
        done.add(name)
        with trial(result, seed, SETTING_S_MAX):
            try:
                if name in parking.WIDE:
                    result.tried += parking.explore(parking.WIDE[name]).states
                    continue
                found = explore(WIDE[name])
            except (Broken, parking.Broken) as error:
                result.broke(seed, f"{name}: {error}")
                continue
            result.tried += found.states
            if found.empty_offers or found.overtaken:
                result.broke(seed, f"{name}: {found.empty_offers or found.overtaken}")
    result.note = ", ".join(sorted(done))
    return result
