"""Connectors that stall, cancel themselves or change their account; people and versions that come in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from keepai import Call, Connector, Keep, OutcomeUnknown, Policy, Transient, Verdict, mutation, read
from keepai.engine.repair import Evidence
from keepai.model.errors import LedgerUnusable, NotFound
from keepai.testing import ManualClock
from tests.ledger.stores import place_in

SCRIPT = """
export default Keep.workflow({
  name: "hard",
  topics: { "in": {} },
  producers: {
    poll: {
      publishes: ["in"], schedule: { interval: "1h" },
      handler: async (ctx) => {
        const inputId = ctx.registerInput({ source: "desk", type: "thing", id: "1", title: "Thing 1" });
        await ctx.publish("in", { messageId: "1", inputId, payload: {} });
      },
    },
  },
  consumers: {
    act: Keep.consumer({
      subscribe: ["in"], publishes: [],
      async prepare(ctx) {
        await ctx.desk.look({});
        const [event] = await ctx.peek("in");
        const wakeAt = "2026-01-05T10:00:00Z";
        if (!event) return { reservations: [], data: {}, wakeAt };
        const reservations = [{ topic: "in", ids: [event.messageId] }];
        return { reservations, data: { v: "VERSION" }, ui: { title: "Act" }, wakeAt };
      },
      async mutate(ctx, prepared) { await ctx.desk.send({ to: "x", v: prepared.data.v }); },
    }),
  },
});
"""


class Desk(Connector):
    """An outside system whose every move a test decides."""

    input_types = ("thing",)

    def __init__(self, account: str = "") -> None:
        super().__init__(name="desk")
        self.account = account
        self.sent: list[str] = []
        self.looks = self.asked = 0
        self.on_look: Callable[[], Awaitable[None]] | None = None
        self.on_send: Callable[[], Awaitable[None]] | None = None
        self.verdict: Callable[[], Awaitable[Verdict]] | None = None

    @read
    async def look(self, params, call: Call):  # type: ignore[no-untyped-def]
        self.looks += 1
        if self.on_look:
            await self.on_look()
        return {}

    @mutation(identity=("to",), target="to", settle=1)
    async def send(self, params, call: Call):  # type: ignore[no-untyped-def]
        assert call.lock_fd is not None
        if self.on_send:
            await self.on_send()
        self.sent.append(params["v"])
        return {"n": len(self.sent)}

    @send.reconcile
    async def find(self, params, call: Call) -> Verdict:  # type: ignore[no-untyped-def]
        self.asked += 1
        return await self.verdict() if self.verdict else Verdict.failed()


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        raise error
    return act


async def stubborn(release: asyncio.Event) -> None:
    """Ends only when it is let, whatever it is told."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


class Hard:
    """One workflow on one desk."""

    def __init__(self, folder: Path, desk: Desk | None = None, **more: object) -> None:
        self.desk, self.clock, self.path = desk or Desk(), ManualClock("2026-01-05T09:00:00Z"), place_in(folder)
        self.more = {"policy": Policy(call_s=0.3, reconcile_s=0.3), **more}
        self.keep = self.open(self.desk)
        self.wf = ""
        self.release = asyncio.Event()  # lets whatever is stubborn end, at the latest with the test

    def open(self, desk: Desk) -> Keep:
        return Keep(self.path, connectors=[desk], clock=self.clock, **self.more)  # type: ignore[arg-type]

    async def __aenter__(self) -> Hard:
        await self.keep.__aenter__()
        self.wf = (await self.deploy("one", grants="all")).workflow_id
        return self

    async def __aexit__(self, *error: object) -> None:
        self.release.set()
        await self.keep.close()

    async def deploy(self, version: str, **more: object):  # type: ignore[no-untyped-def]
        return await self.keep.deploy(SCRIPT.replace("VERSION", version), **more)  # type: ignore[arg-type]

    async def run(self, **passed: int) -> str:
        self.clock.advance(**passed)
        await asyncio.wait_for(self.keep.run_until_idle(), 20)
        return (await self.keep.runs(self.wf))[-1].status

    async def last(self):  # type: ignore[no-untyped-def]
        return [r for r in await self.keep.runs(self.wf) if r.handler == "act"][-1]


