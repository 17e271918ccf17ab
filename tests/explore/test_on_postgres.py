"""On PostgreSQL the engine reaches the states that it reaches on SQLite, by the same steps.

What was explored on SQLite (test_explore.py) so holds there too: every state was judged as it was found, and what the
outside world may do besides depends on states and steps alone. `make test-postgres` compares every setting.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.explore.explore import Explorer, Graph
from tests.explore.machine import Setting
from tests.explore.test_explore import SETTINGS, SMALL
from tests.ledger.stores import LEDGER, chosen

SHORT = {"small": SMALL}
COMPARED = SHORT if LEDGER == "sqlite" else {**SHORT, **SETTINGS}


def explored(setting: Setting, store: str) -> Graph:
    explorer = Explorer(setting, store)
    try:
        return asyncio.run(explorer.run())
    finally:
        explorer.machine.database.close()


@pytest.mark.parametrize("name", COMPARED)
def test_both_stores_lead_to_the_same_states_by_the_same_steps(name: str) -> None:
    with chosen("postgres"):
        here, there = explored(COMPARED[name], "postgres"), explored(COMPARED[name], "sqlite")
    assert here.names == there.names
    assert here.edges == there.edges
    assert here.overtaken == there.overtaken
    assert len(here.facts) > 300
