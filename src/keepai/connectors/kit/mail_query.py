"""The small query language of mailboxes: `from:ann subject:"two words" newer_than:24h invoice`."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...model.errors import Rejected
from .mail_parser import ParsedMail

SUPPORTED = 'from:…, to:…, subject:…, newer_than:<n>m|h|d|w, older_than:…, words, "quoted words"'
_TOKEN = re.compile(r'(?:([A-Za-z_]+):)?(?:"([^"]*)"|(\S+))')
_SPAN = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NO_WORDS = frozenset({"OR", "AND", "NOT", "from:", "to:", "subject:", "newer_than:", "older_than:"})
Test = Callable[[ParsedMail], bool]


def matcher(query: str | None, now_ms: int) -> Test:
    """A test for messages: all terms must hold. `Rejected` names a term that is not supported."""
    tests = [_test(m[1], m[2], m[3], now_ms) for m in _TOKEN.finditer(query or "")]
    return lambda mail: all(test(mail) for test in tests)


def since_ms(query: str | None, now_ms: int) -> int | None:
    """The time before which no message can match, so that a server need not search there; None: there is none."""
    terms = [m for m in _TOKEN.finditer(query or "") if (m[1] or "").lower() == "newer_than"]
    spans = [_span_ms((m[2] or m[3] or "").casefold(), "newer_than") for m in terms]
    return now_ms - min(spans) if spans else None


def _test(operator: str | None, quoted: str | None, bare: str | None, now_ms: int) -> Test:
    word = (quoted if quoted is not None else bare or "").casefold()
    if operator is None:
        if bare is not None and (bare in _NO_WORDS or bare[0] in "-({"):
            raise _unsupported(bare)
        return lambda m: any(word in field.casefold() for field in (m.subject, m.sender, m.to, m.body))
    match operator.lower():
        case "from":
            return lambda mail: word in mail.sender.casefold()
        case "to":
            return lambda mail: word in mail.to.casefold()
        case "subject":
            return lambda mail: word in mail.subject.casefold()
        case "newer_than" | "older_than" as which:
            limit = now_ms - _span_ms(word, which)
            return lambda mail: (mail.date_ms >= limit) == (which == "newer_than")
    raise _unsupported(f"{operator}:")


def _span_ms(text: str, which: str) -> int:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise _unsupported(f"{which}:{text}")
    return int(match[1]) * _UNIT_MS[match[2]]


def _unsupported(term: str) -> Rejected:
    return Rejected(f"A mailbox cannot search for {term[:60]!r}. It supports: {SUPPORTED}.")