@pytest.mark.sqlite("a file has one host; a database has several")
async def test_a_call_that_is_cut_off_keeps_the_lock_until_it_has_ended(tmp_path: Path) -> None:
    sending = asyncio.Event()

    async def send() -> None:
        sending.set()
        await stubborn(hard.release)

    async with Hard(tmp_path, policy=Policy(call_s=20, script_s=0.1)) as hard:
        hard.desk.on_send = send
        running = asyncio.create_task(hard.keep.run_until_idle())
        await sending.wait()
        hard.keep.host._parts.policy = Policy(call_s=0.05, script_s=0.05)  # type: ignore[misc]
        [lane] = hard.keep.host._lanes.values()
        lane.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await hard.keep.close()
        with pytest.raises(LedgerUnusable, match="in use by process"):
            await hard.open(Desk()).__aenter__()


async def test_a_call_that_goes_on_after_its_run_was_cut_off_is_not_closed(tmp_path: Path) -> None:
    # I5: "it is not there" proves nothing until the call itself has ended
    sending = asyncio.Event()

    async def send() -> None:
        sending.set()
        await stubborn(hard.release)

    async with Hard(tmp_path, policy=Policy(call_s=20, reconciles_max=99)) as hard:
        hard.desk.on_send = send
        running = asyncio.create_task(hard.keep.run_until_idle())
        await asyncio.wait_for(sending.wait(), 60)
        [lane] = hard.keep.host._lanes.values()
        lane.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for _ in range(3):
            assert await hard.run(hours=1) == "paused:reconciliation"
        [sent] = await hard.keep.mutations(hard.wf)
        assert (sent.status, sent.closed_at) == ("needs_reconcile", None)
        assert hard.desk.asked > 1, "the outside system was asked, and said that it is not there"
        hard.release.set()
        assert await hard.run(hours=1) == "committed"
        assert [m.status for m in await hard.keep.mutations(hard.wf)] == ["applied"]
        assert hard.desk.sent == ["one"], "the call ended well, late; nothing was sent again meanwhile"


async def test_an_outcome_is_never_looked_up_in_another_account(tmp_path: Path) -> None:
    async with Hard(tmp_path, Desk("ann")) as hard:
        hard.desk.on_send = raising(OutcomeUnknown("lost"))
        hard.desk.verdict = _retry
        await hard.run()
    other = Desk("bob")
    async with hard.open(other) as keep:
        hard.keep = keep
        await hard.run(hours=2)
        assert (other.asked, other.sent) == (0, [])
        [asked] = await keep.needs_you()
        assert (asked.kind, "account" in str(asked.facts["why"])) == ("unknown_outcome", True)


async def _retry() -> Verdict:
    return Verdict.retry()


async def test_an_approved_call_of_an_older_version_is_not_sent(tmp_path: Path) -> None:
    async with Hard(tmp_path) as hard:
        await hard.keep.grant(hard.wf, "desk.send", "ask")
        await hard.run()
        [asked] = await hard.keep.needs_you()
        await hard.keep.approve(asked.id)
        await hard.deploy("two")
        await hard.run()
        assert hard.desk.sent == []
        [again] = await hard.keep.needs_you()
        assert again.facts["params"] == {"to": "x", "v": "two"}
        await hard.keep.approve(again.id)
        await hard.run()
        assert hard.desk.sent == ["two"]


async def test_a_denial_given_while_a_run_is_under_way_counts(tmp_path: Path) -> None:
    async with Hard(tmp_path) as hard:
        hard.desk.on_look = lambda: hard.keep.grant(hard.wf, "desk.send", "deny")
        assert await hard.run() == "paused:approval"
        assert hard.desk.sent == []


async def test_a_slip_in_a_grant_is_not_silent(tmp_path: Path) -> None:
    async with Hard(tmp_path) as hard:
        with pytest.raises(NotFound, match=r"desk\.sendd"):
            await hard.deploy("two", grants={"desk.sendd": "deny"})


