"""An id is one text wherever it is seen, and can be pasted back wherever one is asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from keepai.doors.cli.main import keep
from keepai.doors.web.web_app import THINGS
from keepai.reading import lists
from keepai.reading.lists import ListFilter

from .conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHOWN = re.compile(r"\b(?:wf|run|evt|inp|mut|itm|apr|fix|hst)_[0-9a-z]{12}\b")


def typed(path: Path, *words: str) -> Any:
    """What a command prints for programs."""
    result = CliRunner().invoke(keep, ["--db", str(path), *words, "--json"], prog_name="keep")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


async def told(served: Served) -> dict[str, Any]:
    """Every id that Python is told of, with what it names."""
    [workflow] = await served.story.keep.workflows()
    api, wf = served.story.keep, workflow.id
    lists = (await api.runs(wf), await api.events(wf), await api.inputs(wf), await api.mutations(wf))
    return {each.id: each for some in lists for each in some}


async def test_an_id_is_the_same_text_in_python_on_the_command_line_and_on_the_page(standing: Served) -> None:
    found, path = await told(standing), standing.story.keep.parts.ledger.path  # type: ignore[attr-defined]
    assert {id.partition("_")[0] for id in found} == {"run", "evt", "inp", "mut"}
    for id, thing in found.items():
        assert SHOWN.fullmatch(id)
        shown = typed(path, "show", id)
        assert shown["id"] == id == (await standing.story.keep.explain(id)).id
        assert shown["workflow_id"] == thing.workflow_id
        answer = await standing.get(THINGS[id[:4]].format(id=id))
        assert answer.status == 200
        assert id in answer.body
        others = {thing.workflow_id, standing.story.keep.parts.ledger.host}
        assert not set(SHOWN.findall(answer.body)) - found.keys() - others


async def test_what_one_place_says_of_the_ids_behind_a_thing_another_says_too(standing: Served) -> None:
    found, path = await told(standing), standing.story.keep.parts.ledger.path  # type: ignore[attr-defined]
    links = ("run_id", "created_by", "reserved_by", "lineage", "retry_of", "item_id", "workflow_id")
    for id, thing in found.items():
        shown = typed(path, "show", id)
        assert {name: shown[name] for name in links if name in shown} == {
            name: getattr(thing, name) for name in links if name in shown and hasattr(thing, name)}
        causes = list(getattr(thing, "caused_by", ()))
        assert causes == shown.get("caused_by", causes)
        assert all(found[each].id == each for each in causes)


async def test_the_ledger_keeps_no_id_and_no_key_as_a_text(standing: Served) -> None:
    connection = standing.story.keep.parts.ledger._reader  # type: ignore[attr-defined]
    tables = [row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")]
    names = {"account", "account_subject", "action"}  # the account is told in words, and acts name what they are about
    for table in sorted({*tables} - names):
        for row in connection.execute(f"select * from {table}").fetchall():
            assert not [value for value in row if isinstance(value, str) and SHOWN.fullmatch(value)], (table, row)
    assert {row[0] for row in connection.execute("select distinct typeof(mutation_key) from mutation")} == {"blob"}
    [sent, *_] = await standing.story.keep.mutations((await standing.story.keep.workflows())[0].id)
    assert re.fullmatch("[0-9a-f]{64}", sent.mutation_key)


async def test_a_list_finds_what_is_looked_for_by_its_id(standing: Served) -> None:
    [workflow] = await standing.story.keep.workflows()
    read, wf = standing.story.reader(), workflow.id
    for id, thing in (await told(standing)).items():
        found = {
            "run_": lambda wanted: [each.run for each in lists.runs(read, wf, wanted).rows],
            "evt_": lambda wanted: lists.events(read, wf, None, wanted).rows,
            "inp_": lambda wanted: [each.input for each in lists.inputs(read, wf, wanted).rows],
            "mut_": lambda wanted: [each.output for each in lists.outputs(read, wf, wanted).rows],
        }[id[:4]]
        assert [each.id for each in found(ListFilter(text=id))] == [id]  # type: ignore[no-untyped-call]
        assert not found(ListFilter(text=id[:-1] + "u")), thing  # type: ignore[no-untyped-call]
