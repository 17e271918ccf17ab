"""Ids at the border of the ledger: texts outside, numbers inside, and a text that is no id finds nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai.ledger import stored_ids
from keepai.ledger.base import Ledger
from keepai.ledger.queries import load
from keepai.ledger.sqlite.connection import bare
from keepai.model.ids import KINDS, number_of, text_of
from keepai.testing import ManualClock
from tests.ledger import rows
from tests.ledger.stores import STORES, Store, new_store

KEY = "0123456789abcdef" * 4
NO_IDS: list[Any] = ["run_nope", "", "run_36wdc9x80w5o", "' or 1=1 --", "\ud800", 5, -1, 0, 2.5, True, b"run", [], {}]


LOOK_UPS = sorted(name for name in load() if name.endswith("_by_id"))


async def test_a_look_up_by_what_is_no_id_finds_nothing(any_ledger: Ledger) -> None:
    await any_ledger.write(rows.deploy)
    for query in LOOK_UPS:
        for given in NO_IDS:
            assert await any_ledger.all(query, **{query.replace("_by_id", "_id"): given}) == [], (query, given)


async def test_an_id_of_another_kind_with_the_same_digits_finds_nothing(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    digits = workflow_id.partition("_")[2]
    for prefix in KINDS:
        found = await any_ledger.one("workflow_by_id", workflow_id=f"{prefix}_{digits}")
        assert (found is not None) == (prefix == "wf")


async def test_whatever_is_written_after_the_clock_was_set_back_has_a_higher_id(store: Store) -> None:
    clock, made = ManualClock(), list[str]()
    for hours in (0, -5, -5, +1):
        clock.jump(hours=hours)
        ledger = store.open(clock)
        made += [ledger.host, await ledger.write(rows.deploy, f"flow {len(made)}"), ledger.ids.new("run")]
        await ledger.close()
        made.pop()  # it was never written: the next host may make it again
    numbers = [number_of(each) or 0 for each in made]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("kind", STORES)
async def test_new_ledgers_of_one_moment_get_ids_of_their_own(kind: str, tmp_path: Path) -> None:
    hosts = set[str]()
    for number in range(3):
        (folder := tmp_path / f"{number}").mkdir()
        ledger = new_store(kind, folder).open(ManualClock())
        hosts.add(ledger.host)
        await ledger.close()
    assert len(hosts) > 1, "by chance"


def test_the_key_of_a_mutation_is_bytes_inside_and_the_same_text_outside() -> None:
    _, picked = bare("select :mutation_key")
    [inner] = picked({"mutation_key": KEY})
    assert inner == bytes.fromhex(KEY)
    assert stored_ids.rows(("mutation_key",))([(inner,)]) == [{"mutation_key": KEY}]


def test_what_keep_did_not_write_is_shown_as_it_is() -> None:
    ids = ("run_none", None, b"x", 2.5, -7, 15)
    assert [row["id"] for row in stored_ids.rows(("id",))([(value,) for value in ids])] == [
        "run_none", None, b"x", 2.5, "-7", "15"]
    run = 7 << 4 | KINDS["run"][0]
    made = stored_ids.rows(("causes", "mutation_key", "name"))
    assert made([(f"{run},x,-1", "a text", run), (None, b"\xff", None)]) == [
        {"causes": f"{text_of(run)},x,-1", "mutation_key": "a text", "name": run},
        {"causes": None, "mutation_key": "\ufffd", "name": None},
    ]


def test_the_same_word_is_looked_for_by_the_same_number_and_no_id_has_it() -> None:
    _, picked = bare("select :subject_id")
    words = ["gmail.send", "wf_000000000001 1.0", "", "\ud800", "run_nope"]
    numbers = [picked({"subject_id": word})[0] for word in words]
    assert numbers == [picked({"subject_id": word})[0] for word in words]
    assert len({*numbers}) == len(words)
    assert all(isinstance(each, int) and each < stored_ids.NO_ID for each in numbers)
    assert picked({"subject_id": "wf_000000000001"})[0] == number_of("wf_000000000001")
