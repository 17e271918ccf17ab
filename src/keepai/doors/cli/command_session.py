"""What every command starts from: the settings, a read-only look at the ledger, and what a running host says.

A look opens the ledger read-only and needs no lock.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

import click

from ...config import Settings, load
from ...model.clock import SystemClock
from ...model.errors import KeepError
from ...model.principals import ENV_AGENT_TOKEN, Principal
from ...reading.look import Look, open_look
from ...reading.views import Views
from .. import agents, control
from .text import LINES, plain, say
from .wiring import give_secrets, make_channel, make_connector

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CommandSession:
    """The global options of one call of `keep`."""

    config: str | None = None
    db: str | None = None

    def settings(self, *, connectors: bool = False) -> Settings:
        """The settings that hold; with `connectors`, these are made, and mistakes in them are errors."""
        if not connectors:
            return load(self.config, self.db, os.environ)
        return give_secrets(load(self.config, self.db, os.environ, make_connector, make_channel))

    @contextmanager
    def look(self, *, tells: bool = False) -> Iterator[Look]:
        """The ledger, to be read. If hosts refuse it, this is printed here, unless the command `tells` it itself."""
        settings, token = self.settings(), agent_token()
        if token is not None:
            read = agents.HostReader(settings.ledger, token)
            clock = SystemClock()
            yield Look(Views(read, settings.policy), read, clock.now_ms(), clock.steady_ms)
            return
        with open_look(settings.ledger, settings.policy) as look:
            if look.read.refused and not tells:
                say(plain(look.read.refused))
            yield look

    def ask(
        self, act: str, params: Mapping[str, Any], wait_s: float = control.ANSWER_S, pin: str | None = None,
        model: Principal | None = None,
    ) -> Any:
        """What the running host answers: to the agent whose token is in the environment, else to this user.

        With `model`, to one of Keep's own models."""
        ledger, token = self.settings().ledger, agent_token()
        if token is not None:
            return agents.ask(ledger, token, act, params, wait_s)
        return control.ask(ledger, act, params, wait_s, pin, model)

    def told(self, look: str, **params: Any) -> Any:
        """What the running host says to a look that needs what only it knows; None if none does."""
        try:
            return self.ask(look, params, control.LOOK_S)
        except (control.NoHost, KeepError):
            return None


def agent_token() -> str | None:
    """The token of the agent as which this command acts, if it is an agent's."""
    return os.environ.get(ENV_AGENT_TOKEN)


def with_json(function: F) -> F:
    """Give a command the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def with_shown(function: F) -> F:
    """Give a command the option `--shown`."""
    return click.option(
        "--shown", metavar="VERSION", type=click.IntRange(min=0),
        help="The version that you were shown. If anything has changed since, nothing is done.",
    )(function)


#: Gives a command the session as its first argument.
with_session = click.pass_obj


# -- watching -----------------------------------------------------------------------------------------


POLL_S = 0.2
OLD_S = 10.0  #: after which a terminal is drawn anew all the same: "3 s ago" grows old


def with_watch(function: F) -> F:
    """Give a command the option `--watch`; it stands above `with_session`."""

    @click.option("--watch", is_flag=True, help="Show it again whenever something changes, until Ctrl-C.")
    @click.pass_context
    @wraps(function)
    def wrapped(ctx: click.Context, /, *args: Any, watch: bool, **kwargs: Any) -> Any:
        draw = partial(ctx.invoke, function, *args, **kwargs)
        if not watch:
            return draw()
        ctx.meta[LINES] = True
        return _repeat(ctx.find_object(CommandSession) or CommandSession(), draw, kwargs["as_json"])

    return wrapped  # type: ignore[return-value]


def _repeat(session: CommandSession, draw: Callable[[], Any], as_json: bool) -> None:
    terminal = sys.stdout.isatty() and not as_json
    with session.look() as look:
        seen: int | None = None
        drawn_at = look.steady()
        try:
            while True:
                change = look.read.change()
                if change != seen or (terminal and look.steady() - drawn_at > OLD_S * 1000):
                    seen, drawn_at = change, look.steady()
                    _draw(draw, terminal)
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            return


def _draw(draw: Callable[[], Any], terminal: bool) -> None:
    """Once; the exit code that it would have had alone does not end the watching."""
    if terminal:
        click.clear()
    try:
        draw()
    except SystemExit:
        pass
    sys.stdout.flush()
