"""Producers, consumers and routines as the script declares them."""

from __future__ import annotations

from collections.abc import Mapping
from zoneinfo import available_timezones

from ..model.operations import Step
from .declaration import Declaration, Declared, Topics
from .findings import listed, suggest
from .literals import ObjectMember
from .manifest import HandlerKind, Schedule
from .schedule import BadSchedule, check_cron, parse_interval, time_zone
from .script_reading import ScriptReading, call_of
from .tree import Node

PRODUCER_KEYS = ("publishes", "schedule", "handler")
CONSUMER_KEYS = ("subscribe", "publishes", "prepare", "mutate", "next")
ROUTINE_KEYS = ("schedule", "handler")
SCHEDULE_KEYS = ("interval", "cron", "tz")

_PRODUCER = '{ publishes: ["…"], schedule: { interval: "5m" }, handler: async (ctx, state) => { … } }'
_CONSUMER = 'Keep.consumer({ subscribe: ["…"], publishes: ["…"], async prepare(ctx, state) { … }, … })'
_ROUTINE = '{ schedule: { interval: "5m" }, handler: async (ctx, state) => { … } }'
_SCHEDULE = 'schedule: { interval: "5m" }'
_CRON = 'schedule: { cron: "0 9 * * 1-5", tz: "Europe/Berlin" }'

#: Keys that a routine often has by mistake → what to do instead.
_NOT_IN_A_ROUTINE = {
    "publishes": "Remove it; routines do not publish. A producer does, or a consumer's `next`.",
    "subscribe": "Remove it; routines take no events and do not publish. A consumer subscribes.",
}


def read_handlers(reading: ScriptReading, declaration: Declaration, members: Mapping[str, ObjectMember]) -> None:
    """Add every handler to the declaration."""
    for group, read in (("producers", _producer), ("consumers", _consumer), ("routines", _routine)):
        if group not in members:
            continue
        node = reading.expect(members[group].value, "an object", f"`{group}`", f"Write `{group}: {{ … }}`.")
        for entry in reading.members(node, f"`{group}`") if node is not None else ():
            assert entry.key is not None
            if reading.name(entry.key, entry.at, "A handler"):
                read(reading, declaration, entry, entry.key)


def _producer(reading: ScriptReading, declaration: Declaration, entry: ObjectMember, name: str) -> None:
    subject = f"Producer `{name}`"
    handler = _declare(reading, declaration, entry, Declared(name, HandlerKind.PRODUCER, entry.at))
    if _is_bare(reading, handler, entry, Step.PRODUCER):
        return
    node = reading.expect(entry.value, "an object", subject, f"Write `{name}: {_PRODUCER}`.")
    if node is None:
        return
    members = reading.keyed(node, subject, PRODUCER_KEYS)
    if "publishes" in members:
        handler.publishes = _topics(reading, members["publishes"], subject)
        if handler.publishes is not None and not handler.publishes:
            reading.add("empty-publishes", members["publishes"].value,
                        f"{subject} publishes to no topic, so it has no effect.",
                        'Write `publishes: ["email.received"]`, or make it a routine.')
    else:
        _missing(reading, entry.at, subject, "publishes", 'publishes: ["email.received"]')
    _scheduled(reading, handler, members, Step.PRODUCER)


def _routine(reading: ScriptReading, declaration: Declaration, entry: ObjectMember, name: str) -> None:
    subject = f"Routine `{name}`"
    declared = Declared(name, HandlerKind.ROUTINE, entry.at, publishes={}, subscribe={})
    handler = _declare(reading, declaration, entry, declared)
    if _is_bare(reading, handler, entry, Step.ROUTINE):
        return
    node = reading.expect(entry.value, "an object", subject, f"Write `{name}: {_ROUTINE}`.")
    if node is not None:
        members = reading.keyed(node, subject, ROUTINE_KEYS, _NOT_IN_A_ROUTINE)
        _scheduled(reading, handler, members, Step.ROUTINE)


def _consumer(reading: ScriptReading, declaration: Declaration, entry: ObjectMember, name: str) -> None:
    subject = f"Consumer `{name}`"
    handler = _declare(reading, declaration, entry, Declared(name, HandlerKind.CONSUMER, entry.at))
    node = _consumer_object(reading, entry, name, subject)
    if node is None:
        return
    members = reading.keyed(node, subject, CONSUMER_KEYS)
    if "subscribe" in members:
        handler.subscribe = _topics(reading, members["subscribe"], subject)
        if handler.subscribe is not None and not handler.subscribe:
            reading.add("empty-subscribe", members["subscribe"].value, f"{subject} subscribes to no topic.",
                        'Write `subscribe: ["email.received"]`.')
    else:
        _missing(reading, entry.at, subject, "subscribe", 'subscribe: ["email.received"]')
    handler.without_publishes = "publishes" not in members
    if "publishes" in members:
        handler.publishes = _topics(reading, members["publishes"], subject)
    _step(reading, handler, members, "prepare", Step.PREPARE, required="async prepare(ctx, state) { … }")
    _step(reading, handler, members, "mutate", Step.MUTATE)
    _step(reading, handler, members, "next", Step.NEXT)
    if handler.publishes and "next" not in members:
        reading.add("publishes-without-next", members["publishes"].value,
                    f"{subject} has no `next`, so it never publishes anything.",
                    "Add `async next(ctx, prepared, mutationResult) { … }`, or write `publishes: []`.")


