"""The entry of the command `keep`: its global options, the table of its commands, and what errors become."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import click

from ...model.acts import ACTS
from ...model.errors import ConfigError, KeepError, PresenceNeeded, ScriptInvalid
from ...model.principals import ENV_AGENT_TOKEN
from .help_texts import SUMMARIES, with_example
from .text import did_you_mean, plain

#: What a command's exit code says.
OK, FAILED, USAGE, FINDINGS, NEEDS_YOU = 0, 1, 2, 3, 4

#: What every command is given; it reads ledgers, so it is imported with the first command.
SESSION = "command_session:CommandSession"
#: Command → the module and the function that it is, in the order in which people meet them. It is imported when it is
#: used, so that `keep --help` need not wait for the engine.
COMMANDS = {
    "demo": "demo:demo",
    "init": "init:init",
    "connect": "connect:connect",
    "secrets": "secrets:secrets",
    "doctor": "doctor:doctor",
    "plan": "plan_command:plan",
    "repair": "plan_command:repair",
    "check": "script_commands:check",
    "types": "init:types",
    "test": "cases_command:test",
    "certify": "certify_command:certify",
    "test-connector": "contract:test_connector",
    "deploy": "script_commands:deploy",
    "rollback": "rollback:rollback",
    "fix": "script_commands:fix",
    "shadow": "shadow_command:shadow",
    "propose": "proposal_commands:propose",
    "dev": "dev:dev",
    "serve": "serve:serve",
    "status": "status:status",
    "watch": "watch:watch",
    "open": "open_command:open_page",
    "todo": "todo:todo",
    "proposals": "proposal_commands:proposals",
    "inputs": "list_commands:inputs",
    "outputs": "list_commands:outputs",
    "items": "list_commands:items",
    "runs": "list_commands:runs",
    "deliveries": "deliveries_command:deliveries",
    "show": "show:show",
    "why": "why:why",
    "logs": "logs:logs",
    "graph": "graph_command:graph",
    "blast": "blast_command:blast",
    "digest": "status:digest",
    **dict.fromkeys((act.command for act in ACTS.values() if "shown" in act.params), "act_commands:COMMANDS"),
    "replay": "deliveries_command:replay",
    "notify": "notify:notify",
    "agent": "principal_commands:agent",
    "user": "principal_commands:user",
    "mcp": "mcp_command:mcp",
    "service": "service_command:service",
    "hosts": "hosts:hosts",
    "host": "hosts:host",
    "db": "db:db",
    "completion": "completion:completion",
    "help": "help_command:help_command",
    "version": "help_command:version_command",
}
#: What `keep --help` puts above a group of commands, by the first command of it.
GROUPS = {
    "demo": "Begin", "plan": "Write scripts", "dev": "Run", "status": "Look", "pause": "Act", "notify": "Operate",
}


#: What the commands of an agent are: they work on its own files, look, or are acts that a role of agents has.
OF_AGENTS = frozenset({
    "check", "types", "test", "certify", "fix", "status", "watch", "todo", "inputs", "outputs", "items", "runs", "show",
    "why", "logs", "graph", "blast", "digest", "propose", "proposals", "withdraw", "pause", "hosts", "mcp",
    "completion", "help", "version",
})


def offered() -> Mapping[str, str]:
    """The commands that there are: an agent's token in the environment leaves those of agents."""
    if ENV_AGENT_TOKEN not in os.environ:
        return COMMANDS
    return {name: place for name, place in COMMANDS.items() if name in OF_AGENTS}


class LazyCommands(click.Group):
    """Imports a command when it is asked for, and turns Keep's errors into a sentence and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(offered())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every command with a sentence, in groups; the sentences of all groups begin in the same column."""
        wide = max(map(len, offered()))
        for heading, names in grouped():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{wide}}", SUMMARIES[name]) for name in names])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in offered():
            return None
        found = _imported(COMMANDS[cmd_name])
        command: click.Command = found[cmd_name] if isinstance(found, dict) else found
        return with_example(command, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        there = offered()
        if args and args[0] not in there and not args[0].startswith("-"):
            whose = " for an agent" if args[0] in COMMANDS else ""
            ctx.fail(f"There is no command {args[0]!r}{whose}. {did_you_mean(args[0], there)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeepError as error:
            complain(error)
            ctx.exit(exit_code(error))


def grouped() -> list[tuple[str, list[str]]]:
    """The groups of commands, each with its heading."""
    found: list[tuple[str, list[str]]] = []
    for name in COMMANDS:
        if name in GROUPS:
            found.append((GROUPS[name], []))
        if name in offered():
            found[-1][1].append(name)
    return [(heading, names) for heading, names in found if names]


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


def complain(error: KeepError) -> None:
    """Say on stderr what is wrong; a message may come from outside."""
    prefix = "" if isinstance(error, ConfigError) else "keep: "
    click.echo(prefix + plain(error.message), err=True)


def exit_code(error: KeepError) -> int:
    """What an error means to a calling program."""
    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, PresenceNeeded):
        return NEEDS_YOU
    return FINDINGS if isinstance(error, ScriptInvalid) else FAILED


def _show_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"keep {version('keepai')}")
        ctx.exit()


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", help="The keep.toml to use; without it, the one here, if any.")
@click.option("--db", metavar="PLACE", help="The ledger: a file, or the address of a PostgreSQL database "
                                            "(postgresql://…); without it, what keep.toml says, or keep.db.")
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version,
              help="Show the version.")
@click.pass_context
def keep(ctx: click.Context, config: str | None, db: str | None) -> None:
    """Keep runs automations that a language model wrote, durably.

    Start with `keep demo`, or with `keep init FOLDER`: there `keep check`, `keep test`, `keep deploy`, `keep dev`,
    then `keep inputs`.

    Every command takes --json. Exit codes: 0 it is done, 1 it failed, 2 the command or keep.toml is
    wrong, 3 the script has errors, 4 a person must act.
    """
    ctx.obj = _imported(SESSION)(config, db)


def main() -> None:
    """Run the command line of this process, as `keep` or, where another tool has that name, as `keepai`."""
    keep(prog_name="keepai" if os.path.basename(sys.argv[0]) == "keepai" else "keep")


if __name__ == "__main__":
    main()
