"""A ledger is moved whole or not at all: whatever ends the mover, hosts can begin at exactly one of the two places."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepai.ledger import opening
from keepai.ledger.base import Reader, Tx
from keepai.ledger.checks import check
from keepai.ledger.moving import Moved
from keepai.ledger.sqlite.move_ends import SqliteTarget
from keepai.ledger.transitions import mutations, workflows
from keepai.model import crash_points
from keepai.model.clock import SystemClock
from keepai.model.errors import KeepError, LedgerMoved, LedgerUnusable, Refused
from keepai.model.policy import Policy
from keepai.model.records import Mutation
from keepai.reading.everything_shown import everything_shown
from keepai.script.manifest import Handler, HandlerKind, Manifest
from tests.ledger import rows
from tests.ledger.stores import PostgresStore

NOW = 1_800_000_000_000

#: The places at which a mover may be killed, in order; until `after:move_departs` the source is the ledger.
POINTS = ("after:move_copies", "before:move_departs", "after:move_departs", "after:move_arrives")


@pytest.fixture
def database() -> PostgresStore:
    """An empty place in PostgreSQL."""
    store = PostgresStore()
    store.make()
    return store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keep.db"


def told(read: Reader) -> Iterator[tuple[str, Any]]:
    return everything_shown(read, Policy(), NOW)


def move(source: str | Path, target: str | Path, **how: Any) -> Moved:
    return opening.move(source, target, SystemClock(), told, lambda *_: None, **how)


def deploy(tx: Tx, name: str) -> str:
    manifest = Manifest(name, ("in", "out"), (
        Handler("poll", HandlerKind.PRODUCER, ("in",)), Handler("take", HandlerKind.CONSUMER, ("out",), ("in",))), ())
    return workflows.deploy(tx, None, replace(rows.version(name), manifest=manifest.to_text()), (1, 0))


def work(tx: Tx) -> Mutation:
    """A bit of everything: what ended, what waits, and a call on its way."""
    for name in ("first", "second"):
        workflow_id = deploy(tx, name)
        rows.produce(tx, workflow_id, "m1", "m2", "zwölf – ½", "\U0001f9fe")
        done = rows.mutating(tx, workflow_id, "m1")
        mutation = rows.send(tx, done, "applied")
        done = mutations.apply(tx, done, mutation, '{"row":1}', '{"status":"applied"}', [])
        rows.runs.commit_consumer(tx, done, rows.ConsumerEnd())
    return rows.send(tx, rows.mutating(tx, workflow_id, "m2"), "under way")


def ended(tx: Tx) -> None:
    """The same, and the call has ended."""
    tx.run("mutation_close", mutation_id=work(tx).id, now=tx.now)


async def _begun(place: str | Path, verb: Any = None) -> None:
    ledger = opening.open_ledger(place, SystemClock())
    try:
        if verb is not None:
            await ledger.write(verb, barrier=True)
    finally:
        await ledger.close()


def use(place: str | Path, verb: Any = None) -> None:
    """A host works there, and ends."""
    asyncio.run(_begun(place, verb))


def is_usable(place: str | Path) -> bool:
    """Whether a host can begin there, with the workflows that are there already."""
    try:
        with closing(opening.open_reader(place)) as read:
            if not read.all("workflow_all"):
                return False
        use(place)
    except KeepError:
        return False
    return True


def counts(place: str | Path) -> dict[str, int]:
    with closing(opening.open_reader(place)) as read:
        assert [each.said for each in check(read) if not each.sound] == []
        return {name: len(read.all(name)) for name in ("workflow_all", "run_open_all")} | {
            "entries": read.all("ledger_reached")[0]["entries"]}


def test_a_ledger_goes_to_postgres_and_back_and_is_the_same(
    file: Path, database: PostgresStore, tmp_path: Path,
) -> None:
    use(file, work)
    before = counts(file)
    there = move(file, database.url)
    assert there.state == "moved"
    assert counts(database.url) == before
    use(database.url, mutations.close_dead)
    back = move(database.url, tmp_path / "back.db")
    assert counts(tmp_path / "back.db") == before
    same = {each.name: each for each in there.tables if each.name not in ("host", "mutation")}
    assert same == {each.name: each for each in back.tables if each.name in same}
    assert there.rows > 40
    use(tmp_path / "back.db")


def test_what_was_done_at_the_new_place_follows_what_was_moved(file: Path, database: PostgresStore) -> None:
    use(file, work)
    before = counts(file)["entries"]
    move(file, database.url)
    use(database.url, lambda tx: deploy(tx, "third"))
    assert counts(database.url)["entries"] == before + 1


def test_a_call_of_a_dead_host_is_known_to_have_ended_at_the_new_place(file: Path, database: PostgresStore) -> None:
    use(file, work)
    move(file, database.url)
    with closing(opening.open_reader(database.url)) as read:
        assert read.one("mutation_unclosed", epoch=1 << 40) is None


def test_a_ledger_whose_call_may_be_on_its_way_does_not_leave_postgres(database: PostgresStore, file: Path) -> None:
    use(database.url, work)
    with pytest.raises(LedgerUnusable, match="may still be on its way"):
        move(database.url, file)
    assert not file.exists()
    assert is_usable(database.url)


def test_the_old_place_says_where_the_ledger_went_and_can_only_be_accepted(file: Path, database: PostgresStore) -> None:
    use(file, work)
    move(file, database.url)
    with pytest.raises(LedgerMoved, match=r"was moved to postgresql://.*keep db accept-older") as refused:
        use(file)
    assert "correct" not in refused.value.message, "an address is shown without its password"
    with closing(opening.open_reader(file)) as read:
        assert read.refused == refused.value.message
    assert is_usable(database.url)


@pytest.mark.parametrize("there", ["file", "database"])
def test_a_place_that_has_a_ledger_is_left_alone(
    there: str, file: Path, database: PostgresStore, tmp_path: Path,
) -> None:
    source, target = tmp_path / "other.db", file if there == "file" else database.url
    use(source, work)
    use(target, lambda tx: deploy(tx, "demo"))
    with pytest.raises(Refused, match="There is a ledger at"):
        move(source, target)
    assert is_usable(source)
    assert counts(target)["workflow_all"] == 1


def test_a_ledger_that_went_is_not_overwritten_by_the_one_that_comes_back(file: Path, tmp_path: Path) -> None:
    use(file, work)
    move(file, tmp_path / "new.db")
    use(tmp_path / "new.db")
    with pytest.raises(Refused, match="There is a ledger at"):
        move(tmp_path / "new.db", file)
    assert is_usable(tmp_path / "new.db")


def test_the_copy_of_another_ledger_is_not_overwritten(file: Path, database: PostgresStore, tmp_path: Path) -> None:
    use(tmp_path / "other.db", work)
    killed(tmp_path / "other.db", database.url, "after:move_departs")
    use(file, work)
    with pytest.raises(Refused, match="the copy of another one"):
        move(file, database.url)
    assert is_usable(file)
    assert is_usable(database.url), "the other ledger has come"


def test_a_ledger_that_a_host_has_is_not_moved(file: Path, database: PostgresStore) -> None:
    host = opening.open_ledger(file, SystemClock())
    try:
        with pytest.raises(LedgerUnusable, match="is in use by process"):
            move(file, database.url)
    finally:
        asyncio.run(host.close())


def test_a_ledger_in_postgres_that_a_host_has_is_not_moved(file: Path, database: PostgresStore) -> None:
    host = opening.open_ledger(database.url, SystemClock())
    try:
        with pytest.raises(LedgerUnusable, match="is in use by"):
            move(database.url, file)
    finally:
        asyncio.run(host.close())


@pytest.mark.parametrize("target", ["file", "database"])
def test_a_dry_run_counts_and_changes_nothing(
    target: str, file: Path, database: PostgresStore, tmp_path: Path,
) -> None:
    use(file, work)
    place = tmp_path / "new.db" if target == "file" else database.url
    before = file.read_bytes()
    would = move(file, place, dry_run=True)
    assert (would.state, file.read_bytes()) == ("would_move", before)
    assert not (tmp_path / "new.db").exists()
    done = move(file, place)
    assert {each.name for each in done.tables} == {each.name for each in would.tables}
    assert done.rows == would.rows


@pytest.mark.parametrize("tampering", [
    "update event set payload = '{}'", "update run set host = 77",
    "update workflow set sequence = sequence + 1",
])
def test_a_copy_that_differs_is_found_and_the_source_stays_the_ledger(
    tampering: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(file, work)
    keep = SqliteTarget.commit_copy

    def tampered(target: SqliteTarget) -> None:
        target.connection.execute(tampering)
        keep(target)

    monkeypatch.setattr(SqliteTarget, "commit_copy", tampered)
    with pytest.raises(LedgerUnusable, match="stays the ledger"):
        move(file, tmp_path / "new.db")
    assert is_usable(file)
    assert not is_usable(tmp_path / "new.db")


def test_an_unsound_ledger_is_not_moved(file: Path, tmp_path: Path) -> None:
    use(file, work)
    with rows.raw(file) as tables:
        tables.execute("drop trigger account_final; update account set told = replace(told, 'active', 'paused')")
    with pytest.raises(LedgerUnusable, match="is not sound, so nothing was moved"):
        move(file, tmp_path / "new.db")


def killed(source: str | Path, target: str | Path, point: str) -> None:
    """A mover that is killed at a point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the child does without
        child = os.fork()
    if not child:
        crash_points.listen(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == point else None)
        with contextlib.suppress(BaseException):
            move(source, target)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", ["to postgres", "to a file"])
