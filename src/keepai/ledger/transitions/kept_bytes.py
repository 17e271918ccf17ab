"""How much of the ledger things take: the bytes of their texts, and for each row a round number beside them.

The counts of a workflow (`workflow.event_bytes` and its neighbours) and of a run (`run.bytes`) are made of these. A
script that writes many small things must not be cheaper than one that writes a large one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model.codec import size
from ...model.records import Run, Traced
from ..base import Row

ROW = 500  #: a row with its ids, its places in indexes, and its moves in the account
EVENT = 2 * ROW  #: an event also has causes and more moves
LINE = 100  #: a line of a trace has one place and no moves


def of_event(message_id: str, payload: str) -> int:
    """An event in one topic."""
    return EVENT + size(message_id) + size(payload)


def of_input(external_id: str, title: str) -> int:
    """An input, or an item beside its input."""
    return ROW + size(external_id) + size(title)


def of_pinned(events: Iterable[Row]) -> int:
    """Events as a run pins them; their payloads stay where they are."""
    return sum([ROW + size(event["message_id"]) for event in events])


def of_run(run: Run) -> int:
    """A run as it begins, with what it takes over from another."""
    return ROW + size(run.prepare_result) + size(run.outcome)


def of_trace(trace: Iterable[Traced]) -> int:
    """What a run did, line by line."""
    return sum([LINE + size(each.args) + size(each.answer) + size(each.error) for each in trace])
