"""What can be looked at over the API: a table of methods of `Keep`, each with its path and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...reading.views import EVENT_STATUSES, INPUT_STATUSES

ROWS_USUAL, ROWS_MAX = 100, 1_000


@dataclass(frozen=True)
class ApiView:
    """One look. What it gives is what the method of `Keep` gives."""

    path: str  # with the parameters that are parts of it
    help: str
    params: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # those behind it, with their values, if fixed
    pages: bool = False  # takes `limit` and `after` too, and gives a cursor


#: Method of `Keep` → how it is asked for.
VIEWS: Mapping[str, ApiView] = MappingProxyType({
    "workflows": ApiView("/workflows", "Every workflow and how it stands."),
    "inputs": ApiView(
        "/workflows/{wf}/inputs", "What came in, oldest first.", {"status": INPUT_STATUSES, "search": ()}, pages=True),
    "outputs": ApiView(
        "/workflows/{wf}/outputs", "What went out, each with the inputs behind it, oldest first.", pages=True),
    "events": ApiView(
        "/workflows/{wf}/events", "Events, in the order in which they came.",
        {"topic": (), "status": EVENT_STATUSES}, pages=True),
    "runs": ApiView("/workflows/{wf}/runs", "Every attempt at every handler, oldest first.", pages=True),
    "mutations": ApiView("/workflows/{wf}/mutations", "Every side effect, oldest first.", pages=True),
    "items": ApiView("/workflows/{wf}/items", "The units of the routines’ work, oldest first.", pages=True),
    "state": ApiView("/workflows/{wf}/handlers/{handler}/state", "The durable state of a handler."),
    "evidence": ApiView(
        "/workflows/{wf}/evidence", "What is known about the run that failed by a fault of the script, for a repair."),
    "input": ApiView("/inputs/{id}", "One input, with its outputs and events."),
    "event": ApiView("/events/{id}", "One event, with the payloads that came too late for it."),
    "run": ApiView("/runs/{id}", "One run."),
    "explain": ApiView("/explain/{id}", "Why anything stands where it stands, and what can move it."),
    "remedies": ApiView(
        "/remedies/{id}", "What could be done about something that stands still, each act tried on a copy."),
    "needs_you": ApiView("/questions", "The questions that only a person can answer, oldest first.", {"wf": ()}),
    "proposals": ApiView("/proposals", "The scripts that were proposed, newest first.", {"wf": ()}),
    "version": ApiView(
        "/version", "The version of everything: ask for it, then look, then give it to an act as `shown`."),
})
