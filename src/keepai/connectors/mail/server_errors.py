"""What the answers of IMAP and SMTP servers mean: one table for each, and nothing else decides.

An entry says what a refusal leads to. That a refusal is one, and that nothing happened, is known from the step:
every answer 4xx or 5xx of an SMTP server, the one to the end of the message too, says that it has not taken the
message (RFC 5321, 4.2.5), and an IMAP server that answers NO or BAD has not done what it was asked (RFC 3501, 7.1).
A lost connection says nothing; whether that matters is for the step to say.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from ...model.errors import ConnectorError, PermissionDenied, PreconditionFailed, Rejected, Transient
from ...model.visible import visible

TEXT_MAX = 200
_DENIED, _GONE, _WRONG, _LATER = PermissionDenied, PreconditionFailed, Rejected, Transient

#: (step, code), then ("", code), then (step, first digit), then ("", first digit).
SMTP_REFUSED: Mapping[tuple[str, int], type[ConnectorError]] = MappingProxyType({
    ("", 530): _DENIED,  # log in first
    ("", 534): _DENIED,  # this way of logging in is too weak
    ("", 535): _DENIED,  # wrong password, or one that has expired
    ("", 538): _DENIED,  # only with encryption
    ("", 552): _WRONG,  # too big
    ("connect", 5): _DENIED,  # it does not speak with us
    ("login", 5): _DENIED,
    ("sender", 5): _DENIED,  # the address is not ours to write from
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
    """The error that an SMTP answer is; None if it refuses nothing."""
    for place in ((step, code), ("", code), (step, code // 100), ("", code // 100)):
        if place in SMTP_REFUSED:
            return SMTP_REFUSED[place](f"The mail server refused ({_STEPS[step]}): {code} {text}")
    return None


_STEPS = {
    "connect": "at the first word", "login": "the login", "sender": "the sender", "recipient": "a recipient",
    "message": "the message",
}


def imap_refusal(what: str, text: str, otherwise: type[ConnectorError]) -> ConnectorError:
    """The error that a NO or BAD is."""
    code = _CODE.search(text)
    kind = IMAP_REFUSED.get(code[1], otherwise) if code else otherwise
    return kind(f"{what}: {text}")


@contextmanager
def nothing_happened(what: str) -> Iterator[None]:
    """Around steps after which nothing can have happened: every lost connection is a definite failure."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise PreconditionFailed(
            f"{what}: the server's certificate is not trusted ({error.verify_message}). Check the host in keep.toml; "
            "a server with an authority of its own needs the setting certificates."
        ) from None
    except (OSError, ConnectionLost, EOFError) as error:
        raise Transient(f"{what}: {error_text(error)}.") from None


def error_text(error: BaseException) -> str:
    """An error of a connection in a few words."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line_answer(str(text), "")


def one_line_answer(text: str, secret: str) -> str:
    """What a server said, on one line, not too long, and without the secret if it repeats it."""
    line = " ".join(visible(text).split())
    return (line.replace(secret, "…") if secret else line)[:TEXT_MAX]
