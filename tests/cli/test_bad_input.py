"""What is wrong is told in one clear sentence with its place and its fix, and nothing is touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import keepai.app
import keepai.engine.deploy

from .conftest import EXAMPLE, SETTINGS, Place

EXAMPLE_TEXT = EXAMPLE.read_text("utf-8")
LOADED = (keepai.app, keepai.engine.deploy)  # before a test changes who may read files

CONFIGS = {
    "no TOML": ("[keep\npath = 1", "keep.toml:1:6: this is not TOML"),
    "a value without quotes": ('[keep]\npath = keep.db\n', "keep.toml:2:8: this is not TOML"),
    "an unknown table": ("[polcy]\nsettle_s = 3\n", "keep.toml:1: [polcy] is unknown. Did you mean [policy]?"),
    "an unknown key": ("[keep]\n\npat = 'x'\n", "keep.toml:3: [keep] pat is unknown. Did you mean path?"),
    "a stray key": ("colour = 'red'\n", "'colour' is unknown. Known: [keep], [policy], [connectors], [workflows], …."),
    "a table that is none": ("policy = 3\n", "keep.toml:1: policy must be a table. Write [policy] on a line of"),
    "an unknown policy": ("[policy]\nsetle_s = 3\n", "toml:2: [policy] setle_s is unknown. Did you mean settle_s?"),
    "a duration as text": (
        '[policy]\nsettle_s = "60s"\n',
        "keep.toml:2: [policy] settle_s must be a number of seconds above zero, such as 60, not '60s'.",
    ),
    "a negative number": ("[policy]\ncall_s = -1\n", "toml:2: [policy] call_s must be a number of seconds above zero"),
    "infinity": ("[policy]\ncall_s = inf\n", "keep.toml:2: [policy] call_s must be a number of seconds above zero"),
    "half a worker": ("[policy]\nworkers_max = 1.5\n", "workers_max must be a whole number above zero, such as 8"),
    "true as a number": ("[policy]\nretries_max = true\n", "retries_max must be a whole number above zero"),
    "an unknown choice": ('[policy]\nmutate_reads = "all"\n', 'mutate_reads must be "none" or "by_id", not \'all\'.'),
    "a path that is no text": ("[keep]\npath = 3\n", "keep.toml:2: [keep] path must be the name of a file"),
    "a connector without a type": ("[connectors.gmail]\npath = 'mail'\n", "toml:1: [connectors.gmail] needs a type"),
    "a connector that is no table": ("[connectors]\ngmail = 'mail'\n", "toml:2: [connectors.gmail] must be a table"),
    "an unknown type": (
        "[connectors.gmail]\ntype = 'local.mial'\npath = 'mail'\n",
        "keep.toml:1: [connectors.gmail]: There is no connector type 'local.mial'. Did you mean 'local.mail'?",
    ),
    "an unknown setting": (
        "[connectors.gmail]\ntype = 'local.mail'\npth = 'mail'\n",
        "the setting 'pth' is unknown: did you mean 'path'?",
    ),
    "a setting of a wrong type": (
        "[connectors.gmail]\ntype = 'local.mail'\npath = 3\n", "the setting 'path' must be a string, not 3",
    ),
    "a name that ctx has": ("[connectors.peek]\ntype = 'local.mail'\npath = 'm'\n", "keep.toml:1: [connectors.peek]: "),
}


@pytest.mark.parametrize("wrong", CONFIGS)
def test_a_mistake_in_keep_toml_is_told_with_its_place(place: Place, wrong: str) -> None:
    text, told = CONFIGS[wrong]
    (place.folder / "keep.toml").write_text(text)
    before = place.files()
    result = place.type("deploy", "flow.js", code=2)
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert place.files() == before


def test_every_mistake_in_keep_toml_is_told_at_once(place: Place) -> None:
    (place.folder / "keep.toml").write_text(
        "[keep]\npat = 1\n[policy]\ncall_s = 0\n[connectors.a]\ntype = 'x'\n[connectors.b]\n[other]\n")
    result = place.type("check", "flow.js", code=2)
    assert [line.split(": ")[0] for line in result.stderr.splitlines()] == [
        "keep.toml:8", "keep.toml:2", "keep.toml:4", "keep.toml:5", "keep.toml:7",
    ]


def test_a_keep_toml_that_is_not_there_or_no_text(place: Place) -> None:
    assert "none.toml: there is no such file." in place.type("--config", "none.toml", "status", code=2).stderr
    (place.folder / "keep.toml").write_bytes(b"[keep]\n\xff\n")
    assert "keep.toml:2: this is not UTF-8." in place.type("status", code=2).stderr


def test_a_mistake_in_a_variable_names_the_variable(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEP_POLICY_CALL_S", "soon")
    monkeypatch.setenv("KEEP_POLICY_CAL_S", "3")
    told = place.type("status", code=2).stderr
    assert "KEEP_POLICY_CALL_S: call_s must be a number of seconds above zero, such as 30.0, not 'soon'." in told
    assert "KEEP_POLICY_CAL_S: cal_s is unknown. Did you mean call_s?" in told


def make_garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, but it is long enough to look like something " * 20)


def make_foreign(path: Path) -> None:
    with apsw.Connection(str(path)) as connection:
        connection.execute("create table t (a)")


def make_newer(path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("pragma journal_mode = wal; create table t (a)")
        connection.execute("pragma application_id = 0x4B454550; pragma user_version = 999")


def make_folder(path: Path) -> None:
    path.mkdir()


LEDGERS = {
    "garbage": (make_garbage, "it is no SQLite database at all. Name another file."),
    "another program's": (make_foreign, "is a SQLite database of some other program. Name another file."),
    "a newer schema": (make_newer, "was written by a newer Keep (schema 999"),
    "a folder": (make_folder, "keep.db"),
}


TYPED = (("status",), ("inputs", "x"), ("pause", "x"), ("deploy", "flow.js"), ("dev", "--once"))


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: typed[0])
@pytest.mark.parametrize("kind", LEDGERS)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(place: Place, kind: str, typed: tuple[str, ...]) -> None:
    make, told = LEDGERS[kind]
    make(place.folder / "keep.db")
    before = place.files().get("keep.db")
    result = place.type(*typed, code=1)
    assert told in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("keep: ")]) == 1
    assert result.stdout == ""
    assert place.files().get("keep.db") == before


def test_an_empty_file_holds_nothing_yet(place: Place) -> None:
    (place.folder / "keep.db").touch()
    assert "There is no ledger at keep.db yet." in place.type("status", code=1).stderr
    place.type("deploy", "flow.js")


def test_a_folder_that_is_missing_is_told(place: Place) -> None:
    told = place.type("--db", "no/such/keep.db", "deploy", "flow.js", code=1).stderr
    assert "no/such/keep.db" in told
    assert "There is no ledger" in place.type("--db", "no/such/keep.db", "status", code=1).stderr


@pytest.fixture
def closed_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that may be looked into and not written; whoever may do everything is somebody else meanwhile."""
    folder = Path(tempfile.mkdtemp())
    monkeypatch.chdir(folder)
    folder.chmod(0o555)
    root = os.geteuid() == 0
    os.seteuid(65534 if root else os.geteuid())
    try:
        yield folder
    finally:
        os.seteuid(0 if root else os.geteuid())
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_folder_that_may_not_be_written_is_told(closed_folder: Path) -> None:
    db = str(closed_folder / "keep.db")
    result = Place(closed_folder).type("--db", db, "deploy", "-", stdin=EXAMPLE_TEXT, code=1)
    assert "Keep needs a folder that it may write to; change its permissions or use another path." in result.stderr
    assert list(closed_folder.iterdir()) == []


