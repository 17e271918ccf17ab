"""The rule of a permission: its form as an act takes it, and the rule in words before somebody saves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ....engine.deploy import bound
from ....model.errors import KeepError
from ....model.permissions import grant_of, matches_of
from ..site import NavLink, site

LINKS: tuple[NavLink, ...] = ()
THINGS: Mapping[str, str] = {}

RULE = "rule."  #: what the names of the fields of a rule begin with


def rule_of(form: Mapping[str, str]) -> dict[str, Any] | None:
    """The rule that the fields of a form say; None if the form has no such field."""
    fields = {key.removeprefix(RULE): text for key, text in form.items() if key.startswith(RULE) and text.strip()}
    rule: dict[str, Any] = {"mode": fields.get("mode", "")}
    for name, text in fields.items():
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if name == "match":
            rule[name] = matches_of(lines)
        elif name in ("ask_when", "deny_when"):
            rule[name] = lines
        elif name in ("per_run", "per_day"):
            rule[name] = int(text) if text.strip().isdecimal() else text
    return rule if fields else None


async def _in_words(request: Request) -> Response:
    """The rule that somebody writes, in the words in which it would stand, or why it cannot be saved."""
    here, capability = site(request), request.query_params.get("capability", "")
    try:
        rule, refused = bound(here.keep.parts, capability, grant_of(rule_of(request.query_params), capability)), ""
    except KeepError as error:
        rule, refused = None, error.message
    return HTMLResponse(here.renderer.page("rule_words.html", {
        "capability": capability, "rule": rule, "refused": refused}))


ROUTES = (Route("/permissions/words", _in_words),)
