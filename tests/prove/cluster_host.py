"""One host of several that the cluster breaks: a real `Keep` on a ledger in PostgreSQL, with a person beside it.

It is forked from a process that has loaded everything, as the hosts of the torture are, and speaks with the same
service outside. It reaches the database through a proxy of its own. It can be told to freeze at the worst moments:
between its last check and the first byte of a call, after the last byte, and around a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import random
import signal
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from keepai import Connector, Policy
from keepai.app import Keep
from keepai.ledger.postgres import lease, mark_file
from keepai.model import crash_points
from keepai.model.errors import KeepError, LedgerError, Refused
from tests.prove import torture_host
from tests.prove.simulate.bugs import BUGS
from tests.prove.torture_host import BROKE, PLANT, REFUSED, BlindMails, Http, Orders, Rows, Say

ATTEND_S = 0.25
RESTS = "rests: "  #: what a host says that misses what it was told of

#: Where a host can be told to freeze, by a signal: SIGRTMIN and those that follow.
FREEZES = ("before", "after", "commit")

#: Kind of workflow → the call that its consumer makes. Rows can be looked up; mails only a person can find.
CALLS = {"rows": "rows.add", "mails": "mails.send"}

_FLOW = """export default Keep.workflow({
  name: "FLOW",
  topics: { seen: {}, told: {} },
  producers: { poll: { publishes: ["seen"], handler: async (ctx, state) => {
    const orders = await ctx.orders.list({ after: state?.after ?? 0 });
    for (const o of orders) {
      const inputId = ctx.registerInput({ source: "orders", type: "order", id: o.id, title: `Order ${o.id}` });
      await ctx.publish("seen", { messageId: o.id, inputId, payload: { order: o.id } });
    }
    return { after: orders.after };
  } } },
  consumers: { act: Keep.consumer({
    subscribe: ["seen"], publishes: ["told"],
    async prepare(ctx, state) {
      const [event] = await ctx.peek("seen");
      if (!event) return { reservations: [], data: {} };
      const order = event.messageId;
      return { reservations: [{ topic: "seen", ids: [order] }], data: { order }, ui: { title: `For ${order}` } };
    },
    async mutate(ctx, prepared) {
      const order = prepared.data.order;
      if (Number(order.slice(1)) % 2) ctx.log("odd");  // then it is not tried ahead, and runs by itself
      await ctx.CALL({ order, flow: "FLOW" });
    },
    async next(ctx, prepared, mutationResult) {
      await ctx.publish("told", { messageId: prepared.data.order, payload: { status: mutationResult.status } });
    },
  }) },
});
"""
_ROUTINE = """export default Keep.workflow({
  name: "FLOW",
  routines: { work: { handler: async (ctx, state) => {
    for (const o of await ctx.orders.list({ after: 0 })) {
      await ctx.withItem(o.id, "Order " + o.id, async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.rows.add({ order: o.id, flow: "FLOW" });
        await ctx.mails.send({ order: o.id, flow: "FLOW" });
      });
    }
  } } },
});
"""
ROUTINE = "items"


def script(flow: str) -> str:
    """The script of a workflow, whose name begins with its kind."""
    kind = flow.split("-")[0]
    return (_ROUTINE if kind == ROUTINE else _FLOW.replace("CALL", CALLS[kind])).replace("FLOW", flow)


def wanted(flow: str) -> tuple[str, ...]:
    """The kinds of effects that a workflow shall bring about for each order."""
    kind = flow.split("-")[0]
    return tuple(CALLS) if kind == ROUTINE else (kind,)


@dataclass(frozen=True)
class Place:
    """What all hosts of one ledger have in common."""

    folder: Path
    outside: int  # the port of the service
    flows: tuple[str, ...]
    lease_s: float
    apart: bool  # each host has a machine of its own, so no lock of another proves anything

    def state(self, number: int) -> Path:
        """Where the programs of a host's machine keep what must outlive them."""
        return self.folder / (f"state-{number}" if self.apart else "state")

    def mark(self, number: int, address: str) -> Path:
        """What hosts of a number have written of how far the ledger has come."""
        return self.state(number) / "keep" / f"{mark_file._place(address)}.mark"


@dataclass(frozen=True)
class Member:
    """One host."""

    number: int
    life: int
    address: str
    accepts: bool = False  # a person goes on with a ledger that is older than it was


POLICY = Policy(
    producer_interval_s=0.3, call_s=0.4, retry_first_s=0.05, retry_longest_s=0.3, retries_max=6, reconcile_s=0.5,
    reconcile_first_s=0.05, reconcile_longest_s=0.3, reconciles_max=8, crashes_max=1000, workers_max=2,
)


def connectors(http: Http) -> list[Connector]:
    """The world outside."""
    return [Orders(http), Rows(http), BlindMails(http)]


def found(place: Place, address: str, nursery: Path, status: int) -> NoReturn:
    """Be the first host: deploy every workflow, and end."""
    async def deploy() -> int:
        async with Keep(address, connectors=connectors(Http(place.outside)), policy=POLICY) as keep:
            for flow in place.flows:
                await keep.deploy(script(flow), grants=torture_host.GRANTS)
        return 0

    torture_host.be_process(place.folder / "host.log", nursery, status, lambda say: deploy())


