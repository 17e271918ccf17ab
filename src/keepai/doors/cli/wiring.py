"""Makes the connectors and channels that keep.toml describes, with their secrets; paths are relative to that file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import connectors, notices
from ...config import LEDGER, MODEL, ModelSettings, Settings
from ...connectors.base import Connector
from ...engine.digest_times import daily
from ...model.errors import ConfigError, VaultClosed
from ...notices.base import Channel
from ...vault.keys import KeyPlaces
from ...vault.vault import Vault, path_beside
from .secret_input import passphrase_prompt
from .text import plain


def make_connector(type_name: str, name: str, settings: Mapping[str, Any], folder: Path) -> Connector:
    """One connector; raises `ConfigError`."""
    parameters = inspect.signature(connectors.load(type_name, folder)).parameters.items()
    paths = {key for key, parameter in parameters if "Path" in str(parameter.annotation)}  # as its types say
    placed = {key: str(folder / Path(value).expanduser()) for key, value in settings.items()
              if key in paths and isinstance(value, str) and value}
    return connectors.make(type_name, name, {**settings, **placed}, folder)


def make_channel(
    type_name: str, name: str, settings: Mapping[str, Any], folder: Path, digest: str | None,
) -> Channel:
    """One channel; raises `ConfigError`."""
    if digest is not None:
        daily(digest)
    return notices.make(type_name, name, settings, folder, digest)


def connections(settings: Settings) -> dict[str, Connector | Channel | ModelSettings]:
    """Everything that may have secrets, by the name under which these are kept."""
    return {each.name: each for each in settings.connectors} | {
        f"{notices.SECTION}.{each.name}": each for each in settings.channels} | (
        {MODEL: settings.model} if settings.model else {})


def give_secrets(settings: Settings) -> Settings:
    """Give each connector and channel its own secrets; nothing is opened before one of them is used."""
    _check_apart(settings)
    keepers = {name: each for name, each in connections(settings).items() if each.secrets}
    if not keepers:
        return settings
    vault = vault_of(settings)
    for name, each in keepers.items():
        if not isinstance(each, ModelSettings):  # the model's key is fetched when a model is asked
            each.entrust(vault.view(name))
    return replace(settings, vault=vault)


def _check_apart(settings: Settings) -> None:
    """Refuse a connector whose files are Keep's own: a workflow could read the ledger, or change another's script.

    `keep dev` would deploy that script."""
    own = [secrets_file(settings), settings.key_file, settings.file]
    if isinstance(settings.ledger, Path):
        own.insert(0, settings.ledger)
    if settings.file is not None:
        own += sorted(settings.file.parent.glob("*.js"))
    for each in settings.connectors:
        root = getattr(each, "path", None)
        if not isinstance(root, Path):  # a connector of the owner's may mean something else by that name
            continue
        inside = [file for file in own if file and file.resolve().is_relative_to(root.resolve())]
        if inside:
            raise ConfigError(
                f"[connectors.{each.name}]: its path {root} holds files of Keep itself ({inside[0].name}). A workflow "
                "could read the ledger or change another workflow's script there. Name a folder of its own."
            )


def unlock_secrets(settings: Settings) -> str | None:
    """Open the secrets before anything runs, so that a passphrase is asked for now. Gives the problem, if any."""
    try:
        if settings.vault is not None:
            settings.vault.values("")
    except VaultClosed as error:  # a host starts nevertheless, and what needs a secret becomes a question
        return plain(error.message)
    return None


def secrets_file(settings: Settings) -> Path:
    """Where the secrets are: beside the ledger's file, or beside keep.toml if the ledger is in a database."""
    if isinstance(settings.ledger, Path):
        return path_beside(settings.ledger)
    return path_beside((settings.file.parent if settings.file else Path()) / LEDGER)


def vault_of(settings: Settings) -> Vault:
    """The secrets of these settings."""
    return Vault(secrets_file(settings), KeyPlaces(settings.key_file, settings.passphrase, passphrase_prompt()))
