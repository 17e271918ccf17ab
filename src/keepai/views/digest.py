"""The digest: what came in, what went out, what failed and what waits, of a span of time, per workflow. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..connectors.visible import visible
from ..ledger import versions
from ..ledger.base import Reader, Row
from ..model.clock import iso
from ..model.codec import Json, stored
from ..model.records import Escalation, Record
from .answers import heading

LINES_MAX = 5  #: of each kind that are named, the newest; all are counted
LINE_MAX = 160


@dataclass(frozen=True)
class Entry(Record):
    """What happened so often, and the newest of it."""

    count: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Day(Record):
    """What one workflow did."""

    workflow_id: str
    workflow: str
    came_in: Entry
    went_out: Entry
    failed: Entry  # side effects that did not happen, and runs that failed, each time
    skipped: Entry
    waits: Entry  # questions to a person, as they are now

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened and nothing waits."""
        return not any(each.count for each in self.entries().values())

    def entries(self) -> dict[str, Entry]:
        """Each by what it is called."""
        return {"came in": self.came_in, "went out": self.went_out, "failed": self.failed, "skipped": self.skipped,
                "waits for you": self.waits}


@dataclass(frozen=True)
class Digest(Record):
    """What every workflow did in [since, until)."""

    since_at: int
    until_at: int
    workflows: tuple[Day, ...]

    @property
    def title(self) -> str:
        """All of it in one line."""
        totals = {name: sum(day.entries()[name].count for day in self.workflows)
                  for name in ("came in", "went out", "failed", "waits for you")}
        shown = [f"{count:,} {name}" for name, count in totals.items() if count]
        return f"Keep: {', '.join(shown) or 'nothing happened'}"

    def lines(self) -> Iterator[str]:
        """The same for people."""
        yield f"{iso(self.since_at)} to {iso(self.until_at)}"
        for day in self.workflows:
            if not day.is_quiet:
                yield from ("", _line(day.workflow))
                yield from _told(day)
        quiet = sum(day.is_quiet for day in self.workflows)
        if quiet:
            yield from ("", f"Nothing happened in {quiet:,} of {len(self.workflows):,} workflows.")


def digest(read: Reader, questions: Sequence[Escalation], since_ms: int, until_ms: int) -> Digest:
    """What happened in a span of time; `questions` are those that are open."""
    span = {"first": _first(read, since_ms), "since": since_ms, "until": until_ms}
    counts = {(str(r["workflow_id"]), str(r["machine"]), str(r["target"])): int(r["number"])
              for r in read.all("digest_counts", **span)}
    return Digest(since_ms, until_ms, tuple(
        _Counted(read, row, counts, span).day([each for each in questions if each.workflow_id == row["id"]])
        for row in read.all("workflow_all")))


class _Counted:
    """One workflow in a span of time."""

    def __init__(
        self, read: Reader, workflow: Row, counts: dict[tuple[str, str, str], int], span: dict[str, int],
    ) -> None:
        self._read, self._workflow, self._counts, self._span = read, workflow, counts, span

    def day(self, questions: Sequence[Escalation]) -> Day:
        return Day(
            workflow_id=self._workflow["id"], workflow=self._workflow["name"],
            came_in=self._entry("digest_inputs", "input", "active"), went_out=self._mutations("applied"),
            failed=_both(self._mutations("failed"), self._entry("digest_runs", "status", "failed")),
            skipped=self._mutations("skipped"),
            waits=Entry(len(questions), tuple(_line(f"{heading(q)} {q.title}") for q in questions[:LINES_MAX])),
        )

    def _mutations(self, target: str) -> Entry:
        return self._entry("digest_mutations", "mutation", target, target=target)

    def _entry(self, statement: str, machine: str, state: str, **more: str) -> Entry:
        number = self._counts.get((self._workflow["id"], machine, state), 0)
        if not number:
            return Entry(0, ())
        rows = self._read.all(statement, workflow_id=self._workflow["id"], limit=LINES_MAX, **self._span, **more)
        return Entry(number, tuple(_line(_text(row)) for row in rows))


def _both(one: Entry, other: Entry) -> Entry:
    return Entry(one.count + other.count, (*one.lines, *other.lines)[:LINES_MAX])


def _text(row: Row) -> str:
    if "line" in row:
        return str(row["line"])
    error: Json = stored(row["error"]) if row["error"] else None
    told = error.get("message") if isinstance(error, dict) else None
    return f"{row['handler']}: {told or 'failed'}"


def _told(day: Day) -> Iterator[str]:
    for name, entry in day.entries().items():
        if entry.count:
            yield f"  {entry.count:,} {name}"
            yield from (f"    {each}" for each in entry.lines)
            if entry.count > len(entry.lines):
                yield f"    … and {entry.count - len(entry.lines):,} more"


def _first(read: Reader, since_ms: int) -> int:
    """The first row of the account that may be so new: by halves, for there may be millions."""
    low, high = 1, versions.newest(read) + 1
    while low < high:
        middle = (low + high) // 2
        row = read.one("digest_at", seq=middle)
        if row is not None and int(row["at"]) < since_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _line(text: str) -> str:
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= LINE_MAX else shown[: LINE_MAX - 1] + "…"
