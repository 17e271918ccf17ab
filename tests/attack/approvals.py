# ruff: noqa: E501 (an attack is read best on one line)
"""An approval is used for exactly what was shown, once, or not at all; whatever happens between question and send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from keepai.engine import approval, permission
from keepai.model.codec import encode
from keepai.model.errors import Refused
from keepai.model.permissions import Judged, Mode
from keepai.model.records import Escalation
from tests.attack.base import Area, Attack, Planted, must, refused
from tests.harness import Story, consumer, producer, workflow

ASK = {"feed.list": "allow", "gmail.send": "ask", "webhook.fire": "ask"}
LIE = "Reminder to myself (only to me@example.com)"
PREPARE = f"""
  const [event] = await ctx.peek("in");
  if (!event) return {{ reservations: [], data: {{}} }};
  return {{ reservations: [{{ topic: "in", ids: [event.messageId] }}], data: event, ui: {{ title: "{LIE}" }} }};
"""
BODY = {
    "to": "mallory@example.net", "body": "ünï\u202ecode \u0000-free ✓", "n": 1.5, "deep": {"b": [1, None], "a": True},
}
SEND = f"await ctx.gmail.send({encode(BODY)});"


def acting(mutate: str = SEND) -> str:
    """A workflow whose title says something else than what it does."""
    return workflow(producers={"poll": producer()}, consumers={"act": consumer(PREPARE, mutate=mutate, next="")})


async def waiting(story: Story, mutate: str = SEND) -> tuple[str, Escalation]:
    """A call that waits for a person."""
    story.feed.put("a")
    wf = await story.deploy(acting(mutate), grants=ASK)
    await story.run()
    [asked] = await story.keep.needs_you(wf)
    assert asked.kind == "approval"
    return wf, asked


async def acts_again(story: Story, asked: Escalation) -> None:
    """Everything that a stale card could still be used for is refused and changes nothing."""
    before = await story.keep.needs_you()
    for act in (story.keep.approve, story.keep.reject):
        with refused("a card that is out of date was answered", Refused):
            await act(asked.id)
    must(await story.keep.needs_you() == before, "a card that is out of date changed what is asked")


async def deploy_another(story: Story, wf: str, asked: Escalation) -> None:
    await story.deploy(acting("await ctx.gmail.send({ to: 'another@example.net' });"), grants=None)


async def approve_twice(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await acts_again(story, asked)


async def let_it_expire(story: Story, wf: str, asked: Escalation) -> None:
    story.clock.advance(hours=25)


async def approve_and_let_it_expire(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.pause(wf)
    await story.keep.approve(asked.id)
    story.clock.advance(hours=25)
    await story.keep.resume(wf)


async def approve_and_deny(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await story.keep.grant(wf, "gmail.send", "deny")


async def approve_and_narrow(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await story.keep.grant(wf, "gmail.send", {"mode": "ask", "match": {"to": "*@example.com"}})


async def approve_and_retry(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await story.keep.retry(asked.run_id)


async def approve_and_deploy(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await deploy_another(story, wf, asked)


async def approve_and_change_the_account(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    story.keep.parts.connectors["gmail"].account = "mallory"  # type: ignore[misc]


#: What happens between the question and the send → how many sends may follow from this one answer.
BETWEEN: dict[Any, int] = {
    deploy_another: 0, let_it_expire: 0, approve_and_let_it_expire: 0, approve_and_deny: 0, approve_and_narrow: 0,
    approve_and_retry: 0, approve_and_deploy: 0, approve_and_change_the_account: 0, approve_twice: 1,
}


POINTS = ("before:send", "after:send", "before:call", "after:call", "before:apply", "after:apply")


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Path]:
    yield folder


def attacks(folder: Path) -> Iterator[Attack]:
    for between in BETWEEN:
        words = between.__name__.replace("_", " ")
        yield Attack(f"an approval is used for something else: {words}", lambda b=between: _between(folder, b))
    for point in POINTS:
        yield Attack(f"an approval is used twice by a crash at {point}", lambda point=point: _crash(folder, point))
    yield Attack("a script changes the call after it was shown", lambda: _changed(folder))
    for before, after in (("ann", "mallory"), ("", "mallory"), ("ann", "")):
        yield Attack(f"a grant for the account {before!r} is used by {after!r}", lambda b=before, a=after: _account(folder, b, a))
    yield Attack("a person approves a card of an older version of the account", lambda: _older(folder))


async def _between(folder: Path, between: Any) -> None:
    async with Story(_fresh(folder)) as story:
        wf, asked = await waiting(story)
        await between(story, wf, asked)
        try:
            await story.keep.approve(asked.id)
        except Refused:
            pass  # one way or the other: what counts is what is sent
        await story.run()
        await story.run(minutes=1)
        must(len(story.world.asked) <= BETWEEN[between], f"it was sent {len(story.world.asked)} times")
        must(all(effect.params == BODY for effect in story.world.effects), f"{story.world.effects} was sent")
        await acts_again(story, asked)


async def _crash(folder: Path, point: str) -> None:
    async with Story(_fresh(folder)) as story:
        wf, asked = await waiting(story)
        await story.keep.approve(asked.id)
        await story.crash(point)
        await story.run()
        await story.run(minutes=1)
        must(story.world.count("gmail.send") <= 1, "one answer sent it twice")
        await acts_again(story, asked)
        for question in await story.keep.needs_you(wf):
            must(question.facts["params"] == BODY, f"it asks for {question.facts['params']}")
            await story.keep.approve(question.id)
        await story.run()
        must([effect.params for effect in story.world.effects] == [BODY], f"{story.world.effects} was sent")


async def _changed(folder: Path) -> None:
    """`mutate` would like to call with something else each time it runs."""
    async with Story(_fresh(folder)) as story:
        _, asked = await waiting(story, "await ctx.gmail.send({ to: `${Math.random()}.${Date.now()}@y.test` });")
        story.feed.put("a", {"to": "evil@attacker.test"})
        await story.reopen()
        await story.keep.approve(asked.id)
        await story.run()
        sent = [encode(effect.params) for effect in story.world.effects]
        must(sent == [encode(asked.facts["params"])], f"{asked.facts['params']} was shown, and {sent} was sent")


async def _account(folder: Path, before: str, after: str) -> None:
    """keep.toml puts another account behind the same name."""
    async with Story(_fresh(folder)) as story:
        story.keep.parts.connectors["gmail"].account = before  # type: ignore[misc]
        await story.deploy(acting())
        story.keep.parts.connectors["gmail"].account = after  # type: ignore[misc]
        story.feed.put("a")
        await story.run()
        must(story.world.asked == [], f"{after!r} sent what {before!r} was granted")


async def _older(folder: Path) -> None:
    async with Story(_fresh(folder)) as story:
        wf, asked = await waiting(story)
        await story.keep.grant(wf, "gmail.send", {"mode": "ask", "match": {"to": "*@example.net"}})
        with refused("a card that showed other rules was answered", Refused):
            await story.keep.approve(asked.id, shown=asked.version)
        await story.run()
        must(story.world.asked == [], "it was sent")


def _fresh(folder: Path) -> Path:
    made = folder / str(len(list(folder.iterdir())))
    made.mkdir()
    return made


def _for_ever(read: Any, run: Any, held: Any, *_: Any) -> approval.Standing:
    return approval.Standing.WAITS if held.status == "pending" else approval.Standing.USABLE


AREA = Area(
    "approvals", "what a person approved, by everything that may come between", place, attacks, None,
    (
        Planted("an answer fits whatever has changed", lambda: patch.object(approval, "_permitted", lambda *_: True), "approve and"),
        Planted("a grant counts for every account", lambda: patch.object(
            permission.Permissions, "check", lambda self, capability, params, *_, **__: Judged(Mode.ALLOW)), "is used by"),
        Planted("an answer never expires", lambda: patch.object(approval, "standing", _for_ever), "expire"),
    ),
)
