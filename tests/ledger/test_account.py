"""The account: every move and act in one sealed sequence, from which a run can be told again; tampering is found."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from keepai import Transient
from keepai.ledger.account import BRIEF_MAX, COLUMNS, Verified, chain, verify
from keepai.ledger.base import Row, Tx
from keepai.ledger.checks import CHECKS, check
from keepai.ledger.sqlite import triggers
from keepai.ledger.sqlite.connection import Statements, teach
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.sqlite.writer import Work
from keepai.ledger.transitions import mutations, workflows
from keepai.model.errors import Refused
from keepai.model.states import MACHINES, WorkflowStatus
from keepai.testing.crash import CrashAt, Crashed
from tests.harness import Story, consumer, producer, take_first, workflow
from tests.ledger import rows
from tests.ledger.rows import raw, scalar


async def fill(ledger: SqliteLedger) -> str:
    """A workflow of which a run committed, with everything that this writes."""
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1", "m2")
    run = await ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await ledger.write(rows.send, run)
    run = await ledger.write(mutations.apply, run, mutation, '{"rowId":1}', '{"status":"applied"}', [])
    await ledger.write(rows.finish, run, "o1")
    await ledger.write(workflows.move, workflow_id, WorkflowStatus.PAUSED, "pause", "ann")
    return workflow_id


def sealed(connection: apsw.Connection) -> list[tuple[int, int]]:
    """The first and the last row of each seal."""
    lasts = [0, *(row[0] for row in connection.execute("select last from seal order by last"))]
    return [(before + 1, last) for before, last in pairwise(lasts)]


def account(ledger: SqliteLedger) -> list[Row]:
    return ledger.read().all("account_page", first=0, limit=9_999)


# Everything is in it


async def test_every_verb_appends_and_every_row_is_sealed(ledger: SqliteLedger) -> None:
    await fill(ledger)
    found = account(ledger)
    assert verify(ledger.read()) == Verified(len(found))
    assert [row["seq"] for row in found] == list(range(1, len(found) + 1))
    kinds = {row["machine"] for row in found}
    assert kinds == {"workflow", "act", "grant", "input", "event", "phase", "status", "mutation"}
    assert {row["actor"] for row in found} == {ledger.host, "person", "ann"}


def test_every_machine_appends_its_beginnings_and_its_moves() -> None:
    made = triggers.statements()
    appending = {name for name, text in made.items() if "insert into transition" in text}
    for table, column, _, _ in triggers.BINDINGS.values():
        assert {f"{table}_{column}_born", f"{table}_{column}_moved"} <= appending
    assert set(triggers.WHY) == set(MACHINES)
    assert len(appending) == 2 * len(MACHINES) + len(triggers.NOTED) + 1
    assert all("account_brief(" in made[name] for name in appending), "a program without it cannot move anything"


async def test_each_commit_has_one_seal_behind_all_its_rows(ledger: SqliteLedger) -> None:
    workflow_id = await ledger.write(rows.deploy)
    deployed = len(account(ledger))
    await ledger.write(rows.produce, workflow_id, "m1", "m2")
    assert sealed(ledger._connection) == [(1, deployed), (deployed + 1, len(account(ledger)))]


async def test_a_commit_that_moves_nothing_has_no_seal(ledger: SqliteLedger) -> None:
    workflow_id = await fill(ledger)
    before = sealed(ledger._connection)
    await ledger.write(lambda tx: tx.run("topic_touch", workflow_id=workflow_id, topic="in", sequence=1_000))
    assert sealed(ledger._connection) == before


async def test_an_act_stands_in_the_same_sequence_as_what_it_moved(ledger: SqliteLedger) -> None:
    workflow_id = await fill(ledger)
    moved, act = account(ledger)[-2:]
    assert (moved["machine"], moved["source"], moved["target"]) == ("workflow", "active", "paused")
    told = [act[name] for name in ("workflow_id", "machine", "subject", "source", "target", "why", "actor")]
    assert told == [workflow_id, "act", workflow_id, None, "pause", "null", "ann"]


async def test_an_act_on_no_workflow_is_in_the_account_too(ledger: SqliteLedger) -> None:
    await ledger.write(workflows.note, None, "test", "all of it", "ann", {"a": 1})
    [row] = account(ledger)
    assert (row["workflow_id"], row["target"], row["why"]) == ("", "test", '{"a":1}')


async def test_what_an_act_did_and_the_act_are_one_transaction(path: Path) -> None:
    ledger = SqliteLedger(path)
    workflow_id = await ledger.write(rows.deploy)
    before = account(ledger)
    with CrashAt("before:move"), pytest.raises(Crashed):
        await ledger.write(workflows.move, workflow_id, WorkflowStatus.PAUSED, "pause", "ann")
    await ledger.close()
    ledger = SqliteLedger(path)
    assert account(ledger) == before
    assert [a["act"] for a in ledger.read().all("action_all", workflow_id=workflow_id)] == ["deploy"]
    assert ledger.read().all("workflow_all")[0]["status"] == "active"
    await ledger.close()


async def test_a_verb_that_is_refused_leaves_no_row_and_no_gap(ledger: SqliteLedger) -> None:
    def refused(tx: Tx) -> None:
        workflows.note(tx, None, "test", "x", "ann", None)
        raise Refused("No.")

    await fill(ledger)
    before = account(ledger)
    with pytest.raises(Refused):
        await ledger.write(refused)
    assert account(ledger) == before
    await ledger.write(workflows.note, None, "test", "x", "ann", None)
    assert verify(ledger.read()).rows == len(before) + 1


async def test_a_long_text_stands_in_it_as_its_hash(ledger: SqliteLedger) -> None:
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1")
    run = await ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await ledger.write(rows.send, run)
    await ledger.write(mutations.apply, run, mutation, json.dumps("x" * BRIEF_MAX), '{"status":"applied"}', [])
    [row] = [r for r in account(ledger) if (r["machine"], r["target"]) == ("mutation", "applied")]
    assert row["why"].startswith("sha256:")


async def test_a_program_without_the_functions_cannot_write(path: Path) -> None:
    await SqliteLedger(path).close()
    connection = apsw.Connection(str(path))
    with pytest.raises(apsw.SQLError, match="no such function: account_brief"):
        connection.execute("insert into action (act, subject, actor, detail, at) values ('a', 'b', 'c', 'd', 1)")
    connection.close()


async def test_what_another_program_moves_with_the_function_has_no_seal(path: Path) -> None:
    ledger = SqliteLedger(path)
    await fill(ledger)
    await ledger.close()
    connection = apsw.Connection(str(path))
    teach(connection)
    connection.execute("insert into action (act, subject, actor, detail, at) values ('a', 'b', 'c', 'd', 1)")
    found = verify(Statements(connection))
    newest = scalar(connection, "select max(seq) from transition")
    connection.close()
    assert (found.first_broken, found.rows) == (newest, newest - 1)
    assert found.why == f"Rows {newest} to {newest} have no seal: they were put in, or their seal was taken away."


class AtWork:
    """A reader beside a host that commits once more after some of the looks."""

    def __init__(self, ledger: SqliteLedger, after: set[int]) -> None:
        self._ledger, self._after, self._read, self._looks = ledger, after, ledger.read(), 0

    def all(self, query: str, **params: object) -> list[Row]:
        found = self._read.all(query, **params)
        self._looks += 1
        if self._looks in self._after:
            work = Work(workflows.note, (None, "test", "x", "ann", None), {}, barrier=False, asked=0.0)
            self._ledger._writer._commit([work])
            assert work.error is None
        return found

    def one(self, query: str, **params: object) -> Row | None:
        return next(iter(self.all(query, **params)), None)


@pytest.mark.parametrize("after", [{1}, {2}, {3}, {4}, {1, 2}, {2, 3}, {3, 4}, {1, 2, 3, 4, 5, 6}])
async def test_what_a_host_commits_while_it_is_verified_is_no_tampering(ledger: SqliteLedger, after: set[int]) -> None:
    await fill(ledger)
    before = len(account(ledger))
    found = verify(AtWork(ledger, after))
    assert found.why is None
    assert before <= found.rows <= len(account(ledger))


# Tampering


@pytest.fixture
async def file(path: Path) -> AsyncIterator[apsw.Connection]:
    """The file of a ledger, past everything that protects it."""
    ledger = SqliteLedger(path)
    await fill(ledger)
    await ledger.close()
    with raw(path) as connection:
        for name in triggers.statements():
            connection.execute(f"drop trigger {name}")
        assert verify(Statements(connection)).first_broken is None
        yield connection


def group_of(connection: apsw.Connection, seq: int) -> tuple[int, int]:
    """The first and the last row of the seal that a row is under."""
    return next(each for each in sealed(connection) if each[0] <= seq <= each[1])


#: Every column of the first, a middle and a late row.
EDITS = [(column, seq) for column in COLUMNS[1:] for seq in (1, 9, 20)]


@pytest.mark.parametrize(("column", "seq"), EDITS)
def test_a_changed_column_is_found_at_its_seal(file: apsw.Connection, column: str, seq: int) -> None:
    first, last = group_of(file, seq)
    file.execute(f"update transition set {column} = iif({column} is null, 'x', {column} || '1') where seq = ?", (seq,))
    found = verify(Statements(file))
    assert (found.first_broken, found.rows) == (first, first - 1)
    assert found.why == (
        f"Rows {first} to {last} do not fit their seal: one of them, or the seal before, was changed after they were "
        "written, or rows were taken out or put in."
    )


@pytest.mark.parametrize("column", ["why", "source", "actor"])
def test_a_value_that_was_taken_away_is_found(file: apsw.Connection, column: str) -> None:
    seq = scalar(file, f"select max(seq) from transition where {column} is not null")
    file.execute(f"update transition set {column} = null where seq = ?", (seq,))
    assert verify(Statements(file)).first_broken == group_of(file, seq)[0]


NEW = "insert into transition select :seq, workflow_id, machine, subject, source, target, at, why, actor"
SHIFT = "update transition set seq = -seq - 1 where seq >= :seq; update transition set seq = -seq where seq < 0"
SWAP = """
  create temp table two as select * from transition where seq in (7, 11);
  update transition set (workflow_id, machine, subject, source, target, at, why, actor) =
    (select workflow_id, machine, subject, source, target, at, why, actor from two
      where two.seq = 18 - transition.seq) where seq in (7, 11)