def test_a_folder_that_may_not_be_looked_into_is_told(closed_folder: Path) -> None:
    if os.getuid() == 0:
        os.seteuid(0)
        closed_folder.chmod(0o700)
        os.seteuid(65534)
    else:
        closed_folder.chmod(0o000)
    told = Place(closed_folder).type("status", code=2).stderr
    assert "keep.toml cannot be looked for: Permission denied. Use a folder that you may read." in told


@pytest.mark.parametrize(("typed", "told"), [
    (("frobnicate",), "There is no command 'frobnicate'."),
    (("statu",), "There is no command 'statu'. Did you mean 'status'?"),
    (("events",), "There is no command 'events'. There are: "),
    (("pause",), "Missing argument 'WORKFLOW'"),
    (("runs", "x", "--last", "0"), "0 is not in the range x>=1"),
    (("inputs", "x", "--status", "lost"), "'lost' is not one of 'pending', 'done', 'late', 'skipped'"),
    (("deploy",), "Missing argument 'FILE'"),
])
def test_a_command_that_is_wrong_is_a_usage_error(place: Place, typed: tuple[str, ...], told: str) -> None:
    result = place.type(*typed, code=2)
    assert told in result.stderr
    assert result.stdout == ""


def test_paths_in_keep_toml_are_relative_to_it(place: Place) -> None:
    (place.folder / "elsewhere").mkdir()
    (place.folder / "elsewhere" / "keep.toml").write_text('[keep]\npath = "there.db"\n' + SETTINGS)
    place.type("--config", "elsewhere/keep.toml", "deploy", "flow.js")
    assert (place.folder / "elsewhere" / "there.db").exists()
    assert (place.folder / "elsewhere" / "mail" / "new").is_dir()
    assert not (place.folder / "mail").exists()


@pytest.mark.parametrize(("kind", "path", "holds"), [
    ("files", ".", "keep.db"), ("files", "..", "keep.db"), ("files", "linked", "keep.db"),
    ("local.mail", ".", "keep.db"), ("sql", "keep.db", "keep.db"),
])
def test_a_connector_may_not_have_files_of_keep_itself(place: Place, kind: str, path: str, holds: str) -> None:
    # a workflow could read the ledger, or change another's script, which `keep dev` would deploy
    (place.folder / "linked").symlink_to(place.folder, target_is_directory=True)
    tables = 'tables = ["run"]\n' if kind == "sql" else ""
    (place.folder / "keep.toml").write_text(f'[connectors.own]\ntype = "{kind}"\npath = "{path}"\n{tables}')
    told = place.type("doctor", code=None)
    refused = place.type("deploy", str(EXAMPLE), code=2).stderr
    assert f"holds files of Keep itself ({holds})" in refused
    assert "Name a folder of its own" in told.stdout + told.stderr


def test_a_folder_beside_keeps_own_files_is_a_connectors_to_have(place: Place) -> None:
    (place.folder / "keep.toml").write_text('[connectors.own]\ntype = "files"\npath = "out"\ncreate = true\n')
    place.type("types")
