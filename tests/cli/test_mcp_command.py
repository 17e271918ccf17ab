"""`keep mcp install` tells an agent's program where Keep is, and `keep mcp` says what is missing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from keepai.doors import mcp_install
from keepai.doors.mcp_install import TARGETS, install, keep_token, kept_token, skill_text, token_file
from keepai.model.errors import ConfigError

from .conftest import Place
from .test_agents import PIN, Terminal

pytest.importorskip("mcp", reason="the package mcp is not installed")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_install.platformdirs, "user_config_dir", lambda name: str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("target", TARGETS)
def test_the_settings_of_a_program_gain_keep_and_lose_nothing(target: str, tmp_path: Path) -> None:
    file = tmp_path / TARGETS[target].settings
    file.parent.mkdir(parents=True, exist_ok=True)
    is_toml = file.suffix == ".toml"
    servers = "mcp_servers" if is_toml else "servers" if target == "vscode" else "mcpServers"
    file.write_text(
        '# mine\n[mcp_servers.other]\ncommand = "x"\n\n[mcp_servers.keep]\ncommand = "old"\nargs = ["a"]\n\n[tui]\n'
        if is_toml else json.dumps({"mine": 1, servers: {"other": {"command": "x"}}}))
    install(target, "claude", tmp_path / "keep.toml", tmp_path)
    settings, skill = install(target, "claude", tmp_path / "keep.toml", tmp_path)
    text = settings.read_text()
    found = tomllib.loads(text) if is_toml else json.loads(text)
    assert found[servers]["other"] == {"command": "x"}
    assert found[servers]["keep"]["args"] == ["--config", str(tmp_path / "keep.toml"), "mcp", "--agent", "claude"]
    assert ("# mine" in text and "tui" in found) if is_toml else found["mine"] == 1
    assert skill.read_text() == skill_text()
    assert "## Phases" in skill_text()


def test_settings_that_cannot_be_read_are_left_alone(tmp_path: Path) -> None:
    for target, text in (("claude-code", "{"), ("codex", "x = "), ("cursor", '{"mcpServers": []}')):
        file = tmp_path / TARGETS[target].settings
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        with pytest.raises(ConfigError, match="Mend it"):
            install(target, "claude", tmp_path / "keep.toml", tmp_path)
        assert file.read_text() == text


def test_a_token_is_readable_by_its_user_alone_and_a_name_is_no_path(tmp_path: Path) -> None:
    file = keep_token("claude", "keep_agent_x")
    assert (file.stat().st_mode & 0o777, kept_token("claude")) == (0o600, "keep_agent_x")
    with pytest.raises(ConfigError, match="There is no token"):
        kept_token("other")
    for name in ("../x", "a/b", ""):
        with pytest.raises(ConfigError, match="no name of an agent"):
            token_file(name)


def test_a_person_installs_it_with_one_command(worked: Place) -> None:
    terminal = Terminal(worked, PIN)
    done = terminal.json("mcp", "install", "--target", "claude-code")
    assert [Path(each).name for each in done["files"]] == [".mcp.json", "SKILL.md"]
    [agent] = worked.json("agent", "list")
    assert (agent["name"], agent["role"]) == ("claude-code", "propose")
    assert "Which agent is this?" in worked.type("mcp", code=2).stderr
