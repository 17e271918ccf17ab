"""`--watch` and shell completion."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from keepai.doors.cli.main import keep

from .conftest import Place


def lines_of(place: Place, *args: str, act: tuple[str, ...]) -> list[str]:
    """What a watching command prints at first, and after somebody acts."""
    watching = place.spawn(*args, "--watch", "--json")
    assert watching.stdout is not None
    try:
        first = watching.stdout.readline()
        place.type(*act)
        second = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=20)
    finally:
        if watching.poll() is None:
            watching.kill()
    assert (watching.returncode, err) == (0, "")
    return [first, second]


def test_watching_prints_a_line_of_json_at_every_change(worked: Place) -> None:
    first, second = (json.loads(line) for line in lines_of(worked, "status", act=("pause", "email-to-sheets")))
    assert first["workflows"][0]["status"] == "active"
    assert second["workflows"][0]["status"] == "paused"


def test_watching_goes_on_though_a_person_must_act(blocked: Place) -> None:
    act = ("grant", "email-to-sheets", "sheets.appendRow", "--mode", "deny")
    first, second = (json.loads(line) for line in lines_of(blocked, "todo", act=act))
    assert [q["kind"] for q in first] == [q["kind"] for q in second] == ["permission"]


@pytest.mark.parametrize("command", ["status", "todo", "inputs", "outputs", "items", "runs"])
def test_what_changes_can_be_watched(command: str) -> None:
    found = keep.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    assert "--watch" in [option for parameter in found.params for option in parameter.opts]


def test_watching_nothing_says_so(place: Place) -> None:
    assert "There is no ledger" in place.type("status", "--watch", code=1).stderr


# -- completion ------------------------------------------------------------------------------------


def offered(*words: str) -> list[str]:
    """What a shell would offer for the last word."""
    *before, incomplete = words
    found = ShellComplete(keep, {}, "keep", "_KEEP_COMPLETE").get_completions(list(before), incomplete)
    return [each.value for each in found]


def test_commands_options_and_answers_are_offered() -> None:
    assert {"init", "deploy", "todo"} <= set(offered(""))
    assert offered("rollb") == ["rollback"]
    assert offered("db", "va") == ["vacuum"]
    assert "--dry-run" in offered("deploy", "--")
    assert "did_not_happen" in offered("resolve", "mut_1", "did")


def test_workflows_and_ids_are_offered_from_the_ledger(worked: Place) -> None:
    assert offered("inputs", "") == ["email-to-sheets"]
    assert offered("pause", "em") == ["email-to-sheets"]
    assert offered("pause", "other") == []
    mutations = {each["mutation"]["id"] for each in worked.json("outputs", "email-to-sheets")}
    assert set(offered("resolve", "")) == mutations
    assert set(offered("show", "mut_")) == mutations
    assert {each[:4] for each in offered("why", "")} == {"emai", "run_", "inp_", "evt_", "mut_"}
    assert {each[:4] for each in offered("skip", "")} == {"run_", "inp_", "evt_"}


def test_the_ledger_that_is_named_is_the_one_that_is_asked(worked: Place) -> None:
    shutil.move(worked.folder / "keep.db", worked.folder / "other.db")
    assert offered("inputs", "") == []
    assert offered("--db", "other.db", "inputs", "") == ["email-to-sheets"]


def test_where_there_is_nothing_nothing_is_offered_and_nothing_said(place: Place) -> None:
    assert offered("inputs", "") == []
    (place.folder / "keep.toml").write_text("wrong = [")
    assert offered("inputs", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_for_a_shell_is_printed(place: Place, shell: str) -> None:
    made = place.json("completion", shell)
    assert place.type("completion", shell).stdout.rstrip() == made["script"].rstrip()
    assert "_KEEP_COMPLETE" in made["script"]
    program = shutil.which(shell)
    if program:
        Path("code").write_text(made["script"])
        subprocess.run([program, "-n", "code"], check=True, timeout=20)


# -- a terminal ------------------------------------------------------------------------------------


def on_terminal(place: Place, *args: str, columns: int = 80) -> str:
    """What a command shows on a terminal."""
    import fcntl
    import os
    import pty
    import struct
    import termios

    from .conftest import COMMAND

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    done = subprocess.Popen([*COMMAND, *args], cwd=place.folder, env=env, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass  # the other end is closed
    _, err = done.communicate(timeout=20)
    os.close(ours)
    assert done.returncode == 0, err
    return shown.decode()


def test_on_a_terminal_a_table_is_coloured_and_folds_what_is_long(blocked: Place) -> None:
    import re

    shown = on_terminal(blocked, "runs", "email-to-sheets", columns=100)
    assert "\x1b[32mcommitted" in shown
    lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", shown).splitlines()
    assert all(len(line) <= 100 for line in lines)
    what = " ".join(line[lines[0].index("WHAT"):].strip() for line in lines[1:])
    assert what.split()[:4] == ["sheets.appendRow", "has", "not", "been"]
    assert what.endswith("then the run goes on.")
