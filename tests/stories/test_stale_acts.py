"""Every act is judged against everything that its card showed: if any of it has moved, the act does nothing. I31.

Each act stands in a table with what its card showed. A second person, a deploy or Keep itself moves one of these
things, and the act with the old `shown` must be refused. The same act on a card that nothing has moved is accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keepai import Transient
from keepai.engine.commands import Commands
from keepai.ledger.transitions import mutations
from keepai.model.acts import ACTS
from keepai.model.errors import Refused
from tests.harness import NOTHING, Story, consumer, producer, workflow
from tests.routines import MAIL, ROW, guarded, routine
from tests.web import questions

LEAVING = workflow("flow", producers={"poll": producer()}, consumers={"act": consumer(NOTHING)})
TAKING = workflow("flow", producers={"poll": producer()}, consumers={"act": consumer(next="ctx.log(1);")})


class Scene(Story):
    """A story that has come to what a person looks at."""

    wf = ""
    subject = ""  #: what the act is done to
    shown = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, connectors=questions.connectors(), policy=questions.POLICY)

    @property
    def bob(self) -> Commands:
        """Somebody else's door."""
        return self.keep.commands

    async def see(self) -> None:
        """The page is read now."""
        self.shown = await self.keep.version()


Setting = Callable[[Scene], Awaitable[None]]
Move = Callable[[Scene], Awaitable[Any]]
Do = Callable[[Scene], Awaitable[Any]]


@dataclass(frozen=True)
class Case:
    """An act, on what, and everything whose move makes it stale."""

    setting: Setting
    do: Do
    moves: Mapping[str, Move]


# -- settings --------------------------------------------------------------------------------------------------


def card(kind: str, subject: str = "run_id") -> Setting:
    """A question of a kind; `subject` is the field of it that names what the act is done to."""

    async def setting(scene: Scene) -> None:
        scene.wf = await questions.ASKS[kind](scene)
        scene.clock.advance(minutes=2)  # nothing of a lost call can arrive any more
        [asked] = await scene.keep.needs_you()
        scene.subject, scene.shown = str(getattr(asked, subject, None) or asked.facts.get(subject)), asked.version

    return setting


async def workflow_page(scene: Scene) -> None:
    scene.wf = scene.subject = await scene.deploy(TAKING)
    await scene.run()
    await scene.see()


async def paused_page(scene: Scene) -> None:
    await workflow_page(scene)
    await scene.keep.pause(scene.wf)
    await scene.see()


async def waiting_event(scene: Scene) -> None:
    scene.feed.put("a", 1)
    scene.wf = await scene.deploy(LEAVING)
    await scene.run()
    scene.subject = (await scene.event(scene.wf, "in", "a")).id
    await scene.see()


async def waiting_input(scene: Scene) -> None:
    await waiting_event(scene)
    scene.subject = (await scene.inputs(scene.wf))["a"].id


async def ended_event(scene: Scene) -> None:
    scene.feed.put("a", 1)
    scene.wf = await scene.deploy(TAKING)
    await scene.run()
    scene.subject = (await scene.event(scene.wf, "in", "a")).id
    await scene.see()


async def contradicted_failure(scene: Scene) -> None:
    """What is on record as not done may have happened, and it will be sent again."""
    scene.world.on("gmail.send").fail(Transient("busy"))
    scene.wf = await questions.asked(scene, questions.acting("again"))
    [row] = await scene.keep.mutations(scene.wf)
    late = mutations.LateEvidence('{"found":"late"}', happened=True)
    await scene.keep.parts.ledger.write(mutations.hear, row.id, late)
    [asked] = await scene.keep.needs_you()
    scene.subject, scene.shown = row.id, asked.version


async def proposed(scene: Scene) -> None:
    """A script that waits for a person."""
    scene.subject = (await scene.keep.propose(TAKING, why="Ann wants it")).id
    await scene.see()


async def left_item(scene: Scene) -> None:
    """An item was begun, nothing of it was applied, and its routine does not come to it any more."""
    scene.feed.put("a", "x")
    scene.world.on("sheets.appendRow").fail(Transient("busy"))
    scene.wf = await scene.deploy(routine(guarded(ROW, MAIL)))
    await _ends_without(scene)
    [asked] = await scene.keep.needs_you()
    scene.subject, scene.shown = str(asked.facts["item_id"]), asked.version


async def left_input(scene: Scene) -> None:
    await left_item(scene)
    [item] = await scene.keep.items(scene.wf)
    scene.subject = item.input_id


async def _ends_without(scene: Scene) -> None:
    """The routine stops inside the item, and when it is tried again the item is no longer in its list."""
    await scene.run()
    scene.feed.items = []
    await scene.run(seconds=30)


# -- moves -----------------------------------------------------------------------------------------------------


async def deployed(scene: Scene) -> None:
    """Another version is active; nothing has run since."""
    row, parts = await scene.bob._workflow(scene.wf), scene.keep.parts
    text = (await parts.ledger.look(parts.script, scene.wf, (row["major"], row["minor"]))).source
    await scene.keep.deploy(text + "// a change\n", workflow_id=scene.wf)


