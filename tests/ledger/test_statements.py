"""What a statement makes SQLite do: a table of its own, with a cache of its own, costs more than the statement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keepai.ledger.invariants import RULES
from keepai.ledger.queries import load
from keepai.ledger.sqlite.store import SqliteLedger
from tests.ledger import rows

#: What every run of a consumer writes.
WRITTEN = (
    "run_insert", "run_prepared", "run_phase", "run_commit", "event_insert", "reservation_insert",
    "cause_insert", "topic_touch", "mutation_insert", "mutation_move", "handler_committed", "trace_insert",
)


@pytest.mark.parametrize("query", WRITTEN)
async def test_what_every_run_writes_needs_no_table_of_sqlites_own(ledger: SqliteLedger, query: str) -> None:
    params = dict.fromkeys(re.findall(r":(\w+)", load()[query]))
    steps = [row[1] for row in ledger._connection.execute(f"explain {load()[query]}", params)]
    assert "OpenEphemeral" not in steps


@pytest.mark.parametrize("query", ["run_open", "run_open_all", "run_active_all", "mutation_unclosed"])
async def test_what_is_open_is_found_by_its_small_index(ledger: SqliteLedger, query: str) -> None:
    params = dict.fromkeys(re.findall(r":(\w+)", load()[query]))
    plan = ledger._connection.execute(f"explain query plan {load()[query]}", params)
    assert any("_one_open" in row[3] for row in plan)


@pytest.mark.parametrize("rule", list(RULES))
async def test_no_rule_of_the_check_goes_through_a_whole_workflow_for_each_row(ledger: SqliteLedger, rule: str) -> None:
    plan = ledger._connection.execute(f"explain query plan {load()[f'never_{rule}']}")
    whole = [row[3] for row in plan if re.search(r"\(workflow_id=\?( AND seq[<>]\?)?\)", row[3])]
    assert not [step for step in whole if "_one_open" not in step]  # of these a workflow has one


#: What finds the runs of a lineage, or what they sent.
OF_LINEAGE = (
    "run_crashes", "run_progress", "item_left", "look_lineage", "look_mutations_of_lineage", "mutation_count",
    "mutation_made_in_lineage", "mutation_of_lineage", "put_back_passed", "never_sent_once_more", "never_run_left",
)


@pytest.mark.parametrize("query", OF_LINEAGE)
async def test_a_lineage_is_found_by_its_first_run_and_a_small_index(ledger: SqliteLedger, query: str) -> None:
    params = dict.fromkeys(re.findall(r":(\w+)", load()[query]))
    plan = [row[3] for row in ledger._connection.execute(f"explain query plan {load()[query]}", params)]
    assert any("_by_lineage (lineage=?)" in step for step in plan)
    whole = [step for step in plan if re.search(r"\(workflow_id=\?( AND seq[<>]\?)?\)", step)]
    # the first goes through a workflow's runs; the other back to the first run of a routine that parks items
    assert len(whole) <= {"put_back_passed": 3, "mutation_made_in_lineage": 1}.get(query, 0), whole


async def test_a_first_run_and_what_it_sends_stand_in_no_index_of_lineages(ledger: SqliteLedger, path: Path) -> None:
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "a")
    run = await ledger.write(rows.mutating, workflow_id, "a")
    sent = await ledger.write(rows.send, run)
    read = ledger.reads
    assert [row["id"] for row in read.all("look_lineage", workflow_id=workflow_id, lineage=run.id)] == [run.id]
    found = read.one("mutation_of_lineage", workflow_id=workflow_id, lineage=run.id)
    assert found is not None
    assert found["id"] == sent.id
    with rows.raw(path) as file:
        for index, table in (("run_by_lineage", "run"), ("mutation_by_lineage", "mutation")):
            made = str(rows.scalar(file, "select sql from sqlite_schema where name = ?", index))
            where = made.partition(" where ")[2]
            assert where
            assert rows.scalar(file, f"select count(*) from {table} where {where}") == 0
