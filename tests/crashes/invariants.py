"""What must be true of a ledger at any instant, read off the ledger alone; used after every crash."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from keepai.ledger.account import verify
from keepai.ledger.checks import check
from keepai.ledger.invariants import check_invariants
from keepai.ledger.opening import open_reader
from keepai.ledger.postgres.reader import PostgresReader
from keepai.ledger.sqlite.connection import Statements
from keepai.model.ledger_address import is_address

#: Holds only where no event is published again by another run, which would bring it causes of its own.
MADE_UP = """
    select x.event_id, x.input_id from event_cause x join event e on e.id = x.event_id
    join run r on r.id = e.created_by and r.kind = 'consumer'
    except select e.id, c.input_id from event e join reservation v on v.run_id = e.created_by
    join event_cause c on c.event_id = v.event_id"""


def violations(place: Path | str) -> list[str]:
    """Every broken rule, in words, of the ledger in a file or at an address."""
    if is_address(place):
        with closing(open_reader(place)) as read:
            assert isinstance(read, PostgresReader)
            made_up = [f"a cause that was made up: {row}" for row in read.connection.execute(MADE_UP)]
            return made_up + [each.said for each in check(read) if not each.sound]
    connection = apsw.Connection(str(place))
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
