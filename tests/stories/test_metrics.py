"""What monitoring reads agrees with the ledger: counts over faults and restarts, and gauges of what waits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from keepai import Policy, Transient
from keepai.reading.look import open_look
from keepai.reading.metrics import Metrics
from tests.harness import APPEND, POLL, Story, consumer, producer, take_first, workflow

pytestmark = pytest.mark.both_stores
LINE = re.compile(r'(\w+)(?:\{(.*)\})? (\S+)')


def values(text: str, metric: str) -> Mapping[str, float]:
    """Of each set of labels of one metric, the value."""
    found = [LINE.fullmatch(line) for line in text.splitlines() if line.startswith(metric)]
    return {each[2] or "": float(each[3]) for each in found if each and each[1] == metric}


def flow() -> str:
    return workflow(producers={"poll": producer(POLL)}, consumers={"take": consumer(take_first(), mutate=APPEND)})


async def test_counts_are_those_of_the_ledger_after_faults_and_deaths(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        wf = await story.deploy(flow())
        with open_look(story.path, Policy()) as look:
            metrics = Metrics(look.read, story.keep.parts.ledger.host)
            for number in range(12):
                story.feed.put(str(number))
            story.world.on("sheets.appendRow").fail(Transient("busy"), times=3)
            for _ in range(5):
                await story.run(minutes=20)
            text = metrics.text(look.read, look.views, story.clock.now_ms())
            again = metrics.text(look.read, look.views, story.clock.now_ms())
        runs = Counter(run.state.value for run in await story.runs(wf))
        ended = {status: values(text, "keep_runs_total").get(f'workflow="story",status="{status}"', 0)
                 for status in ("committed", "superseded")}
        assert ended == {"committed": runs["committed"], "superseded": runs["superseded"]}
        assert runs["superseded"] == 3
        sent = values(text, "keep_mutations_total")
        assert sent['workflow="story",outcome="applied"'] == len(story.world.effects) == 12
        assert sent['workflow="story",outcome="failed"'] == 3
        assert values(text, "keep_pending_events") == {'workflow="story"': 0}
        assert values(again, "keep_runs_total") == values(text, "keep_runs_total"), "nothing is counted twice"


async def test_what_waits_is_told_with_its_age_and_what_was_before_is_not_counted(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        story.feed.put("a")
        await story.deploy(flow(), grants={"feed.list": "allow", "sheets.appendRow": "ask"})
        await story.run()
        story.clock.advance(minutes=10)
        with open_look(story.path, Policy()) as look:
            metrics = Metrics(look.read, story.keep.parts.ledger.host)
            text = metrics.text(look.read, look.views, story.clock.now_ms())
        assert values(text, "keep_questions") == {'kind="approval"': 1}
        assert values(text, "keep_oldest_question_seconds") == {'kind="approval"': 600}
        assert values(text, "keep_lag_seconds") == {'workflow="story"': 600}
        assert values(text, "keep_runs_total") == {}


async def test_another_host_s_work_is_counted_by_that_host(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        story.feed.put("a")
        await story.deploy(flow())
        with open_look(story.path, Policy()) as look:
            metrics = Metrics(look.read, "host_other")
            await story.run()
            text = metrics.text(look.read, look.views, story.clock.now_ms())
        assert values(text, "keep_runs_total") == {}
