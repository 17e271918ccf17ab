"""`keep help` and `keep version`: the same as `--help` and `--version`, for those who type a word."""

from __future__ import annotations

from importlib.metadata import version

import click

from .command_session import CommandSession, with_json, with_session
from .help_texts import SUMMARIES
from .main import grouped
from .text import did_you_mean, echo, echo_json


@click.command("help")
@click.argument("topic", metavar="[COMMAND|GROUP]…", nargs=-1)
@with_json
@with_session
def help_command(session: CommandSession, topic: tuple[str, ...], as_json: bool) -> None:
    """Explain a command, or list a group of commands: begin, write, run, look, act, operate."""
    groups = {heading.partition(" ")[0].lower(): names for heading, names in grouped()}
    if as_json:
        echo_json({group: {name: SUMMARIES[name] for name in names} for group, names in groups.items()})
    elif len(topic) == 1 and topic[0].lower() in groups:
        names = groups[topic[0].lower()]
        wide = max(map(len, names))
        echo(*(f"{name:<{wide}}  {SUMMARIES[name]}" for name in names))
    else:
        echo(_help_of(topic, {*SUMMARIES, *groups}))


def _help_of(words: tuple[str, ...], known: set[str]) -> str:
    """What `keep WORDS --help` prints."""
    context = click.get_current_context().find_root()
    command = context.command
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"There is no command {' '.join(words)!r}. {did_you_mean(words[0], sorted(known))}")
        command, context = found, click.Context(found, parent=context, info_name=word)
    return command.get_help(context)


@click.command("version")
@with_json
@with_session
def version_command(session: CommandSession, as_json: bool) -> None:
    """Show the version of Keep."""
    if as_json:
        echo_json({"version": version("keepai")})
    else:
        echo(f"keep {version('keepai')}")
