"""`keep doctor`: whether everything is there that Keep needs, line by line, with what to do about the rest."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...connectors.redacted import redacted, redactor_of
from ...ledger.checks import check
from ...ledger.opening import examine, library
from ...model.clock import SystemClock
from ...model.errors import ConfigError, KeepError, LedgerUnusable, NotFound
from ...model.ledger_address import shown
from ...reading.look import Look, open_look
from ...reading.shared_hosts import at_work, place
from ...reading.wording import count, size
from ...vault.file import is_others
from ..connections import descriptors, shortage
from ..control import is_running, socket_path
from ..health_checks import (
    FAIL,
    OK,
    WARN,
    HealthLine,
    check_channels,
    check_clock,
    check_connector,
    check_disk,
    check_hosts,
    check_sandbox,
)
from ..peers import misplaced
from ..webhooks import deliveries_placed, inboxes
from .command_session import CommandSession, with_json, with_session
from .secret_input import weakness
from .secrets import states
from .text import echo, echo_json, field, plain
from .wiring import connections, vault_of

PYTHON_OLDEST = (3, 11)
CHECKED_MAX = 64 << 20  #: a larger ledger is left to `keep db check`

@click.command()
@with_json
@with_session
def doctor(session: CommandSession, as_json: bool) -> None:
    """See what is missing or wrong here, and what to do about it. Exit code 1 if something fails.

    It looks at Python, SQLite, the sandbox, keep.toml, the secrets, each connector, the ledger and where it lies (a
    disk, or a PostgreSQL server), the channels, the host, the clock and the connections that it takes. It changes
    nothing and sends nothing.
    """
    found = asyncio.run(_examined(session))
    if as_json:
        echo_json([vars(each) for each in found])
    else:
        echo(*(line for each in found for line in _told(each)))
    sys.exit(1 if any(each.state == FAIL for each in found) else 0)


def _told(found: HealthLine) -> Iterator[str]:
    colour = {OK: "green", WARN: "yellow", FAIL: "red"}[found.state]
    said = f"{found.said} {found.do}".rstrip()
    first, *rest = field(found.name, said)
    yield click.style(f"{found.state:<4}", fg=colour) + first
    yield from (" " * 4 + each for each in rest)


async def _examined(session: CommandSession) -> list[HealthLine]:
    found = [_python(), _sqlite(), *await check_sandbox()]
    try:
        settings = session.settings(connectors=True)
    except ConfigError as error:
        told, *_ = plain(error.message).split("\n")
        return [*found, HealthLine("keep.toml", FAIL, told, "Mend it; `keep check` lists everything that is wrong.")]
    found.append(_config(settings))
    found += secrets_found(settings)
    redactor = redactor_of(settings.connectors)
    with deliveries_placed(settings.connectors, settings.ledger):
        for each in settings.connectors:
            found.append(await check_connector(redacted(each, redactor)))
            await each.shut_down()
    return [*found, *_webhooks(settings), *_server(settings), *_ledger(settings), *_disk(settings),
            connections_found(settings)]


# -- this machine ----------------------------------------------------------------------------------


def _python() -> HealthLine:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_OLDEST:
        return HealthLine("Python", FAIL, f"{version} is too old.", "Install Python 3.11 or newer.")
    return HealthLine("Python", OK, version)


def _sqlite() -> HealthLine:
    try:
        return HealthLine("SQLite", OK, f"{library()}, which apsw brings")
    except LedgerUnusable as error:
        return HealthLine("SQLite", FAIL, error.message)


def connections_found(settings: Settings) -> HealthLine:
    """How many connections a host takes that is started from here, and what it keeps for its own work."""
    (limit, reserve), policy = descriptors(), settings.policy
    most, one, seconds = policy.connections_max, policy.connections_per_address_max, policy.request_s
    said = (f"the page and the webhook port hold {most:,} each, {one:,} of one address; a request has {seconds:g} s "
            f"for its head and {seconds:g} s for its body")
    short = shortage()
    if short:
        return HealthLine("connections", WARN, f"{said}.", short)
    kept = f"; {reserve:,} of {limit:,} descriptors are kept for the host's own work" if limit else ""
    return HealthLine("connections", OK, said + kept)


def _webhooks(settings: Settings) -> list[HealthLine]:
    """Where senders post to, if a connector takes deliveries in."""
    if not (names := inboxes(settings)):
        return []
    host, port = settings.hooks
    at = f"http://{f'[{host}]' if ':' in host else host}:{port}/hooks/"
    said = f"while a host runs, deliveries come in at {', '.join(at + name for name in names)}"
    if host not in ("127.0.0.1", "::1", "localhost"):
        return [HealthLine("webhooks", OK, said)]
    do = "Only this machine reaches that: senders elsewhere need a proxy or a tunnel with TLS."
    return [HealthLine("webhooks", OK, f"{said}.", do)]


# -- what is configured ----------------------------------------------------------------------------


def _config(settings: Settings) -> HealthLine:
    if settings.file is None:
        do = "`keep init FOLDER` makes one."
        return HealthLine("keep.toml", WARN, "there is none here, so no connectors either.", do)
    names = ", ".join(each.name for each in settings.connectors) or "none"
    return HealthLine("keep.toml", OK, f"{settings.file}; connectors: {names}")


def secrets_found(settings: Settings) -> list[HealthLine]:
    """Whether every secret that a connector needs is there and can be read; nothing where none is needed."""
    vault = vault_of(settings)
    if not vault.path.exists() and not any(each.secrets for each in connections(settings).values()):
        return []
    try:
        found = states(settings, vault)
        vault.values("")
        exposed = vault.path.exists() and is_others(vault.path)
    except KeepError as error:
        return [HealthLine("secrets", FAIL, plain(error.message))]
    stored = [each for each in found if each["state"] != "missing"]
    said = f"{count(len(stored), 'secret')} in {vault.path}" + (f", its key: {vault.home()}" if stored else "")
    told = HealthLine("secrets", OK, said)
    if exposed:
        told = HealthLine("secrets", WARN, f"{said}; others may read the file.", f"Say: chmod 600 {vault.path}")
    return [
        told,
        *(_secret_found(each) for each in found if each["state"] != "stored"),
        *(each for name in sorted(connections(settings)) for each in _weak_found(name, vault.values(name))),
    ]


def _weak_found(connection: str, secrets: Mapping[str, str]) -> Iterator[HealthLine]:
    for secret, value in secrets.items():
        told = weakness(f"{plain(connection)}.{plain(secret)}", value)
        if told:
            yield HealthLine("secrets", WARN, told, f"Then say: keep secrets set {connection} {secret}")


def _secret_found(state: Mapping[str, Any]) -> HealthLine:
    name = f"{state['connection']} {state['secret']}"
    if state["state"] == "missing":
        return HealthLine("secrets", WARN, f"{plain(name)} is not stored.", f"If it is needed: keep secrets set {name}")
    return HealthLine("secrets", WARN, f"{plain(name)} is stored, and keep.toml has no connection that uses it.",
                 f"If it is not needed: keep secrets delete {name}")


# -- the ledger ------------------------------------------------------------------------------------


def _server(settings: Settings) -> list[HealthLine]:
    """Whether the server that keeps the ledger is fit for that, if one does."""
    if isinstance(settings.ledger, Path):
        return []
    found = examine(settings.ledger, SystemClock())
    return [HealthLine(each.name, each.state, plain(each.said), plain(each.do)) for each in found]


def _disk(settings: Settings) -> list[HealthLine]:
    """How much room there is for a file; that of a server is not seen from here."""
    return [check_disk(settings.ledger)] if isinstance(settings.ledger, Path) else []


def _ledger(settings: Settings) -> list[HealthLine]:
    try:
        with open_look(settings.ledger, settings.policy) as look:
            found = _content(look, shown(settings.ledger))
            return [*found, *check_channels(look), _host(look, settings.ledger), *check_hosts(look), check_clock(look)]
    except NotFound as error:
        return [HealthLine("ledger", WARN, error.message)]
    except KeepError as error:
        return [HealthLine("ledger", FAIL, plain(error.message))]


def _content(look: Look, name: str) -> Iterator[HealthLine]:
    if look.read.refused:
        yield HealthLine("ledger", FAIL, plain(look.read.refused))
        return
    bytes_ = look.read.bytes()
    workflows = count(len(look.read.all("workflow_all")), "workflow")
    said = f"{name}: {workflows}, {size(bytes_)}"
    if bytes_ > CHECKED_MAX:
        yield HealthLine("ledger", OK, f"{said}; it is large and was not checked.", "`keep db check` checks it.")
        return
    wrong = [each for each in check(look.read) if not each.sound]
    if wrong:
        told = f"{said}. {wrong[0].name}: {plain(wrong[0].said)}"
        yield HealthLine("ledger", FAIL, told, "`keep db check` lists everything.")
    else:
        yield HealthLine("ledger", OK, f"{said}; checked and whole")


def _host(look: Look, ledger: str | Path) -> HealthLine:
    why = misplaced(socket_path(ledger))
    if why:
        return HealthLine("host", FAIL, "commands do not trust the place of its socket.", plain(why))
    if places := [place(host) for host in at_work(look.read)]:
        return HealthLine("host", OK, plain(f"at work: {', '.join(places)}"))
    if is_running(ledger):
        return HealthLine("host", OK, "one is running")
    return HealthLine("host", WARN, "none is running: nothing happens.", "`keep dev` or `keep serve` starts one.")