async def paused(scene: Scene) -> None:
    await scene.bob.pause(scene.wf, "bob")


async def resumed_and_paused(scene: Scene) -> None:
    await scene.bob.resume(scene.wf, "bob")
    await scene.bob.pause(scene.wf, "bob")


def permission(capability: str, mode: str) -> Move:
    return lambda scene: scene.bob.grant(scene.wf, capability, mode, "bob")


async def retried(scene: Scene) -> None:
    """The run that asked was tried again, and what carries it on asks the same."""
    [asked] = await scene.keep.needs_you()
    await scene.bob.retry(asked.run_id, "bob")
    await scene.run()


async def asked_about_another_content(scene: Scene) -> None:
    await scene.deploy(questions._filing("attention", "Dear Roberta"), workflow_id=scene.wf)
    await scene.run()


async def expired(scene: Scene) -> None:
    await scene.run(days=1)


async def signed(scene: Scene) -> None:
    """The outside system said something more about the mutation."""
    row = (await scene.keep.mutations(scene.wf))[-1]
    late = mutations.LateEvidence('{"seen":"late"}', happened=True)
    await scene.keep.parts.ledger.write(mutations.hear, row.id, late)


async def looked_up_again(scene: Scene) -> None:
    scene.world.on_reconcile("gmail.send").unknown()
    row = (await scene.keep.mutations(scene.wf))[-1]
    await scene.bob.resolve(row.id, "try_again", None, "bob")
    await scene.run()


async def sent_again(scene: Scene) -> None:
    """The same thing was sent once more, and happened: it may have happened twice by now."""
    await scene.run(seconds=30)
    assert [m.status for m in await scene.keep.mutations(scene.wf)] == ["failed", "applied"]


async def republished(scene: Scene) -> None:
    """The producer published another payload under the same messageId."""
    scene.feed.put("a", 2)
    await scene.run(minutes=5)


async def taken(scene: Scene) -> None:
    """A consumer took it: it is done."""
    await scene.deploy(TAKING)
    await scene.run()
    assert (await scene.inputs(scene.wf))["a"].status == "done"


async def event_skipped(scene: Scene) -> None:
    await scene.bob.skip_event((await scene.event(scene.wf, "in", "a")).id, "bob")


async def reprocessed(scene: Scene) -> None:
    """Somebody had it processed once more, and it ended as before."""
    await scene.bob.reprocess(scene.subject, "bob")
    await scene.run()


async def worked_on(scene: Scene) -> None:
    """The routine came to the item once more, applied a part of it, and left it again."""
    scene.feed.put("a", "x")
    scene.world.on("gmail.send").fail(Transient("busy"))
    scene.clock.advance(minutes=5)
    await _ends_without(scene)
    [item] = await scene.keep.items(scene.wf)
    assert (item.status, [m.status for m in await scene.keep.mutations(scene.wf)]) == (
        "failed", ["failed", "applied", "failed"])


async def item_skipped(scene: Scene) -> None:
    [item] = await scene.keep.items(scene.wf)
    await scene.bob.skip_input(item.input_id, "bob")


async def certified(scene: Scene) -> None:
    await scene.certified(TAKING)


async def deployed_by_hand(scene: Scene) -> None:
    await scene.deploy(LEAVING)


# -- the table -------------------------------------------------------------------------------------------------


def on(act: str, *more: Any) -> Do:
    """The act on the scene's subject, with what was shown."""
    return lambda scene: getattr(scene.keep, act)(scene.subject, *more, shown=scene.shown)


def resolve(answer: str) -> Do:
    return lambda scene: scene.keep.resolve(scene.subject, answer, shown=scene.shown)


WORKFLOW: dict[str, Move] = {"deployed": deployed, "paused": paused}
DOUBT: dict[str, Move] = {**WORKFLOW, "signed": signed, "looked up again": looked_up_again}
HELD: dict[str, Move] = {
    **WORKFLOW, "denied": permission("gmail.send", "deny"), "expired": expired,
}
LACKING: dict[str, Move] = {
    **WORKFLOW, "denied": permission("sheets.appendRow", "deny"), "retried": retried,
}
STOPPED: dict[str, Move] = {**WORKFLOW, "retried": retried}
INPUT: dict[str, Move] = {
    "taken": taken, "its event was skipped": event_skipped, "republished": republished,
}
PROPOSED: dict[str, Move] = {"shown anew": certified, "deployed by hand": deployed_by_hand}
ITEM: dict[str, Move] = {"worked on": worked_on, "skipped": item_skipped}

