"""One workflow in full: its graph with what waits in it, when each handler runs, its versions, what it may do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..connectors.base import Connector
from ..engine.certificate import CertificateStanding, standing
from ..engine.scheduler import next_due_at
from ..ledger.base import Reader, Row
from ..model.permissions import INPUTS, Grant, from_text
from ..model.records import ParkedRun, Record
from ..model.states import shown
from ..script.duration import UNITS_MS
from ..script.manifest import Handler, Manifest
from ..script.topic_graph import Graph, Vertex
from .wording import STANDS, run_stands

#: How many of the newest runs are searched for the last one of each consumer.
_RUNS_LOOKED_AT = 10_000


@dataclass(frozen=True)
class VersionInfo(Record):
    """One version of a script, without its text."""

    version: str
    active: bool
    author: str
    by: str | None  # who deployed it
    impact: str
    hash: str
    activated_at: int
    certificate: CertificateStanding


@dataclass(frozen=True)
class Permission(Record):
    """One capability: whether the active version uses it, and what a person decided about it."""

    capability: str
    used: bool
    rule: Grant | None  # None: nobody has decided, which refuses it
    by: str | None
    at: int | None

    @property
    def mode(self) -> str:
        """One word for it."""
        return self.rule.mode.value if self.rule else "not granted"

    @property
    def limits(self) -> str:
        """What narrows the rule, in words."""
        return ", ".join(self.rule.limits) if self.rule else ""

    @property
    def matches(self) -> tuple[str, ...]:
        """The patterns of the rule, as people write them."""
        return tuple(f"{param}={pattern}" for param, pattern in self.rule.match.items()) if self.rule else ()

    def other_account(self, accounts: Mapping[str, str]) -> str | None:
        """Of a rule that does not count: the account that its connector has now. `accounts` are those of connectors."""
        now = accounts.get(self.capability.partition(".")[0])
        return now if self.rule and now is not None and now != self.rule.account else None

    @property
    def of_inputs(self) -> bool:
        """Whether it is about what may come in. Then there is no call that a person could be asked about."""
        return self.capability.startswith(f"{INPUTS}.")


@dataclass(frozen=True)
class HandlerTimes(Record):
    """One handler, and when it runs."""

    handler: Handler
    due_at: int | None  # by itself; None if only an event or a person can bring that about
    ran_at: int | None  # when it last began, as far as the newest runs tell
    queued: bool
    run: str | None  # its open run, and how that stands
    run_status: str | None


def waiting(read: Reader, workflow: Row) -> dict[str, int]:
    """How many events wait in each topic that somebody takes, or are in a run's hands."""
    return {str(r["topic"]): int(r["pending"]) for r in read.all("topic_stranded", workflow_id=workflow["id"])}


def graph_captions(
    made: Graph, waits: Mapping[str, int], run: Row | None = None, parked: Mapping[str, int] | None = None,
) -> dict[Vertex, str]:
    """The lines below the names in a picture of the graph: what waits in a topic; the open run of a handler, and how
    many of its runs are parked."""
    said = {v: f"{waits[v.name]:,} waiting" for v in made.vertices if v.kind == "topic" and waits.get(v.name)}
    if run is not None:
        word = f"running: {run['phase']}" if run["status"] == "active" else STANDS[shown(run["status"], run["reason"])]
        said |= {v: word for v in made.vertices if v.kind != "topic" and v.name == run["handler"]}
    for v in made.vertices:
        if v.kind != "topic" and (number := (parked or {}).get(v.name)):
            said[v] = ", ".join([*([said[v]] if v in said else []), f"{number:,} parked"])
    return said


def parked_of(read: Reader, workflow: Row) -> Counter[str]:
    """How many runs of each handler are parked."""
    rows = read.all("parked_runs", workflow_id=workflow["id"]) if workflow["parked"] else []
    return Counter(str(row["handler"]) for row in rows)


