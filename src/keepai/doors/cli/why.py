"""`keep why`: why something is in its state, what can move it on, and what has happened to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ...model.clock import parse_iso
from ...model.ids import typed_name
from ...reading.look import Look
from ...reading.offered_acts import command, meaning, offered
from ...reading.shared_hosts import runs_on
from ...reading.wording import ago, count
from . import names
from .command_session import CommandSession, with_json, with_session
from .completion import ANYTHING
from .text import cells, echo, echo_json, exact, field, line, plain, short

Data = Mapping[str, Any]

_NOUNS = {"phase": "run", "status": "run", "reason": "run", "host": "run", "reconcile": "mutation", "revision": "event"}
_NAMED = ("reason", "host", "reconcile", "revision")  #: no states, so the line says what changed
_SELECTED = {"event": "caused by", "input": "led to", "item": "is also"}


@click.command()
@click.argument("id", metavar="ID", type=ANYTHING)
@with_json
@with_session
def why(session: CommandSession, id: str, as_json: bool) -> None:
    """Why something is in its state, and what would move it on.

    ID is that of a run, an input, an event, an item, a mutation, an approval, a question or a workflow, or
    the beginning of one.

    If a host is running, it first tries on a copy what you could do, with nothing sent, and offers only what leads on.
    """
    with session.look() as look:
        whole = _whole(look, id)
        told = session.told("explain", id=whole)
        data: Data = told if told is not None else look.views.explain(whole, look.now_ms).to_json()
        waits = any(step["acts"] for step in data["moved_by"])
        tried = session.told("remedies", id=whole) if told is not None and waits else None
        if as_json:
            echo_json({**data, "tried": tried})
        else:
            echo(*_lines(look, data, tried or ()))


def _whole(look: Look, typed: str) -> str:
    if typed.startswith("ask_"):
        rest = typed.removeprefix("ask_")
        typed = rest if rest[:4] in names.KINDS else f"run_{rest}"
    if typed[:4] in names.KINDS:
        return names.thing(look, typed, [kind for kind, *_ in names.KINDS.values()])[1]
    return str(names.workflow(look, typed)["id"])


def _lines(look: Look, data: Data, tried: Sequence[Data]) -> list[str]:
    name = str(names.workflow(look, data["workflow_id"])["name"])
    lines = [f"{data['kind']} {data['id']}  {plain(name)}"]
    lines += field("stands", str(data["standing"]))
    lines += field("because", str(data["because"]))
    lines += field("runs on", runs_on(look.read, data["workflow_id"]))
    selected = ((each, f", attempt {each['attempt']}" if each["attempt"] else "") for each in data["selected"])
    lines += field(_SELECTED.get(data["kind"], "selected"),
                   *(f"{each['kind']} {each['id']}: {each['title']}{attempt}" for each, attempt in selected))
    lines += field("processed", *(
        f"attempt {r['attempt']} by run {r['run_id']} ({r['handler']} {r['version']}): {r['status']}"
        for r in data["processed_by"]))
    lines += [each for attempt in data["attempted"] for each in _attempted(attempt)]
    lines += [each for held in data["held"] for each in _held(held)]
    lines += ["  moved by"]
    came = {(each["act"], each["subject"]): each for each in tried}
    lines += [each for step in data["moved_by"] for each in _step_ahead(look, step, name, data["workflow_id"], came)]
    return [*lines, *_story(data)]


def _held(held: Data) -> list[str]:
    """A payload that came too late to be processed."""
    payload = "no longer kept" if held["pruned"] else json.dumps(held["payload"], ensure_ascii=False)
    return [*field("came too late", f"revision {held['revision']} of {held['event_id']}, not processed"),
            *exact("", f"payload {payload}")]


def _attempted(attempt: Data) -> list[str]:
    called = attempt["title_by_script"]
    lines = exact("attempted", f"{attempt['preview']}")
    lines += field("", f"{attempt['status']}, {attempt['id']}" + (
        f", target {attempt['target']}" if attempt["target"] else ""))
    lines += field("", called and f"in the script's words: “{called}”")
    lines += exact("", f"params {json.dumps(attempt['params'], ensure_ascii=False)}")
    if attempt["result"] is not None:
        lines += exact("", f"result {json.dumps(attempt['result'], ensure_ascii=False)}")
    return lines


def _step_ahead(
    look: Look, step: Data, name: str, workflow_id: str, came: Mapping[tuple[str, str], Data],
) -> list[str]:
    """Who can move it, and what to type if that is a person; what was tried and leads nowhere is not offered."""
    lines = field(f"  {step['kind']}", f"{step['what']}{_due(look, step['due_at'])}")
    workflow = typed_name(name, workflow_id)
    tried = {act: came[act, step["subject"]] for act in step["acts"] if (act, step["subject"]) in came}
    acts = [act for act in offered(step["acts"]) if act not in tried or tried[act]["leads_on"] is not False]
    vain = [act for act in tried if tried[act]["leads_on"] is False]
    typed = [(act, command(act, step["subject"], workflow, step["capability"])) for act in acts]
    wide = max((len(text) for _, text in typed), default=0)
    told = [(text, click.style("# " + meaning(act).comes, dim=True)) for act, text in typed]
    for act, (text, comes) in zip(acts, told, strict=True):
        lines.append(f"{'':<15}{text:<{wide}}  {comes}")
        lines += field("", f"    {tried[act]['words']}" if act in tried else "")
    left_out = (f"not offered: {meaning(act).label or act}. {tried[act]['words'].capitalize()}" for act in vain)
    return lines + field("", *left_out)


def _due(look: Look, due: str | None) -> str:
    if due is None:
        return ""
    when = parse_iso(due)
    return f" ({due}, {'due now' if when <= look.now_ms else ago(when, look.now_ms)})"


def _story(data: Data) -> list[str]:
    """The moves in order; what another line of the same moment says as well is left out."""
    told = [t for t in data["story"] if (t["source"], t["machine"]) != (None, "status")
            and (t["target"], t["machine"]) != ("committed", "phase")]
    shown = short(t["subject"] for t in told)
    rows = [_told(each, shown[each["subject"]]) for each in told]
    wide = [max(map(cells, column), default=0) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:<{room}}" for cell, room in zip(row, wide, strict=True)).rstrip() for row in rows]
    left_out = [f"    … {count(data['untold'], 'earlier move')}"] if data["untold"] else []
    return ["  story", *left_out, *(f"    {each}" for each in lines)] if lines else []


def _told(told: Data, subject: str) -> tuple[str, str, str, str]:
    """When, what, from where to where, and why or by whom."""
    noun = _NOUNS.get(told["machine"], told["machine"])
    if noun == "act":
        about = told["subject"].partition(" ")[2] if told["target"] == "deploy" else f"{told['subject']} {told['why']}"
        return told["told_at"], "person", line(f"{told['by']}: {told['target']}"), line(about)
    moved = told["target"] if told["source"] is None else f"{told['source']} → {told['target']}"
    moved = f"{told['machine']} {moved}" if told["machine"] in _NAMED else moved
    by = f" (by {told['by']})" if told["by"] else ""
    return told["told_at"], f"{noun} {line(subject.partition('_')[2])}", line(moved), line(f"{told['why']}{by}")
