"""`keep watch`: one live screen with everything that goes on, and keys to answer what waits for you."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.live import Live

from ...model.clock import SystemClock
from ...model.errors import KeepError, Refused
from ...model.records import Escalation
from ...reading import lists
from ...reading.activity import NOTHING, ActivityCounts
from ...reading.look import Look
from ...reading.offered_acts import act_request, meaning, subject
from ...reading.overview import glances
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session
from .status import questions
from .text import echo_json
from .watch_screen import RUNS_SHOWN, Hand, SeenLedger, answers, screen

POLL_S = 0.2
OLD_MS = 5_000  #: after which it is drawn anew although nothing changed: "3 s ago" grows old
_ARROWS = {"\x1b[A": "k", "\x1b[B": "j", "\x1bOA": "k", "\x1bOB": "j"}


@click.command()
@with_json
@with_session
def watch(session: CommandSession, as_json: bool) -> None:
    """All workflows, what waits for you, and what happens, live.

    j and k choose a question, a digit answers it, q ends. With --json it prints what the screen would show, once.
    """
    counts = ActivityCounts()
    with session.look() as look:
        if as_json:
            echo_json(_as_json(_seen(session, look, counts)))
        elif not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Refused("`keep watch` needs a terminal. `keep watch --json` prints what it shows once.")
        else:
            _live(session, look, counts)


def _seen(session: CommandSession, look: Look, counts: ActivityCounts) -> SeenLedger:
    now_ms = SystemClock().now_ms()
    found = glances(look.read, look.views, now_ms)
    return SeenLedger(
        now_ms, found, counts.of(look.read, now_ms), questions(session, look),
        lists.runs(look.read, lists.ALL, lists.ListFilter(), rows=RUNS_SHOWN).rows,
        {each.workflow.id: each.workflow.name for each in found})


def _as_json(seen: SeenLedger) -> dict[str, object]:
    return {
        "workflows": [
            {**each.to_json(), "lately": seen.lately.get(each.workflow.id, NOTHING).to_json()}
            for each in seen.glances],
        "questions": [each.to_json() for each in seen.questions], "runs": [each.run.to_json() for each in seen.runs],
    }


def _live(session: CommandSession, look: Look, counts: ActivityCounts) -> None:
    hand, change = Hand(), -1
    seen = _seen(session, look, counts)
    with _keys(), Live(screen(seen, hand), screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            keys = _pressed()
            if "q" in keys:
                return
            for key in keys:
                press(session, seen, hand, key)
            newest = look.read.change()
            if keys or newest != change or SystemClock().now_ms() - seen.now_ms > OLD_MS:
                change, seen = newest, _seen(session, look, counts)
                live.update(screen(seen, hand), refresh=True)


def press(session: CommandSession, seen: SeenLedger, hand: Hand, key: str) -> None:
    """What a key does to what is in hand; a digit, or `y` after a warning, answers the chosen question."""
    question, warned = hand.question(seen), hand.warned
    hand.warned, hand.note = None, ""
    if question is None:
        return
    ids, offered = [each.id for each in seen.questions], [act for act, _ in answers(question)]
    if key in ("j", "k"):
        place = ids.index(question.id) + (1 if key == "j" else -1)
        hand.chosen = ids[max(0, min(place, len(ids) - 1))]
    elif key == "y" and warned is not None and warned[0] == question.id:
        _answer(session, hand, question, warned[1])
    elif key.isdecimal() and 0 < int(key) <= len(offered):
        act = offered[int(key) - 1]
        if meaning(act, question).risk:
            hand.chosen, hand.warned = question.id, (question.id, act)
        else:
            _answer(session, hand, question, act)


def _answer(session: CommandSession, hand: Hand, question: Escalation, act: str) -> None:
    capability = question.facts.get("capability")
    name, params = act_request(act, subject(question, act), question.workflow_id, str(capability))
    try:
        given: dict[str, Any] = {**params, "shown": question.version}
        ask_host(session, name, **given)
        hand.note = meaning(act, question).done
    except KeepError as error:
        hand.note = error.message


@contextmanager
def _keys() -> Iterator[None]:
    """Every key by itself, without its letter on the screen."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _pressed() -> list[str]:
    """The keys that were pressed meanwhile."""
    ready, _, _ = select.select([sys.stdin], [], [], POLL_S)
    text = os.read(sys.stdin.fileno(), 16).decode("utf-8", "replace") if ready else ""
    return [_ARROWS[text]] if text in _ARROWS else list(text)
