"""`--watch`: shows what a command shows, anew whenever somebody commits to the ledger, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from .command_session import CommandSession
from .text import LINES

F = TypeVar("F", bound=Callable[..., Any])

POLL_S = 0.2
OLD_S = 10.0  #: after which a terminal is drawn anew all the same: "3 s ago" grows old


def with_watch(function: F) -> F:
    """Give a command the option `--watch`; it stands above `with_session`."""

    @click.option("--watch", is_flag=True, help="Show it anew whenever something changes, until Ctrl-C.")
    @click.pass_context
    @wraps(function)
    def wrapped(ctx: click.Context, /, *args: Any, watch: bool, **kwargs: Any) -> Any:
        def draw() -> Any:
            return ctx.invoke(function, *args, **kwargs)

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
