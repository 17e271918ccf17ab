"""The rules of model/states.py as SQLite triggers: the database refuses what the tables do not list.

They are derived when a file is opened, so the file and the code cannot disagree. They also copy every
move into `transition`, keep committed runs and applied mutations as they are, and forbid deleting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...model.states import MACHINES, Machine

#: machine → (table, column, column that names the subject, column that names the workflow)
BINDINGS: Mapping[str, tuple[str, str, str, str]] = {
    "phase": ("run", "phase", "id", "workflow_id"),
    "status": ("run", "status", "id", "workflow_id"),
    "mutation": ("mutation", "status", "id", "workflow_id"),
    "event": ("event", "status", "id", "workflow_id"),
    "input": ("input", "status", "id", "workflow_id"),
    "item": ("item", "status", "id", "workflow_id"),
    "repair": ("repair", "status", "id", "workflow_id"),
    "approval": ("approval", "status", "id", "workflow_id"),
    "workflow": ("workflow", "status", "id", "id"),
}

_NEVER_DELETED = ("workflow", "script", "input", "event", "event_cause", "run", "reservation", "item", "item_run",
                  "mutation", "approval", "repair", "transition", "action")
_NEVER_CHANGED = ("transition", "action", "reservation", "script")


def statements() -> dict[str, str]:
    """Every derived trigger by its name."""
    found: dict[str, str] = {}
    for name, (table, column, subject, workflow) in BINDINGS.items():
        found.update(moves(MACHINES[name], table, column))
        found.update(_history(name, table, column, subject, workflow))
    found.update(_frozen())
    return found


def moves(machine: Machine, table: str, column: str) -> Iterator[tuple[str, str]]:
    """Refuse a first state or a move that the machine does not list."""
    first = ", ".join(f"'{s}'" for s in sorted(machine.initial))
    allowed = ", ".join(f"('{s}', '{t}')" for s, targets in machine.moves.items() for t in targets)
    yield f"{table}_{column}_first", (
        f"before insert on {table} when new.{column} not in ({first}) "
        f"begin select raise(abort, 'illegal first state of {machine.name}'); end"
    )
    yield f"{table}_{column}_moves", (
        f"before update of {column} on {table} when old.{column} <> new.{column} "
        f"and (old.{column}, new.{column}) not in (values {allowed}) "
        f"begin select raise(abort, 'illegal move of {machine.name}'); end"
    )


def _history(name: str, table: str, column: str, subject: str, workflow: str) -> Iterator[tuple[str, str]]:
    into = "insert into transition (workflow_id, machine, subject, source, target, at) values"
    yield f"{table}_{column}_born", (
        f"after insert on {table} begin {into} "
        f"(new.{workflow}, '{name}', new.{subject}, null, new.{column}, new.updated_at); end"
    )
    yield f"{table}_{column}_moved", (
        f"after update of {column} on {table} when old.{column} <> new.{column} begin {into} "
        f"(new.{workflow}, '{name}', new.{subject}, old.{column}, new.{column}, new.updated_at); end"
    )


def _frozen() -> Iterator[tuple[str, str]]:
    for table in _NEVER_DELETED:
        yield f"{table}_stays", f"before delete on {table} begin select raise(abort, '{table} is never deleted'); end"
    for table in _NEVER_CHANGED:
        yield f"{table}_final", f"before update on {table} begin select raise(abort, '{table} is never changed'); end"
    yield "run_committed_final", (
        "before update on run when old.status = 'committed' "
        "begin select raise(abort, 'a committed run never changes'); end"
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
    yield "mutation_applied_final", (
        "before update of status, result on mutation when old.status = 'applied' "
        "begin select raise(abort, 'an applied mutation never changes'); end"
    )
