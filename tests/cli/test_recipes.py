"""Every recipe of examples/recipes is a template of `keep init`: a folder that passes its check and its own cases."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from keepai.doors import example_files

from .conftest import ROOT, Place

RECIPES = ROOT / "examples" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.js"))
#: Those that need something of their user before they run.
OUTSIDE = {
    "calendar-reminders", "feed-digest", "inbox-triage", "price-watch", "refunds-with-approval", "rows-in-batches",
    "settled-tickets", "urgent-mail-to-chat", "welcome-customers",
}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


def made(empty: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Make the folder of a template and go there; what the command said."""
    told = empty.type("init", str(empty.folder / name), "--template", name).stdout
    monkeypatch.chdir(empty.folder / name)
    return told


def test_every_recipe_is_listed_as_a_template_and_on_its_page(empty: Place) -> None:
    page = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    assert [name for name in NAMES if f"(../examples/recipes/{name}.js)" not in page] == []
    listed = empty.json("init", "--templates")
    assert [each["name"] for each in listed] == ["invoices", *NAMES]
    assert next(each for each in listed if each["name"] == "daily-report") == {
        "name": "daily-report", "connectors": ["mail", "shop"],
        "does": "Sends the sales of the day before as one e-mail each morning.",
    }
    assert "out-of-office" in empty.type("init", "--templates").stdout
    assert not list(empty.folder.iterdir())


def test_a_folder_of_every_template_passes_its_check_and_its_cases(
    empty: Place, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in NAMES:
        told = made(empty, monkeypatch, name)
        assert ("keep doctor" in told) == (name in OUTSIDE), name
        assert empty.json("check") == [], name
        results = empty.json("test")
        assert results, name
        assert [each for each in results if not each["passed"]] == [], name


def test_the_recipes_also_work_side_by_side_in_their_own_folder(
    empty: Place, monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(RECIPES, empty.folder / "recipes")
    monkeypatch.chdir(empty.folder / "recipes")
    assert empty.json("check") == []


def test_a_template_brings_only_what_it_uses_and_its_database(empty: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told = made(empty, monkeypatch, "order-to-erp")
    settings = tomllib.loads(Path("keep.toml").read_text("utf-8"))
    assert set(settings["connectors"]) == {"erp", "orders"}
    assert settings["workflows"] == {"order-to-erp": {"grants": {"orders.list": "allow", "erp.insert": "ask"}}}
    assert "/erp.db*" in Path(".gitignore").read_text("utf-8").splitlines()
    assert "order-to-erp.js" in Path("AGENTS.md").read_text("utf-8")
    assert "--grant all" not in told  # it would take the question away that keep.toml asks for


def test_an_order_that_is_sent_in_waits_for_a_person_and_is_booked_then(
    empty: Place, monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = made(empty, monkeypatch, "order-to-erp")
    order = '{"id": "4711", "customer": "Ann", "total": 120}'
    assert f"keep send orders --data '{order}'" in told
    empty.type("deploy", "order-to-erp.js")
    empty.type("send", "orders", "--data", order)
    empty.type("dev", "--once", "--no-ui", code=4)
    [asked] = empty.json("todo", code=4)
    empty.type("approve", asked["id"])
    empty.type("dev", "--once", "--no-ui")
    [booked] = empty.json("outputs", "order-to-erp")
    assert booked["mutation"]["status"] == "applied"


def test_nothing_is_made_of_a_template_where_one_of_its_files_is(empty: Place) -> None:
    (empty.folder / "shop.db").write_text("mine")
    assert "shop.db already" in empty.type("init", "--template", "daily-report", code=1).stderr
    assert empty.files() == {"shop.db": b"mine"}


def test_a_name_that_no_template_has_is_refused_with_the_nearest(empty: Place) -> None:
    assert "Did you mean 'daily-report'?" in empty.type("init", "--template", "daily-rapport", code=2).stderr
    assert "Name one of them" in empty.type("init", "--templates", "--connector", "x", code=2).stderr
    assert not list(empty.folder.iterdir())


def test_an_installed_keep_takes_its_examples_from_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "keepai"
    (package / "examples").mkdir(parents=True)
    (package / "examples" / "one.js").write_text("")
    monkeypatch.setattr(example_files, "__file__", str(package / "doors" / "example_files.py"))
    assert example_files.example_file("one.js") == package / "examples" / "one.js"
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert shipped["force-include"]["examples/recipes"] == "keepai/examples/recipes"
