"""`keep test-connector`: tests a connector against every injectable fault, and prints what it gets wrong."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ...connectors.base import OperationSpec
from ...connectors.own_code import CONTRACT as SUFFIX
from ...model.errors import ConfigError, KeepError, in_words
from ...reading.wording import count
from ...testing.contract import Report, Subject, Trial, examine, operation_of, subjects_in
from .command_session import with_json
from .text import echo, echo_json, plain, say


@click.command(name="test-connector")
@click.argument("files", metavar="[FILE]…", nargs=-1)
@with_json
def test_connector(files: Sequence[str], as_json: bool) -> None:
    """Test a connector against every injectable fault.

    FILE is a connector (tickets.py, or tickets:Tickets) with tickets_contract.py beside it, or that file itself.
    Without FILE, it is all such files here. Such a file says what to send, how to count the effects from outside, and
    how to bring about each fault. Answers get lost, come late or make no sense, and processes are killed. Then what the
    connector said is compared with what happened. Exit code 3 if it said something false or did something twice.
    """
    results = []
    for path in _found(files):
        for subject in _subjects(path):
            spec, report = asyncio.run(_examined(path, subject))
            about = {"file": str(path), "operation": spec.full_name, "class": spec.safety}
            results.append({**about, **report.as_json()})
            if not as_json:
                echo(*_told(path, spec, report))
    broken = sum(each["broken"] for each in results)
    if as_json:
        echo_json(results)
    else:
        tried = sum(len(each["trials"]) for each in results)
        say(f"{count(len(results), 'mutation')}, {count(tried, 'trial')}: {broken} broke a rule")
    sys.exit(3 if broken else 0)


def _found(named: Sequence[str]) -> list[Path]:
    """The files that say how to test; of a connector, the one beside it."""
    if not named:
        here = sorted(Path().glob(f"*{SUFFIX}"))
        if not here:
            raise ConfigError(f"No file here ends in {SUFFIX}. `keep init --connector NAME` makes a connector and one.")
        return here
    return list(dict.fromkeys(_beside(Path(name.partition(":")[0])) for name in named))


def _beside(path: Path) -> Path:
    stem = path.name.removesuffix(".py")
    wanted = path if path.name.endswith(SUFFIX) else path.with_name(f"{stem}{SUFFIX}")
    if not wanted.is_file():
        raise ConfigError(f"There is no {wanted}, which says how to test it. `keep init --connector NAME` shows one.")
    return wanted


def _subjects(path: Path) -> list[type[Subject]]:
    found = subjects_in(path)
    if not found:
        raise ConfigError(f"{path} has no subject: a class of keepai.testing.contract.Subject with an `operation`.")
    return found


async def _examined(path: Path, subject: type[Subject]) -> tuple[OperationSpec, Report]:
    try:
        return operation_of(subject), await examine(subject)
    except KeepError as error:
        raise ConfigError(f"{path}: {subject.__name__}: {error.message}") from error
    except Exception as error:
        raise ConfigError(f"{path}: {subject.__name__} could not be tried: {in_words(error)}") from error


# -- as text ---------------------------------------------------------------------------------------

_CLASSES = {"A": "the outside takes each key once", "B": "it can be looked up", "C": "nobody can look it up"}


def _told(path: Path, spec: OperationSpec, report: Report) -> Iterator[str]:
    about = f"{spec.full_name}, class {spec.safety} ({_CLASSES[spec.safety]})"
    yield f"{plain(str(path))}: {plain(report.subject)}: {about}"
    killed = [trial for trial in report.trials if trial.name.startswith("killed") and not trial.broken]
    for trial in report.trials:
        if trial not in killed:
            yield from _trial(trial)
    if killed:
        yield f"  {click.style('ok    ', fg='green')}  killed at {count(len(killed), 'moment')}"
    if report.untried:
        yield f"          not tried, because the subject cannot: {', '.join(map(plain, report.untried))}"


def _trial(trial: Trial) -> Iterator[str]:
    mark = click.style("BROKEN", fg="red") if trial.broken else click.style("ok    ", fg="green")
    yield f"  {mark}  {plain(trial.name)}"
    if trial.broken:
        yield from (f"            {plain(rule)}" for rule in trial.broken)
        yield f"            it said: {plain('; then '.join(trial.said))}"
        yield f"            it happened {trial.effects} times"
