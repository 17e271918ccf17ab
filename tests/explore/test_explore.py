"""Every state that run × mutation × approval × person × crash × reconcile × version × time can reach, one by one.

The engine is the real one (see machine.py); the truth outside is tracked beside it (see explore.py), with people who
say anything at any time, requests that arrive late, effects that show late, and hosts that die between any two
commits. The second half plants faults into the real code and shows that each one is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from keepai.engine import call_ends, commands, next_step, reconcile, recovery, relaunch
from keepai.engine import mutation as sending
from keepai.engine.run_context import RunContext
from keepai.ledger.sqlite.connection import Transaction
from keepai.ledger.transitions import approvals, mutations, runs
from keepai.ledger.transitions.mutations import Intent
from keepai.model.errors import Transient
from keepai.model.operations import Step
from keepai.model.records import Approval, Mutation, Run
from keepai.model.states import Phase, Reason, Status
from keepai.reading import questions
from keepai.runtime.base import Operation
from tests.explore.explore import Broken, explore
from tests.explore.machine import Setting

#: What takes a minute is in suite.py.
SETTINGS: dict[str, Setting] = {
    "it can be asked": Setting(throws=False),
    "a person approves each call": Setting(grant="ask", versions=False, ends=False),
    "nobody can be asked, and acts overtake each other": Setting(
        can_reconcile=False, grant="ask", races=True, versions=False),
    "acts and steps overtake each other": Setting(races=True, versions=False),
    "the grant changes": Setting(grant="ask", grants=True, throws=False, versions=False, ends=False),
    "the workflow is paused": Setting(grant="ask", pauses=True, throws=False, versions=False, ends=False),
    "it honours keys": Setting(honours_keys=True, versions=False),
    "nothing is foreseen, and acts and steps overtake each other": Setting(
        foreseen=False, races=True, versions=False),
}

#: Setting → the least number of states that it leads to, where that is many.
MANY = {"it can be asked": 30_000}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_reachable_state_breaks_a_rule_waits_for_ever_or_is_a_dead_end(name: str) -> None:
    # one test of all that a setting leads to: it takes seconds to look for that
    # I1–I11, I14–I16, I22, I29, I31–I33; `Broken` shows the shortest way to the state that breaks one
    found = explore(SETTINGS[name])
    assert found.states > MANY.get(name, 500)
    # DESIGN 6: "try again" only with a reconcile method
    assert found.empty_offers == {}, "no act is offered that the state refuses"
    # I31: the host looks again, as it does when it is overtaken before a run begins
    assert found.overtaken == [], "a run does not fail because a person was quicker"


# -- planted faults --------------------------------------------------------------------------------------------

SMALL = Setting(versions=False, throws=False, ends=False)
Patch = pytest.MonkeyPatch


def no_closure_check(patch: Patch) -> None:
    real = call_ends.CallEnds.settled

    def settled(self: Any, mutation: Mutation, settle_s: float, now_ms: int) -> int | None:
        return real(self, replace(mutation, closed_at=mutation.closed_at or 1), settle_s, now_ms)

    patch.setattr(call_ends.CallEnds, "settled", settled)


def no_settle(patch: Patch) -> None:
    patch.setattr(reconcile, "settle_s", lambda parts, spec: 0.0)


def not_found_means_failed(patch: Patch) -> None:
    patch.setattr(call_ends.CallEnds, "settled", lambda self, mutation, settle_s, now_ms: 0)


def recovery_guesses(patch: Patch) -> None:
    real = recovery._take_over

    async def take_over(parts: Any, run: Run) -> None:
        mutation = await parts.ledger.look(recovery.in_flight, run)
        if mutation is None:
            await real(parts, run)
            return
        adopted = await parts.ledger.write(runs.adopt, run)
        gone = Transient("The host died, so it did not happen.")
        why = recovery.failure.stop(gone, adopted, Step.MUTATE, parts.policy, parts.clock.now_ms())
        await parts.ledger.write(mutations.refuse, adopted, mutation, why, [])

    patch.setattr(recovery, "_take_over", take_over)


def applied_can_be_skipped(patch: Patch) -> None:
    patch.setattr(commands.Commands, "_check_skippable", lambda self, run, mutation: None)


def approval_is_not_used_up(patch: Patch) -> None:
    def send(tx: Any, run: Run, approval: Approval, intent: Intent, limits: Any) -> tuple[Run, Mutation]:
        resumed = runs.resume(tx, run, Phase.MUTATING)
        return resumed, mutations.send(tx, resumed, intent, ())

    patch.setattr(approvals, "send", send)


def no_compare_and_set(patch: Patch) -> None:
    def expect(self: Transaction, query: str, why: str, **params: object) -> None:
        """Whatever was hit, go on."""
        self.run(query, **params)

    patch.setattr(Transaction, "expect", expect)


def did_not_happen_is_taken_early(patch: Patch) -> None:
    patch.setattr("keepai.engine.host.Host.check_settled", lambda self, mutation: None)


def doubt_is_carried_over(patch: Patch) -> None:
    real = next_step.step_of_run

    def step_of_run(now: next_step.Now, run: Run, facts: next_step.Stopped | None) -> next_step.NextStep:
        how = relaunch.carry(run, None, now.active, Status.SUPERSEDED, "retry")
        assert how is not None
        return next_step.CarryOn(run, how, "") if run.reason is Reason.RECONCILIATION else real(now, run, facts)

    patch.setattr(next_step, "step_of_run", step_of_run)


def explained_by_a_rule_of_its_own(patch: Patch) -> None:
    real = questions.step_of_run

    def step_of_run(now: next_step.Now, run: Run, facts: next_step.Stopped | None) -> next_step.NextStep:
        approval = now.stopped.approval if now.stopped else None
        approved = approval is not None and approval.status == "approved"
        return next_step.SendApproved(run) if approved else real(now, run, facts)

    patch.setattr(questions, "step_of_run", step_of_run)


def nobody_is_asked_about_what_was_foreseen(patch: Patch) -> None:
    async def plain_intent(context: RunContext, operation: Operation, unit: Any) -> Intent:
        wanted = sending.checked_call(context, operation, Step.MUTATE)
        return sending._intent(context.parts, context.run, wanted, unit, refusals=0)

    patch.setattr(sending, "plain_intent", plain_intent)


def what_was_foreseen_is_sent_without_its_reservation(patch: Patch) -> None:
    def prepare_and_send(
        tx: Any, run: Run, prepared: Any, trace: Any, call: Intent, limits: Any,
    ) -> tuple[Run, Any, Any]:
        return real(tx, run, replace(prepared, wanted=()), trace, call, limits)

    real = mutations.prepare_and_send
    patch.setattr(mutations, "prepare_and_send", prepare_and_send)


FAULTS: dict[Callable[[Patch], None], tuple[Setting, set[str]]] = {
    no_closure_check: (SMALL, {"I5", "I4", "I33"}),
    no_settle: (SMALL, {"I4", "I33"}),
    not_found_means_failed: (SMALL, {"I4", "I5"}),
    recovery_guesses: (SMALL, {"I4"}),
    applied_can_be_skipped: (replace(SMALL, throws=True), {"I7", "I32"}),
    approval_is_not_used_up: (replace(SMALL, grant="ask"), {"I29"}),
    no_compare_and_set: (replace(SMALL, races=True), {"I11", "I8", "I3", "I9", "I14", "I15", "I16", "I22"}),
    did_not_happen_is_taken_early: (SMALL, {"I5", "I33"}),
    doubt_is_carried_over: (SMALL, {"I3", "I11"}),
    explained_by_a_rule_of_its_own: (replace(SMALL, grant="ask", grants=True), {"explained"}),
    nobody_is_asked_about_what_was_foreseen: (replace(SMALL, grant="ask"), {"I29"}),
    what_was_foreseen_is_sent_without_its_reservation: (SMALL, {"I14"}),
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    setting, rules = FAULTS[plant]
    plant(monkeypatch)
    with pytest.raises(Broken) as broken:
        explore(setting)
    assert broken.value.rule in rules, broken.value
