"""`keep types`: what a script may call here, as TypeScript."""

from __future__ import annotations

from pathlib import Path

import click

from ...config import Settings
from ...connectors.typescript import declare
from ...model.errors import ConfigError
from .command_session import CommandSession, with_json, with_session
from .text import echo, echo_json, say


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@with_json
@with_session
def types(session: CommandSession, file: str | None, as_json: bool) -> None:
    """Declare `ctx` as TypeScript, for editors and language models.

    It is made from the connectors of keep.toml: each of their operations with its parameters and its result, and what
    each phase may call. With FILE it is written there; without, it is printed.
    """
    settings = session.settings(connectors=True)
    text = declared(settings)
    names = [connector.name for connector in settings.connectors]
    if file is not None:
        write(Path(file), text)
    if as_json:
        echo_json({"file": file, "connectors": names, "text": text})
    elif file is None:
        echo(text)
    else:
        echo(f"{file}: ctx with {', '.join(names) or 'no connector'}.")
    if settings.file is None:
        say("Without a keep.toml no connector is known, so ctx has none.")


def declared(settings: Settings) -> str:
    """The declarations for these connectors."""
    return declare(settings.connectors, mutate_reads=settings.policy.mutate_reads == "by_id")


def write(path: Path, text: str) -> None:
    """Write a file that was made; a place that cannot be written is the user's to mend."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
