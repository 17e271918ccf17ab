"""Channels: how Keep notifies people. In reading order:

base           the contract of a channel
email          mail over SMTP
http_channels  Slack and ntfy
command        a program of the owner
apprise        the desktop, and other services through the library Apprise

A channel never decides what is sent or when, and an error in it never stops a run. Channels import `model`, and the
mail writer and HTTP client of `connectors`. This module maps a type to its class and imports the class at its first
use.
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

SECTION = "notify"  #: of keep.toml; the vault stores the secrets of a channel under `notify.NAME`

#: Values that `type = "…"` in a table `[notify.NAME]` of keep.toml may have → the class.
TYPES: Mapping[str, str] = MappingProxyType({
    "apprise": "keepai.notices.apprise:Apprise",
    "command": "keepai.notices.command:Command",
    "desktop": "keepai.notices.apprise:Desktop",
    "email": "keepai.notices.email:Email",
    "ntfy": "keepai.notices.http_channels:Ntfy",
    "slack": "keepai.notices.http_channels:SlackChannel",
})


def make(type_name: str, name: str, settings: Mapping[str, Any], folder: Path, digest: str | None = None) -> Channel:
    """Make the channel that `[notify.<name>]` describes. `ConfigError` lists everything that is wrong."""
    kind = load(type_name)
    exposed = [
        f"{setting!r} is a secret and must not stand in keep.toml: remove it there, and run: "
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
        raise ConfigError(f"There is no channel type {type_name!r}. {advice}")
    module, _, attribute = TYPES[type_name].partition(":")
    channel_class: type[Channel] = getattr(importlib.import_module(module), attribute)
    return channel_class
