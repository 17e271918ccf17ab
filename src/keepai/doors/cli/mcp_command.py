"""`keep mcp`: the tools of an agent over the Model Context Protocol, and how an agent's program is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...model.errors import ConfigError
from .. import agents
from ..mcp_install import TARGETS, install, keep_token, kept_token, token_file
from ..mcp_server import serve_stdio
from ..script_process import SECONDS_MAX
from .command_session import CommandSession, agent_token, with_json, with_session
from .principal_commands import let_in
from .text import echo, echo_json


@click.group(invoke_without_command=True)
@click.option("--agent", metavar="NAME", help="The agent as which it acts; its token lies on this machine.")
@click.pass_context
def mcp(context: click.Context, agent: str | None) -> None:
    """Give an agent its tools over the Model Context Protocol, on stdin and stdout.

    The agent's program starts this command; `keep mcp install` tells it how. A host must be running: `keep dev` or
    `keep serve`. What there is depends on the agent's scope; nothing that a person decides is among it.
    """
    if context.invoked_subcommand is not None:
        return
    token = agent_token() or (kept_token(agent) if agent else None)
    if token is None:
        raise ConfigError("Which agent is this? Name it with --agent, or give its token in KEEP_AGENT_TOKEN. A person "
                          "makes one with `keep mcp install --target …`.")
    ledger = context.find_object(CommandSession).settings().ledger  # type: ignore[union-attr]

    async def asked(what: Mapping[str, Any]) -> Any:
        return await asyncio.to_thread(agents.ask, ledger, token, agents.TOOL, what, SECONDS_MAX)

    asyncio.run(serve_stdio(asked))


@mcp.command("install")
@click.option("--target", type=click.Choice(list(TARGETS)), required=True, help="The program in which the agent runs.")
@click.option("--agent", metavar="NAME", help="The agent's name; without it, the program's.")
@click.option("--scope", type=click.Choice(["look", "propose"]), default="propose", show_default=True,
              help="What the agent may do.")
@click.option("--project", type=click.Path(file_okay=False, exists=True), default=".", show_default=True,
              help="The folder in which the agent works.")
@with_json
@with_session
def install_command(
    session: CommandSession, target: str, agent: str | None, scope: str, project: str, as_json: bool,
) -> None:
    """Let an agent in, and tell its program where Keep is.

    It registers the agent, puts its token into a file that only you may read, and writes the program's settings and a
    skill that teaches the agent to write workflows into the project. If there is no PIN yet, it asks for one.
    """
    settings, name = session.settings(), agent or target
    if settings.file is None:
        raise ConfigError("There is no keep.toml here, so there is nothing to install. `keep init FOLDER` makes one.")
    if not token_file(name).exists():
        keep_token(name, let_in(session, name, scope))
    files = install(target, name, settings.file, Path(project))
    if as_json:
        echo_json({"agent": name, "target": target, "files": [str(each) for each in files]})
        return
    echo(f"{target} finds Keep now, as the agent {name} ({scope}).", *(f"  wrote {each}" for each in files),
         f"  its token is in {token_file(name)}; `keep agent remove {name}` makes it worthless")
