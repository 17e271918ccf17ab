"""What `python -m tests.certify` shows in full, on a few scripts: faults are found, what is right passes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from keepai.model.policy import Policy
from keepai.testing.certify import certify
from keepai.testing.certify.made_case import NAME, made_case
from tests.certify.bases import Base, bases
from tests.certify.faulty_connectors import faulty_connectors, right_connectors
from tests.certify.faulty_scripts import RULES, FaultyScript, faulty_scripts
from tests.certify.table import found_in_connector, tried

WHERE = "routine-invoices"


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Base]:
    return {base.name: base for base in bases(tmp_path_factory.mktemp("bases"))}


def faulty(every: dict[str, Base], kind: str, name: str) -> FaultyScript:
    return next(each for each in faulty_scripts([every[name]]) if each.kind == kind)


def test_there_are_as_many_faulty_ones_as_promised(every: dict[str, Base]) -> None:
    scripts = list(faulty_scripts(list(every.values())))
    assert len(scripts) >= 60
    assert {each.kind for each in scripts} == {rule.kind for rule in RULES}
    assert len(list(faulty_connectors())) >= 30


@pytest.mark.parametrize("name", ["feed-digest", "out-of-office"])
def test_a_script_that_is_right_passes(every: dict[str, Base], name: str) -> None:
    done = tried(every[name])
    assert done.broken == ()
    assert done.trials > 50
    assert done.asks == ()


def test_of_a_call_that_nobody_can_look_up_it_says_that_a_person_is_asked(every: dict[str, Base]) -> None:
    base = every["webhook-relay"]
    done = asyncio.run(certify(
        base.source, base.cases, base.connectors, Policy(), only="1/answer-lost:team.send"))
    assert (done.trials, done.passed, done.asks) == (1, True, ("team.send",))


@pytest.mark.parametrize(("kind", "name", "cause"), [
    ("item id from time", WHERE, r"the item's id differs on replay: Date\.now\(\) at routine-invoices\.js:10"),
    ("messageId from chance", "email-to-sheets", r"the messageId differs on replay: Math\.random\(\) at .*:26"),
    ("random subkey", WHERE, r"the subkey differs on replay: Math\.random\(\) at .*:13"),
    ("item id from the place in a list", WHERE, r"an id depends on where something stands in a list"),
    ("cursor lost", WHERE, r"the cursor that is kept passes over something: .* at .*:25"),
    ("no guard", WHERE, r"at routine-invoices\.js:12"),
])
def test_a_fault_is_found_with_the_line_that_causes_it(
    every: dict[str, Base], kind: str, name: str, cause: str,
) -> None:
    each = faulty(every, kind, name)
    done = tried(each.base, each.source, to_first=True)
    assert not done.passed
    assert re.search(cause, done.broken[0].cause), done.broken[0]
    assert done.broken[0].instead


def test_one_trial_can_be_run_again_by_its_name(every: dict[str, Base]) -> None:
    each = faulty(every, "item id from time", WHERE)
    base, source = each.base, each.source
    name = "1/other-time"
    done = asyncio.run(certify(source, base.cases, base.connectors, Policy(), only=name))
    assert (done.trials, [trial.trial for trial in done.broken]) == (1, [name])


def test_a_script_without_cases_is_tried_with_one_made_from_the_types(every: dict[str, Base]) -> None:
    base = every["feed-to-slack"]
    case = made_case(base.source, base.connectors)
    assert case["name"] == NAME
    done = asyncio.run(certify(base.source, [case], base.connectors, Policy(), made=True, only="1/calm"))
    assert (done.trials, done.broken, done.unreached) == (1, (), ())


def test_a_case_that_fails_by_itself_gives_no_certificate(every: dict[str, Base]) -> None:
    base = every[WHERE]
    case = {**base.cases[0], "expect": {}}
    done = asyncio.run(certify(base.source, [case], base.connectors, Policy()))  # type: ignore[list-item]
    assert [trial.trial for trial in done.broken] == ["1/calm"]
    assert "without any fault" in done.broken[0].what


def test_a_connector_that_lies_or_cannot_compare_is_found() -> None:
    kinds = {"reconcile always says no", "compare always says equal"}
    chosen = [each for each in faulty_connectors() if each.kind in kinds and each.name.endswith("right1")]
    assert [found_in_connector(each) for each in chosen] == [True, True]
    assert not found_in_connector(next(right_connectors()))


def test_nothing_is_left_behind(
    every: dict[str, Base], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keepai.testing.certify._fast_folder", lambda: str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    base, seen = every["sheet-backup"], set[str]()
    asyncio.run(certify(
        base.source, base.cases, base.connectors, Policy(), only="1/calm",
        progress=lambda done, of: seen.update(each.name[:12] for each in tmp_path.iterdir())))
    assert seen == {"keep-certify"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "trial", "source", "passed"), [
    ("feed-digest", "1/answer-twice:mail.send", "", True),
    ("welcome-customers", "1/two:after:end_item@2", "state counted again", False),
])
def test_an_answer_is_heard_twice_and_a_host_dies_after_one_that_the_case_kills(
    every: dict[str, Base], name: str, trial: str, source: str, passed: bool,
) -> None:
    base = every[name]
    text = faulty(every, source, name).source if source else base.source
    done = asyncio.run(certify(text, base.cases, base.connectors, Policy(), only=trial))
    assert (done.trials, done.passed) == (1, passed)
