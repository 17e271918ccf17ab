"""What a statement makes SQLite do: a table of its own, with a cache of its own, costs more than the statement."""

from __future__ import annotations

import re

import pytest

from keepai.ledger.invariants import RULES
from keepai.ledger.queries import load
from keepai.ledger.sqlite.store import SqliteLedger

#: What every run of a consumer writes.
WRITTEN = (
    "run_insert", "run_prepared", "run_phase", "run_commit", "event_insert", "event_reserve", "reservation_insert",
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
    assert not [row[3] for row in plan if re.search(r"\(workflow_id=\?( AND seq[<>]\?)?\)", row[3])]
