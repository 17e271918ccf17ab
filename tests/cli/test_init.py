"""`keep init` and `keep types`: a folder that works at once, and what a script may call there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from keepai import Call, Connector, Page, mutation, read
from keepai.connectors.typescript import declare, type_of

from .conftest import Place


@pytest.fixture
def empty(place: Place) -> Place:
    """A folder with nothing in it."""
    for name in ("keep.toml", "flow.js"):
        (place.folder / name).unlink()
    return place


def test_a_new_folder_works_at_once(empty: Place) -> None:
    told = empty.type("init").stdout
    assert "keep deploy invoices.js --grant all" in told
    assert empty.type("check", "invoices.js").stderr == "1 file: 0 errors, 0 warnings\n"
    empty.type("test")
    empty.type("deploy", "invoices.js", "--grant", "all")
    empty.type("dev", "--once")
    [found] = empty.json("inputs", "invoices")
    assert (found["title"], found["status"]) == ("Mail: invoice 2041", "done")
    assert len(empty.rows()) == 1


def test_a_new_folder_can_be_named_and_is_told_as_json(empty: Place) -> None:
    made = empty.json("init", "deep/er")
    assert made["folder"] == "deep/er"
    assert all((empty.folder / "deep/er" / name).is_file() for name in made["files"])
    assert {"keep.toml", "invoices.js", "invoices.test.toml", "keep.d.ts", "AGENTS.md"} <= set(made["files"])
    assert "cd other" in empty.type("init", "other").stdout


def test_nothing_is_overwritten(empty: Place) -> None:
    (empty.folder / "AGENTS.md").write_text("mine")
    before = empty.files()
    assert "AGENTS.md already" in empty.type("init", code=1).stderr
    assert empty.files() == before


def test_a_gitignore_that_exists_is_left_alone(empty: Place) -> None:
    (empty.folder / ".gitignore").write_text("mine")
    assert ".gitignore" not in empty.json("init")["files"]
    assert (empty.folder / ".gitignore").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_told(empty: Place) -> None:
    (empty.folder / "file").write_text("")
    assert "'file' is a file" in empty.type("init", "file", code=2).stderr
    assert "cannot be made" in empty.type("init", "file/below", code=2).stderr


# -- types -----------------------------------------------------------------------------------------


def member(text: str, interface: str) -> str:
    """The body of an interface."""
    found = re.search(rf"^interface {interface} {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)
    assert found, interface
    return found[1]


def test_types_are_printed_or_written(place: Place) -> None:
    printed = place.type("types").stdout
    assert "keep.d.ts: ctx with gmail, sheets." in place.type("types", "keep.d.ts").stdout
    assert (place.folder / "keep.d.ts").read_text() == printed.removesuffix("\n")
    assert place.json("types")["connectors"] == ["gmail", "sheets"]
    assert "cannot be written" in place.type("types", "none/keep.d.ts", code=2).stderr


def test_without_a_keep_toml_ctx_has_no_connector(empty: Place) -> None:
    result = empty.type("types")
    assert "no connector is known" in result.stderr
    assert "gmail" not in result.stdout


def test_each_phase_has_what_it_may_call_and_nothing_else(place: Place) -> None:
    text = place.type("types").stdout
    assert "gmail: GmailReads & GmailReadsById;" in member(text, "ProducerContext")
    assert "registerInput(" in member(text, "ProducerContext")
    assert "Mutations" not in member(text, "PrepareContext")
    assert "peek(" in member(text, "PrepareContext")
    assert "sheets: Terminal<SheetsMutations>;" in member(text, "MutateContext")
    assert "Reads" not in member(text, "MutateContext")
    assert "gmail" not in member(text, "NextContext")
    assert "InItem<GmailMutations>" in member(text, "ItemContext")
    assert "Mutations" not in member(text, "RoutineContext")


def test_policy_may_let_mutate_read_by_id(place: Place) -> None:
    with (place.folder / "keep.toml").open("a") as file:
        file.write('[policy]\nmutate_reads = "by_id"\n')
    assert "gmail: GmailReadsById & Terminal<GmailMutations>;" in member(place.type("types").stdout, "MutateContext")


def test_params_and_results_have_their_types(place: Place) -> None:
    text = place.type("types").stdout
    assert "send(params: { to: string | string[]; subject: string; body: string; " in text
    assert "get(params: { id: string }): Promise<{ id: string; " in text
    assert "search(params?: { query?: string | null; " in text
    assert "Promise<Page<{ id: string; from: string; " in text
    assert '| { source: "gmail"; type: "email" | "thread"; id: string; title: string }' in text


@pytest.mark.parametrize(("schema", "told"), [
    (None, "Json"),
    ({"type": "integer"}, "number"),
    ({"type": ["string", "null"]}, "string | null"),
    ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
    ({"const": "x"}, '"x"'),
    ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}, "(string | number)[]"),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]}, "[string, boolean]"),
    ({"type": "object", "properties": {"a-b": {"type": "string"}}, "required": ["a-b"]}, '{ "a-b": string }'),
    ({"type": "object", "additionalProperties": {"type": "number"}}, "{ [key: string]: number }"),
    ({"type": "object"}, "{ [key: string]: any }"),
    ({"allOf": [{"type": "string"}, {"anyOf": [{"type": "null"}, {"type": "string"}]}]}, "string & (null | string)"),
])
def test_a_schema_becomes_a_type(schema: dict[str, object] | None, told: str) -> None:
    assert type_of(schema) == told


def test_a_type_that_holds_itself_ends_somewhere() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
    assert type_of({"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}}).count("next") < 20


class Odd(Connector):
    """Plain dicts, a comment that would end itself, a page of anything."""

    name = "odd"

    @read
    async def look(self, params: dict[str, object], call: Call) -> Page[dict[str, object]]:
        """Ends */ a comment.

        And goes on.
        """
        return Page([])

    @mutation
    async def do(self, params, call):  # type: ignore[no-untyped-def]
        return {}


def test_a_connector_without_types_takes_and_gives_anything() -> None:
    text = declare([Odd()])
    assert "look(params?: { [key: string]: Json }): Promise<Page<{ [key: string]: any }>>;" in text
    assert "do(params: { [key: string]: Json }): Promise<any>;" in text
    assert text.count("/*") == text.count("*/")


def test_declarations_are_typescript(place: Place) -> None:
    """Where a TypeScript compiler is at hand it judges; everywhere, brackets pair up and no name is declared twice."""
    text = place.type("types", "keep.d.ts").stdout and (place.folder / "keep.d.ts").read_text()
    for opening, closing in ("{}", "()", "[]"):
        assert text.count(opening) == text.count(closing)
    names = re.findall(r"^(?:interface|type|declare const) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))
    compiler = shutil.which("tsc")
    if compiler:
        subprocess.run([compiler, "--noEmit", "--strict", "keep.d.ts"], cwd=place.folder, check=True, timeout=60)


def test_the_template_is_in_the_package() -> None:
    from importlib.resources import files

    from keepai.doors.cli.init_templates import FILES

    assert all(files("keepai.doors.cli").joinpath("template", name).is_file() for name in FILES.values())
    assert Path(str(files("keepai.connectors").joinpath("script.d.ts"))).is_file()
