"""Loads connectors of the owner: `type = "tickets:Tickets"` is the class Tickets in tickets.py beside keep.toml.

That file is code of the owner of keep.toml and runs with all rights of this process. Keep looks for it in that folder
only: a module of the same name elsewhere is never used.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..model.errors import ConfigError, in_words

if TYPE_CHECKING:
    from .base import Connector


def load_user_connector(type_name: str, folder: Path) -> type[Connector]:
    """The class that `module:Class` names, from a file in `folder`."""
    from .base import Connector

    name, _, attribute = type_name.partition(":")
    if not all(part.isidentifier() for part in (*name.split("."), attribute)):
        raise ConfigError(f'{type_name!r} is not a type. Write it as "module:Class".')
    module = load_user_module(name, folder)
    connector = getattr(module, attribute, None)
    if not inspect.isclass(connector) or not issubclass(connector, Connector):
        names = [n for n, member in vars(module).items() if inspect.isclass(member) and issubclass(member, Connector)
                 and member.__module__ == name]
        advice = ", ".join(names) if names else "none: a connector is a subclass of keepai.Connector"
        raise ConfigError(f"{module.__file__} has no connector {attribute!r}. It has {advice}.")
    return connector


def load_user_module(name: str, folder: Path) -> ModuleType:
    """The module of that name in `folder`. It is imported once."""
    path = _file(name, folder.resolve())
    known = sys.modules.get(name)
    if known is None:
        return _imported(name, path)
    if known.__file__ is None or Path(known.__file__).resolve() != path:
        raise ConfigError(f"{path.name} cannot be used, because Python already has a {name!r}. Give it another name.")
    return known


def _file(name: str, folder: Path) -> Path:
    base = folder.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    raise ConfigError(f"There is no {base.with_suffix('.py').name} in {base.parent}.")


def _imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks types up there
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that modules beside it hide nothing
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"{path} cannot be imported: {in_words(error)}") from error
    return module
