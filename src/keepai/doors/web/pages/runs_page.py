"""The runs of a workflow, and the page of one run: its steps in time, what it called, and why it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....ledger.rows import mutation_record, run_record
from ....model.codec import stored
from ....model.errors import KeepError
from ....model.principals import Role
from ....model.records import Run
from ....model.states import OPEN, Status
from ....reading import lists
from ....reading.code_colours import coloured
from ....reading.excerpt import excerpt
from ....reading.explain import Explanation
from ....reading.look import Look
from ....reading.offered_acts import CLASSES, meaning
from ....reading.reasons import TRIGGERS
from ....reading.waterfall import WIDTH, duration_text, ticks, waterfall
from ... import control
from ..cards import Card, cards, forms_of_steps, source_of
from ..filters import filters, paging
from ..site import NavLink, acting, page, session, show
from ..timeline import lines
from .lists_pages import of_one_or_all

LINKS = (NavLink("Runs", "/runs", order=40), NavLink("Runs", "/workflows/{wf}/runs", order=40))
THINGS = {"run_": "/runs/{id}"}

SHOWN_MAX = 50  #: inputs and items of one run
TRACED_MAX = 500  #: calls and lines of one run, the newest


def _runs(look: Look, request: Request) -> Mapping[str, Any]:
    wf, names = of_one_or_all(look, request)
    handlers = look.read.all("list_handlers", workflow_id=wf["id"]) if wf else []
    asked = filters(request, tuple(Status), tuple(str(row["handler"]) for row in handlers))
    listed = lists.runs(look.read, wf["id"] if wf else lists.ALL, asked.wanted(look.now_ms), asked.handler)
    return {
        "wf": wf, "names": names, "asked_for": asked, "listed": listed, "page": paging(request.url.path, asked, listed),
        "triggers": TRIGGERS, "lasting": duration_text,
    }


def _run(look: Look, request: Request) -> Mapping[str, Any]:
    run = look.views.run(request.path_params["id"])
    explained = look.views.explain(run.id, look.now_ms)
    return {
        "wf": look.views.workflow_row(run.workflow_id), "run": run, "explained": explained,
        "title": lists.title_of(run), "trigger": TRIGGERS.get(run.trigger, run.trigger),
        "lasted": None if run.state in OPEN else duration_text(run.updated_at - run.created_at),
        "story": lines(look.read, explained.story),
        **_stands(look, run, explained, session(request).principal.role), **_did(look, run), **_script(look, run),
    }


def _stands(look: Look, run: Run, explained: Explanation, role: Role | None) -> dict[str, Any]:
    """What lets it go on: the question that it puts, or what else a person of this role may do."""
    asked = [each for each in look.views.needs_you(look.now_ms, run.workflow_id) if each.run_id == run.id]
    found: list[Card] = cards(look, asked, role)
    answers = [] if found or run.state not in OPEN else forms_of_steps(explained.moved_by, run.workflow_id, role)
    return {"cards": found, "classes": CLASSES, "answers": answers}


def _did(look: Look, run: Run) -> dict[str, Any]:
    """What it took, called and sent."""
    where = {"workflow_id": run.workflow_id, "run_id": run.id}
    moves, trace = look.views.history(run.workflow_id, run.id), look.views.trace(run.id)
    lineage = look.read.all("look_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
    return {
        "stages": waterfall(run, moves, trace[-TRACED_MAX:], look.now_ms), "wide": WIDTH,
        "ticks": ticks(run, moves, look.now_ms),
        "untraced": max(0, len(trace) - TRACED_MAX),
        "inputs": look.read.all("look_inputs_of_run", **where), "items": look.read.all("look_items_of_run", **where),
        "outputs": [mutation_record(row) for row in look.read.all("look_mutations_of_run", **where)],
        "attempts": [run_record(row) for row in lineage], "shown_max": SHOWN_MAX,
        "selected": stored(run.prepare_result) if run.prepare_result and run.kind == "consumer" else None,
    }


def _script(look: Look, run: Run) -> dict[str, Any]:
    """The script version that it ran with, and where in it it failed."""
    source = source_of(look, run)
    place = excerpt(source, run.error.line, run.error.column) if run.error else None
    return {"source": coloured(source), "place": place}


async def _tried(request: Request) -> Response:
    """What a person could do about a run, each act tried on a copy; only when somebody asks for it."""
    id = request.path_params["id"]
    try:
        found, why = await control.perform(acting(request), "remedies", {"id": id}), ""
    except KeepError as error:
        found, why = [], error.message

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        run = look.views.run(id)
        return {"wf": look.views.workflow_row(run.workflow_id), "run": run, "tried": found, "why": why,
                "label": lambda act: meaning(act).label or "Deploy a mended script"}

    return await show(request, "tried.html", read)


ROUTES = (
    page("/runs", "runs.html", _runs), page("/workflows/{wf}/runs", "runs.html", _runs),
    Route("/runs/{id}/tried", _tried), page("/runs/{id}", "run.html", _run),
)
