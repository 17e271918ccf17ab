"""What every command starts from: the settings, a read-only look at the ledger, and a way to act.

A look opens the ledger read-only and needs no lock. An act goes to the running host; without one, this
process takes the ledger's lock and is the host for that one act.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from ...model.errors import KeepError, LedgerUnusable, NotFound

if TYPE_CHECKING:
    from ...app import Keep
    from ...config import Settings
    from ...ledger.base import Reader
    from ..read import Views
    from ..verify import HostKnows

F = TypeVar("F", bound=Callable[..., Any])
First: TypeAlias = "Callable[[Keep], Awaitable[None]]"


@dataclass(frozen=True)
class Look:
    """An open ledger that can only be read."""

    path: Path
    views: Views
    read: Reader
    now_ms: int
    refused: str | None  # why no host starts with it, although it can be read
    change: Callable[[], int]  # a number that changes whenever somebody commits
    steady: Callable[[], int]  # milliseconds on a clock that only grows


@dataclass(frozen=True)
class Session:
    """The global options of one call of `keep`."""

    config: str | None = None
    db: str | None = None

    def settings(self, *, connectors: bool = False) -> Settings:
        """The settings that hold; with `connectors`, these are made, and mistakes in them told."""
        from ...config import load

        if not connectors:
            return load(self.config, self.db, os.environ)
        from .wiring import entrust, make, make_channel

        return entrust(load(self.config, self.db, os.environ, make, make_channel))

    @contextmanager
    def look(self, *, tells: bool = False) -> Iterator[Look]:
        """The ledger, to be read. That hosts refuse it is said here, unless the command `tells` it itself."""
        import apsw

        from ...ledger.sqlite.connection import unusable
        from .text import plain, say

        settings = self.settings()
        try:
            with open_look(settings) as look:
                if look.refused and not tells:
                    say(plain(look.refused))
                yield look
        except apsw.Error as error:
            raise unusable(error, settings.path) from None

    def act(self, act: str, *, first: First | None = None, **params: Any) -> Any:
        """Have the host do something, or do it here if there is none, after what must be done `first` then."""
        from .. import control

        settings = self.settings()
        try:
            return control.ask(settings.path, act, params)
        except control.NoHost:
            return self._act_here(act, params, first)

    def told(self, look: str, **params: Any) -> Any:
        """What the running host says to a look that needs what only it knows; None if none does."""
        from .. import control

        try:
            return control.ask(self.settings().path, look, params, control.LOOK_S)
        except (control.NoHost, KeepError):
            return None

    def _act_here(self, act: str, params: Mapping[str, Any], first: First | None) -> Any:
        import asyncio

        from .. import control
        from .wiring import unlock

        settings = self.settings(connectors=True)
        unlock(settings)

        async def perform() -> Any:
            async with host(settings) as keep:
                if first is not None:
                    await first(keep)
                return await control.perform(keep, act, params)

        try:
            return asyncio.run(perform())
        except LedgerUnusable:
            try:  # a host that was just starting listens by now
                return control.ask(settings.path, act, params)
            except control.NoHost:
                pass
            raise


def host(settings: Settings, *, accept_older: bool = False) -> Keep:
    """A host with these settings, to be entered; what it does is done in the name of this user."""
    from ...app import Keep
    from ...engine.repair import by_command

    repair = by_command(settings.repair) if settings.repair else None
    return Keep(
        settings.path, connectors=settings.connectors, policy=settings.policy, actor=_actor(), repair=repair,
        accept_older=accept_older, channels=settings.channels,
    )


def _actor() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "person"


@contextmanager
def open_look(settings: Settings, host: HostKnows | None = None) -> Iterator[Look]:
    """A read-only look at the ledger of these settings; it creates nothing. `host` is one in this process."""
    from ...ledger.sqlite.connection import Statements, open_reader
    from ...ledger.sqlite.lock import mark_beside
    from ...ledger.sqlite.store import refusal
    from ...model.clock import SystemClock
    from ..read import Views

    mark = mark_beside(settings.path.resolve())  # before the ledger, which is never behind it
    _check_file(settings.path, refusal(settings.path, mark, None))
    connection = open_reader(settings.path)
    try:
        _check_schema(connection, settings.path)
        read = Statements(connection)
        views = Views(read, settings.policy, host)
        clock, older = SystemClock(), refusal(settings.path, mark, read.one("ledger_reached"))
        refused = older.message if older else None
        changed = lambda: int(connection.pragma("data_version"))  # noqa: E731
        yield Look(settings.path, views, read, clock.now_ms(), refused, changed, clock.steady_ms)
    finally:
        connection.close()


def _check_file(path: Path, refused: KeepError | None) -> None:
    if path.is_dir():
        raise LedgerUnusable(f"{path} is a folder. Name the ledger's file with --db or in keep.toml.")
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = 0
    except OSError as error:
        raise LedgerUnusable(f"{path} cannot be opened: {error.strerror}.") from None
    if not size:
        none = NotFound(f"There is no ledger at {path} yet. `keep deploy FILE` makes one; --db names another.")
        raise refused or none


def _check_schema(connection: Any, path: Path) -> None:
    from ...ledger.sqlite.connection import APPLICATION_ID
    from ...ledger.sqlite.migrate import migrations

    if connection.pragma("application_id") != APPLICATION_ID:
        raise LedgerUnusable(f"{path} is a SQLite database of some other program. Name another file.")
    have, want = int(connection.pragma("user_version")), max(migrations())
    if have > want:
        raise LedgerUnusable(
            f"{path} was written by a newer Keep (schema {have}; this one knows {want}). Nothing was touched. "
            "Upgrade Keep (pip install -U keepai)."
        )
    if have < want:
        raise LedgerUnusable(
            f"{path} was written by an older Keep (schema {have}; this one reads {want}). `keep dev` brings it up to "
            "date, with a backup, or says why it cannot."
        )


def with_json(function: F) -> F:
    """Give a command the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def with_shown(function: F) -> F:
    """Give a command the option `--shown`."""
    return click.option(
        "--shown", metavar="VERSION", type=click.IntRange(min=0),
        help="The version that you were shown: if anything has moved since, nothing is done.",
    )(function)


def with_session(function: F) -> F:
    """Give a command the session as its first argument."""

    @click.pass_obj
    @wraps(function)
    def wrapped(session: Session, /, *args: Any, **kwargs: Any) -> Any:
        return function(session, *args, **kwargs)

    return wrapped  # type: ignore[return-value]
