"""Results that nobody can use: one that a look-up found in the wrong shape, and one that is too large for `next`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest

from keepai import Call, Connector, OutcomeUnknown, Policy, Verdict, mutation
from tests.harness import Story, consumer, producer, workflow
from tests.routines import each, items, routine


class Sent(TypedDict):
    id: str


class Post(Connector):
    """`ctx.post.send` says what it returns; the look-up gives what the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.lost = 0, 1
        self.found: Any = Verdict.failed()
        self.result: Any = {"id": "1"}

    @mutation(settle=0)
    async def send(self, params: dict[str, Any], call: Call) -> Sent:
        """Send; the first answers are lost."""
        self.sent += 1
        if self.sent <= self.lost:
            raise OutcomeUnknown("lost")
        return self.result  # type: ignore[no-any-return]

    @send.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """What the test says."""
        return self.found  # type: ignore[no-any-return]


SEND = "await ctx.post.send({ to: 'x' });"


def acting() -> str:
    """A consumer that sends, and keeps what `next` was given."""
    return workflow(producers={"poll": producer(interval="7d")}, consumers={
        "act": consumer(mutate=SEND, next="return mutationResult;")})


WRONG = {
    "another shape": ({"number": 7}, '"number":7'),
    "another type": ("ok", '"ok"'),
    "nothing": (None, "null"),
    "no JSON": ({"id": float("nan")}, "nan"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_found_result_of_the_wrong_shape_is_evidence_and_no_result(tmp_path: Path, what: str) -> None:
    # R216, R217: `next` is not handed what the connector did not declare; a person sees what was found
    post, (result, shown) = Post(), WRONG[what]
    post.found = Verdict.applied(result)
    async with Story(tmp_path, connectors=[post], policy=Policy(reconciles_max=3)) as story:
        wf = await story.deploy_and_run(acting(), "a")
        [row] = await story.keep.mutations(wf)
        run = await story.last(wf)
        assert (row.status, row.result, run.status) == ("needs_reconcile", None, "paused:reconciliation")
        assert row.error is not None
        assert "did not declare" in row.error.message
        assert row.evidence is not None
        assert shown in row.evidence
        assert any("post.send" in text for text in story.warnings(run))
        for _ in range(3):
            await story.run(hours=1)
        [asked] = await story.keep.needs_you(wf)
        assert asked.kind == "unknown_outcome"
        [found] = asked.facts["late_evidence"]  # kept once, however often it was found
        assert "it is there" in str(found)
        await story.keep.resolve(row.id, "happened", result={"id": "by hand"})
        await story.run()
        assert await story.keep.state(wf, "act") == {"status": "applied", "result": {"id": "by hand"}}
        assert post.sent == 1


async def test_a_later_lookup_may_give_the_result_in_its_shape(tmp_path: Path) -> None:
    post = Post()
    post.found = Verdict.applied({"number": 7})
    async with Story(tmp_path, connectors=[post]) as story:
        wf = await story.deploy_and_run(acting(), "a")
        post.found = Verdict.applied({"id": "7"})
        await story.run(minutes=1)
        assert await story.keep.state(wf, "act") == {"status": "applied", "result": {"id": "7"}}
        assert post.sent == 1


async def test_what_was_found_once_is_not_sent_again_because_a_later_lookup_misses_it(tmp_path: Path) -> None:
    # I2, I4: two answers that contradict each other prove nothing
    post = Post()
    post.found = Verdict.applied({"number": 7})
    async with Story(tmp_path, connectors=[post]) as story:
        wf = await story.deploy_and_run(acting(), "a")
        post.found = Verdict.failed()
        await story.run(minutes=1)
        await story.run(days=1)
        [row] = await story.keep.mutations(wf)
        assert (row.status, post.sent) == ("indeterminate", 1)
        [asked] = await story.keep.needs_you(wf)
        assert asked.kind == "unknown_outcome"


@pytest.mark.parametrize("lost", [0, 1], ids=["answered", "found by a look-up"])
async def test_a_result_too_large_for_next_is_the_connectors_fault(tmp_path: Path, lost: int) -> None:
    # R300: no script can mend it; what happened stays on record
    post = Post()
    post.lost, post.result = lost, {"id": "x" * 200_000}
    post.found = Verdict.applied(post.result)
    async with Story(tmp_path, connectors=[post], policy=Policy(message_bytes_max=100_000)) as story:
        wf = await story.deploy_and_run(acting(), "a")
        run = await story.last(wf)
        assert (run.status, run.phase) == ("failed:internal", "emitting")
        assert run.error is not None
        assert run.error.code == "connector_broke"
        assert "post.send" in run.error.message
        assert "100,000" in run.error.message
        assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]
        await story.keep.finish(run.id)
        await story.run(days=1)
        assert (post.sent, await story.ids(wf, status="consumed")) == (1, ["a"])


async def test_a_result_too_large_for_a_routine_is_the_connectors_fault_as_well(tmp_path: Path) -> None:
    post = Post()
    post.lost, post.result = 0, {"id": "x" * 200_000}
    async with Story(tmp_path, connectors=[post], policy=Policy(message_bytes_max=100_000)) as story:
        wf = await story.deploy_and_run(routine(each("if (ctx.item.isDone) return;" + SEND)), "a")
        run = await story.last(wf)
        assert (run.status, await items(story, wf)) == ("failed:internal", {"a": "failed"})
        assert run.error is not None
        assert "post.send" in run.error.message
        await story.keep.retry(run.id)
        await story.run()
        assert post.sent == 1, "it happened, and does not happen again"
