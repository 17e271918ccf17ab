"""The mutations of `sql` as subjects of the contract, each on a real SQLite file and a real PostgreSQL.

Effects are counted by a trigger in the database, and read by a connection that the connector knows nothing of.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import apsw

from keepai.connectors import make
from keepai.connectors.base import Connector
from keepai.connectors.sql import postgres, row_changes, sqlite
from keepai.model.errors import PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.testing.contract import CANARY, Fault, Subject
from tests.postgres import Postgres, Proxy, binaries, shared

INSERT = {"table": "bill", "key": {"id": 7}, "values": {"total": "12.50", "note": "for tea"}}
UNKEYED = {"table": "bill", "values": {"total": "12.50", "note": "for tea"}}
UPDATE = {"table": "bill", "key": {"id": 1}, "values": {"total": "12.50"}, "expect": {"version": 1}}
UPSERT = {"table": "bill", "key": {"id": 1}, "values": {"total": "12.50", "note": "for tea"}}
_numbers = itertools.count(1)


class OnSqlite(Subject):
    """A mutation on an SQLite file."""

    kind = "sqlite"
    settings: ClassVar[Mapping[str, Any]] = {}
    refusals = MappingProxyType({
        "busy": Transient, "gone": PreconditionFailed, "no such table": PreconditionFailed, "raised": Rejected,
        "readers in the way of COMMIT": Transient,
    })
    same_key_once = True
    crash_lines_max = 6
    crash_in = (sqlite, row_changes)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "bills.db"
        self.timeout = 9.0
        self._run("""
            create table bill (id integer primary key, total decimal(10,2), note text, version int default 1,
                               keep_key text unique);
            insert into bill (id, total) values (1, 1);
            create table effect (n integer primary key);
            create trigger inserted after insert on bill begin insert into effect (n) values (null); end;
            create trigger updated after update on bill begin insert into effect (n) values (null); end;
        """)

    def connector(self) -> Connector:
        settings = {"path": str(self.path), "tables": ["bill"], "timeout": self.timeout, **self.settings}
        return make("sql", "under_test", settings)

    def effects(self) -> int:
        if not self.path.exists():
            return 0
        [[count]] = self._run("select count(*) from effect")
        return int(count)

    @contextlib.contextmanager
    def refusal(self, name: str) -> Iterator[None]:
        self.timeout = 0.3
        with contextlib.ExitStack() as undo:
            if name == "gone":
                self.path.rename(self.path.with_suffix(".away"))
                undo.callback(lambda: self.path.with_suffix(".away").rename(self.path))
            elif name == "no such table":
                self._run("alter table bill rename to invoice")
                undo.callback(self._run, "alter table invoice rename to bill")
            elif name == "raised":
                for what in ("insert", "update"):
                    self._run(f"create trigger no_{what} before {what} on bill begin select raise(abort, 'no'); end")
                    undo.callback(self._run, f"drop trigger no_{what}")
            else:
                db = apsw.Connection(str(self.path))
                undo.callback(db.close)
                db.execute("begin immediate" if name == "busy" else "begin; select * from bill")
            yield
        self.timeout = 9.0

    def _run(self, text: str) -> list[Any]:
        with contextlib.closing(apsw.Connection(str(self.path))) as db:
            db.set_busy_timeout(5000)
            return list(db.execute(text))


class OnPostgres(Subject):
    """A mutation on a PostgreSQL server, behind a proxy that loses what it is told to lose."""

    kind = "postgres"
    settings: ClassVar[Mapping[str, Any]] = {}
    refusals = MappingProxyType({
        "the password has changed": PermissionDenied, "a right was taken": PermissionDenied,
        "busy": Transient, "no such table": PreconditionFailed, "raised": Rejected, "raised at COMMIT": Rejected,
        "nobody there": Transient,
    })
    same_key_once = True
    crash_lines_max = 6
    crash_in = (postgres, row_changes)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server: Postgres = shared()
        self.name = f"trial_{next(_numbers)}"
        self.password = CANARY
        self.timeout = 9.0
        self._run(f"create role {self.name} login password '{CANARY}'", f"create schema {self.name}",
                  f"alter role {self.name} set search_path = {self.name}",
                  f"grant usage, create on schema {self.name} to {self.name}")
        self._here("""
            create table bill (id serial primary key, total numeric(10,2), note text, version int default 1,
                               keep_key text unique);
            insert into bill (id, total) values (1, 1);
            select setval('bill_id_seq', 100);
            create table effect (n serial);
            create function took_place() returns trigger language plpgsql security definer as
              $$ begin insert into effect default values; return null; end $$;
            create trigger took_place after insert or update on bill for each row execute function took_place();
        """)
        self._here(f"alter function took_place() set search_path = {self.name}",
                   f"grant select, insert, update on bill to {self.name}",
                   f"grant usage on bill_id_seq to {self.name}")
        self.proxy = Proxy(self.server.port)

    def connector(self) -> Connector:
        url = self.server.url(self.proxy.port, self.name)
        settings = {"url": url, "tables": ["bill"], "timeout": self.timeout, **self.settings}
        connector = make("sql", "under_test", settings)
        connector.entrust({"password": self.password})
        return connector

    def effects(self) -> int:
        return int(self._run(f"select count(*) from {self.name}.effect")[0][0])

    def fault(self, fault: Fault) -> AbstractContextManager[object] | None:
        manners = {Fault.ANSWER_LOST: "after", Fault.REQUEST_LOST: "before", Fault.LATE: "late", Fault.HELD: "silent",
                   Fault.WRONG_ANSWER: "nonsense", Fault.LOOKUP_BROKEN: "begin"}
        if fault is Fault.LOOKUP_DENIED:
            return self.refusal("the password has changed")
        return self._with_manner(manners[fault])

    @contextlib.contextmanager
    def _with_manner(self, manner: str) -> Iterator[None]:
        self.proxy.manner = manner
        yield
        self.proxy.manner = "well"

    def land(self) -> None:
        self.proxy.release.set()
        assert self.proxy.committed.wait(10)
        self.proxy.settled()

    @contextlib.contextmanager
    def refusal(self, name: str) -> Iterator[None]:
        with contextlib.ExitStack() as undo:
            if name == "the password has changed":
                self.password = "an old one"
            elif name == "nobody there":
                well, self.proxy = self.proxy, Proxy(self.server.port)
                self.proxy.__exit__()
                undo.callback(setattr, self, "proxy", well)
            elif name == "a right was taken":
                self._here(f"revoke insert, update on bill from {self.name}")
                undo.callback(self._here, f"grant insert, update on bill to {self.name}")
            elif name == "no such table":
                self._here("alter table bill rename to invoice")
                undo.callback(self._here, "alter table invoice rename to bill")
            elif name == "busy":
                self.timeout = 0.3
                db = undo.enter_context(self.server.connect(autocommit=False))
                db.execute(f"lock table {self.name}.bill in exclusive mode")
            else:
                self._raising("constraint" if name == "raised at COMMIT" else "")
                undo.callback(self._here, "drop trigger no on bill")
            yield
        self.password, self.timeout = CANARY, 9.0

    def _raising(self, kind: str) -> None:
        """A trigger that refuses, at once or when the transaction commits."""
        when = "deferrable initially deferred" if kind else ""
        self._here(
            "create or replace function no() returns trigger language plpgsql as "
            "$$ begin raise exception 'no' using errcode = '23514'; end $$",
            f"create {kind} trigger no after insert or update on bill {when} for each row execute function no()")

    def close(self) -> None:
        self.proxy.__exit__()
        self._run(f"drop schema {self.name} cascade", f"drop role {self.name}")

    def _run(self, *texts: str) -> list[Any]:
        return self.server.run(*texts)

    def _here(self, *texts: str) -> list[Any]:
        return self.server.run(f"set search_path = {self.name}", *texts)


#: Name → the class's members. How each is found again stands first.
MUTATIONS: dict[str, dict[str, Any]] = {
    "insert by its unique key": {"operation": "insert", "params": INSERT, "by_state": True},
    "insert by a marker": {"operation": "insert", "params": UNKEYED, "settings": {"marker": "keep_key"}},
    "insert by a receipt": {"operation": "insert", "params": UNKEYED, "settings": {"receipts": True}},
    "update by a receipt": {"operation": "update", "params": UPDATE, "settings": {"receipts": True}},
    "upsert by a receipt": {"operation": "upsert", "params": UPSERT, "settings": {"receipts": True}},
    "update without a trace": {"operation": "update", "params": UPDATE, "same_key_once": False},
    "insert without a trace": {"operation": "insert", "params": UNKEYED, "same_key_once": False},
}


def _subjects(kind: type[Subject], word: str) -> list[type[Subject]]:
    return [
        type(f"{word}: {name}", (kind,), {**members, "how": f"{word}, {name.partition(' ')[2]}"})
        for name, members in MUTATIONS.items()
    ]


SUBJECTS = _subjects(OnSqlite, "sqlite") + (_subjects(OnPostgres, "postgres") if binaries() else [])
