"""Every state that three events, two to one target and two of one input, can reach while runs of them are parked."""

from __future__ import annotations

import pytest

from keepai.ledger import queries
from keepai.ledger.transitions import parking
from tests.explore.parking import WIDE, Broken, ParkingSetting, explore
from tests.prove.simulate.bugs import PARKING_BUGS, planted

#: What takes seconds; the others are in `make prove`.
SHORT = {name: each for name, each in WIDE.items() if not (each.crashes and not each.uses_state)}

SMALL = ParkingSetting(answers=("ok",), crashes=False)


@pytest.mark.parametrize("name", SHORT)
def test_no_reachable_state_with_parked_runs_breaks_a_rule_or_is_a_dead_end(name: str) -> None:
    found = explore(SHORT[name])
    assert found.states > 100
    assert found.parked_most >= 1


@pytest.mark.parametrize(("name", "told", "setting"), [
    ("target_not_held", "target not held", ParkingSetting(
        grant="allow", answers=("ok", "unknown"), events="ab", crashes=False)),
    ("cause_not_held", "an event that anybody may take", SMALL),
    ("state_not_held", "state not held", ParkingSetting(answers=("ok",), events="ab", uses_state=True, crashes=False)),
    ("answered_stays_parked", "dead end", SMALL),
])
def test_a_fault_planted_among_parked_runs_is_found(name: str, told: str, setting: ParkingSetting) -> None:
    assert name in PARKING_BUGS
    with planted(name), pytest.raises(Broken, match=told):
        explore(setting)


def test_a_parked_run_that_must_choose_anew_keeps_its_events_until_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    # what it let go of would be taken by the run that is under way, and come after what was parked behind it
    monkeypatch.setattr(parking, "hand_over", lambda tx, run, new_run_id: tx.run(
        "parked_hand_over", workflow_id=run.workflow_id, run_id=run.id, new_run_id=new_run_id))
    with pytest.raises(Broken):
        explore(WIDE["new versions come"])


def test_the_statements_of_parking_are_there() -> None:
    assert {"parked_before", "event_hold", "run_park"} <= set(queries.load())
