"""Kills hosts between a send and its answer, over and over on one ledger, and compares outside and ledger at the end.

A gate stands between hosts and the outside, and stops at every send: the host is then killed by SIGKILL, and the send
is lost, or arrives and its answer is lost, or arrives late, while the next host is already at work. At the end a host
is left alone. The gate knows of every attempt whether it took place: the ledger must say the same of each. The outside,
the script and the person who is asked are a scene, in a module of its own: `tests/prove/database`, `…/webhook`.
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
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import apsw

from keepai import Policy
from keepai.app import Keep
from keepai.connectors.base import Connector
from keepai.ledger.account import walk
from keepai.ledger.sqlite.connection import Statements
from keepai.model.codec import Json
from keepai.model.errors import Conflict, Refused
from keepai.model.records import Escalation
from keepai.runtime.javascript import fork_client, linux
from tests.prove.torture import fork, nursery
from tests.prove.torture_host import from_nursery

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MANNERS = {"before": 3, "after": 3, "late": 3, "through": 1}
LATE_S = (0.0, 0.05, 0.3, 0.8)
MUTE_CHANCE = 0.15  # of a life in which the host dies once more, while a person is being asked
SEND_S_MAX = 60.0
QUIET_S_MAX = 400.0
POLICY = Policy(
    retry_first_s=0.02, retry_longest_s=0.2, retries_max=1000, reconcile_first_s=0.05, reconcile_longest_s=0.3,
    reconciles_max=1000, crashes_max=1000, settle_s=1.0,  # longer than a request is late here
)


@dataclass
class Account:
    """What came of it."""

    known_by: str
    kills: int = 0
    lives: int = 0
    orders: int = 0
    effects: int = 0  # as the outside itself counted them
    duplicates: int = 0  # orders with more than one
    lost: int = 0  # orders with none
    false_failed: int = 0  # attempts that took place and that the ledger calls failed
    false_applied: int = 0
    refused: int = 0  # attempts that failed before the send, by the connector's own word
    questions: int = 0  # that a person was asked
    wrongly_asked: int = 0  # attempts about which a person was asked without need, or twice, or not
    seconds: float = 0.0
    manners: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = {**vars(self), "manners": ", ".join(f"{count} {each}" for each, count in sorted(self.manners.items()))}
        told["problems"] = "; ".join(self.problems) or "none"
        return "\n".join(f"{name.replace('_', ' '):16}{value}" for name, value in told.items())


class Scene:
    """An outside system, the script that sends to it, and the person who is asked."""

    known: ClassVar[tuple[str, ...]]  # in which ways an outcome may be known; the first is the usual one
    asks = False  # whether a person is asked about every attempt that was interrupted

    def __init__(self, known_by: str, orders: int, folder: Path) -> None:
        self.known_by, self.orders, self.folder = known_by, orders, folder

    def outside(self) -> AbstractContextManager[int]:
        """The outside system with its orders, as long as it is needed; its port."""
        raise NotImplementedError

    async def send(self, data: bytes, reader: asyncio.StreamReader) -> bytes | None:
        """The whole send, if what a host says is the beginning of one."""
        raise NotImplementedError

    async def answer(self, reader: asyncio.StreamReader) -> bytes:
        """What the outside answers to a send that took place."""
        raise NotImplementedError

    def script(self, port: int) -> str:
        """What hosts run."""
        raise NotImplementedError

    def connectors(self, port: int) -> list[Connector]:
        """With what they run it."""
        raise NotImplementedError

    async def done(self, keep: Keep, workflow_id: str) -> int:
        """How many orders are done."""
        raise NotImplementedError

    def happened(self, question: Escalation) -> bool:
        """What a person sees who looks at the outside for what a question is about."""
        raise NotImplementedError

    def effects(self) -> Iterable[object]:
        """The order of every effect."""
        raise NotImplementedError


async def say(keep: Keep, question: Escalation, happened: bool, result: Json = None) -> str | None:
    """A person says what is true, where that is offered; what was said."""
    word = "happened" if happened else "did_not_happen"
    if question.mutation_id is None or word not in question.actions:
        return None
    with contextlib.suppress(Refused, Conflict):
        await keep.resolve(question.mutation_id, word, result if happened else None)
        return word
    return None


# The gate


class Gate:
    """A process between hosts and the outside that stops at every send and asks what to do with it."""

    def __init__(self, scene: Scene, upstream: int) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.talk, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = fork(_guard, scene, listening, other, upstream)
        listening.close()
        other.close()

    def stopped(self, seconds: float) -> bool:
        """Wait for a send."""
        return bool(select.select([self.talk], [], [], seconds)[0]) and self.talk.recv(64) == b"send"

    def order(self, manner: str, *, wait: bool = True) -> None:
        """What becomes of it; waits until that has happened, unless it shall be late."""
        self.talk.send(manner.encode())
        if wait:
            assert self.talk.recv(64) == b"done"

    def close(self) -> None:
        """End it."""
        kill(self.pid)
        self.talk.close()


def _guard(scene: Scene, listening: socket.socket, talk: socket.socket, upstream: int) -> None:
    async def main() -> None:
        turn = asyncio.Lock()  # one send at a time is talked about

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _pass_on(scene, reader, writer, talk, upstream, turn)

        async with await asyncio.start_server(pass_on, sock=listening) as serving:
            await serving.serve_forever()

    talk.setblocking(False)
    asyncio.run(main())


async def _pass_on(
    scene: Scene, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, talk: socket.socket, upstream: int,
    turn: asyncio.Lock,
) -> None:
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", upstream)
    back: asyncio.Future[None] = asyncio.ensure_future(_pour(far_reader, writer))
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                whole = await scene.send(data, reader)
                if whole is not None:
                    back.cancel()
                    await asyncio.wait({back})
                    async with turn:
                        await _sent(scene, whole, far_reader, far_writer, writer, talk)
                    return
                far_writer.write(data)
            await asyncio.wait({back}, timeout=1)
    finally:
        back.cancel()
        for each in (writer, far_writer):
            each.transport.abort()


async def _sent(
    scene: Scene, whole: bytes, far_reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter,
    writer: asyncio.StreamWriter, talk: socket.socket,
) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(talk, b"send")
    manner = (await loop.sock_recv(talk, 64)).decode()
    if manner.startswith("late"):
        await asyncio.sleep(float(manner.partition(" ")[2]))
    if manner != "before":
        far_writer.write(whole)
        answer = await scene.answer(far_reader)
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


@dataclass(frozen=True)
class Life:
    """How a host lives."""

    port: int
    nurse: Path
    quiet: bool = False  # it ends when all orders are done
    mute: bool = False  # it dies when a person is asked


def _host(scene: Scene, life: Life) -> NoReturn:
    """A host in a process of its own."""
    linux.die_with_parent()
    log = os.open(scene.folder / "host.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    fork_client._spawn = lambda fd: from_nursery(life.nurse, fd, lambda _: None)  # type: ignore[assignment,return-value]
    asyncio.run(_serve(scene, life))
    os._exit(0)


async def _serve(scene: Scene, life: Life) -> None:
    ledger, connectors = scene.folder / "keep.db", scene.connectors(life.port)
    async with Keep(ledger, connectors=connectors, policy=POLICY) as keep:
        workflow_id = (await keep.deploy(scene.script(life.port), grants="all")).workflow_id
        serving = asyncio.ensure_future(keep.serve())
        while not serving.done():
            for question in await keep.needs_you():
                if life.mute:
                    os.kill(os.getpid(), signal.SIGKILL)
                await say(keep, question, scene.happened(question))
            if life.quiet and await scene.done(keep, workflow_id) >= scene.orders:
                serving.cancel()
                return
            await asyncio.sleep(0.1)
        serving.result()


# The whole


def prove(kind: type[Scene], kills: int, seed: int, known_by: str) -> Account:
    """Kill hosts so many times, leave one alone, and compare the outside with the ledger."""
    began, account = time.monotonic(), Account(known_by, orders=kills * 9 // 10 + 8)  # not every send ends in a kill
    folder = Path(tempfile.mkdtemp(prefix=f"keep-{kind.__name__.lower()}-"))
    scene = kind(known_by, account.orders, folder)
    with scene.outside() as port, nursery() as (nurse, _):
        gate = Gate(scene, port)
        try:
            attempts = _killing(account, kills, random.Random(seed), scene, gate, nurse)
            _judge(account, attempts, scene)
        finally:
            gate.close()
    account.seconds = round(time.monotonic() - began, 1)
    if not account.problems:
        shutil.rmtree(folder)
    else:
        account.problems.append(f"kept: {folder}")
    return account


def _killing(
    account: Account, kills: int, chance: random.Random, scene: Scene, gate: Gate, nurse: Path,
) -> list[str]:
    """Life after life; of every send in order, its manner."""
    attempts: list[str] = []
    while account.kills < kills:
        account.lives += 1
        host = fork(_host, scene, Life(gate.port, nurse))
        if not _killed(account, chance, host, gate, attempts):
            kill(host)
            told = (scene.folder / "host.log").read_text("utf-8").splitlines()[-1:]
            account.problems.append(f"life {account.lives} came to no send in {SEND_S_MAX:g} s; it said {told}")
            return attempts
        if scene.asks and chance.random() < MUTE_CHANCE:
            _mute(account, fork(_host, scene, Life(gate.port, nurse, mute=True)), gate)
    account.lives += 1
    _left_alone(account, fork(_host, scene, Life(gate.port, nurse, quiet=True)), gate, attempts)
    return attempts


def _killed(account: Account, chance: random.Random, host: int, gate: Gate, attempts: list[str]) -> bool:
    """Let sends through until one is not; False if none comes."""
    while gate.stopped(SEND_S_MAX):
        manner = chance.choices(list(MANNERS), list(MANNERS.values()))[0]
        account.manners[manner] += 1
        attempts.append(manner)
        if manner in ("through", "after"):
            gate.order(manner)
        if manner == "through":
            continue
        kill(host)
        account.kills += 1
        if manner == "before":
            gate.order(manner)
        if manner == "late":
            gate.order(f"late {chance.choice(LATE_S)}", wait=False)
        return True
    return False


def _mute(account: Account, host: int, gate: Gate) -> None:
    """A host that asks a person, sends nothing meanwhile, and dies before the answer."""
    account.lives += 1
    account.manners["asking"] += 1
    until = time.monotonic() + SEND_S_MAX
    while os.waitpid(host, os.WNOHANG) == (0, 0):
        if gate.stopped(0.02) or time.monotonic() > until:
            kill(host)
            account.problems.append(f"life {account.lives} sent something or asked nobody")
            return


def _left_alone(account: Account, host: int, gate: Gate, attempts: list[str]) -> None:
    until = time.monotonic() + QUIET_S_MAX
    while os.waitpid(host, os.WNOHANG) == (0, 0):
        if gate.stopped(0.1):
            gate.order("through")
            attempts.append("through")
        if time.monotonic() > until:
            kill(host)
            account.problems.append(f"the host that was left alone was not done in {QUIET_S_MAX:g} s")
            return


def kill(process: int) -> None:
    """SIGKILL, and wait."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


