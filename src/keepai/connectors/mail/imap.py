"""One connection to an IMAP server, with the few commands that the connector needs.

It blocks, so it runs in a thread. The table in `server_errors` translates a refusal into one of Keep's errors. A lost
connection is `ConnectionLost`, and the caller says what it means. It deletes only the messages that it is asked to
delete: `EXPUNGE` without UIDs would also delete what other programs marked.
"""

from __future__ import annotations

import imaplib
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...model.errors import ConnectorError, OutcomeUnknown, PermissionDenied, PreconditionFailed, Transient
from .server_errors import ConnectionLost, error_text, imap_refusal, one_line_answer
from .servers import MailServer

_UID = re.compile(rb"\bUID (\d+)")
_DATE = re.compile(rb'INTERNALDATE "([^"]+)"')
_FLAGS = re.compile(rb"FLAGS \(([^)]*)\)")
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
_BEGINS = re.compile(rb"\d+ \(")


@dataclass(frozen=True)
class FolderStatus:
    """What a server says about a folder when it is opened."""

    validity: int  # while it stays the same, a UID means the same message
    next_uid: int  # no message has this UID or a higher one yet
    flags: frozenset[str]  # the flags that can be stored; `\\*`: any


@dataclass(frozen=True)
class FetchedMail:
    """One message as the server gives it."""

    uid: int
    received: str  # its INTERNALDATE
    flags: frozenset[str]
    size: int  # of the whole message, while `data` may be cut
    data: bytes


class ImapMailbox:
    """An open mailbox."""

    def __init__(self, server: MailServer, user: str, password: str, timeout_s: float) -> None:
        self._secret = password
        self._mailbox: Any = _connected(server, timeout_s)
        try:
            with self._asked("The login failed", PermissionDenied):
                _log_in(self._mailbox, user, password)
        except BaseException:
            self.drop()
            raise

    def open(self, folder: str, *, readonly: bool = True) -> FolderStatus:
        """Open a folder."""
        with self._asked(f"The folder {folder!r} cannot be opened", PreconditionFailed):
            self._mailbox.folder.set(folder, readonly)
            self._mailbox.client.response("EXISTS")  # from here on it means that a message has come
        data = self._mailbox.client.response("PERMANENTFLAGS")[1]
        flags = data[-1].decode("utf-8", "replace") if data and data[-1] else ""
        return FolderStatus(
            self._number("UIDVALIDITY"), self._number("UIDNEXT"), frozenset(flags.strip("()").split()),
        )

    def find(self, criteria: str) -> list[int]:
        """The UIDs in the open folder that match, in order."""
        with self._asked("The search failed"):
            return sorted({int(uid) for uid in self._mailbox.uids(criteria, None)})

    def fetch(self, uids: Sequence[int], bytes_max: int) -> list[FetchedMail]:
        """Messages of the open folder, without marking them as read. Those that are gone are left out."""
        if not uids:
            return []
        parts = f"(UID INTERNALDATE FLAGS RFC822.SIZE BODY.PEEK[]<0.{bytes_max}>)"
        return sorted(_messages(self._command("FETCH", ",".join(map(str, uids)), parts)), key=lambda raw: raw.uid)

    def fetch_heads(self, uids: Sequence[int], bytes_max: int) -> list[FetchedMail]:
        """The same with the headers only."""
        if not uids:
            return []
        parts = f"(UID INTERNALDATE FLAGS RFC822.SIZE BODY.PEEK[HEADER]<0.{bytes_max}>)"
        return sorted(_messages(self._command("FETCH", ",".join(map(str, uids)), parts)), key=lambda raw: raw.uid)

    def idle(self, seconds: float) -> bool:
        """Wait until a message comes into the open folder, so long at most; whether one came."""
        with self._asked("The server refused IDLE"):
            self._mailbox.idle.start()
            told = self._told_already() or self._mailbox.idle.poll(seconds)
            self._mailbox.idle.stop()
        later = self._mailbox.client.response("EXISTS")[1]  # told while IDLE ended
        return any(line.endswith(b" EXISTS") for line in told) or later != [None]

    def _told_already(self) -> list[bytes]:
        """The lines that came in one piece with the last answer: `poll` looks at the socket only, and misses them."""
        sock, lines = self._mailbox.client.sock, []
        timeout = sock.gettimeout()
        sock.settimeout(0)
        try:
            while True:
                lines.append(self._mailbox.client._get_line())
        except imaplib.IMAP4.abort as error:
            if "EOF" not in str(error):  # which is also what it says if there is nothing to read
                raise
        except OSError:  # there is nothing to read
            pass
        finally:
            sock.settimeout(timeout)
        return lines

    def interrupt(self) -> None:
        """From another thread: end the connection, and with it what waits for it."""
        try:
            self._mailbox.client.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def append(self, folder: str, data: bytes, flags: Sequence[str]) -> None:
        """Put a message into a folder."""
        with self._asked(f"Nothing can be put into the folder {folder!r}", PreconditionFailed):
            self._mailbox.append(data, folder, flag_set=list(flags))

    def mark(self, uid: int, flags: Sequence[str], *, on: bool) -> None:
        """Set or clear flags of a message in the open folder."""
        self._command("STORE", str(uid), "+FLAGS" if on else "-FLAGS", f"({' '.join(flags)})")

    def move(self, uid: int, folder: str) -> None:
        """Move a message of the open folder into another, in one step if the server can."""
        from imap_tools.utils import encode_folder

        target = bytes(encode_folder(folder)).decode("ascii")
        if self.can("MOVE"):
            self._command("MOVE", str(uid), target)
            return
        self._require_single()
        self._command("COPY", str(uid), target)
        try:
            self.remove(uid)
        except ConnectorError as error:
            raise OutcomeUnknown(f"The message was copied, and then: {error}") from None

    def remove(self, uid: int) -> None:
        """Delete one message of the open folder, and no other."""
        self._require_single()
        self.mark(uid, ["\\Deleted"], on=True)
        self._command("EXPUNGE", str(uid))

    def _require_single(self) -> None:
        if not self.can("UIDPLUS"):
            raise PreconditionFailed("The server cannot delete a single message: it has no UIDPLUS.")

    def can(self, capability: str) -> bool:
        """Whether the server has a capability."""
        return capability in self._mailbox.client.capabilities

    def folders(self) -> dict[str, frozenset[str]]:
        """Folder name → its flags, such as `\\Sent`."""
        with self._asked("The folders cannot be listed"):
            return {folder.name: frozenset(folder.flags) for folder in self._mailbox.folder.list()}

    def create(self, folder: str) -> None:
        """Make a folder."""
        with self._asked(f"The folder {folder!r} cannot be made", PreconditionFailed):
            self._mailbox.folder.create(folder)

    def close(self) -> None:
        """Log out, and end the connection whatever the answer is."""
        try:
            self._mailbox.client.sock.settimeout(2)
            self._mailbox.client.logout()
        except (imaplib.IMAP4.error, OSError, EOFError):
            pass
        self.drop()

    def drop(self) -> None:
        """End the connection without logging out."""
        try:
            self._mailbox.client.shutdown()
        except (imaplib.IMAP4.error, OSError):
            pass

    def _command(self, *words: str) -> list[Any]:
        with self._asked(f"The server refused {words[0]}"):
            status, data = self._mailbox.client.uid(*words)
        if status != "OK":
            raise imap_refusal(f"The server refused {words[0]}", self._answer_text(data), Transient)
        return list(data or [])

    def _number(self, name: str) -> int:
        data = self._mailbox.client.response(name)[1]
        return int(data[-1]) if data and data[-1] else 0

    @contextmanager
    def _asked(self, message: str, otherwise: type[ConnectorError] = Transient) -> Iterator[None]:
        """Use around a command: a refusal is translated, a lost connection is `ConnectionLost`."""
        from imap_tools.errors import UnexpectedCommandStatusError

        try:
            yield
        except UnexpectedCommandStatusError as error:
            raise imap_refusal(message, self._answer_text(error.command_result[1]), otherwise) from None
        except imaplib.IMAP4.abort as error:
            raise ConnectionLost(one_line_answer(str(error), self._secret)) from None
        except imaplib.IMAP4.error as error:
            raise imap_refusal(message, one_line_answer(str(error), self._secret), otherwise) from None
        except (OSError, EOFError) as error:
            raise ConnectionLost(error_text(error)) from None

    def _answer_text(self, data: object) -> str:
        pieces = data if isinstance(data, list | tuple) else [data]
        texts = [piece.decode("utf-8", "replace") if isinstance(piece, bytes) else str(piece) for piece in pieces]
        return one_line_answer(" ".join(texts), self._secret)


