"""Slack: reading without gaps, texts that mention nobody, and a look-up that goes back far enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from keepai import PermissionDenied, PreconditionFailed, Rejected
from keepai.connectors.base import Page
from keepai.testing.loopback import Loopback
from tests.connectors.cases import call
from tests.connectors.services.slack import SlackService
from tests.connectors.slack_subjects import connect


class Space:
    """A workspace and its connector."""

    def __init__(self, server: Loopback, service: SlackService) -> None:
        self.server, self.service = server, service
        self.connector = connect(server.url)

    async def __call__(self, operation: str, key: str = "key-1", **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.invoke(spec.parse({"channel": "general", **params}), call(key))

    async def look(self, operation: str, key: str = "key-1", since_ms: int | None = None, **params: Any) -> Any:
        spec = self.connector.operations[operation]
        asked = dataclasses.replace(call(key), since_ms=since_ms)
        return await spec.reconcile(spec.parse({"channel": "general", **params}), asked)


@pytest.fixture
def space() -> Iterator[Space]:
    service = SlackService()
    with Loopback(service.handle) as server:
        yield Space(server, service)


def texts(page: Page[Any]) -> list[str]:
    return [each["text"] for each in page]


async def test_a_message_is_shown_with_who_when_and_where(space: Space) -> None:
    space.service.say("Hi")
    [found] = await space("history")
    assert found == {
        "id": "1767600001.000100", "channel": "C0GENERAL", "user": "U1", "text": "Hi",
        "date": "2026-01-05T08:00:01.000Z", "thread": None, "bot": False,
    }


async def test_a_history_goes_on_from_its_cursor_in_order_and_over_pages(space: Space) -> None:
    space.service.page_max = 2
    space.service.say("m0")
    cursor = (await space("history")).fields["lastCursor"]
    for n in range(1, 6):
        space.service.say(f"m{n}")
    seen: list[str] = []
    more = True
    while more:
        page = await space("history", after=cursor, limit=2)
        seen += texts(page)
        cursor, more = page.fields["lastCursor"], page.fields["more"]
    assert seen == [f"m{n}" for n in range(1, 6)]
    assert texts(await space("history", after=cursor)) == []


async def test_the_first_look_gives_the_newest(space: Space) -> None:
    for n in range(5):
        space.service.say(f"m{n}")
    page = await space("history", limit=2)
    assert texts(page) == ["m3", "m4"]
    assert texts(await space("history", after=page.fields["lastCursor"])) == []


async def test_an_empty_channel_has_a_cursor_too(space: Space) -> None:
    page = await space("history")
    space.service.say("first")
    assert texts(await space("history", after=page.fields["lastCursor"])) == ["first"]


async def test_a_thread_is_read_and_answered(space: Space) -> None:
    first = space.service.say("Question")
    await space("post", thread=first["ts"], text="Answer")
    page = await space("history", thread=first["ts"])
    assert texts(page) == ["Question", "Answer"]
    assert texts(await space("history", thread=first["ts"], after=page.fields["lastCursor"])) == []
    assert texts(await space("history")) == ["Question"]


@pytest.mark.parametrize("text", ["<!channel>", "<@U123>", "<https://evil.example|your bank>", "a & b"])
async def test_a_text_calls_nobody_unless_the_script_says_so(space: Space, text: str) -> None:
    await space("post", "k1", text=text)
    await space("post", "k2", text=text, markup=True)
    plain, marked = (each["text"] for each in space.service.messages)
    assert "<" not in plain
    assert plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text
    assert marked == text


async def test_an_update_keeps_the_mark_of_the_post(space: Space) -> None:
    made = await space("post", text="One")
    await space("update", "key-2", id=made["id"], text="Two")
    assert space.service.messages[0]["text"] == "Two"
    assert (await space.look("post", text="One")).result == made
    assert (await space.look("update", "key-2", id=made["id"], text="Two")).status == "applied"
    assert (await space.look("update", "key-3", id=made["id"], text="Three")).status == "failed"


async def test_what_others_wrote_is_not_changed(space: Space) -> None:
    other = space.service.say("Theirs")
    with pytest.raises(PermissionDenied, match="cant_update_message"):
        await space("update", id=other["ts"], text="Mine")
    with pytest.raises(PreconditionFailed):
        await space("update", id="1.000000", text="Mine")


async def test_a_post_is_found_behind_many_others(space: Space) -> None:
    made = await space("post", text="Mine")
    for n in range(450):
        space.service.say(f"m{n}")
    assert (await space.look("post", text="Mine")).result == made


async def test_a_lookup_only_says_no_if_it_looked_far_enough_back(space: Space) -> None:
    for n in range(5_001):
        space.service.say(f"m{n}")
    assert (await space.look("post", text="Mine")).status == "unknown"
    since = space.service.seconds * 1000
    assert (await space.look("post", since_ms=since, text="Mine")).status == "unknown"  # clocks may differ by a day
    space.service.seconds += 2 * 86_400
    space.service.say("long after")
    since = space.service.seconds * 1000
    assert (await space.look("post", since_ms=since, text="Mine")).status == "failed"


@pytest.mark.parametrize("params", [
    {"channel": "nowhere"}, {"channel": "U123"}, {"text": " "}, {"text": "x" * 40_001}, {"thread": "1&ts=2"},
])
async def test_what_cannot_be_posted_is_refused_before_it_is_sent(space: Space, params: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        await space("post", **{"text": "Hi", **params})
    assert space.server.seen == []


async def test_the_check_notices_a_token_that_does_not_count(space: Space) -> None:
    await space.connector.check()
    space.connector.entrust({"token": "another"})
    with pytest.raises(PermissionDenied, match="invalid_auth"):
        await space.connector.check()


def test_people_see_where_and_the_whole_text(space: Space) -> None:
    told = space.connector.operations["post"].preview({"channel": "general", "text": "One\nTwo", "markup": True})
    assert told == "slack.post to general of Example (with links and mentions)\n\nOne\nTwo"