"""

#: What somebody did to the file → the statements, and what is said of it.
TAMPERED = {
    "a row deleted": ("delete from transition where seq = 7", "Row 7 is missing, the next is 8"),
    "the first row deleted": ("delete from transition where seq = 1", "Row 1 is missing"),
    "a row deleted, the others renumbered": (
        "delete from transition where seq = 7; update transition set seq = seq - 1 where seq > 7", "do not fit"),
    "a row put in between": (
        f"{SHIFT.replace(':seq', '7')}; {NEW.replace(':seq', '7')} from transition where seq = 6", "do not fit"),
    "a row put in front": (f"{NEW.replace(':seq', '0')} from transition where seq = 1", "Row 1 is missing"),
    "a row put behind": (
        f"{NEW.replace(':seq', '1 + (select max(seq) from transition)')} from transition where seq = 1",
        "have no seal"),
    "two rows' contents swapped": (SWAP, "do not fit"),
    "a seal taken away": ("delete from seal where last = (select min(last) from seal where last > 7)", "do not fit"),
    "the newest seal taken away": ("delete from seal where last = (select max(last) from seal)", "have no seal"),
    "every seal taken away": ("delete from seal", "have no seal"),
    "a seal changed": ("update seal set chain = 'x' where last > 7", "do not fit"),
    "a seal put in": ("insert into seal select max(last) - 1, chain from seal", "do not fit"),
    "an empty seal put in": ("insert into seal select max(last) - 1, '' from seal", "do not fit"),
    "a seal moved": ("update seal set last = last + 1 where last = (select min(last) from seal where last > 7)",
                     "do not fit"),
    "a seal put in behind": ("insert into seal select max(last) + 5, 'x' from seal", "and no such row"),
    "a seal put in front": ("insert into seal values (0, 'x')", "and no such row"),
    "the end cut off without its seal": ("delete from transition where seq > 7", "and no such row"),
    "bytes": ("update transition set why = x'00ff' where seq = 7", "do not fit"),
    "bytes as text": ("update transition set why = cast(x'ff' as text) where seq = 7", "follows row 6 is no text"),
    "a number": ("update transition set seq = 1000 where seq = 7", "Row 7 is missing"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampering_is_found_and_named(file: apsw.Connection, how: str) -> None:
    statements, said = TAMPERED[how]
    file.execute(statements)
    found = verify(Statements(file))
    assert found.why is not None
    assert said in found.why
    assert found.first_broken in (found.rows + 1, 0), "everything before it was verified"


def test_a_row_that_was_rewritten_with_its_seal_is_found_at_the_next(file: apsw.Connection) -> None:
    first, last = group_of(file, 7)
    file.execute("update transition set why = 'another' where seq = 7")
    before = scalar(file, f"select coalesce(max(chain), '') from seal where last = {first - 1}")
    rewritten = file.execute(f"select {', '.join(COLUMNS)} from transition where seq between {first} and {last}")
    file.execute("update seal set chain = ? where last = ?", (chain(before, *rewritten), last))
    assert verify(Statements(file)).first_broken == last + 1


def test_that_the_end_was_cut_off_with_its_seals_cannot_be_seen(file: apsw.Connection) -> None:
    # what the docs admit: nothing in the file says how long the account was
    last = group_of(file, 7)[1]
    file.execute(f"delete from transition where seq > {last}; delete from seal where last > {last}")
    assert verify(Statements(file)) == Verified(last)


def test_no_two_rows_have_one_encoding() -> None:
    parts = [("a", "b"), ("ab",), ("a", None, "b"), ('a","b',), (None,), ("null",), (1,), ("1",), ("",), (b"1",), ()]
    assert len({chain(*each) for each in parts}) == len(parts)


def test_the_hash_is_pinned() -> None:
    # it is in people's ledgers: another way to make it would break them all
    row = (None, 1, "wf_1", "status", "run_1", "active", "paused", 1_700_000_000_000, '{"message":"é"}', "hst_1")
    assert chain(*row) == "71e69fdd254d833fd46db6e5f375e410c00a0e18680fff4569805f4b1e4fad74"


def test_the_hash_of_a_seal_is_pinned() -> None:
    row = (1, "wf_1", "status", "run_1", "active", "paused", 1_700_000_000_000, '{"message":"é"}', "hst_1")
    assert chain("", row, row) == "e4fd8101e213d9dc40f67b7279722c8f5d5d3604abf314f5fefbd0fe648cdb93"


# The checks


def test_a_good_ledger_passes_every_check(file: apsw.Connection) -> None:
    found = check(Statements(file))
    assert [each.name for each in found] == list(CHECKS)
    assert all(each.sound for each in found)
    account = next(each for each in found if each.name == "account")
    assert account.facts["rows"] == scalar(file, "select count(*) from transition")


def test_a_reference_to_nothing_is_found(file: apsw.Connection) -> None:
    file.execute("pragma foreign_keys = off; update event set created_by = 'run_none', reserved_by = 'run_none' "
                 "where status = 'pending'")
    found = next(each for each in check(Statements(file)) if not each.sound)
    assert found.name == "references"
    assert "there is no such run" in found.said


def test_a_row_that_breaks_a_constraint_is_found(file: apsw.Connection) -> None:
    file.execute("pragma ignore_check_constraints = on; update event set status = 'odd' where status = 'consumed'; "
                 "pragma ignore_check_constraints = off")
    found = next(each for each in check(Statements(file)) if each.name == "pages")
    assert not found.sound
    assert "CHECK constraint failed in event" in found.said


def test_what_must_never_be_is_found_and_named(file: apsw.Connection) -> None:
    file.execute("update event set reserved_by = (select id from run limit 1) where status = 'pending'")
    found = next(each for each in check(Statements(file)) if not each.sound)
    assert found.name == "invariants"
    assert "I14: an event reserved by a run that is not open" in found.said


# A run told again from the account alone


class Retold:
    """What, why and who of the work on one event, from rows of the account and nothing else."""

    def __init__(self, found: list[Row]) -> None:
        self._rows = found

    def runs(self, handler: str) -> list[str]:
        """The lineage of a handler, by what the first row of each run says."""
        begun = {r["subject"]: json.loads(r["why"]) for r in self._rows
                 if (r["machine"], r["source"]) == ("status", None)}
        mine = [run for run, why in begun.items() if why["handler"] == handler]
        lineage = [run for run in mine if begun[run]["retry_of"] is None]
        while after := [run for run in mine if begun[run]["retry_of"] == lineage[-1]]:
            lineage += after
        return lineage

    def sent(self, run: str) -> list[str]:
        return [r["subject"] for r in self._rows if (r["machine"], r["target"]) == ("mutation", "in_flight")
                and json.loads(r["why"])["run"] == run]

    def story(self, *subjects: str) -> list[tuple[str, str, str, str | None]]:
        return [(r["machine"], r["target"], r["actor"].partition("_")[0], r["why"]) for r in self._rows
                if r["subject"] in subjects and r["machine"] != "phase"]


async def test_a_run_can_be_told_again_from_the_account_alone(tmp_path: Path) -> None:
    # I34: retried, doubted, resolved by a person, committed
    async with Story(tmp_path) as story:
        story.feed.put("a")
        story.world.on("gmail.send").fail(Transient("busy")).lose_answer()
        story.world.on_reconcile("gmail.send").retry().unknown()
        wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={
            "act": consumer(take_first(), mutate="await ctx.gmail.send({ to: prepared.data.messageId });")}))
        await story.run()
        await story.run(seconds=30)
        await story.run(minutes=5)
        [asked] = await story.keep.needs_you(wf)
        await story.keep.resolve(str(asked.mutation_id), "happened", {"id": "by hand"})
        await story.run()
        assert verify(story.keep.parts.ledger.read()).why is None
        told = Retold(story.keep.parts.ledger.read().all("account_page", first=0, limit=9_999))
    first, second = told.runs("act")
    assert [(machine, target) for machine, target, *_ in told.story(first)] == [
        ("status", "active"), ("status", "paused"), ("status", "superseded")]
    stop = json.loads(told.story(first)[1][3] or "")
    assert ("busy" in stop["message"], stop["reason"]) == (True, "transient")
    [failed], [doubted] = told.sent(first), told.sent(second)
    assert [target for _, target, _, _ in told.story(failed)] == ["in_flight", "failed"]
    assert [(machine, target, who) for machine, target, who, _ in told.story(doubted)] == [
        ("mutation", "in_flight", "hst"), ("mutation", "needs_reconcile", "hst"), ("reconcile", "1", "hst"),
        ("mutation", "indeterminate", "hst"), ("act", "happened", "person"), ("mutation", "applied", "hst")]
    assert told.story(doubted)[-1][3] == "person: it happened"
    assert "by hand" in (told.story(doubted)[-2][3] or "")
    assert told.story(second)[-1][:2] == ("status", "committed")
    assert json.loads(told.story(second)[-1][3] or "")["status"] == "applied"
