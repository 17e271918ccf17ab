"""What the answers of IMAP and SMTP servers mean. One table for each protocol decides.

An entry says what a refusal leads to. That nothing happened follows from the protocol: an SMTP server that answers 4xx
or 5xx, also to the end of the message, has not accepted the message (RFC 5321, 4.2.5), and an IMAP server that answers
NO or BAD has not carried out the command (RFC 3501, 7.1). A lost connection proves nothing; the step decides whether
that matters.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from ...model.errors import ConnectorError, PermissionDenied, PreconditionFailed, Rejected, Transient
from ...model.visible_text import visible

TEXT_MAX = 200
_DENIED, _GONE, _WRONG, _LATER = PermissionDenied, PreconditionFailed, Rejected, Transient

#: Looked up as (step, code), then ("", code), then (step, first digit), then ("", first digit).
SMTP_REFUSED: Mapping[tuple[str, int], type[ConnectorError]] = MappingProxyType({
    ("", 530): _DENIED,  # log in first
    ("", 534): _DENIED,  # this way of logging in is too weak
    ("", 535): _DENIED,  # wrong password, or one that has expired
    ("", 538): _DENIED,  # only with encryption
    ("", 552): _WRONG,  # too big
    ("connect", 5): _DENIED,  # it refuses to talk to us
    ("login", 5): _DENIED,
    ("sender", 5): _DENIED,  # this user may not send from the address
    ("", 5): _WRONG,
    ("", 4): _LATER,  # busy, too many, greylisted, shutting down
})

IMAP_REFUSED: Mapping[str, type[ConnectorError]] = MappingProxyType({
    "AUTHENTICATIONFAILED": _DENIED, "AUTHORIZATIONFAILED": _DENIED, "EXPIRED": _DENIED, "PRIVACYREQUIRED": _DENIED,
    "NOPERM": _DENIED, "CONTACTADMIN": _DENIED,
    "OVERQUOTA": _GONE, "NONEXISTENT": _GONE, "TRYCREATE": _GONE, "CANNOT": _GONE, "READ-ONLY": _GONE,
    "UNAVAILABLE": _LATER, "INUSE": _LATER, "LIMIT": _LATER, "SERVERBUG": _LATER, "EXPUNGEISSUED": _LATER,
})
_CODE = re.compile(r"\[([A-Z-]+)")


class ConnectionLost(Exception):
    """The connection ended, or no answer came in time."""


def smtp_refusal(step: str, code: int, text: str) -> ConnectorError | None:
    """The error that an SMTP answer means; None if it is not a refusal."""
    for place in ((step, code), ("", code), (step, code // 100), ("", code // 100)):
        if place in SMTP_REFUSED:
            return SMTP_REFUSED[place](f"The mail server refused ({_STEPS[step]}): {code} {text}")
    return None


_STEPS = {
    "connect": "at the first word", "login": "the login", "sender": "the sender", "recipient": "a recipient",
    "message": "the message",
}


def imap_refusal(message: str, text: str, otherwise: type[ConnectorError]) -> ConnectorError:
    """The error that a NO or BAD means."""
    code = _CODE.search(text)
    kind = IMAP_REFUSED.get(code[1], otherwise) if code else otherwise
    return kind(f"{message}: {text}")


@contextmanager
def nothing_happened(message: str) -> Iterator[None]:
    """Use around steps that have no effect when they fail: every lost connection is a definite failure."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise PreconditionFailed(
            f"{message}: the server's certificate is not trusted ({error.verify_message}). Check the host in "
            "keep.toml; if the server has its own authority, use the setting certificates."
        ) from None
    except (OSError, ConnectionLost, EOFError) as error:
        raise Transient(f"{message}: {error_text(error)}.") from None


def error_text(error: BaseException) -> str:
    """The error of a connection in a few words."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line_answer(str(text), "")


def one_line_answer(text: str, secret: str) -> str:
    """The server's answer on one line, shortened, and without the secret if the answer repeats it."""
    line = " ".join(visible(text).split())
    return (line.replace(secret, "…") if secret else line)[:TEXT_MAX]
