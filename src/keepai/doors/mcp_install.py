"""Tells an agent's program where Keep is: its settings in a project, and a skill that teaches it to write workflows.

The settings name a command and no secret. The agent's token lies in a file of the user's own, which only `keep mcp`
reads.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from ..model.errors import ConfigError

NAME = "keep"  #: of the server, in the settings of every program
_SKILL = files("keepai.doors.cli").joinpath("template")


@dataclass(frozen=True)
class Target:
    """A program that agents run in: the file of its settings in a project, and the folder of its skills."""

    settings: str
    skills: str
    written: Callable[[str, list[str]], str]  # the old text and the command → the new text


def token_file(name: str) -> Path:
    """Where the token of an agent lies on this machine."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise ConfigError(f"{name!r} is no name of an agent: use letters, digits, '.', '_' and '-'.")
    return Path(platformdirs.user_config_dir("keep")) / "agents" / name


def keep_token(name: str, token: str) -> Path:
    """Put an agent's token where `keep mcp` finds it; only this user may read it."""
    file = token_file(name)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_name(file.name + "~")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(token + "\n")
    new.replace(file)
    return file


def kept_token(name: str) -> str:
    """The token of an agent."""
    file = token_file(name)
    try:
        return file.read_text("utf-8").strip()
    except FileNotFoundError:
        raise ConfigError(f"There is no token of an agent {name!r} on this machine ({file}). A person runs "
                          f"`keep mcp install --target … --agent {name}`.") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None


def install(target: str, agent: str, config: Path, project: Path) -> list[Path]:
    """Write the settings and the skill into a project; gives the files."""
    chosen = TARGETS[target]
    command = [_keep(), "--config", str(config.resolve()), "mcp", "--agent", agent]
    settings, skill = project / chosen.settings, project / chosen.skills / NAME / "SKILL.md"
    before = settings.read_text("utf-8") if settings.is_file() else ""
    try:
        text = chosen.written(before, command)
    except ValueError as error:
        raise ConfigError(f"{settings} cannot be read: {error}. Mend it, then install again.") from None
    for file, new in ((settings, text), (skill, skill_text())):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(new, "utf-8")
    return [settings, skill]


def skill_text() -> str:
    """What teaches an agent to write workflows: the guide that `keep init` makes, as a skill."""
    guide = _SKILL.joinpath("AGENTS.md").read_text("utf-8")
    return _SKILL.joinpath("SKILL.md").read_text("utf-8") + guide[guide.index("## Phases"):]


def _keep() -> str:
    """The command of this very installation."""
    beside = Path(sys.executable).with_name("keep")
    return str(beside) if beside.exists() else "keep"


def _json_under(key: str, kind: Mapping[str, Any]) -> Callable[[str, list[str]], str]:
    def written(before: str, command: list[str]) -> str:
        data = json.loads(before) if before.strip() else {}
        if not isinstance(data, dict) or not isinstance(data.get(key, {}), dict):
            raise ValueError(f"{key} is no object there")
        servers = {**data.get(key, {}), NAME: {**kind, "command": command[0], "args": command[1:]}}
        return json.dumps({**data, key: servers}, indent=2, ensure_ascii=False) + "\n"

    return written


def _codex(before: str, command: list[str]) -> str:
    """Everything but our own table stays as it is, with its comments."""
    tomllib.loads(before)
    rest = re.sub(rf"(?ms)^\[mcp_servers\.{NAME}\]$.*?(?=^\[|\Z)", "", before).rstrip()
    table = f"[mcp_servers.{NAME}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
    text = f"{rest}\n\n{table}" if rest else table
    tomllib.loads(text)
    return text


TARGETS: Mapping[str, Target] = MappingProxyType({
    "claude-code": Target(".mcp.json", ".claude/skills", _json_under("mcpServers", {})),
    "codex": Target(".codex/config.toml", ".agents/skills", _codex),
    "cursor": Target(".cursor/mcp.json", ".cursor/skills", _json_under("mcpServers", {})),
    "vscode": Target(".vscode/mcp.json", ".github/skills", _json_under("servers", {"type": "stdio"})),
})
