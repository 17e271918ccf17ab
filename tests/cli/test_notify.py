"""`keep notify`, `keep digest`, and who is told what by hosts that are processes of their own, also when killed."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import pytest

from keepai.doors.cli.command_session import CommandSession as Settled
from keepai.doors.web.pages.health_page import _troubles
from keepai.reading.look import open_look

from .conftest import SETTINGS, Place

TELL = """
import json, os, sys
told = json.load(sys.stdin)
with open("told", "a") as file:
    file.write(json.dumps(told) + "\\n")
sys.exit(os.path.exists("broken"))
"""


@pytest.fixture
def place(place: Place) -> Place:
    """One with a program that is told, and an e-mail that comes in."""
    (place.folder / "tell.py").write_text(TELL)
    words = json.dumps([sys.executable, "tell.py"])
    (place.folder / "keep.toml").write_text(f'{SETTINGS}\n[notify.log]\ntype = "command"\ncommand = {words}\n')
    return place


def told(place: Place) -> list[dict[str, Any]]:
    file = place.folder / "told"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_host_tells_once_whatever_is_started_after_it(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "gmail.search")
    for _ in range(2):
        place.type("dev", "--once", code=4)
    [message] = told(place)
    [asked] = place.json("todo", code=4)
    assert message["questions"][0]["id"] == asked["id"]
    assert message["questions"][0]["commands"] == asked["commands"]
    assert all(each in message["text"] for each in asked["commands"])


def test_a_host_killed_before_it_noted_what_it_told_leaves_one_to_be_told_again_later(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "gmail.search")
    host = place.spawn("dev", "--once", KEEP_CRASH_AT="before:end_notice")
    host.communicate(timeout=60)
    assert host.returncode == -signal.SIGKILL
    assert len(told(place)) == 1
    place.type("dev", "--once", code=4)
    assert len(told(place)) == 1, "not at once: it may have arrived"
    settings = Settled().settings()
    with open_look(settings.ledger, settings.policy) as look:
        [row] = look.read.all("channel_all")
    assert (row["attempts"], row["error"], row["told_at"]) == (1, None, None)
    assert 20_000 < row["retry_at"] - row["tried_at"] <= 30_000


def test_a_failing_channel_is_shown_where_people_look(place: Place) -> None:
    (place.folder / "broken").touch()
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "gmail.search")
    place.type("dev", "--once", code=4)
    said = "ended with code 1"
    assert said in place.type("todo", code=4).stderr
    assert place.json("todo", code=4), "data stays data"
    [line] = [each for each in place.json("doctor", code=1) if each["name"] == "notify.log"]
    assert (line["state"], said in line["said"]) == ("fail", True)
    settings = Settled().settings()
    with open_look(settings.ledger, settings.policy) as look:
        assert any(said in each.said for each in _troubles(look, None))


def test_a_test_message_is_sent_and_what_came_of_it_is_said(place: Place) -> None:
    assert place.json("notify", "test") == [{"channel": "log", "sent": True, "said": "it took the message."}]
    [message] = told(place)
    assert (message["kind"], message["title"]) == ("test", "Keep can reach you")
    assert "log: it took the message." in place.type("notify", "test", "log").stdout
    (place.folder / "broken").touch()
    assert "ended with code 1" in place.type("notify", "test", code=1).stdout
    assert "no channel 'phone'" in place.type("notify", "test", "phone", code=2).stderr


def test_what_is_wrong_with_a_channel_is_told_with_its_place(place: Place) -> None:
    (place.folder / "keep.toml").write_text(
        '[notify.a]\ntype = "emial"\n[notify.b]\ntype = "ntfy"\ntopic = "t"\ndigest = "daily 25:00"\n'
        '[notify.c]\ntype = "ntfy"\ntopic = "t"\ndigest = "daily 08:00 Nowhere/Land"\n[notify.d]\n')
    shown = place.type("notify", "test", code=2).stderr
    assert "keep.toml:1: [notify.a]: There is no channel type 'emial'. Did you mean 'email'?" in shown
    assert 'keep.toml:3: [notify.b]: digest must be such as "daily 08:00 Europe/Berlin"' in shown
    assert '"Nowhere/Land" is not a time zone' in shown
    assert "[notify.d] needs a type" in shown


def test_secrets_of_a_channel_are_kept_like_those_of_a_connector(place: Place) -> None:
    (place.folder / "keep.toml").write_text('[keep]\nkey_file = "key"\n[notify.chat]\ntype = "slack"\n')
    assert "keep secrets set notify.chat url" in place.type("notify", "test", code=1).stdout
    place.type("secrets", "set", "notify.chat", "url", stdin="https://127.0.0.1/services/hidden")
    [kept] = place.json("secrets", "list")
    assert (kept["connection"], kept["secret"], kept["state"]) == ("notify.chat", "url", "stored")
    shown = place.type("notify", "test", code=1)
    assert "the machine itself" in shown.stdout
    assert "hidden" not in shown.stdout + shown.stderr


def test_a_digest_says_what_was_done_and_what_waits(worked: Place) -> None:
    found = worked.json("digest", "--since", "365d")
    [day] = found["workflows"]
    assert (day["came_in"]["count"], day["went_out"]["count"], day["waits"]["count"]) == (2, 2, 0)
    shown = worked.type("digest", "--since", "365d").stdout
    assert shown.startswith("Keep: 2 came in, 2 went out\n")
    assert "Invoice 1" in shown
    assert "nothing happened" in worked.type("digest", "--since", "1ms").stdout
    assert "not a duration" in worked.type("digest", "--since", "yesterday", code=2).stderr
