"""What is wrong with a life, compared with the calm one: counted from the outside, by what was done for which input."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...connectors.base import OperationSpec
from ...model.codec import Json, canonical
from .life import Seen, SeenEffect

Input = tuple[str, ...]


@dataclass(frozen=True)
class Breach:
    """One rule that a life breaks."""

    kind: str  # "second", "missing", "content", "question", "endless", "identity", "case"
    words: str
    call: str = ""  # the operation that it is about
    place: str | None = None  # in the script, if the host knows it
    named: str = ""  # of an identity: "item", "input", "message" or "subkey"


def judged(
    seen: Seen, calm: Seen, volatile: Mapping[str, frozenset[str]], specs: Mapping[str, OperationSpec],
) -> list[Breach]:
    """The rules that a life breaks whose outside was the same as that of the calm one."""
    wrong = [*_ended(seen, calm, specs), *_counts(seen, calm, calm), *_contents(seen, calm, volatile)]
    return wrong or list(_problems(seen, calm))


def judged_changed(
    seen: Seen, calm: Seen, changed: Seen, volatile: Mapping[str, frozenset[str]], specs: Mapping[str, OperationSpec],
) -> list[Breach]:
    """The same where the lists changed on the way: `changed` is the life in which they were so from the start.

    If a host dies in the middle of an item and what the item was made from is gone or different afterwards, Keep asks a
    person. That is right, whatever the script does, and what comes after it waits."""
    waits = seen.died > 0 and any(kind == "attention" for kind, _, _ in seen.questions)
    wrong = [*_ended(seen, calm, specs), *_counts(seen, calm, changed)]
    if waits:
        return [each for each in wrong if each.kind in ("second", "endless")]
    both = _single_contents(calm, volatile) & _single_contents(changed, volatile)
    lost = sorted(both - _single_contents(seen, volatile))
    if not wrong and lost:
        call = lost[0][0]
        wrong.append(Breach("missing", f"{call} with {lost[0][1]} is missing", call))
    return wrong


def judged_same_ids(seen: Seen, calm: Seen) -> list[Breach]:
    """At another time, what came in must have the same ids."""
    for named, one, other in (
        ("item", _items(seen), _items(calm)), ("input", _inputs(seen), _inputs(calm)),
        ("message", {m for _, m in seen.messages}, {m for _, m in calm.messages}),
        ("subkey", {e.subkey or "" for e in seen.effects}, {e.subkey or "" for e in calm.effects}),
    ):
        if one != other:
            was, now = _example(other - one), _example(one - other)
            return [Breach("identity", f"is {was} at one time and {now} at another, for the same thing", named=named)]
    return []


def volatile_members(calm: Seen, other: Seen) -> dict[str, frozenset[str]]:
    """By call, the params whose content depends on time or chance: it may differ between two lives."""
    found: dict[str, set[str]] = defaultdict(set)
    theirs = _by_unit(other)
    for unit, effects in _by_unit(calm).items():
        for one, two in zip(effects, theirs.get(unit, ()), strict=False):
            names = one.payload.keys() | two.payload.keys()
            found[one.call] |= {n for n in names if canonical(one.payload.get(n)) != canonical(two.payload.get(n))}
    return {call: frozenset(names) for call, names in found.items()}


# -- rules -----------------------------------------------------------------------------------------


def _ended(seen: Seen, calm: Seen, specs: Mapping[str, OperationSpec]) -> Iterator[Breach]:
    if seen.endless:
        yield Breach("endless", "it never comes to rest")
    yield from questions_beyond(seen, Counter(kind for kind, _, _ in calm.questions))
    for call, number in seen.asked.items():
        if number > calm.asked[call] and specs[call].safety != "C":
            yield Breach("question", f"a person is asked what became of {call}, though it could be looked up", call)


def questions_beyond(seen: Seen, allowed: Counter[str]) -> list[Breach]:
    """What a person is asked in the end, beyond what is expected, by kind."""
    left, found = Counter(allowed), []
    for kind, why, place in seen.questions:
        left[kind] -= 1
        if left[kind] < 0:
            found.append(Breach("question", f"a person is asked ({kind}): {why}", place=place))
    return found


def _counts(seen: Seen, calm: Seen, changed: Seen) -> Iterator[Breach]:
    """For each input: everything that must be done for it, and nothing more than may be."""
    found, least, most = _per_input(seen), _per_input(changed), _per_input(calm)
    for input in sorted({*found, *least}):
        for call in sorted({*found[input], *least[input]}):
            number, low = found[input][call], least[input][call]
            high = max(low, most[input][call])
            told = f"{call} is done {_times(number)} for {_told(input)} instead of "
            if number > high and not (high == 0 and _of_the_clock(input)):
                yield Breach("second", told + _times(high), call)
            elif number < low:
                yield Breach("missing", told + _times(low), call)


def _contents(seen: Seen, calm: Seen, volatile: Mapping[str, frozenset[str]]) -> Iterator[Breach]:
    """The same thing must be done with the same content."""
    known = _by_unit(calm)
    for unit, effects in _by_unit(seen).items():
        allowed = {_content(each, volatile) for each in known.get(unit, ())}
        other = next((each for each in effects if allowed and _content(each, volatile) not in allowed), None)
        if other is not None:
            told = ", ".join(map(_told, sorted(other.inputs)))
            yield Breach("content", f"{other.call} has another content for {told}: {_short(_content(other, volatile))} "
                                   f"instead of {_short(min(allowed))}", other.call)


def _problems(seen: Seen, calm: Seen) -> Iterator[Breach]:
    for told in seen.problems:
        if told not in calm.problems:
            yield Breach("case", told)


# -- counting --------------------------------------------------------------------------------------


def _per_input(seen: Seen) -> dict[Input, Counter[str]]:
    found: dict[Input, Counter[str]] = defaultdict(Counter)
    for effect in seen.effects:
        for input in effect.inputs or [()]:
            found[input][effect.call] += 1
    return found


def _by_unit(seen: Seen) -> dict[object, list[SeenEffect]]:
    found: dict[object, list[SeenEffect]] = defaultdict(list)
    for each in seen.effects:
        found[(each.call, each.inputs, each.identity)].append(each)
    return found


def _single_contents(seen: Seen, volatile: Mapping[str, frozenset[str]]) -> set[tuple[str, str]]:
    return {(each.call, _content(each, volatile)) for each in seen.effects if len(each.inputs) == 1}


def _content(effect: SeenEffect, volatile: Mapping[str, frozenset[str]]) -> str:
    left_out = volatile.get(effect.call, frozenset())
    kept: Json = {name: value for name, value in effect.payload.items() if name not in left_out}
    return canonical(kept)


def _items(seen: Seen) -> set[str]:
    return {id for source, type, id in seen.inputs if (source, type) == ("workflow", "item")}


def _inputs(seen: Seen) -> set[str]:
    return {each[2] for each in seen.inputs if each[0] not in ("system", "workflow")}


def _of_the_clock(input: Input) -> bool:
    """Whether an input stands for nothing but the time: a run more or less is no fault."""
    return input[:1] == ("system",)


def _told(input: Input) -> str:
    if not input:
        return "no input"
    source, type, id = input
    return f"item {id!r}" if (source, type) == ("workflow", "item") else f"{source} {type} {id!r}"


def _times(number: int) -> str:
    return {0: "not", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _example(ids: set[str]) -> str:
    return repr(min(ids)) if ids else "nothing"


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:119] + "…"
