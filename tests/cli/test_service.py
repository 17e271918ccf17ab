"""`keep service`: a unit of systemd for the folder here, what is in it, and what happens where systemd is not."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from keepai.doors.cli import service_command

from .conftest import Place


@pytest.fixture
def home(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the account, and a folder that is not among the temporary ones."""
    monkeypatch.setenv("HOME", str(place.folder / "home"))
    monkeypatch.setattr(service_command, "_TEMPORARY", ("/nowhere",))
    return place.folder / "home"


@pytest.fixture
def systemd(place: Place, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which systemd runs, and writes down what it is told."""
    tools, told = place.folder / "tools", place.folder / "told"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(service_command, "BOOTED", place.folder)
    return told


def lines(place: Place, *args: str) -> list[str]:
    return str(place.json("service", "show", *args)["unit"]).splitlines()


def test_a_unit_runs_the_host_of_the_folder_and_lets_it_write_there_alone(place: Place, home: Path) -> None:
    shown = place.json("service", "show", "--page", "--probes", "127.0.0.1:7790", "--mcp", "[::1]:7791")
    unit = shown["unit"].splitlines()
    assert f"WorkingDirectory={place.folder}" in unit
    [start] = [each for each in unit if each.startswith(("ExecStart=/", 'ExecStart="/'))]
    assert start.endswith(" serve --page --probes=127.0.0.1:7790 --mcp=[::1]:7791")
    assert [each for each in unit if each.startswith("ReadWritePaths=")] == [f"ReadWritePaths={place.folder}"]
    assert {"ProtectSystem=strict", "NoNewPrivileges=yes", "WantedBy=default.target"} <= set(unit)
    assert Path(shown["file"]).is_relative_to(home / ".config/systemd/user")
    assert not shown["installed"]
    assert not home.exists()


def test_a_unit_leaves_the_sandbox_what_it_locks_itself_in_with(place: Place, home: Path) -> None:
    unit = lines(place)
    assert "RestrictNamespaces=user net ipc uts" in unit
    [allowed] = [each for each in unit if each.startswith("SystemCallFilter=")]
    assert {"landlock_create_ruleset", "landlock_restrict_self", "seccomp"} <= set(allowed.split())
    assert not [each for each in unit if each.startswith("MemoryDenyWriteExecute")]


def test_folders_of_connectors_elsewhere_can_be_written_too(
    place: Place, home: Path, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    drop = tmp_path_factory.mktemp("elsewhere") / "drop"
    with (place.folder / "keep.toml").open("a") as file:
        file.write(f'[connectors.drop]\ntype = "files"\npath = "{drop}"\ncreate = true\n')
    written = [each for each in lines(place) if each.startswith("ReadWritePaths=")]
    assert written == [f"ReadWritePaths={place.folder}", f"ReadWritePaths={drop}"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_unit(place: Place, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "keep-try.service"
    file.write_text("\n".join(lines(place)), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False, timeout=60)
    assert [each for each in done.stderr.splitlines() if file.name in each] == []


def test_installing_writes_the_unit_and_starts_it_and_uninstalling_takes_it_away(
    place: Place, systemd: Path,
) -> None:
    installed = place.json("service", "install")
    file, name = Path(installed["file"]), installed["name"]
    assert file.read_text("utf-8") == installed["unit"]
    assert installed["installed"]
    assert not place.json("service", "uninstall")["installed"]
    assert not file.exists()
    assert systemd.read_text().splitlines() == [
        "--user daemon-reload", f"--user enable {name}", f"--user restart {name}",
        f"--user disable --now {name}", "--user daemon-reload",
    ]
    assert "nothing is installed" in place.type("service", "uninstall", code=1).stderr


def test_what_systemd_refuses_is_told(place: Place, systemd: Path) -> None:
    (place.folder / "tools" / "systemctl").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    told = place.type("service", "install", code=1).stderr
    assert "systemctl --user daemon-reload" in told
    assert "Failed to connect to bus" in told


def test_without_systemd_it_says_what_to_run_instead(
    place: Place, home: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_command, "BOOTED", place.folder / "none")
    told = place.type("service", "install", code=1).stderr
    assert "nothing was installed" in told
    assert " serve" in told
    assert not home.exists()


def test_a_service_of_the_machine_has_an_account_of_its_own_that_owns_the_folder(place: Place, home: Path) -> None:
    assert "Name an account" in place.type("service", "show", "--system", "--user", "root", code=2).stderr
    assert "no account 'nosuch'" in place.type("service", "show", "--system", "--user", "nosuch", code=2).stderr
    assert "Add --system" in place.type("service", "show", "--user", "nobody", code=2).stderr
    if getpass.getuser() != "root":
        assert "does not belong" in place.type("service", "show", "--system", "--user", "nobody", code=2).stderr
        return
    assert "chown -R nobody" in place.type("service", "show", "--system", "--user", "nobody", code=2).stderr
    shutil.chown(place.folder, "nobody")
    unit = lines(place, "--system", "--user", "nobody")
    assert {"User=nobody", "CapabilityBoundingSet=", "WantedBy=multi-user.target"} <= set(unit)


def test_a_folder_that_a_service_would_not_see_or_systemd_misread_is_refused(
    place: Place, home: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = place.folder / "my\"folder"
    odd.mkdir()
    (odd / "keep.toml").write_text("")
    assert "simpler name" in place.type("--config", str(odd / "keep.toml"), "service", "show", code=2).stderr
    monkeypatch.setattr(service_command, "_TEMPORARY", (str(place.folder),))
    assert "temporary" in place.type("service", "show", code=2).stderr
    (place.folder / "keep.toml").unlink()
    assert "keep init" in place.type("service", "show", code=1).stderr
