"""`keep test`: runs the cases that lie beside scripts, one line each, with what differs."""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...model.errors import ConfigError, ScriptInvalid
from ...reading.wording import count
from ...testing import cases
from ...testing.cases import Result
from ...testing.fixtures import Fixtures, read
from .command_session import CommandSession, with_json, with_session
from .script_files import finding_line, read_script
from .text import echo, echo_json, plain, say

SUFFIX = ".test.toml"


@click.command()
@click.argument("files", metavar="[FILE]…", nargs=-1, type=click.Path(exists=True))
@click.option("-k", "wanted", metavar="TEXT", default="", help="Only cases with this in their name.")
@with_json
@with_session
def test(session: CommandSession, files: Sequence[str], wanted: str, as_json: bool) -> None:
    """Run the workflows' own cases. Exit code 1 if one fails.

    A case stands in NAME.test.toml beside NAME.js. FILE is such a file, a script, or a folder; without, it is all that
    are here. The real engine runs on a ledger of its own: nothing outside is called, and nobody waits.
    """
    settings = session.settings(connectors=True)
    if settings.file is None:
        raise ConfigError("There is no keep.toml here, so no connector is known. `keep init FOLDER` makes one.")
    fixtures = list(_fixtures(files or (".",)))
    results = asyncio.run(_run(settings, fixtures, wanted, as_json))
    failed = sum(1 for each in results if not each["passed"])
    if as_json:
        echo_json(results)
    else:
        none = f"No case has {plain(wanted)!r} in its name."
        told = f"{count(len(results), 'case')}: {len(results) - failed} passed, {failed} failed"
        say(told if results else none)
    sys.exit(1 if failed or not results else 0)


def _fixtures(named: Sequence[str]) -> Iterator[Fixtures]:
    files = [file for name in named for file in _found(Path(name))]
    if not files:
        raise ConfigError(f"There are no cases in {', '.join(named)}: no file ends in {SUFFIX}.")
    for file in dict.fromkeys(files):
        yield read(file)


def _found(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    if path.name.endswith(SUFFIX):
        return [path]
    beside = path.with_name(path.name.removesuffix(".js") + SUFFIX)
    if not beside.exists():
        raise ConfigError(f"{path} has no cases: there is no {beside}.")
    return [beside]


async def _run(settings: Settings, fixtures: list[Fixtures], wanted: str, as_json: bool) -> list[dict[str, Any]]:
    results = []
    for each in fixtures:
        source = read_script(str(each.script))
        for case in each.cases:
            if wanted not in case["name"]:
                continue
            try:
                result = await cases.run(source, case, settings.connectors, settings.policy)
            except ScriptInvalid as error:
                problems = (click.unstyle(finding_line(str(each.script), finding))
                            for finding in error.findings if finding.severity == "error")
                result = Result(case["name"], False, problems=tuple(problems))
            results.append({"file": str(each.file), **result.to_json()})
            if not as_json:
                echo(*_told(each.file, result))
    return results


# -- as text ---------------------------------------------------------------------------------------


def _told(file: Path, result: Result) -> Iterator[str]:
    mark = click.style("ok    ", fg="green") if result.passed else click.style("FAILED", fg="red")
    yield f"{mark}  {plain(str(file))}: {plain(result.name)}"
    if result.passed:
        return
    for problem in result.problems:
        yield f"        {plain(problem)}"
    if result.problems:
        return  # what else differs comes of that
    for each in result.differences:
        yield f"        expected {each.what} (-) and what there is (+):"
        yield from (f"          {line}" for line in _diff(each.wanted, each.found))
    for question in result.questions:
        yield f"        it asks a person, {plain(question)}"


def _diff(wanted: Sequence[Any], found: Sequence[Any]) -> Iterator[str]:
    """One line for each entry: those that differ, and those that are the same between them."""
    colours = {"-": "red", "+": "green"}
    before, after = (
        [json.dumps(each, ensure_ascii=False, sort_keys=True) for each in side] for side in (wanted, found))
    for line in difflib.ndiff(before, after):
        if not line.startswith("?"):
            yield click.style(plain(line), fg=colours.get(line[0]))
