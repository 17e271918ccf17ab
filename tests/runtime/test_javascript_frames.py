"""Frames that are put together by hand say the same as a JSON encoder would."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from keepai.model.errors import Location, ScriptThrew
from keepai.model.operations import ALLOWED, Kind, Step, Surface
from keepai.runtime.base import Ahead, Fixed, Job, Limits, Reply
from keepai.runtime.javascript.frames import (
    HEADER,
    Garbled,
    PredictedAnswer,
    ScriptCall,
    call_frame,
    end_frame,
    fail_frame,
    fixed_of,
    job_frame,
    job_of,
    log_frame,
    mutation_frame,
    parse_frame,
    predicted_of,
    reply_frame,
)
from keepai.runtime.javascript.loaded_scripts import LoadedScript

SURFACE = Surface({"gmail": {"get": Kind.READ_BY_ID}}, {})
CUTS = (((0, 'a"b'), 1, 2), (("events",), 3, 9))
ODD = '{"a":"\\"ü\\\\\u2028 \\u0000"}'


@pytest.mark.parametrize("ahead", [None, Ahead(ALLOWED[Step.MUTATE], 9)])
@pytest.mark.parametrize("fixed", [None, Fixed(5, b"\x00\xff")])
@pytest.mark.parametrize("text", [None, "null", ODD])
def test_a_job_comes_out_of_its_frame_as_it_went_in(text: str | None, fixed: Fixed | None, ahead: Ahead | None) -> None:
    job = Job(
        source="x", step=Step.NEXT, handler='a"\\b', args=(text, "1"), state=text, surface=SURFACE,
        allowed=ALLOWED[Step.NEXT], limits=Limits(), fixed=fixed, begun_ms=None if text is None else 7,
        ahead=ahead, cuts=() if text is None else CUTS,
    )
    frame = parse_frame(job_frame(job, 3, 4)[HEADER.size :])
    assert (frame["t"], frame["n"], frame["script"]) == ("job", 3, 4)
    assert as_given(job_of(frame, LoadedScript("x", SURFACE, Limits()))) == job


def as_given(job: Job) -> Job:
    """A job that went through JSON, which has no tuples."""
    return replace(job, cuts=tuple((tuple(path), start, end) for path, start, end in job.cuts))


@pytest.mark.parametrize("predicted", [None, PredictedAnswer("peek\n" + ODD, [ODD, "{}"]), PredictedAnswer("", [""])])
def test_a_predicted_answer_comes_out_of_the_frame_of_its_job_as_it_went_in(predicted: PredictedAnswer | None) -> None:
    job = Job("x", Step.PREPARE, "h", (), None, SURFACE, ALLOWED[Step.PREPARE], Limits())
    frame = parse_frame(job_frame(job, 3, 4, predicted)[HEADER.size :])
    found = predicted_of(frame)
    assert (found and replace(found, cuts=tuple(found.cuts))) == predicted
    assert as_given(job_of(frame, LoadedScript("x", SURFACE, Limits()))) == job


def test_a_reply_carries_its_text_unchanged() -> None:
    frame = parse_frame(reply_frame(1, 2, Reply(ODD, ODD))[HEADER.size :])
    assert frame == {"t": "reply", "n": 1, "id": 2, "known": False, "cuts": [], "texts": [ODD, ODD], "fixed": None}


@pytest.mark.parametrize("fixed", [None, Fixed(7, b"\x00\xff")])
def test_a_reply_carries_time_and_chance_unchanged(fixed: Fixed | None) -> None:
    assert fixed_of(parse_frame(reply_frame(1, 2, Reply(ODD, fixed=fixed))[HEADER.size :])) == fixed


@pytest.mark.parametrize("data", [b"", b"{", b'{"t":"a"}x', b'{"t":"a"} ', b'{"t":1}', b"[]", b"\xff"])
def test_anything_but_one_object_with_a_type_is_garbled(data: bytes) -> None:
    with pytest.raises(Garbled):
        parse_frame(data)
    assert parse_frame(json.dumps({"t": "a"}).encode()) == {"t": "a", "texts": []}


@pytest.mark.parametrize("args", [[], [ODD], ["", "\n", "\ud800", ODD * 100]])
def test_a_call_comes_out_of_its_frame_as_it_went_in(args: list[str]) -> None:
    made = ScriptCall('a"b', args, Location(3, 4))
    frame = {"t": "call", "n": 7, "id": 2, "name": 'a"b', "at": [3, 4], "texts": args}
    assert parse_frame(call_frame(7, 2, made)[HEADER.size :]) == frame
    used = call_frame(7, 2, replace(made, at=None), used=True)
    assert parse_frame(used[HEADER.size :]) == {**frame, "at": None, "used": True}
    assert parse_frame(mutation_frame(7, made)[HEADER.size :]) == {
        "t": "mutation", "n": 7, "name": 'a"b', "at": [3, 4], "texts": args}


def test_an_end_says_all_of_it_in_one_frame() -> None:
    call = ScriptCall('a"b', [ODD, "1"], Location(3, 4))
    frame = parse_frame(end_frame(7, ODD, used=True, mutate=call)[HEADER.size :])
    assert frame == {"t": "end", "n": 7, "used": True, "mutate": ['a"b', [3, 4]], "texts": [ODD, ODD, "1"]}
    missed = parse_frame(end_frame(7, "1", tried=True)[HEADER.size :])
    assert missed == {"t": "end", "n": 7, "mutate": None, "texts": ["1"]}


def test_a_failure_comes_out_of_its_frame_as_it_went_in() -> None:
    error = ScriptThrew("\ud800 no", at=Location(3, 4))
    frame = {"t": "fail", "n": 7, "code": "script_threw", "message": "\ud800 no", "at": [3, 4], "texts": []}
    assert parse_frame(fail_frame(7, error)[HEADER.size :]) == frame
    assert parse_frame(fail_frame(7, error, used=True)[HEADER.size :]) == {**frame, "used": True}


def test_a_result_and_a_line_come_out_of_their_frames_as_they_went_in() -> None:
    assert parse_frame(end_frame(7, "")[HEADER.size :]) == {"t": "end", "n": 7, "texts": []}
    assert parse_frame(end_frame(7, ODD)[HEADER.size :]) == {"t": "end", "n": 7, "texts": [ODD]}
    line = {"t": "log", "n": 7, "level": "info", "texts": ["\ud800\n"]}
    assert parse_frame(log_frame(7, "info", "\ud800\n")[HEADER.size :]) == line
    assert parse_frame(log_frame(7, "info", "\ud800\n", used=True)[HEADER.size :]) == {**line, "used": True}


def test_a_text_takes_as_many_bytes_in_a_frame_as_it_has() -> None:
    assert len(end_frame(7, '"\u2028"' * 10_000)) < 5 * 10_000 + 100
