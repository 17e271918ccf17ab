"""The last 24 hours of every workflow: each hour is counted once it is looked at, and what is settled is remembered."""

from __future__ import annotations

import re
from threading import Event, Thread
from typing import Any

import pytest

from keepai import Transient
from keepai.ledger.base import Reader, Row
from keepai.reading.activity import HOURS, ActivityCounts, by_hour, together
from keepai.reading.call_sentences import sentence, sentence_of
from keepai.reading.charts import chart, shares, sparkline
from keepai.reading.code_colours import coloured
from keepai.reading.questions import asked_at
from tests.harness import Story, consumer, producer, workflow

from .conftest import APPEND, LINES


async def test_each_hour_has_what_came_went_and_failed_in_it(story: Story) -> None:
    wf = await story.deploy(LINES)
    story.feed.put("one")
    await story.run()
    for hour in (1, 2):
        story.feed.put(f"a{hour}")
        story.feed.put(f"b{hour}")
        await story.run(hours=1)
    story.world.on("sheets.appendRow").fail(Transient("busy"))
    story.feed.put("late")
    await story.run(minutes=10)
    found = ActivityCounts().of(story.reader(), story.clock.now_ms())[wf]
    assert (found.inputs[-3:], sum(found.inputs)) == ((1, 2, 3), 6)
    assert sum(found.outputs) == 6
    assert (found.failed[-1], sum(found.failed)) == (1, 1)
    assert found.failure_rate == 1 / sum(found.runs)
    assert len(found.runs) == HOURS
    assert [sum(part) for part in found.took] == [sum(found.runs) - 1, 0, 0, 0, 0], "all that are done took no time"


async def test_how_long_runs_took_and_what_people_answered_is_counted_by_the_hour(story: Story) -> None:
    wf = await story.deploy(LINES)
    await story.keep.grant(wf, "sheets.appendRow", "ask")
    story.feed.put("one")
    await story.run()
    asked = story.clock.now_ms()
    await story.run(minutes=61)
    [question] = await story.keep.needs_you(wf)
    assert by_hour([asked_at(story.reader(), question)], story.clock.now_ms())[-2:] == (1, 0)
    assert asked_at(story.reader(), question) <= asked
    await story.keep.approve(question.id)
    await story.keep.pause(wf)  # an act that answers nothing
    await story.keep.resume(wf)
    await story.run()
    found = ActivityCounts().of(story.reader(), story.clock.now_ms())[wf]
    assert (found.answers[-2:], sum(found.answers)) == ((0, 1), 1)
    assert [sum(part) for part in found.took][-1] == 1, "the run waited for an hour"


async def test_whoever_looks_while_the_first_count_is_under_way_does_not_wait(story: Story) -> None:
    await story.deploy(LINES)
    counts, entered, leave = ActivityCounts(), Event(), Event()

    class Slow(Counting):
        def all(self, query: str, **params: Any) -> list[Row]:
            entered.set()
            leave.wait()
            return super().all(query, **params)

    slow = Thread(target=counts.of, args=(Slow(story.reader()), story.clock.now_ms()))
    slow.start()
    entered.wait()
    assert counts.at_once(story.reader(), story.clock.now_ms()) is None
    assert counts.missed, "so the open pages are told when it is done"
    leave.set()
    slow.join()
    assert counts.at_once(story.reader(), story.clock.now_ms()) is not None


class Counting:
    """A reader that remembers from which id on rows were counted."""

    def __init__(self, read: Reader) -> None:
        self._read, self.since = read, list[str]()

    def all(self, query: str, **params: Any) -> list[Row]:
        self.since += [params["first_id"]] if "first_id" in params else []
        return self._read.all(query, **params)


async def test_what_is_settled_is_not_counted_again_and_leaves_after_a_day(story: Story) -> None:
    wf, counts = await story.deploy(LINES), ActivityCounts()
    story.feed.put("one")
    await story.run()
    read = Counting(story.reader())
    assert sum(counts.of(read, story.clock.now_ms())[wf].inputs) == 1  # type: ignore[arg-type]
    await story.run(hours=1)
    story.feed.put("two")
    await story.run(minutes=5)
    for _ in range(2):
        assert sum(counts.of(read, story.clock.now_ms())[wf].inputs) == 2  # type: ignore[arg-type]
    assert read.since[0] < read.since[3] < read.since[6], "each look begins later"
    assert sum(ActivityCounts().of(story.reader(), story.clock.now_ms())[wf].inputs) == 2
    story.clock.advance(hours=23, minutes=10)
    assert sum(counts.of(story.reader(), story.clock.now_ms())[wf].inputs) == 1


async def test_workflows_are_counted_apart_and_together(story: Story) -> None:
    one = await story.deploy(LINES)
    other = await story.deploy(workflow("other", producers={"poll": producer()}, consumers={
        "take": consumer(mutate=APPEND)}))
    story.feed.put("a")
    await story.run()
    found = ActivityCounts().of(story.reader(), story.clock.now_ms())
    assert {wf: sum(each.outputs) for wf, each in found.items()} == {one: 1, other: 1}
    assert sum(together(found).outputs) == 2
    assert together({}).failure_rate is None


def test_a_picture_shows_every_hour_that_is_not_empty() -> None:
    numbers = [0] * 22 + [1, 1000]
    assert sparkline(numbers, "Inputs").count("v-") == 2
    drawn = chart(numbers, "<b>", [0] * 23 + [500])
    assert 'class="bad"' in drawn
    assert "&lt;b&gt;: 1,001 in the last 24 hours, at most 1,000 in one" in drawn
    assert "none" in chart([0] * 24, "Runs")
    parts = shares([[1, 0], [2, 0], [0, 4]], "Runs")
    heights = {kind: re.findall(r"v-(\d+)", way) for kind, way in re.findall(r'class="(part\d)" d="([^"]*)"', parts)}
    assert heights == {"part2": ["48", "64"], "part1": ["48"], "part0": ["16"]}, "a part lies before the whole of it"


@pytest.mark.parametrize(("operation", "params", "said"), [
    ("appendRow", {"spreadsheetId": "book", "values": ["A-1", "Bob", 2500]}, "Add a row to book: A-1 · Bob · 2,500"),
    ("send", {"to": ["a@b.c", "d@e.f"], "cc": "x@y.z", "body": "Hi"}, "Send to a@b.c, d@e.f: cc: x@y.z · body: Hi"),
    ("fileLetter", {"folder": {"id": 1}, "ok": True}, 'File letter with desk: folder: {"id": 1} · ok: true'),
    ("send", {}, "Send with desk"), ("send", None, "Send with desk: null"),
])
def test_a_call_in_a_sentence_leaves_no_parameter_out(operation: str, params: Any, said: str) -> None:
    assert sentence("desk", operation, params) == said


def test_what_a_connector_says_of_its_call_goes_before_our_words() -> None:
    assert sentence_of({"attempted": "Pay 12 EUR to Ann", "connector": "bank", "operation": "pay", "params": {}}) == (
        "Pay 12 EUR to Ann")
    assert sentence_of({}) == ""


@pytest.mark.parametrize("source", [
    "const a = `x ${b} y`; // hi\n\nreturn 'q' + 12", "ä = '\u2028';\r\n</script>", "(((",
])
def test_colours_change_no_letter_of_a_script(source: str) -> None:
    assert "\n".join("".join(text for _, text in line) for line in coloured(source)) == source
