"""The seeds' database example (13.6.3) against a real PostgreSQL: hosts are killed between their COMMIT and its answer.

`python -m tests.prove.database --kills 200 --seed 1` runs examples/orders-to-invoices.js in real hosts on one ledger. A
gate stands between them and the server, and stops at every COMMIT: the host is then killed by SIGKILL, and the COMMIT
is lost, or arrives and its answer is lost, or arrives late, while the next host is already asking. At the end a host is
left alone. The gate knows of every attempt whether it was committed: the ledger must say the same of each. `--known-by
receipt` does it with a table in which nothing is unique, where a second insert would show as a second row.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import apsw

from keepai import Policy
from keepai.app import Keep
from keepai.connectors import make
from keepai.runtime.javascript import forks, linux
from tests.postgres import PASSWORD, Postgres, server
from tests.prove.torture import fork, nursery
from tests.prove.torture_host import from_nursery

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "examples" / "orders-to-invoices.js").read_text("utf-8")
MANNERS = {"before": 3, "after": 3, "late": 3, "through": 1}
COMMIT_S_MAX = 60.0
QUIET_S_MAX = 400.0
NO_TRACE = "the outside system has no trace of it"  # what the engine says when a look-up finds nothing
TABLES = {
    "key": "create table invoices (order_id int primary key, total numeric(10,2) not null)",
    "receipt": "create table invoices (id serial primary key, order_id int, total numeric(10,2) not null)",
}


@dataclass
class Account:
    """What came of it."""

    known_by: str
    kills: int = 0
    lives: int = 0
    orders: int = 0
    effects: int = 0  # rows that the server's own trigger counted
    duplicates: int = 0  # orders with more than one
    lost: int = 0  # orders with none
    false_failed: int = 0  # attempts that were committed and that the ledger calls failed
    false_applied: int = 0
    refused: int = 0  # attempts that failed before COMMIT, by the connector's own word
    questions: int = 0  # that a person would have been asked
    seconds: float = 0.0
    manners: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


# The gate


class Gate:
    """A process between hosts and server that stops at every COMMIT and asks what to do with it."""

    def __init__(self, upstream: int) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.talk, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = fork(_guard, listening, other, upstream)
        listening.close()
        other.close()

    def stopped(self, seconds: float) -> bool:
        """Wait for a COMMIT."""
        return bool(select.select([self.talk], [], [], seconds)[0]) and self.talk.recv(64) == b"commit"

    def order(self, manner: str, *, wait: bool = True) -> None:
        """What becomes of it; waits until that has happened, unless it shall be late."""
        self.talk.send(manner.encode())
        if wait:
            assert self.talk.recv(64) == b"done"

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.talk.close()


def _guard(listening: socket.socket, talk: socket.socket, upstream: int) -> None:
    async def main() -> None:
        turn = asyncio.Lock()  # one COMMIT at a time is talked about

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _pass_on(reader, writer, talk, upstream, turn)

        async with await asyncio.start_server(pass_on, sock=listening) as serving:
            await serving.serve_forever()

    talk.setblocking(False)
    asyncio.run(main())


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, talk: socket.socket, upstream: int, turn: asyncio.Lock,
) -> None:
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", upstream)
    back: asyncio.Future[None] = asyncio.ensure_future(_pour(far_reader, writer))
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if data[:1] == b"Q" and b"commit\0" in data:
                    back.cancel()
                    await asyncio.wait({back})
                    async with turn:
                        await _commit(data, far_reader, far_writer, writer, talk)
                    return
                far_writer.write(data)
    finally:
        back.cancel()
        for each in (writer, far_writer):
            each.transport.abort()


async def _commit(
    data: bytes, far_reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter, writer: asyncio.StreamWriter,
    talk: socket.socket,
) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(talk, b"commit")
    manner = (await loop.sock_recv(talk, 64)).decode()
    if manner.startswith("late"):
        await asyncio.sleep(float(manner.partition(" ")[2]))
    if manner != "before":
        far_writer.write(data)
        answer = await far_reader.read(65536)
        assert b"COMMIT\0" in answer, answer
        if manner == "through":
            writer.write(answer)
            await writer.drain()
    if manner == "before":
        far_writer.transport.abort()
    if not manner.startswith("late"):
        await loop.sock_sendall(talk, b"done")
    if manner == "through":
        await asyncio.sleep(0.05)  # until the host has it


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)


# Hosts


def _host(folder: Path, url: str, known_by: str, orders: int | None, nurse: Path) -> NoReturn:
    """A host in a process of its own: serves until it is killed, or until all orders have their invoices."""
    linux.die_with_parent()
    log = os.open(folder / "host.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    forks._spawn = lambda fd: from_nursery(nurse, fd, lambda _: None)  # type: ignore[assignment,return-value]
    asyncio.run(_serve(folder, url, known_by, orders))
    os._exit(0)


async def _serve(folder: Path, url: str, known_by: str, orders: int | None) -> None:
    settings = {"url": url, "tables": ["orders", "invoices"], "receipts": known_by == "receipt"}
    books = make("sql", "books", settings)
    books.entrust({"password": PASSWORD})
    policy = Policy(
        retry_first_s=0.02, retry_longest_s=0.2, retries_max=1000, reconcile_first_s=0.05, reconcile_longest_s=0.3,
        reconciles_max=1000, crashes_max=1000,
    )
    script = SCRIPT if known_by == "key" else SCRIPT.replace(
        "key: { order_id: id }, values: { total }", "values: { order_id: id, total }")
    async with Keep(folder / "keep.db", connectors=[books], policy=policy) as keep:
        await keep.deploy(script, grants="all")
        serving = asyncio.ensure_future(keep.serve())
        while not serving.done():
            [flow] = await keep.workflows()
            written = await keep.events(flow.id, topic="invoice.written") if orders is not None else []
            if orders is not None and len(written) >= orders:
                serving.cancel()
                return
            await asyncio.sleep(0.1)
        serving.result()


# The whole


def prove(kills: int, seed: int, known_by: str) -> Account:
    """Kill hosts so many times, leave one alone, and compare the server with the ledger."""
    began, account = time.monotonic(), Account(known_by)
    folder = Path(tempfile.mkdtemp(prefix="keep-database-"))
    with server() as database, nursery() as (nurse, _):
        account.orders = kills * 9 // 10 + 8  # not every COMMIT ends in a kill
        _fill(database, account.orders, known_by)
        gate = Gate(database.port)
        try:
            committed = _killing(account, kills, random.Random(seed), gate, folder, database, nurse)
            _judge(account, committed, folder, database)
        finally:
            gate.close()
    account.seconds = round(time.monotonic() - began, 1)
    if not account.problems:
        shutil.rmtree(folder)
    else:
        account.problems.append(f"kept: {folder}")
    return account


def _fill(database: Postgres, orders: int, known_by: str) -> None:
    database.run(
        TABLES[known_by], "create table orders (id int primary key, total numeric(10,2))",
        f"insert into orders select n, n + 0.5 from generate_series(1, {orders}) n",
        "create table effect (order_id int)",
        "create function took_place() returns trigger language plpgsql as "
        "$$ begin insert into effect values (new.order_id); return null; end $$",
        "create trigger took_place after insert or update on invoices for each row execute function took_place()")


def _killing(
    account: Account, kills: int, chance: random.Random, gate: Gate, folder: Path, database: Postgres, nurse: Path,
) -> list[bool]:
    """Life after life; of every COMMIT in order, whether it took place."""
    committed: list[bool] = []
    url = database.url(gate.port)
    while True:
        quiet = account.kills >= kills
        account.lives += 1
        orders = account.orders if quiet else None
        host = fork(_host, folder, url, account.known_by, orders, nurse)
        if quiet:
            _left_alone(account, host, gate, committed)
            return committed
        while gate.stopped(COMMIT_S_MAX):
            manner = chance.choices(list(MANNERS), list(MANNERS.values()))[0]
            account.manners[manner] += 1
            committed.append(manner != "before")
            if manner == "through":
                gate.order("through")
                continue
            if manner == "after":
                gate.order("after")
            _kill(host)
            account.kills += 1
            if manner == "before":
                gate.order("before")
            if manner == "late":
                gate.order(f"late {chance.choice([0.0, 0.05, 0.3, 0.8])}", wait=False)
            break
        else:
            _kill(host)
            account.problems.append(f"life {account.lives} came to no COMMIT in {COMMIT_S_MAX:g} s")
            return committed


def _left_alone(account: Account, host: int, gate: Gate, committed: list[bool]) -> None:
    until = time.monotonic() + QUIET_S_MAX
    while os.waitpid(host, os.WNOHANG) == (0, 0):
        if gate.stopped(0.1):
            gate.order("through")
            committed.append(True)
        if time.monotonic() > until:
            _kill(host)
            account.problems.append(f"the host that was left alone was not done in {QUIET_S_MAX:g} s")
            return


def _kill(host: int) -> None:
    os.kill(host, signal.SIGKILL)
    os.waitpid(host, 0)


def _judge(account: Account, committed: list[bool], folder: Path, database: Postgres) -> None:
    found = Counter(row[0] for row in database.run("select order_id from effect"))
    account.effects = found.total()
    account.duplicates = sum(count > 1 for count in found.values())
    account.lost = account.orders - len(found)
    rows = database.run("select count(*) from invoices")[0][0]
    with contextlib.closing(apsw.Connection(str(folder / "keep.db"))) as ledger:
        rows_of = list(ledger.execute("select status, error from mutation order by seq"))
        # What the connector itself refused, for example because it got no connection, never came to a COMMIT.
        said = [status for status, why in rows_of if status != "failed" or NO_TRACE in why]
        account.refused = len(rows_of) - len(said)
        asked = ledger.execute(
            "select count(*) from transition where machine = 'mutation' and target = 'indeterminate'")
        account.questions = next(iter(asked))[0]
    if len(said) != len(committed):
        account.problems.append(f"{len(committed)} COMMITs were seen, the ledger has {len(said)} attempts")
    for status, took_place in zip(said, committed, strict=False):
        account.false_failed += status == "failed" and took_place
        account.false_applied += status == "applied" and not took_place
    for what in ("duplicates", "lost", "false_failed", "false_applied"):
        if getattr(account, what):
            account.problems.append(f"{what}: {getattr(account, what)}")
    if rows != account.orders or set(said) - {"applied", "failed"}:
        account.problems.append(f"{rows} invoices of {account.orders} orders; the ledger says {Counter(said)}")


def run(kills: int, seed: int, known_by: str) -> dict[str, Any]:
    """The same in a process of its own, which must have one thread, because it forks."""
    words = [sys.executable, "-m", "tests.prove.database", "--kills", str(kills), "--seed", str(seed),
             "--known-by", known_by]
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> int:
    """Prove it here, and say on the last line what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.database", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--known-by", choices=sorted(TABLES), default="key")
    given = parser.parse_args()
    account = prove(given.kills, given.seed, given.known_by)
    print(json.dumps(vars(account)))
    return 1 if account.problems else 0


if __name__ == "__main__":
    sys.exit(main())
