"""Every recipe of examples/recipes passes its check without a word, and its own cases, in one process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Place

RECIPES = ROOT / "examples" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.js"))


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The recipes in a folder of their own: their connectors make folders."""
    folder = tmp_path / "recipes"
    shutil.copytree(RECIPES, folder)
    monkeypatch.chdir(folder)
    return Place(folder)


def test_there_are_twelve_recipes_and_each_has_a_check_cases_and_a_place_in_the_docs(kitchen: Place) -> None:
    page = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    assert len(NAMES) == 12
    assert [name for name in NAMES if f"(../examples/recipes/{name}.js)" not in page] == []
    assert kitchen.json("check") == []


def test_every_case_of_every_recipe_passes(kitchen: Place) -> None:
    results = kitchen.json("test")
    assert {Path(each["file"]).name.removesuffix(".test.toml") for each in results} == set(NAMES)
    assert [each for each in results if not each["passed"]] == []
