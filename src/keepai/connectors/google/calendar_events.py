"""Reads and writes events of Google Calendar: ids made from keys, times, and the updates that an event remembers."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

from ...model.errors import Rejected
from ..kit import addresses
from ..kit.marks import UPDATES_MAX
from ..kit.texts import clean

MARK = "keepUpdates"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class CalendarEvent(TypedDict):
    """An event. `start` and `end` are days for a whole-day event, otherwise times."""

    id: str
    calendar: str
    title: str
    description: str
    location: str
    start: str
    end: str
    attendees: list[str]
    status: str
    updated: str
    link: str


def event_id(key: str) -> str:
    """An id made from an idempotency key, with the letters that Calendar allows (base32hex)."""
    return "keep" + base64.b32hexencode(hashlib.sha256(key.encode()).digest()).decode().lower().rstrip("=")[:40]


def updates(event: Mapping[str, Any]) -> list[str]:
    """The updates that an event remembers, oldest first."""
    own = ((event.get("extendedProperties") or {}).get("private") or {}).get(MARK, "")
    return [update for update in str(own).split(",") if update]


def with_update(event: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """The part of an event that remembers its newest updates, with this one as the last."""
    return {"extendedProperties": {"private": {MARK: ",".join([*updates(event), mark][-UPDATES_MAX:])}}}


def shown(event: Mapping[str, Any], calendar: str) -> CalendarEvent:
    """An event for scripts."""
    return {
        "id": str(event["id"]), "calendar": calendar, "title": _text(event, "summary"),
        "description": _text(event, "description"), "location": _text(event, "location"),
        "start": _when(event.get("start")), "end": _when(event.get("end")),
        "attendees": [clean(str(one["email"])) for one in event.get("attendees") or () if one.get("email")],
        "status": _text(event, "status"), "updated": _text(event, "updated"), "link": _text(event, "htmlLink"),
    }


def fields(params: Mapping[str, Any]) -> dict[str, Any]:
    """The members of an event that the params set."""
    names = {"summary": "title", "description": "description", "location": "location"}
    members: dict[str, Any] = {name: params[param] for name, param in names.items() if params.get(param) is not None}
    for name in ("start", "end"):
        if params.get(name) is not None:
            members[name] = _time(params[name], params.get("timeZone"), name)
    if params.get("attendees") is not None:
        attendees = addresses.read("attendees", params["attendees"])
        members["attendees"] = [{"email": address.mailbox} for address in attendees]
    if len({"date" in members[name] for name in ("start", "end") if name in members}) > 1:
        raise Rejected("start and end must both be days, or both be times.")
    return members


def version(event: Mapping[str, Any]) -> str:
    """A text that differs for every state of an event."""
    return f"{event['id']}@{event['updated']}"


def _time(text: str, zone: str | None, name: str) -> dict[str, str]:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise Rejected(f"{name} must be a day (2026-01-05) or a time (2026-01-05T09:00:00+01:00).") from None
    if _DAY.fullmatch(text):
        return {"date": text}
    if parsed.tzinfo is None and not zone:
        raise Rejected(f"{name} has no offset: write 2026-01-05T09:00:00+01:00, or give timeZone.")
    return {"dateTime": text, **({"timeZone": zone} if zone else {})}


def _when(time: Any) -> str:
    time = time or {}
    return str(time.get("dateTime") or time.get("date") or "")


def _text(event: Mapping[str, Any], name: str) -> str:
    return clean(str(event.get(name) or ""))
