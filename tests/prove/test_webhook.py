"""The short form of tests/prove/webhook: a few hosts killed between a POST and its answer, by a real service."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.prove import killing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are held by pidfd")


def killed(kills: int, seed: int, known_by: str) -> dict[str, Any]:
    found = killing.run("tests.prove.webhook", kills, seed, known_by)
    assert found["problems"] == []
    assert (found["kills"], found["effects"]) == (kills, found["orders"])
    return found


def test_a_person_is_asked_once_about_every_webhook_whose_host_was_killed_and_each_is_sent_once() -> None:
    found = killed(6, 7, "person")
    assert found["questions"] == 6
    assert found["manners"]["asking"] > 0


def test_nobody_is_asked_where_a_rule_says_how_to_look_it_up() -> None:
    assert killed(6, 7, "lookup")["questions"] == 0
