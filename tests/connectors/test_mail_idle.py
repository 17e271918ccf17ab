"""New mail is noticed by a real server's IDLE, over what ends connections; a server without it says nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from keepai.connectors.base import Connector
from keepai.connectors.mail import idle
from keepai.model.errors import ConnectorError, PermissionDenied, Transient
from tests.connectors.conftest import Mailbox
from tests.connectors.mail_servers import Wire, running, why_not

FOREVER_S = 30
MAIL = b"From: Ann <ann@example.com>\r\nSubject: Hello\r\n\r\nHello\r\n"


@asynccontextmanager
async def listening(connector: Connector) -> AsyncIterator[AsyncGenerator[None]]:
    """After the first signal, with which it begins."""
    async with aclosing(connector.arrivals()) as arrivals, asyncio.timeout(FOREVER_S):
        await anext(arrivals)
        yield arrivals


@pytest.mark.parametrize("security", ["none", "tls", "starttls"])
async def test_a_message_that_comes_is_noticed_again_and_again(mailbox: Mailbox, security: str) -> None:
    port = mailbox.imap.tls_port if security == "tls" else mailbox.imap.port
    more = {"imap_port": port, "imap_security": security, "certificates": mailbox.imap.certificates}
    async with listening(mailbox.connector(**more)) as arrivals:
        for _ in range(3):
            await asyncio.to_thread(mailbox.imap.put, MAIL)
            await anext(arrivals)


async def test_a_message_that_comes_while_idle_is_issued_anew_is_noticed(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idle, "IDLE_S", 0.002)
    async with listening(mailbox.connector()) as arrivals:
        for _ in range(5):
            await asyncio.to_thread(mailbox.imap.put, MAIL)
            await anext(arrivals)


async def test_only_the_inbox_counts_and_only_what_is_new(mailbox: Mailbox) -> None:
    mailbox.imap.put(MAIL)
    async with listening(mailbox.connector()) as arrivals:
        told = asyncio.ensure_future(anext(arrivals))

        def elsewhere() -> None:
            mailbox.imap.put(MAIL, "Archive")
            with mailbox.imap.client() as client:
                client.select("INBOX")
                client.store("1", "+FLAGS", "\\Seen")
                client.store("1", "+FLAGS", "\\Deleted")
                client.expunge()

        await asyncio.to_thread(elsewhere)
        await asyncio.sleep(0.7)  # longer than the server holds back what it tells
        assert not told.done()
        await asyncio.to_thread(mailbox.imap.put, MAIL)
        await told


async def test_a_lost_connection_is_an_error_and_listening_again_begins_with_a_look(mailbox: Mailbox) -> None:
    wire = Wire(mailbox.imap)
    connector = mailbox.connector(imap_port=wire.port, imap_security="none")
    async with listening(connector) as arrivals:
        told = asyncio.ensure_future(anext(arrivals))
        await asyncio.sleep(0.1)
        wire.close()
        with pytest.raises(Transient, match="Keep cannot listen to the mailbox"):
            await told
    async with listening(mailbox.connector()):
        pass


async def test_who_stops_listening_does_not_wait_for_the_server(mailbox: Mailbox) -> None:
    async with asyncio.timeout(FOREVER_S):
        async with listening(mailbox.connector()) as arrivals:
            told = asyncio.ensure_future(anext(arrivals))
            await asyncio.sleep(0.1)
            told.cancel()
            with pytest.raises(asyncio.CancelledError):
                await told


async def test_who_stops_listening_does_not_wait_for_a_server_that_is_silent_from_the_start(mailbox: Mailbox) -> None:
    """A host that ends has five seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connector = mailbox.connector(imap_port=silent.getsockname()[1], imap_security="none")
        told = asyncio.ensure_future(anext(connector.arrivals()))
        client, _ = await asyncio.to_thread(silent.accept)
        async with asyncio.timeout(3):
            told.cancel()
            with pytest.raises(asyncio.CancelledError):
                await told
        client.close()


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
async def test_a_server_without_idle_says_nothing() -> None:
    with running(capability="IMAP4rev1 UIDPLUS MOVE AUTH=PLAIN") as (imap, post):
        imap.fresh()
        connector = Mailbox(imap, post).connector()
        assert [each async for each in connector.arrivals()] == []


async def test_a_wrong_password_is_told_as_such(mailbox: Mailbox) -> None:
    connector = mailbox.connector()
    connector.entrust({"password": "wrong"})
    with pytest.raises(PermissionDenied):
        await anext(connector.arrivals())


async def test_an_inbox_that_is_not_there_is_told_as_such(mailbox: Mailbox) -> None:
    with pytest.raises(ConnectorError, match="nowhere"):
        await anext(mailbox.connector(inbox="nowhere").arrivals())
