"""Signs that come late: they end a doubt, or are kept beside what is on record and raised to a person. I10."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keepai import Call, Connector, Policy, Rejected, Verdict, mutation
from keepai.engine import outside, reconcile
from keepai.ledger.rows import mutation_record
from keepai.ledger.transitions import mutations
from keepai.ledger.transitions.mutations import Doubt
from keepai.model.errors import OutcomeUnknown, Refused
from keepai.model.records import Escalation, Mutation
from keepai.model.states import MutationStatus
from tests.harness import Story, consumer, producer, workflow

pytestmark = pytest.mark.both_stores

AT_ONCE = 0.0001  #: less than the clock can tell
POLICY = Policy(call_s=0.05, reconcile_s=0.05, reconciles_max=1, settle_s=AT_ONCE)


class Line(Connector):
    """The first call, or the first question, goes on after it was given up, until the test lets it end."""

    def __init__(self, *, hangs: str = "call", ends: Any = None) -> None:
        super().__init__()
        self.hangs, self.ends = hangs, ends
        self.end, self.sent, self.asked = asyncio.Event(), 0, 0
        self.verdict = Verdict.unknown("no record")

    @mutation(identity=("to",), target="to")
    async def ring(self, params: dict[str, Any], call: Call) -> Any:
        """Ring; the first time without an answer in time."""
        self.sent += 1
        if self.sent > 1:
            return {"n": self.sent}
        if self.hangs != "call":
            raise OutcomeUnknown("the line went dead")
        return await self._late()

    @ring.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Say what the test wants, or nothing in time."""
        self.asked += 1
        return await self._late() if self.hangs == "question" and self.asked == 1 else self.verdict

    async def _late(self) -> Any:
        while not self.end.is_set():
            try:
                await self.end.wait()
            except asyncio.CancelledError:
                continue  # it does not even end when it is told to
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends


SOURCE = workflow(producers={"poll": producer()}, consumers={"act": consumer(
    mutate="await ctx.line.ring({ to: prepared.data.messageId });", next="ctx.log(JSON.stringify(mutationResult));")})


ROUTINE = """
export default Keep.workflow({ name: "story", routines: { ring: { schedule: { interval: "5m" }, async handler(ctx) {
  for (const each of await ctx.feed.list({})) {
    await ctx.withItem(each.id, `Item ${each.id}`, async (ctx) => {
      if (ctx.item.isDone) return;
      ctx.log(JSON.stringify(await ctx.line.ring({ to: each.id })));
    });
  }
} } } });
"""


class Late(Story):
    """A story with a line whose first call, or question, ends when `ended` is awaited."""

    def __init__(self, folder: Path, **line: Any) -> None:
        self.line = Line(**line)
        super().__init__(folder, policy=POLICY, connectors=[self.line])

    async def in_doubt(self, source: str = "") -> Mutation:
        """The mutation that nobody can tell about."""
        self.feed.put("a")
        self.wf = await self.deploy(source or SOURCE)
        await self.run()
        [row] = await self.keep.mutations(self.wf)
        assert row.status == "indeterminate"
        return row

    async def ended(self) -> None:
        """Let what goes on end."""
        self.line.end.set()
        await asyncio.wait({*self.keep.parts.calls, *self.keep.parts.questions}, timeout=5)

    async def mutation(self, id: str) -> Mutation:
        """A mutation as it stands."""
        return next(m for m in await self.keep.mutations(self.wf) if m.id == id)

    async def sign(self) -> Escalation:
        """The one question, which is about a sign."""
        [asked] = await self.keep.needs_you()
        assert (asked.kind, asked.actions) == ("attention", ("seen",))
        return asked


# -- while nobody knows ------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs", ["call", "question"])
async def test_a_late_success_ends_the_doubt_and_the_run_goes_on(tmp_path: Path, hangs: str) -> None:
    # I8, I10
    result = {"id": "late"}
    async with Late(tmp_path, hangs=hangs, ends=result if hangs == "call" else Verdict.applied(result)) as story:
        row = await story.in_doubt()
        story.keep.host._woken.clear()
        await story.ended()
        assert story.keep.host._woken.is_set()
        after = await story.mutation(row.id)
        assert (after.status, after.result, after.contradicted_at) == ("applied", result, None)
        await story.run()
        assert story.logs(await story.last(story.wf)) == ['{"result":{"id":"late"},"status":"applied"}']
        assert ((await story.last(story.wf)).id, story.line.sent) == (row.run_id, 1)
        assert await story.keep.needs_you() == []