def be(place: Place, member: Member, nursery: Path, status: int) -> NoReturn:
    """Be a host; never returns."""
    def life_of(say: Say) -> Coroutine[Any, Any, int]:
        faulthandler.register(signal.SIGUSR1, all_threads=True)  # where it stands, for people
        shorten(place.lease_s)
        os.environ["XDG_STATE_HOME"] = str(place.state(member.number))
        if place.apart:
            move_to_machine(place.folder, member.number)
        plant(os.environ.get(PLANT))
        return live(place, member, say)

    torture_host.be_process(place.folder / f"host-{member.number}.log", nursery, status, life_of)


async def live(place: Place, member: Member, say: Say) -> int:
    """Open and serve, until it is killed or told to end."""
    freezes = Freezes(say, random.Random(f"{member.number}.{member.life}"))
    crash_points.listen(freezes.at_point)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, tell_of_tasks)
    for number, where in enumerate(FREEZES):
        signal.signal(signal.SIGRTMIN + number, freezes.ordered(where))
    http = Http(place.outside, str(member.number), freezes.reached)
    async with AsyncExitStack() as stack:
        try:
            opened = Keep(
                member.address, connectors=connectors(http), policy=POLICY, accept_older=member.accepts)
            keep = await stack.enter_async_context(opened)
        except LedgerError as error:
            say(f"refused {error}")
            return REFUSED
        say("ready")
        attends = attend(keep, Http(place.outside), place.folder, say)
        drained = keep.host.drains.wait()
        ends = [asyncio.ensure_future(each) for each in (keep.serve(), attends, over.wait(), drained)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()
        for each in await asyncio.gather(*ends[:2], return_exceptions=True):
            if isinstance(each, Exception):
                traceback.print_exception(each)
                say(f"broke {type(each).__name__} {each}")
                return REFUSED if isinstance(each, LedgerError) else BROKE
    return 0


def tell_of_tasks() -> None:
    """Say where each task stands, for people."""
    for each in asyncio.all_tasks():
        each.print_stack()


async def attend(keep: Keep, http: Http, folder: Path, say: Say) -> None:
    """A person who answers every question truthfully, and says of hosts that they are dead or shall end."""
    while True:
        await asyncio.sleep(ATTEND_S)
        if why := keep.parts.ledger.stopped():
            say(f"{RESTS}{why}")
            await asyncio.Event().wait()  # until somebody ends it
        with contextlib.suppress(KeepError):  # the ledger, or the service, cannot be reached now
            for question in await keep.needs_you():
                await torture_host.answer(keep, http, question)
            for act, process, at in what_to_say(folder):
                for host in await keep.parts.ledger.all("heartbeat_all"):
                    if host["pid"] == process and host["started_at"] <= at:
                        with contextlib.suppress(Refused):  # it was heard a moment ago, or has ended
                            await {"dead": keep.host_dead, "drain": keep.host_drain}[act](host["id"])


def what_to_say(folder: Path) -> list[tuple[str, int, int]]:
    """What a person shall say of hosts: the act, the process, and the moment, for another may have its number later."""
    said = folder / "said"
    lines = said.read_text().splitlines() if said.exists() else []
    return [(act, int(process), int(at)) for act, process, at in (line.split() for line in lines)]


class Freezes:
    """Stops this process where it was told to; only SIGCONT makes it go on."""

    def __init__(self, say: Say, chance: random.Random) -> None:
        self._say, self._chance = say, chance
        self._where, self._left = "", 0

    def ordered(self, where: str) -> Callable[..., None]:
        """What a signal does: freeze there when one of the next moments of this kind comes."""
        def order(*_: object) -> None:
            self._where, self._left = where, self._chance.choice([1, 1, 2, 3, 5])

        return order

    def reached(self, where: str) -> None:
        """A moment of this kind has come."""
        if where == self._where:
            self._left -= 1
            if self._left == 0:
                self._where = ""
                self._say("frozen")
                os.kill(os.getpid(), signal.SIGSTOP)

    def at_point(self, point: str) -> None:
        """A named point has come."""
        if not point.endswith(":call"):
            self.reached("commit")


# What is not as in a real cluster


def shorten(lease_s: float) -> None:
    """Have all leases last so long only, that minutes have many takeovers."""
    lease.LEASE_MS, lease.MARGIN_MS = int(lease_s * 1000), int(lease_s * 200)
    lease.BEAT_S, lease.SHARE_S = lease_s / 5, lease_s / 3


def move_to_machine(folder: Path, number: int) -> None:
    """Believe that this is another machine than those of the other hosts."""
    boot = folder / f"boot-{number}"
    boot.write_text(f"00000000-0000-4000-8000-{number:012}\n")
    lease._BOOT = boot


def plant(name: str | None) -> None:
    """Build a fault in, for as long as this process lives."""
    for owner, attribute, what in BUGS[name]() if name else ():
        setattr(owner, attribute, what)
