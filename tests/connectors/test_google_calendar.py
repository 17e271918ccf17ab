"""Google Calendar: ids that exist once, updates on a condition, and changes that are listed without a gap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from keepai import OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.connectors.base import Page
from keepai.model.errors import RuleBroken
from keepai.testing import loopback
from keepai.testing.loopback import Loopback
from tests.connectors.cases import call
from tests.connectors.google_subjects import connect
from tests.connectors.services.google import CalendarService, error

MEETING = {"title": "Meeting", "start": "2026-01-06T09:00:00Z", "end": "2026-01-06T10:00:00Z"}


class Diary:
    """A calendar and its connector."""

    def __init__(self, server: Loopback, service: CalendarService) -> None:
        self.server, self.service = server, service
        self.connector = connect("google.calendar", "calendar", server.url, "/calendar/v3/")

    async def __call__(self, operation: str, key: str = "key-1", **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.invoke(spec.parse(params), call(key))

    async def look(self, operation: str, key: str = "key-1", **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.reconcile(spec.parse(params), call(key))


@pytest.fixture
def diary() -> Iterator[Diary]:
    service = CalendarService()
    with Loopback(service.handle) as server:
        yield Diary(server, service)


def titles(page: Page[Any]) -> list[str]:
    return [each["title"] for each in page]


async def test_an_event_is_created_and_shown(diary: Diary) -> None:
    made = await diary("create", **MEETING, location="Room 5", attendees=["bob@example.com"])
    assert made == await diary("get", id=made["id"])
    assert (made["title"], made["start"], made["location"]) == ("Meeting", MEETING["start"], "Room 5")
    assert made["attendees"] == ["bob@example.com"]
    assert diary.service.invitations == []  # nobody is told unless the script says so


async def test_a_second_send_with_the_same_key_finds_the_first_and_invites_nobody_again(diary: Diary) -> None:
    params = {**MEETING, "attendees": ["bob@example.com"], "notify": True}
    first, second = await diary("create", **params), await diary("create", **params)
    assert first == second
    assert len(diary.service.events) == 1
    assert diary.service.invitations == ["bob@example.com"]
    assert diary.connector.operations["create"].safety == "A"


async def test_an_event_that_a_person_deleted_is_not_created_again(diary: Diary) -> None:
    made = await diary("create", **MEETING)
    diary.service.put({**diary.service.events[made["id"]], "status": "cancelled"})
    assert (await diary.look("create", **MEETING)).status == "applied"
    assert (await diary("create", **MEETING))["status"] == "cancelled"


async def test_a_taken_id_that_cannot_be_read_is_no_refusal(diary: Diary) -> None:
    made = await diary("create", **MEETING)
    hidden = diary.server.misbehaving(loopback.instead(error(503)), lambda r: r.path.endswith(made["id"]))
    with hidden, pytest.raises(OutcomeUnknown):
        await diary("create", **MEETING)


async def test_an_update_changes_what_it_names(diary: Diary) -> None:
    made = await diary("create", **MEETING, location="Room 5")
    changed = await diary("update", "key-2", id=made["id"], title="Moved", start="2026-01-07", end="2026-01-08")
    assert (changed["title"], changed["start"], changed["location"]) == ("Moved", "2026-01-07", "Room 5")


async def test_an_update_does_not_write_over_what_somebody_changed_meanwhile(diary: Diary) -> None:
    made = await diary("create", **MEETING)

    def somebody() -> None:
        diary.service.put({**diary.service.events[made["id"]], "location": "Room 7"})

    diary.service.before_write = somebody
    with pytest.raises(Transient):
        await diary("update", "key-2", id=made["id"], title="Moved")
    diary.service.before_write = lambda: None
    changed = await diary("update", "key-2", id=made["id"], title="Moved")
    assert (changed["title"], changed["location"]) == ("Moved", "Room 7")


async def test_an_event_that_is_gone_is_not_updated(diary: Diary) -> None:
    made = await diary("create", **MEETING)
    diary.service.put({**diary.service.events[made["id"]], "status": "cancelled"})
    for id in (made["id"], "nothing"):
        with pytest.raises(PreconditionFailed):
            await diary("update", "key-2", id=id, title="Moved")
    assert await diary("get", id="nothing") is None


async def test_too_many_updates_since_are_told(diary: Diary) -> None:
    made = await diary("create", **MEETING)
    for n in range(17):
        await diary("update", f"u{n}", id=made["id"], title=f"Title {n}")
    assert (await diary.look("update", "u16", id=made["id"], title="Title 16")).status == "applied"
    assert (await diary.look("update", "u0", id=made["id"], title="Title 0")).status == "unknown"


async def test_changes_are_listed_once_in_order_and_with_what_was_cancelled(diary: Diary) -> None:
    diary.service.page_max = 2
    await diary("create", "k0", **MEETING)
    cursor = (await diary("list", start="2026-01-01")).fields["lastCursor"]
    await diary("list", start="2026-01-01", after=cursor)
    for n in range(1, 6):
        await diary("create", f"k{n}", **{**MEETING, "title": f"m{n}"})
    first = next(each for each in diary.service.events.values() if each["summary"] == "m1")
    diary.service.put({**first, "status": "cancelled"})
    seen: list[str] = []
    more = True
    while more:
        page = await diary("list", after=cursor, limit=2)
        seen += [f"{each['title']} {each['status']}" for each in page]
        cursor, more = page.fields["lastCursor"], page.fields["more"]
    assert [each for each in seen if not each.startswith("Meeting")] == [
        "m2 confirmed", "m3 confirmed", "m4 confirmed", "m5 confirmed", "m1 cancelled",
    ]
    assert titles(await diary("list", after=cursor)) == []


async def test_without_a_cursor_what_comes_is_listed(diary: Diary) -> None:
    await diary("create", "k1", **{**MEETING, "title": "past", "start": "2020-01-06", "end": "2020-01-07"})
    await diary("create", "k2", **{**MEETING, "title": "later", "start": "2999-01-06", "end": "2999-01-07"})
    assert titles(await diary("list")) == ["later"]
    page = await diary("list", start="2019-01-01T00:00:00+01:00", limit=1)
    assert (titles(page), page.fields["more"]) == (["past"], True)


@pytest.mark.parametrize("params", [
    {"start": "tomorrow"}, {"start": "2026-01-06"}, {"start": "2026-01-06T09:00:00"}, {"attendees": ["no address"]},
])
async def test_what_is_no_event_is_refused_before_it_is_sent(diary: Diary, params: dict[str, Any]) -> None:
    with pytest.raises((Rejected, RuleBroken)):
        await diary("create", **{**MEETING, **params})
    assert diary.server.seen == []


async def test_a_time_without_its_offset_needs_a_zone(diary: Diary) -> None:
    local = {"start": "2026-01-06T09:00:00", "end": "2026-01-06T10:00:00", "timeZone": "Europe/Berlin"}
    made = await diary("create", title="Local", **local)
    kept = diary.service.events[made["id"]]["start"]
    assert kept == {"dateTime": "2026-01-06T09:00:00", "timeZone": "Europe/Berlin"}


async def test_the_check_sees_the_calendar(diary: Diary) -> None:
    await diary.connector.check()
    diary.service.revoked = True
    with pytest.raises(PermissionDenied):
        await diary.connector.check()


def test_people_see_the_whole_event_and_who_is_told(diary: Diary) -> None:
    told = diary.connector.operations["create"].preview({**MEETING, "attendees": ["a@b.c"], "notify": True})
    assert told.splitlines()[0] == "calendar.create in primary of ann@example.com"
    assert "title: Meeting" in told
    assert "attendees: a@b.c" in told
    assert told.endswith("Invitations are sent.")


async def test_an_attendee_may_have_a_name(diary: Diary) -> None:
    made = await diary("create", **{**MEETING, "attendees": ["Ann <ann@Example.com>"]})
    assert made["attendees"] == ["ann@example.com"]
