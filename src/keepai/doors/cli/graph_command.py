"""`keep graph`: who publishes what to whom, as text, as a picture, or as Mermaid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ...engine.next_step import manifest_of
from ...model.errors import ScriptInvalid
from ...reading.graph_svg import svg
from ...reading.wording import count
from ...reading.workflow_details import graph_captions, parked_of, schedule_text
from ...reading.workflow_details import waiting as events_waiting
from ...script.check import check
from ...script.manifest import Manifest
from ...script.topic_graph import as_mermaid
from ...script.topic_graph import graph as made
from . import names
from .command_session import CommandSession, with_json, with_session
from .completion import WORKFLOW
from .script_files import read_script, say_refused
from .text import echo, echo_json, plain, table


@click.command()
@click.argument("what", metavar="[WORKFLOW|FILE]", type=WORKFLOW, required=False)
@click.option("--svg", "form", flag_value="svg", help="As an SVG picture.")
@click.option("--mermaid", "form", flag_value="mermaid", help="As a Mermaid flowchart.")
@with_json
@with_session
def graph(session: CommandSession, what: str | None, form: str | None, as_json: bool) -> None:
    """Who publishes to which topic, and who takes from it.

    Of a FILE it is what the script declares; of a deployed WORKFLOW also how many events wait in each topic.
    """
    if what and what.endswith(".js") and not Path(what).exists():
        raise click.BadParameter(f"there is no file {what}.", param_hint="WORKFLOW|FILE")
    if what and (what == "-" or Path(what).is_file()):
        manifest, waiting, parked = _of_file(what), dict[str, int](), Counter[str]()
    else:
        with session.look() as look:
            row = names.workflow(look, what)
            manifest, waiting = manifest_of(look.read, row), events_waiting(look.read, row)
            parked = parked_of(look.read, row)
    if as_json:
        echo_json(_data(manifest, waiting, parked))
    elif form:
        drawn = made(manifest)
        picture = as_mermaid(drawn) if form == "mermaid" else svg(
            drawn, graph_captions(drawn, waiting, parked=parked))
        click.echo(picture, nl=False)
    else:
        echo(*_lines(manifest, waiting, parked))


def _of_file(file: str) -> Manifest:
    checked = check(read_script(file))
    if checked.manifest is None:
        say_refused(file, ScriptInvalid(checked.findings), False)
        raise SystemExit(3)
    return checked.manifest


def _data(manifest: Manifest, waiting: dict[str, int], parked: Mapping[str, int]) -> dict[str, Any]:
    handlers = [{"name": h.name, "kind": h.kind.value, "subscribe": list(h.subscribe),
                 "publishes": None if h.publishes is None else list(h.publishes), "schedule": schedule_text(h) or None,
                 "parked": parked.get(h.name, 0)}
                for h in manifest.handlers]
    topics = [{"name": t, "subscriber": s.name if (s := manifest.subscriber(t)) else None, "waiting": waiting.get(t, 0)}
              for t in manifest.topics]
    return {"workflow": manifest.name, "handlers": handlers, "topics": topics}


def _lines(manifest: Manifest, waiting: dict[str, int], parked: Mapping[str, int]) -> Iterator[str]:
    yield plain(manifest.name)
    rows = [(h.name, h.kind.value, schedule_text(h), ", ".join(h.subscribe) or "–",
             "any topic" if h.publishes is None else ", ".join(h.publishes) or "–") for h in manifest.handlers]
    yield from table(("HANDLER", "KIND", "WHEN", "TAKES", "PUBLISHES"), rows, 4)
    for topic in manifest.topics:
        if manifest.subscriber(topic) is None:
            yield f"Nobody takes events of {plain(topic)}: they are results."
        if waiting.get(topic):
            yield f"{count(waiting[topic], 'event')} {'waits' if waiting[topic] == 1 else 'wait'} in {plain(topic)}."
    for handler, number in parked.items():
        yield f"{count(number, 'run')} of {plain(handler)} {'is' if number == 1 else 'are'} parked."
