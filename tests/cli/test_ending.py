"""Ctrl-C and SIGTERM while a call hangs: the host ends within five seconds, and the call's outcome stays unknown."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence

import pytest

from keepai.doors.host_process import END_S

from .conftest import Place, until

HANGS = '''
import asyncio
import time
from pathlib import Path

from keepai import Call, Connector, Verdict, mutation, read


class Slow(Connector):
    def __init__(self, how: str, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.how = how

    async def hang(self) -> None:
        if self.how == "blocks":
            time.sleep(600)
        if self.how == "in a thread":
            await asyncio.to_thread(time.sleep, 600)
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if self.how == "waits":
                    raise

    @read
    async def look(self, params: dict, call: Call) -> list:
        if self.how != "reads":
            return []
        with Path("began").open("a") as began:
            began.write("read\\n")
        self.how = "waits"
        await self.hang()

    @mutation(settle=0)
    async def send(self, params: dict, call: Call) -> None:
        with Path("began").open("a") as began:
            began.write("sent\\n")
        await self.hang()

    @send.reconcile
    async def find(self, params: dict, call: Call) -> Verdict:
        return Verdict.applied()
'''

CONSUMER = '''
export default Keep.workflow({
  name: "slow", topics: { in: {} },
  producers: { poll: { publishes: ["in"], schedule: { interval: "1h" }, handler: async (ctx) => {
    await ctx.slow.look({});
    const inputId = ctx.registerInput({ source: "system", type: "schedule", id: "one", title: "One" });
    await ctx.publish("in", { messageId: "one", inputId, payload: {} });
  } } },
  consumers: { act: Keep.consumer({ subscribe: ["in"], publishes: [],
    async prepare(ctx) {
      const [event] = await ctx.peek("in");
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: [event.messageId] }], data: {}, ui: { title: "One" } };
    },
    async mutate(ctx, prepared) { await ctx.slow.send({}); },
  }) },
});
'''

ROUTINE = '''
export default Keep.workflow({
  name: "slow", topics: {},
  routines: { all: { schedule: { interval: "1h" }, handler: async (ctx) => {
    await ctx.withItem("one", "One", async (ctx) => { if (!ctx.item.isDone) await ctx.slow.send({}); });
  } } },
});
'''


@pytest.fixture(autouse=True)
def other_connector() -> Iterator[None]:
    """The connector of one test is not that of another."""
    yield
    sys.modules.pop("slow", None)


def ended(place: Place, number: signal.Signals, command: Sequence[str], begun: int) -> tuple[int, str]:
    """A host that is told to end when so many calls have begun: its exit code, and what it said."""
    with place.spawn(*command) as host:
        try:
            until(lambda: calls(place) == begun or host.poll() is not None)
            host.send_signal(number)
            _, err = host.communicate(timeout=60)  # a call hangs for ten minutes
            return host.returncode, err
        finally:
            host.kill()


def calls(place: Place) -> int:
    """How many calls have begun so far."""
    file = place.folder / "began"
    return len(file.read_text().splitlines()) if file.exists() else 0


#: A busy machine may need longer than `END_S` for what ends in order.
IN_GOOD_TIME = "from keepai.doors import host_process\nhost_process.END_S = 60\n"


def slow(place: Place, how: str, flow: str = CONSUMER) -> None:
    (place.folder / "slow.py").write_text(HANGS if how == "blocks" else HANGS + IN_GOOD_TIME)
    (place.folder / "keep.toml").write_text(f'[connectors.slow]\ntype = "slow:Slow"\nhow = "{how}"\n')
    (place.folder / "flow.js").write_text(flow)


@pytest.mark.parametrize(("command", "how", "flow", "number"), [
    ("serve", "waits", CONSUMER, signal.SIGINT), ("serve", "stubborn", CONSUMER, signal.SIGTERM),
    ("serve", "in a thread", CONSUMER, signal.SIGINT), ("serve", "stubborn", ROUTINE, signal.SIGINT),
    ("serve", "reads", CONSUMER, signal.SIGTERM), ("dev", "blocks", CONSUMER, signal.SIGINT),
    ("dev", "waits", CONSUMER, signal.SIGTERM),
])
def test_a_host_with_a_hanging_call_ends_within_five_seconds(
    place: Place, command: str, how: str, flow: str, number: signal.Signals,
) -> None:
    slow(place, how, flow)
    place.type("deploy", "flow.js", "--grant", "all")
    code, err = ended(place, number, [command, *(["--no-ui"] if command == "dev" else [])], 1)
    assert END_S < 5, "after this much time the host ends whatever hangs; a busy machine may take longer"
    assert code == (130 if how == "blocks" else 0), err
    assert "Traceback" not in err
    if how == "reads":
        return
    place.type("dev", "--once")  # it asks what became of it, and sends nothing
    assert (place.folder / "began").read_text() == "sent\n"


def test_ending_during_a_hanging_read_three_times_is_no_crash(place: Place) -> None:
    slow(place, "reads")
    place.type("deploy", "flow.js", "--grant", "all")
    for times in range(1, 4):
        ended(place, signal.SIGTERM, ["serve"], times)
    assert place.json("todo") == []
    assert [each["status"] for each in place.json("runs", "slow")] == ["superseded"] * 3 + ["active"]
