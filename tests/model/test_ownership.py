"""Several hosts that want to make one mutation, in every order; and each planted fault is found for its own reason.

The model is ownership.py; the page that it belongs to is docs/internals/ownership.md. `make model` explores more of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.check import config
from tests.model.ownership import BY_NO_CLOCK, FAULTS, RULES, SETTINGS, Broken, Found, Setting, explore

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/internals/ownership.md"


def test_two_hosts_break_no_rule_and_from_every_state_the_run_ends_or_asks_a_person() -> None:
    found = explore(SETTINGS["two hosts"])
    assert len(found.states) > 50_000
    assert stuck(found) == []


def stuck(found: Found) -> list[object]:
    """The states from which no way without another fault leads to an end, to a question or past the last attempt."""
    ends = [n for n, world in enumerate(found.states)
            if any(call.status in ("applied", "skipped", "question") for call in world.calls)
            or all(call.status == "failed" for call in world.calls)]
    reached, todo = set(ends), ends
    while todo:
        new = set(found.sources[todo.pop()]) - reached
        reached |= new
        todo.extend(new)
    return [world for n, world in enumerate(found.states) if n not in reached]


def test_what_became_of_a_mutation_does_not_depend_on_the_databases_clock() -> None:
    explore(Setting(attempts=1, clock_jumps=True), BY_NO_CLOCK)
    with pytest.raises(Broken, match="OwnCountIsShorter"):
        explore(Setting(attempts=1, clock_jumps=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_the_rule_that_it_breaks(fault: str) -> None:
    with pytest.raises(Broken) as broken:
        explore(Setting(fault=fault))
    assert broken.value.rule == FAULTS[fault]


def test_the_page_has_the_shortest_way_from_the_unsafe_rule_to_a_second_effect() -> None:
    with pytest.raises(Broken) as broken:
        explore(Setting(fault="lease_closes", lease=3), ["AtMostOneEffect"])
    rows = [line.split("|")[1:3] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    told = [step.strip().strip("`") for number, step in rows if number.strip().isdigit()]
    assert told == broken.value.way


def test_the_page_says_what_each_rule_and_each_planted_fault_is() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in (*RULES, *FAULTS) if f"`{name}`" not in text] == []


def test_both_models_have_the_same_rules_and_the_same_planted_faults() -> None:
    text = (HERE / "Ownership.tla").read_text("utf-8")
    assert [rule for rule in RULES if f"\n{rule} == " not in text] == []
    assert [fault for fault in FAULTS if f'Fault = "{fault}"' not in text and f'Fault # "{fault}"' not in text] == []


def test_a_setting_is_written_as_tlc_reads_it() -> None:
    text = config(Setting(hosts=3, person_errs=True, fault="no_fence"), ("OwnerWrites",))
    assert "  Hosts = {A, B, C}\n" in text
    assert '  PersonErrs = TRUE\n  ClockJumps = FALSE\n  Fault = "no_fence"\n' in text
    assert text.endswith("INVARIANTS OwnerWrites\n")
