"""The texts that a script gets, and where their large values are: events, and the answers of connectors.

Events are in the answers to `peek` and `getByIds`, and in `prepared.events`. A payload stands there as the ledger has
it: nothing parses or writes it again. The places of large values go along, so that a value can stay outside of the VM
until the script reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.codec import Json, text_of
from ..model.fast_record import fast_record
from .base import LARGE, Cut


@fast_record
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


def in_pieces(value: Json, depth: int = 2) -> tuple[str, tuple[Cut, ...]]:
    """The text of a checked value, and the places of its large members, and of those of its members."""
    members: list[tuple[str, str | int, Json]]
    if depth and type(value) is list:
        opening, closing, members = "[", "]", [("", number, member) for number, member in enumerate(value)]
    elif depth and type(value) is dict:
        opening, closing, members = "{", "}", [(text_of(name) + ":", name, member) for name, member in value.items()]
    else:
        return text_of(value), ()
    parts, cuts, at = list[str](), list[Cut](), len(opening)
    for name, key, member in members:
        text, inner = (text_of(member), ()) if type(member) is str else in_pieces(member, depth - 1)
        start = at + len(name)
        if inner:
            cuts += [((key, *path), start + first, start + last) for path, first, last in inner]
        elif len(text) > LARGE:
            cuts.append(((key,), start, start + len(text)))
        parts.append(name + text)
        at = start + len(text) + len(",")
    return f"{opening}{','.join(parts)}{closing}", tuple(cuts)
