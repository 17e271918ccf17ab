"""`keep secrets`: which secrets are stored, and changing them. No command shows one."""

from __future__ import annotations

import os
from typing import Any

import click

from ...config import ENV_NEW_PASSPHRASE, Settings
from ...model.errors import ConfigError, NotFound
from ...reading.wording import count
from ...vault.keys import KeyPlaces
from ...vault.vault import Vault
from . import secret_input
from .ask_host import require_presence
from .command_session import CommandSession, with_json, with_session
from .text import did_you_mean, echo, echo_json, plain, say, table
from .wiring import connections, vault_of


@click.group()
def secrets() -> None:
    """The secrets of connectors and channels.

    Secrets are in an encrypted file, keep.secrets, beside the ledger's file or keep.toml. Its key is in the system's
    keyring, in a key file, or made from a passphrase. A running host uses a changed secret at its next call.
    """


@secrets.command(name="list")
@with_json
@with_session
def list_(session: CommandSession, as_json: bool) -> None:
    """Which secrets are stored and since when, and which are missing."""
    settings = session.settings(connectors=True)
    found = states(settings, vault_of(settings))
    if as_json:
        echo_json(found)
    elif found:
        rows = [(each["connection"], each["secret"], each["state"], each["set_at"] or "") for each in found]
        echo(*table(("CONNECTION", "SECRET", "STATE", "SET"), rows, flexible=1))
    else:
        echo("No connection of keep.toml needs a secret, and none is stored.")


def states(settings: Settings, vault: Vault) -> list[dict[str, Any]]:
    """Every secret that is stored or needed, with its state: stored, missing or unused."""
    needed = {(name, secret) for name, each in connections(settings).items() for secret in each.secrets}
    kept = {(each.connection, each.secret): each.set_at for each in vault.kept()}
    return [
        {"connection": connection, "secret": secret, "set_at": kept.get((connection, secret)),
         "state": "missing" if (connection, secret) not in kept else
         "stored" if (connection, secret) in needed else "unused"}
        for connection, secret in sorted(needed | kept.keys())
    ]


@secrets.command(name="set")
@click.argument("name")
@click.argument("secret")
@click.option("--from", "source", metavar="SOURCE",
              help="Where the value is: - (stdin), file:PATH or env:VARIABLE; without it you are asked, or stdin.")
@with_json
@with_session
def set_(session: CommandSession, name: str, secret: str, source: str | None, as_json: bool) -> None:
    """Store a secret of the connection NAME, in place of the one before."""
    require_presence(session)
    settings = session.settings(connectors=True)
    what = _declared(settings, name, secret)
    if source is None and secret_input.at_terminal():
        value = secret_input.ask_unseen(f"{secret} ({what})")
    else:
        value = secret_input.from_source(source or "-", f"{name}.{secret}")
    vault_of(settings).put(name, {secret: value})
    if as_json:
        echo_json({"connection": name, "secret": secret})
    else:
        echo(f"Stored, encrypted: {name}.{secret}. `keep doctor` tries it.")
    secret_input.warn_of_weak({secret: value})


def _declared(settings: Settings, name: str, secret: str) -> str:
    """What the connection says of a secret; one that it does not know would never be used."""
    found = connections(settings)
    if name not in found:
        advice = did_you_mean(name, found) if found else "There are none."
        table_of = name if "." in name else f"connectors.{name}"
        raise NotFound(f"keep.toml has no [{table_of}]. {advice} `keep connect NAME TYPE` makes one.")
    known = found[name].secrets
    if secret not in known:
        told = did_you_mean(secret, known) if known else "It needs none."
        raise NotFound(f"{name} has no secret {secret!r}. {told}")
    return str(known[secret])


@secrets.command()
@click.option("--to", "home", type=click.Choice(["keyring", "file", "passphrase"]),
              help="Where the new key shall be; without it, where the old one was.")
@with_json
@with_session
def rotate(session: CommandSession, home: Any, as_json: bool) -> None:
    """Encrypt every secret again, under new keys.

    The secrets themselves stay the same: change them where they come from, then `keep secrets set`. A new passphrase is
    asked for, or taken from KEEP_NEW_PASSPHRASE. Restart a host that was started with the old one.
    """
    require_presence(session)
    settings = session.settings()
    vault = vault_of(settings)
    new = KeyPlaces(settings.key_file, os.environ.get(ENV_NEW_PASSPHRASE) or None, secret_input.passphrase_prompt())
    if (home or vault.home()) == "passphrase" and not new.passphrase and new.ask is None:
        raise ConfigError(f"There is no new passphrase. Put it in {ENV_NEW_PASSPHRASE}, or say this at a terminal.")
    chosen = vault.rotate(new, home)
    done = {"path": str(vault.path), "key": chosen, "secrets": len(vault.kept())}
    echo_json(done) if as_json else echo(
        f"{count(len(vault.kept()), 'secret')} in {plain(str(vault.path))} encrypted anew; the key: {chosen}.")
    if chosen == "passphrase":
        say("Restart a running host with the new passphrase.")


@secrets.command()
@click.argument("name")
@click.argument("secret", required=False)
@with_json
@with_session
def delete(session: CommandSession, name: str, secret: str | None, as_json: bool) -> None:
    """Delete a secret of the connection NAME, or all of them."""
    require_presence(session)
    gone = vault_of(session.settings()).delete(name, secret)
    if as_json:
        echo_json({"connection": name, "deleted": gone})
    else:
        echo(f"Deleted: {', '.join(f'{name}.{each}' for each in gone)}. It stays valid in the system that issued it.")
