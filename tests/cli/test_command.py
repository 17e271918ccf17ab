"""The command as it is installed: its help, its version, and how little it loads."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest

from keepai.config import ModelSettings, load, table
from keepai.doors.cli.help_texts import EXAMPLES, SUMMARIES
from keepai.doors.cli.main import COMMANDS, keep, main
from keepai.doors.cli.text import cells, cut, short
from keepai.model.errors import ConfigError
from keepai.model.flow_limits import CONNECTOR_KEYS, WORKFLOW_KEYS
from keepai.model.policy import settings as policy_settings
from keepai.reading.wording import ago

from .conftest import COMMAND, Place

HEAVY = (
    "apsw", "pydantic", "wasmtime", "tree_sitter", "rich", "asyncio", "keepai.app", "keepai.engine", "keepai.script",
)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, check=False)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom keepai.doors.cli.main import keep\n"
        "try: keep(['--help'], prog_name='keep')\nexcept SystemExit: pass\n"
        "import json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stderr)
    assert [name for name in loaded if name in HEAVY] == []
    assert all(name in done.stdout for name in COMMANDS)


def test_every_command_has_help_and_takes_json() -> None:
    for name in COMMANDS:
        command = keep.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.get_short_help_str(), name
        for each in command.commands.values() if isinstance(command, click.Group) else (command,):
            assert each.get_short_help_str(), name
            assert "--json" in [option for parameter in each.params for option in parameter.opts], name


def test_the_list_of_commands_cuts_no_sentence_short() -> None:
    for words in ((), ("db",), ("notify",)):
        listed = run(*words, "--help").stdout.partition("Options:")[2]
        assert "..." not in listed


def test_help_explains_a_command_or_lists_a_group() -> None:
    assert run("help", "db", "check").stdout.strip() == run("db", "check", "--help").stdout.strip()
    assert run("help", "run").stdout.split()[0] == "dev"
    assert "Did you mean 'deploy'?" in run("help", "deplyo").stderr


@pytest.mark.parametrize(("typed", "shown"), [("keep", "keep"), ("/opt/bin/keepai", "keepai"), ("main.py", "keep")])
def test_the_command_also_works_under_its_second_name(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    completed = f"_{shown.upper()}_COMPLETE"
    for words, printed in (("check --help", f"Usage: {shown} check"), ("completion bash", completed)):
        monkeypatch.setattr(sys, "argv", [typed, *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        assert printed in capsys.readouterr().out


def test_version_and_help_work_anywhere() -> None:
    assert run("--version").stdout.startswith("keep ")
    assert "Write scripts:" in run("-h").stdout
    assert run("version").stdout == run("--version").stdout
    assert run("inputs", "--help").returncode == 0


def test_a_broken_pipe_is_no_error(worked: Place) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(COMMAND)} show email-to-sheets | head -1"], cwd=worked.folder,
        capture_output=True, text=True, check=False,
    )
    assert done.stdout.startswith("workflow ")
    assert "Traceback" not in done.stderr


def test_the_public_names_are_there_though_they_load_late() -> None:
    import keepai

    assert all(getattr(keepai, name) is not None for name in keepai.__all__)
    assert set(keepai.__all__) <= set(dir(keepai))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = keepai.Nothing  # type: ignore[attr-defined]


# -- settings --------------------------------------------------------------------------------------


def test_the_table_of_settings_names_every_setting() -> None:
    names = [setting.name for setting in table()]
    assert names[:4] == ["keep.path", "keep.ledger", "keep.repair", "KEEP_PASSWORD"]
    limits = [f"connectors.NAME.{key}" for key in CONNECTOR_KEYS] + [f"workflows.NAME.{key}" for key in WORKFLOW_KEYS]
    assert names[4:12] == ["connectors.NAME.type", *limits]
    assert names[12:19] == [
        "keep.hooks", "keep.probes", "keep.api", "keep.mcp", "keep.key_file", "KEEP_PASSPHRASE",
        "KEEP_NEW_PASSPHRASE"]
    assert names[19:23] == [
        "workflows.NAME.grants", "workflows.NAME.waiting", "notify.NAME.type", "notify.NAME.digest"]
    model = [f"model.{each.name}" for each in fields(ModelSettings)]
    assert sorted(names[23:36]) == sorted(model)
    assert names[36:] == [f"policy.{name}" for name, _, _ in policy_settings()]
    assert all(setting.meaning.endswith(".") for setting in table())


def test_the_password_comes_from_the_environment_alone_and_is_not_shown(tmp_path: Path) -> None:
    settings = load(env={"KEEP_PASSWORD": "correct horse"})
    assert settings.password == "correct horse"
    assert "correct horse" not in repr(settings)
    (tmp_path / "keep.toml").write_text('[keep]\npassword = "x"\n')
    with pytest.raises(ConfigError, match="password is unknown"):
        load(tmp_path / "keep.toml")


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (load().ledger, load().policy.call_s, load().file) == (Path("keep.db"), 30.0, None)
    Path("keep.toml").write_text('[keep]\npath = "a.db"\n[policy]\ncall_s = 1\nsettle_s = 2\n')
    env = {"KEEP_DB": "b.db", "KEEP_POLICY_CALL_S": "3", "KEEP_OTHER": "x", "HOME": os.environ.get("HOME", "/")}
    assert load().ledger == Path("a.db")
    settings = load(env=env)
    assert (settings.ledger, settings.policy.call_s, settings.policy.settle_s) == (Path("b.db"), 3, 2)
    assert load(db="c.db", env=env).ledger == Path("c.db")
    with pytest.raises(ConfigError, match="no such file"):
        load(env={"KEEP_CONFIG": "none.toml"})


ADDRESS = "postgresql://ann@db.example.com/keep"
EXPOSED = "postgresql://ann:s3cret@db.example.com/keep"


def test_an_address_is_named_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "keep.toml").write_text(f'[keep]\nledger = "{ADDRESS}"\n')
    here = tmp_path / "keep.toml"
    assert load(here).ledger == ADDRESS
    assert load(here, env={"KEEP_LEDGER": f"{ADDRESS}2"}).ledger == f"{ADDRESS}2"
    assert load(here, env={"KEEP_DB": "a.db"}).ledger == Path("a.db")
    assert load(here, f"{ADDRESS}3", {"KEEP_LEDGER": f"{ADDRESS}2"}).ledger == f"{ADDRESS}3"
    assert load(here, "a.db").ledger == Path("a.db")


def test_a_password_in_an_address_is_taken_from_the_environment_alone_and_is_shown_nowhere(tmp_path: Path) -> None:
    settings = load(env={"KEEP_LEDGER": EXPOSED})
    assert (settings.ledger, "s3cret" in repr(settings)) == (EXPOSED, False)
    here = tmp_path / "keep.toml"
    for text in (EXPOSED, f"{ADDRESS}?sslmode=require&password=s3cret"):
        here.write_text(f'[keep]\nledger = "{text}"\n')
        for given in ({"config": here}, {"db": text}):
            with pytest.raises(ConfigError, match=r"Leave it out: PostgreSQL finds it in .*PGPASSWORD") as refused:
                load(**given)
            assert "s3cret" not in refused.value.message


@pytest.mark.parametrize(("toml", "env", "told"), [
    (f'path = "{ADDRESS}"', {}, "path names a file. Write the address of a database as ledger"),
    ('ledger = "keep.db"', {}, "ledger must be the address of a database, such as"),
    ("ledger = 5", {}, "ledger must be the address of a database, such as"),
    (f'ledger = "{ADDRESS}"\npath = "keep.db"', {}, "names two ledgers"),
    ('ledger = "postgresql://ann:s3/cret@db/keep"', {}, "cannot be read"),
    ("", {"KEEP_DB": EXPOSED}, "Give the address of a database in KEEP_LEDGER"),
    ("", {"KEEP_LEDGER": "keep.db"}, "KEEP_DB names a file"),
    ("", {"KEEP_LEDGER": ADDRESS, "KEEP_DB": "keep.db"}, "Unset one"),
    ("", {"KEEP_LEDGER": "postgresql://ann:s3#cr@et@db/keep"}, "KEEP_LEDGER: This address cannot be read"),
])
def test_a_ledger_that_is_named_wrongly_is_told_what_to_do(
    tmp_path: Path, toml: str, env: dict[str, str], told: str,
) -> None:
    (tmp_path / "keep.toml").write_text(f"[keep]\n{toml}\n")
    with pytest.raises(ConfigError, match=told) as refused:
        load(tmp_path / "keep.toml", env=env)
    assert "s3" not in refused.value.message


def test_connectors_are_made_only_if_somebody_wants_them(tmp_path: Path) -> None:
    (tmp_path / "keep.toml").write_text('[connectors.a]\ntype = "t"\nx = 1\n')
    assert load(tmp_path / "keep.toml").connectors == ()
    made = load(tmp_path / "keep.toml", make=lambda *given: given).connectors
    assert made == (("t", "a", {"x": 1}, tmp_path),)


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "told"), [
    (0, "now"), (5, "5 s ago"), (119, "1 min ago"), (7200, "2 h ago"), (86400, "1 day ago"), (3 * 86400, "3 days ago"),
    (-90, "in 1 min"),
])
def test_times_are_told_as_people_say_them(seconds: int, told: str) -> None:
    assert ago(1_000_000_000, 1_000_000_000 + seconds * 1000) == told


def test_wide_characters_take_two_cells() -> None:
    assert cells("日本") == 4
    assert cut("日本語の件名", 7) == "日本語…"
    assert cut("short", 7) == "short"


def test_short_ids_tell_apart() -> None:
    ids = ["run_0123456789abc", "run_0123456789abd", "run_0123456789xyz"]
    assert len(set(short(ids).values())) == 3


def test_the_list_of_commands_says_what_each_command_says_of_itself() -> None:
    context = click.Context(keep)
    said = {name: command.get_short_help_str(200) for name in COMMANDS if (command := keep.get_command(context, name))}
    assert said == SUMMARIES


def test_help_loads_no_command() -> None:
    loaded = "import sys; from keepai.doors.cli.main import keep; keep(['--help'], standalone_mode=False); "
    loaded += "print([m for m in sys.modules if m.endswith(('.dev', '_commands', '_session'))], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("example", [each for name in EXAMPLES for each in EXAMPLES[name]])
def test_what_the_help_gives_as_an_example_can_be_typed(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("invoices.js", "mended.js", "order.json"):
        (tmp_path / name).touch()
    words = shlex.split(example.partition("keep ")[2].rstrip(')"') if "$(" in example else example, comments=True)
    words = words[words.index("keep") + 1:] if "keep" in words else words
    words = words[:next((place for place, word in enumerate(words) if word in ("|", ">", "2>>")), None)]
    command: click.Command | None = keep
    while isinstance(command, click.Group) and words:
        _, command, words = command.resolve_command(click.Context(command), words)
    assert command is not None
    command.make_context(example, words).close()
