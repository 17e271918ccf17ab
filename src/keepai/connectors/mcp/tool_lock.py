"""`keep.mcp.lock`, beside keep.toml: the tools that a person has confirmed, as their servers described them then.

A tool that is not in it cannot be called. One whose description, schemas or annotations have changed since is not
called until a person has confirmed it again with `keep connect`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ...model.codec import Json, canonical, digest
from ...model.errors import ConfigError
from ...model.visible_text import visible
from ..base import script_name
from ..json_schema import taken
from ..kit.lenient_json import parse_json

FILE = "keep.mcp.lock"
TOOLS_MAX = 500  #: of one server
TOOL_BYTES_MAX = 256 << 10  #: of what a server says about one tool
TEXT_MAX = 2_000  #: characters of a server's text that people and models are shown
_DESCRIBED = ("description", "inputSchema", "outputSchema", "annotations")
_ABOUT = "The tools of MCP servers that a person confirmed. `keep connect` writes this file; keep it beside keep.toml."

ToolKind = Literal["read", "mutation"]


@dataclass(frozen=True)
class Tool:
    """One tool, as its server describes it. Nothing of it is trusted: a description is text from outside."""

    name: str
    said: Mapping[str, Json]
    kind: ToolKind = "mutation"  # what a person has confirmed

    @cached_property
    def hash(self) -> str:
        """Changes when anything changes that a person has confirmed."""
        return digest(self.name, *(canonical(self.said.get(part)) for part in _DESCRIBED))

    @cached_property
    def script_name(self) -> str:
        """What scripts call it; empty if they cannot."""
        return script_name(self.name)

    @property
    def doc(self) -> str:
        """Its description, bounded, with nothing hidden in it."""
        return shortened(str(self.said.get("description") or ""))

    @property
    def says_it_reads(self) -> bool:
        """A hint of the server, and no more than that."""
        hints = self.said.get("annotations")
        return isinstance(hints, dict) and hints.get("readOnlyHint") is True

    @cached_property
    def params_schema(self) -> dict[str, Any]:
        """What it takes."""
        return taken(self.said.get("inputSchema"), closed=True)

    @cached_property
    def result_schema(self) -> dict[str, Any] | None:
        """What it returns; None if the server does not say."""
        said = self.said.get("outputSchema")
        return taken(said) if isinstance(said, dict) else None


def shortened(text: str) -> str:
    """Text of a server, for people and models."""
    text = visible(text[:TEXT_MAX])
    return text if len(text) < TEXT_MAX else f"{text[:TEXT_MAX]}…"


def tool_of(entry: Json) -> Tool | None:
    """A tool of a server's list; None if that is none, or more than can be looked at."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    said = {part: entry[part] for part in _DESCRIBED if entry.get(part) is not None}
    if len(canonical(said)) > TOOL_BYTES_MAX or not re.fullmatch(r"[A-Za-z0-9_./$ -]{1,128}", str(entry["name"])):
        return None
    return Tool(str(entry["name"]), said)


def usable(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Script name → tool, of those that scripts can call. If two would have one name, it is neither's."""
    named: dict[str, list[Tool]] = {}
    for tool in tools:
        named.setdefault(tool.script_name, []).append(tool)
    return {name: found[0] for name, found in named.items() if name and len(found) == 1}


# -- the file --------------------------------------------------------------------------------------


def read_lock(file: Path, connector: str) -> dict[str, Tool]:
    """Script name → confirmed tool. `ConfigError` if the file was changed by hand."""
    tools = [_locked(file, connector, name, entry) for name, entry in _tables(file).get(connector, {}).items()]
    found = usable(tools)
    if len(found) != len(tools):
        raise ConfigError(f"{file}: two tools of {connector} would have one name in scripts. {_AGAIN}")
    return found


def write_lock(file: Path, connector: str, tools: Iterable[Tool]) -> str:
    """The new text of the file, with these tools of one connector in it."""
    entries = {tool.name: {"hash": tool.hash, "kind": tool.kind, **tool.said}
               for tool in sorted(tools, key=lambda tool: tool.name)}
    tables = {**_tables(file), connector: entries}
    return json.dumps({"about": _ABOUT, "connectors": dict(sorted(tables.items()))}, indent=1, ensure_ascii=True) + "\n"


_AGAIN = "Run `keep connect` for it again."


def _tables(file: Path) -> dict[str, dict[str, Any]]:
    if not file.exists():
        return {}
    try:
        found: Any = parse_json(file.read_bytes())
        return {name: dict(tools) for name, tools in found["connectors"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}. Restore it, or remove it and connect again.") from None


def _locked(file: Path, connector: str, name: str, entry: Any) -> Tool:
    tool = tool_of({"name": name, **entry}) if isinstance(entry, dict) else None
    if tool is None or entry.get("hash") != tool.hash or entry.get("kind") not in ("read", "mutation"):
        raise ConfigError(f"{file}: the tool {name!r} of {connector} was changed by hand. {_AGAIN}")
    return Tool(tool.name, tool.said, entry["kind"])
