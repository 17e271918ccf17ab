"""The hosts that the process torture kills: a real `Keep` on a real file, over HTTP to the torture's service.

A host is forked from a process that has loaded everything and has one thread, and so is the script runtime's fork
server, by a nursery: a life then begins within milliseconds instead of a second. What they run is the product's own
code. KEEP_TORTURE_PLANT names a fault that this module builds into the host, to show that the torture finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from keepai import Call, Connector, OutcomeUnknown, Page, Policy, Transient, Verdict, mutation, read
from keepai.app import Keep
from keepai.engine import failure, recovery, relaunch
from keepai.engine.call_ends import CallEnds
from keepai.ledger.sqlite.lock import HostLock
from keepai.ledger.transitions import mutations, runs
from keepai.model import crash_points
from keepai.model.errors import Conflict, LedgerUnusable, Refused
from keepai.model.records import Escalation
from keepai.runtime.javascript import fork_client, fork_server, linux
from keepai.runtime.javascript.harden import prepare
from keepai.runtime.javascript.image import build_image
from keepai.runtime.javascript.instance import Image
from keepai.runtime.javascript.wasm_engine import Engine
from tests.prove.torture_service import SETTLE_S

REFUSED, UNDONE, BROKE = 3, 4, 5  #: how a host ends that was not killed; 0 is in order
PLANT = "KEEP_TORTURE_PLANT"
_ANSWER_BYTES_MAX = 1 << 20
_LOOK_S = 0.02

_FLOW = """
  topics: { "order.seen": {}, "row.added": {} },
  producers: { poll: { publishes: ["order.seen"], handler: async (ctx, state) => {
    const orders = await ctx.orders.list({ after: state?.after ?? 0 });
    for (const o of orders) {
      const inputId = ctx.registerInput({ source: "orders", type: "order", id: o.id, title: `Order ${o.id}` });
      await ctx.publish("order.seen", { messageId: o.id, inputId, payload: { order: o.id } });
    }
    return { after: orders.after };
  } } },
  consumers: { fill: Keep.consumer({
    subscribe: ["order.seen"], publishes: ["row.added"],
    async prepare(ctx, state) {
      const pending = await ctx.peek("order.seen");
      if (pending.length === 0) return { reservations: [], data: {} };
      const order = pending[0].messageId;
      return {
        reservations: [{ topic: "order.seen", ids: [order] }], data: { order }, ui: { title: `Row for ${order}` },
      };
    },
    async mutate(ctx, prepared) {
      const order = prepared.data.order;
      if (Number(order.slice(1)) % 2) ctx.log("odd");  // then it is not tried ahead, and runs by itself
      await ctx.rows.add({ order, by: "consumer" });
    },
    async next(ctx, prepared, mutationResult) {
      if (mutationResult.status === "applied") {
        await ctx.publish("row.added", { messageId: prepared.data.order, payload: { row: mutationResult.result.id } });
      }
    },
  }) },
"""
_ITEMS = """
  routines: { work: { handler: async (ctx, state) => {
    for (const o of await ctx.orders.list({ after: 0 })) {
      await ctx.withItem(o.id, "Order " + o.id, async (ctx) => {
        if (ctx.item.isDone) return;
        const row = await ctx.rows.add({ order: o.id, by: "routine" });
        await ctx.mails.send({ order: o.id, row: row.id });
      });
    }
  } } },
