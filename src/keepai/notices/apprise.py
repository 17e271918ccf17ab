"""Channels through the library Apprise, an optional extra: this machine's desktop, and a hundred services.

Apprise makes its own connections, so Keep's egress rules do not apply to them. Its own error messages are not passed
on, because they may contain an address that is a secret.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from types import MappingProxyType

from .base import Channel, Message, Undelivered, fitting

BYTES_MAX, DESKTOP_BYTES_MAX = 16 << 10, 400
DESKTOPS = {"darwin": "macosx://", "win32": "windows://"}


class Apprise(Channel):
    """Sends messages through Apprise to one or more of its services; needs `pip install 'keepai[notify]'`."""

    secrets = MappingProxyType({"urls": "Apprise's addresses, separated by spaces, such as tgram://… or matrix://…"})

    async def send(self, message: Message) -> str | None:
        """Send it to every address."""
        urls = self.secret("urls").split()
        sent = [await asyncio.to_thread(_send, url, message, BYTES_MAX) for url in urls]
        failed = [str(number) for number, reached in enumerate(sent, 1) if not reached]
        if not any(sent):
            raise Undelivered("Apprise could not reach any of its addresses: they are wrong, or a library is missing.")
        return f"Apprise could not reach address {', '.join(failed)} of {len(urls)}." if failed else None


class Desktop(Channel):
    """Shows messages on this machine's desktop through Apprise; needs `pip install 'keepai[notify]'`."""

    async def send(self, message: Message) -> None:
        """Show the title and the first lines."""
        url = DESKTOPS.get(sys.platform, "dbus://")
        if not await asyncio.to_thread(_send, url, message, DESKTOP_BYTES_MAX):
            raise Undelivered("Apprise found no desktop on this machine, or lacks a library for it.")


def _send(url: str, message: Message, bytes_max: int) -> bool:
    """Whether the message reached an address. It runs in a thread, because the library takes long to load."""
    try:
        import apprise
    except ImportError:
        raise Undelivered("Apprise is not installed. Run: pip install 'keepai[notify]'") from None
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    sender = apprise.Apprise()
    text = f"{message.text}\n\n{message.link}" if message.link else message.text
    return bool(sender.add(url)) and bool(sender.notify(
        body=fitting(text, bytes_max), title=message.title, body_format=apprise.NotifyFormat.TEXT))
