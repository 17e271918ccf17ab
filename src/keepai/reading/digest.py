"""The digest: what came in, what went out, what failed and what waits, of a span of time, per workflow. Reads only."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..ledger import account, shown_version
from ..ledger.base import Reader, Row
from ..model.clock import iso
from ..model.codec import Json, stored
from ..model.records import Escalation, Record
from .inputs_and_events import kept_row
from .offered_acts import heading
from .wording import one_line

LINES_MAX = 5  #: of each kind that are named, the newest; all are counted
LINE_MAX = 160


@dataclass(frozen=True)
class DigestEntry(Record):
    """What happened so often, and the newest of it."""

    count: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class WorkflowDigest(Record):
    """What one workflow did."""

    workflow_id: str
    workflow: str
    came_in: DigestEntry
    went_out: DigestEntry
    failed: DigestEntry  # side effects that did not happen, and runs that failed, each time
    skipped: DigestEntry
    waits: DigestEntry  # questions to a person, as they are now

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened and nothing waits."""
        return not any(each.count for each in self.entries().values())

    def entries(self) -> dict[str, DigestEntry]:
        """Each by what it is called."""
        return {"came in": self.came_in, "went out": self.went_out, "failed": self.failed, "skipped": self.skipped,
                "waits for you": self.waits}


@dataclass(frozen=True)
class Digest(Record):
    """What every workflow did in [since, until)."""

    since_at: int
    until_at: int
    workflows: tuple[WorkflowDigest, ...]

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
                yield from ("", one_line(day.workflow, LINE_MAX))
                yield from _told(day)
        quiet = sum(day.is_quiet for day in self.workflows)
        if quiet:
            yield from ("", f"Nothing happened in {quiet:,} of {len(self.workflows):,} workflows.")


def digest(read: Reader, questions: Sequence[Escalation], since_ms: int, until_ms: int) -> Digest:
    """What happened in a span of time; `questions` are those that are open."""
    happened: dict[tuple[str, str, str], _Happened] = defaultdict(_Happened)
    for move in account.walk(read, _first(read, since_ms)):
        if since_ms <= move["at"] < until_ms and _counts(move):
            found = happened[move["workflow_id"], move["machine"], move["target"]]
            found.count += 1
            found.newest.appendleft(move["subject"])
    return Digest(since_ms, until_ms, tuple(
        _day(read, row, happened, [each for each in questions if each.workflow_id == row["id"]])
        for row in read.all("workflow_all")))


@dataclass
class _Happened:
    """How often something happened, and to what the last times."""

    count: int = 0
    newest: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_MAX))


def _counts(move: Row) -> bool:
    machine, target = move["machine"], move["target"]
    if machine == "input":
        return move["source"] is None
    return (machine == "mutation" and target in ("applied", "failed", "skipped")) or (
        machine == "status" and target == "failed")


def _day(
    read: Reader, workflow: Row, happened: Mapping[tuple[str, str, str], _Happened], questions: Sequence[Escalation],
) -> WorkflowDigest:
    def entry(machine: str, target: str, line: Callable[[str], str]) -> DigestEntry:
        found = happened.get((workflow["id"], machine, target))
        if found is None:
            return DigestEntry(0, ())
        return DigestEntry(found.count, tuple(one_line(line(each), LINE_MAX) for each in found.newest))

    def of_mutation(id: str) -> str:
        return str(kept_row(read, "mutation_by_id", mutation_id=id)["preview"])

    def of_run(id: str) -> str:
        run = kept_row(read, "run_by_id", run_id=id)
        error: Json = stored(run["error"]) if run["error"] else None
        told = error.get("message") if isinstance(error, dict) else None
        return f"{run['handler']}: {told or 'failed'}"

    waiting = tuple(one_line(f"{heading(q)} {q.title}", LINE_MAX) for q in questions[:LINES_MAX])
    sent, ran = entry("mutation", "failed", of_mutation), entry("status", "failed", of_run)
    return WorkflowDigest(
        workflow_id=workflow["id"], workflow=workflow["name"],
        came_in=entry("input", "active", lambda id: str(kept_row(read, "input_by_id", input_id=id)["title"])),
        went_out=entry("mutation", "applied", of_mutation),
        failed=DigestEntry(sent.count + ran.count, (*sent.lines, *ran.lines)[:LINES_MAX]),
        skipped=entry("mutation", "skipped", of_mutation),
        waits=DigestEntry(len(questions), waiting),
    )


def _told(day: WorkflowDigest) -> Iterator[str]:
    for name, entry in day.entries().items():
        if entry.count:
            yield f"  {entry.count:,} {name}"
            yield from (f"    {each}" for each in entry.lines)
            if entry.count > len(entry.lines):
                yield f"    … and {entry.count - len(entry.lines):,} more"


def _first(read: Reader, since_ms: int) -> int:
    """The first entry of the account from that moment on. A binary search, because there may be millions."""
    low, high = 1, shown_version.newest(read) + 1
    while low < high:
        middle = (low + high) // 2
        row = read.one("account_at", seq=middle)
        if row is not None and int(row["at"]) < since_ms:
            low = middle + 1
        else:
            high = middle
    return low
