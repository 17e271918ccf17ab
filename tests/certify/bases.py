"""The scripts that are known to be right: every example and every recipe, each with cases and connectors."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from keepai.config import load
from keepai.connectors import make
from keepai.connectors.base import Connector
from keepai.doors.cli.wiring import make_connector
from keepai.testing.fixtures import Case, read

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES, TEMPLATE = ROOT / "examples", ROOT / "src/keepai/doors/cli/template"

_GOOGLE = {"account": "me@example.com", "client_id": "id"}
_GMAIL = ("google.gmail", "gmail", _GOOGLE)
_SHEETS = ("google.sheets", "sheets", _GOOGLE)
_TYPES: dict[str, list[tuple[str, str, dict[str, object]]]] = {
    "email-to-sheets": [_GMAIL, _SHEETS],
    "chapter-06": [_GMAIL, _SHEETS],
    "routine-invoices": [_GMAIL, _SHEETS],
    "feed-to-slack": [("rss", "news", {"url": "https://news.example.com/feed"}), ("slack", "slack", {"account": "x"})],
    "file-drop": [("files", "drive", {"path": "drive", "create": True})],
    "mail-to-calendar": [_GMAIL, ("google.calendar", "calendar", _GOOGLE)],
    "orders-to-books": [("http", "shop", {"allow": ["https://shop.example.com/v1/"]}),
                        ("http", "books", {"allow": ["https://books.example.com/v1/"]})],
    "orders-to-invoices": [("sql", "books", {"path": "books.db", "tables": ["orders", "invoices"]})],
    "webhook-relay": [("webhook.inbox", "payments", {"path": "payments", "create": True}),
                      ("webhook", "team", {"url": "https://team.example.com/hook"})],
    "auto-reply": [_GMAIL],
}
#: A script that does the same as another has its cases.
_CASES_OF = {"chapter-06": "email-to-sheets"}


@dataclass(frozen=True)
class Base:
    """A script, its cases, and the connectors for them."""

    name: str
    source: str
    cases: tuple[Case, ...]
    connectors: Sequence[Connector]


@cache
def bases(folder: Path) -> tuple[Base, ...]:
    """Every one; connectors that need a place get one in `folder`."""
    return (*_examples(folder), *_with_keep_toml(EXAMPLES / "recipes", folder), *_with_keep_toml(TEMPLATE, folder))


def _examples(folder: Path) -> list[Base]:
    cases = tomllib.loads(Path(__file__).with_name("cases.toml").read_text("utf-8"))
    found = []
    for name, types in _TYPES.items():
        path = EXAMPLES / ("mail" if name == "auto-reply" else "") / f"{name}.js"
        made = [make(type, each, {**settings, **({"path": str(folder / name / each)} if "path" in settings else {})})
                for type, each, settings in types]
        found.append(Base(name, path.read_text("utf-8"), tuple(cases[_CASES_OF.get(name, name)]["case"]), made))
    return found


def _with_keep_toml(home: Path, folder: Path) -> list[Base]:
    file = folder / f"{home.name}-keep.toml"
    file.write_text((home / "keep.toml").read_text("utf-8"), "utf-8")
    connectors = load(file, make=make_connector).connectors
    fixtures = [read(each) for each in sorted(home.glob("*.test.toml"))]
    return [Base(each.script.stem, each.script.read_text("utf-8"), each.cases, connectors) for each in fixtures]
