"""What is kept in the inboxes, for people: what came by itself, was sent in by hand, or was put in once more."""

from __future__ import annotations

from collections.abc import Mapping

from ..connectors.kit.lenient_json import parse_json
from ..connectors.webhook.base import Stored
from ..connectors.webhook.inbox import Inbox
from ..model.errors import NotFound
from ..model.records import InboxEntry


def inbox_entries(inboxes: Mapping[str, Inbox], inbox: str | None, limit: int) -> list[InboxEntry]:
    """The newest of an inbox, or of all, oldest first."""
    if inbox is not None and inbox not in inboxes:
        raise NotFound(f"There is no inbox {inbox!r}. There are: {', '.join(inboxes) or 'none'}.")
    wanted = {name: each for name, each in inboxes.items() if inbox in (None, name)}
    found = [_record(name, stored) for name, each in wanted.items() for stored in each.newest(limit)]
    return sorted(found, key=lambda each: (each.received_at, each.cursor))[-limit:]


def _record(inbox: str, stored: Stored) -> InboxEntry:
    body = stored["body"]
    try:
        body = parse_json(body)
    except ValueError:
        pass
    return InboxEntry(
        inbox, stored["id"], stored["cursor"], stored["received"], stored["sent"], stored["type"], body,
        stored.get("by"), stored.get("repeats"), stored.get("signed_with"),
    )
