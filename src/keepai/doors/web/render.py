"""Makes pages from templates, and serves style and script with their hash in the address, so that none is outdated.

Every value in a page is made visible and escaped, and no filter can undo that.

`finalize` sees every value before it is escaped; filters that give ready-made markup, such as `safe`, `escape` or
`tojson`, would slip past it and do not exist here. A template that names one does not load.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...model.acts import ACTS
from ...model.clock import iso
from ...model.errors import ConfigError
from ...model.ids import number_of
from ...model.visible_text import visible
from ...reading.call_sentences import output_sentence
from ...reading.charts import chart, shares, sparkline
from ...reading.wording import STANDS, ago, clock, count

#: What templates may use of Jinja's own: nothing that gives markup.
_PLAIN_FILTERS = ("capitalize", "default", "first", "last", "length", "list", "replace", "sort", "sum", "urlencode")

#: A state's word → how it is shown: the tone that colours it, and a shape for people who see no colour.
TONES: Mapping[str, tuple[str, str]] = MappingProxyType({
    **dict.fromkeys(("done", "applied", "committed", "consumed", "allow", "approved", "deployed"), ("good", "✓")),
    **dict.fromkeys(("running", "active", "in_flight", "processing"), ("busy", "●")),
    **dict.fromkeys(("waiting", "pending", "reserved", "needs_reconcile", "asked", "ask", "late"), ("wait", "○")),
    **dict.fromkeys(("needs you", "needs_attention", "indeterminate"), ("ask", "!")),
    **dict.fromkeys(("failed", "crashed", "deny", "rejected", "refused"), ("bad", "✕")),
    **dict.fromkeys(("watching",), ("good", "◉")), **dict.fromkeys(("idle",), ("quiet", "✓")),
    **dict.fromkeys(("paused", "stopped"), ("quiet", "‖")),
    **dict.fromkeys(("skipped", "superseded", "abandoned", "void", "expired", "declined"), ("quiet", "–")),
})

#: A stored word → what people read.
WORDS: Mapping[str, str] = MappingProxyType({
    "in_flight": "being sent", "needs_reconcile": "unknown, being looked up", "indeterminate": "unknown, needs you",
    "needs_attention": "needs you", "unknown_outcome": "unknown outcome", "logic": "script failed",
    "exhausted": "tried too often", "precondition": "missing outside", "internal": "internal error",
    "attention": "look at it", "committed": "done", "superseded": "another carries on", "abandoned": "given up",
    **STANDS, "failed:logic": "script failed", "failed:internal": "internal error",
})


_DAY_MS = 86_400_000


class Renderer:
    """Makes pages from templates."""

    def __init__(self, assets: Assets, things: Mapping[str, str]) -> None:
        self._environment, self._things = environment(assets, things), things

    def address(self, id: str) -> str | None:
        """Where the page of an id is."""
        return address_of(self._things, id)

    def page(self, template: str, context: Mapping[str, Any]) -> str:
        """A whole page."""
        return self._environment.get_template(template).render(context)


def environment(assets: Assets, things: Mapping[str, str]) -> Environment:
    """The environment for everything that is shown in a browser; `things` says where the page of an id is."""

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, finalize=shown,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )
    made.filters = {name: FILTERS[name] for name in _PLAIN_FILTERS} | {
        "as_json": as_json, "when": when, "at": at, "iso": iso, "count": count, "word": word,
        "ids_linked": lambda text: ids_linked(things, text),
        "sparkline": lambda numbers, label: Markup(sparkline(numbers, label)),  # noqa: S704 - numbers, and our own words
        "shares": lambda *given: Markup(shares(*given)),  # noqa: S704 - the same
        "chart": lambda *given: Markup(chart(*given)),  # noqa: S704 - the same
    }
    made.globals = {"static": assets.address, "tone": tone, "ACTS": ACTS,
                    "address": lambda id: address_of(things, id), "call_sentence": output_sentence}
    return made


def address_of(things: Mapping[str, str], id: str) -> str | None:
    """Where the page of an id is; its kind ends at the line below the letters."""
    path = things.get(id[: id.find("_") + 1])
    return path.format(id=id) if path else None


_ID = re.compile(r"\b[a-z]{2,3}_[0-9a-z]+\b")


def ids_linked(things: Mapping[str, str], text: str) -> Markup:
    """A sentence in which every id is a link to its page."""
    made, end = Markup(""), 0
    for found in _ID.finditer(text):
        way = address_of(things, found[0]) if number_of(found[0]) else None
        if way:
            link = Markup('<a class="id" href="{}">{}</a>').format(way, found[0])
            made, end = made + Markup.escape(visible(text[end:found.start()])) + link, found.end()
    return made + Markup.escape(visible(text[end:]))


def shown(value: Any) -> Any:
    """A value as it goes into a page: text with nothing invisible in it."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def as_json(value: Any) -> str:
    """A value as JSON that people can read."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@pass_context
def when(context: Context, then_ms: int | None) -> str | Markup:
    """A time as people say it, with the exact one beside it."""
    if then_ms is None:
        return "never"
    exact = iso(then_ms)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, ago(then_ms, context["now_ms"]))


@pass_context
def at(context: Context, then_ms: int) -> Markup:
    """A time of day here, with the date if it is older than a day; for stories, in which distances matter."""
    exact = iso(then_ms)
    day = "" if context["now_ms"] - then_ms < _DAY_MS else f"{exact[:10]} "
    return Markup('<time class="clock" datetime="{}" title="{}">{}{}.{:03}</time>').format(
        exact, exact, day, clock(then_ms), then_ms % 1000,
    )


def tone(status: str) -> tuple[str, str]:
    """The tone and the shape of a state; `paused:transient` is shown as `paused`."""
    return TONES.get(status, TONES.get(status.partition(":")[0], ("quiet", "·")))


def word(status: str) -> str:
    """A state in a person's words."""
    return WORDS.get(status, status.replace("_", " "))


# -- style and script ---------------------------------------------------------------------------------


FOLDER = Path(__file__).parent / "static"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FOR_EVER = "public, max-age=31536000, immutable"
FOR_NOW = "no-cache"


@dataclass(frozen=True)
class Asset:
    """One file."""

    content: bytes
    kind: str
    version: str


class Assets:
    """Every file of the folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        read = {path: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in KINDS}
        self._files = {path.name: Asset(content, KINDS[path.suffix], hashlib.sha256(content).hexdigest()[:16])
                       for path, content in read.items()}

    def address(self, name: Any) -> str:
        """The address of a file in its present version."""
        if name not in self._files:
            raise ConfigError(f"The page lacks its file {name}. In a clone of Keep, `make setup` brings it.")
        return f"/static/{name}?v={self._files[name].version}"

    async def serve(self, request: Request) -> Response:
        """One file."""
        asset = self._files.get(request.path_params["name"])
        if asset is None:
            raise HTTPException(404)
        tag = f'"{asset.version}"'
        lasting = FOR_EVER if request.query_params.get("v") == asset.version else FOR_NOW
        headers = {"etag": tag, "cache-control": lasting}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.kind, headers=headers)
