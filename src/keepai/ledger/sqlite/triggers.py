"""The rules of model/states.py as SQLite triggers: the database refuses what the tables do not list.

They are derived when a file is opened, so the file and the code cannot disagree. They also keep committed runs,
reservations and applied mutations as they are but for what retention empties, and forbid deleting. They write nothing:
the verbs tell the account what moved, and `keep db check` compares the account with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...model.states import MACHINES, Machine

#: machine → (table, column)
BINDINGS: Mapping[str, tuple[str, str]] = {
    "phase": ("run", "phase"), "status": ("run", "status"), "mutation": ("mutation", "status"),
    "event": ("event", "status"), "input": ("input", "status"), "item": ("item", "status"),
    "repair": ("repair", "status"), "approval": ("approval", "status"), "workflow": ("workflow", "status"),
}

_NEVER_DELETED = ("workflow", "script", "input", "event", "event_cause", "run", "reservation", "item", "item_run",
                  "mutation", "approval", "repair", "account", "account_subject", "action", "put_back")
_NEVER_CHANGED = ("account", "account_subject", "action", "script", "put_back")


def statements() -> dict[str, str]:
    """Every derived trigger by its name."""
    found: dict[str, str] = {}
    for name, (table, column) in BINDINGS.items():
        found.update(moves(MACHINES[name], table, column))
    found.update(_frozen())
    return found


def moves(machine: Machine, table: str, column: str) -> Iterator[tuple[str, str]]:
    """Refuse a first state or a move that the machine does not list."""
    # Comparisons, not lists: for each list SQLite would fill a table of its own at every execution.
    first = " or ".join(f"new.{column} = '{s}'" for s in sorted(machine.initial))
    reached = {source: {*targets, *(to for at, to in machine.at_once if at == source)} for source, targets in
               machine.moves.items()}
    allowed = " or ".join(_move(column, source, sorted(targets)) for source, targets in reached.items() if targets)
    yield f"{table}_{column}_first", (
        f"before insert on {table} when not ({first}) "
        f"begin select raise(abort, 'illegal first state of {machine.name}'); end"
    )
    yield f"{table}_{column}_moves", (
        f"before update of {column} on {table} when old.{column} <> new.{column} "
        f"and not ({allowed}) "
        f"begin select raise(abort, 'illegal move of {machine.name}'); end"
    )


def _move(column: str, source: str, targets: Iterable[str]) -> str:
    reached = " or ".join(f"new.{column} = '{target}'" for target in targets)
    return f"(old.{column} = '{source}' and ({reached}))"


#: Table → all its columns but the one whose content retention may throw away.
_REST = {
    "run": ("workflow_id", "seq", "id", "handler", "kind", "major", "minor", "trigger", "retry_of", "lineage",
            "attempt", "phase", "status", "reason", "prepared_at", "outcome", "error", "retry_at", "failures",
            "exhausted", "observed", "host", "epoch", "created_at", "updated_at", "due_at", "bytes"),
    "reservation": ("workflow_id", "run_id", "position", "event_id", "topic", "message_id", "attempt",
                    "revision"),
}


def _only_pruned(table: str, column: str) -> str:
    """Whether an update empties one column and leaves the others as they are."""
    old, new = (", ".join(f"{row}.{name}" for name in _REST[table]) for row in ("old", "new"))
    return f"new.{column} is '' and ({old}) is ({new})"


def _frozen() -> Iterator[tuple[str, str]]:
    for table in _NEVER_DELETED:
        yield f"{table}_stays", f"before delete on {table} begin select raise(abort, '{table} is never deleted'); end"
    for table in _NEVER_CHANGED:
        yield f"{table}_final", f"before update on {table} begin select raise(abort, '{table} is never changed'); end"
    yield "run_committed_final", (
        f"before update on run when old.status = 'committed' and not ({_only_pruned('run', 'prepare_result')}) "
        "begin select raise(abort, 'a committed run never changes'); end"
    )
    ended = "exists (select 1 from event e where e.id = old.event_id and e.status <> 'pending')"
    old, new = (", ".join(f"{row}.{name}" for name in _REST["reservation"]) for row in ("old", "new"))
    as_it_is = "new.payload is (select e.payload from event e where e.id = old.event_id)"
    kept = f"old.payload is null and ({old}) is ({new}) and {as_it_is}"
    yield "reservation_final", (
        f"before update on reservation when not (({_only_pruned('reservation', 'payload')} and {ended}) or ({kept})) "
        "begin select raise(abort, 'reservation is never changed'); end"
    )
    yield "event_pinned_final", (
        "before update of payload, revision on event "
        "when ((old.payload <> new.payload and new.payload <> '') or old.revision <> new.revision) "
        "and exists (select 1 from reservation v where v.workflow_id = old.workflow_id and v.event_id = old.id "
        "and v.payload is null) begin select raise(abort, 'what a run has pinned never changes'); end"
    )
    yield "mutation_params_final", (
        "before update of params, mutation_key, idempotency_key, connector, operation, target, identity, payload, "
        "subkey, run_id, lineage, item_id, first_sent_at on mutation "
        "begin select raise(abort, 'what was sent never changes'); end"
    )
    yield "approval_call_final", (
        "before update of run_id, capability, account, intent, digest on approval "
        "begin select raise(abort, 'what was shown for approval never changes'); end"
    )
    # A unique index of what is applied would be a second one over the same keys, written by every run.
    yield "mutation_applied_once", (
        "before update of status on mutation when new.status = 'applied' and exists (select 1 from mutation m where "
        "m.mutation_key = new.mutation_key and m.workflow_id = new.workflow_id and m.status = 'applied' "
        "and m.id <> new.id) begin select raise(abort, 'the same thing was applied before'); end"
    )
    yield "mutation_applied_final", (
        "before update of status, result on mutation when old.status = 'applied' "
        "begin select raise(abort, 'an applied mutation never changes'); end"
    )
