"""`keep check`, `keep deploy` and `keep fix`: from a file to findings, or to an active version."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ...connectors.base import surface
from ...engine.deploy import Grants
from ...model.errors import Finding, ScriptInvalid
from ...model.operations import Surface
from ...reading.verdict_words import fate_groups, not_tried
from ...reading.wording import count
from ...script.check import check as check_script
from ...testing.rehearsal import Rehearsal, UnsentMutation
from ...testing.rehearsal import rehearse as tried
from . import names
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session
from .completion import WORKFLOW
from .script_files import cases_of, finding_line, read_script, say_refused
from .text import echo, echo_json, exact, field, plain, say
from .wiring import unlock_secrets

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.command()
@click.argument("files", metavar="[FILE…]", nargs=-1, type=_FILE)
@with_json
@with_session
def check(session: CommandSession, files: Sequence[str], as_json: bool) -> None:
    """Find mistakes in scripts without running anything.

    Without FILE it is every *.js here. With a keep.toml, calls of connectors are judged too. Exit code 3 if there are
    errors.
    """
    surface, by_id = _surface(session)
    files = files or _here(configured=surface is not None)
    checked = {file: check_script(read_script(file), surface, mutate_reads=by_id) for file in files}
    findings = [(file, finding) for file in files for finding in checked[file].findings]
    errors = sum(len(each.errors) for each in checked.values())
    if as_json:
        echo_json([{"file": file, **vars(finding)} for file, finding in findings])
    else:
        echo(*(finding_line(file, finding) for file, finding in findings))
        warnings = len(findings) - errors
        if files:
            say(f"{count(len(files), 'file')}: {count(errors, 'error')}, {count(warnings, 'warning')}")
        if surface is None:
            say("Without a keep.toml no connector is known, so calls such as ctx.gmail.search were not judged.")
    sys.exit(3 if errors else 0)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--grant", "grants", multiple=True, metavar="all|CAPABILITY[=MODE]",
              help="Allow what the script asks for: all of it, or single capabilities; modes: allow, ask, deny. "
                   "A single one counts more than all.")
@click.option("--strand", is_flag=True, help="Deploy even if events wait in topics that nobody takes any more.")
@click.option("--dry-run", is_flag=True,
              help="Deploy nothing: show what the script would do now, with real reads and nothing sent.")
@click.option("--verdict", "foreseen", is_flag=True,
              help="Deploy nothing: show what becomes of everything that is open.")
@click.option("--rehearse", "reads", is_flag=True, help="With --verdict: try also what reads, with real reads.")
@with_json
@with_session
def deploy(
    session: CommandSession, file: str, grants: Sequence[str], strand: bool, dry_run: bool, foreseen: bool,
    reads: bool, as_json: bool,
) -> None:
    """Store a script and make it the active version. Runs nothing.

    A script with the name of a workflow that exists is a new version of it. The workflow gets what keep.toml grants it,
    unless a person has granted otherwise by hand, or does so now with --grant.

    With --dry-run the script runs on a copy of the ledger that is thrown away: it reads for real, every mutation is
    shown and none is sent. Each mutation gives a made-up result of its type, and the script goes on with that.
    Everything after such a result is marked. Exit code 1 if it would stop.

    With --verdict it is said of each open run, waiting event, question and item what the new version does to it. What
    the new version can take is tried on a copy, with nothing sent; what reads is tried only with --rehearse. Exit code
    1 if the deploy would be refused, because events would be left that nobody takes.
    """
    wanted = _grants(grants)
    if dry_run and foreseen:
        raise click.UsageError("--dry-run and --verdict are two questions. Ask one after the other.")
    if dry_run:
        sys.exit(rehearse(session, file, wanted, strand, as_json))
    if foreseen:
        sys.exit(foresee(session, file, wanted, strand, reads, as_json))
    try:
        configured = dict(session.settings().grants)
        done = ask_host(
            session, "deploy", source=read_script(file), grants=wanted, strand=strand, configured=configured,
            cases=cases_of(file))
    except ScriptInvalid as error:
        say_refused(file, error, as_json)
        sys.exit(3)
    if as_json:
        echo_json(done)
        return
    for finding in done["findings"]:
        say(finding_line(file, Finding(**finding)))
    echo(*deploy_lines(done))


@click.command()
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@click.argument("file", type=_FILE)
@click.option("--impact", type=click.Choice(["safe", "potentially_impactful"]),
              help="Whether you think that what was done before may be wrong. The card shows it.")
@click.option("--note", default="", help="What was wrong, for people who look at it later.")
@with_json
@with_session
def fix(session: CommandSession, workflow: str, file: str, impact: str | None, note: str, as_json: bool) -> None:
    """Offer a repair for the run that failed.

    It must keep the topics, the messageIds and the handler, use nothing more than before, and be within the budget.
    Then it is tried on recorded runs. If these show that it changes nothing else, it becomes a new minor version by
    itself, and the failed run goes on with it. If not, it waits for `keep approve`, and `keep todo` says why.
    """
    with session.look() as look:
        wf = str(names.workflow(look, workflow)["id"])
    try:
        done = ask_host(session, "fix", wf=wf, source=read_script(file), impact=impact, note=note)
    except ScriptInvalid as error:
        say_refused(file, error, as_json)
        sys.exit(3)
    if as_json:
        echo_json({"repair": done, "workflow_id": wf})
        return
    with session.look() as look:
        kept = look.read.one("repair_by_id", repair_id=done)
    live = kept is not None and kept["status"] == "deployed"
    echo(f"The repair {done} is live: recorded runs show that it changes nothing else." if live else
         f"The repair {done} waits for a person. `keep todo` shows it; `keep approve {done}` activates it.")


def deploy_lines(done: dict[str, Any]) -> list[str]:
    """What a deploy did, and what is still to be granted."""
    name = plain(done["name"])
    word = "deployed" if done["changed"] else "is deployed already: the script has not changed"
    lines = [f"{name} {done['version']} {word}  ({done['workflow_id']})"]
    allowed = [each for each in done["capabilities"] if each not in (*done["not_granted"], *done["must_ask"])]
    lines += [f"  certificate  {plain(done['certificate']['words'])}"] if done["certificate"] else []
    lines += [f"  may use      {', '.join(allowed)}"] if allowed else []
    lines += [f"  must ask     {', '.join(done['must_ask'])}"] if done["must_ask"] else []
    lines += [f"  keep.toml    {plain(each)}" for each in done["configured"]]
    lines += [f"  by hand      {plain(each)}, which is not used: keep grant changes it" for each in done["overruled"]]
    if done["before"] and done["new_capabilities"]:
        lines.append(f"  new since {done['before']}: {', '.join(done['new_capabilities'])}")
    lines += [f"  not granted  {', '.join(done['not_granted'])}"] if done["not_granted"] else []
    lines += [f"  type         keep grant {name} {each}" for each in done["not_granted"]]
    return [*lines, *(verdict_lines(done["verdict"]) if done["verdict"] else ())]


def verdict_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    """What becomes of everything that is open, a group of things with one fate after the other."""
    for each in fate_groups(verdict["things"]):
        yield f"  {each.label}: {each.noun}. {plain(each.words)}"
        for id, title, came in each.named:
            yield from field("", f"{id}  {title}{': ' if came else ''}{came}")
        yield from field("", f"… {each.more} more" if each.more else "")
    yield from field("not named", count(verdict["more"], "thing") if verdict["more"] else "")
    yield from field("not tried", not_tried(verdict))
    yield from field("refused", verdict["refused"])


def foresee(session: CommandSession, file: str, grants: Grants, strand: bool, reads: bool, as_json: bool) -> int:
    """Show what a deploy would do to everything that is open; gives the exit code."""
    try:
        verdict = ask_host(
            session, "verdict", source=read_script(file), grants=grants, cases=cases_of(file), rehearse=reads,
            configured=dict(session.settings().grants))
    except ScriptInvalid as error:
        say_refused(file, error, as_json)
        return 3
    if as_json:
        echo_json(verdict)
    else:
        echo(_foreseen(verdict), *verdict_lines(verdict))
        say("Nothing was deployed, nothing was sent, nothing was stored.")
    return 1 if verdict["refused"] and not strand else 0


def _foreseen(verdict: Mapping[str, Any]) -> str:
    name = f"{plain(verdict['name'])} {verdict['version']}"
    if verdict["workflow_id"] is None:
        return f"{name} would be a new workflow: nothing of it is open."
    if not verdict["changed"]:
        return f"{name} is deployed already: the script has not changed."
    return f"{name} would be deployed." if verdict["things"] else f"{name} would be deployed. Nothing is open."


def _here(configured: bool) -> list[str]:
    found = sorted(str(path) for path in Path().glob("*.js"))
    if not found and configured:
        say("keep.toml is fine. There is no *.js file here.")
    elif not found:
        raise click.UsageError("There is no *.js file here. Name a FILE, or make a first one with `keep init`.")
    return found


def _surface(session: CommandSession) -> tuple[Surface | None, bool]:
    """What scripts may call here, and whether policy lets mutate read; without a keep.toml nobody knows."""
    settings = session.settings(connectors=True)
    if settings.file is None:
        return None, settings.policy.mutate_reads == "by_id"
    return surface(settings.connectors), settings.policy.mutate_reads == "by_id"


def _grants(texts: Sequence[str]) -> dict[str, str] | None:
    if not texts:
        return None
    return {capability: mode or "allow" for capability, _, mode in (text.partition("=") for text in texts)}


# -- deploy --dry-run ---------------------------------------------------------------------------------


_GRANTS = {
    "allow": "it may do this", "ask": "it would ask you first", "deny": "it may not: it would stop here",
    None: "not granted: it would stop here",
}


def rehearse(session: CommandSession, file: str, grants: Grants, strand: bool, as_json: bool) -> int:
    """Show what a script would do; gives the exit code."""
    settings = session.settings(connectors=True)
    unlock_secrets(settings)
    source = read_script(file)
    try:
        done = asyncio.run(tried(
            settings.ledger, source, grants, settings.connectors, settings.policy, strand, settings.grants,
        ))
    except ScriptInvalid as error:
        say_refused(file, error, as_json)
        return 3
    if as_json:
        echo_json({"dry_run": True, **done.to_json(), "deployment": done.deployment.to_json()})
    else:
        for finding in done.deployment.findings:
            say(finding_line(file, finding))
        echo(*_told(done))
        say("Nothing was deployed, nothing was sent, nothing was stored.")
    return 1 if done.stops else 0


def _told(done: Rehearsal) -> Iterator[str]:
    deployment = done.deployment
    yield f"{plain(deployment.name)} {deployment.version} would be deployed."
    yield from field("asks for", ", ".join(deployment.capabilities))
    new = ", ".join(deployment.new_capabilities) if deployment.before else ""
    yield from field(f"new since {deployment.before}", new)
    yield from field("not granted", ", ".join(deployment.not_granted))
    yield from field("keep.toml", *deployment.configured)
    yield from field("by hand", *(f"{each}, which is not used" for each in deployment.overruled))
    yield from field("came in", *(each.title for each in done.inputs))
    yield f"It would make {count(len(done.mutations), 'mutation')}." if done.mutations else (
        "It would make no mutation now.")
    for held in done.mutations:
        yield from _held(held)
    if done.more:
        yield "The rehearsal ended here, after many mutations or much time. For real it would go on."
    for stop in done.stops:
        yield click.style(f"It would stop: {plain(stop.kind)}: {plain(stop.why)}", fg="red")


def _held(held: UnsentMutation) -> Iterator[str]:
    yield f"{plain(held.handler)} → {held.connector}.{held.operation}"
    yield from field("title", f"{held.title} (the script's word)" if held.title else "")
    yield from exact("preview", held.preview)
    yield from field("comes after", "an assumed result, and may look different for real" if held.assumed else "")
    yield from field("assumed", f"it gives {json.dumps(held.result, ensure_ascii=False)}")
    yield from field("grant", _GRANTS[held.grant])
