"""What `keep init` makes a folder from: the first workflow, or a recipe of examples/recipes.

A recipe brings its script, its cases, and those tables of the recipes' keep.toml that it uses.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...model.errors import ConfigError
from ...script.check import check
from ..example_files import example_file
from .script_files import CASES
from .text import did_you_mean

FIRST = "invoices"
#: What is made of the first workflow → the file of the package that it is.
FILES = {
    "keep.toml": "keep.toml", "invoices.js": "invoices.js", "invoices.test.toml": "invoices.test.toml",
    "AGENTS.md": "AGENTS.md", ".gitignore": "gitignore", "mail/new/1.example": "first.mail",
}
#: Types of connectors that work without an account, an address or a secret.
_ON_THIS_MACHINE = frozenset({"files", "local.mail", "local.sheets", "sql", "webhook.inbox"})
_TABLE = re.compile(r"\[(connectors\.\w+|workflows\.[\w-]+)")


@dataclass(frozen=True)
class Template:
    """A folder to start from."""

    name: str
    does: str  # in a sentence
    connectors: tuple[str, ...]
    files: Mapping[str, str]  # file → its text
    databases: Mapping[str, str] = field(default_factory=dict)  # file of SQLite → the statements that make its tables
    outside: tuple[str, ...] = ()  # the connectors that need something of the user before they work
    grants: bool = False  # whether its keep.toml grants what the script asks for
    deliveries: Mapping[str, Any] = field(default_factory=dict)  # inbox → what a case of the recipe has in it


def templates() -> list[Template]:
    """All of them; the one that `keep init` makes when none is named is the first."""
    return [_first(), *(_recipe(script) for script in sorted(example_file("recipes").glob("*.js")))]


def template_called(name: str) -> Template:
    """The template of that name."""
    found = {each.name: each for each in templates()}
    if name not in found:
        raise ConfigError(f"There is no template {name!r}. {did_you_mean(name, found)} "
                          "`keep init --templates` lists them.")
    return found[name]


def _first() -> Template:
    texts = {name: _packaged(file) for name, file in FILES.items()}
    return Template(FIRST, _head(texts["invoices.js"])[0], ("gmail", "sheets"), texts)


def _packaged(file: str) -> str:
    return files(__package__).joinpath("template", file).read_text("utf-8")


def _recipe(script: Path) -> Template:
    name, text = script.stem, script.read_text("utf-8")
    manifest = check(text).manifest
    assert manifest is not None, f"{script} is no script"
    used = sorted({capability.partition(".")[0] for capability in manifest.capabilities})
    settings = _settings(name, used, script.with_name("keep.toml").read_text("utf-8"))
    parsed = tomllib.loads(settings)
    cases = script.with_name(name + CASES).read_text("utf-8")
    databases = {
        table["path"]: script.with_name(table["path"]).with_suffix(".sql").read_text("utf-8")
        for table in parsed["connectors"].values() if table["type"] == "sql"
    }
    texts = {
        "keep.toml": settings, script.name: f'/// <reference path="./keep.d.ts" />\n\n{text}', name + CASES: cases,
        "AGENTS.md": _for_agents(name, used), ".gitignore": _ignored(parsed["connectors"]),
    }
    outside = tuple(each for each in used if parsed["connectors"][each]["type"] not in _ON_THIS_MACHINE)
    inboxes = {each for each in used if parsed["connectors"][each]["type"] == "webhook.inbox"}
    return Template(name, _head(text)[0], tuple(used), texts, databases, outside, "workflows" in parsed,
                    dict(_deliveries(tomllib.loads(cases), inboxes)))


def _head(script: str) -> list[str]:
    """The sentences of the first comment of a script."""
    comment = re.search(r"^(// .*\n)+", script, re.MULTILINE)
    assert comment is not None, "every recipe says first what it does"
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(comment[0].replace("// ", "").split()))


def _settings(name: str, used: list[str], shared: str) -> str:
    """The tables of the recipes' keep.toml that one recipe uses."""
    wanted = {f"connectors.{each}" for each in used} | {f"workflows.{name}"}
    tables = [each for each in re.split(r"(?m)^(?=\[)", shared)
              if (header := _TABLE.match(each)) and header[1] in wanted]
    names = ", ".join(f"ctx.{each}" for each in used)
    return f"# What is behind {names}. Every other setting has a default.\n\n{''.join(tables).rstrip()}\n"


def _for_agents(name: str, used: list[str]) -> str:
    named = ", ".join(f"`ctx.{each}`" for each in used)
    return _packaged("AGENTS.md").replace("invoices.js", f"{name}.js").replace("`ctx.gmail`, `ctx.sheets`", named)


def _ignored(connectors: Mapping[str, Mapping[str, Any]]) -> str:
    made = {f"/{table['path']}*" if table["type"] == "sql" else f"/{table['path']}/"
            for table in connectors.values() if "path" in table}
    return "\n".join(["/keep.db*", "/keep.secrets*", *sorted(made), ""])


def _deliveries(cases: Mapping[str, Any], inboxes: set[str]) -> Iterator[tuple[str, Any]]:
    answers = cases["case"][0]["answer"]
    for inbox in sorted(inboxes):
        listed = next(each["answer"] for each in answers if each["call"] == f"{inbox}.list")
        yield inbox, listed[0]["body"]


def next_steps(template: Template) -> list[str]:
    """What to type in the new folder, with what it is for."""
    name = template.name
    grant = "" if template.grants else " --grant all"
    allowed = "it gets what keep.toml grants it" if template.grants else "and let it do what it asks for"
    steps = [("keep test", "the workflow's own cases")]
    if template.outside:
        missing = ", ".join(f"[connectors.{each}]" for each in template.outside)
        steps.append(("keep doctor", f"put your own into keep.toml: {missing}"))
    steps.append((f"keep deploy {name}.js{grant}", f"make it active; {allowed}"))
    steps += [(f"keep send {inbox} --data {shlex.quote(json.dumps(body))}", "as if it had come in")
              for inbox, body in template.deliveries.items()]
    steps += [("keep dev", "run it; Ctrl-C ends it"), (f"keep inputs {name}", "what came in, and what came of it")]
    wide = min(max(len(typed) for typed, _ in steps), 45)
    return [f"  {typed:<{wide}}   # {why}" for typed, why in steps]
