"""Two tabs: an act carries the version that was shown, and does nothing if that is no longer how things stand. I31."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepai.engine.commands import Commands
from keepai.ledger.transitions import mutations
from keepai.ledger.transitions.shown_acts import ShownAct
from keepai.model.errors import Refused
from keepai.model.records import Escalation
from tests.harness import SEND, Story, consumer, producer, views, workflow

SOURCE = workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=SEND)})


class Tabs(Story):
    """A story with one question, looked at by two people."""

    async def asked(self, **grants: Any) -> Escalation:
        """The question that the workflow comes to."""
        self.feed.put("a")
        self.wf = await self.deploy(SOURCE, **grants)
        await self.run()
        return await self.question()

    async def question(self) -> Escalation:
        [asked] = await self.keep.needs_you()
        return asked

    @property
    def ann(self) -> Commands:
        """Everybody's door; who acts is said with the act."""
        return self.keep.commands

    def account(self) -> int:
        """How long the account is: what was refused adds nothing."""
        return views(self.keep).version()

    def acts(self) -> list[tuple[Any, ...]]:
        rows = self.reader().all("action_all", workflow_id=self.wf)
        return [(row["act"], row["actor"], row["shown"]) for row in rows if row["act"] != "deploy"]


ASK = {"grants": {"gmail.send": "ask", "feed.list": "allow"}}
LACKS = {"grants": {"feed.list": "allow"}}


