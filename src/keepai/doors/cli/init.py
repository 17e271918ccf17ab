"""`keep init`: a folder to start from, with everything that a person or a coding agent needs; and `keep types`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import click

from ...config import Settings
from ...connectors.base import check_name
from ...connectors.sql.sqlite import make_database
from ...connectors.typescript import declare
from ...model.errors import ConfigError, Refused
from .command_session import CommandSession, with_json, with_session
from .init_templates import FIRST, Template, next_steps, template_called, templates
from .text import echo, echo_json, say, table

TYPES = "keep.d.ts"


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option("--template", metavar="NAME", help="Begin with another workflow; --templates lists them.")
@click.option("--templates", "listing", is_flag=True, help="List the templates, and make nothing.")
@click.option("--connector", metavar="NAME", help="Make a connector of your own instead, and how to test it.")
@with_json
def init(folder: str, template: str | None, listing: bool, connector: str | None, as_json: bool) -> None:
    """Make a folder with a workflow that works at once.

    It files e-mails of a local mail folder into a local sheet: a script, its cases for `keep test`, keep.toml, the
    types of `ctx` for editors, and AGENTS.md, which tells coding agents how to write another. If one of the files
    exists already, none is made, and nothing is overwritten.

    With --template the workflow is one of the recipes instead. What it needs stands in for the real thing where it can:
    a mail folder, sheets, a database, an inbox for webhooks on this machine.

    With --connector it makes NAME.py, a connector of forty lines, and NAME_contract.py, with which
    `keep test-connector` tests it. Neither needs a folder of its own.
    """
    place = Path(folder)
    if listing + (template is not None) + (connector is not None) > 1:
        raise click.UsageError("--template, --templates and --connector do different things. Name one of them.")
    if listing:
        _list_templates(as_json)
    elif connector is not None:
        _make_connector(place, folder, connector, as_json)
    else:
        _make_workflow(place, folder, template_called(template or FIRST), as_json)


def _list_templates(as_json: bool) -> None:
    found = templates()
    if as_json:
        echo_json([{"name": each.name, "does": each.does, "connectors": each.connectors} for each in found])
        return
    echo(*table(("TEMPLATE", "WHAT IT DOES"), [(each.name, each.does) for each in found], flexible=1),
         "", "Make one: keep init FOLDER --template NAME")


def _make_workflow(place: Path, folder: str, template: Template, as_json: bool) -> None:
    wanted = [name for name in (*template.files, *template.databases, TYPES) if name != ".gitignore"]
    _refuse_overwriting(place, dict.fromkeys(name.partition("/")[0] for name in wanted))
    made = {name: text for name, text in template.files.items() if name != ".gitignore" or not (place / name).exists()}
    for name, text in made.items():
        _make_folder((place / name).parent)
        write(place / name, text)
    for name, statements in template.databases.items():
        make_database(place / name, statements)
    write(place / TYPES, declared(CommandSession(config=str(place / "keep.toml")).settings(connectors=True)))
    names = [*made, *template.databases, TYPES]
    if as_json:
        echo_json({"folder": folder, "files": names})
    else:
        go = [] if folder == "." else [f"  cd {folder}"]
        echo(f"Made {', '.join(names)}.", "Go on with:", *go, *next_steps(template))


def _make_connector(place: Path, folder: str, name: str, as_json: bool) -> None:
    if not check_name(name).isidentifier() or not name.isascii() or not name[0].islower():
        raise ConfigError(f"{name!r} cannot name a connector and its file: write a word in small letters.")
    made = {f"{name}.py": "connector.txt", f"{name}_contract.py": "contract.txt"}
    _refuse_overwriting(place, made)
    _make_folder(place)
    for file, template in made.items():
        text = files(__package__).joinpath("template", template).read_text("utf-8")
        write(place / file, text.replace("Tickets", name[0].upper() + name[1:]).replace("tickets", name))
    if as_json:
        echo_json({"folder": folder, "files": list(made)})
    else:
        go = [] if folder == "." else [f"  cd {folder}"]
        echo(f"Made {', '.join(made)}.", "Go on with:", *go, f"  keep test-connector {name}.py",
             f'  [connectors.{name}] with type = "{name}:{name[0].upper() + name[1:]}" in keep.toml')


def _refuse_overwriting(place: Path, wanted: Iterable[str]) -> None:
    there = [name for name in wanted if (place / name).exists()]
    if there:
        where = "here" if place == Path() else f"in {place}"
        raise Refused(f"Nothing was made: {where} is {', '.join(there)} already. Name a new folder: keep init FOLDER")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.") from None


# -- types --------------------------------------------------------------------------------------------


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
