"""After an I/O error the ledger is stopped, says why, can be read, and loses nothing that it said; so does a host."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.sqlite.write_ahead_log import Log
from keepai.ledger.sqlite.writer import Writer
from keepai.model.errors import LedgerStopped, LedgerUnusable
from keepai.testing import ManualClock
from tests.crashes.invariants import violations
from tests.harness import Story, consumer, producer, workflow
from tests.prove.broken import FAULTS, OPENING, Broken
from tests.prove.images import used
from tests.prove.iofaults import CLOSING, Load, every, every_cut, every_opening

#: Every how manieth call fails here; `make prove` takes each.
STEPS = {"write": 90, "sync": 2, "truncate": 1, "read": 30}
CLOSED = CLOSING.partition("{")[0]


def broken(trials: list[tuple[int, Any]]) -> list[str]:
    """What was wrong but for closing, which has a test of its own."""
    return [f"call {nth}: {what}" for nth, t in trials for what in t.broken if not what.startswith(CLOSED)]


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if FAULTS[kind].act != "truncate"])
def test_a_fault_stops_the_ledger_and_loses_nothing_that_was_said(kind: str) -> None:
    fault = FAULTS[kind]
    trials = every(fault, Load(cache=10 if fault.act == "read" else 2000), STEPS[fault.act])
    assert broken(trials) == []
    assert len(trials) >= 3, "it struck hardly ever"


@pytest.mark.parametrize("kind", ["write fails once", "sync fails"])
def test_a_fault_stops_every_lane_of_a_group(kind: str) -> None:
    trials = every(FAULTS[kind], Load(lanes=3), 2 * STEPS[FAULTS[kind].act])
    assert broken(trials) == []
    assert len(trials) >= 3, "it struck hardly ever"


@pytest.mark.parametrize("kind", ["write fails once", "sync fails once", "truncate fails"])
def test_a_fault_stops_the_ledger_while_the_log_is_brought_into_the_file(kind: str) -> None:
    fault = FAULTS[kind]
    assert broken(every(fault, Load(log=8), STEPS[fault.act])) == []


def test_closing_a_stopped_ledger_does_nothing_to_its_files() -> None:
    trials = every(FAULTS["sync fails once"], Load(), 3)
    assert trials
    assert [what for _, t in trials for what in t.broken if what.startswith(CLOSED)] == []


def test_no_power_cut_after_a_failed_sync_loses_what_was_acknowledged() -> None:
    assert [what for _, found in every_cut(Load(log=8), 40, 3) for what in found] == []


def test_no_power_cut_while_a_stopped_ledger_is_closed_loses_what_was_acknowledged() -> None:
    assert [what for _, found in every_cut(Load(), 60) for what in found] == []


def test_no_power_cut_after_a_failed_barrier_loses_what_was_acknowledged() -> None:
    cuts = list(every_cut(Load(untouched=True), 40))
    assert [what for _, found in cuts for what in found] == []
    assert cuts


# While it is opened


@pytest.mark.parametrize("kind", OPENING)
@pytest.mark.parametrize("new", [True, False])
def test_a_ledger_that_cannot_be_opened_says_so_and_can_be_later(kind: str, new: bool) -> None:
    trials = every_opening(kind, {} if new else used(), 20 if kind in ("write", "full", "read") else 1)
    assert [f"call {nth}: {what}" for nth, found in trials for what in found] == []


def test_an_error_under_the_reading_connection_is_a_sentence_too() -> None:
    assert every_opening("open", used())[-1][1] == []


@pytest.mark.parametrize("name", ["keep.db", "keep.db-wal", "keep.db-shm"])
def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(LedgerUnusable, match=r"keep\.db"):
        SqliteLedger(tmp_path / "keep.db", ManualClock())


# The suite finds what it is there to find


def test_a_ledger_that_goes_on_after_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Writer._commit

    def go_on(writer: Writer, batch: list[Any]) -> None:
        writer.stopped = None
        commit(writer, batch)

    monkeypatch.setattr(Writer, "_commit", go_on)
    assert broken(every(FAULTS["write fails once"], Load(), 150))


def test_a_barrier_that_ignores_its_failed_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = Log.sync

    def shrug(log: Log) -> None:
        with suppress(apsw.Error):
            sync(log)

    monkeypatch.setattr(Log, "sync", shrug)
    assert broken(every(FAULTS["sync fails once"], Load(), 4))


# A whole host


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> list[Broken]:
    """The disk under each `Keep` that is opened; the first of them breaks."""
    made: list[Broken] = []

    def opened(path: Path, clock: Any, **options: Any) -> SqliteLedger:
        ledger = SqliteLedger(path, clock, accept_older=options["accept_older"])
        made.append(Broken())
        made[-1].attach(ledger._connection)
        return ledger

    monkeypatch.setattr("keepai.app.open_ledger", opened)
    return made


SCRIPT = workflow(
    producers={"poll": producer()},
    consumers={"take": consumer(
        mutate='return await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.messageId] });',
        publishes=("out",), next='await ctx.publish("out", { messageId: prepared.data.messageId, payload: {} });',
    )},
)


@pytest.mark.parametrize(("kind", "nth"), [
    ("write fails", 1), ("disk full", 40), ("write cut short once", 90), ("sync fails once", 1), ("sync fails once", 2),
    ("sync fails", 3), ("sync fails once", 4),
])
async def test_a_host_sends_nothing_after_a_fault_and_everything_once_in_the_end(
    tmp_path: Path, disks: list[Broken], kind: str, nth: int,
) -> None:
    async with Story(tmp_path) as story:
        wf = await story.deploy(SCRIPT)
        for name in ("a", "b", "c"):
            story.feed.put(name, {})
        disks[0].break_down(FAULTS[kind], nth)
        with pytest.raises(LedgerStopped) as stopped:
            await story.run()
        assert str(story.path) in stopped.value.message
        sent, written = len(story.world.effects), disks[0].changes
        assert len(await story.runs(wf)) == len(await story.keep.runs(wf)), "looking still works"
        with pytest.raises(LedgerStopped):
            await story.run(minutes=10)
        assert len(story.world.effects) == sent, "nothing is sent any more"
        assert disks[0].changes == written, "nothing is written any more"

        disks[0].mend()
        await story.reopen()
        for _ in range(6):
            await story.run(minutes=30)
        assert sorted(str(e.params["values"]) for e in story.world.effects) == ["['a']", "['b']", "['c']"]
        assert sorted(await story.ids(wf, "out")) == ["a", "b", "c"]
    assert violations(story.path) == []
