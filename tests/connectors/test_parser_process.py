"""Untrusted text is parsed in its own process, and a text that takes too much does not affect the others."""

from __future__ import annotations

import json
import os
import sys
import time

import psutil
import pytest

from keepai.connectors.kit import parser_process
from keepai.connectors.kit.parser_process import ParserProcess
from keepai.model.errors import Transient

ENTRIES_OF = "keepai.connectors.rss.feed_parser:entries_of"
#: The library that reads feeds begins anew at each comment.
SLOW = (b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><content type="html">' + b"&lt;!--" * 200_000
        + b"</content></entry></feed>")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is limited here is processor time: on a busy machine a text may wait for it."""
    monkeypatch.setattr(parser_process, "_WAIT", 60)


def test_what_the_function_returns_comes_back_and_the_process_is_used_again() -> None:
    with ParserProcess("json:loads", 5) as parser:
        texts = [b'{"a": [1, null, "\\u00e9"]}', b"null", b'"' + b"x" * 3_000_000 + b'"', b"5"]
        assert [parser.read(text) for text in texts] == [(json.loads(text),) for text in texts]
        [process] = own_children()
        parser.read(b"1")
        assert own_children() == [process]
    assert own_children() == []


def test_what_takes_too_much_time_is_given_up_and_the_next_is_read() -> None:
    with ParserProcess(ENTRIES_OF, 1) as parser:
        begun = time.process_time()
        assert parser.read(SLOW, "") is None
        assert time.process_time() - begun < 0.5, "the host itself does nothing meanwhile"
        assert parser.read(b"<rss version='2.0'></rss>", "") == ({"entries": [], "skipped": []},)


def test_each_text_has_the_whole_time() -> None:
    with ParserProcess("operator:countOf", 1) as parser:
        piece = b"x" * 1_000_000  # some hundredths of a second to count, far from its limit on any machine
        assert parser.read(piece, ord("x")) == (1_000_000,)
        [process] = own_children()
        while sum(psutil.Process(process).cpu_times()[:2]) < 1.5:
            assert parser.read(piece, ord("x"))
        assert own_children() == [process]


def test_what_takes_too_much_memory_is_given_up_and_the_next_is_read() -> None:
    with ParserProcess("operator:mul", 5) as parser:
        assert parser.read(b"x", 4 << 30) is None


def test_a_function_that_fails_fails_for_its_text_alone() -> None:
    with ParserProcess("json:loads", 5) as parser:
        assert parser.read(b"{") is None
        assert parser.read(b"5") == (5,)


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.connectors.kit.parser_process.ANSWER_MAX", 1000)
    with ParserProcess("json:loads", 5) as parser:
        assert parser.read(b'"' + b"x" * 5000 + b'"') is None


def test_a_process_that_cannot_be_started_says_nothing_about_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with ParserProcess("json:loads", 5) as parser, pytest.raises(Transient, match="could not be started"):
        parser.read(b"5")


def test_the_process_has_nothing_of_the_hosts_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEP_SECRET", "s3cret")
    with ParserProcess("os:getenvb", 5) as parser:
        assert parser.read(b"KEEP_SECRET") == (None,)
        [process] = own_children()
        assert psutil.Process(process).environ().keys() <= {"LC_CTYPE"}


def own_children() -> list[int]:
    found = [each for each in psutil.Process(os.getpid()).children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each.pid for each in found if "parser_process" in " ".join(each.cmdline())]
