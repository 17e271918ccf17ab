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

from ...model.errors import KeepError, LedgerUnusable

if TYPE_CHECKING:
    from ...app import Keep
    from ...config import Settings
    from ...ledger.base import OpenReader
    from ...reading.read import Views
    from ...reading.verify import HostKnows

F = TypeVar("F", bound=Callable[..., Any])
First: TypeAlias = "Callable[[Keep], Awaitable[None]]"


@dataclass(frozen=True)
class Look:
    """An open ledger that can only be read."""

    path: Path
    views: Views
    read: OpenReader
    now_ms: int
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
        from .text import plain, say

        with open_look(self.settings()) as look:
            if look.read.refused and not tells:
                say(plain(look.read.refused))
            yield look

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
    from contextlib import closing

    from ...ledger.opening import open_reader
    from ...model.clock import SystemClock
    from ...reading.read import Views

    clock = SystemClock()
    with closing(open_reader(settings.path)) as read:
        yield Look(settings.path, Views(read, settings.policy, host), read, clock.now_ms(), clock.steady_ms)


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