def _connected(server: MailServer, timeout_s: float) -> Any:
    """A connection before the login. Raises `OSError`, `ConnectorError` or `ConnectionLost`."""
    from imap_tools import MailBox, MailBoxStartTls, MailBoxUnencrypted
    from imap_tools.errors import ImapToolsError

    try:
        if server.security == "tls":
            return MailBox(server.host, server.port, timeout_s, ssl_context=server.context())
        if server.security == "starttls":
            return MailBoxStartTls(server.host, server.port, timeout_s, ssl_context=server.context())
        return MailBoxUnencrypted(server.host, server.port, timeout_s)
    except (imaplib.IMAP4.error, ImapToolsError) as error:
        raise ConnectionLost(one_line_answer(str(error), "")) from None


def _log_in(mailbox: Any, user: str, password: str) -> None:
    """PLAIN allows any character; the older LOGIN is for servers without it."""
    if "AUTH=PLAIN" in mailbox.client.capabilities:
        mailbox.login_utf8(user, password, initial_folder=None)
    elif (user + password).isascii() and not set("\r\n\0") & set(user + password):
        mailbox.login(user, password, initial_folder=None)
    else:
        raise PermissionDenied("The server does not accept such characters in a user or password.")
    # The capabilities may change with the login.
    mailbox.client._get_capabilities()


def _messages(data: list[Any]) -> Iterator[FetchedMail]:
    """The messages in the answer to a FETCH: literals come as pairs, the rest as bytes."""
    for number, item in enumerate(data):
        if isinstance(item, tuple):
            after = data[number + 1] if number + 1 < len(data) else b""
            more = after if isinstance(after, bytes) and not _BEGINS.match(after) else b""
            yield _message(item[0] + b" " + more, item[1])
        elif isinstance(item, bytes) and _BEGINS.match(item) and b'BODY[' in item:
            yield _message(item, b"")  # an empty message is not sent as a literal


def _message(about: bytes, data: bytes) -> FetchedMail:
    uid, date, flags, size = (pattern.search(about) for pattern in (_UID, _DATE, _FLAGS, _SIZE))
    if uid is None:
        raise ConnectionLost("the server's answer has no UID")
    return FetchedMail(
        int(uid[1]), date[1].decode("ascii", "replace") if date else "",
        frozenset(flags[1].decode("utf-8", "replace").split()) if flags else frozenset(),
        int(size[1]) if size else len(data), data,
    )
