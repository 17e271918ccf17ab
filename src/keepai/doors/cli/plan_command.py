"""`keep plan` and `keep repair`: the model of keep.toml writes a script, Keep tries it, and a person decides."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...engine.certificate import Certification
from ...model.codec import Json
from ...model.errors import ConfigError, KeepError
from ...model.principals import MAINTAINER, PLANNER, Principal
from ...planning import prompts
from ...planning.drafts import ScriptDraft
from ...planning.plan_loop import PlanNews, PlanResult
from .. import control
from ..host_process import new_host
from ..model_plans import NO_MODEL, PlanDesk, cases_of
from ..script_process import SECONDS_MAX, ScriptProcess, from_json
from . import names
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session
from .completion import WORKFLOW
from .init import write
from .script_files import cases_beside, read_script
from .text import echo, echo_json, line, plain, say
from .wiring import unlock_secrets

DRAFTS = "drafts"  #: the folder beside keep.toml in which a draft is kept that did not pass

_READ = click.option(
    "--read", "may_read", metavar="CAPABILITY", multiple=True,
    help="Let drafts read this for real, such as gmail.search, and rehearse those that read nothing else.")


@click.command()
@click.argument("words", nargs=-1)
@click.option("--continue", "before", metavar="ID|FILE", help="Go on from this proposal, or from a kept draft.")
@_READ
@click.option("--write-prompts", is_flag=True, help="Write what the model is told into prompts/, to be changed.")
@with_json
@with_session
def plan(
    session: CommandSession, words: Sequence[str], before: str | None, may_read: Sequence[str], write_prompts: bool,
    as_json: bool,
) -> None:
    """Have a model write an automation from your words.

    The model of [model] in keep.toml writes a script and its cases. Keep checks it, runs the cases, tries it with
    everything that can go wrong, and says what is wrong, until nothing is. Then it is a proposal: it does nothing
    before you accept it. If the budget is used up first, the best draft is kept in drafts/, and the exit code is 3.

    Nothing outside is read or sent, except what --read names.
    """
    if write_prompts:
        _write_prompts(session, as_json)
        return
    told = " ".join(words).strip()
    if not told:
        raise click.UsageError('Say what should happen: keep plan "file every invoice that comes by mail".')
    settings = _settings(session)
    draft = _before(session, before) if before else None
    done = asyncio.run(_planned(session, settings, told, draft, frozenset(may_read)))
    sys.exit(_told(settings, done, as_json, "proposal"))


@click.command()
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@click.argument("words", nargs=-1)
@_READ
@with_json
@with_session
def repair(
    session: CommandSession, workflow: str, words: Sequence[str], may_read: Sequence[str], as_json: bool,
) -> None:
    """Have a model mend the script of a workflow whose run failed.

    The model gets the evidence and the script. What it writes is checked, tried, and offered as `keep fix` does: it
    keeps the topics, the messageIds and the handler, uses nothing more than before, and waits for you. WORDS are what
    you want to add. With repair = "model" in keep.toml a host asks by itself.
    """
    settings = _settings(session)
    with session.look() as look:
        row = names.workflow(look, workflow)
    done = asyncio.run(_mended(session, settings, row, " ".join(words).strip(), frozenset(may_read)))
    sys.exit(_told(settings, done, as_json, "repair"))


# -- the loop, with what this process can do --------------------------------------------------------


@dataclass(frozen=True)
class _Desk:
    """What the loop needs of this process: it acts through the running host, or as the host for one act."""

    session: CommandSession
    settings: Settings
    principal: Principal  # the planner, or the maintainer

    async def act(self, name: str, **params: Any) -> Any:
        """An act, in a thread: it waits for the host."""
        return await asyncio.to_thread(ask_host, self.session, name, model=self.principal, **params)

    async def certify(self, source: str, cases: str | None, script: str) -> Certification:
        """By the running host, which then keeps the certificate; without one, here."""
        if control.is_running(self.settings.ledger):
            return from_json(await asyncio.to_thread(
                control.ask, self.settings.ledger, "certify", {"source": source, "cases": cases, "script": script},
                SECONDS_MAX, None, self.principal))
        process = ScriptProcess.of(self.settings)
        assert process is not None, "a plan needs a keep.toml"
        done = await process.certify(source, cases, script)
        if done.passed:
            async with new_host(self.settings, works=False) as keep:
                await keep.acting_as(self.principal).keep_certificate(source, cases, done)
        return done

    def plans(self) -> PlanDesk:
        """The loop's maker."""
        return PlanDesk(self.settings, self.certify, _say)


async def _planned(
    session: CommandSession, settings: Settings, words: str, before: ScriptDraft | None, may_read: frozenset[str],
) -> PlanResult:
    desk = _Desk(session, settings, PLANNER)
    taken = {str(each["name"]): str(each["id"]) for each in _workflows(session)}

    async def offer(draft: ScriptDraft, work: dict[str, Json]) -> str:
        made = await desk.act(
            "propose", source=draft.source, cases=draft.cases, grants=loop.trials.grants_of(draft), why=draft.why,
            workflow_id=taken.get(draft.name), work=work)
        return str(made["id"])

    loop = desk.plans().loop(offer, may_read=may_read, taken=frozenset(taken) - {before.name if before else ""})
    return await loop.plan(words, before)


