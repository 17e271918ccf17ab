"""What must hold in every state, named after the invariants; each rule reads the ledger's rows as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keepai.engine.outcome import SKIPPED
from keepai.ledger import stored_ids
from keepai.model.states import MUTATION, PHASE, STATUS
from tests.explore.machine import UNIT_S, WF, Machine

Row = dict[str, Any]
OPEN = ("active", "paused", "failed")
DOUBT = ("in_flight", "needs_reconcile", "indeterminate")


@dataclass
class Look:
    """The rows of one state."""

    workflow: Row
    grant: str
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
    return Look(
        workflow=tx.one("workflow_by_id", workflow_id=WF),  # type: ignore[arg-type]
        grant=str(tx.all("grant_all", workflow_id=WF)[0]["mode"]),
        runs=_all(machine, "run"), mutations=_all(machine, "mutation"), approvals=_all(machine, "approval"),
        event=_all(machine, "event")[0],
        handler=tx.one("handler_get", workflow_id=WF, handler="act"),  # type: ignore[arg-type]
        touched=machine.connection.execute("select touched from topic").fetchone()[0],
        ended=dict(machine.connection.execute("select epoch, ended_at is not null from host")),
        at=machine.at, alive=machine.alive, live=machine.live,
    )


_MADE: dict[str, stored_ids.Rows] = {}


def _all(machine: Machine, table: str) -> list[Row]:
    made = _MADE.get(table)
    if made is None:
        described = machine.connection.execute(f"pragma table_info({table})")
        made = _MADE[table] = stored_ids.rows([str(column[1]) for column in described])
    return made(machine.connection.execute(f"select * from {table} order by seq").fetchall())


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
        return run["status"], _status(run["outcome"])
    error = json.loads(run["error"]) if run["error"] else {}
    crashes = sum(r["status"] == "crashed" and r["lineage"] == run["lineage"] for r in seen.runs)
    own = run["epoch"] == epoch or run["status"] != "active"
    return (
        run["phase"], run["status"], run["reason"], run["exhausted"], run["failures"], run["minor"],
        error.get("code"), bool(error.get("evidence")), _left(run["retry_at"], now), own,
        own or seen.ended.get(run["epoch"]), _status(run["outcome"]), crashes,
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


def _status(outcome: str | None) -> str | None:
    return json.loads(outcome)["status"] if outcome else None


# -- the rules -------------------------------------------------------------------------------------------------


def i1(s: Look) -> str | None:
    """A call is under way only for a mutation that the ledger has in flight, whole."""
    if s.at != "call":
        return None
    flying = [m for m in s.mutations if m["status"] == "in_flight"]
    whole = len(flying) == 1 and all(flying[0][k] for k in ("params", "idempotency_key", "sender", "deadline_at"))
    return None if whole else f"a call without its intent: {flying}"


def i3(s: Look) -> str | None:
    """Whatever is not the newest attempt has failed."""
    bad = [m["status"] for m in s.mutations[:-1] if m["status"] != "failed"]
    return f"sent again over {bad}" if bad else None


def i5(s: Look) -> str | None:
    """A call that goes on is neither closed nor failed."""
    bad = [m["id"] for m in s.mutations if m["id"] in s.live and (m["closed_at"] or m["status"] == "failed")]
    return f"closed or failed while the call goes on: {bad}" if bad else None


def i6(s: Look) -> str | None:
    """In flight means: this very host has the call under way, or is dead."""
    flying = [m for m in s.mutations if m["status"] == "in_flight"]
    return "in flight, and nobody is calling" if flying and s.alive and s.at != "call" else None


def i7(s: Look) -> str | None:
    """An applied mutation is the last, and `next` is given exactly its result."""
    done = [m for m in s.mutations if m["status"] == "applied"]
    if not done:
        return None
    if len(done) > 1:
        return "applied twice"
    if s.runs[-1]["outcome"] != f'{{"result":{done[0]["result"]},"status":"applied"}}':
        return f"the outcome is {s.runs[-1]['outcome']}, the result {done[0]['result']}"
    return None


def i9(s: Look) -> str | None:
    """One mutation per run, one open mutation per workflow, none without a reservation."""
    runs = [m["run_id"] for m in s.mutations]
    if len(set(runs)) < len(runs):
        return "two mutations of one run"
    if sum(m["status"] in DOUBT for m in s.mutations) > 1:
        return "two open mutations"
    return None


def i11(s: Look) -> str | None:
    """Back to an earlier phase only if every attempt before has failed; phases and states are known ones."""
    run = s.open
    if run is None:
        return None
    own = [m for m in s.mutations if m["lineage"] == run["lineage"]]
    early = run["phase"] in ("preparing", "prepared")
    if early and any(m["status"] != "failed" for m in own):
        return f"in {run['phase']} with {[m['status'] for m in own]}"
    if run["phase"] == "mutated" and not any(m["status"] == "applied" for m in own):
        return "mutated without a mutation"
    assert run["phase"] in PHASE.moves
    assert run["status"] in STATUS.moves
    assert all(m["status"] in MUTATION.moves for m in s.mutations)
    return None


def i14(s: Look) -> str | None:
    """An event is held by the one open run that pinned it, or by nobody."""
    run, holder = s.open, s.event["reserved_by"]
    if holder is not None and (run is None or holder != run["id"]):
        return "held by a run that is not open"
    if run is not None and run["phase"] != "preparing" and holder != run["id"]:
        return f"an open run in {run['phase']} does not hold its event"
    return None


def i15(s: Look) -> str | None:
    """An event ends only with its run, and one run at most ends it."""
    committed = [r for r in s.runs if r["status"] == "committed"]
    if len(committed) > 1:
        return "two runs committed with one event"
    if (s.event["status"] == "pending") == bool(committed):
        return f"the event is {s.event['status']} with {len(committed)} committed runs"
    return None


def i16(s: Look) -> str | None:
    """A committed run knows what became of its mutation, and its event ended accordingly."""
    committed = [r for r in s.runs if r["status"] == "committed"]
    if not committed:
        return None
    status = _status(committed[-1]["outcome"])
    last = s.mutations[-1]["status"] if s.mutations else None
    if last in DOUBT:
        return f"committed over {last}"
    wanted = {"applied": ("applied", "consumed"), "skipped": ("skipped", "skipped")}.get(str(last))
    wanted = wanted or (status if status != "applied" else None, "skipped" if status == "skipped" else "consumed")
    got = (status, s.event["status"])
    return None if got == wanted else f"the mutation is {last}, next was told {status}, the event is {got[1]}"


def i22(s: Look) -> str | None:
    """One open run."""
    return "two open runs" if sum(r["status"] in OPEN for r in s.runs) > 1 else None


def i29(s: Look) -> str | None:
    """Under `ask`, every send used up an approval of its own run with the same call."""
    if s.grant != "ask":
        return None
    for sent in s.mutations:
        used = [a for a in s.approvals if a["run_id"] == sent["run_id"] and a["status"] == "consumed"]
        if len(used) != 1:
            return f"a send with {len(used)} approvals"
        if json.loads(used[0]["intent"])["params"] != sent["params"]:
            return "what was sent is not what was shown"
    if sum(a["status"] in ("pending", "approved") for a in s.approvals) > 1:
        return "two open approvals"
    return None


def i32(s: Look) -> str | None:
    """What happened, or may have, is never skipped by accident."""
    run = s.runs[-1] if s.runs else None
    last = s.mutations[-1]["status"] if s.mutations else None
    skipped = run is not None and run["outcome"] == SKIPPED
    return f"skipped over {last}" if skipped and last in ("applied", *DOUBT) else None


def explained(s: Look) -> str | None:
    """Whatever waits says why."""
    run = s.open
    if run is None or run["status"] == "active":
        return None
    message = json.loads(run["error"])["message"] if run["error"] else ""
    return None if len(message) > 3 else "it waits and does not say why"


RULES: dict[str, Callable[[Look], str | None]] = {
    "I1": i1, "I3": i3, "I5": i5, "I6": i6, "I7": i7, "I9": i9, "I11": i11, "I14": i14, "I15": i15,
    "I16": i16, "I22": i22, "I29": i29, "I32": i32, "explained": explained,
}
