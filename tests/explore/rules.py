"""What must hold in every state beyond tests/rules.py: of what only the exploration knows, and of its one event."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.explore.machine import UNIT_S, WF, Machine
from tests.rules import DOUBT, OPEN, Row, Rows, status_told


@dataclass
class Look:
    """The rows of one state."""

    workflow: Row
    grant: str
    rows: Rows
    runs: list[Row]
    mutations: list[Row]
    approvals: list[Row]
    event: Row
    handler: Row
    touched: int
    ended: dict[int, bool]
    at: str
    alive: bool
    live: frozenset[str]

    @property
    def open(self) -> Row | None:
        return next((r for r in reversed(self.runs) if r["status"] in OPEN), None)


def look(machine: Machine) -> Look:
    tx = machine.tx
    grant = str(tx.all("grant_all", workflow_id=WF)[0]["mode"])
    rows = Rows(machine.connection, ("out.send",) if grant == "ask" else ())
    return Look(
        workflow=tx.one("workflow_by_id", workflow_id=WF),  # type: ignore[arg-type]
        grant=grant, rows=rows, runs=rows.runs, mutations=rows.mutations, approvals=rows.approvals,
        event=rows.events[0],
        handler=tx.one("handler_get", workflow_id=WF, handler="act"),  # type: ignore[arg-type]
        touched=machine.connection.execute("select touched from topic").fetchone()[0],
        ended=dict(machine.connection.execute("select epoch, ended_at is not null from host")),
        at=machine.at, alive=machine.alive, live=machine.live,
    )


# -- the state as a small tuple ----------------------------------------------------------------------------


def canonical(machine: Machine, seen: Look) -> tuple[Any, ...]:
    """Everything that decides what can happen from here, and nothing else: no ids, no times, no history."""
    now = machine.clock.now_ms()
    run = seen.runs[-1] if seen.runs else None
    latest = seen.mutations[-1] if seen.mutations else None
    idle = seen.open is None
    return (
        seen.alive, seen.at, seen.workflow["status"], seen.workflow["minor"], seen.grant,
        (seen.event["status"], seen.event["reserved_by"] is not None),
        idle and (seen.handler["present"], seen.handler["progressed"], _left(seen.handler["recheck_at"], now),
                  seen.handler["observed"] is None or seen.touched > seen.handler["observed"]),
        _run(seen, run, now, machine.ledger.epoch), _mutation(machine, latest, run), len(seen.live),
        _approval(seen, now),
    )


def _run(seen: Look, run: Row | None, now: int, epoch: int) -> Any:
    if run is None:
        return None
    if run["status"] not in OPEN:
        return run["status"], status_told(run)
    error = json.loads(run["error"]) if run["error"] else {}
    crashes = sum(r["status"] == "crashed" and r["lineage"] == run["lineage"] for r in seen.runs)
    own = run["epoch"] == epoch or run["status"] != "active"
    return (
        run["phase"], run["status"], run["reason"], run["exhausted"], run["failures"], run["minor"],
        error.get("code"), bool(error.get("evidence")), _left(run["retry_at"], now), own,
        own or seen.ended.get(run["epoch"]), status_told(run), crashes,
    )


def _mutation(machine: Machine, latest: Row | None, run: Row | None) -> Any:
    """The newest one; what has an outcome needs less."""
    if latest is None or run is None:
        return None
    mine = (latest["run_id"] == run["id"], latest["lineage"] == run["lineage"], latest["id"] in machine.live)
    if latest["status"] not in DOUBT:
        return latest["status"], latest["resolution"] is None, latest["doubted_at"] is None, *mine
    known = machine.parts.call_ends
    ended = known.seen_ms.get(latest["id"], known.started_ms)
    settle = max(0, ended + UNIT_S * 1000 - machine.clock.steady_ms())
    asked = latest["reconcile_attempts"] if latest["status"] != "indeterminate" else 0
    closed = latest["closed_at"] is not None
    owned = closed or latest["epoch"] == machine.ledger.epoch
    return latest["status"], closed, owned, asked, settle, *mine


def _approval(seen: Look, now: int) -> Any:
    if not seen.approvals:
        return None
    latest = seen.approvals[-1]
    if latest["status"] not in ("pending", "approved"):
        return (latest["status"],)
    return latest["status"], _left(latest["expires_at"], now)


def _left(at: int | None, now: int) -> int | None:
    return None if at is None else max(0, -(-(at - now) // (UNIT_S * 1000)))


# -- the rules -------------------------------------------------------------------------------------------------


def i1(s: Look) -> str | None:
    """A call is under way only for a mutation that the ledger has in flight."""
    flying = [m["id"] for m in s.mutations if m["status"] == "in_flight"]
    return f"a call without its intent: {flying}" if s.at == "call" and len(flying) != 1 else None


def i5(s: Look) -> str | None:
    """A call that goes on is neither closed nor failed."""
    bad = [m["id"] for m in s.mutations if m["id"] in s.live and (m["closed_at"] or m["status"] == "failed")]
    return f"closed or failed while the call goes on: {bad}" if bad else None


def i6(s: Look) -> str | None:
    """In flight means: this very host has the call under way, or is dead."""
    flying = [m for m in s.mutations if m["status"] == "in_flight"]
    return "in flight, and nobody is calling" if flying and s.alive and s.at != "call" else None


def i15(s: Look) -> str | None:
    """The event ends only with a run: here nobody skips it otherwise."""
    committed = sum(r["status"] == "committed" for r in s.runs)
    ended = s.event["status"] != "pending"
    return None if committed == ended else f"the event is {s.event['status']} with {committed} committed runs"


def i16(s: Look) -> str | None:
    """What was told of a mutation is of this one event's."""
    committed = [r for r in s.runs if r["status"] == "committed"]
    told = committed and status_told(committed[-1])
    return "applied is told, and nothing was sent" if told == "applied" and not s.mutations else None


#: After those of tests/rules.py.
RULES: dict[str, Callable[[Look], str | None]] = {"I1": i1, "I5": i5, "I6": i6, "I15": i15, "I16": i16}
