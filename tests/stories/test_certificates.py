"""A certificate counts while all that it names is as it was; policy says what becomes of a deploy without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from keepai import Policy
from keepai.engine.certificate import BrokenTrial, Certification
from keepai.model.errors import Refused
from keepai.testing import World
from tests.harness import Story, producer, workflow

SCRIPT = workflow(producers={"poll": producer("return 1;")})
CASES = '[[case]]\nname = "one"\n'
FOUND = Certification(12, (), (), (), (), {}, {}, 0.5)
BROKEN = BrokenTrial("1/calm", "one", "nothing goes wrong", "it is done twice", "", None, "")


async def passed(story: Story, **more: object) -> bool:
    marks = {name: each.fingerprint() for name, each in story.keep.parts.connectors.items()}
    done = replace(FOUND, connectors=marks, **more)  # type: ignore[arg-type]
    return await story.keep.keep_certificate(SCRIPT, CASES, done)


async def words(story: Story, cases: str | None = CASES) -> str:
    told = (await story.keep.deploy(SCRIPT, grants="all", cases=cases)).certificate
    assert told is not None
    return told.words


async def test_a_deploy_says_whether_its_script_is_certified(story: Story) -> None:
    assert await words(story) == "not certified: nobody has tried what happens to it when something goes wrong"
    assert await passed(story)
    assert await words(story) == "certified: 12 trials"
    assert await words(story, None) == "certified: 12 trials"  # it is not known with which cases it would be now


async def test_other_cases_make_it_void_and_the_same_ones_valid_again(story: Story) -> None:
    await passed(story)
    assert await words(story, CASES + "\n") == "not certified any more: its cases changed since"
    assert await words(story) == "certified: 12 trials"


async def test_another_connector_or_another_keep_makes_it_void(
    story: Story, monkeypatch: pytest.MonkeyPatch,
) -> None:
    await story.keep.keep_certificate(SCRIPT, CASES, replace(FOUND, connectors={"gone": "another"}))
    assert await words(story) == "not certified any more: the connector gone changed since"
    await passed(story)
    monkeypatch.setattr("keepai.engine.certificate.version", lambda name: "99.0")
    assert await words(story) == "not certified any more: Keep changed since"


@pytest.mark.parametrize("wrong", [
    {"broken": (BROKEN,)}, {"trials": 0},
    {"contracts": {"gmail": "applied: it said that it did not happen, and it did"}},
])
async def test_what_did_not_pass_gets_none(story: Story, wrong: Mapping[str, object]) -> None:
    assert not await passed(story, **wrong)
    assert (await words(story)).startswith("not certified: nobody")


async def test_a_certificate_says_what_it_does_not_say(story: Story) -> None:
    await passed(story, asks=("team.send",), unreached=("gmail.send",), contracts={"team": "not tested"})
    assert await words(story) == (
        "certified: 12 trials; a person is asked about team.send if an answer is lost; no case reaches gmail.send; "
        "nobody has tested the connector team")


async def test_policy_may_require_one_of_every_version(story: Story) -> None:
    strict = replace(story.keep.parts.policy, certified="require")
    story.keep.parts.policy = strict
    with pytest.raises(Refused, match="Policy requires a certificate"):
        await story.keep.deploy(SCRIPT, grants="all", cases=CASES)
    await passed(story)
    assert await words(story) == "certified: 12 trials"
    with pytest.raises(Refused, match="its cases changed since"):
        await story.keep.deploy(SCRIPT, grants="all", cases="")


def test_policy_has_three_words_for_it() -> None:
    assert Policy().certified == "warn"
    with pytest.raises(Exception, match="certified"):
        Policy(certified="maybe")


async def test_a_world_s_connector_has_the_fingerprint_of_what_it_declares() -> None:
    one, other = ({c.name: c.fingerprint() for c in World().connectors()} for _ in range(2))
    assert one == other
    assert len(set(one.values())) == len(one)