async def test_a_late_success_is_quicker_than_the_next_question(tmp_path: Path) -> None:
    async with Late(tmp_path, ends={"id": "late"}) as story:
        story.line.verdict = Verdict.retry(30)
        story.policy = Policy(call_s=0.05, settle_s=AT_ONCE)
        await story.reopen()
        story.feed.put("a")
        story.wf = await story.deploy(SOURCE)
        await story.run()
        [row] = await story.keep.mutations(story.wf)
        assert row.status == "needs_reconcile"
        await story.ended()
        await story.run()
        assert ((await story.mutation(row.id)).status, story.line.asked) == ("applied", 1)
        assert (await story.last(story.wf)).status == "committed"


async def test_a_late_success_in_a_routine_is_the_result_that_its_replay_gets(tmp_path: Path) -> None:
    async with Late(tmp_path, ends={"id": "late"}) as story:
        row = await story.in_doubt(ROUTINE)
        await story.ended()
        await story.run()
        assert ((await story.mutation(row.id)).status, story.line.sent) == ("applied", 1)
        assert story.logs(await story.last(story.wf)) == ['{"id":"late"}']
        assert (await story.last(story.wf)).status == "committed"


@pytest.mark.parametrize("ends", [Rejected("no such number"), ValueError("odd")])
async def test_a_late_refusal_does_not_end_the_doubt(tmp_path: Path, ends: Exception) -> None:
    # I4: what came late is shown, and proves nothing by itself
    async with Late(tmp_path, ends=ends) as story:
        row = await story.in_doubt()
        await story.ended()
        after = await story.mutation(row.id)
        assert (after.status, after.contradicted_at) == ("indeterminate", None)
        [asked] = await story.keep.needs_you()
        assert (asked.kind, str(ends) in str(asked.facts["late_evidence"])) == ("unknown_outcome", True)


# -- against what is on record -----------------------------------------------------------------------


async def test_a_late_success_after_skip_is_raised_and_changes_nothing(tmp_path: Path) -> None:
    # I10, I7
    async with Late(tmp_path, ends={"id": "late"}) as story:
        row = await story.in_doubt()
        await story.keep.resolve(row.id, "skip")
        await story.run()
        await story.ended()
        after = await story.mutation(row.id)
        assert (after.status, after.result, after.contradicted_at) == ("skipped", None, story.clock.now_ms())
        asked = await story.sign()
        assert (asked.id, asked.mutation_id, asked.run_id) == (f"ask_{row.id}", row.id, row.run_id)
        assert (asked.facts["recorded_by"], asked.facts["inputs"]) == ("skipped by person", ["Item a"])
        assert (asked.facts["attempted"], asked.facts["target"]) == (row.preview, "a")
        assert "{'id': 'late'}" in str(asked.facts["late_evidence"])
        story.feed.put("b")
        await story.run(minutes=5)
        assert await story.ids(story.wf, "in", "consumed") == ["b"], "it holds nothing up"


async def test_a_late_refusal_after_a_persons_word_that_it_happened_is_raised(tmp_path: Path) -> None:
    async with Late(tmp_path, ends=Rejected("no such number")) as story:
        row = await story.in_doubt()
        await story.keep.resolve(row.id, "happened", {"by": "hand"})
        await story.run()
        await story.ended()
        after = await story.mutation(row.id)
        assert (after.status, after.result) == ("applied", {"by": "hand"})
        asked = await story.sign()
        assert (asked.facts["recorded_by"], asked.facts["sent_again"]) == ("person: it happened", [])
        assert "did not happen" in str(asked.facts["why"])


@pytest.mark.parametrize(("answer", "ends"), [("happened", {"id": "late"}), ("skip", Rejected("no such number"))])
async def test_a_late_sign_that_fits_is_kept_and_asks_nobody(tmp_path: Path, answer: str, ends: Any) -> None:
    async with Late(tmp_path, ends=ends) as story:
        row = await story.in_doubt()
        await story.keep.resolve(row.id, answer)
        await story.run()
        await story.ended()
        assert "ended_late" in str((await story.mutation(row.id)).evidence)
        assert await story.keep.needs_you() == []


async def test_an_answer_that_comes_after_it_was_sent_again_names_the_second_send(tmp_path: Path) -> None:
    # I2, I10: a person was wrong, and is told so
    async with Late(tmp_path, hangs="question", ends=Verdict.applied({"id": "first"})) as story:
        row = await story.in_doubt()
        await story.keep.resolve(row.id, "did_not_happen")
        await story.run()
        await story.ended()
        first, second = await story.keep.mutations(story.wf)
        assert (first.status, second.status) == ("failed", "applied")
        asked = await story.sign()
        assert asked.facts["sent_again"] == [second.id]
        assert f"{second.id} (applied): it may have happened twice" in str(asked.facts["check_by_hand"])


