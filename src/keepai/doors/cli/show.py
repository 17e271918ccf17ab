"""`keep show`: everything that is known of one thing, with the history of its moves."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import click

from ...model.clock import SystemClock, parse_iso
from ...model.errors import ConfigError
from ...reading.look import Look
from ...reading.whole_thing import acts_on, history_of, whole_thing
from ...reading.wording import ago, clock
from ...reading.workflow_details import versions
from . import names
from .command_session import CommandSession, with_json, with_session
from .completion import ANYTHING
from .status import stopped
from .text import echo, echo_json, line, paint, plain

Data = dict[str, Any]
_KINDS = ("run", "input", "event", "item", "mutation", "approval")


@click.command()
@click.argument("id", metavar="ID", type=ANYTHING)
@with_json
@with_session
def show(session: CommandSession, id: str, as_json: bool) -> None:
    """Everything about one thing, by its id or the beginning of it.

    ID is that of a run, an input, an event, an item, a mutation, an approval or a workflow.
    """
    with session.look() as look:
        if id[:4] in names.KINDS:
            kind, whole = names.thing(look, id, _KINDS)
        else:
            kind, whole = "workflow", str(names.workflow(look, id)["id"])
        shown = look.views.version()
        found = _workflow(look, whole) if kind == "workflow" else whole_thing(look.read, look.views, whole)
        data = {**found, "shown": shown}
        if kind == "workflow" and session.settings().policy.certified != "off":
            data["certificate"] = _certificate(session, look, whole)
    if as_json:
        echo_json(data)
    else:
        echo(*_lines(data))


def _workflow(look: Look, id: str) -> Data:
    record = next(w for w in look.views.workflows(look.now_ms) if w.id == id)
    stop = stopped(look, id, record.name)
    grants = {r["capability"]: r["mode"] for r in look.read.all("grant_all", workflow_id=id)}
    versions = [f"{r['major']}.{r['minor']}" for r in look.read.all("script_all", workflow_id=id)]
    return {
        "what": "workflow", **record.to_json(), "blocked": stop.to_json() if stop else None, "grants": grants,
        "versions": versions,
        "history": history_of(look.views, id, id), "acts": acts_on(look.read, id),
    }


def _certificate(session: CommandSession, look: Look, id: str) -> str:
    """How the active version stands, compared with the connectors that keep.toml has now."""
    connectors = None
    with suppress(ConfigError):
        settings = session.settings(connectors=True)
        connectors = {each.name: each for each in settings.connectors} if settings.file else None
    row = look.read.one("workflow_by_id", workflow_id=id)
    assert row is not None, "it was just found"
    return next(v.certificate.words for v in versions(look.read, row, connectors) if v.active)


# -- as text ---------------------------------------------------------------------------------------


def _lines(data: Data) -> list[str]:
    lines = [f"{data['what']} {data['id']}"]
    lists = ("history", "trace", "acts", "outputs", "events", "inputs", "items", "runs", "gaps", "held")
    for name, value in data.items():
        if name not in ("what", "id", *lists) and value not in (None, [], {}, ""):
            lines += _field(name, value)
    lines += _section("worked on", [f"{i['id']}  {i['status']}  {i['title']}" for i in data.get("items") or []])
    runs = [f"{r['id']}  {r['status']}  {r['version']}  attempt {r['attempt']}" for r in data.get("runs") or []]
    lines += _section("processed by" if data["what"] == "event" else "worked on by", runs)
    lines += _section("came of it", [_of_mutation(m) for m in data.get("outputs") or []])
    lines += _section("events", [f"{e['id']}  {e['topic']}  {e['status']}" for e in data.get("events") or []])
    held = [(each, "no longer kept" if each["pruned"] else json.dumps(each["payload"], ensure_ascii=False))
            for each in data.get("held") or []]
    lines += _section("came too late", [
        f"{each['event_id']}  revision {each['revision']}, not processed  {payload}" for each, payload in held])
    lines += _section("caused by", [f"{i['id']}  {i['title']}" for i in data.get("inputs") or []])
    lines += _section("trace", [f"{_time(t['at'])} {t['step']} {t['told']}" for t in data.get("trace") or []])
    lines += _section("history", [
        f"{_time(h['at'])} {h['machine']}: {h['from'] + ' → ' if h['from'] else ''}{h['to']}" for h in data["history"]])
    acts = [f"{_time(a['at'])} {a['actor']}: {a['act']} {a['subject']}" for a in data.get("acts") or []]
    return lines + _section("acts of people", acts)


def _field(name: str, value: Any) -> list[str]:
    if name == "error" and isinstance(value, dict):
        place = f" (line {value['line']}, in {value['step']})" if value.get("line") else ""
        return _folded("error", f"{value['code']}: {value['message']}{place}")
    if name == "mutation":
        return _folded("mutation", _of_mutation(value))
    if isinstance(value, dict | list):
        return _folded(name, json.dumps(value, ensure_ascii=False))
    return _folded(name, str(value))


def _folded(name: str, text: str) -> list[str]:
    first, *rest = plain(text).split("\n")
    label = name.replace("_", " ")
    return [f"  {label:<18} {paint(first)}"] + [f"  {'':<18} {each}" for each in rest]


def _section(title: str, entries: list[str]) -> list[str]:
    return [f"  {title}", *(f"    {line(entry)}" for entry in entries)] if entries else []


def _of_mutation(mutation: Data) -> str:
    title = line(mutation["preview"]) if mutation["item_id"] else mutation["title"] or line(mutation["preview"])
    return f"{mutation['id']}  {mutation['status']}  {title}"


def _time(at: str) -> str:
    then = parse_iso(at)
    old = f" ({ago(then, SystemClock().now_ms())})" if SystemClock().now_ms() - then > _DAY_MS else ""
    return f"{clock(then)}.{then % 1000:03}{old}"


_DAY_MS = 86_400_000
