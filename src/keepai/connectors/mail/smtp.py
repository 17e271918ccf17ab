"""One connection to an SMTP server, divided before the end of the message.

`offer` sends everything except the end of the message; until then the server must not deliver it, whatever happens to
the connection (RFC 5321, 4.1.1.4). `finish` sends the end. So every failure in `offer` is a definite failure, and
between the two the caller can record that the outcome is uncertain from now on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...model.errors import ConnectorError, OutcomeUnknown, PermissionDenied, Rejected, Transient
from .server_errors import error_text, nothing_happened, one_line_answer, smtp_refusal
from .servers import MailServer

HELLO = "[127.0.0.1]"  # the server need not know our name


class SmtpSubmission:
    """A connection on which one message is sent."""

    def __init__(self, server: MailServer, user: str, password: str, timeout_s: float) -> None:
        import aiosmtplib

        self._server, self._user, self._secret = server, user, password
        self._client = aiosmtplib.SMTP(
            hostname=server.host, port=server.port, use_tls=server.security == "tls",
            start_tls=server.security == "starttls", local_hostname=HELLO, timeout=timeout_s,
            tls_context=server.context() if server.security != "none" else None,
        )
        self._transport: Any = None

    async def begin(self) -> None:
        """Connect and log in."""
        with self._refusals("connect"):
            await self._client.connect()
            self._transport = self._client.transport
        with self._refusals("login"):
            await self._client.login(self._user, self._secret)
        self._transport = self._client.transport

    async def offer(self, sender: str, recipients: Sequence[str], data: bytes) -> None:
        """Send everything up to the end of the message. If the server refuses one recipient, no one gets it."""
        with self._refusals("sender"):
            await self._client.mail(sender, options=self._size(len(data)))
        for recipient in recipients:
            with self._refusals("recipient"):
                await self._client.rcpt(recipient)
        with self._refusals("message"):
            code, text = await self._client.execute_command(b"DATA")
            if code != 354:
                raise self._refused("message", code, text)
            self.require()
            self._transport.write(re.sub(rb"(?m)^\.", b"..", data))

    async def finish(self, timeout_s: float | None) -> None:
        """Send the end of the message. A return means that the server accepted it, a refusal that it did not."""
        from aiosmtplib import SMTPException

        try:
            code, text = await self._client.execute_command(b".", timeout=timeout_s)
        except (SMTPException, OSError, EOFError) as error:
            raise OutcomeUnknown(
                f"The message was handed to {self._server.place}, and then no answer came: {error_text(error)}."
            ) from None
        if code // 100 != 2:
            raise self._refused("message", code, text)
        self._transport.write(b"QUIT\r\n")
        self._client.close()

    def drop(self) -> None:
        """End the connection. What has not left yet never will."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
        self._client.close()

    def require(self) -> None:
        """Check that the connection still exists; `Transient` if it does not."""
        if not self._client.is_connected or self._transport.is_closing():
            raise Transient(f"{self._server.place} closed the connection before the message was complete.")

    def _size(self, size: int) -> list[str]:
        if not self._client.supports_extension("size"):
            return []
        limit = str(self._client.esmtp_extensions.get("size", ""))
        if limit.isdigit() and 0 < int(limit) < size:
            raise Rejected(f"The message has {size:,} bytes; the server accepts at most {int(limit):,}.")
        return [f"SIZE={size}"]

    def _refused(self, step: str, code: int, text: str) -> ConnectorError:
        answer = one_line_answer(text, self._secret)
        message = f"The mail server gave an unexpected answer: {code} {answer}"
        return smtp_refusal(step, code, answer) or OutcomeUnknown(message)

    @contextmanager
    def _refusals(self, step: str) -> Iterator[None]:
        """Use around every step before the end of the message: a failure there has no effect."""
        from aiosmtplib import SMTPException, SMTPNotSupported, SMTPResponseException

        with nothing_happened(f"The mail server {self._server.place} cannot be used"):
            try:
                yield
            except SMTPResponseException as error:
                answer = one_line_answer(error.message, self._secret)
                failure = smtp_refusal(step, error.code, answer)
                raise failure or Transient(f"The mail server gave an unexpected answer: {answer}") from None
            except OSError as error:
                raise error.__cause__ if isinstance(error.__cause__, OSError) else error from None
            except SMTPNotSupported as error:
                raise PermissionDenied(f"The mail server does not offer this encryption: {error_text(error)}") from None
            except SMTPException as error:
                answer = one_line_answer(str(error), self._secret)
                raise PermissionDenied(f"The mail server cannot be used: {answer}") from None
            except UnicodeError:
                raise PermissionDenied("The mail server does not accept these characters in a login.") from None

