"""Makes the connectors that keep.toml describes; their relative paths are relative to that file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import connectors

if TYPE_CHECKING:
    from ...connectors.base import Connector


def make(type_name: str, name: str, settings: Mapping[str, Any], folder: Path) -> Connector:
    """One connector; raises `ConfigError`."""
    paths = _paths(connectors.load(type_name, folder))
    placed = {key: _placed(value, folder) if key in paths else value for key, value in settings.items()}
    return connectors.make(type_name, name, placed, folder)


def _paths(kind: type) -> set[str]:
    """The settings of a connector that are paths, which their types say."""
    parameters = inspect.signature(kind).parameters.items()
    return {name for name, parameter in parameters if "Path" in str(parameter.annotation)}


def _placed(value: Any, folder: Path) -> Any:
    return str(folder / Path(value).expanduser()) if isinstance(value, str) and value else value