def test_a_mover_that_is_killed_leaves_exactly_one_ledger_and_the_same_again_ends_the_move(
    way: str, point: str, file: Path, database: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "correct horse 42")
    plain = database.url.replace(":correct%20horse%2042", "")
    source, target = (file, plain) if way == "to postgres" else (plain, file)
    use(source, ended)
    before = counts(source)
    killed(source, target, point)
    went = POINTS.index(point) >= POINTS.index("after:move_departs")
    assert (is_usable(source), is_usable(target)) == (not went, went)
    if went:
        with pytest.raises(LedgerMoved, match="was moved to"):
            move(source, target)
    else:
        assert move(source, target).state == "moved"
    assert counts(target) == before
    assert (is_usable(source), is_usable(target)) == (False, True)


def test_the_same_command_ends_a_move_whose_last_step_is_missing(file: Path, tmp_path: Path) -> None:
    use(file, work)
    killed(file, tmp_path / "new.db", "after:move_departs")
    assert move(file, tmp_path / "new.db").state == "finished"
    assert is_usable(tmp_path / "new.db")


def test_a_copy_whose_source_cannot_be_read_is_opened_by_nobody(file: Path, tmp_path: Path) -> None:
    use(file, work)
    killed(file, tmp_path / "new.db", "after:move_departs")
    file.rename(tmp_path / "away.db")
    with pytest.raises(LedgerMoved, match="Type the same `keep db move` again"):
        use(tmp_path / "new.db")


def test_a_copy_of_an_earlier_try_is_not_the_ledger_when_the_source_went_elsewhere(file: Path, tmp_path: Path) -> None:
    use(file, work)
    killed(file, tmp_path / "first.db", "after:move_copies")
    use(file, lambda tx: deploy(tx, "later"))
    move(file, tmp_path / "second.db")
    assert not is_usable(tmp_path / "first.db")
    assert counts(tmp_path / "second.db")["workflow_all"] == 3
