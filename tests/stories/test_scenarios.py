"""Every way in which an answer can be lost × every way to ask for it × crashes × what people say.

The judge is the world: however it went, an effect took place at most once (twice only if a person said "it did not
happen" of what had happened), or a question stands open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest

from keepai import OutcomeUnknown, Policy
from keepai.model.errors import (
    ApprovalNeeded,
    BadValue,
    Conflict,
    HostFault,
    KeepError,
    LimitExceeded,
    NeedsAttention,
    NotFound,
    Refused,
    ScriptThrew,
)
from keepai.model.records import Escalation, Mutation
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.harness import SPECULATE, Story, consumer, producer, workflow

POLICY = Policy(call_s=0.05, reconcile_s=0.05, reconciles_max=3, retries_max=2)
ROUNDS = 12
RESOLUTIONS = ("try_again", "did_not_happen", "happened", "skip")


def acting(operation: str) -> str:
    """A workflow that makes one call per event."""
    call = {"gmail.send": "{ to: prepared.data.messageId }", "webhook.fire": "{ of: prepared.data.messageId }"}
    return workflow(producers={"poll": producer()}, consumers={
        "act": consumer(mutate=f"await ctx.{operation}({call[operation]});", next="ctx.log(mutationResult.status);")})


#: How the outside system answers when it is asked → whether it ever tells the truth.
RECONCILES: dict[str, bool] = {
    "cannot be asked": False, "tells": True, "cannot tell at first": True, "can never tell for now": False,
    "always raises": False, "raises at first": True, "hangs at first": True, "hangs for ever": False,
    "says that nobody knows": False,
}
FAULTS = ("lost", "timeout")
CRASHES = (None, "before:call", "after:call", "after:doubt")


def arrange(story: Story, fault: str, happens: bool, reconcile: str) -> str:
    """Script the world; gives the operation that the script calls."""
    operation = "webhook.fire" if reconcile == "cannot be asked" else "gmail.send"
    call, asked = story.world.on(operation), story.world.on_reconcile("gmail.send")
    if fault == "timeout":
        call.hang(applied=happens)
    elif happens:
        call.lose_answer()
    else:
        call.fail(OutcomeUnknown("The request was lost."))
    match reconcile:
        case "cannot tell at first":
            asked.retry(times=2)
        case "can never tell for now":
            asked.retry(times=None)
        case "always raises":
            asked.fail(ConnectionError("nobody there"), times=None)
        case "raises at first":
            asked.fail(RuntimeError("a bug"), times=2)
        case "hangs at first":
            asked.hang()
        case "hangs for ever":
            asked.hang(times=None)
        case "says that nobody knows":
            asked.unknown(times=None)
    return operation


async def lived(story: Story, operation: str, crash: str | None) -> str:
    """A host that runs into it, dies if it must, and then has all the time in the world."""
    story.feed.put("a")
    wf = await story.deploy(acting(operation))
    if crash:
        await story.crash(crash)
    await drain(story, wf)
    return wf


async def drain(story: Story, wf: str) -> None:
    """Let time pass until nothing more happens by itself."""
    for _ in range(ROUNDS):
        await story.run()
        run = await story.last(wf, "act")
        if run.state in ("committed", "abandoned") or run.retry_at is None:
            return
        story.clock.advance(ms=max(1, run.retry_at - story.clock.now_ms()))
    raise AssertionError(f"it never comes to rest: {run.status}")


def check_question(questions: list[Escalation], row: Mutation, operation: str) -> None:
    """One question, of the right kind, with everything that a person needs."""
    [question] = questions
    assert (question.kind, question.mutation_id, row.status) == ("unknown_outcome", row.id, "indeterminate")
    wanted = {"did_not_happen", "happened", "skip"} | ({"try_again"} if operation == "gmail.send" else set())
    assert wanted <= set(question.actions)
    assert question.facts["attempted"] == row.preview
    assert question.facts["why"]


@pytest.fixture
async def sandbox(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """One sandbox for all the hosts of a test: it takes longer to start than a scenario, and is not in question."""
    real = JavaScriptRuntime(workers_max=2, speculate=SPECULATE)

    class Lasting:
        run, load = staticmethod(real.run), staticmethod(real.load)

        async def close(self) -> None:
            """It outlives its host."""

    monkeypatch.setattr("keepai.app.JavaScriptRuntime", lambda **options: Lasting())
    yield
    await real.close()


@pytest.mark.parametrize("reconcile", RECONCILES)
@pytest.mark.parametrize("happens", [True, False], ids=["it happened", "it did not happen"])
async def test_whatever_is_lost_wherever_a_host_dies_and_whatever_a_person_answers(
    tmp_path: Path, sandbox: None, happens: bool, reconcile: str,
) -> None:
    # I2–I4, I6, I28, I31–I33, R242–R250, DESIGN 5, 6
    endings = (None,) if RECONCILES[reconcile] else RESOLUTIONS  # before each of them it is looked at as it rests
    for number, (fault, crash, ending) in enumerate(product(FAULTS, CRASHES, endings)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            async with Story(folder, policy=POLICY) as story:
                operation = arrange(story, fault, happens, reconcile)
                wf = await lived(story, operation, crash)
                await check_rest(story, wf, operation, tells=RECONCILES[reconcile])
                if ending:
                    await check_answered(story, wf, operation, ending)
        except BaseException as error:
            error.add_note(f"a request that is {fault}, crash at {crash}, answer {ending}")
            raise


async def check_rest(story: Story, wf: str, operation: str, *, tells: bool) -> None:
    """One effect and the ledger says so; or one at most, and a question stands open."""
    rows, questions = await story.keep.mutations(wf), await story.keep.needs_you(wf)
    assert len(story.world.effects) <= 1
    if not tells:
        check_question(questions, rows[-1], operation)
        assert story.world.count(operation) <= 1
        return
    assert questions == []
    assert (await story.last(wf, "act")).status == "committed"
    assert (await story.event(wf, "in", "a")).status == "consumed"
    assert len(story.world.effects) == 1
    assert [r.status for r in rows] == ["failed"] * (len(rows) - 1) + ["applied"]
    await check_refused(story, rows[-1])


async def check_answered(story: Story, wf: str, operation: str, answer: str) -> None:
    """What a person says counts once; nothing happens twice unless the person was wrong."""
    [row] = await story.keep.mutations(wf)
    before = len(story.world.effects)
    if answer == "try_again" and operation == "webhook.fire":
        with pytest.raises(Refused, match="no way to look up"):
            await story.keep.resolve(row.id, answer)
        return
    await story.keep.resolve(row.id, answer)
    await check_refused(story, row)
    story.world._plans.clear()  # from now on the world works and tells the truth
    await drain(story, wf)
    after, event = len(story.world.effects), await story.event(wf, "in", "a")
    assert await story.keep.needs_you(wf) == []
    assert (await story.last(wf, "act")).status == "committed"
    expected = {
        "try_again": (1, "consumed"), "happened": (before, "consumed"), "skip": (before, "skipped"),
        "did_not_happen": (before + 1, "consumed"),
    }[answer]
    assert (after, event.status) == expected


async def check_refused(story: Story, row: Mutation) -> None:
    """There is nothing to answer, or not any more."""
    for stale in (*RESOLUTIONS, "seen"):
        with pytest.raises(Refused):
            await story.keep.resolve(row.id, stale)


@pytest.mark.parametrize("answer", RESOLUTIONS)
async def test_an_answer_survives_a_crash_right_after_it(tmp_path: Path, answer: str) -> None:
    # R113: an act of a person is on disk when it is acknowledged
    async with Story(tmp_path, policy=POLICY) as story:
        operation = arrange(story, "lost", False, "says that nobody knows")
        wf = await lived(story, operation, None)
        [row] = await story.keep.mutations(wf)
        await story.keep.resolve(row.id, answer)
        story.world._plans.clear()
        points = {"try_again": "after:confirm_absent", "did_not_happen": "after:send"}
        await story.crash(points.get(answer, "before:commit_consumer"))
        await drain(story, wf)
        effects = 1 if answer in ("try_again", "did_not_happen") else 0
        assert len(story.world.effects) == effects
        assert (await story.last(wf, "act")).status == "committed"


# -- nothing that is unclassified is ever taken for "it did not happen" ----------------------------------------------


def _lookalike() -> type[Exception]:
    return type("Transient", (Exception,), {"code": "transient"})


UNCLASSIFIED: dict[str, BaseException] = {
    "cancelled": asyncio.CancelledError(), "memory": MemoryError(), "recursion": RecursionError("deep"),
    "assertion": AssertionError("no"), "stop async": StopAsyncIteration(),
    "unicode": UnicodeDecodeError("u", b"", 0, 1, "r"),
    "key": KeyError("x"), "type": TypeError("x"), "broken pipe": BrokenPipeError("x"), "eof": EOFError("x"),
    "refused connection": ConnectionRefusedError("x"), "permission of the system": PermissionError("x"),
    "no such file": FileNotFoundError("x"), "a lookalike of Transient": _lookalike()("it did not happen"),
    "a group of definite ones": ExceptionGroup("g", [OutcomeUnknown("x")]), "a plain KeepError": KeepError("x"),
    "a refused act": Refused("x"), "not found": NotFound("x"), "a host fault": HostFault("x"),
    "a conflict": Conflict("x"), "a limit": LimitExceeded("x"), "a bad value": BadValue("x"),
    "a script error": ScriptThrew("x"), "approval needed": ApprovalNeeded("x"), "attention": NeedsAttention("x"),
    "no text": Exception(), "not even text": Exception(object()), "bytes": Exception(b"\xff"),
    "surrogate": Exception("\ud800"),
}


@pytest.mark.parametrize("what", UNCLASSIFIED)
async def test_an_exception_that_says_nothing_definite_never_becomes_failed(tmp_path: Path, what: str) -> None:
    # I4, R206, R228: whatever it is called and whatever it says
    async with Story(tmp_path, policy=POLICY) as story:
        story.feed.put("a")
        story.world.on("webhook.fire").lose_answer(UNCLASSIFIED[what])
        wf = await story.deploy(acting("webhook.fire"))
        await drain(story, wf)
        await story.run(days=2)
        [row] = await story.keep.mutations(wf)
        assert row.status == "indeterminate"
        assert [q.kind for q in await story.keep.needs_you(wf)] == ["unknown_outcome"]
        assert len(story.world.effects) == 1


@pytest.mark.parametrize("crash", [None, "after:call"], ids=str)
async def test_a_request_that_lands_late_is_waited_for_as_long_as_it_may(tmp_path: Path, crash: str | None) -> None:
    # I4, I5, I33: "not found" proves nothing before settle has passed
    async with Story(tmp_path, policy=POLICY) as story:
        story.feed.put("a")
        story.world.on("gmail.send").apply_late()
        wf = await story.deploy(acting("gmail.send"))
        story.keep.parts.connectors["gmail"].operations["send"].__dict__["settle_s"] = 60
        if crash:
            await story.crash(crash)
            story.keep.parts.connectors["gmail"].operations["send"].__dict__["settle_s"] = 60
        await story.run()
        await story.run(seconds=30)
        assert [m.status for m in await story.keep.mutations(wf)] == ["needs_reconcile"]
        story.world.land()
        await drain(story, wf)
        assert len(story.world.effects) == 1
        assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]
