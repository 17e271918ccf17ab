"""`keep init`: a folder to start from, with everything that a person or a coding agent needs to go on."""

from __future__ import annotations

from pathlib import Path

import click

from ...model.errors import ConfigError, Refused
from .session import Session, with_json
from .text import echo, echo_json
from .types import declared, write

#: What is made → the file of the template that it is.
FILES = {
    "keep.toml": "keep.toml", "invoices.js": "invoices.js", "invoices.test.toml": "invoices.test.toml",
    "AGENTS.md": "AGENTS.md", ".gitignore": "gitignore", "mail/new/1.example": "first.mail",
}
TYPES = "keep.d.ts"
SCRIPT = "invoices.js"


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@with_json
def init(folder: str, as_json: bool) -> None:
    """Make a folder with a workflow that works at once.

    It files e-mails of a local mail folder into a local sheet: a script, its cases for `keep test`, keep.toml, the
    types of `ctx` for editors, and AGENTS.md, which tells coding agents how to write another. Nothing that exists is
    overwritten: if one of the files does, none is made.
    """
    from importlib.resources import files

    place = Path(folder)
    _refuse_overwriting(place)
    made = [name for name in FILES if name != ".gitignore" or not (place / name).exists()]
    for name in made:
        _make_folder((place / name).parent)
        write(place / name, files(__package__).joinpath("template", FILES[name]).read_text("utf-8"))
    write(place / TYPES, declared(Session(config=str(place / "keep.toml")).settings(connectors=True)))
    made.append(TYPES)
    if as_json:
        echo_json({"folder": folder, "files": made})
    else:
        echo(*_told(folder, made))


def _refuse_overwriting(place: Path) -> None:
    wanted = dict.fromkeys(name.partition("/")[0] for name in (*FILES, TYPES) if name != ".gitignore")
    there = [name for name in wanted if (place / name).exists()]
    if there:
        where = "here" if place == Path() else f"in {place}"
        raise Refused(f"Nothing was made: {where} is {', '.join(there)} already. Name a new folder: keep init FOLDER")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.") from None


def _told(folder: str, made: list[str]) -> list[str]:
    go = [] if folder == "." else [f"  cd {folder}"]
    return [
        f"Made {', '.join(made)}.", "Go on with:", *go,
        "  keep test                             # the workflow's own cases",
        f"  keep deploy {SCRIPT} --grant all   # make it active, and let it read mail and write rows",
        "  keep dev                              # run it; Ctrl-C ends it",
        "  keep inputs invoices                  # what came in, and what came of it",
    ]
