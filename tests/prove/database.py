"""The seeds' database example (13.6.3) against a real PostgreSQL: hosts are killed between their COMMIT and its answer.

`python -m tests.prove.database --kills 200 --seed 1` runs examples/orders-to-invoices.js in real hosts on one ledger,
as `tests/prove/killing` says; a send is a COMMIT. A trigger of the server counts the effects. `--known-by receipt` does
it with a table in which nothing is unique, where a second insert would show as a second row.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator

from keepai.app import Keep
from keepai.connectors import make
from keepai.connectors.base import Connector
from keepai.model.records import Escalation
from tests.postgres import PASSWORD, Postgres, server
from tests.prove.killing import EXAMPLES, Scene, main

TABLES = {
    "key": "create table invoices (order_id int primary key, total numeric(10,2) not null)",
    "receipt": "create table invoices (id serial primary key, order_id int, total numeric(10,2) not null)",
}


class Database(Scene):
    """Orders and invoices in one database."""

    known = tuple(TABLES)
    server: Postgres

    @contextlib.contextmanager
    def outside(self) -> Iterator[int]:
        with server() as self.server:
            self.server.run(
                TABLES[self.known_by], "create table orders (id int primary key, total numeric(10,2))",
                f"insert into orders select n, n + 0.5 from generate_series(1, {self.orders}) n",
                "create table effect (order_id int)",
                "create function took_place() returns trigger language plpgsql as "
                "$$ begin insert into effect values (new.order_id); return null; end $$",
                "create trigger took_place after insert or update on invoices for each row execute function "
                "took_place()")
            yield self.server.port

    async def send(self, data: bytes, reader: asyncio.StreamReader) -> bytes | None:
        return data if data[:1] == b"Q" and b"commit\0" in data else None

    async def answer(self, reader: asyncio.StreamReader) -> bytes:
        answer = await reader.read(65536)
        assert b"COMMIT\0" in answer, answer
        return answer

    def script(self, port: int) -> str:
        script = (EXAMPLES / "orders-to-invoices.js").read_text("utf-8")
        return script if self.known_by == "key" else script.replace(
            "key: { order_id: id }, values: { total }", "values: { order_id: id, total }")

    def connectors(self, port: int) -> list[Connector]:
        settings = {"url": self.server.url(port), "tables": ["orders", "invoices"]}
        books = make("sql", "books", {**settings, "receipts": self.known_by == "receipt"})
        books.entrust({"password": PASSWORD})
        return [books]

    async def done(self, keep: Keep, workflow_id: str) -> int:
        return len(await keep.events(workflow_id, topic="invoice.written"))

    def happened(self, question: Escalation) -> bool:
        raise AssertionError(f"A person is asked: {question}")

    def effects(self) -> list[int]:
        rows = [row[0] for row in self.server.run("select order_id from invoices")]
        noted = [row[0] for row in self.server.run("select order_id from effect")]
        assert sorted(rows) == sorted(set(noted)), "rows and what the trigger noted differ"
        return noted


if __name__ == "__main__":
    sys.exit(main(Database, __doc__))