TABLE: dict[str, Case] = {
    "pause": Case(workflow_page, on("pause"), {**WORKFLOW}),
    "resume": Case(paused_page, on("resume"), {"deployed": deployed, "resumed and paused": resumed_and_paused}),
    "stop": Case(workflow_page, on("stop"), WORKFLOW),
    "set": Case(workflow_page, on("set", "others"), WORKFLOW),
    "run_now": Case(workflow_page, on("run_now"), WORKFLOW),
    "send": Case(
        workflow_page, lambda scene: scene.keep.send(f"{scene.subject}/in", 1, shown=scene.shown), WORKFLOW),
    "grant": Case(
        card("permission", "workflow_id"), on("grant", "sheets.appendRow"),
        {**LACKING},
    ),
    "retry": Case(card("permission"), on("retry"), LACKING),
    "skip_run": Case(card("permission"), on("skip_run"), LACKING),
    "retry what failed": Case(card("logic"), on("retry"), STOPPED),
    "skip_run what failed": Case(card("logic"), on("skip_run"), STOPPED),
    "finish": Case(card("logic_after"), on("finish"), STOPPED),
    "approve": Case(card("approval", "id"), on("approve"), HELD),
    "reject": Case(card("approval", "id"), on("reject"), HELD),
    "skip_run what is held": Case(card("approval"), on("skip_run"), HELD),
    "approve a repair": Case(card("repair", "id"), on("approve"), STOPPED),
    "reject a repair": Case(card("repair", "id"), on("reject"), STOPPED),
    "try_again": Case(card("unknown_looked_up", "mutation_id"), resolve("try_again"), DOUBT),
    "did_not_happen": Case(card("unknown_looked_up", "mutation_id"), resolve("did_not_happen"), DOUBT),
    "happened": Case(card("unknown_looked_up", "mutation_id"), resolve("happened"), DOUBT),
    "skip": Case(card("unknown_looked_up", "mutation_id"), resolve("skip"), DOUBT),
    "keep": Case(card("attention", "mutation_id"), resolve("keep"), {
        **STOPPED, "another content": asked_about_another_content}),
    "skip_run what differs": Case(card("attention"), on("skip_run"), {
        **STOPPED, "another content": asked_about_another_content}),
    "seen": Case(contradicted_failure, resolve("seen"), {"signed": signed, "sent again": sent_again}),
    "skip_event": Case(waiting_event, on("skip_event"), {
        "republished": republished, "taken": taken, "skipped": event_skipped}),
    "reprocess": Case(ended_event, on("reprocess"), {"republished": republished, "reprocessed": reprocessed}),
    "skip_input": Case(waiting_input, on("skip_input"), INPUT),
    "reprocess an item": Case(left_item, on("reprocess"), ITEM),
    "decline": Case(proposed, on("decline"), PROPOSED),
    "withdraw": Case(proposed, on("withdraw"), PROPOSED),
    "skip_input of an item": Case(left_input, on("skip_input"), ITEM),
}


@pytest.mark.parametrize(("act", "moved"), [(act, moved) for act, case in TABLE.items() for moved in case.moves])
async def test_an_act_is_refused_if_something_that_its_card_showed_has_moved(
    tmp_path: Path, act: str, moved: str,
) -> None:
    case = TABLE[act]
    async with Scene(tmp_path) as scene:
        await case.setting(scene)
        await case.moves[moved](scene)
        before = await scene.keep.version()
        with pytest.raises(Refused, match="has moved since version"):
            await case.do(scene)
        assert await scene.keep.version() == before, "what is refused leaves nothing behind"


@pytest.mark.parametrize("act", TABLE)
async def test_the_same_act_is_accepted_if_nothing_has_moved(tmp_path: Path, act: str) -> None:
    async with Scene(tmp_path) as scene:
        await TABLE[act].setting(scene)
        await scene.reopen()  # another host and more time change nothing that was shown
        await TABLE[act].do(scene)


def test_every_act_that_says_what_was_shown_is_in_the_table() -> None:
    wanted = {name for name, act in ACTS.items() if "shown" in act.params} - {"resolve"}
    wanted -= {"accept"}  # it names a digest of all that was shown: test_proposals.py
    assert wanted == {name.partition(" ")[0] for name in TABLE}


@pytest.mark.parametrize("said", ["approve", "reject"])
async def test_an_answer_to_a_call_of_a_version_that_is_no_longer_active_is_refused_with_the_reason(
    tmp_path: Path, said: str,
) -> None:
    # also without `shown`: the run goes on under the new version, so nothing would come of the answer
    async with Scene(tmp_path) as scene:
        await card("approval", "id")(scene)
        await deployed(scene)
        with pytest.raises(Refused, match="no longer fits: since it was asked, another version was deployed"):
            await getattr(scene.keep, said)(scene.subject)
        await scene.run()
        [asked] = await scene.keep.needs_you()
        assert asked.id != scene.subject, "the new version asks for itself"
        await getattr(scene.keep, said)(asked.id, shown=asked.version)
        await scene.run()
        assert len(scene.world.effects) == (1 if said == "approve" else 0)


async def test_a_deploy_that_overtakes_an_approval_leaves_it_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the deploy is committed after the act was looked at, and before it is written
    async with Scene(tmp_path) as scene:
        await card("approval", "id")(scene)
        seen = await scene.bob._to_decide(scene.subject)
        await deployed(scene)

        async def seen_before(self: Commands, id: str) -> Any:
            return seen

        monkeypatch.setattr(Commands, "_to_decide", seen_before)
        with pytest.raises(Refused, match=r"version 2\.0 was deployed since it was asked"):
            await scene.keep.approve(scene.subject)
