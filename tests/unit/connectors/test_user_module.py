"""Connectors that the owner wrote, named in keep.toml and loaded from the folder beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepai.config import load
from keepai.connectors import make
from keepai.doors.cli.wiring import make_connector as make_placed
from keepai.model.errors import ConfigError

SOURCE = """
from pathlib import Path
from keepai import Connector, read
import beside_of_it

class Things(Connector):
    def __init__(self, path: Path, many: int = 1, *, name=None):
        super().__init__(name=name)
        self.path, self.many = path, many

    @read
    async def all(self, params, call):
        return [beside_of_it.WORD]
"""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        if name.startswith(("own_", "beside_")):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_things.py").write_text(SOURCE)
    (tmp_path / "beside_of_it.py").write_text("WORD = 'hello'\n")
    return tmp_path


async def test_a_class_beside_keep_toml_is_a_type(folder: Path) -> None:
    (folder / "keep.toml").write_text(
        '[connectors.stuff]\ntype = "own_things:Things"\npath = "data"\nmany = 3\n'
        '[connectors.more]\ntype = "own_things:Things"\npath = "other"\n'
    )
    settings = load(folder / "keep.toml", make=make_placed)
    stuff, more = settings.connectors
    assert (stuff.name, stuff.path, stuff.many) == ("stuff", str(folder / "data"), 3)
    assert type(stuff) is type(more)
    assert await stuff.operations["all"].invoke({}, None) == ["hello"]


@pytest.mark.parametrize(("type_name", "told"), [
    ("own_things:Nothing", "It has Things."),
    ("own_missing:Things", "There is no own_missing.py"),
    ("own things:Things", "is not a type"),
    ("../own_things:Things", "is not a type"),
    ("own_things:", "is not a type"),
    ("json:JSONDecoder", "There is no json.py"),
    ("own_things:Path", "has no connector 'Path'"),
])
def test_what_cannot_be_a_type_is_told(folder: Path, type_name: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(type_name, "stuff", {"path": "x"}, folder)
    assert told in caught.value.message


def test_settings_are_checked_as_those_of_other_types(folder: Path) -> None:
    with pytest.raises(ConfigError, match="the setting 'path' is missing; the setting 'man' is unknown: did you mean"):
        make("own_things:Things", "stuff", {"man": 1}, folder)
    with pytest.raises(ConfigError, match="'many' must be a whole number"):
        make("own_things:Things", "stuff", {"path": "x", "many": "3"}, folder)


def test_a_module_that_does_not_load_is_told_with_its_place(folder: Path) -> None:
    (folder / "own_broken.py").write_text("raise RuntimeError('oh no')\n")
    with pytest.raises(ConfigError, match=r"own_broken\.py cannot be imported: RuntimeError: oh no"):
        make("own_broken:X", "stuff", {}, folder)
    (folder / "own_broken.py").write_text("def (\n")
    with pytest.raises(ConfigError, match=r"own_broken\.py cannot be imported"):
        make("own_broken:X", "stuff", {}, folder)


def test_a_file_does_not_take_the_place_of_a_module_of_python(folder: Path) -> None:
    (folder / "json.py").write_text("from keepai import Connector\nclass X(Connector): pass\n")
    with pytest.raises(ConfigError, match="Python already has a 'json'"):
        make("json:X", "stuff", {}, folder)
