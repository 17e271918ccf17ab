"""What must be true of a ledger file at any instant, read off the file alone; used after every crash."""

from __future__ import annotations

from pathlib import Path

import apsw

from keepai.ledger.account import verify
from keepai.ledger.sqlite.connection import Statements
from keepai.ledger.sqlite.triggers import BINDINGS
from keepai.model.states import MACHINES

#: What must never be found → the statement that would find it.
NEVER = {
    "an event that was consumed or skipped without exactly one committed run that reserved it": """
        select e.id, e.status from event e where e.status <> 'pending' and 1 <> (
          select count(*) from reservation v join run r on r.id = v.run_id
          where v.event_id = e.id and v.attempt = e.attempt and r.status = 'committed')""",
    "an attempt at an event that two runs committed": """
        select v.event_id, v.attempt, count(*) from reservation v join run r on r.id = v.run_id
        where r.status = 'committed' group by 1, 2 having count(*) > 1""",
    "an event reserved by a run that is not open, or that has no reservation of it": """
        select e.id, e.reserved_by from event e left join run r on r.id = e.reserved_by
        where e.reserved_by is not null and (r.status not in ('active', 'paused', 'failed') or not exists (
          select 1 from reservation v
          where v.run_id = e.reserved_by and v.event_id = e.id and v.attempt = e.attempt))""",
    "an open run whose reservation is not held": """
        select v.run_id, v.event_id from reservation v join run r on r.id = v.run_id join event e on e.id = v.event_id
        where r.status in ('active', 'paused', 'failed') and e.reserved_by is not r.id""",
    "an event or input of a run that did not commit": """
        select x.id, r.status from (select id, created_by from event union all select id, created_by from input) x
        left join run r on r.id = x.created_by where r.status is not 'committed' and r.kind is not 'routine'""",
    "an item whose input was not made with it": """
        select t.id from item t left join input i on i.id = t.input_id and i.source = 'workflow' and i.type = 'item'
        where i.external_id is not t.external_id""",
    "a mutation of a routine outside of the items that its run worked on": """
        select m.id from mutation m join run r on r.id = m.run_id and r.kind = 'routine'
        where not exists (select 1 from item_run x where x.run_id = r.id and x.item_id = m.item_id)""",
    "an item in hand of a lineage that has ended": """
        select t.id, t.status from item t where t.status in ('processing', 'needs_attention')
        and exists (select 1 from item_run x where x.item_id = t.id and x.attempt = t.attempt)
        and not exists (select 1 from item_run x join run r on r.id = x.run_id join run o on o.lineage = r.lineage
          where x.item_id = t.id and o.status in ('active', 'paused', 'failed'))""",
    "a thing applied twice in one attempt": """
        select mutation_key from mutation where status = 'applied' group by workflow_id, 1 having count(*) > 1""",
    "a thing sent again before the last send was known to have failed": """
        select m.id, later.id from mutation m
        join mutation later on later.workflow_id = m.workflow_id and later.mutation_key = m.mutation_key
          and later.seq > m.seq
        where m.status <> 'failed'""",
    "a producer's event without a cause": """
        select e.id from event e join run r on r.id = e.created_by
        where r.kind = 'producer' and not exists (select 1 from event_cause c where c.event_id = e.id)""",
    "a consumer's event that lacks a cause of what its run reserved": """
        select e.id, c.input_id from event e join run r on r.id = e.created_by and r.kind = 'consumer'
        join reservation v on v.run_id = r.id join event_cause c on c.event_id = v.event_id
        except select event_id, input_id from event_cause""",
    "a consumer's event with a cause that its run did not reserve": """
        select x.event_id, x.input_id from event_cause x join event e on e.id = x.event_id
        join run r on r.id = e.created_by and r.kind = 'consumer'
        except select e.id, c.input_id from event e join reservation v on v.run_id = e.created_by
        join event_cause c on c.event_id = v.event_id""",
    "a run past prepare without its PrepareResult": """
        select id, phase from run
        where phase in ('prepared', 'mutating', 'mutated', 'emitting') and prepare_result is null""",
    "a run that reserved before it was prepared": """
        select r.id from run r join reservation v on v.run_id = r.id where r.phase = 'preparing'""",
    "a run after its mutation without its outcome": """
        select id, phase from run where phase in ('mutated', 'emitting') and outcome is null""",
    "a committed run with a mutation that is neither applied nor skipped": """
        select r.id, m.status from run r join mutation m on m.run_id = r.id
        where r.status = 'committed' and m.status not in ('applied', 'skipped')""",
    "an applied mutation whose lineage was sent once more": """
        select m.id, later.id from mutation m join mutation later on later.lineage = m.lineage and later.seq > m.seq
        where m.status <> 'failed' and m.item_id is null""",
    "a mutation in flight or in doubt whose run is not open": """
        select m.id, r.status from mutation m join run r on r.id = m.run_id
        where m.status in ('in_flight', 'needs_reconcile', 'indeterminate')
          and r.status not in ('active', 'paused', 'failed')""",
    "a run that others carry on from twice": """
        select retry_of from run where retry_of is not null group by 1 having count(*) > 1""",
    "a run that was left and that nobody carries on": """
        select id, status from run r where status in ('crashed', 'superseded')
        and not exists (select 1 from run n
          where n.retry_of = r.id and n.lineage = r.lineage and n.attempt = r.attempt + 1)""",
    "two committed runs of one lineage": """
        select lineage from run where status = 'committed' group by 1 having count(*) > 1""",
    "a reservation that changed on its way to the run that carries on": """
        select n.id, v.event_id from run n join run r on r.id = n.retry_of join reservation v on v.run_id = n.id
        where n.phase <> 'preparing' and (n.major, n.minor) = (r.major, r.minor)
        and exists (select 1 from reservation o where o.run_id = r.id) and not exists (
          select 1 from reservation o where o.run_id = r.id and o.event_id = v.event_id and o.payload = v.payload
          and o.attempt = v.attempt and o.position = v.position)""",
}


def violations(path: Path) -> list[str]:
    """Every broken rule, in words."""
    connection = apsw.Connection(str(path))
    try:
        found = [f"integrity: {row[0]}" for row in connection.execute("pragma integrity_check") if row[0] != "ok"]
        found += [f"foreign key: {row}" for row in connection.execute("pragma foreign_key_check")]
        if not list(connection.execute("select 1 from sqlite_schema where name = 'transition'")):
            return found  # it was killed before there was anything
        for rule, statement in NEVER.items():
            found += [f"{rule}: {row}" for row in connection.execute(statement)]
        broken = verify(Statements(connection)).why
        return found + _history(connection) + ([f"account: {broken}"] if broken else [])
    finally:
        connection.close()


def _history(connection: apsw.Connection) -> list[str]:
    """The history of every row is a chain of legal moves that ends in its present state."""
    found = []
    for name, (table, column, key, _) in BINDINGS.items():
        machine, last = MACHINES[name], dict[str, str]()
        history = "select subject, source, target from transition where machine = ? order by seq"
        moves = connection.execute(history, (name,))
        for subject, source, target in moves:
            if source != last.get(subject):
                found.append(f"{name} {subject}: {last.get(subject)} became {source} unseen")
            states = machine.states
            if target not in (machine.initial if source is None else machine.moves[states(source)]):
                found.append(f"{name} {subject}: {source} → {target}")
            last[subject] = target
        present = dict(connection.execute(f"select {key}, {column} from {table}"))
        found += [
            f"{name} {row}: is {state}, and its history ends in {last.get(row)}"
            for row, state in present.items() if state != last.get(row)
        ]
    return found
