"""Adds a table to keep.toml and leaves every other byte of it as it was."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...model.errors import ConfigError
from ...vault.file import replace


def connection(file: Path, name: str) -> Mapping[str, Any] | None:
    """The table `[connectors.<name>]` that a keep.toml has; None if it has none."""
    data = tomllib.loads(_text(file))
    found = data.get("connectors", {}).get(name)
    return found if isinstance(found, dict) else None


def add_connection(file: Path, name: str, table: Mapping[str, Any]) -> None:
    """Write `[connectors.<name>]` at the end of a keep.toml, or into a new one."""
    before = _text(file)
    entry = [f"[connectors.{_key(name)}]", *(f"{_key(key)} = {toml(value)}" for key, value in table.items())]
    line = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else line if before.endswith("\n") else line * 2
    after = before + gap + line.join(entry) + line
    if not _is_added(before, after, name, table):
        raise ConfigError(f"{file} cannot be added to. Add this to it yourself:\n" + "\n".join(entry))
    _write(file, after)


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8") if file.exists() else ""


def _is_added(before: str, after: str, name: str, table: Mapping[str, Any]) -> bool:
    """Whether the new text says what the old one said, and the table."""
    try:
        said, old = tomllib.loads(after), tomllib.loads(before)
    except tomllib.TOMLDecodeError:
        return False
    added = said.get("connectors", {}).pop(name, None)
    if not said["connectors"] and "connectors" not in old:
        del said["connectors"]
    return added == dict(table) and said == old


def _write(file: Path, text: str) -> None:
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    replace(file, text.encode("utf-8"), mode)
