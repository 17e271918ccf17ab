"""Makes the connectors that keep.toml describes and gives each its secrets; paths are relative to that file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import connectors
from ...model.errors import VaultClosed
from .text import plain

if TYPE_CHECKING:
    from ...config import Settings
    from ...connectors.base import Connector
    from ...vault.store import Vault


def make(type_name: str, name: str, settings: Mapping[str, Any], folder: Path) -> Connector:
    """One connector; raises `ConfigError`."""
    paths = _paths(connectors.load(type_name, folder))
    placed = {key: _placed(value, folder) if key in paths else value for key, value in settings.items()}
    return connectors.make(type_name, name, placed, folder)


def entrust(settings: Settings) -> Settings:
    """Give each connector its own secrets; nothing is opened before one of them is used."""
    keepers = [connector for connector in settings.connectors if connector.secrets]
    if not keepers:
        return settings
    vault = vault_of(settings)
    for connector in keepers:
        connector.entrust(vault.view(connector.name))
    return replace(settings, vault=vault)


def unlock(settings: Settings) -> str | None:
    """Open the secrets before anything runs: whoever must type a passphrase is asked now. Gives what is wrong."""
    try:
        if settings.vault is not None:
            settings.vault.values("")
    except VaultClosed as error:  # a host starts nevertheless, and what needs a secret becomes a question
        return plain(error.message)
    return None


def vault_of(settings: Settings) -> Vault:
    """The secrets beside the ledger of these settings."""
    from ...vault.keys import Places
    from ...vault.store import Vault, path_beside
    from .entering import asking

    return Vault(path_beside(settings.path), Places(settings.key_file, settings.passphrase, asking()))


def _paths(kind: type) -> set[str]:
    """The settings of a connector that are paths, which their types say."""
    parameters = inspect.signature(kind).parameters.items()
    return {name for name, parameter in parameters if "Path" in str(parameter.annotation)}


def _placed(value: Any, folder: Path) -> Any:
    return str(folder / Path(value).expanduser()) if isinstance(value, str) and value else value
