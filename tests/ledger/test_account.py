"""The account: every move and act in one chained sequence, from which a run can be told again; tampering is found."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import apsw
import pytest

from keepai import Transient
from keepai.ledger.account import BRIEF_MAX, COLUMNS, Verified, chain, verify
from keepai.ledger.base import Row, Tx
from keepai.ledger.checks import CHECKS, check
from keepai.ledger.sqlite import triggers
from keepai.ledger.sqlite.connection import Statements
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import mutations, workflows
from keepai.model.errors import Refused
from keepai.model.states import MACHINES, WorkflowStatus
from keepai.testing.crash import CrashAt, Crashed
from tests.harness import Story, consumer, producer, take_first, workflow
from tests.ledger import rows
from tests.ledger.rows import raw, scalar

ALL = ", ".join((*COLUMNS, "chain"))


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


def account(ledger: SqliteLedger) -> list[Row]:
    return ledger.read().all("account_page", first=0, limit=9_999)


# Everything is in it


async def test_every_verb_appends_and_every_row_is_chained(ledger: SqliteLedger) -> None:
    await fill(ledger)
    found = account(ledger)
    assert verify(ledger.read()) == Verified(len(found), len(found))
    assert [row["seq"] for row in found] == list(range(1, len(found) + 1))
    kinds = {row["machine"] for row in found}
    assert kinds == {"workflow", "act", "grant", "input", "event", "phase", "status", "mutation"}
    assert {row["actor"] for row in found} == {ledger.host, "person", "ann"}


def test_every_machine_appends_its_beginnings_and_its_moves() -> None:
    made = triggers.statements()
    for table, column, _, _ in triggers.BINDINGS.values():
        for suffix in ("born", "moved"):
            assert "insert into account" in made[f"{table}_{column}_{suffix}"]
    assert set(triggers.WHY) == set(MACHINES)
    assert sum("insert into account" in text for text in made.values()) == 2 * len(MACHINES) + len(triggers.NOTED) + 1


def test_nothing_is_appended_without_its_hash() -> None:
    appending = [text for text in triggers.statements().values() if "insert into transition" in text]
    assert len(appending) == 1
    assert "account_chain(" in appending[0]


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
    assert verify(ledger.read()).chained == len(before) + 1


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
    with pytest.raises(apsw.SQLError, match="no such function: account_chain"):
        connection.execute("insert into action (act, subject, actor, detail, at) values ('a', 'b', 'c', 'd', 1)")
    connection.close()


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


#: Every column of the first, a middle and a late row.
EDITS = [(column, seq) for column in (*COLUMNS[1:], "chain") for seq in (1, 9, 20)]


@pytest.mark.parametrize(("column", "seq"), EDITS)
def test_a_changed_column_is_found_at_its_row(file: apsw.Connection, column: str, seq: int) -> None:
    file.execute(f"update transition set {column} = iif({column} is null, 'x', {column} || '1') where seq = ?", (seq,))
    found = verify(Statements(file))
    assert (found.first_broken, found.rows) == (seq, seq - 1)
    assert found.why == f"Row {seq} does not fit its hash: it, or the row before it, was changed after it was written."


@pytest.mark.parametrize("column", ["why", "source", "actor"])
def test_a_value_that_was_taken_away_is_found(file: apsw.Connection, column: str) -> None:
    seq = scalar(file, f"select max(seq) from transition where {column} is not null")
    file.execute(f"update transition set {column} = null where seq = ?", (seq,))
    assert verify(Statements(file)).first_broken == seq


NEW = f"insert into transition ({ALL}) select :seq, workflow_id, machine, subject, source, target, at, why, actor"
SHIFT = "update transition set seq = -seq - 1 where seq >= :seq; update transition set seq = -seq where seq < 0"
SWAP = """
  create temp table two as select * from transition where seq in (7, 11);
  update transition set (workflow_id, machine, subject, source, target, at, why, actor{chain}) =
    (select workflow_id, machine, subject, source, target, at, why, actor{chain} from two
      where two.seq = 18 - transition.seq) where seq in (7, 11)
