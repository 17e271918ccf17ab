"""`keep watch` and `keep open`: one live screen with keys to answer, and the page at one thing."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from contextlib import suppress

from keepai.doors.cli.command_session import CommandSession
from keepai.doors.cli.watch import press
from keepai.doors.cli.watch_screen import Hand, SeenLedger

from .conftest import COMMAND, Place, until


def asking(place: Place) -> dict[str, object]:
    """A call that waits for approval."""
    place.deliver("Invoice 7")
    place.type("deploy", "flow.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask")
    place.type("dev", "--once", code=4)
    [question] = place.json("todo", code=4)
    return dict(question)


def test_the_screen_follows_the_ledger_and_a_key_answers(place: Place) -> None:
    asking(place)
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    shown = subprocess.Popen([*COMMAND, "watch"], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=place.folder)
    os.close(theirs)
    said = bytearray()

    def read() -> str:
        os.set_blocking(ours, False)
        with suppress(BlockingIOError, OSError):
            said.extend(os.read(ours, 1 << 16))
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode("utf-8", "replace"))

    try:
        until(lambda: "Approve: exactly this is done, once" in read())
        assert "Add a row to" in read()
        os.write(ours, b"2")
        until(lambda: "Press y if you are sure." in read())
        os.write(ours, b"x")
        os.write(ours, b"1")
        until(lambda: "Nothing waits for you." in read())
        os.write(ours, b"q")
        shown.wait(timeout=20)
    finally:
        shown.kill()
        shown.wait()
        os.close(ours)
    place.type("dev", "--once")
    assert len(place.rows()) == 1


def test_a_yes_that_was_meant_for_another_question_answers_nothing(place: Place) -> None:
    asking(place)
    with CommandSession().look() as look:
        seen = SeenLedger(look.now_ms, [], {}, look.views.needs_you(look.now_ms), [])
    hand = Hand(warned=("apr_of_another", "reject"))
    press(CommandSession(), seen, hand, "y")
    assert (hand.warned, hand.note, len(place.json("todo", code=4))) == (None, "", 1)


def test_a_program_gets_the_screen_as_json_and_no_terminal_is_refused(place: Place) -> None:
    asked = asking(place)
    found = place.json("watch")
    assert [each["id"] for each in found["questions"]] == [asked["id"]]
    assert sum(found["workflows"][0]["lately"]["inputs"]) == 1
    assert "needs a terminal" in place.type("watch", code=1).stderr


def test_the_page_is_opened_at_one_thing(place: Place) -> None:
    asked = asking(place)
    assert "No running host has a page." in place.type("open", code=1).stderr
    host = place.spawn("dev", "--port", "0")
    until(lambda: place.type("open", "--json", code=None).exit_code == 0)
    address = place.json("open", str(asked["run_id"]))["address"]
    assert re.fullmatch(rf"http://\w+\.localhost:\d+/search\?text={asked['run_id']}", address)
    assert place.json("open", "email")["address"].endswith(f"text={asked['workflow_id']}")
    host.send_signal(signal.SIGINT)
    host.communicate(timeout=30)
