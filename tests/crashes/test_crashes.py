"""Kill the host at every named point, start it again, and judge by what really happened outside.

Each test is real processes on a real ledger (see driver.py). There are two ways to a call: straight, where one commit
pins the PrepareResult and records the call, and apart, where `prepare` and `send` are two. Everything is killed on the
first, and on the second what is different there. KEEP_BUDGET (seconds, or "10m") buys further random cases.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.crashes import driver
from tests.crashes.invariants import violations
from tests.ledger.stores import place_in, store_in
from tests.limits import budget_s
from tests.nursery import Nursery

PASSED_BY_TIMER = {"nothing"}  #: the flush comes after a second of real time: it may stand anywhere

#: Way → the verb that pins a PrepareResult on it, and on no other. A retry sends by `send` on both.
PINS = {"straight": "prepare_and_send", "apart": "prepare"}
#: Every other commit and every call of a world that loses answers. A new verb fails `test_no_point_is_forgotten`.
COMMON = [
    "deploy", "begin", "stop", "carry_on", "commit_producer", "advance", "send", "call", "refuse", "doubt", "apply",
    "commit_consumer", "nothing", "end_host",
]
RECONCILED, ASKED, APPROVED = ["confirm_applied", "confirm_absent"], ["happened", "did_not_happen"], ["ask", "approve"]
AFTER_A_CRASH, AFTER_A_CUT_CALL = ["adopt", "grant_all"], ["close_dead"]
#: Points that one life passes only once.
ONCE = {
    "deploy", "begin", "stop", "refuse", "confirm_applied", "confirm_absent", "commit_producer", "end_host", "happened",
    "did_not_happen", "adopt", "grant_all", "close_dead",
}


@pytest.fixture(autouse=True, scope="module")
def hosts(nursery: Nursery | None) -> Iterator[None]:
    """Where the hosts of these tests come from."""
    Story.hosts = driver.Hosts(nursery.address if nursery else None)
    yield
    Story.hosts.close()


@dataclass
class Story:
    """A folder with a world and a ledger, and what became of both."""

    folder: Path
    hosts: ClassVar[driver.Hosts]

    @classmethod
    def begin(cls, folder: Path, kind: str, way: str = "straight") -> Story:
        folder.mkdir(exist_ok=True)
        mails = [{"id": f"m{n}", "from": f"ann{n}@example.com", "subject": f"s{n}"} for n in range(driver.MAILS)]
        (folder / "mails.json").write_text(json.dumps(mails))
        (folder / "kind").write_text(kind)
        (folder / "way").write_text(way)
        (folder / "ledger").write_text(str(place_in(folder)))
        return cls(folder)

    def live(self, *crashes: str) -> list[dict[str, Any]]:
        """Lives of a host, one after the other."""
        lives = self.hosts.live(self.folder, crashes)
        said = self.folder / "said"
        for life in lives:
            assert life["status"] in (0, -9), f"{life}\n{said.read_text()}"
            assert life["broken"] == [], life
        return lives

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with store_in(self.folder).raw() as connection:
            return list(connection.execute(statement))

    def effects(self) -> list[str]:
        """Who was really written into the sheet, in order."""
        return [line["values"][0] for line in driver.World(self.folder).lines("effects.log")]


SENDERS = [f"ann{n}@example.com" for n in range(driver.MAILS)]


def check_whole(story: Story) -> None:
    """Nothing is half done, whatever happened."""
    assert violations(place_in(story.folder)) == []
    cursor = story.rows("select state from handler_state where handler = 'pollEmail'")
    seen = int(json.loads(cursor[0][0])["cursor"]) if cursor and cursor[0][0] else 0
    for found in ("input", "event where topic = 'email.received'"):
        assert story.rows(f"select count(*) from {found}") == [(seen,)], "inputs, events and the cursor are one commit"


def check_done(story: Story) -> None:
    """Everything happened exactly once, and the ledger says so."""
    check_whole(story)
    received = "select message_id, status, reserved_by, attempt from event where topic = 'email.received' order by seq"
    assert story.rows(received) == [(f"m{n}", "consumed", None, 1) for n in range(driver.MAILS)]
    assert story.effects() == SENDERS, "each effect exactly once"
    results = [line["result"]["rowId"] for line in driver.World(story.folder).lines("effects.log")]
    created = story.rows("select message_id, payload, revision from event where topic = 'row.created' order by seq")
    assert created == [(f"row:m{n}", f'{{"rowId":"{results[n]}"}}', 1) for n in range(driver.MAILS)], "next, once each"
    assert story.rows("select count(*) from event_revision") == [(0,)]
    applied = story.rows("select result from mutation where status = 'applied' order by seq")
    assert [json.loads(text)["rowId"] for (text,) in applied] == results
    assert story.rows("select id, status from run where status in ('active', 'paused', 'failed')") == []
    assert story.rows("select distinct status from mutation where status not in ('applied', 'failed')") == []


def check_blind(story: Story) -> None:
    """Without a way to ask: at most one effect each; what is unknown is an open question that holds the workflow."""
    check_whole(story)
    effects = story.effects()
    open_ = story.rows("select lineage, status from mutation where status not in ('applied', 'failed')")
    assert effects == SENDERS[: len(effects)], "at most one effect each, in order"
    applied = story.rows("select count(*) from mutation where status = 'applied'")[0][0]
    if not open_:
        check_done(story)
        return
    ((lineage, status),) = open_
    assert status == "indeterminate"
    assert applied <= len(effects) <= applied + 1
    blocked = story.rows("select lineage, status, reason from run where status in ('active', 'paused', 'failed')")
    assert blocked == [(lineage, "paused", "reconciliation")]


# Every point


def named(verbs: list[str], nths: int = 2) -> list[str]:
    """Every point of these verbs, and its second arrival where there is one."""
    return [
        f"{side}:{verb}:{nth}" for verb in verbs for side in ("before", "after")
        for nth in range(1, 1 + (1 if verb in ONCE else nths))
    ]


def on_both_ways(*points: str) -> list[tuple[str, str]]:
    """These points on the straight way; on each way those of its own verbs and of the call that they lead to."""
    own = [(way, point) for way, pins in PINS.items() for point in named([pins])]
    return [*(("straight", point) for point in points), *own, *(("apart", point) for point in named(["send", "call"]))]


@pytest.mark.parametrize(("way", "crash"), on_both_ways(*named(COMMON + RECONCILED)))
def test_a_host_killed_at_any_point_leaves_nothing_lost_and_nothing_twice(
    tmp_path: Path, way: str, crash: str,
) -> None:
    story = Story.begin(tmp_path, "reconciles", way)
    first, last = story.live(crash, "-")
    assert first["killed"] or crash.split(":")[1] in PASSED_BY_TIMER, f"{crash} was not reached"
    assert not last["killed"]
    check_done(story)


@pytest.mark.parametrize("crash", named([*ASKED, "doubt", "carry_on"], 1))
def test_a_host_killed_around_a_persons_answer_does_what_the_person_said_once(tmp_path: Path, crash: str) -> None:
    story = Story.begin(tmp_path, "asks")
    first, last = story.live(crash, "-")
    assert first["killed"]
    assert not last["killed"]
    check_done(story)
    answers = story.rows("select act, subject from action where act in ('happened', 'did_not_happen')")
    assert len(answers) == len(set(answers)), "an answer that was recorded is not asked for again"


@pytest.mark.parametrize(("way", "crash"), [
    *(("straight", crash) for crash in (*named(APPROVED), *named(["prepare", "send", "call", "apply"], 1))),
    *(("apart", crash) for crash in named(["prepare"], 1)),
])
def test_a_host_killed_around_an_approval_sends_what_was_approved_once(tmp_path: Path, way: str, crash: str) -> None:
    story = Story.begin(tmp_path, "approves", way)
    first, last = story.live(crash, "-")
    assert first["killed"]
    assert not last["killed"]
    check_done(story)
    unused = story.rows("select status from approval where status not in ('consumed', 'void', 'expired')")
    assert unused == [], "an approval that was given is used, or is void"
    sent = story.rows("select count(*) from mutation")[0][0]
    assert story.rows("select count(*) from approval where status = 'consumed'") == [(sent,)], "each send used one"
    assert story.rows("select count(*) from action where act = 'approve'") == [(sent,)], "no yes is asked for twice"


@pytest.mark.parametrize(("way", "crash"), on_both_ways(*named(["call", "apply", "commit_consumer"])))
def test_without_a_way_to_ask_a_killed_host_leaves_a_question_and_no_second_effect(
    tmp_path: Path, way: str, crash: str,
) -> None:
    # around the second commit of a run the `prepare` of the one that follows is under way
    story = Story.begin(tmp_path, "blind", way)
    point, _, nth = crash.rpartition(":")
    doubtful = point in ("after:prepare_and_send", "after:send", "before:call", "after:call", "before:apply")
    first, *_ = story.live(crash, *["-"] * (1 + doubtful))  # a question is not answered by starting once more
    assert first["killed"]
    check_blind(story)
    assert bool(story.rows("select 1 from mutation where status = 'indeterminate'")) == doubtful
    if doubtful:
        happened = point in ("after:call", "before:apply")
        assert len(story.effects()) == int(nth) - (not happened)


def twice(firsts: list[str], verbs: list[str]) -> list[tuple[str, str]]:
    """Each of these crashes, followed by one at each point of these verbs."""
    return [(first, second) for first in firsts for second in named(verbs, 1)]


#: Way → a first crash, and a second one in the life after it.
TWICE = {
    "straight": [
        *twice(["after:prepare_and_send:1"], ["close_dead", "adopt", "doubt", "confirm_absent"]),
        *twice(["after:call:4"], ["adopt", "doubt", "confirm_applied"]),
        *twice(["after:apply:1"], ["adopt", "carry_on"]),
        *twice(["before:prepare_and_send:1"], ["prepare_and_send"]),
        ("after:commit_consumer:1", "before:grant_all:1"), ("before:commit_producer:1", "after:carry_on:1"),
        ("after:deploy:1", "before:commit_producer:1"), ("after:advance:1", "after:advance:1"),
        ("after:apply:1", "after:commit_consumer:1"), ("after:commit_consumer:1", "after:prepare_and_send:1"),
    ],
    "apart": [
        *twice(["after:prepare:1"], ["adopt", "carry_on", "send"]),
        *twice(["after:send:2"], ["adopt", "doubt", "confirm_absent"]),
    ],
}


@pytest.mark.parametrize(("way", "first", "second"), [
    pytest.param(way, *pair, marks=pytest.mark.sqlite("`share` does it") if "close_dead" in pair[1] else ())
    for way in PINS for pair in TWICE[way]
])
def test_a_host_killed_again_while_it_recovers_changes_nothing(
    tmp_path: Path, way: str, first: str, second: str,
) -> None:
    story = Story.begin(tmp_path, "reconciles", way)
    lives = story.live(first, second, "-")
    assert [life["killed"] for life in lives] == [True, True, False], lives
    check_done(story)


@pytest.mark.sqlite("hosts that share a ledger pass `share`, too")
@pytest.mark.parametrize("way", PINS)
def test_no_point_is_forgotten(tmp_path: Path, way: str) -> None:
    """The lists above name every point that these worlds lead through, and each way is the one that it is called."""
    def passed(name: str, kind: str, *crashes: str) -> set[str]:
        """The verbs of the last life."""
        return {p.partition(":")[2] for p in Story.begin(tmp_path / name, kind, way).live(*crashes, "-")[-1]["points"]}

    common = {*COMMON, PINS[way]}
    assert passed("reconciles", "reconciles") | PASSED_BY_TIMER == {*common, *RECONCILED}
    assert passed("asks", "asks") - common == set(ASKED)
    assert passed("approves", "approves") - {*common, "prepare"} == set(APPROVED)  # what a person must see goes apart
    in_flight = {*AFTER_A_CRASH, *AFTER_A_CUT_CALL}
    for crash, more in {
        f"before:{PINS[way]}:1": {*AFTER_A_CRASH}, "after:send:1": in_flight,
        f"after:{PINS[way]}:1": in_flight if way == "straight" else {*AFTER_A_CRASH},
    }.items():
        assert passed(crash, "reconciles", crash) - {*common, *RECONCILED} == more, crash
    works = passed("blind", "blind")
    assert works - common == set()
    assert {*PINS.values(), "send"} & works == {"straight": {"prepare_and_send"}, "apart": {"prepare", "send"}}[way]


# Often


@pytest.mark.both_stores
@pytest.mark.parametrize(("way", "crash"), [
    ("straight", "before:prepare_and_send:1"), ("apart", "before:prepare:1"), ("apart", "before:send:1"),
])
def test_a_run_that_kills_its_host_three_times_is_stopped_and_told_of(tmp_path: Path, way: str, crash: str) -> None:
    story = Story.begin(tmp_path, "blind", way)
    lives = story.live(crash, crash, crash, "-")
    assert [life["killed"] for life in lives] == [True, True, True, False]
    check_whole(story)
    open_ = "select status, reason from run where status in ('active', 'paused', 'failed')"
    assert story.rows(open_) == [("failed", "internal")]
    assert story.rows("select count(*) from run where status = 'crashed'") == [(2,)]
    ((error,),) = story.rows("select error from run where status = 'failed'")
    assert "died 3 times" in json.loads(error)["message"]
    assert story.effects() == []


@pytest.mark.both_stores
@pytest.mark.parametrize("crash", ["after:doubt:1", "after:still_doubt:1", "after:still_doubt:2"])
def test_a_call_that_outlived_its_deadline_is_over_when_its_host_is_dead(tmp_path: Path, crash: str) -> None:
    """The free lock proves that nothing of it can leave any more: "not found" counts from then on."""
    story = Story.begin(tmp_path, "hangs")
    first, last = story.live(crash, "-")
    assert first["killed"]
    assert not last["killed"]
    check_done(story)


@pytest.mark.both_stores
def test_a_host_that_is_started_and_killed_while_idle_loses_nothing(tmp_path: Path) -> None:
    story = Story.begin(tmp_path, "reconciles")
    story.live("-", "before:end_host:1", "after:end_host:1", "-")
    check_done(story)


@pytest.mark.both_stores
@pytest.mark.parametrize("seed", range(4))
def test_hosts_killed_at_random_leave_nothing_lost_and_nothing_twice(tmp_path: Path, seed: int) -> None:
    """One case each by default, on one way or the other, and as many as KEEP_BUDGET allows on two processors."""
    until, number = time.monotonic() + budget_s() / 2, 0
    while number == 0 or time.monotonic() < until:
        chance = random.Random(f"{seed}.{number}")
        own = {"reconciles": RECONCILED, "asks": ASKED, "approves": APPROVED, "blind": []}
        kind = chance.choice(list(own))
        way = list(PINS)[(seed + number) % 2]
        verbs = [*COMMON, PINS[way], *own[kind], *AFTER_A_CRASH, *AFTER_A_CUT_CALL]
        points = [point for nth in (1, 2, 3, 4) for point in named(verbs, nth)]
        crashes = [chance.choice(points) for _ in range(2)]
        story = Story.begin(tmp_path / str(number), kind, way)
        story.live(*crashes, "-", "-")
        (check_blind if kind == "blind" else check_done)(story)
        number += 1
