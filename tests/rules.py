"""What must hold of the rows of any ledger after any commit, whatever has led to it; named after the invariants.

The exploration asks in every state that it reaches, with the rules of tests/explore/rules.py for what only it can know;
the simulation asks at the end of a schedule, beside `keep db check`. A rule looks at the rows as they are, and never at
the code that wrote them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import cache, cached_property
from typing import Any

from keepai.engine.outcome import SKIPPED
from keepai.ledger import stored_ids
from keepai.model.states import MUTATION, PHASE, STATUS
from tests.ledger.stores import Raw, columns

Row = dict[str, Any]
OPEN = ("active", "paused", "failed")
DOUBT = ("in_flight", "needs_reconcile", "indeterminate")


class Rows:
    """The rows of one ledger at one moment, oldest first; each table is read when it is first asked for."""

    def __init__(self, connection: Raw, asked: Collection[str] = ()) -> None:
        self._connection = connection
        self.asked = asked  # the capabilities that a person has had to approve from the beginning

    def _all(self, table: str, order: str = "workflow_id, seq") -> list[Row]:
        found = self._connection.execute(f"select * from {table} order by {order}").fetchall()
        return _made(self._columns(table))(found) if found else []

    def _columns(self, table: str) -> tuple[str, ...]:
        """They are the same in every database."""
        return _COLUMNS.get(table) or _COLUMNS.setdefault(
            table, tuple(name for name, _, _ in columns(self._connection, table)))

    @cached_property
    def runs(self) -> list[Row]:
        return self._all("run")

    @cached_property
    def mutations(self) -> list[Row]:
        return self._all("mutation")

    @cached_property
    def approvals(self) -> list[Row]:
        return self._all("approval")

    @cached_property
    def events(self) -> list[Row]:
        return self._all("event")

    @cached_property
    def reservations(self) -> list[Row]:
        return self._all("reservation", "workflow_id, run_id, position")

    # -- what belongs together ---------------------------------------------------------------------------

    @cached_property
    def run(self) -> dict[str, Row]:
        return {run["id"]: run for run in self.runs}

    @cached_property
    def consumers(self) -> list[Row]:
        """Runs that make one call at most."""
        return [run for run in self.runs if run["kind"] == "consumer"]

    @cached_property
    def by_run(self) -> dict[str, list[Row]]:
        """The mutations of each run."""
        return _by(self.mutations, "run_id")

    @cached_property
    def by_lineage(self) -> dict[str, list[Row]]:
        """The mutations of each lineage."""
        return _by(self.mutations, "lineage")

    @cached_property
    def held(self) -> dict[str, list[Row]]:
        """The reservations of each run."""
        return _by(self.reservations, "run_id")

    @cached_property
    def takers(self) -> dict[tuple[str, int], list[Row]]:
        """The runs that reserved each attempt at an event."""
        found: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for each in self.reservations:
            found[each["event_id"], each["attempt"]].append(self.run[each["run_id"]])
        return found


_COLUMNS: dict[str, tuple[str, ...]] = {}


@cache
def _made(columns: tuple[str, ...]) -> stored_ids.Rows:
    return stored_ids.rows(tuple(columns))


def _by(rows: list[Row], column: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found


def status_told(run: Row) -> str | None:
    """What `next` of a run was told of its mutation."""
    return json.loads(run["outcome"])["status"] if run["outcome"] else None


# -- the rules -------------------------------------------------------------------------------------------------


def i1(rows: Rows) -> Iterator[str]:
    """What may have left is recorded whole."""
    for sent in rows.mutations:
        if sent["status"] == "in_flight" and not all(
                sent[column] for column in ("params", "idempotency_key", "sender", "deadline_at")):
            yield f"{sent['id']} is in flight, and not whole"


def i3(rows: Rows) -> Iterator[str]:
    """Of what was sent for an attempt at an event, whatever is not the newest has failed."""
    for (event_id, attempt), runs in rows.takers.items():
        sent = sorted((m for run in runs for m in rows.by_run.get(run["id"], ())), key=lambda m: m["seq"])
        if bad := [m["status"] for m in sent[:-1] if m["status"] != "failed"]:
            yield f"attempt {attempt} at {event_id} was sent again over {bad}"


def i7(rows: Rows) -> Iterator[str]:
    """An applied mutation is the only one of its lineage, and `next` is given exactly its result."""
    for run in _newest(rows):
        done = [m for m in rows.by_lineage.get(run["lineage"], ()) if m["status"] == "applied"]
        if len(done) > 1:
            yield f"{run['lineage']} was applied twice"
        elif done and run["outcome"] != f'{{"result":{done[0]["result"]},"status":"applied"}}':
            yield f"the outcome of {run['id']} is {run['outcome']}, the result {done[0]['result']}"


def _newest(rows: Rows) -> list[Row]:
    """The newest run of each consumer's lineage."""
    return list({run["lineage"]: run for run in rows.consumers}.values())


def i9(rows: Rows) -> Iterator[str]:
    """A consumer's run makes one mutation, a workflow has one that is open."""
    for run in rows.consumers:
        if len(rows.by_run.get(run["id"], ())) > 1:
            yield f"two mutations of {run['id']}"
    open_ones = (m["workflow_id"] for m in rows.mutations if m["status"] in DOUBT and not m["parked"])
    for workflow, count in Counter(open_ones).items():
        if count > 1:
            yield f"{count} open mutations of {workflow}"