"""
GRANTS = {"orders.list": "allow", "rows.add": "allow", "mails.send": "allow"}


def scripts(apart: bool) -> list[str]:
    """The work, as one workflow or as two that run side by side."""
    bodies = {"flow": _FLOW, "items": _ITEMS} if apart else {"both": _FLOW + _ITEMS}
    return [f'export default Keep.workflow({{ name: "{name}",{body}}});\n' for name, body in bodies.items()]


@dataclass(frozen=True)
class World:
    """What stays the same over the lives of one ledger."""

    folder: Path
    port: int
    apart: bool = False
    blind: bool = False  # mails cannot be looked up: a person must
    call_s: float = 0.3
    crashes_max: int = 3

    @property
    def path(self) -> Path:
        """The ledger."""
        return self.folder / "keep.db"


@dataclass(frozen=True)
class Life:
    """What is special about one life."""

    number: int
    point: str = ""  # `name:nth` or `*:nth`: die there
    orders: int | None = None  # end in order when all that shall come of so many orders is there


# Connectors


@dataclass(frozen=True)
class Http:
    """Requests to the service, each over a connection of its own."""

    port: int
    sender: str = ""
    leaving: Callable[[str], None] = lambda at: None  # told "before" and "after" the bytes of an effect leave

    async def ask(self, path: str, key: str = "", body: object = None, run: str = "") -> tuple[int, Any]:
        """Status and value of one answer; `Transient` if nothing was sent, `OutcomeUnknown` if none came."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=_ANSWER_BYTES_MAX)
        except OSError as error:
            raise Transient(f"No connection: {error}.") from None
        try:
            text = b"" if body is None else json.dumps(body).encode()
            head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nIdempotency-Key: {key}\r\n"
            head += f"Sender: {self.sender}\r\nRun: {run}\r\nContent-Length: {len(text)}\r\n"
            if text:
                self.leaving("before")
            writer.write(f"{head}Sent-At: {time.monotonic()}\r\n\r\n".encode() + text)
            if text:
                self.leaving("after")
            top, _, rest = (await reader.read()).partition(b"\r\n\r\n")
            if not top or not rest:
                raise OutcomeUnknown("The connection was lost before the answer came.")
            return int(top.split(b" ")[1]), json.loads(rest)
        except OSError as error:
            raise OutcomeUnknown(f"The connection was lost: {error}.") from None
        finally:
            writer.transport.abort()

    async def effect(self, path: str, params: dict[str, Any], call: Call) -> dict[str, Any]:
        """Have something done."""
        status, value = await self.ask(path, call.idempotency_key, params, call.run_id)
        if status == 429:
            raise Transient("The service is busy.", retry_after=0.05)
        if status == 408:
            raise Transient("The request came too late to take effect.")
        if status != 200:
            raise OutcomeUnknown(f"The service answered {status}.")
        return dict(value)

    async def look(self, path: str, call: Call) -> Verdict:
        """What became of it."""
        status, value = await self.ask(f"{path}?key={call.idempotency_key}")
        if status == 200:
            return Verdict.applied(value)
        return Verdict.failed() if status == 404 else Verdict.retry()


class Orders(Connector):
    """Where the work comes from."""

    input_types = ("order",)

    def __init__(self, http: Http) -> None:
        super().__init__()
        self._http = http

    @read
    async def list(self, params: dict[str, Any], call: Call) -> Page[dict[str, Any]]:
        after = int(params["after"])
        status, orders = await self._http.ask(f"/orders?after={after}")
        if status != 200:
            raise Transient(f"The service answered {status}.")
        return Page(orders, after=after + len(orders))


class Rows(Connector):
    """A table that can be searched by key."""

    def __init__(self, http: Http) -> None:
        super().__init__()
        self._http = http

    @mutation(identity=("order",), target="order", settle=SETTLE_S)
    async def add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self._http.effect("/rows", params, call)

    @add.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        return await self._http.look("/rows", call)


