"""`keep deploy --dry-run`: what a script would do, shown and not done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import click

from ...engine.deploy import Grants
from ...model.errors import ScriptInvalid
from ...reading.wording import count
from ...testing.rehearsal import Rehearsal, UnsentMutation
from ...testing.rehearsal import rehearse as tried
from .command_session import CommandSession
from .script_files import finding_line, read_script, say_refused
from .text import echo, echo_json, exact, field, plain, say
from .wiring import unlock_secrets

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
            settings.path, source, grants, settings.connectors, settings.policy, strand, settings.grants,
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