# The judge


def _judge(account: Account, attempts: list[str], scene: Scene) -> None:
    found = Counter(scene.effects())
    account.effects = found.total()
    account.duplicates = sum(count > 1 for count in found.values())
    account.lost = account.orders - len(found)
    ways = _ways(scene.folder / "keep.db")
    # What the connector itself refused, for example because it got no connection, never came to a send.
    said = [way for way in ways if way[-2:] != ["in_flight", "failed"]]
    account.refused = len(ways) - len(said)
    if len(said) != len(attempts):
        account.problems.append(f"{len(attempts)} sends were seen, the ledger has {len(said)} attempts")
    for way, manner in zip(said, attempts, strict=False):
        _compare(account, way, manner, asks=scene.asks)
    for what in ("duplicates", "lost", "false_failed", "false_applied", "wrongly_asked"):
        if getattr(account, what):
            account.problems.append(f"{what}: {getattr(account, what)}")
    ends = Counter(way[-1] for way in said)
    if ends["applied"] != account.orders or set(ends) - {"applied", "failed"}:
        account.problems.append(f"{account.orders} orders; the ledger says {dict(ends)}")


def _ways(ledger: Path) -> list[list[str]]:
    """Of every attempt in order, the states through which the ledger led it."""
    ways: dict[str, list[str]] = {}
    with contextlib.closing(apsw.Connection(str(ledger))) as db:
        for move in walk(Statements(db)):
            if move["machine"] == "mutation":
                ways.setdefault(str(move["subject"]), []).append(str(move["target"]))
    return list(ways.values())


def _compare(account: Account, way: list[str], manner: str, *, asks: bool) -> None:
    """What the ledger says of an attempt, and what the gate knows of it."""
    account.false_failed += way[-1] == "failed" and manner != "before"
    account.false_applied += way[-1] == "applied" and manner == "before"
    asked, wanted = way.count("indeterminate"), asks and manner != "through"
    account.questions += asked
    account.wrongly_asked += asked != wanted or (way[-2] == "indeterminate") != wanted  # the last word is the person's


# As programs


def run(module: str, kills: int, seed: int, known_by: str) -> dict[str, Any]:
    """The same in a process of its own, which must have one thread, because it forks."""
    words = [sys.executable, "-m", module, "--kills", str(kills), "--seed", str(seed), "--known-by", known_by, "--json"]
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main(kind: type[Scene], doc: str | None) -> int:
    """Prove it here, and say what came of it."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--known-by", choices=kind.known, default=kind.known[0])
    parser.add_argument("--json", action="store_true", help="one line for programs")
    given = parser.parse_args()
    account = prove(kind, given.kills, given.seed, given.known_by)
    print(json.dumps(vars(account)) if given.json else account)
    return 1 if account.problems else 0
