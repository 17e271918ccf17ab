"""The ways by which people are told: `base` is the contract, one module per way.

They rest on `model`, and on the one HTTP client of `connectors`. A way never decides what is told or when, and nothing
that it raises stops a run. Types are imported when they are first asked for.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..connectors import wrong_settings
from ..model.errors import ConfigError

if TYPE_CHECKING:
    from .base import Channel

SECTION = "notify"  #: of keep.toml; the secrets of a channel are kept under it and the channel's name

#: What `type = "…"` in a table `[notify.NAME]` of keep.toml may say, and where the class is.
TYPES: Mapping[str, str] = MappingProxyType({
    "apprise": "keepai.notices.apprise:Apprise",
    "command": "keepai.notices.command:Command",
    "desktop": "keepai.notices.apprise:Desktop",
    "email": "keepai.notices.email:Email",
    "ntfy": "keepai.notices.http_channels:Ntfy",
    "slack": "keepai.notices.http_channels:SlackChannel",
})


def make(type_name: str, name: str, settings: Mapping[str, Any], folder: Path, digest: str | None = None) -> Channel:
    """The channel that a table `[notify.<name>]` describes; `ConfigError` lists all that is wrong."""
    kind = load(type_name)
    exposed = [
        f"{setting!r} is a secret, and keep.toml is no place for it: take it out, and say: "
        f"keep secrets set {SECTION}.{name} {setting}" for setting in settings if setting in kind.secrets
    ]
    wrong = exposed or wrong_settings(kind, settings)
    if wrong:
        raise ConfigError(f"[notify.{name}] (type {type_name!r}): {'; '.join(wrong)}.")
    return kind(**settings, name=name).placed(folder, digest)


def load(type_name: str) -> type[Channel]:
    """The class of a type."""
    if type_name not in TYPES:
        close = difflib.get_close_matches(type_name, TYPES, n=1)
        advice = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(sorted(TYPES))}."
        raise ConfigError(f"There is no way {type_name!r} to tell people. {advice}")
    module, _, attribute = TYPES[type_name].partition(":")
    channel_class: type[Channel] = getattr(importlib.import_module(module), attribute)
    return channel_class
