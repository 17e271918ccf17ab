"""The rules of model/states.py as SQLite triggers: the database refuses what the tables do not list.

They are derived when a file is opened, so the file and the code cannot disagree. They also append every move,
every act and what else was decided to `transition`, which is the account (see ledger/account.py), keep committed
runs, reservations and applied mutations as they are but for what retention empties, and forbid deleting. The function
that they name is given to a connection by `connection.teach`: a program that has not got it can move nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...model.states import MACHINES, Machine
from ..account import BRIEF_MAX, COLUMNS

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

#: Why an event may begin as skipped.
BORN_SKIPPED = "every input behind it was skipped before it came"


def _brief(value: str) -> str:
    """A text that is short enough, or the hash of it; most are, and then no function of ours need be called."""
    return f"case when length({value}) <= {BRIEF_MAX} then {value} else account_brief({value}) end"


#: machine → why a row of it began, why it moved: SQL over the new row and, for a move, the old one.
WHY: Mapping[str, tuple[str, str]] = {
    "phase": ("null", f"case new.phase when 'prepared' then {_brief('new.prepare_result')} end"),
    "status": (
        "json_object('handler', new.handler, 'version', new.major || '.' || new.minor, 'trigger', new.trigger, "
        "'retry_of', new.retry_of)",
        f"case when new.status = 'committed' then {_brief('new.outcome')} when new.reason is null then null "
        "when json_valid(new.error) then json_set(new.error, '$.reason', new.reason) else new.error end",
    ),
    "mutation": (
        "json_object('run', new.run_id, 'item', new.item_id, 'call', new.connector || '.' || new.operation, "
        f"'account', new.account, 'target', new.target, 'params', {_brief('new.params')}, "
        "'idempotency_key', new.idempotency_key)",
        "case when new.resolution is not old.resolution then new.resolution "
        f"when new.status = 'applied' then {_brief('new.result')} else new.error end",
    ),
    "event": (
        "case when new.status = 'skipped' then json_object('topic', new.topic, 'message_id', new.message_id, "
        f"'run', new.created_by, 'message', '{BORN_SKIPPED}') "
        "else json_object('topic', new.topic, 'message_id', new.message_id, 'run', new.created_by) end",
        "old.reserved_by",
    ),
    "input": (
        "json_object('source', new.source, 'type', new.type, 'external_id', new.external_id, 'title', new.title, "
        "'run', new.created_by)",
        "null",
    ),
    "item": (
        "json_object('external_id', new.external_id, 'title', new.title, 'handler', new.handler)",
        "(select x.run_id from item_run x where x.workflow_id = new.workflow_id and x.item_id = new.id "
        "order by x.seq desc limit 1)",
    ),
    "repair": ("json_object('run', new.run_id)", "new.note"),
    "approval": (
        "json_object('run', new.run_id, 'capability', new.capability, 'digest', new.digest)", "new.decided_by",
    ),
    "workflow": ("new.name", "null"),
}

#: What is decided without a move: trigger → (what it is, when, of what, from, to, why).
NOTED: Mapping[str, tuple[str, str, str, str, str, str]] = {
    "run_reason_moved": (
        "reason", "update of reason on run when old.reason <> new.reason and old.status = new.status",
        "new.id", "old.reason", "new.reason", "new.error",
    ),
    "run_host_moved": (
        "host", "update of host on run when old.host <> new.host and old.status = new.status",
        "new.id", "old.host", "new.host", "null",
    ),
    "mutation_reconcile_attempts_moved": (
        "reconcile", "update of reconcile_attempts on mutation "
        "when old.reconcile_attempts <> new.reconcile_attempts and old.status = new.status",
        "new.id", "cast(old.reconcile_attempts as text)", "cast(new.reconcile_attempts as text)", "new.error",
    ),
    "mutation_evidence_moved": (
        "sign", "update of evidence on mutation when new.evidence is not old.evidence", "new.id", "null",
        "case when new.contradicted_at = new.updated_at then 'contradicts' else 'heard' end",
        "account_brief(ltrim(substr(new.evidence, length(coalesce(old.evidence, '')) + 1)))",
    ),
    "event_payload_moved": (
        "revision", "update of revision on event when old.revision <> new.revision", "new.id",
        "cast(old.revision as text)", "cast(new.revision as text)", "null",
    ),
    "event_revision_held": (
        "revision", "insert on event_revision", "new.event_id", "null", "cast(new.revision as text)", "new.created_by",
    ),
    "grant_rule_mode_born": (
        "grant", "insert on grant_rule", "new.capability", "null", "new.mode", "new.rule",
    ),
    "grant_rule_mode_moved": (
        "grant",
        "update of mode, rule, account on grant_rule"
        " when (old.mode, old.rule, old.account) <> (new.mode, new.rule, new.account)",
        "new.capability", "old.mode", "new.mode", "new.rule",
    ),
}

#: Who did what no person did: the host that has the file, which is the newest.
_HOST = "(select id from host order by epoch desc limit 1)"

_NEVER_DELETED = ("workflow", "script", "input", "event", "event_cause", "run", "reservation", "item", "item_run",
                  "mutation", "approval", "repair", "transition", "seal", "action", "put_back")
_NEVER_CHANGED = ("transition", "seal", "action", "script", "put_back")


def statements() -> dict[str, str]:
    """Every derived trigger by its name."""
    found: dict[str, str] = {}
    for name, (table, column, subject, workflow) in BINDINGS.items():
        found.update(moves(MACHINES[name], table, column))
        found.update(_history(name, table, column, subject, workflow))
    found.update(_noted())
    found.update(_frozen())
    return found


def moves(machine: Machine, table: str, column: str) -> Iterator[tuple[str, str]]:
    """Refuse a first state or a move that the machine does not list."""
    # Comparisons, not lists: for each list SQLite would fill a table of its own at every execution.
    first = " or ".join(f"new.{column} = '{s}'" for s in sorted(machine.initial))
    allowed = " or ".join(_move(column, source, targets) for source, targets in machine.moves.items() if targets)
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


def _history(name: str, table: str, column: str, subject: str, workflow: str) -> Iterator[tuple[str, str]]:
    began, moved = WHY[name]
    row = f"new.{workflow}", f"'{name}'", f"new.{subject}"
    yield f"{table}_{column}_born", (
        f"after insert on {table} begin {_append(*row, 'null', f'new.{column}', 'new.updated_at', began, _HOST)}; end"
    )
    yield f"{table}_{column}_moved", (
        f"after update of {column} on {table} when old.{column} <> new.{column} "
        f"begin {_append(*row, f'old.{column}', f'new.{column}', 'new.updated_at', moved, _HOST)}; end"
    )


def _noted() -> Iterator[tuple[str, str]]:
    for trigger, (name, when, subject, source, target, why) in NOTED.items():
        at = "new.created_at" if when == "insert on event_revision" else "new.updated_at"
        row = "new.workflow_id", f"'{name}'", subject, source, target, at, why, _HOST
        yield trigger, f"after {when} begin {_append(*row)}; end"
    who = "coalesce(new.workflow_id, '')", "'act'", "new.subject"
    act = "null", "new.act", "new.at", "new.detail", "new.actor"
    yield "action_born", f"after insert on action begin {_append(*who, *act)}; end"


def _append(*values: str) -> str:
    """Put one row into the account, its actor last; whoever commits seals it.

    It gets the next number, for none is ever deleted. A function of ours stands where it is never called: a program
    without it cannot even ask for a move."""
    *told, actor = values
    row = ", ".join((*told, f"coalesce({actor}, account_brief(null))"))
    return " ".join(("insert into transition (", ", ".join(COLUMNS[1:]), ") values (", row, ")"))


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
    return f"new.{column} = '' and ({old}) is ({new})"


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
    yield "reservation_final", (
        f"before update on reservation when not ({_only_pruned('reservation', 'payload')} and {ended}) "
        "begin select raise(abort, 'reservation is never changed'); end"
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