"""

#: What somebody did to the file → the statements, the first row that does not fit, and what is said of it.
TAMPERED = {
    "a row deleted": ("delete from transition where seq = 7", 8, "Row 7 is missing, the next is 8"),
    "the first row deleted": ("delete from transition where seq = 1", 2, "Row 1 is missing"),
    "a row deleted, the others renumbered": (
        "delete from transition where seq = 7; update transition set seq = seq - 1 where seq > 7", 7, "does not fit"),
    "a row put in between": (
        f"{SHIFT.replace(':seq', '7')}; {NEW.replace(':seq', '7')}, chain from transition where seq = 6", 7,
        "does not fit"),
    "a row put in front": (f"{NEW.replace(':seq', '0')}, null from transition where seq = 1", 0, "Row 1 is missing"),
    "a row put behind without a hash": (
        f"{NEW.replace(':seq', '1 + (select max(seq) from transition)')}, null from transition where seq = 1", None,
        "has no hash"),
    "a row put behind with the hash of another": (
        f"{NEW.replace(':seq', '1 + (select max(seq) from transition)')}, chain from transition where seq = 1", None,
        "does not fit"),
    "two rows' contents swapped": (SWAP.format(chain=""), 7, "does not fit"),
    "two rows swapped with their hashes": (SWAP.format(chain=", chain"), 7, "does not fit"),
    "a hash taken away": ("update transition set chain = null where seq = 7", 7, "has no hash"),
    "the hashes of the beginning taken away": ("update transition set chain = null where seq <= 7", 8, "does not fit"),
    "every hash but the last taken away": (
        "update transition set chain = null where seq < (select max(seq) from transition)", None, "does not fit"),
    "bytes": ("update transition set why = x'00ff' where seq = 7", 7, "does not fit"),
    "bytes as text": ("update transition set why = cast(x'ff' as text) where seq = 7", 7, "follows row 6 is no text"),
    "a number": ("update transition set seq = 1000 where seq = 7", 8, "Row 7 is missing"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampering_is_found_and_named(file: apsw.Connection, how: str) -> None:
    statements, broken, said = TAMPERED[how]
    file.execute(statements)
    found = verify(Statements(file))
    assert found.first_broken == (broken if broken is not None else scalar(file, "select max(seq) from transition"))
    assert found.why is not None
    assert said in found.why


def test_a_row_that_was_rewritten_with_its_hash_is_found_at_the_next(file: apsw.Connection) -> None:
    file.execute("update transition set why = 'another' where seq = 7")
    before = scalar(file, "select chain from transition where seq = 6")
    [row] = file.execute(f"select {', '.join(COLUMNS)} from transition where seq = 7")
    file.execute("update transition set chain = ? where seq = 7", (chain(before, *row),))
    assert verify(Statements(file)).first_broken == 8


def test_that_the_end_was_cut_off_cannot_be_seen(file: apsw.Connection) -> None:
    # what the docs admit: nothing in the file says how long the account was
    file.execute("delete from transition where seq > 7")
    assert verify(Statements(file)) == Verified(7, 7)


def test_no_two_rows_have_one_encoding() -> None:
    parts = [("a", "b"), ("ab",), ("a", None, "b"), ('a","b',), (None,), ("null",), (1,), ("1",), ("",), (b"1",), ()]
    assert len({chain(*each) for each in parts}) == len(parts)


def test_the_hash_is_pinned() -> None:
    # it is in people's ledgers: another way to make it would break them all
    row = (None, 1, "wf_1", "status", "run_1", "active", "paused", 1_700_000_000_000, '{"message":"é"}', "hst_1")
    assert chain(*row) == "71e69fdd254d833fd46db6e5f375e410c00a0e18680fff4569805f4b1e4fad74"


# What is older than the chain


@pytest.fixture
def old(path: Path) -> Path:
    """A file of the first schema, with two moves and an act."""
    text = files("keepai.ledger.sqlite").joinpath("migrations/0001_first.sql").read_text("utf-8")
    with raw(path) as connection:
        connection.execute(f"{text}; pragma user_version = 1; pragma application_id = 0x4B454550")
        rows.insert(connection, "workflow", id="wf", name="old")
        moves = [(None, "active", 1), ("active", "paused", 2)]
        connection.executemany(
            "insert into transition (workflow_id, machine, subject, source, target, at) "
            "values ('wf', 'workflow', 'wf', ?, ?, ?)", moves,
        )
        connection.execute("update workflow set status = 'paused'")
        connection.execute("insert into action (workflow_id, act, subject, actor, detail, at) "
                           "values ('wf', 'grant', 'gmail.send', 'bob', '1', 1)")
    return path


async def test_rows_from_before_the_chain_are_accepted_at_the_beginning(old: Path) -> None:
    ledger = SqliteLedger(old)
    assert verify(ledger.read()) == Verified(2, 0)
    await ledger.write(workflows.move, "wf", WorkflowStatus.ACTIVE, "resume", "ann")
    assert verify(ledger.read()) == Verified(4, 2)
    await ledger.close()


async def test_rows_without_a_hash_are_accepted_nowhere_else(old: Path) -> None:
    ledger = SqliteLedger(old)
    await ledger.write(workflows.move, "wf", WorkflowStatus.ACTIVE, "resume", "ann")
    await ledger.close()
    with raw(old) as connection:
        connection.execute("drop trigger transition_final; update transition set chain = null where seq = 4")
        assert verify(Statements(connection)).first_broken == 4
        connection.execute("drop trigger transition_stays; delete from transition where seq = 1")
        assert verify(Statements(connection)).first_broken == 2


async def test_what_is_older_than_the_chain_is_still_told(old: Path) -> None:
    from keepai import Keep

    async with Keep(old) as keep:
        await keep.resume("wf")
        told = [(t.machine, t.target, t.by) for t in (await keep.explain("wf")).story]
    assert told == [("workflow", "active", None), ("act", "grant", "bob"), ("workflow", "paused", None),
                    ("workflow", "active", "person")]


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