async def _mended(
    session: CommandSession, settings: Settings, workflow: Any, words: str, may_read: frozenset[str],
) -> PlanResult:
    desk, wf = _Desk(session, settings, MAINTAINER), str(workflow["id"])
    evidence = await desk.act("evidence", wf=wf)

    async def offer(draft: ScriptDraft, work: dict[str, Json]) -> str:
        return str(await desk.act("fix", wf=wf, source=draft.source, note=draft.why))

    loop = desk.plans().loop(offer, may_read=may_read, mends=str(workflow["name"]))
    return await loop.mend(evidence, cases_of(settings, str(workflow["name"])), words)


def _settings(session: CommandSession) -> Settings:
    settings = session.settings(connectors=True)
    if settings.model is None:
        raise ConfigError(NO_MODEL)
    if closed := unlock_secrets(settings):
        say(closed)
    return settings


def _workflows(session: CommandSession) -> list[Any]:
    try:
        with session.look() as look:
            return list(look.read.all("workflow_all"))
    except KeepError:
        return []  # there is no ledger yet


def _before(session: CommandSession, named: str) -> ScriptDraft:
    """The proposal, or the kept draft, to go on from."""
    file = Path(named)
    if file.is_file():
        cases = cases_beside(file)
        return ScriptDraft(read_script(named), read_script(str(cases)) if cases else None)
    with session.look() as look:
        made = look.views.proposal(names.thing(look, named, ("proposal",))[1])
    return ScriptDraft(made.source, made.cases)


def _say(news: PlanNews) -> None:
    used = f"  ({news.used})" if news.used else ""
    say(f"attempt {news.attempt} of {news.attempts_max}: {line(news.words)}{used}")


# -- what came of it ----------------------------------------------------------------------------------


def _told(settings: Settings, done: PlanResult, as_json: bool, what: str) -> int:
    """Say it; gives the exit code."""
    kept = _keep_draft(settings, done) if done.offered is None and done.draft is not None else None
    if as_json:
        echo_json({"id": done.offered, "ended": done.ended, "draft": str(kept) if kept else None,
                   "fault": done.fault.to_json() if done.fault else None, "used": done.work["used"]})
    elif done.offered is not None:
        echo(*_offered(done.offered, done.draft, what))
    else:
        echo(f"No {what} was made: {plain(done.ended.rstrip('.'))}.")
        echo(*([f"  last found   {done.fault.step}: {plain(done.fault.words)}"] if done.fault else []))
        echo(*([f"  best draft   {plain(str(kept))}, with its cases and what was found",
                f"  go on        keep plan --continue {plain(str(kept))} \"…\""] if kept else []))
    return 0 if done.offered is not None else 3 if done.draft is not None else 1


def _offered(id: str, draft: ScriptDraft | None, what: str) -> list[str]:
    lines = [f"The {what} {id} waits for you. Nothing runs before you accept it."]
    lines += [f"  it says      {line(draft.why)}"] if draft and draft.why else []
    if what == "repair":
        return [*lines, f"  look         keep show {id}", f"  accept it    keep approve {id}"]
    return [*lines, f"  look         keep proposals {id}", f"  accept it    keep accept {id}",
            f'  change it    keep plan --continue {id} "also …"']


def _keep_draft(settings: Settings, done: PlanResult) -> Path:
    """Keep the best draft where nothing deploys it; gives the file of its script."""
    assert settings.file is not None
    assert done.draft is not None
    folder = settings.file.parent / DRAFTS
    folder.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", done.draft.name)[:60].strip("-") or "draft"
    file = folder / f"{name}.js"
    write(file, done.draft.source)
    if done.draft.cases is not None:
        write(folder / f"{name}.test.toml", done.draft.cases)
    found = done.fault.to_json() if done.fault else None
    write(folder / f"{name}.json", json.dumps({"found": found, **done.work}, ensure_ascii=False, indent=1))
    return file


def _write_prompts(session: CommandSession, as_json: bool) -> None:
    """The prompts as Keep brings them, where they are not there yet."""
    file = session.settings().file
    folder = (file.parent if file else Path()) / prompts.FOLDER
    folder.mkdir(exist_ok=True)
    made = [folder / name for name in prompts.PLACES if not (folder / name).exists()]
    for each in made:
        write(each, prompts.packaged(each.name))
    if as_json:
        echo_json({"files": [str(each) for each in made]})
    else:
        echo(f"Made {', '.join(map(str, made))}." if made else f"{folder} has all of them already.",
             "A file there counts instead of Keep's own; remove it, and Keep's counts again.")
