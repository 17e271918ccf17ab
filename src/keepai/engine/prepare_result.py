"""What `prepare` must return, checked before anything is pinned."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.clock import parse_iso
from ..model.codec import Json, check_id, check_size, shown, sound, stored
from ..model.errors import BadValue, LimitExceeded, RuleBroken
from ..model.fast_record import fast_record
from ..model.policy import Policy
from ..runtime.base import Ended
from ..script.manifest import Handler
from .gate import TITLE_MAX

_SHAPE = "It must return {reservations: [{topic, ids}], data, ui?: {title}, wakeAt?}."


@fast_record
@dataclass(frozen=True)
class Wishes:
    """What a script says to its host beside the data."""

    title: str | None
    wake_at: int | None  # in ms


@fast_record
@dataclass(frozen=True)
class PrepareResult:
    """The text that is pinned, and what the host reads out of it."""

    text: str
    wanted: tuple[tuple[str, str], ...]  # (topic, messageId)
    wishes: Wishes


def parse(ended: Ended, handler: Handler, policy: Policy, warn: list[str]) -> PrepareResult:
    """Check the shape; a wakeAt that is no date is ignored with a warning."""
    returned = ended.value
    if returned is None:
        raise RuleBroken(f"prepare of {handler.name} returned nothing. {_SHAPE}")
    check_size(returned, "the PrepareResult", policy.prepare_bytes_max)
    value = ended.read()
    if not isinstance(value, dict) or "reservations" not in value or "data" not in value:
        raise RuleBroken(f"prepare of {handler.name} returned something else than a PrepareResult. {_SHAPE}")
    if "events" in value:
        raise RuleBroken(
            f"prepare of {handler.name} returned a member `events`. The host puts the reserved events there, for "
            "mutate and next. Remove it, or put what you mean into `data`."
        )
    wanted = _wanted(value["reservations"], handler, policy)
    return PrepareResult(returned, wanted, Wishes(_title(value.get("ui"), warn), _wake(value.get("wakeAt"), warn)))


def wishes_of(text: str) -> Wishes:
    """What stands in a PrepareResult that was pinned earlier."""
    value = stored(text)
    assert isinstance(value, dict), "only an object is pinned"
    return Wishes(_title(value.get("ui"), []), _wake(value.get("wakeAt"), []))


def _wanted(reservations: Json, handler: Handler, policy: Policy) -> tuple[tuple[str, str], ...]:
    if not isinstance(reservations, list):
        raise RuleBroken(f"PrepareResult.reservations must be an array. {_SHAPE}")
    wanted: list[tuple[str, str]] = []
    for entry in reservations:
        if not isinstance(entry, dict) or not isinstance(entry.get("ids"), list):
            raise RuleBroken(f"A reservation must be {{topic, ids: [messageId, …]}}. {_SHAPE}")
        topic = entry.get("topic")
        if not isinstance(topic, str) or topic not in handler.subscribe:
            raise RuleBroken(
                f"prepare reserved events of the topic {shown(topic)}, to which {handler.name} does not subscribe. "
                f"It subscribes to {', '.join(map(shown, handler.subscribe))}."
            )
        try:
            ids = [check_id(each, f"an id reserved in {shown(topic)}") for each in entry["ids"]]  # type: ignore[union-attr]
        except BadValue as error:
            raise RuleBroken(f"{error.message} Reserve the messageId of an event that ctx.peek returned.") from None
        wanted += [(topic, message_id) for message_id in ids]
    if len(wanted) > policy.reservations_max:
        raise LimitExceeded(
            f"prepare reserved {len(wanted):,} events; the limit is {policy.reservations_max:,}. Reserve fewer per run."
        )
    if len(set(wanted)) < len(wanted):
        twice = next(w for w in wanted if wanted.count(w) > 1)
        raise RuleBroken(f"prepare reserved {shown(twice[1])} of topic {shown(twice[0])} twice. List each event once.")
    return tuple(wanted)


def _title(ui: Json, warn: list[str]) -> str | None:
    if ui is None:
        return None
    title = ui.get("title") if isinstance(ui, dict) else None
    if not isinstance(ui, dict) or not (title is None or isinstance(title, str)):
        raise RuleBroken("PrepareResult.ui must be an object {title: string}.")
    if title is None or len(title) <= TITLE_MAX:
        return title and sound(title)
    warn.append(f"ui.title has {len(title):,} characters. People see the first {TITLE_MAX:,}.")
    return sound(title[:TITLE_MAX])


def _wake(value: Json, warn: list[str]) -> int | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            raise ValueError
        return parse_iso(value)
    except (ValueError, OverflowError):
        warn.append(f"wakeAt is {shown(value)}, which is no ISO-8601 date, and was ignored.")
        return None
