"""What every command starts from: the settings, a read-only look at the ledger, and what a running host says.

A look opens the ledger read-only and needs no lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from ...config import Settings, load
from ...model.errors import KeepError
from ...reading.look import Look, open_look
from .. import control
from .text import plain, say
from .wiring import give_secrets, make_channel, make_connector

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CommandSession:
    """The global options of one call of `keep`."""

    config: str | None = None
    db: str | None = None

    def settings(self, *, connectors: bool = False) -> Settings:
        """The settings that hold; with `connectors`, these are made, and mistakes in them told."""
        if not connectors:
            return load(self.config, self.db, os.environ)
        return give_secrets(load(self.config, self.db, os.environ, make_connector, make_channel))

    @contextmanager
    def look(self, *, tells: bool = False) -> Iterator[Look]:
        """The ledger, to be read. That hosts refuse it is said here, unless the command `tells` it itself."""
        settings = self.settings()
        with open_look(settings.path, settings.policy) as look:
            if look.read.refused and not tells:
                say(plain(look.read.refused))
            yield look

    def told(self, look: str, **params: Any) -> Any:
        """What the running host says to a look that needs what only it knows; None if none does."""
        try:
            return control.ask(self.settings().path, look, params, control.LOOK_S)
        except (control.NoHost, KeepError):
            return None


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
    def wrapped(session: CommandSession, /, *args: Any, **kwargs: Any) -> Any:
        return function(session, *args, **kwargs)

    return wrapped  # type: ignore[return-value]
