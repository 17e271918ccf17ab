"""Events as a script sees them, in the answers to `peek` and `getByIds` and as `prepared.events`.

A payload stands there as it is kept: nothing reads or writes it anew. Of a large one the place is given too, so that it
need not be handed to the script before that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.codec import text_of
from ..model.light import light
from .base import LARGE, Cut


@light
@dataclass(frozen=True)
class Shown:
    """The text of one event, and where its payload is in it."""

    text: str
    start: int
    end: int


def shown(topic: str, message_id: str, payload: str) -> Shown:
    """An event; its payload is a JSON text."""
    before = f'{{"messageId":{text_of(message_id)},"payload":'
    return Shown(f'{before}{payload},"topic":{text_of(topic)}}}', len(before), len(before) + len(payload))


def listed(events: Sequence[Shown]) -> tuple[str, tuple[Cut, ...]]:
    """The array of them, and the places of its large payloads."""
    cuts, at = list[Cut](), len("[")
    for number, event in enumerate(events):
        if event.end - event.start > LARGE:
            cuts.append(((number, "payload"), at + event.start, at + event.end))
        at += len(event.text) + len(",")
    return f"[{','.join([event.text for event in events])}]", tuple(cuts)


def with_events(prepare_result: str, events: Sequence[Shown]) -> tuple[str, tuple[Cut, ...]]:
    """The PrepareResult as `mutate` and `next` see it, and the places of what is large in its events."""
    text, cuts = listed(events)
    before = f'{prepare_result[:-1]},"events":'
    start, end = len(before), len(before) + len(text)
    if len(text) - sum([last - first for _, first, last in cuts]) > LARGE:
        moved: tuple[Cut, ...] = ((("events",), start, end),)
    else:
        moved = tuple([(("events", *path), start + first, start + last) for path, first, last in cuts])
    return f"{before}{text}}}", moved


def without_events(prepare_result: str) -> tuple[str, tuple[Cut, ...]]:
    """The same where the events are not known: an empty text stands for them."""
    before = f'{prepare_result[:-1]},"events":'
    return f"{before}}}", ((("events",), len(before), len(before)),)
