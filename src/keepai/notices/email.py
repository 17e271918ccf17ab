"""Mail over SMTP: plain text only, marked as automatic, so that no mailbox answers it.

No error repeats the words of the server, because a server may repeat what it got.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from email.utils import format_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..connectors.kit import addresses
from ..connectors.kit.mail_writer import SUBJECT_MAX, Letter, written
from ..model.errors import ConfigError, Rejected
from .base import Channel, Message, Undelivered, fitting

if TYPE_CHECKING:
    import aiosmtplib

BYTES_MAX = 64 << 10
TLS = ("starttls", "tls", "none")


class Email(Channel):
    """Sends mail through an SMTP server.

    host: the SMTP server
    sender: the address that the mail comes from
    to: the addresses that it goes to
    port: the port; by default 587, and 465 with tls
    tls: "starttls", "tls" from the first byte on, or "none", for a server on this machine only
    username: the user name; with it, the channel needs the secret password
    certificates: a file of authorities to trust besides the public ones
    """

    secrets = MappingProxyType({"password": "the password of the mail account"})

    def __init__(
        self, host: str, sender: str, to: list[str], name: str, port: int | None = None, tls: str = "starttls",
        username: str | None = None, certificates: str | None = None,
    ) -> None:
        super().__init__(name)
        self._sender = addresses.own_address(f"notify.{name}", sender, setting="sender")
        try:
            self._to = addresses.read("to", to)
        except Rejected as error:
            raise ConfigError(f"[notify.{name}]: {error.message}") from None
        if not self._to:
            raise ConfigError(f"[notify.{name}]: to must name at least one address.")
        if tls not in TLS:
            raise ConfigError(f"[notify.{name}] tls must be one of {', '.join(TLS)}, not {tls!r}.")
        self._host, self._port, self._tls = host, port or (465 if tls == "tls" else 587), tls
        self._username, self._certificates = username, certificates

    async def send(self, message: Message) -> str | None:
        """Hand it to the server. The server then has it; whether it arrives is not known."""
        import aiosmtplib

        password = self.secret("password") if self._username else None
        try:
            refused, _ = await aiosmtplib.send(
                self._written(message), sender=self._sender.mailbox,
                recipients=[address.mailbox for address in self._to],
                hostname=self._host, port=self._port, username=self._username,
                password=password, use_tls=self._tls == "tls", start_tls=self._tls == "starttls",
                tls_context=self._trust() if self._tls != "none" else None,
            )
        except (aiosmtplib.SMTPException, OSError) as error:
            raise Undelivered(f"{self._host}:{self._port} {_reason(error)}.") from None
        return f"{self._host} refused {len(refused)} of {len(self._to)} addresses." if refused else None

    def _written(self, message: Message) -> bytes:
        title = "".join(character if character.isprintable() else " " for character in message.title)[:SUBJECT_MAX]
        letter = Letter(self._sender, self._to, (), (), title, fitting(message.text, BYTES_MAX))
        # If it is sent twice, it is the same mail.
        date = format_datetime(datetime.fromtimestamp(message.at / 1000, UTC))
        return written(letter, f"<{message.key}@keep.invalid>", date)

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._certificates is not None:
            context.load_verify_locations(cafile=self.folder / self._certificates)
        return context


def _reason(error: aiosmtplib.SMTPException | OSError) -> str:
    """What went wrong, without the server's words."""
    import aiosmtplib

    if isinstance(error, aiosmtplib.SMTPAuthenticationError):
        return f"refused the user name or the password (code {error.code})"
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return f"refused the mail (code {error.code})"
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return "refused every recipient of the mail"
    if isinstance(error, aiosmtplib.SMTPConnectError | aiosmtplib.SMTPServerDisconnected | OSError):
        return "cannot be reached, or its certificate is not valid"
    return f"did not accept the mail ({type(error).__name__})"
