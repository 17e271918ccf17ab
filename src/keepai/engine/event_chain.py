"""How far an event is from the producer that began its chain. A chain that feeds itself is a fault of the script."""

from __future__ import annotations

from collections.abc import Sequence

from ..ledger.base import Reader, Row
from ..ledger.transitions.events import Publication
from ..model.errors import LimitExceeded
from .run_context import RunContext

_SHOWN_MAX = 12


async def depth(context: RunContext, publications: Sequence[Publication]) -> int:
    """How deep what a run publishes is: one more than what it took, or than what it saw if it took nothing."""
    run, limit = context.run, context.parts.policy.chain_max
    ledger = context.parts.ledger
    taken = _deepest(context.reserved) or await ledger.look(_seen, run.workflow_id, context.handler.subscribe)
    deep = int(taken["depth"]) + 1 if taken else 1
    if deep > limit:
        way = await ledger.look(_circle, run.handler, taken, publications[0].topic)
        raise LimitExceeded(
            f"A chain of events went on through {limit:,} consumers and did not end: {way}. That is the limit (policy "
            "chain_max). Let the script end it, or publish to a topic that does not lead back."
        )
    return deep


def _deepest(events: Sequence[Row]) -> Row | None:
    return max(events, key=lambda event: int(event["depth"]), default=None)


def _seen(read: Reader, workflow_id: str, topics: Sequence[str]) -> Row | None:
    """The deepest event that waits in these topics."""
    return _deepest([
        row for topic in topics
        if (row := read.one("event_waiting_deepest", workflow_id=workflow_id, topic=topic)) is not None
    ])


def _circle(read: Reader, handler: str, event: Row | None, topic: str) -> str:
    """The way by which an event came back to the handler, in words; only what was found on record."""
    way = [handler]
    while event is not None and len(way) < 2 * _SHOWN_MAX:
        source = read.one("event_source", event_id=event["event_id"])
        if source is None:
            break
        way += [str(source["topic"]), str(source["handler"])]
        if source["handler"] == handler:
            return " → ".join(reversed(way))
        event = _deepest(read.all("reservation_of_run", workflow_id=source["workflow_id"], run_id=source["run_id"]))
    return " → ".join([*reversed(way), topic])
