"""What strangers write must not become a header, hold the host up, or stop a search."""

from __future__ import annotations

import ast
import re._constants as codes
import re._parser as parser
import time
from collections.abc import Callable, Iterator
from email import policy
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

import keepai
from keepai import Rejected
from keepai.connectors.google import letters
from keepai.connectors.http.connector import _next
from keepai.connectors.kit import addresses, compose, message
from keepai.connectors.kit.markup import text_of_html
from keepai.connectors.local.mail import LocalMail
from keepai.notices.base import Message
from keepai.notices.email import Email
from tests.connectors.cases import call

SOURCE = Path(keepai.__file__).parent
WORDS = ("=?utf-8?q?Hi=0d=0aBcc:_evil@attacker.test?=", "=?utf-8?b?SGkNCkJjYzogZXZpbEBhdHRhY2tlci50ZXN0?=",
         "=?us-ascii?q?Hi=0aX-Evil:_1?=", "=?utf-8?q?=00?=")
LETTER = {"to": "ann@example.com", "body": "Hello"}


async def as_local(subject: str, tmp_path: Path) -> bytes:
    box = LocalMail(tmp_path / "mail", create=True)
    await box.operations["send"].invoke({**LETTER, "subject": subject}, call())
    [file] = (tmp_path / "mail" / ".Sent" / "cur").iterdir()
    return file.read_bytes()


async def as_gmail(subject: str, _tmp_path: Path) -> bytes:
    import base64

    sender = addresses.own_address("x", "me@example.com")
    return base64.urlsafe_b64decode(letters.write(compose.letter_of(sender, LETTER, subject), "key", "example.com", 0))


async def as_notice(subject: str, _tmp_path: Path) -> bytes:
    channel = Email("localhost", "keep@example.com", ["ann@example.com"], "ops")
    return channel._written(Message("question", subject, "text", 0, "key"))


async def as_mail(subject: str, _tmp_path: Path) -> bytes:
    sender = addresses.own_address("x", "me@example.com")
    letter = compose.letter_of(sender, LETTER, subject)
    return compose.written(letter, "<1@example.com>", "Mon, 5 Jan 2026 09:00:00 +0000")


@pytest.mark.parametrize("write", [as_local, as_gmail, as_notice, as_mail])
@pytest.mark.parametrize("subject", WORDS)
async def test_an_encoded_word_in_a_subject_becomes_no_header(write: Any, subject: str, tmp_path: Path) -> None:
    data = await write(subject, tmp_path)
    read = BytesParser(policy=policy.compat32).parsebytes(data, headersonly=True)
    assert {name.lower() for name in read.keys()} <= {  # noqa: SIM118 (headers, not a mapping)
        "from", "to", "subject", "date", "message-id", "auto-submitted", "x-keep-key", "content-type",
        "content-transfer-encoding", "mime-version"}
    assert message.decoded(str(read["Subject"]).replace("\r\n", "").replace("\n", "")) == subject


@pytest.mark.parametrize("id", ["<1@x>\r\nBcc: e@x", "1@x", "<a b@x>", "=?utf-8?q?<1@x>?="])
async def test_what_is_no_message_id_is_refused_as_one(id: str, tmp_path: Path) -> None:
    box = LocalMail(tmp_path / "mail", create=True)
    with pytest.raises(Rejected):
        await box.operations["send"].invoke({**LETTER, "subject": "Hi", "inReplyTo": id}, call())


def test_only_one_module_makes_messages() -> None:
    makers = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")
              if re_uses(path.read_text("utf-8"), {"EmailMessage", "MIMEText", "MIMEMultipart"})]
    assert makers == ["connectors/kit/compose.py"]


def re_uses(text: str, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(ast.parse(text)))


# One bad message is one bad message


@pytest.mark.parametrize("sender", ["(" * 5_000, '"' * 5_000, "a" * 9_000 + "@", "<" * 5_000, "@" * 3_000])
def test_a_sender_that_no_parser_can_read_is_shown_as_it_is(sender: str) -> None:
    mail = message.parse(f"From: {sender}\r\nSubject: Hi\r\n\r\nHello".encode(), "1", 0)
    assert (mail.subject, mail.body) == ("Hi", "Hello")
    assert mail.sender


# No text takes more than linear time

MIB = 1 << 20


def repeated(piece: str) -> Callable[[int], str]:
    return lambda size: piece * (size // len(piece))


HOSTILE = {name: repeated(name) for name in (
    "<", "<!--", "<!-", "<script>", "<script", "<style>x", "<head>", "</", "<a <", "&", "&#", "&#1", "&#x1", "&amp",
    ">", "<br", "<p>", " ", "\n", "-->", "<!-- -->", "</script", "<head></head", "'", "<a>;", "=?", "=?utf-8?q?",
    "?=", "(", "\\",
)} | {"many digits": lambda size: "&#" + "9" * size, "one tag": lambda size: "<" + "a" * size}


class Linked:
    """An answer with a Link header, as far as `_next` looks at it."""

    def __init__(self, link: str) -> None:
        self.headers = {"link": link}


PARSERS: dict[str, Callable[[str], object]] = {
    "HTML": text_of_html,
    "the header Link": lambda text: _next(Linked(text), None, None),  # type: ignore[arg-type]
    "a mail": lambda text: message.parse(f"From: {text[:60_000]}\r\n\r\n{text}".encode(), "1", 0),
    "a mail of HTML": lambda text: message.parse(f"Content-Type: text/html\r\n\r\n{text}".encode(), "1", 0),
}


def cpu_s(act: Callable[[], object]) -> float:
    """The least of three, so that a disturbed one does not count."""
    return min(_cpu_s(act) for _ in range(3))


def _cpu_s(act: Callable[[], object]) -> float:
    begun = time.process_time()
    act()
    return time.process_time() - begun


@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
def test_no_text_takes_a_parser_more_than_linear_time(parse: Callable[[str], object]) -> None:
    linear = cpu_s(lambda: parse("Hello, how are you? " * (MIB // 20))) + 0.02
    slow = {}
    for name, make in HOSTILE.items():
        text = make(MIB)
        _cpu_s(lambda make=make: parse(make(MIB // 64)))  # a quadratic parser is found here, in little time
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
ANCHORED = {"connectors/google/rows.py", "connectors/local/table.py", "connectors/kit/addresses.py"}


def test_no_regular_expression_of_a_connector_repeats_inside_of_a_repeat() -> None:
    found = [f"{place}: {text}" for place, text in patterns()
             if nested(parser.parse(text)) and place.partition(":")[0] not in ANCHORED]
    assert not found
