"""The tables of states: complete, connected, and with an end."""

from __future__ import annotations

from enum import StrEnum

import pytest

from keepai.model import states
from keepai.model.states import MACHINES, Machine

EVERY = pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))


def reachable(machine: Machine) -> set[StrEnum]:
    found, left = set(machine.initial), list(machine.initial)
    while left:
        for target in machine.moves[left.pop()]:
            if target not in found:
                found.add(target)
                left.append(target)
    return found


@EVERY
def test_every_state_has_a_row_and_every_row_a_state(machine: Machine) -> None:
    assert set(machine.moves) == set(machine.states)
    for targets in machine.moves.values():
        assert set(targets) <= set(machine.states)


@EVERY
def test_every_state_can_be_reached(machine: Machine) -> None:
    assert machine.initial
    assert reachable(machine) == set(machine.states)


@EVERY
def test_a_move_goes_somewhere_else_and_says_why(machine: Machine) -> None:
    for source, targets in machine.moves.items():
        assert source not in targets
        assert all(why.strip() and not why.endswith(".") for why in targets.values())


@pytest.mark.parametrize(("name", "ends"), [
    ("phase", {"committed"}), ("status", {"committed", "crashed", "superseded", "abandoned"}),
    ("mutation", {"applied", "failed", "skipped"}), ("event", set()), ("input", set()), ("workflow", set()),
    ("approval", {"rejected", "expired", "void", "consumed"}),
])
def test_ends_are_those_of_the_design(name: str, ends: set[str]) -> None:
    assert MACHINES[name].terminal == ends


@EVERY
def test_every_pair_is_either_listed_or_refused(machine: Machine) -> None:
    for source in machine.states:
        for target in machine.states:
            if target in machine.moves[source]:
                assert states.check(machine, source, target) == machine.moves[source][target]
            else:
                with pytest.raises(states.IllegalMove, match=f"{machine.name}: {source} → {target}"):
                    states.check(machine, source, target)


def test_a_state_of_another_machine_is_refused() -> None:
    with pytest.raises(states.IllegalMove):
        states.check(states.EVENT, states.Phase.PREPARING, states.Phase.PREPARED)  # type: ignore[arg-type]


def test_phases_only_go_forward() -> None:
    order = list(states.Phase)
    for source, targets in states.PHASE.moves.items():
        assert all(order.index(target) > order.index(source) for target in targets)


def test_nothing_leaves_doubt_but_by_knowledge_or_a_person() -> None:
    for doubtful in states.DOUBTFUL:
        assert doubtful not in states.MUTATION.terminal
    known = set(states.MutationStatus) - states.DOUBTFUL
    assert states.MUTATION.terminal == known, "what is known never becomes unknown again"
    assert "skipped" not in states.MUTATION.moves[states.MutationStatus.IN_FLIGHT]
    assert "skipped" not in states.MUTATION.moves[states.MutationStatus.NEEDS_RECONCILE]


def test_runs_that_hold_their_workflow_are_those_that_can_go_on() -> None:
    assert set(states.Status) - states.STATUS.terminal == states.OPEN


def test_reasons_belong_to_the_states_that_wait_or_failed_and_are_all_used() -> None:
    assert set(states.REASONS) == {states.Status.PAUSED, states.Status.FAILED}
    assert set().union(*states.REASONS.values()) == set(states.Reason)
    assert not states.REASONS[states.Status.PAUSED] & states.REASONS[states.Status.FAILED]


def test_status_is_shown_with_its_reason() -> None:
    assert states.shown("paused", "transient") == "paused:transient"
    assert states.shown("active", None) == "active"


@EVERY
def test_the_diagram_shows_every_state_and_every_move(machine: Machine) -> None:
    lines = states.as_mermaid(machine).splitlines()
    assert lines[0] == "stateDiagram-v2"
    for source, targets in machine.moves.items():
        for target, why in targets.items():
            assert f"  {source} --> {target}: {why}" in lines
    assert {line.split()[-1] for line in lines if line.startswith("  [*] --> ")} == set(machine.initial)
    assert {line.split()[0] for line in lines if line.endswith("--> [*]")} == set(machine.terminal)


@EVERY
def test_tables_cannot_be_changed(machine: Machine) -> None:
    with pytest.raises(TypeError):
        machine.moves[next(iter(machine.states))] = {}  # type: ignore[index]
