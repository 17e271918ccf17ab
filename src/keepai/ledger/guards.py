"""What the database itself refuses: the rules of model/states.py, and that what happened stays as it is.

Each store writes these guards as its own triggers when a ledger is opened (sqlite/triggers.py, postgres/triggers.py),
so the ledger and the code cannot disagree. They keep committed runs, reservations and applied mutations as they are but
for what retention empties, and forbid deleting. They write nothing: the verbs tell the account what moved, and `keep db
check` compares the account with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..model.states import MACHINES, Machine

#: machine → (table, column)
BINDINGS: Mapping[str, tuple[str, str]] = {
    "phase": ("run", "phase"), "status": ("run", "status"), "mutation": ("mutation", "status"),
    "event": ("event", "status"), "input": ("input", "status"), "item": ("item", "status"),
    "repair": ("repair", "status"), "approval": ("approval", "status"), "workflow": ("workflow", "status"),
    "proposal": ("proposal", "status"),
}

NEVER_DELETED = ("workflow", "script", "input", "event", "event_cause", "run", "reservation", "item", "item_run",
                 "mutation", "approval", "repair", "proposal", "account", "account_subject", "action", "put_back")
NEVER_CHANGED = ("account", "account_subject", "action", "script", "put_back")


@dataclass(frozen=True)
class RowGuard:
    """A change of one row that is refused before it is made."""

    name: str
    act: str  # "insert", "update", "update of <columns>" or "delete"
    table: str
    why: str  # what whoever tried it is told
    when: str | None = None  # a condition on the rows `old` and `new`, as every database reads it; None: always


def guards() -> Iterator[RowGuard]:
    """Every guard."""
    for name, (table, column) in BINDINGS.items():
        yield from moves(MACHINES[name], table, column)
    yield from _frozen()


def moves(machine: Machine, table: str, column: str) -> Iterator[RowGuard]:
    """Refuse a first state or a move that the machine does not list."""
    # Comparisons, not lists: for each list SQLite would fill a table of its own at every execution.
    first = " or ".join(f"new.{column} = '{s}'" for s in sorted(machine.initial))
    reached = {source: {*targets, *(to for at, to in machine.at_once if at == source)} for source, targets in
               machine.moves.items()}
    allowed = " or ".join(_move(column, source, sorted(targets)) for source, targets in reached.items() if targets)
    yield RowGuard(
        f"{table}_{column}_first", "insert", table, f"illegal first state of {machine.name}", f"not ({first})",
    )
    yield RowGuard(
        f"{table}_{column}_moves", f"update of {column}", table, f"illegal move of {machine.name}",
        f"old.{column} <> new.{column} and not ({allowed})",
    )


def _move(column: str, source: str, targets: Iterable[str]) -> str:
    reached = " or ".join(f"new.{column} = '{target}'" for target in targets)
    return f"(old.{column} = '{source}' and ({reached}))"


#: Table → all its columns but the one whose content retention may throw away.
_REST = {
    "run": ("workflow_id", "seq", "id", "handler", "kind", "major", "minor", "trigger", "retry_of", "lineage",
            "attempt", "phase", "status", "reason", "prepared_at", "outcome", "error", "retry_at", "failures",
            "exhausted", "observed", "host", "epoch", "created_at", "updated_at", "due_at", "bytes", "parked",
            "item_id"),
    "reservation": ("workflow_id", "run_id", "position", "event_id", "topic", "message_id", "attempt",
                    "revision"),
}


def _rest_stays(table: str) -> str:
    old, new = (", ".join(f"{row}.{name}" for name in _REST[table]) for row in ("old", "new"))
    return f"({old}) is not distinct from ({new})"


def _only_pruned(table: str, column: str) -> str:
    """Whether an update empties one column and leaves the others as they are."""
    return f"new.{column} is not distinct from '' and {_rest_stays(table)}"


def _frozen() -> Iterator[RowGuard]:
    for table in NEVER_DELETED:
        yield RowGuard(f"{table}_stays", "delete", table, f"{table} is never deleted")
    for table in NEVER_CHANGED:
        yield RowGuard(f"{table}_final", "update", table, f"{table} is never changed")
    yield RowGuard(
        "run_committed_final", "update", "run", "a committed run never changes",
        f"old.status = 'committed' and not ({_only_pruned('run', 'prepare_result')})",
    )
    ended = "exists (select 1 from event e where e.id = old.event_id and e.status <> 'pending')"
    as_it_is = "new.payload is not distinct from (select e.payload from event e where e.id = old.event_id)"
    kept = f"old.payload is null and {_rest_stays('reservation')} and {as_it_is}"
    yield RowGuard(
        "reservation_final", "update", "reservation", "reservation is never changed",
        f"not (({_only_pruned('reservation', 'payload')} and {ended}) or ({kept}))",
    )
    yield RowGuard(
        "event_pinned_final", "update of payload, revision", "event", "what a run has pinned never changes",
        "((old.payload <> new.payload and new.payload <> '') or old.revision <> new.revision) "
        "and exists (select 1 from reservation v where v.workflow_id = old.workflow_id and v.event_id = old.id "
        "and v.payload is null)",
    )
    yield RowGuard(
        "mutation_params_final", "update of params, mutation_key, idempotency_key, connector, operation, target, "
        "identity, payload, subkey, run_id, lineage, item_id, first_sent_at", "mutation",
        "what was sent never changes",
    )
    yield RowGuard(
        "approval_call_final", "update of run_id, capability, account, intent, digest", "approval",
        "what was shown for approval never changes",
    )
    yield RowGuard(
        "proposal_text_final", "update of workflow_id, name, proposer, source, cases, wanted, why, work", "proposal",
        "what was proposed never changes",
    )
    yield RowGuard(
        "proposal_ended_final", "update", "proposal", "a proposal that was decided never changes",
        "old.status <> 'waiting'",
    )
    # A unique index of what is applied would be a second one over the same keys, written by every run.
    yield RowGuard(
        "mutation_applied_once", "update of status", "mutation", "the same thing was applied before",
        "new.status = 'applied' and exists (select 1 from mutation m where "
        "m.mutation_key = new.mutation_key and m.workflow_id = new.workflow_id and m.status = 'applied' "
        "and m.id <> new.id)",
    )
    yield RowGuard(
        "mutation_applied_final", "update of status, result", "mutation", "an applied mutation never changes",
        "old.status = 'applied'",
    )
