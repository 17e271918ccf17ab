"""What a person sends in by hand, checked by the rules for what comes in by itself: for a topic those of `ctx.publish`,
for an inbox those of its deliveries. And a delivery that is put in once more."""

from __future__ import annotations

import asyncio
from typing import Any

from ..connectors.webhook.inbox import Inbox
from ..ledger.base import Reader, Row
from ..ledger.transitions.by_hand import SentIn
from ..model.codec import Json, check_id, check_size, encode
from ..model.errors import NotFound, Refused
from ..script.manifest import Manifest
from .gate import TITLE_MAX
from .host_parts import Parts


def topic_of(read: Reader, parts: Parts, to: str) -> tuple[Row, str] | None:
    """The workflow and the topic that are meant: `TOPIC` if only one workflow declares it, or `WORKFLOW/TOPIC`. None if
    an inbox is meant."""
    known = [(row, topic) for row in read.all("workflow_all") for topic in _manifest(read, parts, row).topics]
    found = [(row, topic) for row, topic in known if to in (f"{row['name']}/{topic}", f"{row['id']}/{topic}")]
    found = found or [(row, topic) for row, topic in known if topic == to]
    if to in parts.inboxes:
        if found:
            raise Refused(f"{to!r} is an inbox and a topic of {_named(found)}. For the topic, write WORKFLOW/{to}.")
        return None
    if len(found) == 1:
        return found[0]
    if found:
        raise Refused(f"{to!r} is a topic of several workflows: {_named(found)}. Write WORKFLOW/{to}.")
    places = [*parts.inboxes, *(f"{row['name']}/{topic}" for row, topic in known)]
    listed = f"There are: {', '.join(places[:20])}." if places else "No workflow with a topic is deployed."
    raise NotFound(f"There is no topic and no inbox {to!r}. {listed}")


def _manifest(read: Reader, parts: Parts, workflow: Row) -> Manifest:
    return parts.script(read, workflow["id"], (workflow["major"], workflow["minor"])).manifest


def _named(found: list[tuple[Row, str]]) -> str:
    return ", ".join(str(row["name"]) for row, _ in found)


def checked(parts: Parts, workflow: Row, topic: str, data: Json, id: str | None, title: str | None) -> SentIn:
    """What is to be put into a topic, if it keeps the rules."""
    payload = _text(parts, data)
    check_size(payload, "the data", parts.policy.payload_bytes_max)
    if id is not None:
        check_id(id, "id")
    kept = sum(int(workflow[f"{each}_bytes"]) for each in ("event", "run", "input"))
    most = parts.policy.workflow_bytes_max
    if kept >= most:
        raise Refused(
            f"The ledger keeps {kept:,} bytes for {workflow['name']!r}; the limit is {most:,} (policy "
            "workflow_bytes_max). Make room with `keep db prune --days N` first.")
    named = (title or "").strip()[:TITLE_MAX] or None
    return SentIn((workflow["major"], workflow["minor"]), topic, id, payload, named, parts.policy.revisions_max)


def _text(parts: Parts, data: Json) -> str:
    held = parts.redactor.found_in(data) if parts.redactor is not None else None
    if held:
        raise Refused(f"The data holds the secret {held}, and nothing was kept. Leave it out.")
    return encode(data, what="the data")


async def deliver(parts: Parts, inbox: str, data: Json, id: str | None, actor: str) -> dict[str, Json]:
    """Put a delivery into an inbox, as if somebody had sent it."""
    delivery_id = check_id(id if id is not None else _new_id(parts), "id")
    body = _text(parts, data)
    became = await asyncio.to_thread(
        parts.inboxes[inbox].put_in, delivery_id, {"type": "application/json", "body": body, "by": actor})
    return {"inbox": inbox, "id": delivery_id, "became": became}


async def replay(parts: Parts, delivery: str, inbox: str | None, actor: str) -> dict[str, Json]:
    """Put a delivery in once more, under a new id; what it repeats is kept with it."""
    name, found = await asyncio.to_thread(_delivery, parts, delivery, inbox)
    as_it_came: dict[str, Any] = {key: found[key] for key in ("type", "body", "sent", "headers") if key in found}
    again = {**as_it_came, "repeats": found["id"], "by": actor}
    new_id = _new_id(parts)
    await asyncio.to_thread(parts.inboxes[name].put_in, new_id, again)
    return {"inbox": name, "id": new_id, "repeats": found["id"]}


def _delivery(parts: Parts, delivery: str, inbox: str | None) -> tuple[str, dict[str, Json]]:
    """The inbox and the delivery of an id, or of a cursor."""
    if inbox is not None and inbox not in parts.inboxes:
        raise NotFound(f"There is no inbox {inbox!r}. There are: {', '.join(parts.inboxes) or 'none'}.")
    searched: dict[str, Inbox] = {inbox: parts.inboxes[inbox]} if inbox is not None else dict(parts.inboxes)
    found = [(name, dict(each)) for name, box in searched.items() if (each := box.find(delivery)) is not None]
    if len(found) == 1:
        return found[0]
    if found:
        raise Refused(f"{delivery!r} is in several inboxes: {', '.join(name for name, _ in found)}. Say which.")
    raise NotFound(f"There is no delivery {delivery!r} any more. `keep deliveries` lists those that are kept.")


def _new_id(parts: Parts) -> str:
    return f"manual_{parts.ids.new('inp').removeprefix('inp_')}"
