"""Rules judge the meaning of a call, not its spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai.connectors.files.files_connector import Files
from keepai.connectors.http.http_connector import Http
from keepai.connectors.local.mail import LocalMail
from keepai.model.errors import ConfigError, NotGranted
from keepai.model.permissions import Mode, Use, check_params, condition_of, from_text, grant_of, judge, like


@pytest.fixture
def connectors(tmp_path: Path) -> dict[str, Any]:
    return {
        "mail": LocalMail(tmp_path / "mail", create=True), "files": Files(tmp_path / "files", create=True),
        "api": Http(["https://api.example.com/"], name="api"),
    }


def judged(connectors: dict[str, Any], capability: str, rule: Any, params: dict[str, Any]) -> Mode:
    """What the host says of a call that a script makes."""
    connector, _, operation = capability.partition(".")
    spec = connectors[connector].operations[operation]
    grant = grant_of(rule, capability)
    check_params(grant, capability, spec.param_names, spec.kinds)
    mode, _ = judge(grant, capability, spec.parse(params), Use(), may_ask=True, kinds=spec.kinds)
    return mode


LETTER = {"subject": "Hi", "body": "Hello"}
TO = {"mode": "allow", "match": {"to": "*@example.com"}}
EVERYBODY = {"mode": "allow", "match": {"recipients": "*@example.com"}}


@pytest.mark.parametrize("params", [
    {"to": "ann@example.com"}, {"to": ["ann@example.com", "Bob <bob@example.com>"]},
    {"to": "Ann <ann@EXAMPLE.com>, bob@example.com"}, {"to": '"evil@attacker.test" <ann@example.com>'},
])
def test_addresses_that_fit_a_rule_are_allowed(connectors: dict[str, Any], params: dict[str, Any]) -> None:
    assert judged(connectors, "mail.send", TO, {**LETTER, **params}) is Mode.ALLOW
    assert judged(connectors, "mail.send", EVERYBODY, {**LETTER, **params}) is Mode.ALLOW


def test_a_rule_on_to_says_how_to_allow_copies(connectors: dict[str, Any]) -> None:
    with pytest.raises(NotGranted, match=r"also has cc\. A rule on recipients covers all of them"):
        judged(connectors, "mail.send", TO, {**LETTER, "to": "ann@example.com", "cc": "bob@example.com"})
    assert judged(connectors, "mail.send", EVERYBODY, {
        **LETTER, "to": "ann@example.com", "cc": "bob@example.com"}) is Mode.ALLOW


PUBLIC = {"mode": "allow", "match": {"url": "https://API.example.com/v1/public/*"}}


@pytest.mark.parametrize("url", [
    "https://api.example.com/v1/public/x", "HTTPS://API.EXAMPLE.COM:443/v1/public/x", "https://api.example.com/v1/%70ublic/x",
    "https://api.example.com/v1/public/a%2Fb?x=1",
])
def test_a_url_that_fits_a_rule_is_allowed(connectors: dict[str, Any], url: str) -> None:
    assert judged(connectors, "api.post", PUBLIC, {"url": url}) is Mode.ALLOW


def test_what_is_judged_is_what_is_shown_and_sent(connectors: dict[str, Any]) -> None:
    spec = connectors["api"].operations["post"]
    params = spec.parse({"url": "HTTPS://API.EXAMPLE.COM:443/v1/%7Eann/%c3%bc#part"})
    assert params == {"url": "https://api.example.com/v1/~ann/%C3%BC"}
    assert "https://api.example.com/v1/~ann/%C3%BC" in spec.preview(params)
    assert spec.parse(params) == params
    mail = connectors["mail"].operations["send"]
    normal = mail.parse({**LETTER, "to": ' "Doe, Ann"  <ann@B\u00dcCHER.example> ,bob@example.com'})
    assert normal["to"] == ['"Doe, Ann" <ann@xn--bcher-kva.example>', "bob@example.com"]
    assert mail.parse(normal) == normal


@pytest.mark.parametrize(("text", "pattern", "fits"), [
    ("abc", "a*c", True), ("abc", "a?c", True), ("ac", "a?c", False), ("ac", "a*c", True), ("a*c", "a*c", True),
    ("a", "[a]", False), ("[a]", "[a]", True), ("ABC", "abc", False), ("", "*", True), ("", "?", False), ("", "", True),
    ("aXbXc", "*X*", True), ("abc", "abc*", True), ("abcd", "abc", False), ("a\nb", "a*b", True), ("b", "!a", False),
])
def test_a_pattern_has_two_signs_and_no_others(text: str, pattern: str, fits: bool) -> None:
    assert like(text, pattern) is fits


def test_a_pattern_of_many_stars_is_judged_in_little_work() -> None:
    assert not like("a" * 20_000, "*a" * 20 + "b")


ROW = {"values": ["Ann", "x", 1200]}


@pytest.mark.parametrize(("condition", "params", "asks"), [
    ("values[2] > 1000", ROW, True), ("values[2] > 1200", ROW, False), ("values[2] >= 1200", ROW, True),
    ("values[2] < 1200", ROW, False), ("values[2] <= 1200", ROW, True), ("values[2]=1200", ROW, True),
    ("values[2] != 1200", ROW, False), ("values[2] = 1200.0", ROW, True), ("values[0] in Ann, Bob", ROW, True),
    ("values[0] in Carl, Bob", ROW, False), ("values[0] = ann", ROW, False), ('values[0] in ["Ann"]', ROW, True),
    ("values = x", ROW, True), ("row.name = Ann", {"row": {"name": "Ann"}}, True),
    # what cannot be judged is asked about
    ("values[2] > 1000", {"values": ["Ann", "x", "1,200"]}, True), ("values[9] > 1000", ROW, True),
    ("values[2] > 1000", {}, True), ("values[2] > 1000", {"values": [0, 0, True]}, True),
    ("other != x", ROW, True), ("other = x", ROW, False),
])
def test_a_condition_asks_about_the_calls_it_fits_and_those_it_cannot_judge(
    condition: str, params: Any, asks: bool,
) -> None:
    rule = grant_of({"mode": "allow", "ask_when": condition}, "x.y")
    mode, because = judge(rule, "x.y", params, Use(), may_ask=True)
    assert (mode, because.partition(", and ")[0]) == ((Mode.ASK, str(rule.ask_when[0])) if asks else (Mode.ALLOW, ""))
    assert from_text(rule.to_text(), "", 0) == rule
    if asks:
        denied = grant_of({"mode": "ask", "deny_when": [condition]}, "x.y")
        with pytest.raises(NotGranted, match="is denied when"):
            judge(denied, "x.y", params, Use(), may_ask=True)


@pytest.mark.parametrize(("params", "told"), [
    ({"values": ["Ann", 1200]}, "values[1] > 1000"),
    ({"values": ["Ann", "12,50"]}, 'values[1] > 1000, and "12,50" is no number'),
    ({"values": ["Ann", True]}, "values[1] > 1000, and true is no number"),
    ({"values": ["Ann"]}, "values[1] > 1000, and values[1] is missing"),
    ({"values": ["Ann", "x" * 5_000]}, f"values[1] > 1000, and {'x' * 80} is no number"),
])
def test_a_card_says_that_a_condition_could_not_be_judged(params: Any, told: str) -> None:
    rule = grant_of({"mode": "allow", "ask_when": "values[1] > 1000"}, "x.y")
    assert judge(rule, "x.y", params, Use(), may_ask=True).because == told


def test_a_condition_on_recipients_looks_at_every_address(connectors: dict[str, Any]) -> None:
    rule = {"mode": "allow", "ask_when": "recipients != ann@EXAMPLE.com"}
    assert judged(connectors, "mail.send", rule, {**LETTER, "to": "Ann <ann@example.com>"}) is Mode.ALLOW
    assert judged(connectors, "mail.send", rule, {
        **LETTER, "to": "ann@example.com", "cc": "bob@example.com"}) is Mode.ASK


@pytest.mark.parametrize("text", [
    "", "values", "values >", "> 3", "values > x", "a ~ b", "a in", "values[x] > 3", "a > true",
])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError):
        condition_of(text)


@pytest.mark.parametrize(("rule", "told"), [
    ({"match": {"subjekt": "x"}}, "has no such param"), ({"ask_when": "amount > 3"}, "has no such param"),
    ({"deny_when": "bcc = x"}, "has no such param"), ({"match": {"a b": "x"}}, "is no param"),
])
def test_a_rule_on_a_param_that_the_operation_lacks_is_refused(
    connectors: dict[str, Any], rule: Any, told: str,
) -> None:
    with pytest.raises(ConfigError, match=told):
        judged(connectors, "mail.send", {"mode": "allow", **rule}, {**LETTER, "to": "ann@example.com"})


def test_asking_under_a_condition_goes_with_allow() -> None:
    with pytest.raises(ConfigError, match="goes with the mode allow"):
        grant_of({"mode": "deny", "ask_when": "a = 1"}, "x.y")


@pytest.mark.parametrize(("capability", "rule"), [
    ("mail.send", {"match": {"recipients": "*@bücher.example"}}),
    ("mail.send", {"deny_when": ["to = a@bücher.example"]}),
    ("mail.send", {"ask_when": ["cc in ann@example.com, a@bücher.example"]}),
    ("api.post", {"match": {"url": "https://bücher.example/*"}}),
    ("api.post", {"deny_when": ["url = https://a.example/ü"]}),
])
def test_a_rule_in_a_spelling_that_no_call_has_when_it_is_judged_is_refused(
    connectors: dict[str, Any], capability: str, rule: dict[str, Any],
) -> None:
    # a deny of a@bücher.example would never hold: the call has a@xn--bcher-kva.example
    name, _, operation = capability.partition(".")
    spec = connectors[name].operations[operation]
    with pytest.raises(ConfigError, match="write xn--"):
        check_params(grant_of({"mode": "allow", **rule}, capability), capability, spec.param_names, spec.kinds)
    grant = grant_of({"mode": "allow", "deny_when": ["to = a@xn--bcher-kva.example", "subject = ü"]}, "mail.send")
    letter = connectors["mail"].operations["send"]
    check_params(grant, "mail.send", letter.param_names, letter.kinds)
    with pytest.raises(NotGranted, match="denied when"):
        judged(connectors, "mail.send", grant.to_json(), {**LETTER, "to": "a@bücher.example"})


def test_one_entry_of_addresses_is_judged_as_an_address(connectors: dict[str, Any]) -> None:
    rule = {"mode": "allow", "deny_when": ["to[0] = evil@attacker.test"]}
    with pytest.raises(NotGranted, match="denied when"):
        judged(connectors, "mail.send", rule, {**LETTER, "to": ["Ann <evil@ATTACKER.test>"]})
    with pytest.raises(ConfigError, match="no such param"):  # recipients are a set, without an order
        judged(connectors, "mail.send", {"mode": "allow", "deny_when": ["recipients[0] = a@b.c"]}, LETTER)
