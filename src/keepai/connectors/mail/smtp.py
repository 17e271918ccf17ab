"""One conversation with an SMTP server, cut in two before the only byte that matters.

`offer` hands over everything but the end of the message; until then the server must not deliver it, whatever becomes
of the connection (RFC 5321, 4.1.1.4). `finish` sends the end. So all that fails in `offer` is a definite failure, and
between the two the caller can write down that from now on nobody can be sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...model.errors import ConnectorError, OutcomeUnknown, PermissionDenied, Rejected, Transient
from .server_errors import error_text, nothing_happened, one_line_answer, smtp_refusal
from .servers import MailServer

HELLO = "[127.0.0.1]"  # our own name is nobody's concern


class SmtpSubmission:
    """A connection on which one message is handed over."""

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
        """Everything up to the end of the message. If one recipient is refused, nobody gets it."""
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
        """The end of the message, and the answer to it: return means taken, a refusal means not taken."""
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
        """End the connection; what has not left yet never will."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
        self._client.close()

    def require(self) -> None:
        """See that the connection is still there; `Transient` if it is not."""
        if not self._client.is_connected or self._transport.is_closing():
            raise Transient(f"{self._server.place} closed the connection before the message was complete.")

    def _size(self, size: int) -> list[str]:
        if not self._client.supports_extension("size"):
            return []
        limit = str(self._client.esmtp_extensions.get("size", ""))
        if limit.isdigit() and 0 < int(limit) < size:
            raise Rejected(f"The message has {size:,} bytes, and the server takes {int(limit):,} at most.")
        return [f"SIZE={size}"]

    def _refused(self, step: str, code: int, text: str) -> ConnectorError:
        answer = one_line_answer(text, self._secret)
        odd = f"The mail server said what nobody expects: {code} {answer}"
        return smtp_refusal(step, code, answer) or OutcomeUnknown(odd)

    @contextmanager
    def _refusals(self, step: str) -> Iterator[None]:
        """Around every step before the end of the message: whatever fails there, nothing happened."""
        from aiosmtplib import SMTPException, SMTPNotSupported, SMTPResponseException

        with nothing_happened(f"The mail server {self._server.place} cannot be used"):
            try:
                yield
            except SMTPResponseException as error:
                answer = one_line_answer(error.message, self._secret)
                raise smtp_refusal(step, error.code, answer) or Transient(f"The mail server is odd: {answer}") from None
            except OSError as error:
                raise error.__cause__ if isinstance(error.__cause__, OSError) else error from None
            except SMTPNotSupported as error:
                raise PermissionDenied(f"The mail server offers no such protection: {error_text(error)}") from None
            except SMTPException as error:
                answer = one_line_answer(str(error), self._secret)
                raise PermissionDenied(f"The mail server cannot be used: {answer}") from None
            except UnicodeError:
                raise PermissionDenied("The mail server takes no user or password with such characters.") from None

