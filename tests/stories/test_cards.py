"""The card of an unknown outcome: everything that chapter 13.10 lists, and no answer that would be refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, OutcomeUnknown, Policy, Rejected, Verdict, mutation
from keepai.model.errors import Refused
from keepai.model.records import Escalation
from keepai.reading.unknown_outcome import HOST_KNOWS, NOT_ENDED
from keepai.reading.views import Views
from tests.harness import Story, consumer, producer, take_first, workflow

ANSWERS = ("try_again", "did_not_happen", "happened", "skip")


class Bank(Connector):
    """Honours idempotency keys for an hour; a payment may show up to a minute after its call."""

    @mutation(identity=("to",), target="to", settle=60, key_window=3_600)
    async def pay(self, params: dict[str, Any], call: Call) -> None:
        """Lose every answer."""
        raise OutcomeUnknown("the line went dead")

    @pay.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Never know."""
        return Verdict.unknown("the statement comes tomorrow")


class Post(Connector):
    """Leaves a mark that can be looked up."""

    @mutation(target="to", settle=60)
    async def put(self, params: dict[str, Any], call: Call) -> None:
        """Lose every answer."""
        raise OutcomeUnknown("the line went dead")

    @put.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Never know."""
        return Verdict.unknown("no list is kept")


class Horn(Connector):
    """Can be blown, and that is all."""

    @mutation(settle=60)
    async def blow(self, params: dict[str, Any], call: Call) -> None:
        """Lose every answer."""
        raise OutcomeUnknown("the wind took it")


CALLS = {"A": "bank.pay", "B": "post.put", "C": "horn.blow"}
CONNECTORS: tuple[type[Connector], ...] = (Bank, Post, Horn)


def acting(call: str, title: str = "") -> str:
    """A workflow that makes one call for each item."""
    prepare = take_first() if not title else take_first().replace("event.messageId }", f"{title!r} }}")
    return workflow(producers={"poll": producer()}, consumers={"act": consumer(
        prepare, mutate=f"await ctx.{call}({{ to: prepared.data.messageId, sum: 12 }});", next="ctx.log(1);")})


def story_of(folder: Path) -> Story:
    return Story(folder, connectors=[kind() for kind in CONNECTORS])


async def asked(story: Story, call: str, **more: Any) -> Escalation:
    """The question about a call of which nobody knows."""
    story.feed.put("a", title="Invoice of Ann")
    wf = await story.deploy_and_run(acting(call, **more))
    [question] = await story.keep.needs_you(wf)
    assert question.kind == "unknown_outcome"
    return question


@pytest.mark.parametrize("letter", CALLS)
async def test_a_card_has_everything_that_a_person_must_know(tmp_path: Path, letter: str) -> None:
    # R243–R247, R306, R311–R316, I30, seed 13.10
    connector, _, operation = CALLS[letter].partition(".")
    async with story_of(tmp_path) as story:
        facts = (await asked(story, CALLS[letter])).facts
        [row] = await story.keep.mutations("story")
        assert (facts["connector"], facts["operation"], facts["target"]) == (connector, operation, row.target)
        assert (facts["attempted"], facts["title_by_script"]) == (f'{CALLS[letter]}: sum=12, to="a"', "a")
        assert facts["params"] == {"to": "a", "sum": 12}
        assert str(facts["why"]).startswith("the wind took it" if letter == "C" else "Nobody can tell whether")
        assert (facts["connector_class"], facts["can_verify"]) == (letter, letter != "C")
        assert facts["inputs"] == ["Invoice of Ann"]
        assert (facts["sent_times"], facts["asked_times"]) == (1, 0 if letter == "C" else 1)
        for part in (connector, row.target, row.preview, row.idempotency_key, "2026-01-05T09:00:00.000Z"):
            assert part in str(facts["check_by_hand"])
        assert facts["late_evidence"] == []


async def test_the_card_says_how_the_connector_verifies(tmp_path: Path) -> None:
    # DESIGN 6: the class is shown on every card
    told = {}
    for letter, call in CALLS.items():
        (tmp_path / letter).mkdir()
        async with story_of(tmp_path / letter) as story:
            told[letter] = str((await asked(story, call)).facts["verifying"])
    assert told == {
        "A": "bank.pay can be looked up, and honours the idempotency key for 3600 s, until 2026-01-05T10:00:00.000Z.",
        "B": "post.put can be looked up.",
        "C": "horn.blow cannot be looked up: only a person can find out.",
    }


@pytest.mark.parametrize("letter", CALLS)
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_exactly_the_answers_that_are_offered_are_accepted(
    tmp_path: Path, letter: str, settled: bool, answer: str,
) -> None:
    # R248, R252, I33
    async with story_of(tmp_path) as story:
        question = await asked(story, CALLS[letter])
        if settled:
            story.clock.advance(seconds=60)
            [question] = await story.keep.needs_you()
        offered = {"try_again": letter != "C", "did_not_happen": settled, "happened": True, "skip": True}
        assert question.actions == tuple(act for act, fits in offered.items() if fits)
        assert question.mutation_id is not None
        if answer in question.actions:
            await story.keep.resolve(question.mutation_id, answer)
        else:
            with pytest.raises(Refused):
                await story.keep.resolve(question.mutation_id, answer)
            assert await story.keep.needs_you() == [question]


async def test_what_is_not_possible_yet_says_from_when(tmp_path: Path) -> None:
    # I33: and exactly from then on it is accepted
    async with story_of(tmp_path) as story:
        question = await asked(story, "post.put")
        assert question.facts["possible_from"] == {"did_not_happen": "2026-01-05T09:01:00.000Z"}
        assert question.facts["may_arrive_until"] == "2026-01-05T09:01:00.000Z"
        explained = await story.keep.explain(str(question.mutation_id))
        [later] = [m for m in explained.moved_by if m.kind == "time"]
        assert (later.acts, later.due_at) == (("did_not_happen",), story.clock.now_ms() + 60_000)
        story.clock.advance(seconds=59)
        assert (await story.keep.needs_you())[0].facts == question.facts
        story.clock.advance(seconds=1)
        [question] = await story.keep.needs_you()
        assert (question.facts["possible_from"], question.facts["may_arrive_until"]) == ({}, None)
        await story.keep.resolve(str(question.mutation_id), "did_not_happen")


async def test_the_time_counts_anew_after_a_restart(tmp_path: Path) -> None:
    # DESIGN 6: settle is measured by the process that waits
    async with story_of(tmp_path) as story:
        await asked(story, "post.put")
        story.clock.advance(minutes=10)
        await story.reopen()
        [question] = await story.keep.needs_you()
        assert question.facts["possible_from"] == {"did_not_happen": "2026-01-05T09:11:00.000Z"}


async def test_a_call_that_has_not_ended_says_so_and_what_it_said_late_is_shown(tmp_path: Path) -> None:
    # I5, I10, I33
    async with Story(tmp_path, policy=Policy(call_s=0.05)) as story:
        story.world.on("webhook.fire").hang(applied=True, stubborn=True)
        question = await asked(story, "webhook.fire")
        assert (question.facts["ended_at"], question.facts["may_arrive_until"]) == (None, NOT_ENDED)
        assert question.facts["possible_from"] == {"did_not_happen": NOT_ENDED}
        explained = await story.keep.explain(question.run_id)
        assert NOT_ENDED in " ".join(m.what for m in explained.moved_by)
        story.world.release()
        await asyncio.wait(story.keep.parts.calls, timeout=5)
        [after] = await story.keep.needs_you()
        assert "ended_late" in str(after.facts["late_evidence"])
        assert after.facts["ended_at"] is not None
        assert "did_not_happen" in after.actions
        assert "What came later" in (await story.keep.explain(str(after.mutation_id))).because


async def test_a_connector_that_is_gone_cannot_be_asked(tmp_path: Path) -> None:
    async with story_of(tmp_path) as story:
        await asked(story, "post.put")
        story._more = []
        await story.reopen()
        [question] = await story.keep.needs_you()
        assert "are no longer configured" in str(question.facts["verifying"])
        assert (question.facts["connector_class"], question.facts["can_verify"]) == (None, False)
        assert set(question.actions) == {"happened", "skip"}
        with pytest.raises(Refused):
            await story.keep.resolve(str(question.mutation_id), "try_again")


@pytest.mark.parametrize("letter", CALLS)
async def test_without_a_host_the_card_says_what_it_cannot_know(tmp_path: Path, letter: str) -> None:
    # the command line reads the ledger alone
    async with story_of(tmp_path) as story:
        await asked(story, CALLS[letter])
        views = Views(story.reader(), Policy())
        [question] = views.needs_you(story.clock.now_ms())
        assert question.facts["connector_class"] is None
        assert question.facts["can_verify"] is (letter != "C")  # the history says whether it was ever asked
        assert "only a running host knows" in str(question.facts["verifying"])
        assert question.facts["may_arrive_until"] == HOST_KNOWS
        assert set(question.actions) == {"happened", "skip", *(["try_again"] if letter != "C" else [])}
        explained = views.explain(question.id, story.clock.now_ms())
        assert "did_not_happen" in {act for m in explained.moved_by if m.kind == "host" for act in m.acts}


async def test_what_a_script_calls_it_does_not_get_into_the_hosts_sentences(tmp_path: Path) -> None:
    # I30: a script's title is shown as its word only
    async with story_of(tmp_path) as story:
        question = await asked(story, "post.put", title="Nothing, just press skip")
        assert question.facts["title_by_script"] == "Nothing, just press skip"
        hosts = [str(question.facts[name]) for name in ("attempted", "check_by_hand", "verifying", "why")]
        assert not [text for text in hosts if "press skip" in text]


async def test_nothing_can_hide_in_what_to_check_by_hand(tmp_path: Path) -> None:
    # I30
    async with story_of(tmp_path) as story:
        story.feed.put("x\u202ey", title="Turned")
        await story.deploy_and_run(acting("post.put"))
        [question] = await story.keep.needs_you()
        assert "x‹U+202E›y" in str(question.facts["check_by_hand"])
        assert "\u202e" not in str(question.facts["check_by_hand"])


async def test_a_person_is_told_to_look_for_every_key_that_a_thing_may_have_been_sent_with(tmp_path: Path) -> None:
    # a ledger that was put back may not know that the outside had refused it before
    async with story_of(tmp_path) as story:
        story.world.on("webhook.fire").fail(Rejected("no"))
        wf = await story.deploy_and_run(acting("webhook.fire"), "a")
        story.world.on("webhook.fire").fail(OutcomeUnknown("lost"))
        await story.keep.retry((await story.last(wf, "act")).id)
        await story.run()
        [question] = await story.keep.needs_you()
        first, dash, number = str(question.facts["idempotency_key"]).partition("-")
        assert (dash, number) == ("-", "2")
        assert f"begin with {first}:" in str(question.facts["check_by_hand"])
