"""How a command acts: the running host does it.

Without one, this process takes the ledger's lock and is the host for that one act; an agent's command never does. If
the host wants the PIN of a person, it is asked for at the terminal, once in the life of this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...app import Keep
from ...engine import tokens_and_pins
from ...model.errors import LedgerOlder, LedgerUnusable, NotFound, PresenceNeeded, Refused
from ...model.principals import Principal
from .. import control
from ..host_process import new_host
from ..presence import Presence
from .command_session import CommandSession
from .secret_input import ask_at_terminal
from .wiring import unlock_secrets


def ask_host(
    session: CommandSession, act: str, *, first: Callable[[Keep], Awaitable[None]] | None = None,
    model: Principal | None = None, **params: Any,
) -> Any:
    """Have the running host do an act. Without one, do it here, after `first`. `model` is the one whose work it is."""
    try:
        return _act(session, act, params, first, model, _pins[-1] if _pins else None)
    except PresenceNeeded:
        if _pins:
            raise
        pin = ask_at_terminal("PIN")
    result = _act(session, act, params, first, model, pin)
    _pins.append(pin)
    return result


def require_presence(session: CommandSession) -> None:
    """Have a person show that they are there before a command changes what lies beside the host's own acts: secrets,
    keep.toml, or where the ledger is. Nothing is asked without agents. The running host judges; without one, this
    process does."""
    try:
        with session.look(tells=True) as look:
            if not tokens_and_pins.has_agents(look.read):
                return
            kept = tokens_and_pins.pin_kept(look.read)
    except (NotFound, LedgerOlder):
        return  # no ledger is there, so nobody has registered an agent
    pin = _pins[-1] if _pins else ask_at_terminal("PIN")
    try:
        session.ask("confirm_presence", {}, pin=pin)
    except control.NoHost:
        if kept is None or not tokens_and_pins.is_pin(pin, kept):
            raise Refused("That is not the PIN. Nothing was done.") from None
    _pins.append(pin)


_pins: list[str] = []  # the one that the host has found right


def _act(
    session: CommandSession, act: str, params: Mapping[str, Any], first: Callable[[Keep], Awaitable[None]] | None,
    model: Principal | None, pin: str | None,
) -> Any:
    try:
        return session.ask(act, params, pin=pin, model=model)
    except control.NoHost:
        return _act_here(session, act, params, first, model, pin)


def _act_here(
    session: CommandSession, act: str, params: Mapping[str, Any], first: Callable[[Keep], Awaitable[None]] | None,
    model: Principal | None, pin: str | None,
) -> Any:
    settings = session.settings(connectors=True)
    unlock_secrets(settings)

    async def perform() -> Any:
        async with new_host(settings, works=False) as keep:
            await Presence(keep).judge(act, pin)
            if first is not None:
                await first(keep)
            return await control.perform(keep.acting_as(model) if model else keep, act, params)

    try:
        return asyncio.run(perform())
    except LedgerUnusable:
        try:  # a host that was just starting listens by now
            return session.ask(act, params, pin=pin, model=model)
        except control.NoHost:
            pass
        raise
