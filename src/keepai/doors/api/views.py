"""What can be looked at over the API: a table of methods of `Keep`, each with its path, parameters and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...model import records
from ...model.acts import Param
from ...reading.explain import Explanation
from ...reading.views import EVENT_STATUSES, INPUT_STATUSES

ROWS_USUAL, ROWS_MAX = 100, 1_000


@dataclass(frozen=True)
class ApiView:
    """One look: `path` names the parameters that are parts of it, `params` those that follow it."""

    path: str
    gives: type | None  # the record; None: any JSON
    help: str
    lists: bool = False
    pages: bool = False  # takes `limit` and `after`, and gives a cursor
    params: Mapping[str, Param] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_TEXT = Param((str,))

#: Method of `Keep` → how it is asked for.
VIEWS: Mapping[str, ApiView] = MappingProxyType({
    "workflows": ApiView("/workflows", records.Workflow, "Every workflow and how it stands.", lists=True),
    "inputs": ApiView(
        "/workflows/{wf}/inputs", records.Input, "What came in, oldest first.", lists=True, pages=True,
        params={"status": _TEXT, "search": _TEXT}, choices={"status": INPUT_STATUSES}),
    "outputs": ApiView(
        "/workflows/{wf}/outputs", records.Output, "What went out, each with the inputs behind it.", lists=True,
        pages=True),
    "events": ApiView(
        "/workflows/{wf}/events", records.Event, "Events, in the order in which they came.", lists=True, pages=True,
        params={"topic": _TEXT, "status": _TEXT}, choices={"status": EVENT_STATUSES}),
    "runs": ApiView("/workflows/{wf}/runs", records.Run, "Every attempt at every handler.", lists=True, pages=True),
    "mutations": ApiView("/workflows/{wf}/mutations", records.Mutation, "Every side effect.", lists=True, pages=True),
    "items": ApiView(
        "/workflows/{wf}/items", records.Item, "The units of the routines’ work.", lists=True, pages=True),
    "state": ApiView("/workflows/{wf}/handlers/{handler}/state", None, "The durable state of a handler."),
    "input": ApiView("/inputs/{id}", records.Input, "One input, with its outputs and events."),
    "event": ApiView("/events/{id}", records.Event, "One event, with the payloads that came too late for it."),
    "run": ApiView("/runs/{id}", records.Run, "One run."),
    "explain": ApiView("/explain/{id}", Explanation, "Why anything stands where it stands, and what can move it."),
    "needs_you": ApiView(
        "/questions", records.Escalation, "The questions that only a person can answer.", lists=True,
        params={"wf": _TEXT}),
    "version": ApiView(
        "/version", None, "The version of everything: ask for it, then look, then give it to an act as `shown`."),
})
