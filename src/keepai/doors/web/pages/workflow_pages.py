"""Home, with every workflow at a glance; one workflow; and the versions of its script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ....engine.next_step import manifest_of
from ....ledger.base import Row
from ....model.errors import KeepError, NotFound
from ....model.operations import Kind
from ....model.records import ParkedRun
from ....reading import workflow_details
from ....reading.activity import NOTHING, TOOK, by_hour, together
from ....reading.blast import blast
from ....reading.code_colours import Piece, coloured
from ....reading.diffs import DiffLine, changes
from ....reading.graph_svg import svg
from ....reading.look import Look
from ....reading.overview import glances, standing_of, traffic
from ....reading.parked_runs import GOES_ON
from ....reading.questions import asked_at
from ....reading.shared_hosts import no_runner, place, runner, runs_on
from ....reading.verdict_words import fate_groups, not_tried
from ....reading.wording import kept_bytes
from ....reading.workflow_details import VersionInfo, schedule_text
from ....script.topic_graph import Graph, Vertex, graph
from ... import control
from ..cards import shown_runs
from ..guard import Refusal
from ..sessions import ActNote
from ..site import LIVE, NavLink, acting, page, session, show, site, tell
from ..timeline import lines
from .plan_page import may_plan

LINKS = (
    NavLink("Home", "/", order=0), NavLink("Workflow", "/workflows/{wf}", order=5),
    NavLink("Versions", "/workflows/{wf}/versions", order=70),
)
THINGS: Mapping[str, str] = {}

VERSIONS_SHOWN = 10
TOUCHED_SHOWN = 50
MODES = {"allow": "allow", "ask": "ask a person each time", "deny": "refuse"}  #: of a permission, and what people read


async def home(request: Request) -> Response:
    """Every workflow at a glance."""
    return await show(request, "home.html", glance_at(request))


def glance_at(request: Request) -> Callable[[Look, Request], Mapping[str, Any]]:
    """What Home shows."""
    counts = site(request).activity

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        found, lately = glances(look.read, look.views, look.now_ms), counts.at_once(look.read, look.now_ms)
        return {
            "glances": found, "counted": lately is not None, "activity": lambda wf: (lately or {}).get(wf, NOTHING),
            "total": together(lately or {}), "runs_on": lambda wf: runs_on(look.read, wf),
            "waiting": sum(each.workflow.pending for each in found), "may_plan": may_plan(request),
        }

    return read


async def _workflow(request: Request) -> Response:
    parts = site(request).keep.parts
    send_id = f"manual_{parts.ids.new('inp').removeprefix('inp_')}"  # sent twice by one form, it is there once
    counts = site(request).activity
    own, surface, accounts = parts.ledger.host, parts.surface, {name: parts.account(name) for name in parts.connectors}

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        found, lately = _read_workflow(look, request), counts.at_once(look.read, look.now_ms)
        mine = NOTHING if lately is None else lately.get(found["wf"]["id"], NOTHING)
        return {
            **found, "own": own, "send_id": send_id, "certificates": parts.policy.certified != "off",
            "lately": None if lately is None else mine, "took_words": TOOK,
            "questions_by_hour": tuple(map(add, mine.answers, found["open_by_hour"])),
            "modes": MODES, "modes_unasked": {mode: words for mode, words in MODES.items() if mode != "ask"},
            "versions": workflow_details.versions(look.read, found["wf"], parts.connectors),
            "can_ask": lambda capability: surface.kind(capability) is Kind.MUTATION,
            "other_account": lambda each: each.other_account(accounts),
        }

    return await show(request, "workflow.html", read)


def _read_workflow(look: Look, request: Request) -> Mapping[str, Any]:
    row = look.views.workflow_row(request.path_params["wf"])
    manifest = manifest_of(look.read, row)
    made, run = graph(manifest), look.read.one("run_open", workflow_id=row["id"])
    said = workflow_details.graph_captions(made, workflow_details.waiting(look.read, row), run,
                                           workflow_details.parked_of(look.read, row))
    explained = look.views.explain(row["id"], look.now_ms)
    asked = look.views.needs_you(look.now_ms, row["id"])
    stands = look.views.workflow(row["id"], look.now_ms)
    drawn = svg(made, said, styled=False, ways=_ways(made, row, run, stands.parked),
                states=workflow_details.graph_states(made, run, stands.parked),
                notes=workflow_details.graph_notes(made, stands.parked))
    standing, because = standing_of(stands, asked, run)
    return {
        "wf": row, "explained": explained, "story": lines(look.read, explained.story), "schedule": schedule_text,
        "questions": len(asked), "open_by_hour": by_hour((asked_at(look.read, each) for each in asked), look.now_ms),
        "kept": kept_bytes(stands.bytes), "standing": standing,
        "because": because, "next_due_at": stands.next_due_at,
        "traffic": None if LIVE in request.headers else traffic(look.read, row["id"]),
        "graph": Markup(drawn),  # noqa: S704 - it escapes every name itself
        "handlers": workflow_details.handler_times(look.read, row, manifest),
        "permissions": workflow_details.permissions(look.read, row, manifest), "most": VERSIONS_SHOWN,
        "held": run is not None, "shared": look.read.path is None, "runner": runner(look.read, row["id"]),
        "place": place, "no_runner": no_runner(look.read), "topics": manifest.topics,
        "waiting": stands.waiting, "parked": stands.parked, "goes_on": GOES_ON,
        "has_schedule": any(each.kind != "consumer" for each in manifest.handlers),
    }


def _ways(made: Graph, row: Row, run: Row | None, parked: Sequence[ParkedRun]) -> dict[Vertex, str]:
    """Where each vertex of the graph leads: a topic to its events; a handler to its runs, or to the only
    one of them that is open or parked."""
    at, ways = f"/workflows/{row['id']}", dict[Vertex, str]()
    opened = [(str(run["handler"]), str(run["id"]))] if run is not None else []
    opened += [(each.handler, each.run_id) for each in parked]
    for each in made.vertices:
        of_it = [id for handler, id in opened if handler == each.name]
        if each.kind == "topic":
            ways[each] = f"{at}/events?{urlencode({'topic': each.name})}"
        else:
            ways[each] = f"/runs/{of_it[0]}" if len(of_it) == 1 else f"{at}/runs?{urlencode({'handler': each.name})}"
    return ways


# -- versions --------------------------------------------------------------------------------------


async def _versions(request: Request) -> Response:
    """Two versions beside each other, and what deploying the newer text would do to what is open; if it is asked for,
    also what it would do with recorded runs."""
    report: Mapping[str, Any] | None = None
    named, version = request.path_params["wf"], request.query_params.get("to", "")
    if request.query_params.get("shadow") == "yes" and LIVE not in request.headers:
        try:
            source = await site(request).looks.read(
                lambda look: _text_of(look, look.views.workflow_row(named), version))
            report = await control.perform(acting(request), "shadow", {"wf": named, "source": source})
        except KeepError as error:
            return await tell(request, Refusal(409, f"{version} could not be tried: {error.message}"))

    verdict = await _foreseen(request, named, version) if version and LIVE not in request.headers else None

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        runs = shown_runs(report) if report else ()
        groups = fate_groups(verdict["things"]) if verdict else ()
        foreseen = {"verdict": verdict, "groups": groups, "untried": not_tried}
        return {**_compared(look, request), "report": report, "runs": runs, **foreseen}

    return await show(request, "versions.html", read)


def _compared(look: Look, request: Request) -> Mapping[str, Any]:
    row = look.views.workflow_row(request.path_params["wf"])
    known = workflow_details.versions(look.read, row)
    new = request.query_params.get("to") or next(each.version for each in known if each.active)
    old = request.query_params.get("from") or _before(known, new)
    before, after = _text_of(look, row, old), _text_of(look, row, new)
    return {
        "wf": row, "version_names": _names(known), "old": old, "new": new,
        "lines": changes(before, after), "text": coloured(after),
        "pieces_of": lambda line: pieces_of(coloured(before if line.new is None else after), line),
        "is_active": any(each.active and each.version == new for each in known),
    }


def pieces_of(lines: Sequence[Sequence[Piece]], line: DiffLine) -> Sequence[Piece]:
    """The coloured pieces of a line of a comparison. Where lines are counted otherwise, it stays without colours."""
    at = (line.old if line.new is None else line.new) or 0
    pieces = lines[at - 1] if 0 < at <= len(lines) else ()
    return pieces if "".join(text for _, text in pieces) == line.text else (("", line.text),)


async def _foreseen(request: Request, named: str, version: str) -> Mapping[str, Any] | None:
    def text(look: Look) -> str | None:
        row = look.views.workflow_row(named)
        return None if version == f"{row['major']}.{row['minor']}" else _text_of(look, row, version)

    source = await site(request).looks.read(text)
    if source is None:
        return None
    try:
        found: Mapping[str, Any] = await control.perform(acting(request), "verdict", {"source": source})
    except KeepError:
        return None  # the deploy is refused for the same reason, and says it
    return found


async def _roll_back(request: Request) -> Response:
    """Deploy the text of an earlier version again, by the rules of every deploy."""
    version, named = request.state.form.get("version", ""), request.path_params["wf"]
    try:
        source = await site(request).looks.read(
            lambda look: _text_of(look, look.views.workflow_row(named), version))
        await control.perform(acting(request), "deploy", {"source": source})
        note = ActNote("done", f"The text of {version} is the active version again, as a new version.")
    except KeepError as error:
        note = ActNote("refused", error.message)
    session(request).notes.append(note)
    return RedirectResponse(f"/workflows/{named}/versions", 303)


def _blast(look: Look, request: Request) -> Mapping[str, Any]:
    """All that a version touched may take seconds to gather: once, and not again at every change."""
    row = look.views.workflow_row(request.path_params["wf"])
    version = request.query_params.get("version") or f"{row['major']}.{row['minor']}"
    found = None if LIVE in request.headers else blast(look.read, row, version, most=TOUCHED_SHOWN)
    known = workflow_details.versions(look.read, row)
    return {"wf": row, "found": found, "version": version, "version_names": _names(known), "most": TOUCHED_SHOWN}


def _names(known: Sequence[VersionInfo]) -> dict[str, str]:
    return {each.version: f"{each.version} (active)" if each.active else each.version for each in known}


def _before(known: Sequence[VersionInfo], version: str) -> str:
    """The version before one; the first has none, and is compared with itself."""
    names = [each.version for each in known]  # the newest first
    return next(iter(names[names.index(version) + 1:]), version) if version in names else version


def _text_of(look: Look, row: Row, version: str) -> str:
    major, _, minor = version.partition(".")
    is_number = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in (major, minor))
    number = {"major": int(major), "minor": int(minor)} if is_number else None
    found = look.read.one("script_get", workflow_id=row["id"], **number) if number else None
    if found is None:
        raise NotFound(f"The workflow {row['name']!r} has no version {version[:40]!r}. Its page lists them.")
    return str(found["source"])


ROUTES = (
    Route("/", home), Route("/workflows/{wf}", _workflow),
    Route("/workflows/{wf}/roll-back", _roll_back, methods=["POST"]),
    Route("/workflows/{wf}/versions", _versions), page("/workflows/{wf}/blast", "blast.html", _blast),
)
