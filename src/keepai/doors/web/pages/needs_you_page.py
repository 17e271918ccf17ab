"""Needs you: every question to a person as a list beside the one in hand, and many calls approved in one go.

Each of many is approved by itself, at the version in which it was shown: one that changed meanwhile is refused alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ....model.acts import has
from ....model.errors import KeepError, Refused
from ....model.records import Escalation
from ....reading.call_sentences import sentence_of
from ....reading.look import Look
from ....reading.offered_acts import CLASSES, heading, in_bulk, workflow_name
from ....reading.wording import count
from ... import control
from ..cards import cards
from ..filters import TEXT_MAX
from ..sessions import ActNote
from ..site import NavLink, acting, page, session

LINKS = (
    NavLink("Needs you", "/needs-you", order=10, counts=True),
    NavLink("Needs you", "/workflows/{wf}/needs-you", order=10),
)
THINGS: Mapping[str, str] = {}

SEVERAL_MAX = 200  #: calls that are approved in one go
VERSION = "v."  #: what the names of the fields begin with that say which call, and in which version it was shown
_DONE = {"approve": "approved: exactly what was shown is sent, once", "reject": "rejected: nothing of it is sent"}


@dataclass(frozen=True)
class QuestionEntry:
    """One line of the list."""

    id: str
    text: str
    heading: str
    kind: str
    workflow: str
    href: str
    in_bulk: bool


def _needs_you(look: Look, request: Request) -> Mapping[str, Any]:
    """Every question to a person, of all workflows or of one."""
    named = request.path_params.get("wf")
    wf = look.views.workflow_row(named) if named else None
    asked = request.query_params
    kind, sought, picked = asked.get("kind", ""), asked.get("text", "").strip()[:TEXT_MAX], asked.get("q", "")
    found = look.views.needs_you(look.now_ms, wf["id"] if wf else None)
    kept = {name: value for name, value in (("kind", kind), ("text", sought)) if value}
    entries = _entries(look, found, request, kept)
    shown = [each for each in entries if kind in ("", each.kind) and _fits(each, sought)]
    at = next((place for place, each in enumerate(shown) if each.id == picked), 0)
    following = [*shown[at + 1:], *shown[:at]]
    chosen = next((each for each in found if shown and each.id == shown[at].id), None)
    bulk = [each.id for each in shown if each.in_bulk][:SEVERAL_MAX]
    everything = _address(request.url.path, kept)
    return {
        "wf": wf, "entries": shown, "kinds": sorted({each.kind for each in entries}), "kind": kind,
        "sought_question": sought, "classes": CLASSES, "bulk": bulk, "bulk_ids": ",".join(bulk),
        "card": next(iter(cards(look, [chosen] if chosen else [], session(request).principal.role)), None),
        "gone": bool(picked) and all(each.id != picked for each in found),
        "picked": bool(shown) and shown[at].id == picked, "all": everything,
        "here": following[0].href if following else everything, "stay": shown[at].href if shown else everything,
    }


def _entries(
    look: Look, found: Iterable[Escalation], request: Request, kept: Mapping[str, str],
) -> list[QuestionEntry]:
    names = {row["id"]: str(row["name"]) for row in look.read.all("workflow_all")}
    return [
        QuestionEntry(
            each.id, sentence_of(each.facts) or str(each.facts.get("why") or each.title), heading(each),
            each.kind, workflow_name(each, names), _address(request.url.path, {**kept, "q": each.id}),
            in_bulk(each) and has(session(request).principal.role, "approve", each.id))
        for each in found
    ]


def _address(path: str, asked: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(asked)}" if asked else path


def _fits(entry: QuestionEntry, sought: str) -> bool:
    text = f"{entry.text} {entry.heading} {entry.workflow} {entry.id}".casefold()
    return all(word in text for word in sought.casefold().split())


# -- many at once -------------------------------------------------------------------------------------


def _several(look: Look, request: Request) -> Mapping[str, Any]:
    """What would be sent if the chosen calls were approved."""
    asked = request.query_params
    wanted = asked["all"].split(",") if asked.get("all") else asked.getlist("id")
    names = {row["id"]: str(row["name"]) for row in look.read.all("workflow_all")}
    found = [each for each in look.views.needs_you(look.now_ms) if each.id in wanted and in_bulk(each)]
    return {"entries": [_preview(each, names) for each in found[:SEVERAL_MAX]]}


def _preview(question: Escalation, names: Mapping[str, str]) -> dict[str, Any]:
    facts = question.facts
    inputs = facts.get("inputs")
    return {
        "id": question.id, "version": question.version, "text": sentence_of(facts), "because": facts["because"],
        "workflow": names[question.workflow_id], "workflow_id": question.workflow_id, "params": facts["params"],
        "attempted": facts["attempted"], "inputs": ", ".join(map(str, inputs)) if isinstance(inputs, list) else "",
    }


async def _answer_several(request: Request) -> Response:
    """Approve or reject each of the chosen calls, one after the other."""
    form: Mapping[str, str] = request.state.form
    act, who = form.get("act", ""), session(request)
    chosen = {name.removeprefix(VERSION): text for name, text in form.items() if name.startswith(VERSION)}
    if act not in _DONE or not chosen:
        who.notes.append(ActNote("refused", "Nothing was chosen, so nothing was done."))
        return RedirectResponse("/needs-you", 303)
    done, refused = 0, list[str]()
    for id, shown in list(chosen.items())[:SEVERAL_MAX]:
        try:
            await _answer(request, act, id, shown)
            done += 1
        except KeepError as error:
            refused.append(error.message)
    who.notes.extend(_told(act, done, refused))
    return RedirectResponse("/needs-you", 303)


async def _answer(request: Request, act: str, id: str, shown: str) -> None:
    if not (shown.isascii() and shown.isdecimal() and id.startswith("apr_")):
        raise Refused(f"{id[:40]!r} is no call that can be approved together with others. Nothing was done about it.")
    await control.perform(acting(request), act, {"id": id, "shown": int(shown)})


def _told(act: str, done: int, refused: Sequence[str]) -> list[ActNote]:
    notes = [ActNote("done", f"{count(done, 'call')} {_DONE[act]}.")] if done else []
    if refused:
        more = f" And {len(refused) - 3} more." if len(refused) > 3 else ""
        notes.append(ActNote("refused", f"{count(len(refused), 'call')} not answered. {' '.join(refused[:3])}{more}"))
    return notes


ROUTES = (
    page("/needs-you", "needs_you.html", _needs_you), page("/workflows/{wf}/needs-you", "needs_you.html", _needs_you),
    page("/needs-you/several", "several.html", _several),
    Route("/needs-you/answer-several", _answer_several, methods=["POST"]),
)