async def test_a_wake_up_survives_a_new_version(tmp_path: Path) -> None:
    async with Hard(tmp_path) as hard:
        await hard.run()
        hard.clock.advance(minutes=55)
        await hard.deploy("two")
        await hard.run()
        looks = hard.desk.looks
        await hard.run(minutes=4)
        assert hard.desk.looks == looks, "nothing waits, and it is not yet ten o'clock"
        await hard.run(minutes=2)
        assert hard.desk.looks == looks + 1


@pytest.mark.parametrize("error", [
    Transient("busy", retry_after="30"), Transient("busy", retry_after="soon"), Transient("bad \udcff text"),  # type: ignore[arg-type]
], ids=["a header's text", "no number", "a lone surrogate"])
async def test_what_a_connector_says_badly_still_means_later(tmp_path: Path, error: Transient) -> None:
    async with Hard(tmp_path) as hard:
        hard.desk.on_look = raising(error)
        assert await hard.run() == "paused:transient"
        hard.desk.on_look = None
        await hard.run(seconds=31)
        assert hard.desk.sent == ["one"]


async def test_a_read_that_cancels_itself_is_a_fault_and_not_a_silence(tmp_path: Path) -> None:
    async with Hard(tmp_path) as hard:
        hard.desk.on_look = raising(asyncio.CancelledError())
        assert await hard.run() == "failed:internal"


async def test_a_read_that_will_not_end_is_left_behind(tmp_path: Path) -> None:
    async with Hard(tmp_path) as hard:
        hard.desk.on_look = lambda: stubborn(hard.release)
        assert await hard.run() == "paused:transient"


@pytest.mark.parametrize("kind", ["stubborn", "cancels itself", "a bad number"])
async def test_a_reconcile_that_misbehaves_is_asked_again_later_and_not_at_once(tmp_path: Path, kind: str) -> None:
    async def verdict() -> Verdict:
        if kind == "stubborn":
            await stubborn(hard.release)
        if kind == "cancels itself":
            raise asyncio.CancelledError
        return Verdict.retry(after="soon")  # type: ignore[arg-type]

    async with Hard(tmp_path) as hard:
        hard.desk.on_send, hard.desk.verdict = raising(RuntimeError("lost")), verdict
        assert await hard.run() == "paused:reconciliation"
        assert hard.desk.asked == 1


async def test_an_answer_that_comes_while_the_call_is_being_given_up_counts(tmp_path: Path) -> None:
    async def late() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    async with Hard(tmp_path) as hard:
        hard.desk.on_send = late
        assert await hard.run() == "committed"
        assert [m.status for m in await hard.keep.mutations(hard.wf)] == ["applied"]


async def test_skipping_a_prepare_that_fails_does_not_start_it_at_once(tmp_path: Path) -> None:
    async with Hard(tmp_path) as hard:
        hard.desk.on_look = raising(RuntimeError("bug"))
        await hard.run()
        await hard.keep.skip_run((await hard.last()).id)
        looks = hard.desk.looks
        await hard.run()
        assert hard.desk.looks == looks
        await hard.run(hours=1)
        assert hard.desk.looks > looks


async def test_a_repair_does_not_overwrite_what_a_person_deployed_meanwhile(tmp_path: Path) -> None:
    hard = Hard(tmp_path)

    async def hook(evidence: Evidence) -> str:
        await hard.deploy("three")
        return SCRIPT.replace("VERSION", "two")

    hard.more["repair"] = hook
    hard.keep = hard.open(hard.desk)
    async with hard:
        await hard.keep.deploy(SCRIPT.replace("const [event]", "throw new Error('bug'); const [event]"))
        await hard.run()
        [workflow] = await hard.keep.workflows()
        assert (workflow.version, hard.desk.sent) == ("3.0", ["three"])


async def test_a_hook_that_answers_with_something_else_has_nothing_to_offer(tmp_path: Path) -> None:
    async def hook(evidence: Evidence) -> object:
        return {"source": "…"}

    async with Hard(tmp_path, repair=hook) as hard:
        await hard.keep.deploy(SCRIPT.replace("const [event]", "throw new Error('bug'); const [event]"))
        assert await hard.run() == "failed:logic"
        assert [q.kind for q in await hard.keep.needs_you()] == ["logic"]
        await hard.keep.approve(await hard.keep.fix(hard.wf, SCRIPT))
        await hard.run()
        assert hard.desk.sent == ["VERSION"]
