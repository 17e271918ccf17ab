"""Migrations: a step keeps what is there, is whole or nothing, and leaves a backup."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from keepai.ledger.sqlite import triggers
from keepai.ledger.sqlite.migrate import FIRST, migrate, migrations
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import LedgerUnusable
from tests.ledger import rows
from tests.ledger.rows import raw, scalar

STEPS = migrations()
LAST = max(STEPS)
NEXT = {**STEPS, LAST + 1: "alter table workflow add column note text not null default 'none'"}


def test_every_derived_trigger_is_in_the_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with raw(path) as file:
        migrate(file, path)
        wanted = set(triggers.statements())
        assert {row[0] for row in file.execute("select name from sqlite_schema where type = 'trigger'")} == wanted
        file.execute("drop trigger run_phase_moves; create trigger stray after insert on action begin select 1; end")
        file.execute("drop trigger run_stays; create trigger run_stays before delete on run begin select 1; end")
        migrate(file, path)
        again = dict(file.execute("select name, sql from sqlite_schema where type = 'trigger'"))
        assert set(again) == wanted
        assert "never deleted" in again["run_stays"]


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with raw(path) as file:
        migrate(file, path)
        before = scalar(file, "pragma schema_version"), scalar(file, "pragma data_version")
        changes = file.total_changes()
        migrate(file, path)
        assert (scalar(file, "pragma schema_version"), scalar(file, "pragma data_version")) == before
        assert file.total_changes() == changes


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """A ledger of today, which is yesterday's for the step that follows."""
    path = tmp_path / "keep.db"
    ledger = SqliteLedger(path)
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1", "m2")
    run = await ledger.write(rows.mutating, workflow_id, "m1")
    await ledger.write(rows.send, run)
    await ledger.close()
    return path


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with raw(path) as file:
        tables = [row[0] for row in file.execute("select name from sqlite_schema where type = 'table' order by name")]
        return {table: list(file.execute(f"select * from {table} order by 1, 2")) for table in tables}


def backup_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.before-schema-{LAST + 1}")


def test_a_step_keeps_what_is_there_and_leaves_a_backup(old: Path) -> None:
    before = contents(old)
    with raw(old) as file:
        migrate(file, old, NEXT)
        assert scalar(file, "pragma user_version") == LAST + 1
        assert scalar(file, "select distinct note from workflow") == "none"
        assert scalar(file, "pragma integrity_check") == "ok"
    after = contents(old)
    assert all(after[table] == before[table] for table in before if table != "workflow")
    assert contents(backup_of(old)) == before
    with raw(backup_of(old)) as backup:
        assert scalar(backup, "pragma user_version") == LAST
        assert scalar(backup, "pragma application_id") == 0x4B454550


async def test_a_backup_is_a_ledger_that_opens(old: Path) -> None:
    with raw(old) as file:
        migrate(file, old, NEXT)
    ledger = SqliteLedger(backup_of(old))
    assert len(ledger.reads.all("workflow_all")) == 1
    await ledger.close()


def test_a_backup_that_was_cut_off_is_made_again(old: Path) -> None:
    backup_of(old).write_bytes(old.read_bytes()[:6000])  # the host died while it wrote the backup
    before = contents(old)
    with raw(old) as file:
        migrate(file, old, NEXT)
    assert contents(backup_of(old)) == before


def test_a_new_file_needs_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with raw(path) as file:
        migrate(file, path, NEXT)
    assert [entry.name for entry in tmp_path.iterdir() if "before-schema" in entry.name] == []


def test_a_step_that_fails_leaves_the_file_as_it_was(old: Path) -> None:
    before = contents(old)
    broken = {**NEXT, LAST + 2: "create table extra (id integer); insert into nowhere values (1)"}
    with raw(old) as file:
        with pytest.raises(apsw.SQLError):
            migrate(file, old, broken)
        assert scalar(file, "pragma user_version") == LAST + 1, "the step before it is whole"
        assert scalar(file, "select count(*) from sqlite_schema where name = 'extra'") == 0
        migrate(file, old, NEXT)
    after = contents(old)
    assert all(after[table] == before[table] for table in before if table != "workflow")


def test_a_newer_file_is_refused_and_untouched(old: Path) -> None:
    with raw(old) as file:
        file.execute(f"pragma user_version = {LAST + 7}; pragma wal_checkpoint(truncate)")
    before = old.read_bytes()
    with raw(old) as file, pytest.raises(LedgerUnusable, match=f"schema {LAST + 7}; this one knows {LAST}"):
        migrate(file, old)
    assert old.read_bytes() == before


def test_a_file_from_before_the_first_release_is_refused_and_untouched(old: Path) -> None:
    with raw(old) as file:
        file.execute(f"pragma user_version = {FIRST - 1}; pragma wal_checkpoint(truncate)")
    before = old.read_bytes()
    with raw(old) as file, pytest.raises(LedgerUnusable, match=r"before the first release .* Nothing was touched"):
        migrate(file, old)
    assert old.read_bytes() == before
