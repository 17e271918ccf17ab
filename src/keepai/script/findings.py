"""Every finding that `check` can report: its code, its severity and its meaning, in one table.

Codes are stored and shown, so they are never renamed. `FindingReport` collects the findings of one script.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Protocol

from ..model.errors import Finding

FINDINGS_MAX = 200  # how many are shown
_KEPT_MAX = 2000  # how many are collected; a position costs time in a very long line

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True)
class Meaning:
    """The severity of a code, and one sentence on it."""

    severity: str
    sentence: str


def _errors(table: dict[str, str]) -> dict[str, Meaning]:
    return {code: Meaning(ERROR, sentence) for code, sentence in table.items()}


def _warnings(table: dict[str, str]) -> dict[str, Meaning]:
    return {code: Meaning(WARNING, sentence) for code, sentence in table.items()}


CODES: Mapping[str, Meaning] = MappingProxyType({
    # The text as a whole.
    **_errors({
        "too-large": "The script is longer than the limit.",
        "too-deep": "The script is nested deeper than the limit.",
        "too-slow": "The script has so many errors that parsing it took too long.",
        "too-many-findings": "There are more findings than are listed, and some of the others are errors.",
        "syntax": "The text is not JavaScript.",
        "does-not-load": "The script's top level throws, never ends or exceeds a limit; only `deploy` finds this.",
        "await-outside-async": "`await` is in a function that is not `async`.",
        "import": "The script imports something; scripts see only `ctx`.",
        "extra-export": "The script exports something besides its workflow.",
        "no-workflow": "The default export is not `Keep.workflow({…})`.",
        "missing-global": "The script uses a name of Node.js or of a browser, which scripts do not have.",
        "shared-state": "A handler changes a module-level variable, which no other step ever sees.",
    }),
    # The declaration.
    **_errors({
        "not-literal": "A part of the declaration cannot be read without running the script.",
        "wrong-type": "A part of the declaration has the wrong type.",
        "missing-key": "A required key is missing.",
        "unknown-key": "The declaration has a key that Keep does not know.",
        "duplicate-key": "A key is given twice; the first one is lost.",
        "bad-name": "A name is empty, too long or contains control characters.",
        "empty-subscribe": "A consumer subscribes to no topic, so it would never run.",
        "schedule-choice": "A schedule gives neither or both of `interval` and `cron`.",
        "bad-duration": "An interval is not a duration such as \"5m\", or is out of range.",
        "bad-cron": "A cron expression cannot be read, or never comes due.",
        "bad-time-zone": "A time zone is not known.",
        "handler-name-twice": "Two handlers of different kinds have the same name.",
    }),
    **_warnings({
        "no-handlers": "The workflow has neither producers, consumers nor routines.",
        "bare-producer": "A producer is a bare function, as in the older dialect.",
        "bare-routine": "A routine is a bare function, so it cannot have a schedule.",
        "schedule-missing": "A producer or routine has no schedule and runs at the default interval.",
        "empty-publishes": "A producer publishes to no topic.",
        "publishes-without-next": "A consumer names topics that it publishes to, but has no `next` to publish in.",
        "publishes-missing": "A consumer does not say to which topics it publishes.",
        "time-zone-unused": "A time zone is given with an interval, where it has no effect.",
        "topic-cycle": "Events can go round in a circle.",
    }),
    # Topics.
    **_errors({
        "undeclared-topic": "The script uses a topic that `topics` does not declare.",
        "topic-not-in-publishes": "A handler publishes to a topic that its `publishes` does not name.",
        "topic-not-subscribed": "A consumer reads a topic that its `subscribe` does not name.",
        "two-publishers": "Two handlers publish to one topic.",
        "two-subscribers": "Two consumers subscribe to one topic.",
    }),
    # What handlers ask of `ctx`.
    **_errors({
        "forbidden-call": "A call is in a step that does not allow it.",
        "unknown-connector": "The script calls a connector that is not configured.",
        "unknown-operation": "The script calls an operation that does not exist.",
        "unknown-source": "The script registers an input with a source that is not configured.",
        "unknown-input-type": "The script registers an input with a type that its source does not have.",
        "input-incomplete": "The script registers an input without `source`, `type`, `id` or `title`.",
        "input-id-missing": "A producer publishes an event without saying which input caused it.",
        "state-outside": "`ctx.state` is used in a step whose `ctx` has no such member.",
        "state-changed": "The script assigns to `ctx.state`, which is frozen.",
        "param-missing": "A call leaves out a param that its operation needs.",
        "param-unknown": "A call has a param that its operation does not have.",
        "param-wrong": "A param has a value or a type that its operation refuses, or that keep.toml does not allow.",
        "promise-not-awaited": "A promise is used as if it were its value.",
    }),
    **_warnings({
        "input-by-title": "A producer's event has a `title` and no `inputId`, as in the older dialect.",
        "title-ignored": "An event has a `title`, but only inputs have titles.",
        "message-id-missing": "An event has no `messageId`, so the host makes one up.",
        "input-id-ignored": "`next` publishes an event with an `inputId`, which is ignored.",
        "promise-dropped": "Async work is not awaited, so the step may end before it.",
        "call-caught": "`catch` is around a call, but a script never sees a call fail.",
        "retry-loop": "A loop tries a call again, but a script never sees a call fail.",
        "volatile-id": "An id is made from the time or from chance, so it differs at each attempt.",
        "unknown-field": "A value for the host has a field that the host does not know.",
        "capability-hidden": "`ctx` is used in a way that hides which operations are called.",
    }),
    # The steps of a consumer.
    **_errors({
        "after-mutation": "Code is after a mutation and never runs.",
        "second-mutation": "A mutation is after another one and never happens.",
        "mutation-in-loop": "A mutation is in a loop that never gets past its first call.",
        "mutation-result-used": "The result of a mutation is used, but a mutation never returns.",
    }),
    **_warnings({
        "after-conditional-mutation": "Code is after a branch with a mutation and runs only without it.",
        "mutation-caught": "`try` is around a mutation; `catch` and `finally` do not see how it ends.",
        "ui-title-missing": "`prepare` reserves events for a mutation without a title for people.",
        "bad-prepare-result": "`prepare` returns something that is not a PrepareResult.",
        "reservation-not-subscribed": "`prepare` reserves events of a topic that is not subscribed.",
    }),
    # The items of a routine.
    **_errors({
        "mutation-outside-item": "A routine makes a mutation outside an item.",
        "nested-item": "An item begins inside another one.",
        "item-incomplete": "`ctx.withItem` has no id, no title or no function.",
        "item-outside": "`ctx.item` is used where `ctx` has no such member.",
    }),
    **_warnings({
        "item-not-awaited": "An item is not awaited, so the next one may begin before it has ended.",
        "done-not-checked": "An item makes a mutation without checking whether the item is done.",
    }),
})


class HasPlace(Protocol):
    """Something with a position in the script."""

    @property
    def place(self) -> tuple[int, int]:
        """Line and column, counted from one."""


@dataclass(frozen=True)
class At:
    """A bare place."""

    line: int
    column: int

    @property
    def place(self) -> tuple[int, int]:
        """Line and column, counted from one."""
        return self.line, self.column


START = At(1, 1)


class FindingReport:
    """The findings of one script, each made once."""

    def __init__(self) -> None:
        self._findings: dict[Finding, None] = {}
        self.failed = False  # whether there is an error so far

    def add(self, code: str, at: HasPlace, message: str, fix: str) -> None:
        """Add a finding. Its severity comes from the table."""
        severity = CODES[code].severity
        if len(self._findings) >= _KEPT_MAX and (self.failed or severity == WARNING):
            return
        self.failed = self.failed or severity == ERROR
        line, column = at.place
        self._findings.setdefault(Finding(code, severity, line, column, message, fix))

    def sorted(self) -> tuple[Finding, ...]:
        """All findings by position, at most `FINDINGS_MAX`."""
        findings = sorted(self._findings, key=lambda f: (f.line, f.column, f.code, f.message))
        if len(findings) <= FINDINGS_MAX:
            return tuple(findings)
        kept, rest = findings[:FINDINGS_MAX], findings[FINDINGS_MAX:]
        errors = sum(f.severity == ERROR for f in rest)
        if errors:
            message = f"There are at least {len(rest)} more findings, {errors} of them errors."
            kept.append(Finding("too-many-findings", ERROR, rest[0].line, rest[0].column, message,
                                "Correct the ones above first."))
        return tuple(kept)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    candidates = [name for name in known if len(name) <= 80][:2000]
    by_lower = {name.lower(): name for name in reversed(candidates)}
    close = difflib.get_close_matches(name[:80].lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def suggest(word: str, known: Iterable[str], otherwise: str) -> str:
    """A fix: the name that was probably meant, or else `otherwise`."""
    meant = did_you_mean(word, known)
    return f"Did you mean {quote(meant)}?" if meant else otherwise


def quote(name: str) -> str:
    """A name of the script as a short, printable string in double quotes."""
    shown = name if len(name) <= 60 else name[:57] + "…"
    return '"' + "".join(c if c.isprintable() else "�" for c in shown) + '"'


def listed(names: Iterable[str], otherwise: str = "none") -> str:
    """Names as words for a sentence, the first ten of them."""
    quoted = [quote(name) for name in islice(names, 11)]
    return (", ".join(quoted[:10]) + (", …" if len(quoted) > 10 else "")) or otherwise
