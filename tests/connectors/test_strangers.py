"""Text of strangers must not become a header, block the host, or stop a search."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import re._constants as codes
import re._parser as parser
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import keepai
from keepai import Rejected
from keepai.connectors.google import calendar_events, gmail_messages, sheet_rows
from keepai.connectors.google.google_cursor import GoogleCursor
from keepai.connectors.http.http_connector import _next
from keepai.connectors.kit import lenient_json, mail_parser
from keepai.connectors.kit.html_text import text_of_html
from keepai.connectors.kit.parser_process import INSIDE_MAX
from keepai.connectors.local import csv_table
from keepai.connectors.rss.rss_connector import FeedCursor
from keepai.connectors.slack import slack_connector as slack
from keepai.connectors.webhook import inbox

SOURCE = Path(keepai.__file__).parent
LETTER = {"to": "ann@example.com", "body": "Hello"}


# One bad message is one bad message


@pytest.mark.parametrize("sender", ["(" * 5_000, '"' * 5_000, "a" * 9_000 + "@", "<" * 5_000, "@" * 3_000])
def test_a_sender_that_no_parser_can_read_is_shown_as_it_is(sender: str) -> None:
    mail = mail_parser.parse(f"From: {sender}\r\nSubject: Hi\r\n\r\nHello".encode(), "1", 0)
    assert (mail.subject, mail.body) == ("Hi", "Hello")
    assert mail.sender


# No text takes more than linear time

SIZE = 1 << 19  #: large enough that even a search in C, begun anew at each place, is far above the limit


def repeated(piece: str) -> Callable[[int], str]:
    return lambda size: piece * (size // len(piece))


HOSTILE = {name: repeated(name) for name in (
    "<", "<!--", "<!-", "<script>", "<script", "<style>x", "<head>", "</", "<a <", "&", "&#", "&#1", "&#x1", "&amp",
    ">", "<br", "<p>", " ", "\n", "-->", "<!-- -->", "</script", "<head></head", "'", "<a>;", "=?", "=?utf-8?q?",
    "?=", "(", "\\", "[", "{", "[],", '{"":', '{"":0},', '"', ",", ";", "a=b;", "\\u", "\\ud800", "9", "1e9,", "\r",
    '"\n', '"a\n', "keep:", "--b\r\n\r\n", "=\n", "\x00",
)} | {
    "many digits": lambda size: "&#" + "9" * size, "one tag": lambda size: "<" + "a" * size,
    "a list of lists": lambda size: "[" + ",".join(["[]"] * (size // 3)) + "]",
    "a list of objects": lambda size: "[" + ",".join(['{"":0}'] * (size // 7)) + "]",
    "one number": lambda size: "9" * size, "one text": lambda size: '"' + "\\ud800" * (size // 6) + '"',
}


class Linked:
    """An answer with a Link header, as far as `_next` looks at it."""

    def __init__(self, link: str) -> None:
        self.headers = {"link": link}


MULTIPART = "Content-Type: multipart/mixed; boundary=b"
PARSERS: dict[str, Callable[[str], object]] = {
    "HTML": text_of_html,
    "the header Link": lambda text: _next(Linked(text), None, None),  # type: ignore[arg-type]
    "a mail": lambda text: mail_parser.parse(f"From: {text[:60_000]}\r\n\r\n{text}".encode(), "1", 0),
    "a mail of HTML": lambda text: mail_parser.parse(f"Content-Type: text/html\r\n\r\n{text}".encode(), "1", 0),
    # Larger ones are read in a process of their own (`kit/parser_process.py`).
    "a mail's type, as the host reads it": lambda text: in_host(f"Content-Type: text/plain; {text}"),
    "a mail's parts, as the host reads them": lambda text: in_host(f"{MULTIPART}\r\n\r\n{text}"),
    "JSON": lambda text: sensible(lenient_json.parse_json, text),
    "a text in JSON": lambda text: lenient_json.parse_json(json.dumps(text)),
    "a delivery": lambda text: inbox._delivery(
        {"id": "1", "cursor": "1", "received": 0, "sent": 0, "type": "", "body": text}),
    "a table": lambda text: csv_table.rows(text[: SIZE // 16], lambda _line: None),  # a row costs an object and a hash
    "a row of a Google sheet": lambda text: sheet_rows.rows(
        [{"rowData": [{"values": [{"formattedValue": text, "note": text}]}]}]),
    "a text in Gmail": lambda text: gmail_messages.text_of(base64.urlsafe_b64encode(text.encode()), "text/html"),
    "a message in Slack": lambda text: slack._shown({"ts": "1.1", "text": text, "user": text}, "C1"),
    "an event of a calendar": lambda text: calendar_events.shown(
        {"id": text, "summary": text, "description": text}, "primary"),
    "a cursor": lambda text: sensible(GoogleCursor.read, text),
    "a cursor of a feed": lambda text: sensible(FeedCursor.read, text),
}


def in_host(text: str) -> object:
    return mail_parser.parse(text.encode()[:INSIDE_MAX], "1", 0)


def sensible(parse: Callable[[str], object], text: str) -> object:
    with contextlib.suppress(ValueError, Rejected):
        return parse(text)
    return None


def cpu_s(act: Callable[[], object]) -> float:
    """The least of three, so that a disturbed one does not count."""
    return min(_cpu_s(act) for _ in range(3))


def _cpu_s(act: Callable[[], object]) -> float:
    begun = time.process_time()
    act()
    return time.process_time() - begun


@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
def test_no_text_takes_a_parser_more_than_linear_time(parse: Callable[[str], object]) -> None:
    linear = cpu_s(lambda: parse("Hello, how are you? " * (SIZE // 20))) + 0.01
    slow = {}
    for name, make in HOSTILE.items():
        text = make(SIZE)
        _cpu_s(lambda make=make: parse(make(SIZE // 32)))  # a quadratic parser is found here, in little time
        took = _cpu_s(lambda text=text: parse(text))
        if took > 60 * linear:
            took = cpu_s(lambda text=text: parse(text))
        if took > 60 * linear:
            slow[name] = took / linear
    assert not slow, f"times the linear baseline: {slow}"


# No regular expression that reads what strangers wrote can go back and forth

_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)


def patterns() -> Iterator[tuple[str, str]]:
    """Every regular expression of the connectors, and where it stands."""
    for path in [*(SOURCE / "connectors").rglob("*.py"), *(SOURCE / "notices").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.func.attr != "escape":
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str | bytes):
                    text = first.value if isinstance(first.value, str) else first.value.decode("latin-1")
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", text


def nested(items: Any, inside: bool = False) -> bool:
    """Whether an unbounded repeat stands inside of another."""
    for code, args in items:
        if code in _REPEATS:
            unbounded = args[1] is codes.MAXREPEAT or args[1] > 10_000
            if (unbounded and inside) or nested(args[2], inside or unbounded):
                return True
        elif code is codes.SUBPATTERN:
            if nested(args[3], inside):
                return True
        elif code is codes.BRANCH and any(nested(each, inside) for each in args[1]):
            return True
    return False


#: Nested, and bounded otherwise: each round of the outer repeat begins with a character that the inner one cannot take.
ANCHORED = {"connectors/google/sheet_rows.py", "connectors/local/csv_table.py", "connectors/kit/addresses.py"}


def test_no_regular_expression_of_a_connector_repeats_inside_of_a_repeat() -> None:
    found = [f"{place}: {text}" for place, text in patterns()
             if nested(parser.parse(text)) and place.partition(":")[0] not in ANCHORED]
    assert not found