async def test_of_two_answers_to_one_card_the_first_counts(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        card = await story.asked(**ASK)
        await story.ann.approve(card.id, "ann", card.version)
        before = story.account()
        with pytest.raises(Refused, match=rf"after approve by ann, at .* {card.id} is approved"):
            await story.ann.reject(card.id, "bob", card.version)
        with pytest.raises(Refused, match="by ann"):
            await story.ann.skip_run(card.run_id, "bob", card.version)
        assert (story.account(), story.acts()) == (before, [("approve", "ann", card.version)])
        await story.run()
        assert len(story.world.effects) == 1


async def test_the_same_click_twice_is_one_act(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        card = await story.asked(**ASK)
        await asyncio.gather(*(story.keep.approve(card.id, shown=card.version) for _ in range(3)))
        await story.run()
        await story.keep.approve(card.id, shown=card.version)
        assert story.acts() == [("approve", "person", card.version)]
        with pytest.raises(Refused, match="consumed"):
            await story.ann.approve(card.id, "bob", card.version)
        with pytest.raises(Refused, match="consumed"):
            await story.keep.approve(card.id)
        assert len(story.world.effects) == 1


async def test_a_retry_that_is_sent_twice_gives_the_same_run(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        card = await story.asked(**LACKS)
        first = await story.keep.retry(card.run_id, shown=card.version)
        assert await story.keep.retry(card.run_id, shown=card.version) == first
        assert (await story.last(story.wf)).id == first
        with pytest.raises(Refused, match="superseded"):
            await story.keep.retry(card.run_id, shown=card.version - 1)


async def test_an_answer_comes_too_late_for_what_was_found_meanwhile(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        story.world.on("gmail.send").lose_answer()
        story.world.on_reconcile("gmail.send").unknown()
        card = await story.asked()
        await story.ann.resolve(str(card.mutation_id), "try_again", None, "bob", card.version)
        await story.run()
        with pytest.raises(Refused, match=f"after try_again by bob, .*{card.mutation_id} is applied"):
            await story.keep.resolve(str(card.mutation_id), "skip", shown=card.version)
        assert len(story.world.effects) == 1


async def test_what_moved_by_itself_is_told_as_such(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        card = await story.asked(**ASK)
        await story.run(days=1)
        with pytest.raises(Refused, match=f"by Keep itself, at .*{card.id} is expired"):
            await story.keep.approve(card.id, shown=card.version)
        again = await story.question()
        await story.keep.approve(again.id, shown=again.version)


async def test_an_answer_to_the_same_question_asked_again_is_refused(tmp_path: Path) -> None:
    # the state is the same once more, but not what was known
    async with Tabs(tmp_path) as story:
        story.world.on("gmail.send").lose_answer()
        story.world.on_reconcile("gmail.send").unknown(times=2)
        card = await story.asked()
        await story.keep.resolve(str(card.mutation_id), "try_again")
        await story.run()
        again = await story.question()
        assert (again.id, again.kind, again.version > card.version) == (card.id, card.kind, True)
        with pytest.raises(Refused, match="has moved since"):
            await story.keep.resolve(str(card.mutation_id), "did_not_happen", shown=card.version)
        await story.keep.resolve(str(card.mutation_id), "happened", {"id": "x"}, shown=again.version)
        await story.keep.resolve(str(card.mutation_id), "happened", {"id": "x"}, shown=again.version)
        with pytest.raises(Refused, match="applied"):
            await story.keep.resolve(str(card.mutation_id), "happened", {"id": "y"}, shown=again.version)


async def test_a_workflow_that_was_paused_resumed_and_paused_is_not_the_one_that_was_shown(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        wf = await story.deploy(SOURCE)
        await story.keep.pause(wf)
        shown = await story.keep.version()
        await story.ann.resume(wf, "bob")
        await story.ann.pause(wf, "bob")
        before = story.account()
        for act in (story.keep.resume, story.keep.stop):
            with pytest.raises(Refused, match=r"by bob, .*is paused; that is version"):
                await act(wf, shown=shown)
        assert story.account() == before
        now = await story.keep.version()
        await story.keep.resume(wf, shown=now)
        with pytest.raises(Refused, match="is active"):
            await story.keep.stop(wf, shown=now)


async def test_what_runs_meanwhile_does_not_make_a_pause_stale(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        wf = await story.deploy(SOURCE)
        shown = await story.keep.version()
        story.feed.put("a")
        await story.run()
        await story.keep.pause(wf, shown=shown)
        assert (await story.workflow(wf)).status == "paused"


async def test_of_two_grants_of_one_capability_the_first_counts(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        card = await story.asked(**LACKS)
        await story.ann.grant(story.wf, "gmail.send", "deny", "ann", card.version)
        await story.ann.grant(story.wf, "gmail.send", "deny", "ann", card.version)
        for rule in ("allow", {"mode": "deny", "per_day": 1}):
            with pytest.raises(Refused, match="by ann"):
                await story.ann.grant(story.wf, "gmail.send", rule, "ann", card.version)
        assert story.acts() == [("grant", "ann", card.version)]


async def test_a_card_that_was_shown_after_a_pause_can_be_answered_with_a_grant(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        await story.asked(**LACKS)
        await story.keep.pause(story.wf)
        card = await story.question()
        await story.keep.grant(story.wf, "gmail.send", shown=card.version)
        await story.keep.resume(story.wf)
        await story.run()
        assert len(story.world.effects) == 1


async def test_events_and_inputs_know_versions_too(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        await story.asked(**LACKS)
        story.feed.put("b")
        await story.keep.pause(story.wf)
        card = await story.question()
        await story.keep.skip_run(card.run_id, shown=card.version)
        await story.keep.resume(story.wf)
        await story.run()
        event = await story.event(story.wf, "in", "a")
        shown = await story.keep.version()
        await story.keep.reprocess(event.id, shown=shown)
        await story.keep.reprocess(event.id, shown=shown)
        with pytest.raises(Refused, match="pending"):
            await story.ann.skip_event(event.id, "bob", shown)
        taken = (await story.inputs(story.wf))["a"]
        with pytest.raises(Refused, match="after reprocess by person"):
            await story.keep.skip_input(taken.id, shown=shown)
        shown = await story.keep.version()
        skipped = await story.keep.skip_input(taken.id, shown=shown)
        assert await story.keep.skip_input(taken.id, shown=shown) == skipped


async def test_a_version_that_nobody_can_have_seen_is_refused(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        wf = await story.deploy(SOURCE)
        for shown in (await story.keep.version() + 1, -1):
            with pytest.raises(Refused, match=f"no version {shown}"):
                await story.keep.pause(wf, shown=shown)
        assert (await story.workflow(wf)).status == "active"


async def test_the_transaction_of_the_act_judges_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # what was looked at before is not what holds when the act is written

    async def unjudged(self: Commands, act: ShownAct) -> ShownAct:
        return act

    monkeypatch.setattr(Commands, "_judged", unjudged)
    async with Tabs(tmp_path) as story:
        wf = await story.deploy(SOURCE)
        shown = await story.keep.version()
        await story.keep.pause(wf, shown=shown)
        await story.keep.pause(wf, shown=shown)
        with pytest.raises(Refused, match="has moved since"):
            await story.ann.stop(wf, "bob", shown)
        assert (await story.workflow(wf)).status == "paused"


async def test_a_sign_that_came_after_the_card_was_shown_is_not_taken_for_seen(tmp_path: Path) -> None:
    async with Tabs(tmp_path) as story:
        story.feed.put("a")
        story.wf = await story.deploy(SOURCE)
        await story.run()
        [row] = await story.keep.mutations(story.wf)
        sign = mutations.LateEvidence('{"found_late":"it is not there"}', happened=False)
        await story.keep.parts.ledger.write(mutations.hear, row.id, sign)
        card = await story.question()
        await story.keep.parts.ledger.write(mutations.hear, row.id, sign)
        with pytest.raises(Refused, match="sign contradicts"):
            await story.keep.resolve(row.id, "seen", shown=card.version)
        again = await story.question()
        await story.keep.resolve(row.id, "seen", shown=again.version)
        await story.keep.resolve(row.id, "seen", shown=again.version)
        assert await story.keep.needs_you() == []
