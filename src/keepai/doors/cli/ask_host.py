"""How a command acts: the running host does it.

Without one, this process takes the ledger's lock and is the host for that one act.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...app import Keep
from ...model.errors import LedgerUnusable
from ...model.principals import Principal
from .. import control
from ..host_process import new_host
from .command_session import CommandSession
from .wiring import unlock_secrets


def ask_host(
    session: CommandSession, act: str, *, first: Callable[[Keep], Awaitable[None]] | None = None,
    model: Principal | None = None, **params: Any,
) -> Any:
    """Have the running host do an act. Without one, do it here, after `first`. `model` is the one whose work it is."""
    try:
        return control.ask(session.settings().ledger, act, params, model=model)
    except control.NoHost:
        return _act_here(session, act, params, first, model)


def _act_here(
    session: CommandSession, act: str, params: Mapping[str, Any], first: Callable[[Keep], Awaitable[None]] | None,
    model: Principal | None,
) -> Any:
    settings = session.settings(connectors=True)
    unlock_secrets(settings)

    async def perform() -> Any:
        async with new_host(settings, works=False) as keep:
            if first is not None:
                await first(keep)
            return await control.perform(keep.acting_as(model) if model else keep, act, params)

    try:
        return asyncio.run(perform())
    except LedgerUnusable:
        try:  # a host that was just starting listens by now
            return control.ask(settings.ledger, act, params, model=model)
        except control.NoHost:
            pass
        raise
