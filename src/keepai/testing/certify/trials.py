"""Which trials a case has: made from what its calm life went through. Places that leave the same behind are one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...connectors.base import OperationSpec
from ...model.operations import Kind
from .life import Arrival, Doing, Point, Seen
from .list_changes import Change

STATES_MAX = 60  #: places in one case at which a host dies
AGAIN_MAX = 4  #: places at which the next host dies as well, after each of these
CALLS_MAX = 5  #: calls of one operation with which something goes wrong
TWICE_MAX = 2  #: calls of one operation that are given up and answer all the same: each takes real time
ANOTHER_MAX = 8  #: places at which a host dies that has a second entry
CHANGED_AT_MAX = 5  #: places at which a host dies and finds its lists changed
_JUMP_MS = 2 * 3_600_000
_OTHER_MS = 17_123

_WORDS: Mapping[str, str] = {
    "request_lost": "its request is lost", "answer_lost": "its answer is lost",
    "answer_twice": "its answer comes twice: Keep gave it up and found out what became of it, and then it answers",
    "late": "its request arrives late", "fails_once": "it fails once",
}
_CHANGES: Mapping[Change, str] = {
    Change.GROWN: "an entry has come in at the end of its list",
    Change.GROWN_FIRST: "an entry has come in at the beginning of its list",
    Change.SHRUNK: "the first entry of its list is gone",
    Change.REORDERED: "its list stands the other way round",
    Change.DOUBLED: "its list has every entry twice",
    Change.AGAIN: "what was read before is given again",
}


@dataclass(frozen=True)
class CertifyTrial:
    """One thing that is done to one case. `name` is what `--only` takes."""

    name: str
    words: str  # what happens in it, after "when"
    doing: Doing


def other_time() -> CertifyTrial:
    """The case at another second, and with other chance."""
    return CertifyTrial("other-time", "it runs at another time", Doing(offset_ms=_OTHER_MS))


def singles(calm: Seen, specs: Mapping[str, OperationSpec]) -> Iterator[CertifyTrial]:
    """One thing goes wrong."""
    for host, arrivals in enumerate(calm.arrivals):
        for each in _spread(places(arrivals), STATES_MAX):
            yield _death("death", "", host, each.point, Doing())
    for call, number in sorted(calm.calls.items()):
        for nth in range(1, min(number, CALLS_MAX) + 1):
            yield from _faults(specs[call], nth)
    if any(specs[call].kind is Kind.MUTATION for call in calm.calls):
        for sign, word in ((1, "forward"), (-1, "back")):
            yield CertifyTrial(f"clock:{word}", f"the clock jumps {word} by two hours", Doing(jump_ms=sign * _JUMP_MS))


def _death(kind: str, words: str, host: int, point: Point, doing: Doing) -> CertifyTrial:
    """A host dies at a place; one that comes after hosts that the case itself kills is told by its number."""
    later = f"@{host + 1}" if host else ""
    which = f"the {_ordinal(host + 1)} host" if host else "its host"
    doing = replace(doing, deaths=(point,), hosts_before=host)
    return CertifyTrial(f"{kind}:{point}{later}", f"{words}{which} dies at {_place(point)}", doing)


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _faults(spec: OperationSpec, nth: int) -> Iterator[CertifyTrial]:
    for fault, words in _WORDS.items():
        is_read = spec.kind is not Kind.MUTATION
        if is_read != (fault == "fails_once") or (fault == "late" and not _can_be_late(spec)):
            continue
        if fault == "answer_twice" and nth > TWICE_MAX:
            continue
        name = f"{fault.replace('_', '-')}:{spec.full_name}" + (f"#{nth}" if nth > 1 else "")
        doing = Doing(call=spec.full_name, nth=nth, fault=fault)
        yield CertifyTrial(name, f"call {nth} of {spec.full_name}: {words}", doing)


def _can_be_late(spec: OperationSpec) -> bool:
    """Whether the outside may still act after a call has ended; a connector with settle=0 says that it does not."""
    return spec.settle_s != 0 or spec.safety == "A"


def pairs(first: CertifyTrial, seen: Seen) -> Iterator[CertifyTrial]:
    """The next host dies as well, while it recovers."""
    recovers = first.doing.hosts_before + 1
    if len(seen.arrivals) <= recovers:
        return
    for each in places(seen.arrivals[recovers])[:AGAIN_MAX]:
        doing = replace(first.doing, deaths=(*first.doing.deaths, each.point))
        words = f"{first.words}, and the next one dies at {_place(each.point)}"
        yield CertifyTrial(f"{first.name}+{each.point}", words, doing)


def changes(calm: Seen) -> Iterator[tuple[CertifyTrial, list[CertifyTrial]]]:
    """For each way in which lists change: the life that has it so from its start, and those in which it comes later."""
    deaths = _spread([each for each in places(calm.arrivals[0]) if each.answers], CHANGED_AT_MAX)
    for how, words in _CHANGES.items():
        name = f"list-{how.replace('_', '-')}"
        begins = CertifyTrial(f"{name}:start", f"{words}, from the start", Doing(change=how, change_at="start"))
        later = [CertifyTrial(f"{name}:end", f"{words} when it runs again", Doing(change=how, change_at="end"))]
        if how is not Change.AGAIN:
            later += [CertifyTrial(f"{name}:{each.point}", f"its host dies at {_place(each.point)}, and then {words}",
                            Doing(deaths=(each.point,), change=how, change_at="death")) for each in deaths]
        yield begins, later


def with_another(changed: Seen) -> Iterator[CertifyTrial]:
    """For a case that works on one entry: a host dies while there are two."""
    grown = Doing(change=Change.GROWN, change_at="start")
    for host, arrivals in enumerate(changed.arrivals):
        for each in _spread([each for each in places(arrivals) if each.effects], ANOTHER_MAX):
            yield _death("two", "there is a second entry, and ", host, each.point, grown)


def places(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The places at which a death leaves something else behind than at the others."""
    found: dict[object, Arrival] = {}
    before: object = None
    for each in arrivals:
        left = (each.commits, each.effects)
        if left != before:
            found.setdefault((each.point.name, each.effects, each.answers), each)
        before = left
    return list(found.values())


def _spread(each: Iterable[Arrival], most: int) -> list[Arrival]:
    """At most so many of them, the first and the last among them."""
    every = list(each)
    if len(every) <= most:
        return every
    return [every[round(number * (len(every) - 1) / (most - 1))] for number in range(most)]


def _place(point: Point) -> str:
    side, _, verb = point.name.partition(":")
    what = "the call" if verb == "call" else f"the commit {verb}"
    nth = f" (arrival {point.nth})" if point.nth > 1 else ""
    return f"the place {side} {what}{nth}"
