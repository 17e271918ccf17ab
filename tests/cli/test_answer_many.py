"""Many calls answered in one go: what would be done stands there first, and each is answered by itself."""

from __future__ import annotations

import pytest

from keepai.model.permissions import condition_of, surely

from .conftest import Place


@pytest.fixture
def held(place: Place) -> Place:
    """Three workflows, each with a call that waits for approval."""
    for number in range(3):
        text = (place.folder / "flow.js").read_text().replace('"email-to-sheets"', f'"flow-{number}"')
        (place.folder / f"flow-{number}.js").write_text(text)
        place.type("deploy", f"flow-{number}.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask")
    place.deliver("Invoice 7")
    place.type("dev", "--once", code=4)
    return place


def test_without_yes_the_calls_are_shown_and_nothing_is_done(held: Place) -> None:
    told = held.type("approve", "--all")
    assert told.stdout.count("Add a row to") == 3
    assert "Invoice 7" in told.stdout
    assert "Nothing was done. --yes" in told.stderr
    found = held.json("approve", "--all")
    assert (len(found["chosen"]), found["done"]) == (3, [])
    assert len(held.json("todo", code=4)) == 3


def test_only_calls_that_surely_fit_are_answered(held: Place) -> None:
    for condition in ("values[1] = Invoice 8", "values[9] = 1", "values[1] < 100", "nothing != 1"):
        assert "No call that waits for approval fits." in held.type("approve", "--where", condition, "--yes").stderr
    one = held.json("approve", "--workflow", "flow-1", "--where", "values[1] = Invoice 7", "--yes")
    assert [each["workflow"] for each in one["chosen"]] == ["flow-1"]
    assert one["done"] == [one["chosen"][0]["id"]]
    rest = held.json("reject", "--all", "--yes")
    assert (len(rest["done"]), rest["refused"]) == (2, [])
    held.type("dev", "--once")
    assert len(held.rows()) == 1
    assert "No call" in held.type("approve", "--all", "--yes").stderr


def test_one_that_cannot_be_answered_does_not_stop_the_others(held: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = held.json("todo", code=4)
    monkeypatch.setattr("keepai.doors.cli.answer_many.questions", lambda session, look: [
        type(each)(**{**vars(each), "version": 1}) if each.id == asked[1]["id"] else each
        for each in look.views.needs_you(look.now_ms)])
    found = held.json("approve", "--all", "--yes", code=1)
    assert len(found["done"]) == 2
    assert [each["id"] for each in found["refused"]] == [asked[1]["id"]]
    assert [each["id"] for each in held.json("todo", code=4)] == [asked[1]["id"]]


def test_an_id_and_a_choice_of_many_exclude_each_other(held: Place) -> None:
    for typed in ((), ("apr_1", "--all"), ("--all", "--shown", "3")):
        assert "Give an ID, or choose many calls" in held.type("approve", *typed, code=2).stderr
    assert "is no condition" in held.type("approve", "--where", "values", code=2).stderr


@pytest.mark.parametrize(("condition", "fits"), [
    ("values[2] <= 2000", True), ("values[2] > 2000", False), ("values[1] > 5", False), ("values[7] <= 1", False),
    ("values[7] != 1", False), ("values[0] = A-1", True), ("sheet in a, orders", True), ("values != A-1", False),
])
def test_what_cannot_be_told_does_not_fit(condition: str, fits: bool) -> None:
    assert surely(condition_of(condition), {"sheet": "orders", "values": ["A-1", "Ann", 2000]}) is fits
