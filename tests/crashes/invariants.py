"""What must be true of a ledger file at any instant, read off the file alone; used after every crash."""

from __future__ import annotations

from pathlib import Path

import apsw

from keepai.ledger.account import verify
from keepai.ledger.invariants import check_invariants
from keepai.ledger.sqlite.connection import Statements

#: Holds only where no event is published again by another run, which would bring it causes of its own.
MADE_UP = """
    select x.event_id, x.input_id from event_cause x join event e on e.id = x.event_id
    join run r on r.id = e.created_by and r.kind = 'consumer'
    except select e.id, c.input_id from event e join reservation v on v.run_id = e.created_by
    join event_cause c on c.event_id = v.event_id"""


def violations(path: Path) -> list[str]:
    """Every broken rule, in words."""
    connection = apsw.Connection(str(path))
    try:
        return broken(connection)
    finally:
        connection.close()


def broken(connection: apsw.Connection) -> list[str]:
    """Every broken rule of what a connection shows."""
    found = [f"integrity: {row[0]}" for row in connection.execute("pragma integrity_check") if row[0] != "ok"]
    found += [f"foreign key: {row}" for row in connection.execute("pragma foreign_key_check")]
    if not list(connection.execute("select 1 from sqlite_schema where name = 'item'")):
        return found  # it was killed before there was anything
    found += [f"a cause that was made up: {row}" for row in connection.execute(MADE_UP)]
    read = Statements(connection)
    found += [str(rule) for rule in check_invariants(read)]
    return found + [why for why in [verify(read).why] if why is not None]
