"""`keep connect` of an MCP server: a person sees its tools, and says which are reads and which may be called at all.

What the server says about a tool is shown as text from outside, and decides nothing. A tool that was confirmed before
and is still the same is not asked about again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import click

from ...connectors.mcp.mcp_connector import Mcp
from ...connectors.mcp.tool_lock import Tool, ToolKind, usable, write_lock
from ...model.codec import canonical
from ...model.errors import ConfigError
from ...vault.file import replace as replace_file
from . import secret_input
from .text import did_you_mean, echo, plain, say, table

ALL = "all"


@dataclass(frozen=True)
class ToolChoice:
    """What a person said about the tools of a server."""

    confirmed: Mapping[str, Tool]
    unconfirmed: tuple[str, ...]  # new or changed, and nobody has said what they are
    gone: tuple[str, ...]  # confirmed once, and no longer offered
    nameless: tuple[str, ...]  # tools that scripts could not call

    def as_json(self) -> dict[str, object]:
        kinds = {name: tool.kind for name, tool in self.confirmed.items()}
        return {"tools": kinds, "unconfirmed": list(self.unconfirmed), "gone": list(self.gone)}


def choose_tools(connector: Mcp, reads: Iterable[str], mutations: Iterable[str]) -> ToolChoice:
    """What is confirmed: by the options, by the person at the terminal, or before."""
    offered = usable(connector.offered.values())
    same = {name: tool for name, tool in connector.tools.items() if name in offered and offered[name].hash == tool.hash}
    wanted: dict[str, ToolKind] = dict.fromkeys(_names(mutations, offered, same), "mutation")
    wanted |= dict.fromkeys(_names(reads, offered, same), "read")
    asked = [name for name in offered if name not in same and name not in wanted]
    if asked and secret_input.at_terminal():
        wanted |= _ask({name: offered[name] for name in asked}, connector.tools)
    confirmed = {**same, **{name: replace(offered[name], kind=kind) for name, kind in wanted.items()}}
    return ToolChoice(
        {name: confirmed[name] for name in offered if name in confirmed},
        () if secret_input.at_terminal() else tuple(name for name in offered if name not in confirmed),
        tuple(name for name in connector.tools if name not in offered),
        tuple(tool.name for tool in connector.offered.values() if tool.script_name not in offered),
    )


def lock_tools(connector: Mcp, choice: ToolChoice) -> None:
    """Write what was confirmed into keep.mcp.lock. What has changed since stays as it was, and is not called."""
    before = [tool for name, tool in connector.tools.items() if name in choice.unconfirmed]
    text = write_lock(connector.lock, connector.name, [*choice.confirmed.values(), *before])
    replace_file(connector.lock, text.encode(), 0o644)


def tell_tools(connector: Mcp, choice: ToolChoice) -> None:
    """Say what scripts can call now, and what not."""
    for kind, words in (("read", "reads"), ("mutation", "mutations; each asks a person until one allows it")):
        names = [name for name, tool in choice.confirmed.items() if tool.kind == kind]
        if names:
            echo(f"{', '.join(names)}: {words}.")
    if choice.gone:
        echo(f"No longer offered, and taken out: {', '.join(choice.gone)}.")
    if choice.nameless:
        echo(f"Scripts cannot call these tools, because of their names: {plain(', '.join(choice.nameless))}.")
    if choice.unconfirmed:
        echo(*_lines({name: connector.offered_as(name) for name in choice.unconfirmed}, connector.tools))
        echo("Nobody has confirmed these, so scripts cannot call them. Name those that only read, then the others: "
             f"keep connect {connector.name} mcp --read NAME,NAME --mutation {ALL}")
    if choice.confirmed:
        echo(f"They are in {plain(connector.lock.name)}. `keep types keep.d.ts` tells editors and models of them.")


def _names(given: Iterable[str], offered: Mapping[str, Tool], same: Mapping[str, Tool]) -> list[str]:
    """The tools that an option names; `all` is every tool that was not confirmed before."""
    names = [name.strip() for word in given for name in word.split(",") if name.strip()]
    wrong = next((name for name in names if name not in offered and name != ALL), None)
    if wrong:
        raise ConfigError(f"The server has no tool {wrong!r}. {did_you_mean(wrong, offered)}")
    every = [name for name in offered if name not in same] if ALL in names else []
    return [*every, *(name for name in names if name != ALL)]


def _ask(tools: Mapping[str, Tool], before: Mapping[str, Tool]) -> dict[str, ToolKind]:
    say("\n".join(["The server offers these tools. What it says about them is not checked by anybody:", "",
                   *_lines(tools, before), ""]))
    reads = _asked("Which of them change nothing? Name them, or Enter for none", "", tools)
    rest = {name: tool for name, tool in tools.items() if name not in reads}
    if not rest:
        return dict.fromkeys(reads, "read")
    others = _asked("Which others may scripts call? Each asks a person first. Enter for all, or - for none", ALL, rest)
    return {**dict.fromkeys(others, "mutation"), **dict.fromkeys(reads, "read")}


def _asked(question: str, default: str, tools: Mapping[str, Tool]) -> list[str]:
    while True:
        answer = str(click.prompt(question, default=default, show_default=False, err=True)).replace(" ", ",")
        try:
            return [] if answer == "-" else _names([answer], tools, {})
        except ConfigError as error:
            say(plain(error.message))


def _lines(tools: Mapping[str, Tool], before: Mapping[str, Tool]) -> list[str]:
    rows = [[name, _differs(tool, before.get(name)), "says it only reads" if tool.says_it_reads else "",
             tool.doc.strip().split("\n")[0]] for name, tool in tools.items()]
    return table(["Tool", "Since", "Hint", "Description"], rows, 3)


def _differs(tool: Tool, before: Tool | None) -> str:
    if before is None:
        return "new"
    parts = [part for part in {**tool.said, **before.said}
             if canonical(tool.said.get(part)) != canonical(before.said.get(part))]
    return f"changed: {', '.join(parts)}"
