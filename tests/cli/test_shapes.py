"""Every command: its help has an example, and what it prints with --json is what the reference says.

`Place.json` judges every answer that a test of the command line asks for; here it is seen that it can judge, that the
tables name every command, and that some test asks each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from keepai.doors.cli.help_texts import EXAMPLES
from keepai.doors.cli.json_shapes import SHAPES, Shape
from keepai.doors.cli.main import keep

from . import shapes
from .conftest import Place

#: Commands whose JSON is a stream, or comes from a process of its own: a test below, or of their own, judges it.
STREAMS = {"dev", "serve", "demo"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command, and every command within a command."""
    context = click.Context(keep, info_name="keep")
    for name in keep.list_commands(context):
        command = keep.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_the_help_of_a_command_ends_with_an_example_of_it(name: str) -> None:
    told = CliRunner().invoke(keep, [*name.split(), "--help"], prog_name="keep").stdout
    example = told.rpartition("Example:\n")[2]
    assert f"$ keep {name}" in example or f"keep {name} " in example, told


def test_the_tables_name_every_command_and_nothing_else() -> None:
    every = {name for name, _ in commands()}
    assert set(EXAMPLES) == every
    assert set(SHAPES) == {name for name, command in commands() if not isinstance(command, click.Group)}


def test_examples_use_options_that_there_are() -> None:
    every = dict(commands())
    for name, lines in EXAMPLES.items():
        known = {option for parameter in every[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
        for line in lines:
            typed = re.sub(r'"[^"]*"', "", line.partition("#")[0].partition("|")[0].partition(">")[0])
            used = set(re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", typed))
            assert used <= known, line


def test_some_test_asks_every_command_for_json() -> None:
    texts = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    groups = r'json\(\s*"(agent|db|host|mcp|notify|secrets|service|user)", "([\w-]+)"'
    typed = {" ".join(found) for found in re.findall(groups, texts)}
    typed |= set(re.findall(r'json\(\s*"([\w-]+)"', texts))
    acts = set(re.findall(r'"(pause|resume|stop|run-now|approve|reject|retry|skip|reprocess)"', texts))
    assert set(SHAPES) - typed - acts - STREAMS == set()


@pytest.mark.parametrize(("value", "shape", "where"), [
    ({"a": 1}, {"a": "text"}, ".a: 1 is not text"),
    ({}, {"a": "text"}, ".a is missing"),
    ({"a": "x", "b": 1}, {"a": "text"}, ".b is not in the table"),
    ([{"a": None}], [{"a": "text"}], "[0].a: None is not text"),
    ({"a": True}, {"a": "number"}, ".a: True is not number"),
    ({"a": {}}, {"a": ["text"]}, ".a: {} is no list"),
    ([], {"a": "text"}, ": [] is no object"),
])
def test_what_does_not_fit_its_shape_is_found(value: object, shape: Shape, where: str) -> None:
    assert list(shapes.misfits(value, shape)) == [where]


@pytest.mark.parametrize(("value", "shape"), [
    ({"a": None, "b": 1.5}, {"a": "text?", "b": "number"}),
    ({"a": None}, {"a": {"?": {"b": "text"}}}),
    ({"a": 1, "z": [1]}, {"a": "number", "*": "anything"}),
    ({"at": "2026-01-05T09:00:00.000Z"}, {"at": "time"}),
])
def test_what_fits_its_shape_passes(value: object, shape: Shape) -> None:
    assert list(shapes.misfits(value, shape)) == []


def test_every_act_prints_what_it_did(worked: Place) -> None:
    event = worked.json("show", worked.json("inputs", "email")[0]["id"])["events"][0]["id"]
    for typed in (("pause", "email"), ("resume", "email"), ("run-now", "email"), ("reprocess", event), ("skip", event),
                  ("grant", "email", "gmail.search", "--mode", "ask"), ("stop", "email")):
        assert worked.json(*typed)["act"]


def test_a_call_that_is_held_is_approved_or_rejected_and_a_stopped_run_retried(place: Place) -> None:
    for number in range(3):
        place.deliver(f"Invoice {number}")
    place.type("deploy", "flow.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask")
    for act in ("approve", "reject"):
        place.type("dev", "--once", code=4)
        [question] = place.json("todo", code=4)
        assert place.json(act, question["id"]) == {"act": act, "subject": question["id"], "result": None}
    place.type("grant", "email", "sheets.appendRow", "--mode", "deny")
    place.type("dev", "--once", code=4)
    [question] = place.json("todo", code=4)
    assert place.json("retry", question["run_id"])["result"].startswith("run_")


def test_the_lines_of_a_host_have_their_shape(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "all")
    lines = [json.loads(line) for line in place.type("dev", "--once", "--json").stdout.splitlines()]
    assert lines
    for line in lines:
        shapes.check(["dev"], line)
        shapes.check(["serve"], line)
