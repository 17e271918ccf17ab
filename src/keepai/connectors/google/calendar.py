"""`ctx.calendar`: events at Google Calendar.

A created event has an id made from its idempotency key, and a calendar has every id only once: a second request with it
is answered with 409, also after the event was deleted. An update is conditional: it fails if the event was changed
since it was read (`If-Match`). The event remembers the keys of its updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from ...model.clock import Clock, SystemClock, iso, parse_iso
from ...model.errors import ConnectorError, OutcomeUnknown, PreconditionFailed, Rejected, Transient
from ..base import Call, Page, Verdict, mutation, read
from ..kit.marks import UPDATES_MAX, key_digest
from ..kit.pages import checked_limit, readable
from ..kit.params import Addresses
from .api import RENEWED_AT, Google, part, result
from .calendar_events import CalendarEvent, event_id, fields, shown, updates, version, with_update
from .google_cursor import GoogleCursor
from .google_errors import problem
from .google_sign_in import SIGNED_IN_AT

LIMIT_DEFAULT = 250
LIMIT_MAX = 2_500
LISTED_MAX = 10_000
#: Seconds after the end of a call in which its event may still appear.
SETTLE_S = 30
#: Ids are never free again. A lost answer may be sent again within a day.
KEY_WINDOW_S = 86_400


class ListEvents(TypedDict):
    """Which events: those between two times, by their start; or after a cursor, those that changed since then."""

    calendar: NotRequired[str | None]
    start: NotRequired[str | None]  # by default, now
    end: NotRequired[str | None]
    query: NotRequired[str | None]
    after: NotRequired[str | None]  # a `lastCursor`
    limit: NotRequired[int | None]


class GetEvent(TypedDict):
    """Which event."""

    id: str
    calendar: NotRequired[str | None]


class CreateEvent(TypedDict):
    """An event to create; `notify` sends invitations."""

    title: str
    start: str
    end: str
    calendar: NotRequired[str | None]
    timeZone: NotRequired[str | None]
    description: NotRequired[str | None]
    location: NotRequired[str | None]
    attendees: NotRequired[Addresses | None]
    notify: NotRequired[bool | None]


class UpdateEvent(TypedDict):
    """What to change about an event; `notify` informs the attendees."""

    id: str
    calendar: NotRequired[str | None]
    title: NotRequired[str | None]
    start: NotRequired[str | None]
    end: NotRequired[str | None]
    timeZone: NotRequired[str | None]
    description: NotRequired[str | None]
    location: NotRequired[str | None]
    attendees: NotRequired[Addresses | None]
    notify: NotRequired[bool | None]


class Calendar(Google):
    """Events at Google Calendar: `type = "google.calendar"`.

    account: the address of the account that writes
    client_id: the OAuth client's id
    calendar: the calendar that is used when a script names none
    api: another address of the API, such as your own proxy
    token_url: another address at which access is renewed
    auth_url: another address at which a person signs in
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    """

    name = "calendar"
    title = "Google Calendar"
    scope = "https://www.googleapis.com/auth/calendar.events"
    api = "https://www.googleapis.com/calendar/v3/"
    input_types = ("event",)

    def __init__(
        self, account: str, client_id: str, *, calendar: str = "primary", api: str = "", token_url: str = RENEWED_AT,
        auth_url: str = SIGNED_IN_AT, networks: list[str] | None = None, name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            account, client_id, api=api, token_url=token_url, auth_url=auth_url, networks=networks, name=name,
        )
        self._calendar = calendar
        self._clock = clock or SystemClock()

    async def check(self) -> None:
        """Check that the access works and that the calendar exists."""
        await self._access.check()
        await self._get(self._events({}), Call(), {"maxResults": 1, "fields": "updated"})

    @read
    async def list_(self, params: ListEvents, call: Call) -> Page[CalendarEvent]:
        """Events from now on, by their start; or after a cursor, those that changed, including cancelled ones.

        `lastCursor` is where to continue; `more` says whether `limit` left some out.
        """
        limit = checked_limit(params.get("limit"), LIMIT_DEFAULT, LIMIT_MAX)
        if params.get("after"):
            return await self._changed(params, GoogleCursor.read(str(params["after"])), limit, call)
        start, end = params.get("start") or iso(self._clock.now_ms()), params.get("end")
        query = {
            "singleEvents": True, "orderBy": "startTime", "timeMin": _moment(start), "q": params.get("query"),
            "timeMax": _moment(end) if end else None,
        }
        events, at, cut = await self._list(params, query, limit, call)
        calendar = self._calendar_of(params)
        read = readable(events, lambda event: shown(event, calendar), call, "the event")
        return Page(read, lastCursor=GoogleCursor(at).cursor, more=cut)

    @read(by_id=True)
    async def get(self, params: GetEvent, call: Call) -> CalendarEvent | None:
        """One event, or null if there is none. A deleted event is `cancelled`."""
        event = await self._find(self._event(params), call)
        return shown(event, self._calendar_of(params)) if event is not None else None

    @mutation(identity=("calendar", "title", "start"), target="title", settle=SETTLE_S, key_window=KEY_WINDOW_S)
    async def create(self, params: CreateEvent, call: Call) -> CalendarEvent:
        """Create an event."""
        body = {"id": event_id(call.idempotency_key), **fields(params)}
        answer = await self._answer("POST", self._events(params), call, body, _notice(params))
        if answer.status == 409:
            return await self._there_already(params, call)
        if not answer.ok:
            raise problem(self.title, answer)
        return shown(result(self.title, answer), self._calendar_of(params))

    @create.reconcile
    async def find_created(self, params: CreateEvent, call: Call) -> Verdict:
        """Look for the event with the id that is made from the key."""
        event = await self._created(params, call)
        return Verdict.applied(shown(event, self._calendar_of(params))) if event is not None else Verdict.failed()

    @mutation(identity=("calendar", "id"), target="id", settle=SETTLE_S)
    async def update(self, params: UpdateEvent, call: Call) -> CalendarEvent:
        """Change an event."""
        change, mark = fields(params), key_digest(call.idempotency_key)
        if not change:
            raise Rejected("Name at least one member of the event to change.")
        event = await self._find(self._event(params), call)
        if event is None or event.get("status") == "cancelled":
            raise PreconditionFailed(f"The event {params['id'][:60]!r} no longer exists.")
        if mark in updates(event):
            return shown(event, self._calendar_of(params))
        answer = await self._answer(
            "PATCH", self._event(params), call, {**change, **with_update(event, mark)}, _notice(params),
            {"If-Match": str(event["etag"])},
        )
        if answer.status == 412:
            raise Transient("Somebody else changed the event at the same moment. Nothing was written.")
        if not answer.ok:
            raise problem(self.title, answer)
        return shown(result(self.title, answer), self._calendar_of(params))

    @update.reconcile
    async def find_updated(self, params: UpdateEvent, call: Call) -> Verdict:
        """Look for the key among the updates that the event remembers."""
        event = await self._find(self._event(params), call)
        if event is None:
            return Verdict.unknown("The event is gone.")
        if key_digest(call.idempotency_key) in updates(event):
            return Verdict.applied(shown(event, self._calendar_of(params)))
        if len(updates(event)) >= UPDATES_MAX:
            return Verdict.unknown("The event was changed too often since then, so Keep cannot tell.")
        return Verdict.failed()

    @create.preview
    def say_create(self, params: CreateEvent) -> str:
        """The whole event."""
        return f"{self.name}.create in {self._calendar_of(params)} of {self.account}\n{_member_lines(params)}"

    @update.preview
    def say_update(self, params: UpdateEvent) -> str:
        """Which event, and what changes."""
        place = f"{params['id']} in {self._calendar_of(params)} of {self.account}"
        return f"{self.name}.update of {place}\n{_member_lines(params)}"

    async def _there_already(self, params: CreateEvent, call: Call) -> CalendarEvent:
        """The event that an earlier send made."""
        try:
            event = await self._created(params, call)
        except ConnectorError as error:
            raise OutcomeUnknown(f"The event already exists, but could not be read: {error.message}") from None
        if event is None:
            raise OutcomeUnknown("Google Calendar says that the event already exists, but does not show it.")
        return shown(event, self._calendar_of(params))

    async def _created(self, params: CreateEvent, call: Call) -> Any | None:
        return await self._find(f"{self._events(params)}/{event_id(call.idempotency_key)}", call)

    async def _changed(self, params: ListEvents, cursor: GoogleCursor, limit: int, call: Call) -> Page[CalendarEvent]:
        query = {"orderBy": "updated", "updatedMin": iso(cursor.from_ms), "showDeleted": True, "q": params.get("query")}
        events, _, cut = await self._list(params, query, LISTED_MAX, call)
        if cut:
            raise PreconditionFailed(f"More than {LISTED_MAX:,} events changed since then. List again without `after`.")
        calendar = self._calendar_of(params)
        read = readable(
            events, lambda event: (version(event), parse_iso(str(event["updated"])), shown(event, calendar)),
            call, "the event",
        )
        fresh = [entry for entry in read if not cursor.has(entry[0], entry[1])]
        seen = {name: ms for name, ms, _ in fresh[:limit]}
        return Page(
            [event for _, _, event in fresh[:limit]], lastCursor=cursor.with_(seen).cursor, more=len(fresh) > limit,
        )

    async def _list(
        self, params: Mapping[str, Any], query: Mapping[str, Any], most: int, call: Call,
    ) -> tuple[list[Any], int, bool]:
        """Events, at most `most`; when the calendar last changed; and whether there are more."""
        events: list[Any] = []
        page: str | None = None
        while True:
            answer = await self._get(self._events(params), call, {
                **query, "maxResults": min(LIMIT_MAX, most - len(events)), "pageToken": page,
            })
            events += answer.get("items") or []
            page = answer.get("nextPageToken")
            if not page or len(events) >= most:
                return events[:most], parse_iso(str(answer["updated"])), bool(page) or len(events) > most

    def _calendar_of(self, params: Mapping[str, Any]) -> str:
        return str(params.get("calendar") or self._calendar)

    def _events(self, params: Mapping[str, Any]) -> str:
        return f"calendars/{part(self._calendar_of(params))}/events"

    def _event(self, params: Mapping[str, Any]) -> str:
        if not str(params["id"]).strip(". "):
            raise Rejected("id must be an id that list returned.")
        return f"{self._events(params)}/{part(str(params['id']))}"


def _moment(text: str) -> str:
    """A time as the API wants it. A day begins in UTC."""
    try:
        return iso(parse_iso(text))
    except ValueError:
        raise Rejected("start and end must be times, such as 2026-01-05T09:00:00+01:00, or days.") from None


def _notice(params: Mapping[str, Any]) -> dict[str, str]:
    return {"sendUpdates": "all" if params.get("notify") else "none"}


def _member_lines(params: Mapping[str, Any]) -> str:
    lines = [f"{name}: {', '.join(value) if isinstance(value, list) else value}" for name, value in params.items()
             if value is not None and name not in ("id", "calendar", "notify")]
    notice = "Invitations are sent." if params.get("notify") else "No invitations are sent."
    return "\n".join([*lines, notice])
