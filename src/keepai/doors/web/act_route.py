"""/act: the one form that does anything. Its fields are an act of `model/acts.py` and that act's parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...model.acts import REQUESTS, Param
from ...model.errors import KeepError, Refused
from ...model.permissions import matches_of
from .. import control
from .sessions import ActNote
from .site import session, site

PARAM = "p."  #: what the names of parameters begin with
RULE = "rule."  #: what the names of the fields of a grant's rule begin with


async def act(request: Request) -> Response:
    """Do it, then go back to the page, which says what came of it."""
    form: Mapping[str, str] = request.state.form
    try:
        await _perform(request, form)
        note = ActNote("done", form.get("told") or "Done.")
    except KeepError as error:
        note = ActNote("refused", error.message)
    session(request).notes.append(note)
    return RedirectResponse(_local(form.get("back", "")), 303)


async def _perform(request: Request, form: Mapping[str, str]) -> None:
    name = form.get("act", "")
    if name not in REQUESTS:
        raise Refused(f"There is no act {name[:40]!r}.")
    given = {key.removeprefix(PARAM): text for key, text in form.items() if key.startswith(PARAM)}
    rule = {key.removeprefix(RULE): text for key, text in form.items() if key.startswith(RULE) and text.strip()}
    known = REQUESTS[name].params
    needs = [key for key, param in known.items() if param.required]
    params = {key: _typed(known, key, text) for key, text in given.items() if text or key in needs}
    if rule:
        params["mode"] = _rule(rule)
    control.check(name, params)
    await control.perform(site(request).keep, name, params)


def _rule(fields: Mapping[str, str]) -> dict[str, Any]:
    """The rule of a grant, from the fields of its form."""
    rule: dict[str, Any] = {"mode": fields.get("mode", "")}
    for name, text in fields.items():
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if name == "match":
            rule[name] = matches_of(lines)
        elif name in ("ask_when", "deny_when"):
            rule[name] = lines
        elif name in ("per_run", "per_day"):
            rule[name] = int(text) if text.strip().isdecimal() else text
    return rule


def _typed(known: Mapping[str, Param], name: str, text: str) -> Any:
    """A field as the act wants it; a form has only texts."""
    types = known[name].types if name in known else (str,)
    if str in types and not (dict in types and text.lstrip().startswith("{")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise Refused(f"{name} must be JSON, such as {{\"rowId\": 3}}. Nothing was done.") from None


def _local(back: str) -> str:
    """An address of ours, whatever the form says."""
    fits = back.startswith("/") and not back.startswith("//") and "\\" not in back and back.isprintable()
    return back if fits else "/"
