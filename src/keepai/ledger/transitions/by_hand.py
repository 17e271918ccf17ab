"""What a person sends in by hand: an input of the source `manual`, and an event that it caused."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.codec import Json
from ...model.errors import Conflict
from ..base import Tx
from . import events
from .events import Publication, Registration
from .workflows import note

#: The source of inputs that a person sent in. No connector has this name, so no script registers such an input.
MANUAL = "manual"


@dataclass(frozen=True)
class SentIn:
    """An event that a person wants in a topic, as it was checked against a version of the workflow."""

    version: tuple[int, int]
    topic: str
    message_id: str | None  # None: that of its input
    payload: str
    title: str | None  # None: made of the topic and the messageId
    revisions_max: int


def send(tx: Tx, workflow_id: str, wanted: SentIn, actor: str) -> dict[str, Json]:
    """Put it in, as a producer would publish it. With a `message_id` that the topic has, it is published over that."""
    workflow = tx.row("workflow_by_id", f"there is no workflow {workflow_id}", workflow_id=workflow_id)
    if (workflow["major"], workflow["minor"]) != wanted.version:
        raise Conflict("Nothing was sent in: another version was deployed meanwhile.")
    input_id = _known(tx, workflow_id, wanted) or tx.new_id("inp")
    message_id = wanted.message_id or input_id
    where = {"workflow_id": workflow_id, "topic": wanted.topic, "message_id": message_id}
    before = tx.one("event_find", **where)
    title = wanted.title or f"{wanted.topic} {message_id}, sent in by hand"
    events.register(tx, workflow_id, input_id, [Registration(input_id, MANUAL, wanted.topic, message_id, title)])
    publication = [Publication(wanted.topic, message_id, wanted.payload, (input_id,))]
    skipped = events.skipped_causes(tx, workflow_id, publication)
    events.publish(tx, workflow_id, input_id, publication, wanted.revisions_max, skipped=skipped)
    after = tx.row("event_find", "an event was just published", **where)
    became = "new" if before is None else "known" if before["newest"] == after["newest"] else (
        "changed" if after["revision"] == after["newest"] else "late")
    sent: dict[str, Json] = {
        "input": input_id, "event": str(after["id"]), "topic": wanted.topic, "id": message_id, "became": became,
    }
    note(tx, workflow_id, "send", input_id, actor, sent)
    return sent


def _known(tx: Tx, workflow_id: str, wanted: SentIn) -> str | None:
    """The input that stands for the same messageId, if it was sent in before."""
    row = wanted.message_id and tx.one(
        "input_find", workflow_id=workflow_id, source=MANUAL, type=wanted.topic, external_id=wanted.message_id)
    return str(row["id"]) if row else None


def send_to_inbox(tx: Tx, inbox: str, sent: dict[str, Json], act: str, actor: str) -> None:
    """Keep that a person put a delivery into an inbox."""
    note(tx, None, act, inbox, actor, sent)
