"""`keep send`, `keep deliveries` and `keep replay`; and flow limits as keep.toml has them and `keep` tells of them."""

from __future__ import annotations

import pytest

from .conftest import SETTINGS, Place

WF = "email-to-sheets"
MAIL = '[connectors.gmail]\ntype = "local.mail"\npath = "mail"'
INBOX = '[connectors.orders]\ntype = "webhook.inbox"\npath = "orders"\ncreate = true\n'


@pytest.fixture
def deployed(place: Place) -> Place:
    """A place with the example deployed, and nothing run."""
    place.type("deploy", "flow.js", "--grant", "all")
    return place


def configure(place: Place, text: str) -> None:
    (place.folder / "keep.toml").write_text(f"{text}\n", "utf-8")


def test_what_is_sent_into_a_topic_is_told_and_listed(deployed: Place) -> None:
    topic = deployed.json("graph", WF)["topics"][0]["name"]
    sent = deployed.json("send", topic, "--data", '{"n": 1}', "--id", "a", "--title", "Ann, by phone")["result"]
    assert (sent["topic"], sent["id"], sent["became"]) == (topic, "a", "new")
    told = deployed.type("send", f"{WF}/{topic}", "--file", "-", "--id", "a", stdin='{"n": 1}').stdout
    assert "was there already" in told
    (deployed.folder / "order.json").write_text('{"n": 2}', "utf-8")
    assert "has the new data" in deployed.type("send", topic, "--file", "order.json", "--id", "a").stdout
    assert [(i["source"], i["title"]) for i in deployed.json("inputs")] == [("manual", "Ann, by phone")]
    assert "send" in deployed.type("show", sent["input"]).stdout


@pytest.mark.parametrize(("args", "told"), [
    (("nowhere", "--data", "1"), "There is no topic and no inbox 'nowhere'"),
    (("nowhere",), "Give either --data JSON or --file FILE"),
    (("nowhere", "--data", "1", "--file", "-"), "Give either"),
    (("nowhere", "--data", "{a"), "not valid JSON"),
    (("nowhere", "--data", '{"a": 1, "a": 2}'), "this cannot be sent in"),
])
def test_what_cannot_be_sent_in_is_refused_in_words(deployed: Place, args: tuple[str, ...], told: str) -> None:
    result = deployed.type("send", *args, code=None)
    assert result.exit_code != 0
    assert told in " ".join(result.stderr.split())


def test_a_delivery_is_put_in_by_hand_listed_and_put_in_once_more(place: Place) -> None:
    configure(place, SETTINGS + INBOX)
    assert "no connector has the type" not in place.type("deliveries").stderr
    place.type("send", "orders", "--data", '{"total": 3}', "--id", "o1")
    again = place.json("replay", "o1")["result"]
    listed = place.json("deliveries", "orders")
    assert [(d["id"], d["repeats"], d["body"]) for d in listed] == [
        ("o1", None, {"total": 3}), (again["id"], "o1", {"total": 3})]
    told = place.type("deliveries").stdout
    assert "again o1" in told
    assert '{"total":3}' in told
    assert place.json("deliveries", "--last", "1") == listed[-1:]
    assert "no delivery 'o9'" in place.type("replay", "o9", code=1).stderr


def test_where_there_is_no_inbox_the_list_says_so(place: Place) -> None:
    assert "There is no inbox" in place.type("deliveries").stderr
    assert place.json("deliveries") == []


def test_a_flow_limit_holds_and_keep_says_by_which_rule_and_until_when(place: Place) -> None:
    configure(place, f'{SETTINGS}rate = "1/h"\n[workflows.{WF}]\nhours = "00:00-24:00"\n')
    for subject in ("One", "Two"):
        place.deliver(subject)
    place.type("deploy", "flow.js", "--grant", "all")
    place.type("dev", "--once")
    assert len(place.json("outputs")) == 1
    [wf] = place.json("status")["workflows"]
    assert wf["blocked"]["status"] == "paused:limit"
    assert '[connectors.sheets] rate = "1/h"' in wf["blocked"]["why"]
    told = " ".join(place.type("why", WF).stdout.split())
    assert 'Then its turn comes, by [connectors.sheets] rate = "1/h".' in told
    assert place.json("todo") == []


@pytest.mark.parametrize(("lines", "told"), [
    (f'{MAIL}\nrate = "often"', "[connectors.gmail] rate must be such as"),
    (f"{MAIL}\nconcurrency = 0", "[connectors.gmail] concurrency must be"),
    (f"{MAIL}\nburst = 3", "[connectors.gmail] burst goes with a rate"),
    ('[workflows.a]\nhours = "9 to 5"', "[workflows.a] hours must be such as"),
    ('[workflows.a]\nconcurrency = 1', "[workflows.a] concurrency is unknown"),
    ('[workflows.a]\nrates = "1/s"', "Did you mean rate?"),
])
def test_a_limit_that_cannot_be_meant_is_told_with_its_line(place: Place, lines: str, told: str) -> None:
    configure(place, lines)
    result = place.type("status", code=None)
    assert result.exit_code != 0
    assert told in " ".join(result.stderr.split())
    assert f"keep.toml:{lines.count(chr(10)) + 1}: " in result.stderr
