"""What a program proposes goes live only if a person accepts exactly what was shown, and only once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from keepai import ScriptInvalid
from keepai.ledger.account import walk
from keepai.ledger.checks import check
from keepai.model.errors import ConfigError, NotFound, Refused
from keepai.model.principals import HOST, MAINTAINER, PLANNER, Principal, PrincipalKind, Role
from keepai.model.records import Proposal
from keepai.reading.proposal_card import proposal_card
from tests.harness import Story, acting

pytestmark = pytest.mark.both_stores

FIRST = acting()
SECOND = acting(before="ctx.log('newer');")
CASES = '[[case]]\nname = "one"\n'


CLAUDE = Principal(PrincipalKind.AGENT, "claude", Role.PROPOSE)
OTHER = Principal(PrincipalKind.AGENT, "other", Role.PROPOSE)


async def proposed(story: Story, source: str = FIRST, by: Principal = CLAUDE, **more: Any) -> Proposal:
    return await story.keep.acting_as(by).propose(source, **{"why": "Ann wants it", **more})


async def now(story: Story, id: str) -> Proposal:
    return next(each for each in await story.keep.proposals() if each.id == id)


async def modes(story: Story, wf: str) -> dict[str, str]:
    return {r["capability"]: r["mode"] for r in await story.keep.parts.ledger.all("grant_all", workflow_id=wf)}


async def test_nothing_of_a_proposal_runs_until_a_person_accepts_it(story: Story) -> None:
    made = await proposed(story)
    story.feed.put("a")
    await story.run(minutes=10)
    assert await story.keep.workflows() == []
    done = await story.keep.accept(made.id, shown=made.digest)
    assert (done.version, done.changed, (await now(story, made.id)).status) == ("1.0", True, "accepted")
    await story.run()
    assert [each.title for each in await story.keep.inputs(done.workflow_id)] == ["Item a"]


async def test_every_mutation_asks_and_reads_are_allowed_unless_the_person_says_otherwise(story: Story) -> None:
    made = await proposed(story, grants="all")
    assert made.wanted["gmail.send"] == {"mode": "allow"}
    wf = (await story.keep.accept(made.id, shown=made.digest)).workflow_id
    assert await modes(story, wf) == {"feed.list": "allow", "gmail.send": "ask"}
    made = await proposed(story, SECOND, grants="all")
    await story.keep.accept(made.id, shown=made.digest, grants={"gmail.send": "allow"})
    assert (await modes(story, wf))["gmail.send"] == "allow"


async def test_a_mutation_that_was_allowed_asks_again_unless_the_person_keeps_its_rule(story: Story) -> None:
    wf = await story.deploy(FIRST)
    await story.keep.grant(wf, "gmail.send", {"mode": "allow", "per_day": 5})
    made = await proposed(story, SECOND)
    await story.keep.accept(made.id, shown=made.digest, grants={"gmail.send": "keep"})
    rule = (await story.keep.parts.ledger.all("grant_all", workflow_id=wf))[-1]["rule"]
    assert rule == '{"mode":"allow","per_day":5}'
    made = await proposed(story, FIRST)
    await story.keep.accept(made.id, shown=made.digest)
    rule = (await story.keep.parts.ledger.all("grant_all", workflow_id=wf))[-1]["rule"]
    assert rule == '{"mode":"ask","per_day":5}'


async def test_what_was_refused_stays_refused(story: Story) -> None:
    wf = await story.deploy(FIRST)
    await story.keep.grant(wf, "gmail.send", "deny")
    made = await proposed(story, SECOND, grants="all")
    await story.keep.accept(made.id, shown=made.digest)
    assert (await modes(story, wf))["gmail.send"] == "deny"


@pytest.mark.parametrize("grants", [{"sheets.appendRow": "allow"}, {"gmail.send": "keep"}])
async def test_a_person_can_grant_only_what_is_there(story: Story, grants: dict[str, Any]) -> None:
    made = await proposed(story)
    with pytest.raises(ConfigError):
        await story.keep.accept(made.id, shown=made.digest, grants=grants)
    assert (await now(story, made.id)).status == "waiting"


async def test_a_new_version_is_proposed_with_what_it_does_to_what_is_open(story: Story) -> None:
    await story.deploy_and_run(FIRST, "a", "b", grants={"feed.list": "allow", "gmail.send": "ask"})
    made = await proposed(story, SECOND)
    card = proposal_card(story.reader(), made, made.created_at)
    assert "Of what is open, void: 1 approval; starts again: 1 event, 1 run; waits: 1 event" in card.proof
    assert "1 approval would become void, without an answer." in card.warnings
    assert "Item a" not in json.dumps(made.facts["verdict"]), "what is worked on is not kept for longer than that"


BO = Principal.person("bo", Role.OPERATOR)


@pytest.mark.parametrize("who", [CLAUDE, OTHER, PLANNER, MAINTAINER, HOST, BO], ids=str)
async def test_only_an_owner_accepts_a_proposal(story: Story, who: Principal) -> None:
    made = await proposed(story)
    with pytest.raises(NotFound, match="There is no act 'accept' for"):
        await story.keep.acting_as(who).accept(made.id, shown=made.digest)
    assert await story.keep.workflows() == []


async def test_a_person_may_accept_what_they_proposed(story: Story) -> None:
    made = await proposed(story, by=Principal.person("ann"))
    ann = story.keep.acting_as(Principal.person("ann"))
    assert (await ann.accept(made.id, shown=made.digest)).changed


async def test_a_person_accepts_what_was_shown_and_nothing_else(story: Story) -> None:
    made = await proposed(story)
    for shown in (None, "", made.digest[:12], "0" * 64):
        with pytest.raises(Refused):
            await story.keep.accept(made.id, shown=shown)
    await story.keep.accept(made.id, shown=made.digest)
    with pytest.raises(Refused, match="there is nothing to decide"):
        await story.keep.accept(made.id, shown=made.digest)
    assert len(await story.keep.workflows()) == 1


async def test_two_people_who_accept_at_the_same_moment_deploy_it_once(story: Story) -> None:
    made = await proposed(story)
    both = [story.keep.acting_as(Principal.person(name)).accept(made.id, shown=made.digest) for name in ("ann", "bo")]
    done = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["Deployment", "Refused"]
    assert [each.version for each in await story.keep.workflows()] == ["1.0"]


async def test_one_digest_is_bound_to_the_words_the_cases_and_the_wishes_too(story: Story) -> None:
    seen = set[str]()
    more: dict[str, Any]
    for more in ({}, {"why": "another"}, {"cases": CASES}, {"grants": "all"}, {"work": {"tokens": 3}},
                 {"by": OTHER}, {"source": SECOND}):
        seen.add((await proposed(story, **more)).digest)
    assert len(seen) == 7


async def test_a_changed_account_is_shown_anew_before_anything_is_accepted(story: Story) -> None:
    made = await proposed(story)
    story.keep.parts.connectors["gmail"].account = "somebody@else.example"
    with pytest.raises(Refused, match="the connectors or their accounts changed"):
        await story.keep.accept(made.id, shown=made.digest)
    again = await now(story, made.id)
    assert (again.status, again.digest != made.digest) == ("waiting", True)
    assert again.facts["connectors"]["gmail"]["account"] == "somebody@else.example"  # type: ignore[call-overload, index]
    await story.keep.accept(made.id, shown=again.digest)


async def test_a_certificate_that_is_void_is_shown_anew(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await proposed(story)
    assert made.facts["certificate"] == {
        "valid": False, "words": "not certified: nobody has tried what happens to it when something goes wrong"}
    await story.certified(FIRST)
    shown = await now(story, made.id)
    assert (shown.facts["certificate"], shown.digest != made.digest) == (
        {"valid": True, "words": "certified: 12 trials; with made-up data only"}, True)
    monkeypatch.setattr("keepai.engine.certificate.version", lambda name: "99.0")
    with pytest.raises(Refused, match="the certificate changed"):
        await story.keep.accept(made.id, shown=shown.digest)


async def test_policy_may_require_a_certificate_of_every_proposal(story: Story) -> None:
    story.keep.parts.policy = replace(story.keep.parts.policy, certified="require")
    with pytest.raises(Refused, match="Policy requires a certificate"):
        await proposed(story)
    await story.certified(FIRST)
    await proposed(story)


async def test_a_deploy_by_hand_overtakes_what_was_proposed_for_the_version_before(story: Story) -> None:
    made = await proposed(story)
    other = await proposed(story, acting(name="other"))
    await story.deploy(SECOND)
    overtaken = await now(story, made.id)
    assert (overtaken.status, overtaken.note) == ("superseded", "made before version 1.0 was deployed")
    assert (await now(story, other.id)).status == "waiting"
    with pytest.raises(Refused, match="superseded"):
        await story.keep.accept(made.id, shown=made.digest)


async def test_a_newer_proposal_of_the_same_proposer_overtakes_the_older_one(story: Story) -> None:
    one, two = await proposed(story), await proposed(story, SECOND, by=OTHER)
    three = await proposed(story, SECOND)
    assert [(await now(story, each.id)).status for each in (one, two, three)] == ["superseded", "waiting", "waiting"]


async def test_a_proposal_expires(story: Story) -> None:
    made = await proposed(story)
    story.clock.advance(days=14)
    with pytest.raises(Refused, match="has expired"):
        await story.keep.accept(made.id, shown=made.digest)
    assert (await now(story, made.id)).status == "expired"


async def test_a_person_declines_and_a_proposer_withdraws(story: Story) -> None:
    one, two = await proposed(story), await proposed(story, acting(name="other"))
    await story.keep.decline(one.id, why="not now")
    assert (await now(story, one.id)).note == "not now"
    with pytest.raises(Refused, match="was proposed by agent:claude"):
        await story.keep.withdraw(two.id)
    await story.keep.acting_as(CLAUDE).withdraw(two.id)
    assert [each.status for each in await story.keep.proposals()] == ["withdrawn", "declined"]
    with pytest.raises(NotFound):
        await story.keep.decline("prp_000000000000")


async def test_the_account_tells_how_each_proposal_ended_and_who_ended_it(story: Story) -> None:
    made = [await proposed(story, acting(name=f"w{n}")) for n in range(4)]
    await story.keep.accept(made[0].id, shown=made[0].digest)
    await story.keep.decline(made[1].id)
    await story.keep.acting_as(CLAUDE).withdraw(made[2].id)
    await story.certified(acting(name="w3"))
    story.clock.advance(days=15)
    await proposed(story, acting(name="w4"))
    ledger = story.keep.parts.ledger
    ends = {each.id: each.status for each in await story.keep.proposals()}
    assert [ends[each.id] for each in made] == ["accepted", "declined", "withdrawn", "expired"]
    moves = await ledger.look(lambda read: list(walk(read)))
    told = {(each["subject"], each["target"]) for each in moves if each["machine"] == "proposal"}
    assert {(each.id, "waiting") for each in made} | set(ends.items()) == told
    acts = {(each["target"], each["actor"]) for each in moves if each["machine"] == "act"}
    assert {("accept", "person"), ("decline", "person"), ("withdraw", "agent:claude")} <= acts
    assert all(each.sound for each in await ledger.look(check))


async def test_a_new_version_is_shown_beside_recorded_work_without_its_content(story: Story) -> None:
    script = acting(next=None)
    await story.deploy_and_run(script, "confidential-1", "confidential-2")
    for source, words, warned in (
        (f"{script}// 2", "Beside recorded work: the same in all ", False),
        (script.replace("ctx.gmail.send({", 'ctx.gmail.send({ subject: "new",'), "gmail.send changed", True),
    ):
        assert source != script
        made = await proposed(story, source)
        card = await story.keep.parts.ledger.look(proposal_card, made, story.clock.now_ms())
        assert words in " ".join(card.proof)
        assert any("something else than before" in each for each in card.warnings) is warned
        assert "confidential" not in json.dumps(made.facts)


@pytest.mark.parametrize(("wrong", "error", "told"), [
    ({"why": "  "}, Refused, "says why"),
    ({"source": "export default 1;"}, ScriptInvalid, "."),
    ({"cases": "[[case"}, Refused, "not TOML"),
    ({"grants": {"sheets.appendRow": "allow"}}, Refused, "does not use sheets.appendRow"),
    ({"workflow_id": "wf_000000000000"}, NotFound, "no workflow"),
])
async def test_what_cannot_be_shown_or_deployed_is_not_proposed(
    story: Story, wrong: dict[str, Any], error: type[Exception], told: str,
) -> None:
    with pytest.raises(error, match=told):
        await proposed(story, **wrong)
    assert await story.keep.proposals() == []


async def test_the_active_version_cannot_be_proposed(story: Story) -> None:
    await story.deploy(FIRST)
    with pytest.raises(Refused, match="active version"):
        await proposed(story)
