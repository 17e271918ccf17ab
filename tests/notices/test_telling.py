"""Notices: every question once per channel, also over restarts and crashes; failures, bursts, reminders, digests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep, Policy
from keepai.doors.health_checks import check_channels
from keepai.engine.telling import BURST
from keepai.notices.base import Channel, Message, Undelivered
from keepai.reading.look import open_look
from tests.harness import Story, consumer, producer, take_first, workflow

SEND = "await ctx.gmail.send({ to: prepared.data.messageId, body: prepared.data.payload });"
ASK = {"feed.list": "allow", "gmail.send": "ask"}
HOUR = 3_600_000


def asking(name: str = "story", mutate: str = SEND) -> str:
    """A workflow that polls the feed and asks before it sends."""
    return workflow(name, producers={"poll": producer()}, consumers={
        "act": consumer(take_first(), mutate=mutate, next="")})


class Box(Channel):
    """Keeps what it is told, unless it is broken."""

    def __init__(self, name: str = "box", digest: str | None = None) -> None:
        super().__init__(name)
        self.digest = digest
        self.got: list[Message] = []
        self.tried = 0
        self.broken: BaseException | None = None

    async def send(self, message: Message) -> None:
        self.tried += 1
        if self.broken is not None:
            raise self.broken
        self.got.append(message)

    def take(self) -> list[Message]:
        """What came since the last time."""
        got, self.got = self.got, []
        return got


class Told(Story):
    """A story whose people are told."""

    def __init__(self, folder: Path, *channels: Channel, **more: Any) -> None:
        super().__init__(folder, **more)
        self.channels = list(channels)

    async def open(self) -> None:
        connectors = [*self.world.connectors(), self.feed]
        self.keep = Keep(
            self.path, connectors=connectors, policy=self.policy, clock=self.clock, channels=self.channels)
        await self.keep.__aenter__()

    async def ask(self, name: str = "story", payload: Any = "hello") -> str:
        """Deploy a workflow and let it come to its question."""
        self.feed.put("a", payload)
        wf = await self.deploy(asking(name), grants=ASK)
        await self.run()
        return wf


async def test_a_question_is_told_once_with_the_facts_and_what_to_type(tmp_path: Path) -> None:
    # R243, R244, R316
    box = Box()
    async with Told(tmp_path, box) as story:
        await story.ask()
        [asked] = await story.keep.needs_you()
        await story.run(minutes=30)
        await story.run(minutes=30)
        [message] = box.got
    assert message.kind == "question"
    assert message.title == "story: May this be sent?"
    for part in (asked.id, 'gmail.send: body="hello", to="a"', "gmail", "Item a", f"keep approve {asked.id}",
                 f"keep reject {asked.id}", "in the script's words: “a”", str(asked.facts["expires_at"])):
        assert part in message.text, part
    [data] = message.to_json()["questions"]  # type: ignore[misc, union-attr]
    assert (data["id"], data["kind"], data["version"]) == (asked.id, "approval", asked.version)  # type: ignore[index, call-overload]
    assert message.link is None
    assert "http" not in message.text


async def test_a_proposal_is_told_in_its_proposer_s_words_and_the_host_s(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        made = await story.keep.propose(asking(), why="Ann wants\nit: visit http://evil.example")
        await story.run()
        story.keep.page = "http://page.localhost"
        await story.keep.propose(asking("other"), why="more")
        await story.run()
        first, second = box.got
    assert first.title == "story: May this become the active version?"
    for part in ("person proposes a new workflow, story.", "“Ann wants it: visit http://evil.example”",
                 "may change: Send to … (gmail.send)", "It has no certificate", f"keep accept {made.id}"):
        assert part in first.text, part
    assert (second.link or "").startswith("http://page.localhost/proposals/prp_")


async def test_a_new_host_tells_nothing_twice(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        await story.ask()
        await story.reopen()
        await story.run(minutes=1)
        await story.reopen()
        await story.run(minutes=1)
        assert len(box.got) == 1


async def test_a_host_that_died_between_sending_and_noting_tells_again_but_not_at_once(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        story.feed.put("a", "hello")
        await story.deploy(asking(), grants=ASK)
        await story.crash("before:end_notice")
        assert len(box.take()) == 1
        for _ in range(3):  # hosts that start and end again and again do not tell in a loop
            await story.run(seconds=1)
            await story.reopen()
        assert box.take() == []
        await story.run(seconds=30)
        assert len(box.take()) == 1
        await story.run(hours=2)
        assert box.take() == []


async def test_a_host_that_dies_at_every_try_tells_ever_more_rarely(tmp_path: Path) -> None:
    box, policy = Box(), Policy(crashes_max=100)
    async with Told(tmp_path, box, policy=policy) as story:
        story.feed.put("a", "hello")
        await story.deploy(asking(), grants=ASK)
        await story.crash("before:end_notice")
        waited = []
        for _ in range(4):
            seconds = 0
            while not await _dies(story):
                story.clock.advance(seconds=10)
                seconds += 10
            waited.append(seconds)
        assert waited == [30, 60, 120, 240]


async def _dies(story: Told) -> bool:
    before = story.channels[0].tried  # type: ignore[attr-defined]
    [row] = await story.rows("channel_get", name="box")
    if story.clock.now_ms() < row["retry_at"]:
        await story.run()
        assert story.channels[0].tried == before  # type: ignore[attr-defined]
        return False
    await story.crash("before:end_notice")
    return True


async def test_what_was_answered_meanwhile_is_not_told(tmp_path: Path) -> None:
    box = Box()
    box.broken = Undelivered("it is down")
    async with Told(tmp_path, box) as story:
        await story.ask()
        [asked] = await story.keep.needs_you()
        await story.keep.reject(asked.id)
        box.broken = None
        await story.run(hours=2)
        assert box.got == []


async def test_one_that_is_asked_again_is_told_again(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        story.feed.put("a", "hello")
        wf = await story.deploy_and_run(asking(mutate="throw new Error('no such customer')"), grants="all")
        [asked] = await story.keep.needs_you(wf)
        assert [each.title for each in box.take()] == ["story: The script failed."]
        await story.keep.retry(asked.run_id)
        await story.run()
        [message] = box.take()
        assert "no such customer" in message.text
        await story.keep.pause(wf)  # an act of a person makes nobody look again
        await story.run(minutes=1)
        await story.keep.resume(wf)
        await story.run(minutes=1)
        assert box.take() == []


async def test_an_outcome_that_stays_unknown_after_a_second_look_is_told_again(tmp_path: Path) -> None:
    # R245, R247
    box = Box()
    async with Told(tmp_path, box) as story:
        story.world.on("gmail.send").lose_answer()
        story.world.on_reconcile("gmail.send").unknown("It keeps no record.", times=None)
        story.feed.put("a", "hello")
        await story.deploy_and_run(asking(), grants="all")
        [message] = box.take()
        assert message.title == "story: Did this happen?"
        [asked] = await story.keep.needs_you()
        assert str(asked.facts["check_by_hand"]) in message.text
        await story.run(hours=1)
        assert box.take() == []
        assert asked.mutation_id
        await story.keep.resolve(asked.mutation_id, "try_again")
        await story.run()
        assert [each.title for each in box.take()] == ["story: Did this happen?"]


async def test_many_questions_at_once_are_one_message(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        story.feed.put("a", "hello")
        for number in range(30):
            await story.deploy(asking(f"w{number}"), grants=ASK)
        await story.run()
        [message] = box.take()
        assert message.title == "30 questions wait for you"
        assert "… and 10 more." in message.text
        assert len(message.to_json()["questions"]) == 30  # type: ignore[arg-type]
        await story.run(minutes=1)
        assert box.take() == []


async def test_a_few_questions_are_a_message_each(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        story.feed.put("a", "hello")
        for number in range(BURST):
            await story.deploy(asking(f"w{number}"), grants=ASK)
        await story.run()
        assert sorted(each.title for each in box.got) == [f"w{n}: May this be sent?" for n in range(BURST)]


async def test_a_channel_that_fails_is_tried_again_ever_more_rarely_and_the_others_are_told(tmp_path: Path) -> None:
    bad, good = Box("bad"), Box("good")
    bad.broken = Undelivered("the line is cut")
    async with Told(tmp_path, bad, good) as story:
        await story.ask()
        assert (bad.tried, len(good.got)) == (1, 1)
        tries = []
        for _ in range(24 * 6):
            await story.run(minutes=10)
            tries.append(bad.tried)
        assert tries[0] <= 6, "30 s, then twice as long each time"
        assert 20 <= tries[-1] <= 34, "then once an hour"
        assert len(good.got) <= 3  # with its reminder, and asked afresh
        bad.broken = None
        await story.run(hours=1)
        assert len(bad.got) == 1
        await story.run(hours=1)
        assert len(bad.got) == 1


async def test_the_failure_of_a_channel_can_be_seen_and_goes_away(tmp_path: Path) -> None:
    box = Box()
    box.broken = RuntimeError("password=hunter2")
    async with Told(tmp_path, box) as story:
        await story.ask()
        [found] = _found(story)
        assert (found.name, found.state) == ("notify.box", "fail")
        assert "RuntimeError" in found.said
        assert "hunter2" not in found.said, "words of a library may hold a secret"
        box.broken = None
        await story.run(minutes=1)
        [found] = _found(story)
        assert found.state == "ok"


def _found(story: Told) -> list[Any]:
    from dataclasses import replace


    with open_look(story.path, Policy()) as look:
        return check_channels(replace(look, now_ms=story.clock.now_ms()))


async def test_a_channel_that_hangs_is_cut_off_and_stops_no_run(tmp_path: Path) -> None:
    class Hanging(Box):
        async def send(self, message: Message) -> None:
            await asyncio.Event().wait()

    async with Told(tmp_path, Hanging(), policy=Policy(notify_s=0.05)) as story:
        wf = await story.ask()
        [found] = _found(story)
        assert "within 0.05 s" in found.said
        assert (await story.last(wf)).status == "paused:approval"


async def test_a_new_host_tries_a_channel_that_failed_at_once(tmp_path: Path) -> None:
    box = Box()
    box.broken = Undelivered("a wrong password")
    async with Told(tmp_path, box) as story:
        await story.ask()
        box.broken = None
        await story.run(seconds=1)
        assert box.got == []
        await story.reopen()  # with its settings mended, say
        await story.run(seconds=1)
        assert len(box.got) == 1


async def test_a_text_that_a_channel_refuses_does_not_hold_up_the_others(tmp_path: Path) -> None:
    class Picky(Box):
        async def send(self, message: Message) -> None:
            if "poison" in message.text and len(message.data["questions"]) == 1:  # type: ignore[arg-type]
                raise Undelivered("I will not say that")
            await super().send(message)

    box = Picky()
    async with Told(tmp_path, box) as story:
        story.feed.put("a", "poison")
        await story.deploy_and_run(asking("first"), grants=ASK)
        assert box.got == []
        story.feed.put("a", "hello")
        await story.deploy(asking("second"), grants=ASK)
        await story.run(minutes=1)
        [message] = box.got
        assert {"first", "second"} == {each["workflow"] for each in message.data["questions"]}  # type: ignore[union-attr, index, call-overload]


async def test_who_does_not_answer_is_reminded_by_policy(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box, policy=Policy(notify_remind_s=4 * 3600)) as story:
        await story.ask()
        assert len(box.take()) == 1
        await story.run(hours=3)
        assert box.take() == []
        await story.run(hours=1)
        [message] = box.take()
        assert (message.kind, message.title) == ("reminder", "Still unanswered: story: May this be sent?")
        await story.run(hours=3)
        assert box.take() == []
        [asked] = await story.keep.needs_you()
        await story.keep.reject(asked.id)
        await story.run(hours=5)
        assert box.take() == []


async def test_what_cannot_be_seen_is_made_visible_and_a_letter_is_never_long(tmp_path: Path) -> None:
    # I30
    box = Box()
    async with Told(tmp_path, box) as story:
        story.feed.put("a", "pay \u202eeno\u202c \u200bnow\nkeep approve everything " + "x" * 100_000,
                       title="Rechnung\r\nBcc: eve@example.com \u2066")
        await story.deploy_and_run(asking(), grants=ASK)
        [message] = box.got
    shown = message.title + message.text
    assert "‹U+202E›" in shown
    assert not {"\u202e", "\u202c", "\u200b", "\u2066", "\r"} & set(shown)
    assert "\nBcc:" not in shown
    assert "\nkeep approve everything" not in shown, "what came from outside begins no line"
    assert len(shown) < 5_000


async def test_a_page_that_the_host_has_is_linked_and_nothing_in_the_link_acts(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        story.keep.page = "http://127.0.0.1:7777"
        wf = await story.ask()
        [message] = box.got
        assert message.link == f"http://127.0.0.1:7777/workflows/{wf}/needs-you"
        assert message.text.count("http") == 1
        assert "token" not in message.text


async def test_nothing_is_looked_at_while_nothing_changes(tmp_path: Path) -> None:
    box = Box()
    async with Told(tmp_path, box) as story:
        await story.ask()
        teller = story.keep.host._teller
        looked: list[int] = []
        teller._letters.asked = lambda now: looked.append(now) or []  # type: ignore[method-assign, func-returns-value, assignment]
        for _ in range(5):
            story.clock.advance(seconds=30)
            await teller.look()
        assert looked == []


async def test_a_repair_hook_has_its_turn_before_a_person_is_told(tmp_path: Path) -> None:
    box, asked = Box(), asyncio.Event()

    async def hook(evidence: Any) -> None:
        await story.keep.host._teller.look()
        asked.set()

    async with Told(tmp_path, box) as story:
        story.keep.parts.repair = hook
        story.feed.put("a", "hello")
        await story.deploy_and_run(asking(mutate="throw new Error('broken')"), grants="all")
        assert asked.is_set()
        assert len(box.got) == 1, "only once the hook had nothing to offer"


@pytest.mark.parametrize("down", [False, True])
async def test_a_digest_is_sent_once_a_day_and_once_for_all_days_that_were_missed(tmp_path: Path, down: bool) -> None:
    box = Box(digest="daily 08:00 Europe/Berlin")  # it is 09:00 UTC, so 10:00 there
    async with Told(tmp_path, box, policy=Policy(notify_remind_s=1e9)) as story:
        await story.ask()
        assert [each.kind for each in box.take()] == ["question"]
        await story.run(hours=21)
        assert box.take() == []
        if down:
            await story.keep.close()
            story.clock.advance(days=5)
            await story.open()
        await story.run(hours=1)
        [message] = [each for each in box.take() if each.kind == "digest"]
        assert message.title == "Keep: 1 came in, 1 waits for you"
        assert "Item a" in message.text
        await story.run(minutes=5)
        assert box.take() == []
        await story.run(hours=24)
        [message] = [each for each in box.take() if each.kind == "digest"]
        assert message.title == "Keep: 1 waits for you", "what was told before is not told again"


async def test_a_digest_counts_what_came_in_went_out_failed_and_waits(tmp_path: Path) -> None:
    async with Told(tmp_path) as story:
        story.feed.put("a", "hello")
        story.feed.put("b", "hello")
        good = await story.deploy(asking("good"), grants="all")
        bad = await story.deploy(asking("bad", "throw new Error('no such customer')"), grants="all")
        await story.deploy(workflow("idle", producers={"poll": producer("")}, topics=("in",)), grants="all")
        began = story.clock.now_ms()
        await story.run()
        story.clock.advance(seconds=1)
        found = await story.keep.digest(began)
        days = {day.workflow: day for day in found.workflows}
        assert {name: entry.count for name, entry in days["good"].entries().items()} == {
            "came in": 2, "went out": 2, "failed": 0, "skipped": 0, "waits for you": 0}
        assert days["good"].went_out.lines == ('gmail.send: body="hello", to="b"', 'gmail.send: body="hello", to="a"')
        assert (days["bad"].failed.count, days["bad"].waits.count) == (1, 1)
        assert "no such customer" in days["bad"].failed.lines[0]
        assert {days["good"].workflow_id, days["bad"].workflow_id} == {good, bad}
        assert "Nothing happened in 1 of 3 workflows." in list(found.lines())
        later = await story.keep.digest(story.clock.now_ms())
        [day] = [each for each in later.workflows if each.workflow == "bad"]
        assert (day.came_in.count, day.failed.count, day.waits.count) == (0, 0, 1)


async def test_a_host_that_serves_tells_by_itself(tmp_path: Path) -> None:
    told = asyncio.Event()

    class Bell(Box):
        async def send(self, message: Message) -> None:
            await super().send(message)
            told.set()

    box = Bell()
    async with Told(tmp_path, box) as story:
        serving = asyncio.ensure_future(story.keep.serve())
        story.feed.put("a", "hello")
        await story.deploy(asking(), grants=ASK)
        async with asyncio.timeout(20):
            await told.wait()
        await story.keep.host.close()
        await serving
        assert len(box.got) == 1


async def test_a_message_under_way_is_noted_before_the_host_ends(tmp_path: Path) -> None:
    begun = asyncio.Event()

    class Slow(Box):
        async def send(self, message: Message) -> None:
            begun.set()
            await asyncio.sleep(0.2)
            await super().send(message)

    box = Slow()
    async with Told(tmp_path, box) as story:
        serving = asyncio.ensure_future(story.keep.serve())
        story.feed.put("a", "hello")
        await story.deploy(asking(), grants=ASK)
        async with asyncio.timeout(20):
            await begun.wait()
        await story.keep.host.close()
        await serving
        assert len(await story.rows("notice_all")) == 1
