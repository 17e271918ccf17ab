"""Connectors: how Keep talks to outside systems. In reading order:

base           the contract of a connector: marked methods that scripts may call
values         what passes between engine and connector: Call, Page, Verdict
operation      one operation of one connector, as the engine calls it
type_checks    checks params and results against the declared types
problems       words what is wrong with params or results
json_schema    checks what other programs declare as JSON schemas
typescript     the declarations of all operations for editors and language models
sign_in        the contract of a sign-in with a browser
user_module    loads a connector that the owner wrote
redacted       wraps a connector so that no secret leaves it
redacted_logs  removes secrets from Python's own log
kit/           what several connectors share
egress/        the HTTP client, which connects to allowed addresses only
files/ google/ http/ local/ mail/ mcp/ openapi/ rss/ slack/ sql/ webhook/    one folder for each kind of system

This module maps a type name to its class and imports the class at its first use. Connectors import only `model`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..model.errors import ConfigError
from .user_module import load_user_connector

if TYPE_CHECKING:
    from .base import Connector

#: Values that `type = "…"` in keep.toml may have → the class.
TYPES: Mapping[str, str] = MappingProxyType({
    "files": "keepai.connectors.files.files_connector:Files",
    "google.calendar": "keepai.connectors.google.calendar:Calendar",
    "google.gmail": "keepai.connectors.google.gmail:Gmail",
    "google.sheets": "keepai.connectors.google.google_sheets:Sheets",
    "http": "keepai.connectors.http.http_connector:Http",
    "local.mail": "keepai.connectors.local.mail:LocalMail",
    "local.sheets": "keepai.connectors.local.sheets:LocalSheets",
    "mcp": "keepai.connectors.mcp.mcp_connector:Mcp",
    "mail": "keepai.connectors.mail.mail_connector:Mail",
    "openapi": "keepai.connectors.openapi.openapi_connector:OpenApi",
    "rss": "keepai.connectors.rss.rss_connector:Rss",
    "slack": "keepai.connectors.slack.slack_connector:Slack",
    "sql": "keepai.connectors.sql.sql_connector:Sql",
    "webhook": "keepai.connectors.webhook.outgoing:Webhook",
    "webhook.inbox": "keepai.connectors.webhook.inbox:Inbox",
})
#: Parameters of a connector's `__init__` that are not settings.
NOT_SETTINGS = frozenset({"self", "name", "clock"})


def make(type_name: str, name: str, settings: Mapping[str, Any], folder: Path | None = None) -> Connector:
    """Make the connector that `[connectors.<name>]` describes. `ConfigError` lists everything that is wrong."""
    kind = load(type_name, folder)
    wrong = [*_exposed(kind, name, settings), *wrong_settings(kind, settings)]
    if wrong:
        raise ConfigError(f"[connectors.{name}] (type {type_name!r}): {'; '.join(wrong)}.")
    return kind(**settings, name=name)


def load(type_name: str, folder: Path | None = None) -> type[Connector]:
    """The class of a type. A connector that the user wrote, `module:Class`, is loaded from `folder`."""
    if ":" in type_name:
        return load_user_connector(type_name, folder or Path())
    if type_name not in TYPES:
        close = difflib.get_close_matches(type_name, TYPES, n=1)
        advice = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(sorted(TYPES))}."
        raise ConfigError(f"There is no connector type {type_name!r}. {advice} Your own is module:Class.")
    module, _, attribute = TYPES[type_name].partition(":")
    connector_class: type[Connector] = getattr(importlib.import_module(module), attribute)
    return connector_class


def wrong_settings(kind: type, settings: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the settings of a class whose `__init__` parameters are its settings."""
    known = {n: p for n, p in inspect.signature(kind).parameters.items() if n not in NOT_SETTINGS}
    secrets = getattr(kind, "secrets", ())
    problems = [f"the setting {n!r} is missing" for n, p in known.items() if p.default is p.empty and n not in settings]
    for setting in settings:
        if setting not in known and setting not in secrets:
            close = difflib.get_close_matches(setting, known, n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            problems.append(f"the setting {setting!r} is unknown: {advice}")
    return problems + [problem for n in known if n in settings for problem in _misfit(kind, n, settings[n])]


def _exposed(kind: type[Connector], name: str, settings: Mapping[str, Any]) -> list[str]:
    """Report secrets that stand in keep.toml, where anybody may read them."""
    taken = inspect.signature(kind).parameters
    return [
        f"{setting!r} is a secret and must not stand in keep.toml: remove it there, and run: "
        f"keep secrets set {name} {setting}"
        for setting in settings if setting in kind.secrets and setting not in taken
    ]


def _misfit(kind: type, setting: str, value: Any) -> list[str]:
    """Report a value of the wrong type. TOML has strings where Python also takes a path."""
    annotation = inspect.signature(kind).parameters[setting].annotation
    annotation = getattr(annotation, "__name__", str(annotation)).removesuffix(" | None")
    if annotation in _NESTED:
        return [] if _fits(value, annotation) else [f"the setting {setting!r} must be {_NESTED[annotation]}"]
    expected = {"bool": bool, "int": int, "float": (int, float)}.get(str(annotation), str)
    if isinstance(value, expected) and (expected is bool or not isinstance(value, bool)):  # type: ignore[arg-type]
        return []
    word = {"bool": "true or false", "int": "a whole number", "float": "a number"}.get(str(annotation), "a string")
    return [f"the setting {setting!r} must be {word}, not {_shown(value)}"]


#: Annotations of settings that hold more than one value, in words.
_NESTED = {
    "list[str]": "a list of strings", "dict[str, str]": "a table of strings",
    "list[dict[str, Any]]": "a list of tables", "dict[str, Any]": "a table",
}


def _fits(value: Any, annotation: str) -> bool:
    if annotation.startswith("list"):
        inner = dict if "dict" in annotation else str
        return isinstance(value, list) and all(isinstance(item, inner) for item in value)
    plain = annotation == "dict[str, Any]"
    return isinstance(value, dict) and (plain or all(isinstance(item, str) for item in value.values()))


def _shown(value: Any) -> str:
    """The value that was given. Of a string only the type is shown, because it may be a secret in the wrong line."""
    if isinstance(value, str):
        return "a string"
    return repr(value) if isinstance(value, bool | int | float) else "a list" if isinstance(value, list) else "a table"
