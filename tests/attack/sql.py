# ruff: noqa: E501 (an attack is read best on one line)
"""The connector for databases: no name or value becomes a statement, and no server but the right one gets a password."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import apsw

from keepai.connectors import make
from keepai.connectors.base import Call
from keepai.connectors.sql import catalog, postgres_connection, row_changes
from keepai.model.errors import ConfigError, ConnectorError, RuleBroken
from tests.attack.base import Area, Attack, Planted, must, refused
from tests.connectors.test_postgres_connection import HOSTS, VARIABLES

TEXTS = (
    "'; drop table bill; --", "' or 1=1 --", "1; delete from bill", "\\'; drop table bill; --", "' union select word from secret --", "%s", "{0}", ":1", "?1",
    "$1", "x' || (select word from secret) || '", "\x00'; drop table bill", "/*", "*/", "bill\"; drop table bill; --", "\u02bc; drop table bill", "';\n--",
)
NAMES = ("keep_applied", "sqlite_schema", "sqlite_master", "secret", "BILL", "bill--", 'bill"; drop table bill; --', "main.secret", "bill, secret", "", "pg_class", "bill\x00")


@dataclass
class Books:
    """A database of which one table is a script's to use."""

    path: Path

    async def do(self, operation: str, **params: Any) -> Any:
        spec = make("sql", "books", {"path": str(self.path), "tables": ["bill"]}).operations[operation]
        return await spec.invoke(spec.parse(params), Call(idempotency_key=os.urandom(8).hex()))

    def reset(self) -> None:
        with closing(apsw.Connection(str(self.path))) as db:
            for text in ("pragma synchronous = off", "drop table if exists bill", "drop table if exists secret", "create table bill (id integer primary key, due text, total real)",
                         "create table secret (word text)", "insert into secret values ('canary-5ecret')", "insert into bill values (1, 'may', 2.5), (2, 'june', 3)"):
                db.execute(text)

    def look(self, answer: Any, rows: int = 2) -> None:
        """The tables are there with the rows that they had, and nothing of the other one was seen."""
        with closing(apsw.Connection(str(self.path))) as db:
            found = next(iter(db.execute("select count(*) from bill")))[0]
            words = list(db.execute("select word from secret"))
        must(found >= rows and words == [("canary-5ecret",)], f"there are {found} rows, and the other table has {words}")
        must("5ecret" not in str(answer), f"it was given {answer!r:.100}")

    async def attempt(self, operation: str, rows: int = 2, **params: Any) -> None:
        self.reset()
        answer = None
        try:
            answer = await self.do(operation, **params)
        except (ConnectorError, RuleBroken):
            pass
        self.look(list(answer) if isinstance(answer, list) else answer, rows)


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Books]:
    yield Books(folder / "books.db")


def attacks(books: Books) -> Iterator[Attack]:
    for name in NAMES:
        yield Attack(f"a script asks for the table {name!r}", lambda name=name: _refused(books, table=name))
    for text in TEXTS:
        yield Attack(f"a value is a statement: {text!r}", lambda text=text: books.attempt("query", table="bill", where={"due": text}))
        yield Attack(f"a column is a statement: {text!r}", lambda text=text: _refused(books, table="bill", columns=[text]))
        yield Attack(f"an order is a statement: {text!r}", lambda text=text: _refused(books, table="bill", order=[text]))
        yield Attack(f"a condition is a statement: {text!r}", lambda text=text: _refused(books, table="bill", where={text: 1}))
        yield Attack(f"a cursor is a statement: {text!r}", lambda text=text: _refused(books, table="bill", after=text))
        yield Attack(f"a row is a statement: {text!r}", lambda text=text: books.attempt("insert", table="bill", values={"id": 3, "due": text}))
    for url, mode in HOSTS.items():
        yield Attack(f"a password goes to a server that proves nothing: {url}", lambda url=url, mode=mode: _proves(url, mode))
    for name, value in VARIABLES.items():
        yield Attack(f"{name} changes where Keep connects", lambda name=name, value=value: _variable(name, value))
    for more in ("service=x", "passfile=/x", "password=x"):
        yield Attack(f"a URL of a database names {more.partition('=')[0]}", lambda more=more: _url(more))


async def _refused(books: Books, **params: Any) -> None:
    books.reset()
    with refused("it was taken", ConnectorError, RuleBroken):
        await books.do("query", **params)
    books.look(None)


def _proves(url: str, mode: str | None) -> None:
    made = postgres_connection.parameters(url)
    must(mode is None or made.get("sslmode") == mode, f"sslmode is {made.get('sslmode')}")
    must(made.get("require_auth") == "scram-sha-256", f"require_auth is {made.get('require_auth')}")


def _variable(name: str, value: str) -> None:
    """The library that connects finds no such variable while it does; tests/connectors/test_postgres_connection.py asks a server."""
    with patch.dict(os.environ, {name: value}), postgres_connection._no_variables():
        must(name not in os.environ, "it is there")


def _url(more: str) -> None:
    with refused("it was taken", ConfigError):
        make("sql", "books", {"url": f"postgresql://u@h/d?{more}", "tables": ["a"]})


_PIECES = ("bill", "secret", "id", "due", '"', "'", ";", "--", " ", "(", ")", "*", "select", "drop table", "\x00", "=", "1", ",", ".", "%s", "?", "main.", "union", "or", "\\", "\n")


def drawn(books: Books, chance: Random) -> Attack:
    """Pieces of SQL as names, values, conditions and orders."""
    def text() -> str:
        return "".join(chance.choice(_PIECES) for _ in range(chance.randint(1, 6)))

    params: dict[str, Any] = {"table": chance.choice(["bill", "bill", text()])}
    operation = chance.choice(["query", "query", "insert", "upsert", "get"])
    if operation == "query":
        params |= {"where": {chance.choice(["due", text()]): chance.choice([text(), {chance.choice(["=", "like", text()]): text()}])},
                   "order": [chance.choice(["id", "-due", text()])], "columns": [chance.choice(["id", text()])]}
    elif operation == "insert":
        params["values"] = {"id": 3, chance.choice(["due", text()]): text()}
    elif operation == "upsert":
        params |= {"key": {"id": 3}, "values": {chance.choice(["due", text()]): text()}}
    else:
        params["key"] = {chance.choice(["id", text()]): chance.choice([1, text()])}
    return Attack(f"{operation} with {params!r:.120}", lambda: books.attempt(operation, **params))


_look_up = catalog.look_up


def _any_table(dialect: Any, name: str, allowed: Any) -> Any:
    return _look_up(dialect, name, [*allowed, name])


AREA = Area(
    "sql", "databases, by names and values that are statements, and by servers that lie", place, attacks, drawn,
    (
        Planted("any table may be asked for", lambda: patch.object(row_changes, "look_up", _any_table), "a script asks for"),
        Planted("every server counts as this machine", lambda: patch.object(postgres_connection, "is_loopback", lambda _: True), "a password goes"),
        Planted("variables are read", lambda: patch.object(postgres_connection, "_no_variables", nullcontext), "changes where"),
    ),
)
