"""Rules for what a script passes to the host: events and inputs, also in the older dialect."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..model.operations import SYSTEM_INPUTS, Step, Surface
from .calls import CallSite
from .declaration import Declaration
from .findings import listed, quote, suggest
from .literals import ObjectMember
from .manifest import HandlerKind
from .script_reading import ScriptReading
from .topic_rules import literal_topics
from .tree import Node

#: A field that an event often has by mistake → the field that is meant.
_MEANT = {"data": "payload", "body": "payload", "message": "payload", "content": "payload", "id": "messageId"}

EVENT_FIELDS = ("messageId", "inputId", "payload", "title")
INPUT_FIELDS = ("source", "type", "id", "title")

_REGISTER = ('const inputId = ctx.registerInput({ source: "gmail", type: "email", id: e.id, title: … }); '
             'ctx.publish(topic, { messageId: e.id, inputId, payload: … });')


def check_message(reading: ScriptReading, call: CallSite, surface: Surface | None) -> None:
    """Report what is wrong with the event or input of a call."""
    if call.name == "publish" and call.step in (Step.PRODUCER, Step.NEXT) and len(call.args) >= 2:
        _check_event(reading, call, call.args[1])
    elif call.name == "registerInput" and call.step is Step.PRODUCER and call.args:
        _check_input(reading, call.args[0], surface)


def fields_of(
    reading: ScriptReading, node: Node, subject: str, known: Collection[str], refused: Collection[str] = (),
) -> tuple[dict[str, ObjectMember], bool] | None:
    """The fields of an object literal, and whether these are all; None if it is not a literal.

    The caller reports the fields in `refused`."""
    resolved = reading.literals.resolve(node)
    if resolved.kind != "object":
        return None
    entries = reading.literals.entries(resolved)
    fields = {entry.key: entry for entry in entries if entry.key is not None}
    for key, entry in fields.items():
        if key not in known and key not in refused:
            meant = _MEANT.get(key) if known is EVENT_FIELDS else None
            fix = f"Did you mean {quote(meant)}?" if meant and meant not in fields else None
            reading.add("unknown-field", entry.at, f"{subject} has no field {quote(key)}, so it is lost.",
                        fix or suggest(key, known, f"Its fields are {listed(known)}."))
    return fields, all(entry.key is not None for entry in entries)


def _check_event(reading: ScriptReading, call: CallSite, node: Node) -> None:
    read = fields_of(reading, node, "An event", EVENT_FIELDS)
    if read is None:
        return
    fields, complete = read
    if complete and "messageId" not in fields:
        reading.add("message-id-missing", node, "The event has no `messageId`, so the host makes one up.",
                    "Add `messageId`, made from the id of the outside object.")
    if call.step is Step.NEXT and "inputId" in fields:
        reading.add("input-id-ignored", fields["inputId"].at,
                    "This `inputId` is ignored: an event from `next` has the inputs of the reserved events.",
                    "Remove `inputId`.")
    if call.step is Step.NEXT and "title" in fields:
        reading.add("title-ignored", fields["title"].at, "Events have no titles; this one is not shown.",
                    "Remove `title`, or move it into `payload`.")
    elif call.step is Step.PRODUCER and complete and "inputId" not in fields:
        _input_missing(reading, node, fields)
    elif call.step is Step.PRODUCER and complete and "title" in fields:
        reading.add("title-ignored", fields["title"].at, "Events have no titles; the input has one.",
                    "Remove `title`.")


def _input_missing(reading: ScriptReading, node: Node, fields: Mapping[str, ObjectMember]) -> None:
    if "title" in fields:
        reading.add("input-by-title", fields["title"].at,
                    "A `title` without an `inputId` is the older dialect; it registers an input.",
                    f"Write `{_REGISTER}`")
    else:
        reading.add("input-id-missing", node, "The event does not say which input caused it.",
                    f"Write `{_REGISTER}`")


def _check_input(reading: ScriptReading, node: Node, surface: Surface | None) -> None:
    read = fields_of(reading, node, "An input", INPUT_FIELDS)
    if read is None:
        return
    fields, complete = read
    missing = [f"`{name}`" for name in INPUT_FIELDS if name not in fields]
    if complete and missing:
        reading.add("input-incomplete", node, f"The input has no {' and no '.join(missing)}.",
                    'Write `ctx.registerInput({ source: "gmail", type: "email", id: e.id, title: … })`.')
    if surface is not None and "source" in fields:
        _check_source(reading, fields, {**SYSTEM_INPUTS, **surface.input_types})


def _check_source(
    reading: ScriptReading, fields: Mapping[str, ObjectMember], sources: Mapping[str, tuple[str, ...]],
) -> None:
    source = reading.literals.text(fields["source"].value)
    if source is None:
        return
    if source not in sources:
        reading.add("unknown-source", fields["source"].value, f"There is no source {quote(source)}.",
                    suggest(source, sources, f"The sources are {listed(sources)}."))
        return
    kind = reading.literals.text(fields["type"].value) if "type" in fields else None
    if kind is not None and kind not in sources[source]:
        reading.add("unknown-input-type", fields["type"].value,
                    f"The source {quote(source)} has no inputs of type {quote(kind)}.",
                    suggest(kind, sources[source], f"Its types are {listed(sources[source])}."))


def check_dialect_of_handlers(reading: ScriptReading, declaration: Declaration, calls: Collection[CallSite]) -> None:
    """Warn of handlers in the older dialect, and show how to write each now."""
    published: dict[str, dict[str, None]] = {}
    for call in calls:
        if call.name == "publish" and call.args:
            topics = published.setdefault(call.handler.name, {})
            topics.update((topic, None) for topic, _ in literal_topics(reading, call.args[0]))
    for handler in declaration.handlers:
        publishes = f"publishes: [{listed(published.get(handler.name, ()), otherwise='')}]"
        if handler.bare and handler.kind is HandlerKind.ROUTINE:
            reading.add("bare-routine", handler.at,
                        f"Routine `{handler.name}` is a bare function: it runs at the default interval.",
                        f'Write `{handler.name}: {{ schedule: {{ interval: "5m" }}, '
                        "handler: async (ctx, state) => { … } }`.")
        elif handler.bare:
            reading.add("bare-producer", handler.at,
                        f"Producer `{handler.name}` is a bare function: it runs at the default interval and "
                        "may publish to any declared topic.",
                        f'Write `{handler.name}: {{ {publishes}, schedule: {{ interval: "5m" }}, '
                        "handler: async (ctx, state) => { … } }`.")
        elif handler.kind is HandlerKind.CONSUMER and handler.without_publishes:
            reading.add("publishes-missing", handler.at,
                        f"Consumer `{handler.name}` does not say what it publishes, so it may publish to any "
                        "declared topic.",
                        f"Add `{publishes}`.")
