"""`keep doctor`: whether everything is there that Keep needs, line by line, with what to do about the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ...model.errors import ConfigError, KeepError, LedgerUnusable, NotFound
from .session import Look, Session, open_look, with_json, with_session
from .text import ago, count, echo, echo_json, field, plain, size

if TYPE_CHECKING:
    from pathlib import Path

    from ...config import Settings
    from ...connectors.base import Connector
    from ...ledger.base import Row

PYTHON_OLDEST = (3, 11)
FREE_FAIL, FREE_WARN = 64 << 20, 1 << 30  #: bytes of the ledger's disk
CHECKED_MAX = 64 << 20  #: a larger ledger is left to `keep db check`
CLOCK_BACK_MS = 60_000
CONNECTOR_S = 10.0

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Found:
    """One line."""

    name: str
    state: str
    said: str
    do: str = ""


@click.command()
@with_json
@with_session
def doctor(session: Session, as_json: bool) -> None:
    """See what is missing or wrong here, and what to do about it. Exit code 1 if something fails.

    It looks at Python, SQLite, the sandbox, keep.toml, the secrets, each connector, the ledger, the channels, the host,
    the disk, the clock and the connections that it takes. It changes nothing and sends nothing.
    """
    import asyncio

    found = asyncio.run(_examined(session))
    if as_json:
        echo_json([vars(each) for each in found])
    else:
        echo(*(line for each in found for line in _told(each)))
    sys.exit(1 if any(each.state == FAIL for each in found) else 0)


def _told(found: Found) -> Iterator[str]:
    colour = {OK: "green", WARN: "yellow", FAIL: "red"}[found.state]
    said = f"{found.said} {found.do}".rstrip()
    first, *rest = field(found.name, said)
    yield click.style(f"{found.state:<4}", fg=colour) + first
    yield from (" " * 4 + each for each in rest)


async def _examined(session: Session) -> list[Found]:
    from ...connectors.redacted import redacted, redactor_of

    found = [_python(), _sqlite(), *await sandbox_found()]
    try:
        settings = session.settings(connectors=True)
    except ConfigError as error:
        told, *_ = plain(error.message).split("\n")
        return [*found, Found("keep.toml", FAIL, told, "Mend it; `keep check` lists everything that is wrong.")]
    found.append(_config(settings))
    found += secrets_found(settings)
    redactor = redactor_of(settings.connectors)
    found += [await connector_found(redacted(each, redactor)) for each in settings.connectors]
    return [*found, *_ledger(settings), disk_found(settings.path), connections_found(settings)]


# -- this machine ----------------------------------------------------------------------------------


def _python() -> Found:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_OLDEST:
        return Found("Python", FAIL, f"{version} is too old.", "Install Python 3.11 or newer.")
    return Found("Python", OK, version)


def _sqlite() -> Found:
    from ...ledger.opening import library

    try:
        return Found("SQLite", OK, f"{library()}, which apsw brings")
    except LedgerUnusable as error:
        return Found("SQLite", FAIL, error.message)


async def sandbox_found() -> list[Found]:
    """A worker is started, and says which locks hold."""
    from ...runtime.javascript.runtime import JavaScriptRuntime

    runtime = JavaScriptRuntime(workers_max=1)
    try:
        locks = await runtime.protections()
    except (KeepError, OSError) as error:
        do = "Install Keep again (make setup, or pip install --force-reinstall keepai)."
        return [Found("sandbox", FAIL, f"no script can run: {error}.", do)]
    finally:
        await runtime.close()
    missing = [lock for lock in locks if not lock.active]
    held = f"{len(locks) - len(missing)} of {len(locks)}"
    return [
        Found("sandbox", OK, f"WebAssembly, and {held} protections of the system"),
        *(Found("sandbox", WARN, f"without “{lock.name}”: {lock.why}.", "Scripts still run in WebAssembly.")
          for lock in missing),
    ]


def disk_found(ledger: Path) -> Found:
    """How much room the ledger has."""
    import shutil

    folder = ledger.resolve().parent
    if not folder.is_dir():
        return Found("disk", FAIL, f"there is no folder {folder}.", "Make it, or name another ledger with --db.")
    free = shutil.disk_usage(folder).free
    if free < FREE_FAIL:
        return Found("disk", FAIL, f"{size(free)} free.", "Free some space: without it the host stops.")
    if free < FREE_WARN:
        return Found("disk", WARN, f"{size(free)} free.", "`keep db prune` and then `keep db vacuum` make some.")
    return Found("disk", OK, f"{size(free)} free")


def connections_found(settings: Settings) -> Found:
    """How many connections a host takes that is started from here, and what it keeps for its own work."""
    from ..connections import descriptors, shortage

    (limit, reserve), policy = descriptors(), settings.policy
    most, one, seconds = policy.connections_max, policy.connections_per_address_max, policy.request_s
    said = (f"the page and the webhook port hold {most:,} each, {one:,} of one address; a request has {seconds:g} s "
            f"for its head and {seconds:g} s for its body")
    short = shortage()
    if short:
        return Found("connections", WARN, f"{said}.", short)
    kept = f"; {reserve:,} of {limit:,} descriptors are kept for the host's own work" if limit else ""
    return Found("connections", OK, said + kept)


# -- what is configured ----------------------------------------------------------------------------


def _config(settings: Settings) -> Found:
    if settings.file is None:
        return Found("keep.toml", WARN, "there is none here, so no connectors either.", "`keep init FOLDER` makes one.")
    names = ", ".join(each.name for each in settings.connectors) or "none"
    return Found("keep.toml", OK, f"{settings.file}; connectors: {names}")


def secrets_found(settings: Settings) -> list[Found]:
    """Whether every secret that a connector needs is there and can be read; nothing where none is needed."""
    from ...vault.file import is_others
    from .secrets import states
    from .wiring import connections, vault_of

    vault = vault_of(settings)
    if not vault.path.exists() and not any(each.secrets for each in connections(settings).values()):
        return []
    try:
        found = states(settings, vault)
        vault.values("")
        exposed = vault.path.exists() and is_others(vault.path)
    except KeepError as error:
        return [Found("secrets", FAIL, plain(error.message))]
    stored = [each for each in found if each["state"] != "missing"]
    said = f"{count(len(stored), 'secret')} in {vault.path}" + (f", its key: {vault.home()}" if stored else "")
    return [
        Found("secrets", WARN, f"{said}; others may read the file.", f"Say: chmod 600 {vault.path}") if exposed else
        Found("secrets", OK, said),
        *(_secret_found(each) for each in found if each["state"] != "stored"),
        *(each for name in sorted(connections(settings)) for each in _weak_found(name, vault.values(name))),
    ]


def _weak_found(connection: str, secrets: Mapping[str, str]) -> Iterator[Found]:
    from .entering import weakness

    for secret, value in secrets.items():
        told = weakness(f"{plain(connection)}.{plain(secret)}", value)
        if told:
            yield Found("secrets", WARN, told, f"Then say: keep secrets set {connection} {secret}")


def _secret_found(state: Mapping[str, Any]) -> Found:
    name = f"{state['connection']} {state['secret']}"
    if state["state"] == "missing":
        return Found("secrets", WARN, f"{plain(name)} is not stored.", f"If it is needed: keep secrets set {name}")
    return Found("secrets", WARN, f"{plain(name)} is stored, and keep.toml has no connection that uses it.",
                 f"If it is not needed: keep secrets delete {name}")


async def connector_found(connector: Connector) -> Found:
    """What a connector says of itself; it may raise anything, and that is its answer."""
    import asyncio

    name = f"ctx.{connector.name}"
    [answer] = await asyncio.gather(asyncio.wait_for(connector.check(), CONNECTOR_S), return_exceptions=True)
    if isinstance(answer, TimeoutError):
        return Found(name, FAIL, f"did not answer within {CONNECTOR_S:g} s.", "Is its system reachable from here?")
    if isinstance(answer, BaseException):
        told = answer.message if isinstance(answer, KeepError) else f"{type(answer).__name__}: {answer}"
        return Found(name, FAIL, plain(told), f"Look at [connectors.{connector.name}] in keep.toml.")
    account = f" ({plain(connector.account)})" if connector.account else ""
    if isinstance(answer, str):
        return Found(name, WARN, f"was not tried{account}: {plain(answer)}.")
    return Found(name, OK, f"answers{account}")


# -- the ledger ------------------------------------------------------------------------------------


def _ledger(settings: Settings) -> list[Found]:
    try:
        with open_look(settings) as look:
            return [*_content(look), *channels_found(look), _host(look), clock_found(look)]
    except NotFound as error:
        return [Found("ledger", WARN, error.message)]
    except KeepError as error:
        return [Found("ledger", FAIL, plain(error.message))]


def _content(look: Look) -> Iterator[Found]:
    from ...ledger.checks import check

    if look.read.refused:
        yield Found("ledger", FAIL, plain(look.read.refused))
        return
    bytes_ = look.path.stat().st_size
    workflows = count(len(look.read.all("workflow_all")), "workflow")
    said = f"{look.path}: {workflows}, {size(bytes_)}"
    if bytes_ > CHECKED_MAX:
        yield Found("ledger", OK, f"{said}; it is large and was not checked.", "`keep db check` checks it.")
        return
    wrong = [each for each in check(look.read) if not each.sound]
    yield Found("ledger", OK, f"{said}; checked and whole") if not wrong else (
        Found("ledger", FAIL, f"{said}. {wrong[0].name}: {plain(wrong[0].said)}", "`keep db check` lists everything."))


def channels_found(look: Look) -> list[Found]:
    """How each channel does that a host has used."""
    return [_channel_found(look, row) for row in look.read.all("channel_all")]


def _channel_found(look: Look, row: Row) -> Found:
    name, told_at = f"notify.{plain(row['name'])}", row["told_at"]
    last = f"told somebody {ago(told_at, look.now_ms)}" if told_at else "has told nobody yet"
    if row["error"] is None:
        return Found(name, OK, last)
    again = f" It is tried again {ago(row['retry_at'], look.now_ms)}." if row["retry_at"] else ""
    since = ago(row["failing_since_at"], look.now_ms)
    said = f"fails, since {since}: {plain(row['error'])} It {last}.{again}"
    return Found(name, FAIL if row["attempts"] else WARN, said, f"Mend it, then say: keep notify test {row['name']}")


def _host(look: Look) -> Found:
    from ..control import is_running, socket_path
    from ..peers import misplaced

    why = misplaced(socket_path(look.path))
    if why:
        return Found("host", FAIL, "commands do not trust the place of its socket.", plain(why))
    if is_running(look.path):
        return Found("host", OK, "one is running")
    return Found("host", WARN, "none is running: nothing happens.", "`keep dev` or `keep serve` starts one.")


def clock_found(look: Look) -> Found:
    """Whether the clock is behind what was already written."""
    row: Any = look.read.one("account_last")
    newest = int(row["at"]) if row and row["at"] is not None else 0
    if newest > look.now_ms + CLOCK_BACK_MS:
        told = f"it was set back: the newest row of the ledger is of {ago(newest, look.now_ms)}."
        return Found("clock", WARN, told, "Set it right. Nothing is lost meanwhile: order does not go by the clock.")
    return Found("clock", OK, "not behind the ledger")