async def test_a_late_not_found_counts_only_if_nothing_could_arrive_any_more(tmp_path: Path) -> None:
    for settle_s, raised in ((AT_ONCE, True), (60, False)):
        folder = tmp_path / str(settle_s)
        folder.mkdir()
        story = Late(folder, hangs="question", ends=Verdict.failed())
        story.policy = Policy(call_s=0.05, reconcile_s=0.05, reconciles_max=1, settle_s=settle_s)
        async with story:
            row = await story.in_doubt()
            await story.keep.resolve(row.id, "happened")
            await story.ended()
            assert bool(await story.keep.needs_you()) is raised


async def test_what_reconcile_found_is_not_lost_if_somebody_was_quicker(tmp_path: Path) -> None:
    # I8: the verdict is on its way when a person answers
    async with Late(tmp_path, hangs="none") as story:
        story.line.verdict = Verdict.retry()
        story.policy = Policy(call_s=0.05, settle_s=AT_ONCE)
        await story.reopen()
        story.feed.put("a")
        story.wf = await story.deploy(SOURCE)
        await story.run()
        [row] = await story.keep.mutations(story.wf)
        run = await story.keep.run(row.run_id)
        doubt = reconcile.doubt(story.keep.parts, run, row, OutcomeUnknown("nobody can tell"), closed=True)
        given_up = Doubt(MutationStatus.INDETERMINATE, doubt.why, closed=True, attempts=1)
        await story.keep.parts.ledger.write(mutations.still_doubt, run, row, given_up)
        await story.keep.resolve(row.id, "did_not_happen")
        story.line.verdict = Verdict.applied({"id": "found"})
        with pytest.raises(Exception, match="no longer"):
            await reconcile.attempt(story.keep.parts, run, row)
        await story.run()
        after = await story.mutation(row.id)
        assert (after.status, after.contradicted_at is not None) == ("failed", True)
        assert "found_late" in str(after.evidence)


# -- what a person does about it ---------------------------------------------------------------------


async def test_seen_answers_it_once_and_keeps_the_evidence(tmp_path: Path) -> None:
    # I10, I34
    async with Late(tmp_path, ends={"id": "late"}) as story:
        row = await story.in_doubt()
        with pytest.raises(Refused, match="indeterminate"):
            await story.keep.resolve(row.id, "seen")
        await story.keep.resolve(row.id, "skip")
        await story.ended()
        await story.reopen()
        asked = await story.sign()
        explained = await story.keep.explain(asked.id)
        assert (explained.id, explained.moved_by[0].acts) == (row.id, ("seen",))
        assert "later evidence says that it happened" in explained.because
        before = await story.mutation(row.id)
        await story.keep.resolve(row.id, "seen")
        after = await story.mutation(row.id)
        assert (after.status, after.evidence, after.contradicted_at) == (before.status, before.evidence, None)
        assert await story.keep.needs_you() == []
        acts = await story.rows("action_all", workflow_id=story.wf)
        assert [(a["act"], a["subject"], a["actor"]) for a in acts][-1] == ("seen", row.id, "person")
        with pytest.raises(Refused, match="skipped"):
            await story.keep.resolve(row.id, "seen")


async def test_a_second_sign_asks_again(tmp_path: Path) -> None:
    async with Late(tmp_path, ends={"id": "late"}) as story:
        row = await story.in_doubt()
        await story.keep.resolve(row.id, "skip")
        await story.ended()
        await story.keep.resolve(row.id, "seen")
        again = mutations.LateEvidence('{"found_late":"it is there"}', happened=True)
        await story.keep.parts.ledger.write(mutations.hear, row.id, again)
        assert len((await story.sign()).facts["late_evidence"]) == 2  # type: ignore[arg-type]


async def test_other_answers_are_refused_for_a_sign(tmp_path: Path) -> None:
    async with Late(tmp_path, ends={"id": "late"}) as story:
        row = await story.in_doubt()
        await story.keep.resolve(row.id, "skip")
        await story.ended()
        for answer in ("try_again", "did_not_happen", "happened", "skip"):
            with pytest.raises(Refused, match="skipped"):
                await story.keep.resolve(row.id, answer)
        [row_now] = await story.rows("mutation_by_id", mutation_id=row.id)
        assert mutation_record(row_now).status == "skipped"


async def test_a_call_that_ignores_its_end_is_not_forgotten_when_whoever_waits_for_it_is_cut_off() -> None:
    told_to_end, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn(params: Any, call: Any) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                told_to_end.set()

    given_up: list[Any] = []
    spec: Any = SimpleNamespace(invoke=stubborn)
    call: Any = None
    waiting = asyncio.ensure_future(outside.mutate(spec, "x.y", {}, call, 0.001, given_up.append))
    await told_to_end.wait()
    waiting.cancel()  # its host has lost its place, or ends
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [each.done() for each in given_up] == [False]
    may_end.set()
    await given_up[0]
