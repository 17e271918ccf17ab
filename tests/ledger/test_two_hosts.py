"""A second host on one file: it does not come in; and if it did, the first writes and sends nothing any more."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from keepai.ledger.checks import check
from keepai.ledger.sqlite import lock
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import mutations, runs, workflows
from keepai.ledger.transitions.runs import Carry, Stop
from keepai.model import crash_points
from keepai.model.errors import LedgerStopped, LedgerUnusable
from keepai.model.states import Phase, Reason, Status
from keepai.testing import ManualClock
from tests.harness import Story, consumer, producer, workflow
from tests.ledger import rows
from tests.ledger.test_lock import other_host

STOP = Stop(Status.PAUSED, Reason.TRANSIENT, "{}", retry_at=1)


# -- it does not come in -----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="only Linux can lock the ledger's own file as well")
def test_a_removed_lock_file_lets_no_second_host_in_while_the_first_lives(path: Path) -> None:
    with other_host(path) as first:
        path.with_name("keep.db.lock").unlink()
        with pytest.raises(LedgerUnusable, match="is in use by another process"):
            SqliteLedger(path)
        first.kill()
        first.wait()
        SqliteLedger(path)._lock.release()  # type: ignore[union-attr]


async def test_a_removed_lock_file_lets_no_second_host_of_the_same_process_in(path: Path) -> None:
    ledger = SqliteLedger(path)
    path.with_name("keep.db.lock").unlink()
    with pytest.raises(LedgerUnusable, match="is in use by"):
        SqliteLedger(path)
    await ledger.close()
    await SqliteLedger(path).close()


async def test_a_file_with_a_second_name_is_refused_by_both(path: Path, tmp_path: Path) -> None:
    await SqliteLedger(path).close()
    other = tmp_path / "other.db"
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(LedgerUnusable, match=r"has 2 names \(hard links\).*Remove the other names, or use a copy"):
            SqliteLedger(name)
    other.unlink()
    await SqliteLedger(path).close()


def test_a_second_name_made_under_a_running_host_lets_nobody_in(path: Path, tmp_path: Path) -> None:
    with other_host(path):
        os.link(path, tmp_path / "other.db")
        with pytest.raises(LedgerUnusable, match="has 2 names"):
            SqliteLedger(tmp_path / "other.db")


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOLCK, errno.EINVAL, errno.ENOSYS])
def test_a_file_system_without_locks_is_refused_with_a_sentence(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int,
) -> None:
    def flock(fd: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(LedgerUnusable, match=r"its file system has no locks \(.*local disk"):
        SqliteLedger(path)
    assert not path.exists()


# -- if it came in all the same: as where a file can be locked by its name only -----------------------


@pytest.fixture
async def two(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SqliteLedger, Callable[[], Any]]]:
    """A host, and a way to let another one in."""
    monkeypatch.setattr(lock.sys, "platform", "other")
    first, opened = SqliteLedger(path, ManualClock()), []

    def come_in() -> SqliteLedger:
        path.with_name("keep.db.lock").unlink()
        opened.append(SqliteLedger(path, ManualClock()))
        return opened[0]

    yield first, come_in
    for each in (*opened, first):
        await each.close()


async def test_a_first_host_writes_nothing_more_by_any_verb(two: tuple[SqliteLedger, Callable[[], Any]]) -> None:
    first, come_in = two
    wf = await first.write(rows.deploy)
    await first.write(rows.produce, wf, "a", "b")
    run = await first.write(rows.mutating, wf, "a")
    mutation = await first.write(rows.send, run)
    second = come_in()
    before = second.reads.all("account_page", first=0, limit=1000)
    leave = Carry(Status.CRASHED, (1, 0), Phase.PREPARED, keep=True, trigger="retry")
    verbs: list[tuple[Any, ...]] = [
        (mutations.apply, run, mutation, "1", '{"status":"applied"}', ()), (mutations.refuse, run, mutation, STOP, ()),
        (runs.carry_on, run, leave), (runs.resume, run, Phase.MUTATING), (runs.abandon, run),
        (workflows.end_host,), (rows.deploy, "other"), (workflows.note, wf, "pause", wf, "ada", None),
    ]
    for verb, *args in verbs:
        with pytest.raises(LedgerStopped, match=f"Another host .{second.host}, process {os.getpid()} on .* has opened"):
            await first.write(verb, *args)
    assert second.reads.all("account_page", first=0, limit=1000) == before
    assert "Another host" in str(first.stopped())
    await second.write(rows.deploy, "third")  # who has it can work


async def test_the_first_host_knows_before_it_sends(two: tuple[SqliteLedger, Callable[[], Any]]) -> None:
    first, come_in = two
    first.check()
    come_in()
    with pytest.raises(LedgerStopped, match="lock was replaced by another file"):
        first.check()


async def test_an_entry_that_is_not_ones_own_stops_a_host(ledger: SqliteLedger, path: Path) -> None:
    await ledger.write(rows.deploy)
    with rows.raw(path) as connection:
        connection.execute("insert into account select max(seq) + 1, 1, '[]', x'00' from account")
    with pytest.raises(LedgerStopped, match="Something else has written to the account"):
        await ledger.write(rows.deploy, "other")
    with pytest.raises(LedgerStopped):
        ledger.check()


async def test_a_newer_host_in_the_file_stops_one_before_it_sends(ledger: SqliteLedger, path: Path) -> None:
    with rows.raw(path) as connection:
        connection.execute("insert into host values (2, 'hst_other', 'there', 7, 1, null)")
    with pytest.raises(LedgerStopped, match=r"Another host .hst_other, process 7 on there. has opened"):
        ledger.check()
    assert ledger.stopped()


async def test_what_two_hosts_did_is_found_by_the_check(two: tuple[SqliteLedger, Callable[[], Any]]) -> None:
    first, come_in = two
    wf = await first.write(rows.deploy)
    await first.write(rows.produce, wf, "a")
    second = come_in()
    await second.write(rows.produce, wf, "b")
    assert all(each.sound for each in check(second.reads))
    first._writer._tx.epoch = second.epoch  # a host that does not look, as before
    first._writer._head = second._writer._head
    first._writer._tx.host = first.host

    def late(tx: Any) -> None:
        tx.epoch = first.epoch
        rows.produce(tx, wf, "c")

    await first.write(late)
    [wrong] = [each for each in check(second.reads) if not each.sound]
    assert "two hosts had the file" in wrong.said
    first._writer._tx.epoch, first._writer._head = first.epoch, second._writer._head


# -- the file at its place ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["keep.db", "keep.db-wal", "keep.db.lock"])
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_host_knows_if_a_file_of_its_ledger_is_gone(path: Path, name: str, replaced: bool) -> None:
    ledger = SqliteLedger(path)
    await ledger.write(rows.deploy)
    ledger.check()
    file = path.with_name(name)
    if replaced:
        shutil.copyfile(file, file.with_name("copy"))
        file.with_name("copy").replace(file)
    else:
        file.unlink()
    with pytest.raises(LedgerStopped, match=f"{name} was {'replaced by another file' if replaced else 'removed'}"):
        ledger.check()
    with pytest.raises(LedgerStopped, match="sends nothing any more"):
        await ledger.write(rows.deploy, "other")
    await ledger.close()


SEND = "await ctx.gmail.send({ to: prepared.data.messageId });"
FLOW = workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=SEND)})


@pytest.mark.sqlite("it takes a file from the host; tests/stories/test_several_hosts.py takes the place in a database")
@pytest.mark.parametrize("lose", ["lock", "ledger", "host"])
async def test_a_host_that_loses_its_ledger_between_the_record_and_the_call_sends_nothing(
    tmp_path: Path, lose: str,
) -> None:
    async with Story(tmp_path) as story:
        await story.deploy(FLOW)
        story.feed.put("a")

        def at(point: str) -> None:
            if point != "before:call":
                return
            if lose == "host":
                with rows.raw(story.path) as connection:
                    connection.execute("insert into host values (9, 'hst_other', 'there', 7, 1, null)")
            else:
                story.path.with_name({"lock": "keep.db.lock", "ledger": "keep.db"}[lose]).unlink()

        crash_points.listen(at)
        try:
            with pytest.raises(LedgerStopped):
                await story.run()
        finally:
            crash_points.listen(None)
        assert story.world.effects == []
        story.clock.advance(hours=1)
        with pytest.raises(LedgerStopped):
            await story.keep.run_until_idle()
