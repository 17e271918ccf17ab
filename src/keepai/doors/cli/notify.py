"""`keep notify`: whether people can be told. It sends a test message from this process; the ledger is not needed."""

from __future__ import annotations

import asyncio
import sys

import click

from ...model.clock import SystemClock
from ...model.errors import ConfigError, KeepError
from ...notices.base import Channel, Message
from .command_session import CommandSession, with_json, with_session
from .text import echo, echo_json, plain


@click.group()
def notify() -> None:
    """The channels through which people are told."""


@notify.command()
@click.argument("name", required=False)
@with_json
@with_session
def test(session: CommandSession, name: str | None, as_json: bool) -> None:
    """Send a test message by a channel of keep.toml, or by all. Exit code 1 if one did not take it."""
    settings = session.settings(connectors=True)
    wanted = [each for each in settings.channels if name in (None, each.name)]
    if not wanted:
        there = ", ".join(each.name for each in settings.channels) or "none"
        what = f"keep.toml has no channel {plain(name)!r}" if name else "keep.toml has no channel"
        raise ConfigError(f'{what}. There is: {there}. Add [notify.NAME] with a type, such as type = "email".')
    found = asyncio.run(_tried(wanted, settings.policy.notify_s))
    if as_json:
        echo_json([{"channel": each, "sent": wrong is None, "said": wrong or said} for each, wrong, said in found])
    else:
        echo(*(f"{each}: {wrong or said}" for each, wrong, said in found))
    sys.exit(1 if any(wrong for _, wrong, _ in found) else 0)


async def _tried(channels: list[Channel], seconds: float) -> list[tuple[str, str | None, str]]:
    """Each channel, why it did not take the message, and what is said if it did."""
    answers = await asyncio.gather(
        *(asyncio.wait_for(each.send(_message(each)), seconds) for each in channels), return_exceptions=True)
    return [(each.name, _wrong(answer, seconds), plain(answer) if isinstance(answer, str) else "it took the message.")
            for each, answer in zip(channels, answers, strict=True)]


def _wrong(answer: object, seconds: float) -> str | None:
    if isinstance(answer, TimeoutError):
        return f"it did not take the message within {seconds:g} s."
    if isinstance(answer, KeepError):
        return plain(answer.message)
    return f"it failed with {type(answer).__name__}." if isinstance(answer, BaseException) else None


def _message(channel: Channel) -> Message:
    text = f"This is a test of the channel {channel.name}. When a workflow needs you, you are told like this."
    now = SystemClock().now_ms()
    return Message("test", "Keep can reach you", text, now, f"test_{now}")
