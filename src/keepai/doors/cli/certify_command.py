"""`keep certify`: tries scripts with everything that can go wrong, and keeps a certificate of those that pass."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...engine.certificate import BrokenTrial, Certification
from ...model.errors import ConfigError, ScriptInvalid
from ...reading.wording import count
from ...testing.certify.try_script import try_script
from ...testing.fixtures import SUFFIX, read
from .. import control
from ..host_process import new_host
from ..script_process import SECONDS_MAX, from_json
from .command_session import CommandSession, agent_token, with_json, with_session
from .script_files import cases_beside, read_script, say_refused
from .text import echo, echo_json, plain, say
from .wiring import unlock_secrets

_BAR = 24  #: cells


@dataclass(frozen=True)
class _Subject:
    script: Path
    source: str
    cases: str | None  # the text of its file of cases, if it has one


@click.command()
@click.argument("files", metavar="[FILE]…", nargs=-1, type=click.Path(exists=True))
@click.option("--only", metavar="TRIAL", help="Run this one trial again, such as 1/death:after:apply.")
@with_json
@with_session
def certify(session: CommandSession, files: Sequence[str], only: str | None, as_json: bool) -> None:
    """Try a script with everything that can go wrong.

    Its cases (NAME.test.toml) run on the real engine, again and again: hosts die at every commit and around every call,
    requests and answers are lost, reads fail, the clock jumps, lists change. Then what took effect outside is counted.
    Nothing outside is called. FILE is a script, its cases, or a folder; without it, it is every script here.

    A script that passes gets a certificate, which the ledger keeps. Exit code 3 if one does not pass.
    """
    settings = session.settings(connectors=True)
    if settings.file is None:
        raise ConfigError("There is no keep.toml here, so no connector is known. `keep init FOLDER` makes one.")
    subjects = list(_subjects(files or (".",)))
    results, failed = [], 0
    for each in subjects:
        try:
            done, kept = _tried(session, settings, each, only, as_json)
        except ScriptInvalid as error:
            say_refused(str(each.script), error, as_json)
            sys.exit(3)
        failed += not done.passed
        results.append({"file": str(each.script), **done.to_json(), "kept": kept, "made_case": each.cases is None})
        if not as_json:
            echo(*_told(each, done, only, kept))
    if as_json:
        echo_json(results)
    sys.exit(3 if failed else 0)


def _subjects(named: Sequence[str]) -> Iterator[_Subject]:
    scripts = list(dict.fromkeys(script for name in named for script in _scripts(Path(name))))
    if not scripts:
        raise ConfigError(f"There is no script in {', '.join(named)}. Name a FILE, or make one with `keep init`.")
    for script, cases in scripts:
        yield _Subject(script, read_script(str(script)), read_script(str(cases)) if cases else None)


def _scripts(path: Path) -> list[tuple[Path, Path | None]]:
    """The scripts that a name means, each with its file of cases."""
    if path.is_dir():
        cased = {fixtures.script.resolve(): (fixtures.script, file)
                 for file in sorted(path.glob(f"*{SUFFIX}")) for fixtures in [read(file)]}
        others = {each.resolve(): (each, None) for each in sorted(path.glob("*.js"))}
        return list({**others, **cased}.values())
    if path.name.endswith(SUFFIX):
        return [(read(path).script, path)]
    return [(path, cases_beside(path))]


def _tried(
    session: CommandSession, settings: Settings, subject: _Subject, only: str | None, as_json: bool,
) -> tuple[Certification, bool]:
    """What came of the trials, and whether a certificate was kept."""
    has_host = agent_token() is not None or control.is_running(settings.ledger)
    if only is None and has_host:  # only the process that has tried it keeps a certificate
        say("A host runs here, so it has the script tried. This may take some minutes.")
        done = from_json(session.ask("certify", {
            "source": subject.source, "cases": subject.cases, "script": subject.script.name}, SECONDS_MAX))
        return done, done.passed
    bar = _bar(subject.script.name) if sys.stderr.isatty() and not as_json else lambda done, of: None
    done = asyncio.run(try_script(
        subject.source, subject.cases, settings.connectors, settings.policy, subject.script.parent,
        script=subject.script.name, only=only, progress=bar))
    if sys.stderr.isatty() and not as_json:
        click.echo("\r\x1b[K", nl=False, err=True)
    if only is not None or not done.passed:
        return done, False
    unlock_secrets(settings)
    return done, asyncio.run(_keep(settings, subject, done))


async def _keep(settings: Settings, subject: _Subject, done: Certification) -> bool:
    async with new_host(settings, works=False) as keep:
        return await keep.keep_certificate(subject.source, subject.cases, done)


def _bar(name: str) -> Callable[[int, float], None]:
    def draw(done: int, of: float) -> None:
        filled = int(of * _BAR)
        text = f"\r{plain(name)}  [{'#' * filled}{'-' * (_BAR - filled)}]  {count(done, 'trial')}"
        click.echo(text, nl=False, err=True)
    return draw


# -- as text ---------------------------------------------------------------------------------------


def _told(subject: _Subject, done: Certification, only: str | None, kept: bool) -> Iterator[str]:
    name = plain(str(subject.script))
    mark = click.style("ok    ", fg="green") if done.passed else click.style("BROKEN", fg="red")
    broken = f", {len(done.broken)} broke a rule" if done.broken else ""
    yield f"{mark}  {name}: {count(done.trials, 'trial')} in {done.seconds:.1f} s{broken}"
    for _, group in groupby(sorted(done.broken, key=_by_cause), key=_by_cause):
        yield from _fault(name, list(group), only)
    for connector, rule in done.broken_contracts.items():
        yield f"        The connector {connector} breaks a rule: {plain(rule)}. `keep test-connector` shows it."
    if subject.cases is None:
        yield "        It has no cases: one was made from the types of its connectors. Write some, for a better word."
    for asked in done.asks:
        yield (f"        {asked}: nobody can look up whether it happened. If its answer is lost, a person is asked; no "
               "trial can spare you that.")
    if done.unreached and not done.broken:
        yield f"        No case reaches {', '.join(done.unreached)}: nothing is known of it."
    untested = [connector for connector, state in done.contracts.items() if state == "not tested"]
    if untested:
        yield f"        Nobody has tested the connector {', '.join(untested)}. `keep test-connector` does."
    for each in done.untried:
        yield f"        Not tried: {plain(each)}"
    if done.passed and only is None:
        yield "        The certificate is kept." if kept else "        No certificate was kept."


def _by_cause(each: BrokenTrial) -> tuple[Any, ...]:
    return each.cause, each.instead, each.line or 0


def _fault(name: str, trials: list[BrokenTrial], only: str | None) -> Iterator[str]:
    first = trials[0]
    yield f"        {plain(first.cause or first.what)}"
    if first.cause:
        yield f"          So {plain(first.what)}."
    many = f"{count(len(trials), 'trial')}, the first of them: " if len(trials) > 1 else ""
    yield f"          When: {many}{plain(first.when)}; in the case “{plain(first.case)}”"
    if first.instead:
        yield f"          Write instead: {plain(first.instead)}"
    if only is None:
        yield f"          Again: keep certify {name} --only {plain(first.trial)}"