def _consumer_object(reading: ScriptReading, entry: ObjectMember, name: str, subject: str) -> Node | None:
    fix = f"Write `{name}: {_CONSUMER}`."
    resolved = reading.literals.resolve(entry.value)
    given = call_of(reading, resolved, "consumer")
    if given is not None and len(given) == 1:
        return reading.expect(given[0], "an object", subject, fix)
    kind = "an object" if given is not None else reading.literals.type_of(resolved)
    if kind is None:
        reading.not_literal(entry.value, subject)
        return None
    message = f"{subject} must be one `Keep.consumer({{…}})`, not {kind}."
    reading.add("wrong-type", entry.value, message, fix)
    return None


def _declare(reading: ScriptReading, declaration: Declaration, entry: ObjectMember, handler: Declared) -> Declared:
    """Add a handler to the declaration. Reports a handler of another kind with the same name."""
    other = declaration.kinds.setdefault(handler.name, handler.kind)
    if other is not handler.kind:
        reading.add("handler-name-twice", entry.at, f"A {other.value} is also called `{handler.name}`.",
                    "Give every handler its own name.")
    declaration.handlers.append(handler)
    return handler


def _is_bare(reading: ScriptReading, handler: Declared, entry: ObjectMember, step: Step) -> bool:
    """Whether a handler is just a function, which is then its step."""
    resolved = reading.literals.resolve(entry.value)
    handler.bare = reading.literals.type_of(resolved) == "a function"
    if handler.bare:
        handler.steps[step] = resolved
    return handler.bare


def _scheduled(reading: ScriptReading, handler: Declared, members: Mapping[str, ObjectMember], step: Step) -> None:
    """Read the schedule and the function of a producer or routine."""
    subject = f"{handler.kind.value.capitalize()} `{handler.name}`"
    if "schedule" in members:
        handler.schedule = _schedule(reading, members["schedule"].value, subject)
    else:
        reading.add("schedule-missing", handler.at, f"{subject} has no `schedule`, so the default interval holds.",
                    f"Add `{_SCHEDULE}`.")
    _step(reading, handler, members, "handler", step, required="async handler(ctx, state) { … }")


def _missing(reading: ScriptReading, at: Node, subject: str, key: str, example: str) -> None:
    reading.add("missing-key", at, f"{subject} has no `{key}`.", f"Add `{example}`.")


def _topics(reading: ScriptReading, entry: ObjectMember, subject: str) -> Topics | None:
    example = f'`{entry.key}: ["email.received"]`'
    texts = reading.strings(entry.value, f"`{entry.key}` of {subject}", example)
    return None if texts is None else dict(texts)


def _step(reading: ScriptReading, handler: Declared, members: Mapping[str, ObjectMember], key: str, step: Step, *,
          required: str | None = None) -> None:
    subject = f"{handler.kind.value.capitalize()} `{handler.name}`"
    if key not in members:
        if required is not None:
            _missing(reading, handler.at, subject, key, required)
        return
    function = reading.expect(members[key].value, "a function", f"`{key}` of {subject}",
                              f"Write `async {key}(ctx, …) {{ … }}`.")
    if function is not None:
        handler.steps[step] = function


def _schedule(reading: ScriptReading, value: Node, subject: str) -> Schedule | None:
    label = f"The schedule of {subject}"
    node = reading.expect(value, "an object", label, f"Write `{_SCHEDULE}`.")
    if node is None:
        return None
    members = reading.keyed(node, label, SCHEDULE_KEYS)
    texts = {key: reading.string(entry.value, f"`{key}`", f"Write `{_SCHEDULE}`.")
             for key, entry in members.items()}
    if ("interval" in texts) == ("cron" in texts):
        count = "both an `interval` and a `cron`" if "cron" in texts else "neither an `interval` nor a `cron`"
        reading.add("schedule-choice", value, f"{label} has {count}.",
                    f"Write `{_SCHEDULE}` or `{_CRON}`.")
        return None
    return _checked(reading, members, texts)


def _checked(
    reading: ScriptReading, members: Mapping[str, ObjectMember], texts: Mapping[str, str | None],
) -> Schedule | None:
    interval, cron, tz = texts.get("interval"), texts.get("cron"), texts.get("tz")
    if tz is not None:
        _check_zone(reading, members["tz"].value, tz, used="cron" in texts)
    if cron is not None:
        try:
            check_cron(cron)
        except BadSchedule as error:
            reading.add("bad-cron", members["cron"].value, str(error), 'Write `cron: "0 9 * * 1-5"`.')
        return Schedule(cron=cron, tz=tz)
    if interval is None:
        return None
    try:
        return Schedule(interval_ms=parse_interval(interval))
    except ValueError as error:
        reading.add("bad-duration", members["interval"].value, str(error), 'Write `interval: "5m"`.')
        return None


def _check_zone(reading: ScriptReading, at: Node, tz: str, *, used: bool) -> None:
    if not used:
        reading.add("time-zone-unused", at, "A time zone means nothing with an interval.", "Remove `tz`.")
    try:
        time_zone(tz)
    except BadSchedule as error:
        fix = suggest(tz, sorted(available_timezones()), f"Write one such as {listed(['Europe/Berlin'])}.")
        reading.add("bad-time-zone", at, str(error), fix)
