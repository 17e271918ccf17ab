"""The cases of a workflow, as its author writes them in `NAME.test.toml` beside `NAME.js`.

A case says what the outside world answers, what goes wrong, and what must come of it. Everything that is wrong
with a file is reported at once, in its own words.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from ..connectors.type_checks import Misfit, Shape
from ..model.codec import Json
from ..model.errors import BadValue, ConfigError
from ..script.duration import BadDuration, parse_duration

SUFFIX = ".test.toml"
LASTS = "10m"  #: how long a case's world goes on if it does not say
LASTS_MAX_MS = 31 * 86_400_000
BYTES_MAX = 4 << 20

What = Literal[
    "rate_limited", "denied", "missing", "rejected", "answer_lost", "request_lost", "crash_before", "crash_after",
]
#: Faults that leave it open whether something happened, so that only a mutation can have them.
OF_MUTATIONS = frozenset({"answer_lost", "request_lost", "crash_before", "crash_after"})
_STATUS = Literal["applied", "failed", "in_flight", "needs_reconcile", "indeterminate", "skipped"]
_KIND = Literal[
    "unknown_outcome", "approval", "permission", "precondition", "logic", "attention", "exhausted", "internal",
]


class CaseAnswer(TypedDict):
    """What an operation answers; without `answer`, null."""

    call: str
    params: NotRequired[dict[str, Any]]  # only calls that have these
    answer: NotRequired[Any]
    page: NotRequired[dict[str, Any]]  # members beside the list


class CaseFault(TypedDict):
    """What goes wrong at the next calls of an operation."""

    call: str
    what: What
    times: NotRequired[int]


class CaseOutput(TypedDict):
    """A mutation that must be on record."""

    call: str
    params: NotRequired[dict[str, Any]]
    status: NotRequired[_STATUS]  # applied, if it does not say


class CaseInput(TypedDict):
    """An input that must be there."""

    title: NotRequired[str]
    source: NotRequired[str]
    type: NotRequired[str]
    id: NotRequired[str]
    status: NotRequired[Literal["pending", "done", "skipped", "late"]]


class CaseEvent(TypedDict):
    """An event that must be there."""

    topic: str
    messageId: NotRequired[str]
    payload: NotRequired[Any]
    status: NotRequired[Literal["pending", "consumed", "skipped"]]


class Expect(TypedDict):
    """What must come of a case."""

    output: NotRequired[list[CaseOutput]]  # exactly these, in this order
    needs_you: NotRequired[list[_KIND]]  # exactly these kinds of questions
    input: NotRequired[list[CaseInput]]  # exactly these, if it is written
    event: NotRequired[list[CaseEvent]]  # the same


class Case(TypedDict):
    """One case."""

    name: str
    lasts: NotRequired[str]
    grant: NotRequired[dict[str, Literal["allow", "ask", "deny"]]]  # all are allowed, except as it says
    answer: NotRequired[list[CaseAnswer]]
    fault: NotRequired[list[CaseFault]]
    expect: NotRequired[Expect]


class _File(TypedDict):
    """A whole file."""

    script: NotRequired[str]  # NAME.js, if it does not say
    case: list[Case]


@dataclass(frozen=True)
class Fixtures:
    """A file of cases that was read."""

    file: Path
    script: Path
    cases: tuple[Case, ...]


def read(file: Path) -> Fixtures:
    """A file of cases; the `ConfigError` of a wrong one names everything that is wrong with it."""
    return parse(_text(file), file)


def parse(text: str, file: Path) -> Fixtures:
    """The text of a file of cases."""
    data = _parsed(text, file)
    try:
        Shape(_File, "a file of cases").build(data)
    except Misfit as misfit:
        # Elsewhere such problems are about params, and begin with that word.
        told = (each.removeprefix("params.").removeprefix("params") for each in misfit.problems)
        raise ConfigError("\n".join(f"{file}: {each}." for each in told)) from None
    except BadValue as error:
        raise ConfigError(f"{file}: {error.message} Write it as a string.") from None
    read = cast(_File, data)
    named = read.get("script") or file.name.removesuffix(SUFFIX) + ".js"
    cases = tuple(read["case"])
    wrong = [f"{file}: {told}" for case in cases for told in _wrong(case)]
    names = Counter(case["name"] for case in cases)
    wrong += [f"{file}: two cases are called {name!r}." for name in sorted(names) if names[name] > 1]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return Fixtures(file, file.parent / named, cases)


def lasts_ms(case: Case) -> int:
    """How long the case's world goes on."""
    return parse_duration(case.get("lasts", LASTS))


def _text(file: Path) -> str:
    try:
        raw = file.read_bytes()
        if len(raw) > BYTES_MAX:
            raise ConfigError(f"{file} has {len(raw):,} bytes; a file of cases has at most {BYTES_MAX:,}.")
        return raw.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8. Save it as UTF-8.") from None


def _parsed(text: str, file: Path) -> Json:
    try:
        return cast(Json, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}.") from None


def _wrong(case: Case) -> list[str]:
    """What the types cannot say."""
    told = []
    try:
        if lasts_ms(case) > LASTS_MAX_MS:
            told.append(f"the case {case['name']!r} lasts longer than 31 days.")
    except BadDuration as error:
        told.append(f"the case {case['name']!r}: lasts: {error}")
    never = any(fault.get("times", 1) < 1 for fault in case.get("fault", ()))
    return [*told, *([f"the case {case['name']!r}: times must be above zero."] if never else [])]
