"""`keep show`: everything that is known of one thing, with the history of its moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import click

from ...ledger.base import Row
from ...ledger.rows import approval_record, mutation_record, run_record
from ...model.clock import SystemClock, iso, parse_iso
from ...model.errors import ConfigError
from ...reading.look import Look
from ...reading.wording import ago, clock
from ...reading.workflow_details import versions
from . import names
from .command_session import CommandSession, with_json, with_session
from .completion import ANYTHING
from .logs import log_lines
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
        data = {"what": kind, **_SHOWN[kind](look, whole), "shown": shown}
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
        **record.to_json(), "blocked": stop.to_json() if stop else None, "grants": grants, "versions": versions,
        "history": _history(look, id, id), "acts": _acts(look, id),
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


def _run(look: Look, id: str) -> Data:
    run = look.views.run(id)
    where = {"workflow_id": run.workflow_id, "run_id": id}
    sent = [mutation_record(row).to_json() for row in look.read.all("look_mutations_of_run", **where)]
    worked = [{**{name: row[name] for name in ("id", "external_id", "title", "status")},
               "attempt": row["worked_attempt"]} for row in look.read.all("look_items_of_run", **where)]
    one = run.kind != "routine"
    return {
        **run.to_json(), "reserved": [r["event_id"] for r in look.read.all("reservation_of_run", **where)],
        "mutation": sent[-1] if one and sent else None, "items": worked, "outputs": [] if one else sent,
        "trace": [{**t.to_json(), "at": iso(t.at), "told": log_lines(t)} for t in look.views.trace(id)],
        "history": _history(look, run.workflow_id, id), "acts": _acts(look, run.workflow_id, id),
    }


def _item(look: Look, id: str) -> Data:
    item, row = look.views.item(id), look.read.one("look_item", item_id=id)
    assert row is not None, "it was just found"
    runs = look.read.all("look_runs_of_item", workflow_id=item.workflow_id, item_id=id)
    sent = look.read.all("look_mutations_of_item", item_id=id)
    return {
        **item.to_json(), "held_by": row["held_by"], "runs": _processed(runs),
        "outputs": [mutation_record(each).to_json() for each in sent],
        "history": _history(look, item.workflow_id, id), "acts": _acts(look, item.workflow_id, id, item.input_id),
    }


def _processed(rows: list[Row]) -> list[Data]:
    """The runs that took an event or worked on an item, each with the attempt that it processed."""
    found = [(run_record(row), row["processed_attempt"]) for row in rows]
    return [{"id": r.id, "status": r.status, "version": r.version, "attempt": attempt} for r, attempt in found]


def _input(look: Look, id: str) -> Data:
    found = look.views.input(id)
    return {
        **found.to_json(), "history": _history(look, found.workflow_id, id),
        "acts": _acts(look, found.workflow_id, id),
    }


def _event(look: Look, id: str) -> Data:
    event = look.views.event(id)
    return {
        **event.to_json(), "causes": [look.views.input(each).title for each in event.caused_by],
        "runs": _processed(look.read.all("look_runs_of_event", workflow_id=event.workflow_id, event_id=id)),
        "history": _history(look, event.workflow_id, id), "acts": _acts(look, event.workflow_id, id),
    }


def _mutation(look: Look, id: str) -> Data:
    mutation = look.views.mutation(id)
    causes = [r["input_id"] for r in look.read.all("look_inputs_of_mutation", mutation_id=id)]
    return {
        **mutation.to_json(),
        "inputs": [{"id": each, "title": look.views.input(each).title} for each in causes],
        "history": _history(look, mutation.workflow_id, id), "acts": _acts(look, mutation.workflow_id, id),
    }


def _approval(look: Look, id: str) -> Data:
    row = look.read.one("approval_by_id", approval_id=id)
    assert row is not None, "it was just found"
    return {
        **approval_record(row).to_json(), "history": _history(look, row["workflow_id"], id),
        "acts": _acts(look, row["workflow_id"], id),
    }


_SHOWN: Mapping[str, Callable[[Look, str], Data]] = {
    "workflow": _workflow, "run": _run, "input": _input, "event": _event, "mutation": _mutation,
    "item": _item, "approval": _approval,
}


def _history(look: Look, workflow_id: str, subject: str) -> list[Data]:
    rows = look.views.history(workflow_id, subject)
    return [{"machine": r["machine"], "from": r["source"], "to": r["target"], "at": iso(r["at"]), "why": r["why"],
             "actor": r["actor"]} for r in rows]


def _acts(look: Look, workflow_id: str, *subjects: str) -> list[Data]:
    rows = look.read.all("action_all", workflow_id=workflow_id)
    return [{"act": row["act"], "subject": row["subject"], "actor": row["actor"], "at": iso(row["at"]),
             "detail": json.loads(row["detail"])} for row in rows if not subjects or row["subject"] in subjects]


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
