"""The account of what came in and what went out, as records. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ..engine.scheduler import next_due_at
from ..ledger import shown_version
from ..ledger.account import of_subject
from ..ledger.base import Reader, Row
from ..ledger.rows import item_record, mutation_record, proposal_record, run_record
from ..model.codec import Json, stored
from ..model.errors import NotFound, Refused
from ..model.policy import Policy
from ..model.records import (
    Escalation,
    Event,
    Gap,
    Input,
    Item,
    Kept,
    Mutation,
    Output,
    Proposal,
    Rows,
    Run,
    Traced,
    Workflow,
)
from ..model.states import Waiting, WorkflowStatus
from .blast import Blast, Moment, blast
from .contradictions import contradictions
from .explain import Explainer, Explanation
from .inputs_and_events import event_record, held_record, input_record, kept_row, left_by_consumers
from .left_items import left_behind
from .offered_acts import subject
from .parked_runs import parked_runs
from .proposal_card import waiting_proposals
from .questions import Questions
from .unknown_outcome import HostFacts

#: A list has at most this many entries.
ROWS_MAX = 100_000
_SEARCHED = 1_000  #: entries that are read at a time where a text is looked for

#: How inputs and events can be asked for.
INPUT_STATUSES = ("pending", "done", "late", "skipped")
EVENT_STATUSES = ("pending", "reserved", "consumed", "skipped")

#: The beginning of an id → the statement that finds the thing, and its parameter.
_BY_ID = {
    "inp_": ("input_by_id", "input_id"), "mut_": ("mutation_by_id", "mutation_id"), "itm_": ("item_by_id", "item_id"),
    "evt_": ("event_by_id", "event_id"), "run_": ("run_by_id", "run_id"),
}

#: A line that a run left: its place, the handler, and what it is.
Logged = tuple[tuple[int, int], str, Traced]


class Views:
    """Looks at one ledger."""

    def __init__(self, read: Reader, policy: Policy, host: HostFacts | None = None) -> None:
        self._read, self._stale_ms, self._bytes_max = read, int(policy.stale_s * 1000), policy.workflow_bytes_max
        self._questions = Questions(read, policy, host)

    def workflow_row(self, name_or_id: str) -> Row:
        """A workflow by its id or its name."""
        row = self._read.one("workflow_by_id", workflow_id=name_or_id) or self._read.one(
            "workflow_by_name", name=name_or_id)
        if row is None:
            raise NotFound(f"There is no workflow {name_or_id!r}. `keep status` lists them.")
        return row

    def workflows(self, now_ms: int) -> list[Workflow]:
        """Every workflow and how it stands."""
        return [self._workflow(row, now_ms) for row in self._read.all("workflow_all")]

    def workflow(self, name_or_id: str, now_ms: int) -> Workflow:
        """One workflow and how it stands."""
        return self._workflow(self.workflow_row(name_or_id), now_ms)

    def inputs(
        self, workflow: str, status: str | None = None, search: str | None = None, limit: int | None = None,
        after: str | None = None,
    ) -> Rows[Input]:
        """What came in, oldest first."""
        _check_status("inputs", status, INPUT_STATUSES)
        sought = None if search is None else search.casefold()
        found = None if sought is None else lambda row: any(
            sought in str(row[name]).casefold() for name in ("title", "external_id", "id"))
        page = self._page("page_inputs", "inp_", workflow, limit, after, found, status=status)
        return Rows(map(input_record, page), page.cursor)

    def input(self, input_id: str) -> Input:
        """One input with everything that came of it."""
        row = self._read.one("look_input", input_id=input_id)
        if row is None:
            raise NotFound(f"There is no input {input_id}. `keep inputs WORKFLOW` lists them.")
        where = {"workflow_id": row["workflow_id"], "input_id": input_id}
        outputs = tuple(mutation_record(r) for r in self._read.all("look_mutations_of_input", **where))
        events = tuple(event_record(r) for r in self._read.all("look_events_of_input", **where))
        held = tuple(held_record(r) for r in self._read.all("look_held_of_input", **where))
        return input_record(row, outputs, events, held)

    def outputs(self, workflow: str, limit: int | None = None, after: str | None = None) -> Rows[Output]:
        """What went out, each with the inputs behind it."""
        page = self.mutations(workflow, limit, after)
        return Rows(self.with_inputs(page), page.cursor)

    def with_inputs(self, mutations: Iterable[Mutation]) -> Iterator[Output]:
        """Mutations, each with the inputs behind it."""
        known: dict[str, Input] = {}
        return (Output(each, tuple(self._inputs_of(each, known))) for each in mutations)

    def _inputs_of(self, mutation: Mutation, known: dict[str, Input]) -> list[Input]:
        found = []
        for row in self._read.all("look_inputs_of_mutation", mutation_id=mutation.id):
            input_id = str(row["input_id"])
            if input_id not in known:
                known[input_id] = input_record(kept_row(self._read, "look_input", input_id=input_id))
            found.append(known[input_id])
        return found

    def mutations(self, workflow: str, limit: int | None = None, after: str | None = None) -> Rows[Mutation]:
        """Every side effect, oldest first."""
        page = self._page("page_mutations", "mut_", workflow, limit, after)
        return Rows(map(mutation_record, page), page.cursor)

    def items(
        self, workflow: str, limit: int | None = None, after: str | None = None, status: str | None = None,
    ) -> Rows[Item]:
        """The units of the routines' work, oldest first."""
        page = self._page("page_items", "itm_", workflow, limit, after, status=status)
        return Rows(map(item_record, page), page.cursor)

    def item(self, item_id: str) -> Item:
        """One item."""
        row = self._read.one("item_by_id", item_id=item_id)
        if row is None:
            raise NotFound(f"There is no item {item_id}. `keep items WORKFLOW` lists them.")
        return item_record(row)

    def events(
        self, workflow: str, topic: str | None = None, status: str | None = None, limit: int | None = None,
        after: str | None = None,
    ) -> Rows[Event]:
        """Events, in the order in which they came; those that are reserved are pending too."""
        _check_status("events", status, EVENT_STATUSES)
        page = self._page("page_events", "evt_", workflow, limit, after, topic=topic, status=status)
        return Rows(map(event_record, page), page.cursor)

    def event(self, event_id: str) -> Event:
        """One event, with the payloads that came too late for it."""
        row = self._read.one("look_event", event_id=event_id)
        if row is None:
            raise NotFound(f"There is no event {event_id}.")
        where = {"workflow_id": row["workflow_id"], "event_id": event_id, "revision": row["revision"]}
        return event_record(row, tuple(held_record(r) for r in self._read.all("look_held_of_event", **where)))

    def mutation(self, mutation_id: str) -> Mutation:
        """One side effect."""
        row = self._read.one("mutation_by_id", mutation_id=mutation_id)
        if row is None:
            raise NotFound(f"There is no mutation {mutation_id}.")
        return mutation_record(row)

    def runs(self, workflow: str, limit: int | None = None, after: str | None = None) -> Rows[Run]:
        """Every attempt at every handler, oldest first."""
        page = self._page("page_runs", "run_", workflow, limit, after)
        return Rows(map(run_record, page), page.cursor)

    def newest_runs(self, workflow: str, last: int) -> list[Run]:
        """The newest runs, oldest first."""
        rows = self._read.all("look_runs", workflow_id=self.workflow_row(workflow)["id"], limit=last)
        return [run_record(row) for row in reversed(rows)]

    def _page(
        self, statement: str, kind: str, workflow: str, limit: int | None, after: str | None,
        wanted: Callable[[Row], bool] | None = None, **params: object,
    ) -> Rows[Row]:
        """As many rows as are asked for, after one; with a cursor if there are more."""
        workflow_id, most = self.workflow_row(workflow)["id"], ROWS_MAX if limit is None else limit
        if type(most) is not int or most < 1:
            raise Refused(f"limit must be a whole number above zero, not {limit!r}.")
        place, found, more = self._place(kind, workflow_id, after), list[Row](), True
        while more and len(found) <= most:
            number = most + 1 if wanted is None else _SEARCHED
            rows = self._read.all(statement, workflow_id=workflow_id, after=place, limit=number, **params)
            found += rows if wanted is None else filter(wanted, rows)
            more, place = len(rows) == number, rows[-1]["seq"] if rows else place
        return Rows(found[:most], str(found[most - 1]["id"]) if len(found) > most else None)

    def _place(self, kind: str, workflow_id: str, after: str | None) -> int:
        if after is None:
            return 0
        statement, parameter = _BY_ID[kind]
        row = self._read.one(statement, **{parameter: after}) if after.startswith(kind) else None
        if row is None or row["workflow_id"] != workflow_id:
            raise NotFound(f"This list cannot go on after {after!r}: nothing in it has that id.")
        return int(row["seq"])

    def run(self, run_id: str) -> Run:
        """One run."""
        row = self._read.one("run_by_id", run_id=run_id)
        if row is None:
            raise NotFound(f"There is no run {run_id}. `keep runs WORKFLOW` lists them.")
        return run_record(row)

    def trace(self, run_id: str) -> list[Traced]:
        """What a run did, line by line."""
        rows = self._read.all("look_trace", workflow_id=self.run(run_id).workflow_id, run_id=run_id)
        return [_traced(row) for row in rows]

    def logs(self, workflow: str, after: tuple[int, int] = (0, 0)) -> list[Logged]:
        """What a workflow's runs did, after a place; at most `ROWS_MAX` lines, the oldest."""
        rows = self._read.all(
            "look_logs", workflow_id=self.workflow_row(workflow)["id"], seq=after[0], position=after[1], limit=ROWS_MAX,
        )
        return [_logged(row) for row in rows]

    def newest_logs(self, workflow: str, last: int) -> list[Logged]:
        """The newest lines of that, oldest first."""
        rows = self._read.all("look_logs_last", workflow_id=self.workflow_row(workflow)["id"], limit=last)
        return [_logged(row) for row in reversed(rows)]

    def history(self, workflow_id: str, subject: str) -> list[Row]:
        """What the account says of a run, event, mutation, input or workflow, but the acts of people."""
        return of_subject(self._read, workflow_id, subject)

    def needs_you(self, now_ms: int, workflow: str | None = None) -> list[Escalation]:
        """Every question that only a person can answer, the oldest first."""
        as_of = self.version()  # read before the facts: they are at least as new
        wanted = self.workflow_row(workflow)["id"] if workflow else None
        runs = [run_record(row) for row in self._read.all("run_open_all")]
        asked = [(run.updated_at, self._questions.of(run, now_ms)) for run in runs if wanted in (None, run.workflow_id)]
        asked += contradictions(self._read, wanted)
        asked += waiting_proposals(self._read, now_ms, wanted)
        found = [question for _, question in sorted(asked, key=lambda each: each[0]) if question is not None]
        return [self._versioned(each, as_of) for each in (*found, *left_behind(self._read, wanted))]

    def proposals(self, name: str | None = None, limit: int | None = None) -> list[Proposal]:
        """What was proposed, for a workflow (by its name) or for all, the newest first."""
        rows = self._read.all("proposal_newest", name=name, limit=ROWS_MAX if limit is None else limit)
        return [proposal_record(row) for row in rows]

    def proposal(self, proposal_id: str) -> Proposal:
        """One proposal."""
        row = self._read.one("proposal_by_id", proposal_id=proposal_id)
        if row is None:
            raise NotFound(f"There is no proposal {proposal_id}. `keep proposals` lists them.")
        return proposal_record(row)

    def version(self) -> int:
        """The version of everything that is read from now on."""
        return shown_version.newest(self._read)

    def _versioned(self, question: Escalation, as_of: int) -> Escalation:
        shown = [about(question), *(subject(question, act) for act in question.actions)]
        ids = [each for id in shown for each in shown_version.things(self._read, id)]
        return replace(question, version=min(as_of, shown_version.version(self._read, question.workflow_id, ids)))

    def question(self, run_id: str, now_ms: int) -> Escalation | None:
        """The question that a run puts; None while it may still go on by itself, or has ended."""
        return self._questions.of(self.run(run_id), now_ms)

    def explain(self, id: str, now_ms: int) -> Explanation:
        """Why a run, input, event, mutation, approval or workflow is in its state, and what can move it on."""
        return Explainer(self._read, self._questions, now_ms).explain(id)

    def blast(
        self, workflow: str, version: str | None = None, since: Moment | None = None, until: Moment | None = None,
    ) -> Blast:
        """What runs of a version, or of a span of time, have touched."""
        return blast(self._read, self.workflow_row(workflow), version, since, until)

    def state(self, workflow: str, handler: str) -> Json:
        """The durable state of a handler; None before it has any."""
        row = self._read.one("handler_get", workflow_id=self.workflow_row(workflow)["id"], handler=handler)
        if row is None:
            raise NotFound(f"The workflow {workflow!r} has no handler {handler!r}.")
        return stored(row["state"]) if row["state"] is not None else None

    def _workflow(self, row: Row, now_ms: int) -> Workflow:
        workflow_id = row["id"]
        open_row = self._read.one("run_open", workflow_id=workflow_id)
        run = run_record(open_row) if open_row else None
        blocked = run if run and run.status != "active" else None
        parked = self._read.all("parked_runs", workflow_id=workflow_id) if row["parked"] else []
        of_open = sum(each.bytes for each in (*([run] if run else []), *map(run_record, parked)))
        handlers = self._read.all("handler_due", workflow_id=workflow_id)
        pending = self._read.one("look_pending", workflow_id=workflow_id, old=now_ms - self._stale_ms)
        assert pending is not None
        return Workflow(
            id=workflow_id, name=row["name"], status=WorkflowStatus(row["status"]),
            version=f"{row['major']}.{row['minor']}", blocked_by=blocked.id if blocked else None,
            blocked_status=blocked.status if blocked else None, pending=pending["pending"], stale=pending["stale"],
            gaps=(*(Gap(h["handler"], h["gap_since_at"], h["gap_until_at"])
                    for h in handlers if h["gap_since_at"] is not None), *left_by_consumers(self._read, handlers)),
            next_due_at=next_due_at(handlers, run) if row["status"] == WorkflowStatus.ACTIVE else None,
            created_at=row["created_at"], waiting=Waiting(row["waiting"]),
            parked=parked_runs(self._read, workflow_id) if row["parked"] else (),
            bytes=Kept(
                row["event_bytes"], row["run_bytes"] + of_open, row["input_bytes"], self._bytes_max,
            ),
        )


def about(question: Escalation) -> str:
    """The id of what a question is about."""
    named = question.id.removeprefix("ask_")
    return named if named.startswith(("mut_", "itm_", "apr_", "fix_", "prp_")) else question.run_id


def _check_status(what: str, status: str | None, known: tuple[str, ...]) -> None:
    if status is not None and status not in known:
        raise Refused(f"{what}: there is no status {status!r}. There are: {', '.join(known)}.")


def _logged(row: Row) -> Logged:
    return (row["run_seq"], row["position"]), row["handler"], _traced(row)


def _traced(row: Row) -> Traced:
    return Traced(
        row["run_id"], row["position"], row["step"], row["kind"], row["name"], row["args"], row["answer"],
        row["error"], row["duration_ms"], row["at"],
    )