def graph_states(made: Graph, run: Row | None, parked: Sequence[ParkedRun] = ()) -> dict[Vertex, str]:
    """The handlers in a picture of the graph of which a run stands still: "failed" or "paused"."""
    stopped = [(each.handler, each.status) for each in parked]
    stopped += [(str(run["handler"]), str(run["status"]))] if run is not None and run["status"] != "active" else []
    states: dict[Vertex, str] = {}
    for v in (v for v in made.vertices if v.kind != "topic"):
        of_it = [status for handler, status in stopped if handler == v.name]
        if of_it:
            states[v] = "failed" if any(each.startswith("failed") for each in of_it) else "paused"
    return states


def graph_notes(made: Graph, parked: Sequence[ParkedRun]) -> dict[Vertex, str]:
    """What the parked runs of each handler wait for and hold, in words."""
    told: dict[str, list[str]] = {}
    for each in parked:
        holds = ", ".join(each.holds) or "nothing"
        told.setdefault(each.handler, []).append(f"{each.run_id} {run_stands(each.status)}, holds {holds}")
    return {v: "; ".join(told[v.name]) for v in made.vertices if v.kind != "topic" and v.name in told}


def handler_times(read: Reader, workflow: Row, manifest: Manifest) -> list[HandlerTimes]:
    """When each handler of the active version runs, in the order of its script."""
    rows = {str(r["handler"]): r for r in read.all("handler_due", workflow_id=workflow["id"])}
    run = read.one("run_open", workflow_id=workflow["id"])
    began = {str(r["handler"]): int(r["began_at"])
             for r in read.all("look_last_began", workflow_id=workflow["id"], runs=_RUNS_LOOKED_AT)}
    return [_timed(handler, rows[handler.name], run, began.get(handler.name)) for handler in manifest.handlers]


def _timed(handler: Handler, row: Row, run: Row | None, began_at: int | None) -> HandlerTimes:
    own = run if run is not None and run["handler"] == handler.name else None
    due = next_due_at([row], None)
    run_id, status = (own["id"], own["status"]) if own is not None else (None, None)
    return HandlerTimes(handler, due, row["ran_at"] or began_at, bool(row["queued"]), run_id, status)


def schedule_text(handler: Handler) -> str:
    """When a handler runs."""
    given = handler.schedule
    if given is None:
        return "when events wait" if handler.kind == "consumer" else "every so often"
    if given.interval_ms is not None:
        return f"every {_span(given.interval_ms)}"
    return f"{given.cron} {given.tz or 'UTC'}"


def _span(ms: int) -> str:
    told = ""
    for unit, size in UNITS_MS.items():
        number, ms = divmod(ms, size)
        told += f"{number}{unit}" if number else ""
    return told


def versions(
    read: Reader, workflow: Row, connectors: Mapping[str, Connector] | None = None,
) -> list[VersionInfo]:
    """Every version of the script, the newest first. Without `connectors`, certificates are not compared with them."""
    active = (workflow["major"], workflow["minor"])
    return [
        VersionInfo(f"{r['major']}.{r['minor']}", (r["major"], r["minor"]) == active, r["author"], r["actor"],
                r["impact"], r["hash"], r["activated_at"], standing(read, r["hash"], connectors))
        for r in read.all("look_versions", workflow_id=workflow["id"])
    ]


def permissions(read: Reader, workflow: Row, manifest: Manifest) -> list[Permission]:
    """What the workflow may do: everything that its script uses, and everything that somebody decided about."""
    rows = {str(r["capability"]): r for r in read.all("look_grants", workflow_id=workflow["id"])}
    names = sorted({*manifest.capabilities, *rows}, key=lambda name: (name not in manifest.capabilities, name))
    return [_permission(name, name in manifest.capabilities, rows.get(name)) for name in names]


def _permission(capability: str, used: bool, row: Row | None) -> Permission:
    if row is None:
        return Permission(capability, used, None, None, None)
    rule = from_text(row["rule"], row["account"], row["configured"])
    return Permission(capability, used, rule, "keep.toml" if rule.configured else row["actor"], row["updated_at"])
