"""The account: one entry per commit, chained, from which a run can be told again; tampering is found."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from keepai import Transient
from keepai.ledger.account import BRIEF_MAX, Verified, chain, of_subject, verify, walk
from keepai.ledger.base import Ledger, OpenReader, Row, Tx
from keepai.ledger.checks import CHECKS, check
from keepai.ledger.opening import open_reader
from keepai.ledger.postgres.reader import PostgresReader
from keepai.ledger.sqlite import triggers
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import mutations, workflows
from keepai.ledger.transitions.mutations import LateEvidence
from keepai.model.errors import Refused
from keepai.model.states import WorkflowStatus
from keepai.testing.crash import CrashAt, Crashed
from tests.harness import Story, consumer, producer, take_first, workflow
from tests.ledger import rows
from tests.ledger.rows import scalar
from tests.ledger.stores import Raw, Store, reads


async def fill(ledger: Ledger) -> str:
    """A workflow of which a run committed, with everything that this writes."""
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1", "m2")
    run = await ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await ledger.write(rows.send, run)
    run = await ledger.write(mutations.apply, run, mutation, '{"rowId":1}', '{"status":"applied"}', [])
    await ledger.write(rows.finish, run, "o1")
    await ledger.write(workflows.move, workflow_id, WorkflowStatus.PAUSED, "pause", "ann")
    return workflow_id


def entries(ledger: Ledger) -> list[Row]:
    return reads(ledger).all("account_page", first=0, limit=9_999)


def account(ledger: Ledger) -> list[Row]:
    """Every move that it tells."""
    return list(walk(reads(ledger)))


# Everything is in it


async def test_every_verb_tells_what_it_moved_and_every_entry_fits(any_ledger: Ledger) -> None:
    await fill(any_ledger)
    found = account(any_ledger)
    assert verify(reads(any_ledger)) == Verified(len(entries(any_ledger)))
    assert [row["seq"] for row in entries(any_ledger)] == list(range(1, len(entries(any_ledger)) + 1))
    kinds = {row["machine"] for row in found}
    assert kinds == {"workflow", "act", "grant", "input", "event", "phase", "status", "mutation"}
    assert {row["actor"] for row in found} == {any_ledger.host, "person", "ann"}


async def test_each_commit_has_one_entry(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    assert len(entries(any_ledger)) == 1
    await any_ledger.write(rows.produce, workflow_id, "m1", "m2")
    [_, entry] = entries(any_ledger)
    assert {move["seq"] for move in account(any_ledger) if move["machine"] in ("input", "event")} == {entry["seq"]}


async def test_a_commit_that_moves_nothing_has_no_entry(any_ledger: Ledger) -> None:
    workflow_id = await fill(any_ledger)
    before = entries(any_ledger)
    await any_ledger.write(lambda tx: tx.run("topic_touch", workflow_id=workflow_id, topic="in", sequence=1_000))
    assert entries(any_ledger) == before


async def test_the_moves_of_one_thing_are_found_by_it(any_ledger: Ledger) -> None:
    workflow_id = await fill(any_ledger)
    told = account(any_ledger)
    for subject in {row["subject"] for row in told}:
        own = [row for row in told if row["subject"] == subject and row["machine"] != "act"]
        assert of_subject(reads(any_ledger), workflow_id, subject) == own


async def test_a_thing_of_another_workflow_with_the_same_name_is_not_told(any_ledger: Ledger) -> None:
    workflow_id = await fill(any_ledger)
    [grant] = {row["subject"] for row in account(any_ledger) if row["machine"] == "grant"}
    assert of_subject(reads(any_ledger), workflow_id, grant)
    assert of_subject(reads(any_ledger), "wf_other", grant) == []


async def test_an_act_stands_in_the_same_sequence_as_what_it_moved(any_ledger: Ledger) -> None:
    workflow_id = await fill(any_ledger)
    moved, act = account(any_ledger)[-2:]
    assert (moved["machine"], moved["source"], moved["target"]) == ("workflow", "active", "paused")
    told = [act[name] for name in ("workflow_id", "machine", "subject", "source", "target", "why", "actor")]
    assert told == [workflow_id, "act", workflow_id, None, "pause", None, "ann"]


async def test_an_act_on_no_workflow_is_in_the_account_too(any_ledger: Ledger) -> None:
    await any_ledger.write(workflows.note, None, "test", "all of it", "ann", {"a": 1})
    [row] = account(any_ledger)
    assert (row["workflow_id"], row["target"], row["why"]) == ("", "test", '{"a":1}')


async def test_acts_on_no_workflow_and_on_one_share_an_entry(any_ledger: Ledger) -> None:
    def both(tx: Tx) -> None:
        workflows.note(tx, None, "test", 'a "word"', "ann", None)
        rows.deploy(tx)
        workflows.note(tx, None, "test", "other", "bob", {"a": [1, "é"]})

    await any_ledger.write(both)
    told = account(any_ledger)
    assert [(row["subject"], row["actor"], row["why"]) for row in told if row["workflow_id"] == ""] == [
        ('a "word"', "ann", None), ("other", "bob", '{"a":[1,"é"]}')]
    assert verify(reads(any_ledger)) == Verified(1)


async def test_what_an_act_did_and_the_act_are_one_transaction(store: Store) -> None:
    ledger = store.open()
    workflow_id = await ledger.write(rows.deploy)
    before = account(ledger)
    with CrashAt("before:move"), pytest.raises(Crashed):
        await ledger.write(workflows.move, workflow_id, WorkflowStatus.PAUSED, "pause", "ann")
    await ledger.close()
    ledger = store.open()
    assert account(ledger) == before
    assert [a["act"] for a in await ledger.all("action_all", workflow_id=workflow_id)] == ["deploy"]
    assert [w["status"] for w in await ledger.all("workflow_all")] == ["active"]
    await ledger.close()


async def test_a_verb_that_is_refused_tells_nothing_and_leaves_no_gap(any_ledger: Ledger) -> None:
    def refused(tx: Tx) -> None:
        workflows.note(tx, None, "test", "x", "ann", None)
        raise Refused("No.")

    await fill(any_ledger)
    before = account(any_ledger)
    with pytest.raises(Refused):
        await any_ledger.write(refused)
    assert account(any_ledger) == before
    await any_ledger.write(workflows.note, None, "test", "x", "ann", None)
    assert verify(reads(any_ledger)).entries == 1 + before[-1]["seq"]


async def test_a_long_value_that_a_row_keeps_stands_in_it_as_its_hash(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(rows.produce, workflow_id, "m1")
    run = await any_ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await any_ledger.write(rows.send, run)
    await any_ledger.write(mutations.apply, run, mutation, json.dumps("x" * BRIEF_MAX), '{"status":"applied"}', [])
    [row] = [r for r in account(any_ledger) if (r["machine"], r["target"]) == ("mutation", "applied")]
    assert row["why"].startswith("sha256:")


async def test_a_long_sign_stands_in_it_as_its_hash_and_a_short_one_as_it_is(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(rows.produce, workflow_id, "m1")
    run = await any_ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await any_ledger.write(rows.send, run)
    long = json.dumps({"found": "x" * 5_000})
    for said in ('{"found":"a row"}', long):
        await any_ledger.write(mutations.hear, mutation.id, LateEvidence(said))
    short, hashed = [row["why"] for row in account(any_ledger) if row["machine"] == "sign"]
    assert (short, hashed) == ('{"found":"a row"}', f"sha256:{hashlib.sha256(long.encode()).hexdigest()}")
    assert long in str(reads(any_ledger).one("mutation_by_id", mutation_id=mutation.id)), "the row has it"


async def test_what_another_program_moves_is_found_when_the_account_is_compared(store: Store) -> None:
    ledger = store.open()
    await fill(ledger)
    await ledger.close()
    with store.raw() as tables, closing(open_reader(store.path)) as read:
        tables.execute("update event set status = 'skipped' where status = 'pending' and message_id = 'm2'")
        found = {each.name: each for each in check(read)}
    assert found["account"].sound
    assert any("a event whose history ends elsewhere" in str(each) for each in found["invariants"].facts["found"])


async def test_a_refused_verb_of_a_group_is_not_told_with_the_others(any_ledger: Ledger) -> None:
    def note(tx: Tx, actor: str, *, refused: bool) -> None:
        workflows.note(tx, None, "test", "x", actor, None)
        if refused:
            raise Refused("No.")

    with rows.under_way(any_ledger, 3):  # so that they may share a commit
        done = await asyncio.gather(
            any_ledger.write(note, "ann", refused=False), any_ledger.write(note, "bob", refused=True),
            any_ledger.write(note, "cid", refused=False), return_exceptions=True)
    assert [type(each) for each in done] == [type(None), Refused, type(None)]
    assert [move["actor"] for move in account(any_ledger)] == ["ann", "cid"]
    shared = 1 if isinstance(any_ledger, SqliteLedger) else 2  # in PostgreSQL each has a commit of its own
    assert verify(reads(any_ledger)) == Verified(shared)


class AtWork:
    """A reader beside a host that commits once more after some of the looks."""

    def __init__(self, ledger: Ledger, after: set[int]) -> None:
        self._ledger, self._after, self._read, self._looks = ledger, after, reads(ledger), 0
        self._loop = asyncio.get_running_loop()

    def all(self, query: str, **params: object) -> list[Row]:
        found = self._read.all(query, **params)
        self._looks += 1
        if self._looks in self._after:
            commit = self._ledger.write(workflows.note, None, "test", "x", "ann", None)
            asyncio.run_coroutine_threadsafe(commit, self._loop).result(60)
        return found

    def one(self, query: str, **params: object) -> Row | None:
        return next(iter(self.all(query, **params)), None)

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        yield from self.all(query, **params)


@pytest.mark.parametrize("after", [{1}, {2}, {3}, {4}, {1, 2}, {2, 3}, {3, 4}, {1, 2, 3, 4, 5, 6}])
async def test_what_a_host_commits_while_it_is_verified_is_no_tampering(any_ledger: Ledger, after: set[int]) -> None:
    await fill(any_ledger)
    before = len(entries(any_ledger))
    found = await asyncio.to_thread(verify, AtWork(any_ledger, after))
    assert found.why is None
    assert before <= found.entries <= len(entries(any_ledger))


# Tampering


@dataclass
class Unguarded:
    """The tables of a ledger, past everything that protects them, and a reader of it."""

    tables: Raw
    read: OpenReader

    def execute(self, text: str) -> None:
        """Run statements, in the words of SQLite."""
        if isinstance(self.read, PostgresReader):
            text = re.sub(r"x'(\w+)'", r"decode('\1', 'hex')", text)
        for statement in text.split(";"):
            self.tables.execute(statement)

    def set(self, seq: int, **values: object) -> None:
        """Change columns of an entry."""
        self.tables.execute(f"update account set {', '.join(f'{name} = :{name}' for name in values)} where seq = {seq}",
                            values)


@pytest.fixture
async def broken_into(store: Store) -> AsyncIterator[Unguarded]:
    """A ledger of which a host wrote eight entries."""
    ledger = store.open()
    await fill(ledger)
    await ledger.close()
    with store.raw() as tables, closing(open_reader(store.path)) as read:
        if isinstance(read, PostgresReader):
            tables.execute("set session_replication_role = replica")  # no trigger, and no reference is checked
        else:
            tables.execute("pragma foreign_keys = off")
            for name in triggers.statements():
                tables.execute(f"drop trigger {name}")
        assert verify(read).first_broken is None
        yield Unguarded(tables, read)


#: Every column of the first, a middle and the last entry.
EDITS = [(column, place) for column in ("at", "told", "chain") for place in (1, 4, 7)]


@pytest.mark.parametrize(("column", "seq"), EDITS)
def test_a_changed_column_is_found_at_its_entry(broken_into: Unguarded, column: str, seq: int) -> None:
    changed = {"at": "at + 1", "told": "replace(told, 'hst_', 'hsx_')", "chain": "x'00'"}[column]
    broken_into.execute(f"update account set {column} = {changed} where seq = {seq}")
    found = verify(broken_into.read)
    assert (found.first_broken, found.entries) == (seq, seq - 1)
    assert found.why == (
        f"Entry {seq} does not fit its hash: it, or the one before, was changed after it was written.")


#: What somebody did to the tables → the statements, and what is said of it.
TAMPERED = {
    "an entry deleted": ("delete from account where seq = 3", "Entry 3 is missing, the next is 4"),
    "the first entry deleted": ("delete from account where seq = 1", "Entry 1 is missing"),
    "an entry deleted, the others renumbered": (
        "delete from account where seq = 3; update account set seq = seq - 1 where seq > 3", "does not fit"),
    "an entry put in front": (
        "insert into account select 0, at, told, chain from account where seq = 1", "Entry 1 is missing"),
    "an entry put behind": (
        "insert into account select 1 + (select max(seq) from account), at, told, chain from account where seq = 1",
        "does not fit"),
    "two entries' contents swapped": (
        "update account set told = (select o.told from account o where o.seq = 7 - account.seq) where seq in (3, 4)",
        "does not fit"),
    "a hash changed": ("update account set chain = x'00' where seq = 3", "does not fit"),
    "a number": ("update account set seq = 1000 where seq = 3", "Entry 3 is missing"),
    "a name taken out of the index": (
        "delete from account_subject where entry = 3", "the index of what they tell of does not"),
    "a name put into the index": (
        "insert into account_subject values (77, 3)", "the index of what they tell of does not"),
}

#: What PostgreSQL cannot keep as a text.
NO_TEXT = {
    "bytes": ("update account set told = x'00ff' where seq = 3", "does not fit"),
    "bytes as text": ("update account set told = cast(x'ff' as text) where seq = 3", "follows entry 2 is no text"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampering_is_found_and_named(broken_into: Unguarded, how: str) -> None:
    judge(broken_into, *TAMPERED[how])


@pytest.mark.parametrize("how", NO_TEXT)
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_what_is_no_text_is_found_and_named(broken_into: Unguarded, how: str) -> None:
    judge(broken_into, *NO_TEXT[how])


def judge(broken_into: Unguarded, statements: str, said: str) -> None:
    broken_into.execute(statements)
    found = verify(broken_into.read)
    assert found.why is not None
    assert said in found.why
    assert found.first_broken in (found.entries + 1, 0, None), "everything before it was verified"


def test_an_entry_that_was_rewritten_with_its_hash_is_found_at_the_next(broken_into: Unguarded) -> None:
    [before, entry] = broken_into.read.all("account_page", first=2, limit=2)
    told = entry["told"].replace("hst_", "hsx_")
    broken_into.set(3, told=told, chain=chain(before["chain"], 3, entry["at"], told))
    assert verify(broken_into.read).first_broken == 4


def test_an_entry_that_nobody_can_read_is_found_though_its_hash_fits(broken_into: Unguarded) -> None:
    [before] = broken_into.read.all("account_page", first=6, limit=1)
    for told in ("[]", "nothing", "[1]", '["hst_1",[]]', '["hst_1",["wf_1",["run_1",["phase"]]]]'):
        broken_into.set(7, told=told, at=1, chain=chain(before["chain"], 7, 1, told))
        found = verify(broken_into.read)
        assert found.first_broken == 7, told
        assert found.why == "Entry 7 is no entry: Keep did not write that."


def test_that_the_end_was_cut_off_cannot_be_seen(broken_into: Unguarded) -> None:
    # what the docs admit: nothing in the ledger says how long the account was
    broken_into.execute("delete from account_subject where entry > 4; delete from account where seq > 4")
    assert verify(broken_into.read) == Verified(4)


def test_the_hash_is_pinned() -> None:
    # it is in people's ledgers: another way to make it would break them all
    told = '["hst_1",["wf_1",["run_1",["status","active","paused",{"message":"é"}]]]]'
    assert chain(b"", 1, 1_700_000_000_000, told).hex() == (
        "384af5bc4b8ff277ecb1deef76d201c746e9be5280ef650e7a90df015738c679")
    assert chain(chain(b"", 1, 1, told), 2, 1, told) != chain(chain(b"", 1, 1, told + " "), 2, 1, told)


# The checks


def test_a_good_ledger_passes_every_check(broken_into: Unguarded) -> None:
    found = {each.name: each for each in check(broken_into.read) if each.sound}
    assert list(found) == list(CHECKS)
    assert found["account"].facts["entries"] == scalar(broken_into.tables, "select count(*) from account")


def test_a_reference_to_nothing_is_found(broken_into: Unguarded) -> None:
    broken_into.execute("update event set created_by = 7, reserved_by = 7 where status = 'pending'")
    found = next(each for each in check(broken_into.read) if not each.sound)
    assert found.name == "references"
    assert "there is no such run" in found.said


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_row_that_breaks_a_constraint_is_found(broken_into: Unguarded) -> None:
    broken_into.execute("pragma ignore_check_constraints = on; "
                        "update event set status = 'odd' where status = 'consumed'; "
                        "pragma ignore_check_constraints = off")
    found = next(each for each in check(broken_into.read) if each.name == "pages")
    assert not found.sound
    assert "CHECK constraint failed in event" in found.said


def test_what_must_never_be_is_found_and_named(broken_into: Unguarded) -> None:
    broken_into.execute(
        "update event set reserved_by = (select id from run order by id limit 1) where status = 'pending'")
    found = next(each for each in check(broken_into.read) if not each.sound)
    assert found.name == "invariants"
    assert "first: an event reserved by a run that is not open" in found.said


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


@pytest.mark.both_stores
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
        assert verify(story.reader()).why is None
        told = Retold(list(walk(story.reader())))
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
