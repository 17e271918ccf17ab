"""Everything can be explained: every state names why it stands there and what can move it, with its story."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from keepai import OutcomeUnknown, Policy, Transient
from keepai.ledger.base import Tx
from keepai.ledger.rows import run_record
from keepai.ledger.transitions import mutations, runs
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.mutations import Intent
from keepai.ledger.transitions.runs import Begin, Carry, Prepared, Stop
from keepai.model.codec import encode
from keepai.model.errors import NotFound
from keepai.model.records import Mutation, Run
from keepai.model.states import (
    OPEN,
    REASONS,
    ApprovalStatus,
    EventStatus,
    MutationStatus,
    Phase,
    Reason,
    Status,
    WorkflowStatus,
    shown,
)
from keepai.reading.explain import Explanation
from keepai.reading.next_steps import StepAhead
from tests.harness import NOTHING, SEND, Story, acting, consumer, producer, views, workflow
from tests.ledger.stores import reads

ASK = {"feed.list": "allow", "gmail.send": "ask"}
WAITERS = {"time", "event", "reconciliation", "host", "run", "person"}


def checked(found: Explanation, *, waits: bool) -> Explanation:
    """What every explanation must have."""
    assert found.standing
    assert found.because
    assert found.story
    assert [t.told_at for t in found.story] == sorted(t.told_at for t in found.story)
    kinds = {m.kind for m in found.moved_by}
    assert kinds
    assert kinds <= WAITERS | {"nothing"}
    assert bool(kinds & WAITERS - {"person"} or acts_of(found)) if waits else "nothing" in kinds
    assert all(m.what for m in found.moved_by)
    assert all(m.acts and (m.subject or m.acts == ("deploy",)) for m in found.moved_by if m.kind == "person")
    json.dumps(found.to_json())
    return found


def acts_of(found: Explanation, *, now: bool = True) -> set[str]:
    """What a person may do now."""
    return {act for m in found.moved_by for act in m.acts if not now or m.kind == "person"}


def mover(found: Explanation, kind: str) -> StepAhead:
    """The one mover of a kind."""
    [one] = [m for m in found.moved_by if m.kind == kind]
    return one


# -- runs: every phase in every status, made by the ledger's own verbs -------------------------------


def _found(tx: Tx, run: Run, sent: Mutation) -> Run:
    """What a look-up leaves that found a lost answer: the run stands at `mutated` until its host goes on."""
    mutations.resolve(tx, sent, MutationStatus.APPLIED, "{}", "1")
    return runs.advance(tx, run, Phase.MUTATED, encode({"status": "applied"}))


class Maker:
    """Brings runs into any phase and status, without a host that would move them on."""

    def __init__(self, story: Story, wf: str) -> None:
        self._ledger, self._wf = story.keep.parts.ledger, wf
        self._now = story.clock.now_ms()

    async def make(self, phase: Phase) -> Run:
        """A run that is active in a phase."""
        if phase is Phase.EXECUTING:
            return await self._begin("poll", "producer", phase)
        poll = await self._begin("poll", "producer", Phase.EXECUTING)
        told = Registration(self._ledger.ids.new("inp"), "feed", "item", "a", "Item a")
        events = [Publication("in", "a", "1", (told.input_id,))]
        await self._ledger.write(runs.commit_producer, poll, [told], events, None, self._now + 300_000, [])
        run = await self._begin("act", "consumer", Phase.PREPARING)
        for target in list(Phase)[1 : list(Phase).index(phase) + 1]:
            run = await self._forward(run, target)
        return run

    async def _begin(self, handler: str, kind: str, phase: Phase) -> Run:
        return await self._ledger.write(runs.begin, Begin(self._wf, handler, kind, (1, 0), phase, "event"))

    async def _forward(self, run: Run, target: Phase) -> Run:
        if target is Phase.PREPARED:
            result = encode({"reservations": [{"topic": "in", "ids": ["a"]}], "data": {}, "ui": {"title": "Say hi"}})
            prepared = Prepared(self._now, result, [("in", "a")])
            return (await self._ledger.write(runs.prepare, run, prepared, []))[0]
        if target is Phase.MUTATED:
            sent = await self._ledger.write(mutations.send, run, intent(), [])
            return await self._ledger.write(_found, run, sent)
        return await self._ledger.write(runs.advance, run, target)

    async def stop(self, run: Run, status: Status, reason: Reason, code: str = "permission") -> None:
        """Stop it, with a mutation in doubt where that is the reason."""
        error = encode({"code": code, "message": "This is why.", "line": 3, "column": 1, "step": "mutate",
                        "evidence": "gmail.send" if code == "permission" else None})
        why = Stop(status, reason, error, self._now + 30_000 if reason is Reason.TRANSIENT else None)
        if reason is Reason.RECONCILIATION and run.phase is Phase.MUTATING:
            sent = await self._ledger.write(mutations.send, run, intent(), [])
            doubt = mutations.Doubt(MutationStatus.NEEDS_RECONCILE, replace(why, retry_at=self._now), closed=True)
            await self._ledger.write(mutations.doubt, run, sent, doubt, [])
        else:
            await self._ledger.write(runs.stop, run, why)

    async def leave(self, run: Run, status: Status) -> None:
        """End it without its having finished."""
        if status is not Status.CRASHED:
            await self.stop(run, Status.PAUSED, Reason.TRANSIENT, "transient")
            [row] = reads(self._ledger).all("run_open_all")
            run = run_record(row)
        if status is Status.ABANDONED:
            await self._ledger.write(runs.abandon, run)
        else:
            start = run.phase if run.phase in (Phase.EXECUTING, Phase.PREPARING) else Phase.EMITTING
            carry = Carry(status, (1, 0), start, start is Phase.EMITTING, "retry")
            await self._ledger.write(runs.carry_on, run, carry)


def intent() -> Intent:
    """A call of gmail.send."""
    known = {
        "mutation_key": "key", "idempotency_key": "idem", "connector": "gmail", "operation": "send", "target": "a",
        "identity": "{}", "payload": "{}", "params": '{"to":"a"}', "subkey": None, "title": "Say hi",
        "preview": 'gmail.send: to="a"', "deadline_at": 0,
    }
    return Intent(**{each.name: known.get(each.name, "") for each in fields(Intent) if each.name != "item_id"})


GOING = [phase for phase in Phase if phase is not Phase.COMMITTED]
STANDS = [
    (phase, status, reason) for phase in GOING for status in Status if status is not Status.COMMITTED
    for reason in sorted(REASONS.get(status, {None}))  # type: ignore[type-var]
]


@pytest.mark.parametrize(("phase", "status", "reason"), STANDS)
async def test_every_phase_in_every_status_says_why_and_what_moves_it(
    story: Story, phase: Phase, status: Status, reason: Reason | None,
) -> None:
    # R311–R313, I28: the table of model/states.py, whole
    wf = await story.deploy(acting())
    maker = Maker(story, wf)
    run = await maker.make(phase)
    if reason is not None:
        await maker.stop(run, status, reason)
    elif status is not Status.ACTIVE:
        await maker.leave(run, status)
    waits = status in OPEN | {Status.CRASHED, Status.SUPERSEDED}
    found = checked(await story.keep.explain(run.id), waits=waits)
    assert found.standing == f"{shown(status, reason)} in {phase}"
    if reason is not None:
        assert "This is why. (line 3 of the script, in mutate)" in found.because
    if phase not in (Phase.PREPARING, Phase.EXECUTING) and status is not Status.ABANDONED:
        assert {"Item a", "in/a"} == {s.title for s in found.selected}
    asked = views(story.keep).question(run.id, story.clock.now_ms())
    if asked is not None:
        assert set(asked.actions) <= acts_of(found)


async def test_a_committed_run_is_finished(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a")
    for run in await story.runs(wf):
        found = checked(await story.keep.explain(run.id), waits=False)
        assert (found.standing, mover(found, "nothing").what) == ("committed", "It is finished.")
    assert "its mutation happened" in found.because or "sent nothing" in found.because


@pytest.mark.parametrize("code", ["permission", "precondition", "attention", "something new"])
async def test_whatever_a_person_must_mend_names_acts(story: Story, code: str) -> None:
    maker = Maker(story, await story.deploy(acting()))
    run = await maker.make(Phase.MUTATING)
    await maker.stop(run, Status.PAUSED, Reason.APPROVAL, code)
    found = checked(await story.keep.explain(run.id), waits=True)
    assert "skip_run" in acts_of(found)
    assert ("grant" in acts_of(found)) is (code == "permission")


async def test_a_run_that_another_carries_on_names_the_last_of_them(story: Story) -> None:
    # a lineage is explained by any of its runs
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"), times=2)
    wf = await story.deploy_and_run(acting())
    await story.run(seconds=30)
    first, second = await story.runs(wf, "act")
    found = checked(await story.keep.explain(first.lineage), waits=True)
    assert (found.id, found.standing) == (first.id, "superseded in mutating")
    assert second.id in found.because
    assert mover(found, "run").subject == second.id
    assert mover(found, "time").due_at == second.retry_at
    assert [a.status for a in found.attempted] == ["failed", "failed"]
    assert {t.subject for t in found.story} >= {first.id, second.id, *(a.id for a in found.attempted)}
    await story.run(minutes=5)
    assert "committed" in mover(await story.keep.explain(first.id), "nothing").what


async def test_work_that_goes_on_by_itself_is_no_question(story: Story) -> None:
    # what was missing was granted, or a new version is there: the next host that looks carries on
    story.feed.put("a")
    lacking = await story.deploy(acting(name="lacking"), grants={"feed.list": "allow"})
    broken = await story.deploy_and_run(acting("throw new Error('no');", name="broken"))
    assert len(await story.keep.needs_you()) == 2
    await story.keep.grant(lacking, "gmail.send")
    await story.deploy(acting(name="broken"))
    assert await story.keep.needs_you() == []
    for wf in (lacking, broken):
        found = checked(await story.keep.explain((await story.last(wf, "act")).id), waits=True)
        assert "since" in mover(found, "host").what
    await story.run()
    for wf in (lacking, broken):
        assert (await story.last(wf, "act")).status == "committed"


async def test_less_than_a_full_grant_leaves_the_question(story: Story) -> None:
    # a denial, or leave to ask, may not be enough for the run to go on: then nobody may be left unasked
    wf = await story.deploy_and_run(acting(), "a", grants={})
    for mode in ("deny", "ask"):
        await story.keep.grant(wf, "feed.list", mode)
        await story.run()
        assert [q.kind for q in await story.keep.needs_you(wf)] == ["permission"]


# -- mutations ---------------------------------------------------------------------------------------


async def mutation_in(story: Story, status: MutationStatus) -> Explanation:
    """The explanation of a mutation in a state that it got into by itself."""
    story.feed.put("a")
    found: list[Explanation] = []
    if status is MutationStatus.IN_FLIGHT:
        async def look(params: Any, call: Any) -> None:
            [row] = await story.keep.mutations("story")
            found.append(await story.keep.explain(row.id))
        story.world.on("gmail.send").before(look)
    elif status is MutationStatus.FAILED:
        story.world.on("gmail.send").fail(Transient("busy"))
    elif status is not MutationStatus.APPLIED:
        story.world.on("gmail.send").lose_answer()
        on = story.world.on_reconcile("gmail.send")
        on.retry() if status is MutationStatus.NEEDS_RECONCILE else on.unknown()
    wf = await story.deploy_and_run(acting())
    [row] = await story.keep.mutations(wf)
    if status is MutationStatus.SKIPPED:
        await story.keep.resolve(row.id, "skip")
    return found[0] if found else await story.keep.explain(row.id)


MUTATION_MOVERS = {
    MutationStatus.IN_FLIGHT: "host", MutationStatus.NEEDS_RECONCILE: "reconciliation",
    MutationStatus.INDETERMINATE: "person", MutationStatus.FAILED: "time",
    MutationStatus.APPLIED: "nothing", MutationStatus.SKIPPED: "nothing",
}


@pytest.mark.parametrize("status", MutationStatus)
async def test_every_state_of_a_mutation_says_what_moves_it(story: Story, status: MutationStatus) -> None:
    # R312, R317
    found = await mutation_in(story, status)
    checked(found, waits=MUTATION_MOVERS[status] != "nothing")
    assert (found.kind, found.standing) == ("mutation", status)
    assert MUTATION_MOVERS[status] in {m.kind for m in found.moved_by}
    [attempt] = found.attempted
    assert (attempt.call, attempt.preview, attempt.params) == ("gmail.send", 'gmail.send: to="a"', {"to": "a"})
    assert attempt.title_by_script == "a"
    assert "Item a" in {s.title for s in found.selected}
    assert found.story[-1].target == status or found.story[-1].machine in ("status", "phase", "reconcile")


async def test_a_persons_word_is_told_as_such(story: Story) -> None:
    # I33, I34
    found = await mutation_in(story, MutationStatus.INDETERMINATE)
    await story.keep.resolve(found.id, "happened", {"id": "by hand"})
    after = await story.keep.explain(found.id)
    assert "A person's word: person: it happened" in after.because
    [told] = [t for t in after.story if t.target == "applied"]
    assert (told.by, told.machine, told.source) == ("person", "mutation", "indeterminate")


# -- events, inputs, approvals, workflows ------------------------------------------------------------


async def event_in(story: Story, how: str) -> tuple[EventStatus, Explanation]:
    """An event in one of the ways in which it can stand."""
    story.feed.put("a")
    if how == "taken by nobody":
        wf = await story.deploy(workflow(producers={"poll": producer()}))
    else:
        failing = "throw new Error('no');" if how == "reserved" else SEND
        wf = await story.deploy(acting(failing, before=NOTHING if how == "left" else ""))
    await story.run()
    event = await story.event(wf, "in", "a")
    if how in ("halted", "skipped"):
        await story.keep.reprocess(event.id)
    if how == "halted":
        await story.keep.pause(wf)
    elif how == "skipped":
        await story.keep.skip_event(event.id)
    return (await story.event(wf, "in", "a")).status, await story.keep.explain(event.id)


#: How an event stands → its status and what moves it.
EVENTS = {
    "left": ("pending", "time"), "taken by nobody": ("pending", "nothing"), "reserved": ("pending", "run"),
    "halted": ("pending", "person"), "consumed": ("consumed", "nothing"), "skipped": ("skipped", "nothing"),
}


@pytest.mark.parametrize("how", EVENTS)
async def test_every_way_an_event_can_stand_says_what_moves_it(story: Story, how: str) -> None:
    # I17
    status, kind = EVENTS[how]
    stands, found = await event_in(story, how)
    checked(found, waits=kind != "nothing")
    assert stands == status
    assert kind in {m.kind for m in found.moved_by}
    assert [s.title for s in found.selected] == ["Item a"]
    assert found.standing == ("reserved" if how == "reserved" else status)


def test_every_state_of_an_event_is_covered() -> None:
    assert {status for status, _ in EVENTS.values()} == set(EventStatus)


async def test_an_event_behind_a_run_that_holds_the_workflow_says_so(story: Story) -> None:
    wf = await story.deploy_and_run(acting("throw new Error('no');"), "a", "b")
    waiting = await story.event(wf, "in", "b")
    found = checked(await story.keep.explain(waiting.id), waits=True)
    assert "holds the workflow; after it, 'act' can take it" in mover(found, "run").what
    assert {"deploy", "retry", "skip_run", "skip_event"} <= acts_of(found)


async def test_an_event_that_was_just_offered_waits_for_a_host(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a")
    event = await story.event(wf, "in", "a")
    await story.keep.reprocess(event.id)
    found = checked(await story.keep.explain(event.id), waits=True)
    assert "offers it to 'act'" in mover(found, "host").what
    assert "attempt 2" in found.because
    [told] = [t for t in found.story if t.source == "consumed"]
    assert told.by == "person"


@pytest.mark.parametrize(("how", "standing"), [
    ("done", "done"), ("pending", "pending"), ("needs you", "pending, needs you"), ("skipped", "skipped"),
])
async def test_every_way_an_input_can_stand_says_what_came_of_it(story: Story, how: str, standing: str) -> None:
    # R311, R315
    story.feed.put("a")
    if how == "pending":
        story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(
        acting("throw new Error('no');" if how == "needs you" else SEND) if how != "skipped" else
        workflow(producers={"poll": producer()}, consumers={"act": consumer(NOTHING)}))
    [known] = await story.keep.inputs(wf)
    if how == "skipped":
        await story.keep.skip_input(known.id)
    found = checked(await story.keep.explain(known.id), waits=standing.startswith("pending"))
    assert found.standing == standing
    assert "“Item a” led to 1 event" in found.because
    assert [s.kind for s in found.selected] == ["event"]


async def approval_in(story: Story, status: ApprovalStatus) -> Explanation:
    """An approval that got into a state by itself or by a person."""
    wf = await story.deploy_and_run(acting(), "a", grants=ASK)
    [asked] = await story.keep.needs_you(wf)
    if status in (ApprovalStatus.APPROVED, ApprovalStatus.CONSUMED):
        await story.keep.approve(asked.id)
    if status is ApprovalStatus.CONSUMED:
        await story.run()
    elif status is ApprovalStatus.REJECTED:
        await story.keep.reject(asked.id)
    elif status is ApprovalStatus.EXPIRED:
        await story.run(days=1)
    elif status is ApprovalStatus.VOID:
        await story.keep.skip_run(asked.run_id)
    return await story.keep.explain(asked.id)


@pytest.mark.parametrize("status", ApprovalStatus)
async def test_every_state_of_an_approval_says_what_moves_it(story: Story, status: ApprovalStatus) -> None:
    # I29, I31
    waits = status in (ApprovalStatus.PENDING, ApprovalStatus.APPROVED)
    found = checked(await approval_in(story, status), waits=waits)
    assert (found.kind, found.standing) == ("approval", status)
    assert acts_of(found) == ({"approve", "reject"} if status is ApprovalStatus.PENDING else set())
    assert found.attempted[0].params == {"to": "a"}


async def test_an_approval_that_has_expired_offers_no_answer_until_it_is_asked_afresh(story: Story) -> None:
    # I31: what would be refused is not offered
    found = await approval_in(story, ApprovalStatus.PENDING)
    assert mover(found, "time").due_at == story.clock.now_ms() + 86_400_000
    story.clock.advance(days=1)
    [question] = await story.keep.needs_you()
    assert (question.actions, set(question.facts["possible_from"])) == (  # type: ignore[arg-type]
        (), {"approve", "reject"})
    found = checked(await story.keep.explain(question.id), waits=True)
    assert "asks again" in mover(found, "host").what


@pytest.mark.parametrize("status", WorkflowStatus)
async def test_every_state_of_a_workflow_says_what_moves_it(story: Story, status: WorkflowStatus) -> None:
    wf = await story.deploy_and_run(acting(), "a")
    if status is not WorkflowStatus.ACTIVE:
        await (story.keep.pause if status is WorkflowStatus.PAUSED else story.keep.stop)(wf)
    found = checked(await story.keep.explain(wf), waits=True)
    assert (found.kind, found.standing) == ("workflow", status)
    assert acts_of(found) == ({"run_now"} if status is WorkflowStatus.ACTIVE else {"resume"})
    assert {t.target for t in found.story} >= {"deploy", status}
    assert await story.keep.explain("story") == found  # by its name too


async def test_a_workflow_says_what_holds_it_or_when_it_runs_next(story: Story) -> None:
    story.feed.put("a")
    wf = await story.deploy(acting())
    assert mover(await story.keep.explain(wf), "host")
    await story.run()
    assert mover(await story.keep.explain(wf), "time").due_at == (await story.workflow(wf)).next_due_at
    story.world.on("gmail.send").fail(Transient("busy"))
    story.feed.put("b")
    await story.run(minutes=5)
    held = checked(await story.keep.explain(wf), waits=True)
    assert held.standing == "active, blocked by a run that waits to try again"
    assert mover(held, "run").subject == (await story.last(wf)).id


async def test_what_waits_in_a_halted_workflow_names_the_person_who_must_resume_it(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(acting())
    await story.keep.pause(wf)
    found = checked(await story.keep.explain((await story.last(wf)).id), waits=True)
    assert found.moved_by[0].acts == ("resume",)
    assert [t.by for t in found.story if t.target == "pause"] == ["person"]


async def test_what_does_not_exist_is_not_explained(story: Story) -> None:
    for id in ("run_x", "inp_x", "evt_x", "mut_x", "apr_x", "fix_x", "wf_x", "ask_x", "x", ""):
        with pytest.raises(NotFound, match="nothing with the id"):
            await story.keep.explain(id)


# -- the story ---------------------------------------------------------------------------------------


async def test_the_story_has_the_acts_of_people_among_the_moves(story: Story) -> None:
    # I34, R317
    wf = await story.deploy_and_run(acting(), "a", grants={"feed.list": "allow"})
    story.clock.advance(seconds=1)
    await story.keep.grant(wf, "gmail.send", "ask")
    await story.run(seconds=1)
    [asked] = await story.keep.needs_you(wf)
    story.clock.advance(seconds=1)
    await story.keep.approve(asked.id)
    await story.run(seconds=1)
    run = await story.last(wf, "act")
    found = await story.keep.explain(run.id)
    told = [(t.machine, t.target, t.by) for t in found.story]
    order = [("act", "grant", "person"), ("approval", "approved", "person"), ("approval", "consumed", None),
             ("mutation", "applied", None), ("status", "committed", None)]
    assert [told.index(each) for each in order] == sorted(told.index(each) for each in order)
    assert found.story[-1].told_at > found.story[0].told_at
    assert ("act", "deploy", "person") not in told  # it began under that version


async def test_every_stop_keeps_the_reason_that_it_had_then(story: Story) -> None:
    # I34: not only the last one
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy")).fail(OutcomeUnknown("lost")).fail(Transient("full"))
    story.world.on_reconcile("gmail.send").retry()  # and then the truth, that it is not there
    wf = await story.deploy(acting())
    for _ in range(6):
        await story.run(minutes=5)
    run = await story.last(wf, "act")
    assert run.status == "committed"
    found = await story.keep.explain(run.id)
    stops = [t.why for t in found.story if t.machine in ("status", "reconcile") and t.target in ("paused", "1")]
    for stop, said in zip(stops, ("busy", "lost", "could not tell yet", "full"), strict=True):
        assert said in stop
    [changed] = [t for t in found.story if t.machine == "reason"]
    assert (changed.source, changed.target) == ("reconciliation", "transient")


async def test_a_long_story_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.reading.explain.TOLD_MAX", 3)
    async with Story(tmp_path) as story:
        wf = await story.deploy_and_run(acting(), "a")
        found = await story.keep.explain((await story.last(wf, "act")).id)
        assert (len(found.story), found.untold > 0) == (3, True)
        assert found.story[-1].target == "committed"


async def test_a_failure_of_next_is_finished_not_skipped(story: Story) -> None:
    # I32
    wf = await story.deploy_and_run(acting(next="throw new Error('no');"), "a")
    run = await story.last(wf)
    assert acts_of(await story.keep.explain(run.id)) == {"deploy", "retry", "finish"}
    await story.deploy(workflow(producers={"poll": producer()}), strand=True)
    found = await story.keep.explain(run.id)
    assert acts_of(found) == {"deploy", "finish"}
    assert "no handler 'act'" in mover(found, "person").what
    await story.keep.finish(run.id)
    done = await story.keep.explain(run.id)
    assert [t.by for t in done.story if (t.machine, t.target) == ("status", "committed")] == ["person"]


async def test_a_repair_is_a_part_of_its_runs_story(story: Story) -> None:
    wf = await story.deploy_and_run(acting("if (prepared) throw new Error('no'); " + SEND), "a")
    repair = await story.keep.fix(wf, acting())
    found = checked(await story.keep.explain(repair), waits=True)
    assert (found.id, acts_of(found)) == ((await story.last(wf)).id, {"approve", "reject"})
    assert mover(found, "person").subject == repair
    assert {"asked", "waiting"} <= {t.target for t in found.story if t.machine == "repair"}


async def test_everything_of_a_long_night_can_be_explained(tmp_path: Path) -> None:
    # every id of a ledger in which much went wrong
    async with Story(tmp_path, policy=Policy(retries_max=1)) as story:
        for id in "abcd":
            story.feed.put(id)
        story.world.on("gmail.send").fail(Transient("busy")).lose_answer(OutcomeUnknown("lost"))
        story.world.on_reconcile("gmail.send").retry().unknown()
        wf = await story.deploy_and_run(acting())
        await story.crash("after:send", minutes=1)
        for _ in range(4):
            await story.run(minutes=5)
            for question in await story.keep.needs_you():
                await story.keep.resolve(str(question.mutation_id), "skip")
        ids: Sequence[str] = [
            wf, *(r.id for r in await story.runs(wf)), *(e.id for e in await story.events(wf)),
            *(i.id for i in await story.keep.inputs(wf)), *(m.id for m in await story.keep.mutations(wf)),
        ]
        assert len(ids) > 15
        for each in ids:
            found = await story.keep.explain(each)
            assert found.moved_by
            json.dumps(found.to_json())