def i11(rows: Rows) -> Iterator[str]:
    """Back to an earlier phase only if every attempt before has failed; phases and states are known ones."""
    for run in rows.runs:
        if run["phase"] not in PHASE.moves or run["status"] not in STATUS.moves:
            yield f"{run['id']} is {run['status']} in {run['phase']}"
        if run["status"] not in OPEN or run["kind"] != "consumer":
            continue
        own = [m["status"] for m in rows.by_lineage.get(run["lineage"], ())]
        if run["phase"] in ("preparing", "prepared") and any(status != "failed" for status in own):
            yield f"{run['id']} is in {run['phase']} with {own}"
        if run["phase"] == "mutated" and "applied" not in own:
            yield f"{run['id']} is mutated without a mutation"
    if unknown := [m["status"] for m in rows.mutations if m["status"] not in MUTATION.moves]:
        yield f"mutations are {unknown}"


def i14(rows: Rows) -> Iterator[str]:
    """An event is held by the one open run that pinned it, or by nobody."""
    holders = {event["reserved_by"] for event in rows.events} - {None}
    for holder in holders:
        if holder not in rows.run or rows.run[holder]["status"] not in OPEN:
            yield f"an event is held by {holder}, which is not open"
    for run in rows.consumers:
        if run["status"] in OPEN and run["phase"] != "preparing" and run["id"] not in holders:
            yield f"{run['id']} is open in {run['phase']} and holds no event"


def i15(rows: Rows) -> Iterator[str]:
    """An event ends only with its run, or by a person who skips it; one run at most ends it."""
    for event in rows.events:
        committed = sum(run["status"] == "committed" for run in rows.takers.get((event["id"], event["attempt"]), ()))
        most = 0 if event["status"] == "pending" else 1
        if committed > most or committed < (event["status"] == "consumed"):
            yield f"{event['id']} is {event['status']} with {committed} committed runs"


def i16(rows: Rows) -> Iterator[str]:
    """A committed run knows what became of its mutation, and its events ended accordingly."""
    events = {event["id"]: event for event in rows.events}
    for run in rows.consumers:
        if run["status"] != "committed":
            continue
        sent, told = rows.by_lineage.get(run["lineage"]), status_told(run)
        last = sent[-1]["status"] if sent else None
        if last in DOUBT:
            yield f"{run['id']} was committed over {last}"
        if last in ("applied", "skipped") and told != last:
            yield f"the mutation is {last}, and next of {run['id']} was told {told}"
        if last not in ("applied", "skipped") and told == "applied" and not _applied_before(rows, run):
            yield f"next of {run['id']} was told applied, and nothing was"
        ends = "skipped" if told == "skipped" else "consumed"
        for held in rows.held.get(run["id"], ()):
            event = events[held["event_id"]]
            if event["attempt"] == held["attempt"] and event["status"] != ends:
                yield f"next of {run['id']} was told {told}, and {event['id']} is {event['status']}"


def _applied_before(rows: Rows, run: Row) -> bool:
    """Whether what `next` was told is the result of another run's mutation, which the ledger had already."""
    results = [m["result"] for m in rows.mutations if m["status"] == "applied"]
    return any(run["outcome"] == f'{{"result":{result},"status":"applied"}}' for result in results)


def i22(rows: Rows) -> Iterator[str]:
    """A workflow has one open run that is not parked."""
    open_ones = (run["workflow_id"] for run in rows.runs if run["status"] in OPEN and not run["parked"])
    for workflow, count in Counter(open_ones).items():
        if count > 1:
            yield f"{count} open runs of {workflow}"


def i29(rows: Rows) -> Iterator[str]:
    """Where a person must say yes, every send used up an approval of its own run with the same call."""
    used: Counter[tuple[str, str, str]] = Counter(
        (a["run_id"], a["capability"], json.loads(a["intent"])["params"]) for a in rows.approvals
        if a["status"] == "consumed")
    sent = Counter((m["run_id"], f"{m['connector']}.{m['operation']}", m["params"]) for m in rows.mutations)
    for (run, capability, params), count in sent.items():
        if capability in rows.asked and used[run, capability, params] != count:
            yield f"{run} sent {capability} {count} times with {used[run, capability, params]} approvals of {params}"
    for run, count in Counter(a["run_id"] for a in rows.approvals if a["status"] in ("pending", "approved")).items():
        if count > 1:
            yield f"{count} open approvals of {run}"


def i32(rows: Rows) -> Iterator[str]:
    """What happened, or may have, is never skipped by accident."""
    for run in _newest(rows):
        sent = rows.by_lineage.get(run["lineage"])
        if run["outcome"] == SKIPPED and sent and sent[-1]["status"] in ("applied", *DOUBT):
            yield f"{run['id']} skipped over {sent[-1]['status']}"


def explained(rows: Rows) -> Iterator[str]:
    """Whatever waits says why."""
    for run in rows.runs:
        if run["status"] in OPEN and run["status"] != "active":
            message = json.loads(run["error"])["message"] if run["error"] else ""
            if len(message) <= 3:
                yield f"{run['id']} waits and does not say why"


RULES: dict[str, Callable[[Rows], Iterator[str]]] = {
    "I1": i1, "I3": i3, "I7": i7, "I9": i9, "I11": i11, "I14": i14, "I15": i15, "I16": i16, "I22": i22, "I29": i29,
    "I32": i32, "explained": explained,
}


def broken(rows: Rows) -> Iterator[tuple[str, str]]:
    """Each rule that does not hold, and of what."""
    return ((rule, what) for rule, holds in RULES.items() for what in holds(rows))
