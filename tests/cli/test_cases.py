"""`keep test`: the cases of a workflow, each in a world of its own."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Place

MAIL = """
[[case.answer]]
call = "gmail.search"
answer = [{ id = "1", from = "ann@x.y", to = "me@x.y", subject = "invoice", date = "", snippet = "" }]
page = { lastCursor = "1" }
"""
ROW = """
[[case.expect.output]]
call = "sheets.appendRow"
params = { values = ["ann@x.y", "invoice"] }
"""


def fault(what: str, call: str = "sheets.appendRow", times: int = 1) -> str:
    return f'\n[[case.fault]]\ncall = "{call}"\nwhat = "{what}"\ntimes = {times}\n'


def case(place: Place, *parts: str, name: str = "one", head: str = "", code: int = 0) -> dict[str, Any]:
    """Run one case of the example; gives its result."""
    (place.folder / "flow.test.toml").write_text(f'[[case]]\nname = "{name}"\n{head}\n{"".join(parts)}')
    [result] = place.json("test", code=code)
    return result  # type: ignore[no-any-return]


def test_a_case_that_holds_is_one_line(place: Place) -> None:
    case(place, MAIL, ROW)
    result = place.type("test", "flow.js")
    assert result.stdout == "ok      flow.test.toml: one\n"
    assert result.stderr == "1 case: 1 passed, 0 failed\n"
    assert not (place.folder / "keep.db").exists()
    assert place.rows() == []


@pytest.mark.parametrize("what", ["answer_lost", "request_lost", "rate_limited", "crash_before", "crash_after"])
def test_whatever_goes_wrong_there_is_one_row(place: Place, what: str) -> None:
    assert case(place, MAIL, fault(what), ROW)["passed"]


@pytest.mark.parametrize("what", ["crash_before", "crash_after"])
def test_a_death_that_the_case_brought_about_is_not_told(place: Place, what: str) -> None:
    case(place, MAIL, fault(what), ROW)
    tested = place.spawn("test")  # what a host says of itself goes to the process's own stderr
    out, errors = tested.communicate(timeout=60)
    assert (tested.returncode, out) == (0, "ok      flow.test.toml: one\n")
    assert errors == "1 case: 1 passed, 0 failed\n"


@pytest.mark.parametrize(("what", "kind"), [
    ("denied", "permission"), ("missing", "precondition"), ("rejected", "logic"),
])
def test_what_only_a_person_can_mend_is_asked(place: Place, what: str, kind: str) -> None:
    expect = f'[case.expect]\nneeds_you = ["{kind}"]\n'
    assert case(place, MAIL, fault(what), expect)["passed"]
    result = case(place, MAIL, fault(what), code=1)
    assert [each["what"] for each in result["differences"]] == ["needs_you"]


def test_a_read_may_be_busy_for_a_while(place: Place) -> None:
    assert case(place, MAIL, fault("rate_limited", "gmail.search", 3), ROW)["passed"]
    result = case(place, MAIL, fault("rate_limited", "gmail.search", 3), ROW, head='lasts = "1m"', code=1)
    assert result["differences"][0] == {
        "what": "output", "found": [],
        "wanted": [{"status": "applied", "call": "sheets.appendRow", "params": {"values": ["ann@x.y", "invoice"]}}],
    }


def test_a_capability_can_be_asked_for_or_denied(place: Place) -> None:
    asked = case(place, MAIL, '[case.expect]\nneeds_you = ["approval"]\n', head='grant = {"sheets.appendRow" = "ask"}')
    assert asked["passed"]
    denied = case(place, MAIL, '[case.expect]\nneeds_you = ["permission"]\n', head='grant."gmail.search" = "deny"')
    assert denied["passed"]


def test_inputs_and_events_are_looked_at_where_they_are_written(place: Place) -> None:
    came = '[[case.expect.input]]\nsource = "gmail"\nid = "1"\nstatus = "done"\n'
    went = '[[case.expect.event]]\ntopic = "email.received"\nstatus = "consumed"\n'
    more = '[[case.expect.event]]\ntopic = "row.created"\npayload = { rowId = "r7" }\n'
    answer = '[[case.answer]]\ncall = "sheets.appendRow"\nanswer = { rowId = "r7", row = 7 }\n'
    assert case(place, MAIL, answer, ROW, came, went, more)["passed"]
    result = case(place, MAIL, ROW, came, went, more, code=1)
    assert [each["what"] for each in result["differences"]] == ["event"]


def test_answers_come_in_order_and_the_last_one_stays(place: Place) -> None:
    second = MAIL.replace('"1"', '"2"').replace("ann@x.y", "bob@x.y")
    rows = ROW + ROW.replace("ann@x.y", "bob@x.y")
    result = case(place, MAIL, second, rows)
    assert result["passed"], result


def test_what_differs_is_shown_line_by_line(place: Place) -> None:
    case(place, MAIL, ROW.replace("ann@x.y", "eve@x.y"), code=1)
    told = place.type("test", code=1).stdout
    assert "FAILED  flow.test.toml: one" in told
    assert '- {"call": "sheets.appendRow", "params": {"values": ["eve@x.y", "invoice"]}, "status": "applied"}' in told
    assert "+ {" in told


def test_a_failure_says_what_the_script_did_wrong_and_where(place: Place) -> None:
    source = (place.folder / "flow.js").read_text()
    (place.folder / "flow.js").write_text(source.replace("= pending[0];", "= pending[0].no.such;"))
    case(place, MAIL, ROW, code=1)
    told = place.type("test", code=1).stdout
    assert "it asks a person, logic: " in told
    assert "(at 44:" in told


def test_a_script_with_errors_fails_its_cases(place: Place) -> None:
    source = (place.folder / "flow.js").read_text()
    (place.folder / "flow.js").write_text(source.replace("gmail.search", "gmail.serch"))
    result = case(place, MAIL, ROW, code=1)
    assert "unknown-operation" in result["problems"][0]


def test_a_read_without_an_answer_fails_the_case(place: Place) -> None:
    result = case(place, '[case.expect]\nneeds_you = ["internal"]\n', code=1)
    assert "gmail.search was called and the case has no [[case.answer]]" in result["problems"][0]


def test_an_answer_that_the_real_connector_would_never_give_fails_the_case(place: Place) -> None:
    wrong = '[[case.answer]]\ncall = "gmail.search"\nanswer = [{ id = "1" }]\n'
    result = case(place, wrong, '[case.expect]\nneeds_you = ["internal"]\n', code=1)
    assert "does not fit its type" in result["problems"][0]
    assert "from is missing" in result["problems"][0]
    told = place.type("test", code=1).stdout
    assert "bug of the connector" not in told
    assert "expected" not in told


@pytest.mark.parametrize(("text", "told"), [
    ("[[case]]\n", "case[0].name is missing"),
    ('[[case]]\nname = "a"\n[[case.answr]]\n', 'did you mean "answer"?'),
    ('[[case]]\nname = "a"\n[[case]]\nname = "a"\n', "two cases are called 'a'"),
    ('[[case]]\nname = "a"\nlasts = "soon"\n', '"soon" is not a duration'),
    ('[[case]]\nname = "a"\nlasts = "90d"\n', "longer than 31 days"),
    ('[[case]]\nname = "a"\n' + fault("answer_lost", times=0), "times must be above zero"),
    ('[[case]]\nname = "a"\n' + fault("answer_lost", "gmail.search"), "gmail.search only reads"),
    ('[[case]]\nname = "a"\n' + fault("answer_lost", "gmail.sned"), "names 'gmail.sned'"),
    ('[[case]]\nname = "a"\n' + fault("explodes"), "what must be"),
    ('[[case]]\nname = 2026-01-01\n', "flow.test.toml"),
    ("[[case", "is not TOML"),
    ('script = "none.js"\n[[case]]\nname = "a"\n', "none.js cannot be read"),
])
def test_a_file_of_cases_that_is_wrong_says_what_to_write(place: Place, text: str, told: str) -> None:
    (place.folder / "flow.test.toml").write_text(text)
    assert told in place.type("test", code=2).stderr


def test_cases_that_are_not_there_are_told(place: Place) -> None:
    assert "no file ends in .test.toml" in place.type("test", code=2).stderr
    assert "flow.js has no cases" in place.type("test", "flow.js", code=2).stderr
    (place.folder / "keep.toml").unlink()
    assert "There is no keep.toml here" in place.type("test", code=2).stderr


def test_cases_can_be_chosen_by_name(place: Place) -> None:
    (place.folder / "flow.test.toml").write_text(
        f'[[case]]\nname = "with mail"\n{MAIL}{ROW}\n[[case]]\nname = "without"\n{MAIL.replace("[{", "[] # [{")}')
    assert [each["name"] for each in place.json("test", "-k", "without")] == ["without"]
    assert place.json("test", "-k", "nothing like it", code=1) == []
    assert "No case has 'nothing like it' in its name." in place.type("test", "-k", "nothing like it", code=1).stderr