class Mails(Connector):
    """Mails that can be searched by key."""

    def __init__(self, http: Http) -> None:
        super().__init__()
        self._http = http

    @mutation(identity=("order",), target="order", settle=SETTLE_S)
    async def send(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self._http.effect("/mails", params, call)

    @send.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        return await self._http.look("/mails", call)


class BlindMails(Connector):
    """Mails that only a person can find."""

    name = "mails"

    def __init__(self, http: Http) -> None:
        super().__init__()
        self._http = http

    @mutation(identity=("order",), target="order", settle=SETTLE_S)
    async def send(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self._http.effect("/mails", params, call)


# A life


def policy(world: World) -> Policy:
    """Everything as soon as it may be."""
    return Policy(
        producer_interval_s=0.05, call_s=world.call_s, retry_first_s=0.02, retry_longest_s=0.1, retries_max=4,
        reconcile_s=0.5, reconcile_first_s=0.03, reconcile_longest_s=0.2, reconciles_max=6,
        crashes_max=world.crashes_max, workers_max=2,
    )


async def live(world: World, life: Life, say: Callable[[str], None]) -> int:
    """Open, deploy, serve; until it is killed, is told to end, or all is done."""
    http = Http(world.port)
    connectors = [Orders(http), Rows(http), BlindMails(http) if world.blind else Mails(http)]
    async with AsyncExitStack() as stack:
        try:
            opened = Keep(world.path, connectors=connectors, policy=policy(world))
            keep = await stack.enter_async_context(opened)
        except LedgerUnusable as error:
            if "is in use by" in str(error):
                return REFUSED
            raise
        for script in scripts(world.apart):
            await keep.deploy(script, grants=GRANTS)
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        say("ready")
        return await _serve(keep, http, life, over)


async def _serve(keep: Keep, http: Http, life: Life, over: asyncio.Event) -> int:
    serving = asyncio.ensure_future(keep.serve())
    try:
        while not over.is_set():
            if serving.done():
                return BROKE
            for question in await keep.needs_you():
                await answer(keep, http, question)
            if life.orders is not None and await all_done(keep, life.orders):
                return 0
            await asyncio.sleep(_LOOK_S)
        return 0 if life.orders is None else UNDONE
    finally:
        serving.cancel()


async def all_done(keep: Keep, orders: int) -> bool:
    """Whether everything that shall come of so many orders is there."""
    flows = [w.id for w in await keep.workflows()]
    rows = [e for wf in flows for e in await keep.events(wf, topic="row.added")]
    items = [i for wf in flows for i in await keep.items(wf) if i.status == "done"]
    return len(rows) == orders == len(items)


_TRIES_MAX = 8  # more often nothing is refused in these lives


async def answer(keep: Keep, http: Http, question: Escalation) -> None:
    """A person who looks at the service's log and says what is true, where that is offered."""
    with contextlib.suppress(Refused, Conflict):  # it changed while the person looked
        if question.kind == "unknown_outcome" and question.mutation_id:
            await _say_what_is_true(keep, http, question)
        elif question.kind in ("exhausted", "internal") and "retry" in question.actions:
            await keep.retry(question.run_id)


def _keys_of(key: str) -> list[str]:
    """The keys under which a thing may be in the log: what the service refused was sent again under a further one, and
    a ledger that lost commits may not know of that. People look for what is in a mail, and find it whatever its key."""
    first = key.partition("-")[0]
    return list(dict.fromkeys([key, first, *(f"{first}-{tried}" for tried in range(2, 2 + _TRIES_MAX))]))


async def _say_what_is_true(keep: Keep, http: Http, question: Escalation) -> None:
    assert question.mutation_id
    found: Any = []
    for key in _keys_of(str(question.facts["idempotency_key"])):
        found = found or (await http.ask(f"/log?key={key}"))[1]
    if found:
        await keep.resolve(question.mutation_id, "happened", found[0]["result"])
    elif "did_not_happen" in question.actions:
        await keep.resolve(question.mutation_id, "did_not_happen")


Say = Callable[[str], None]


def be(world: World, life: Life, nursery: Path, status: int) -> NoReturn:
    """What a forked host does; never returns."""
    def life_of(say: Say) -> Coroutine[Any, Any, int]:
        plant(os.environ.get(PLANT))
        die_at(life.point or "never:1", say)
        return live(world, life, say)

    be_process(world.folder / "host.log", nursery, status, life_of)


def be_process(log: Path, nursery: Path, status: int, life_of: Callable[[Say], Coroutine[Any, Any, int]]) -> NoReturn:
    """Live one life in a process that was forked for it, and end with the code that comes of it."""
    code = BROKE
    try:
        linux.die_with_parent()
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)

        def say(line: str) -> None:
            os.write(status, line.encode() + b"\n")

        fork_client._spawn = lambda fd: from_nursery(nursery, fd, say)  # type: ignore[assignment,return-value]
        code = asyncio.run(life_of(say))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def die_at(wish: str, say: Callable[[str], None]) -> None:
    """SIGKILL at the nth arrival at a named point, or at the nth point of any name (`*`); says where, and of calls."""
    name, _, nth = wish.rpartition(":")
    left = int(nth)

    def at(point: str) -> None:
        nonlocal left
        left -= name in ("*", point)
        if point == "before:call":
            say("calls")
        if left == 0:
            say(f"died {point}")
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.listen(at)


# Script servers


class Ward:
    """A fork server from the nursery, as `subprocess.Popen` would show it."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if not select.select([self._pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a script server", timeout or 0)
        return 0

    def kill(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def from_nursery(nursery: Path, control: int, say: Callable[[str], None]) -> Ward:
    """A fork server at the other end of `control`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(10)
        sock.connect(str(nursery))
        socket.send_fds(sock, [b"fork"], [control])
        data, (pidfd,), _, _ = socket.recv_fds(sock, 64, 1)
    say(f"server {int(data)}")
    return Ward(pidfd)


def nurse(sock: socket.socket) -> NoReturn:
    """Load the script runtime once, then fork a server for everyone who asks."""
    before = fork_server._open_descriptors()
    fork_server._compile_apart()
    engine = Engine()
    image = build_image(engine)
    keep = frozenset(fork_server._open_descriptors() - before)
    prepare()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        with contextlib.suppress(TimeoutError, ConnectionError):  # whoever asked was killed meanwhile
            _hand_over(sock, engine, image, keep)


def _hand_over(sock: socket.socket, engine: Engine, image: Image, keep: frozenset[int]) -> None:
    asker, _ = sock.accept()
    with asker:
        asker.settimeout(1)
        _, given, _, _ = socket.recv_fds(asker, 64, 1)
        if not given:
            return
        child = os.fork()
        if child == 0:
            sock.close()
            asker.close()
            _be_server(given[0], engine, image, keep)
        os.close(given[0])
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(child)
            try:
                socket.send_fds(asker, [str(child).encode()], [pidfd])
            finally:
                os.close(pidfd)


def _be_server(control: int, engine: Engine, image: Image, keep: frozenset[int]) -> NoReturn:
    try:
        with contextlib.suppress(BaseException):
            fork_server.Server(socket.socket(fileno=control), engine, image, keep).run()
    finally:
        os._exit(1)


# Faults that the torture must find


def plant(name: str | None) -> None:
    """Break a promise on purpose."""
    if name:
        _PLANTS[name]()


def _resend() -> None:
    """Recovery takes what was in flight for failed."""
    careful = recovery._take_over

    async def take_over(parts: Any, run: Any) -> None:
        sent = await parts.ledger.look(relaunch.in_flight, run)
        if sent is None:
            await careful(parts, run)
            return
        adopted = await parts.ledger.write(runs.adopt, run)
        why = failure.stop(Transient("It died."), adopted, None, parts.policy, parts.clock.now_ms())
        await parts.ledger.write(mutations.refuse, adopted, sent, why, [], barrier=True)

    recovery._take_over = take_over


def _hurry() -> None:
    """"Not found" counts at once, although the request may still arrive."""
    CallEnds.settled = lambda *_: 0  # type: ignore[method-assign]


def _share() -> None:
    """The file is not locked."""

    def take(lock: HostLock, ledger: Path) -> None:
        lock._ledger, lock.path = ledger, ledger.with_name(ledger.name + ".lock")
        lock.fd = os.open(lock.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    HostLock.__init__ = take  # type: ignore[assignment]
    HostLock.take_file = lambda lock: None  # type: ignore[method-assign]


_PLANTS = {"resend": _resend, "hurry": _hurry, "share": _share}
