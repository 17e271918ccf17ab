"""Grants in keep.toml: a deploy applies them as if a person had typed them, and never against what a person typed."""

from __future__ import annotations

from typing import Any

import pytest

from keepai.config import Settings, load
from keepai.model.errors import ConfigError

from .conftest import SETTINGS, Place

WF = "email-to-sheets"


def configure(place: Place, *lines: str) -> None:
    """A keep.toml that grants this to the workflow."""
    table = "\n".join((f"[workflows.{WF}.grants]", *lines))
    (place.folder / "keep.toml").write_text(f"{SETTINGS}\n{table}\n", "utf-8")


def rules(place: Place) -> dict[str, str]:
    """Capability → mode, as the workflow has them."""
    return dict(place.json("show", WF)["grants"])


def test_a_deploy_grants_what_keep_toml_says_and_says_so(place: Place) -> None:
    rule = 'sheets.appendRow = { mode = "allow", ask_when = ["values[1] = Invoice"] }'
    configure(place, '"gmail.search" = "allow"', rule)
    place.deliver("Invoice")
    place.deliver("Lunch")
    told = place.type("deploy", "flow.js").stdout
    assert "  may use      gmail.search, sheets.appendRow\n" in told
    assert "  keep.toml    gmail.search: allow\n" in told
    assert "  keep.toml    sheets.appendRow: allow, a person is asked when values[1] = Invoice\n" in told
    assert "not granted" not in told
    place.type("dev", "--once", code=4)
    [asked] = place.json("todo", code=4)
    assert asked["facts"]["because"] == "values[1] = Invoice"
    todo = place.type("todo", code=4).stdout
    assert "It asks because values[1] = Invoice." in " ".join(todo.split())
    again = place.type("deploy", "flow.js").stdout
    assert "keep.toml" not in again  # nothing is changed, nothing is said


def test_what_goes_on_while_a_run_waits_is_set_by_keep_toml_unless_a_person_has_said(place: Place) -> None:
    def configured(waiting: str) -> None:
        (place.folder / "keep.toml").write_text(f'{SETTINGS}\n[workflows.{WF}]\nwaiting = "{waiting}"\n', "utf-8")

    configured("others")
    place.type("deploy", "flow.js")
    assert place.json("show", WF)["waiting"] == "others"
    configured("intake")
    place.type("deploy", "flow.js")  # the same script
    assert place.json("show", WF)["waiting"] == "intake"
    place.type("set", WF, "waiting=stop")
    configured("others")
    place.type("deploy", "flow.js")
    assert place.json("show", WF)["waiting"] == "stop"
    configured("all")
    assert "waiting must be stop, intake, others" in place.type("deploy", "flow.js", code=None).stderr


@pytest.mark.parametrize(("line", "told"), [
    ('"sheets.appendRow" = { mode = "allow", match = { nowhere = "x" } }', "has no such param"),
    ('"gmail.search" = { mode = "allow", per_day = 3 }', "per_day is for mutations"),
    ('"sheets.appendRowe" = "allow"', "Did you mean 'sheets.appendRow'?"),
    ('"inputs.nobody" = "deny"', "There is no source 'nobody'"),
])
def test_a_rule_that_cannot_mean_what_it_says_refuses_the_deploy(place: Place, line: str, told: str) -> None:
    configure(place, line)
    result = place.type("deploy", "flow.js", code=None)
    assert result.exit_code != 0
    assert told in " ".join(result.stderr.split())
    assert place.json("status")["workflows"] == []  # not even a part of it


@pytest.mark.parametrize("by_hand", ["deny", "ask"])
def test_what_a_person_granted_by_hand_stays_whatever_keep_toml_says(place: Place, by_hand: str) -> None:
    configure(place, '"gmail.search" = "allow"', '"sheets.appendRow" = "allow"')
    place.type("deploy", "flow.js")
    place.type("grant", WF, "sheets.appendRow", "--mode", by_hand)
    with (place.folder / "flow.js").open("a", encoding="utf-8") as script:
        script.write("// mended\n")
    told = place.type("deploy", "flow.js").stdout
    assert f"  by hand      sheets.appendRow: {by_hand}; keep.toml says allow, which is not used: keep grant" in told
    assert "  keep.toml" not in told
    assert rules(place) == {"gmail.search": "allow", "sheets.appendRow": by_hand}
    done = place.json("deploy", "flow.js")
    assert (done["configured"], len(done["overruled"])) == ([], 1)


def test_what_is_typed_with_the_deploy_counts_and_the_rest_comes_from_keep_toml(place: Place) -> None:
    configure(place, '"gmail.search" = "allow"', '"sheets.appendRow" = "allow"')
    told = place.type("deploy", "flow.js", "--grant", "sheets.appendRow=ask").stdout
    assert "keep.toml    gmail.search: allow" in told
    assert "sheets.appendRow: ask; keep.toml says allow" in told
    assert rules(place) == {"gmail.search": "allow", "sheets.appendRow": "ask"}


def test_a_changed_keep_toml_changes_its_own_rules_at_the_next_deploy_and_not_before(place: Place) -> None:
    configure(place, '"gmail.search" = "allow"', '"sheets.appendRow" = "deny"')
    place.type("deploy", "flow.js")
    configure(place, '"gmail.search" = "allow"', '"sheets.appendRow" = "allow"')
    place.deliver("Invoice")
    place.type("dev", "--once", code=4)
    assert place.rows() == []
    assert rules(place)["sheets.appendRow"] == "deny"
    assert "keep.toml    sheets.appendRow: allow" in place.type("deploy", "flow.js").stdout
    place.type("dev", "--once")
    assert len(place.rows()) == 1


def test_a_line_that_is_gone_from_keep_toml_takes_nothing_back(place: Place) -> None:
    configure(place, '"gmail.search" = "allow"', '"sheets.appendRow" = "ask"')
    place.type("deploy", "flow.js")
    configure(place, '"gmail.search" = "allow"')
    place.type("deploy", "flow.js")
    assert rules(place) == {"gmail.search": "allow", "sheets.appendRow": "ask"}


def test_a_dry_run_lists_what_keep_toml_would_grant_and_grants_nothing(place: Place) -> None:
    configure(place, '"gmail.search" = "allow"', '"sheets.appendRow" = "ask"')
    place.deliver("Invoice")
    told = " ".join(place.type("deploy", "flow.js", "--dry-run").stdout.split())
    assert "keep.toml gmail.search: allow sheets.appendRow: ask" in told
    assert "grant it would ask you first" in told
    assert not (place.folder / "keep.db").exists()


def test_a_rule_of_keep_toml_follows_the_account_at_the_next_deploy(place: Place) -> None:
    configure(place, '"gmail.search" = "allow"', '"sheets.appendRow" = "allow"')
    place.type("deploy", "flow.js")
    text = (place.folder / "keep.toml").read_text("utf-8").replace('path = "sheets"', 'path = "elsewhere"')
    (place.folder / "keep.toml").write_text(text, "utf-8")
    place.deliver("Invoice")
    place.type("dev", "--once", code=4)
    [asked] = place.json("todo", code=4)
    assert "was granted for the account" in asked["facts"]["why"]
    assert "keep.toml    sheets.appendRow: allow" in place.type("deploy", "flow.js").stdout
    place.type("dev", "--once")
    assert place.json("todo") == []


# The file


def loaded(place: Place, *lines: str) -> Settings:
    """The settings with this in the file."""
    (place.folder / "keep.toml").write_text("\n".join(lines), "utf-8")
    return load(place.folder / "keep.toml")


@pytest.mark.parametrize("lines", [
    ("[workflows.a.grants]", '"gmail.send" = { mode = "ask", per_day = 3 }'),
    ("[workflows.a.grants]", 'gmail.send = { mode = "ask", per_day = 3 }'),
    ("[workflows.a.grants.gmail]", 'send = { mode = "ask", per_day = 3 }'),
    ("[workflows.a.grants.gmail.send]", 'mode = "ask"', "per_day = 3"),
    ('[workflows.a.grants."gmail.send"]', 'mode = "ask"', "per_day = 3"),
])
def test_every_way_to_write_it_means_the_same(place: Place, lines: tuple[str, ...]) -> None:
    assert loaded(place, *lines).grants == {"a": {"gmail.send": {"mode": "ask", "per_day": 3}}}


@pytest.mark.parametrize(("lines", "told"), [
    (("[workflows.a.grants]", '"gmail.send" = "perhaps"'), ":2: [workflows.a.grants] The grant of gmail.send must be"),
    (("[workflows.a.grants]", "", 'gmail.send = "no"'), ":3: [workflows.a.grants] The grant of gmail.send must be"),
    (("[workflows.a.grants]", '"gmail.send" = { mode = "allow", ask_when = "amount >" }'), "is no condition"),
    (("[workflows.a.grants]", '"gmail.send" = { mode = "allow", account = "x" }'), "has no 'account'"),
    (("[workflows.a.grants]", 'gmail = "allow"'), ":2: [workflows.a.grants] 'gmail' is no capability"),
    (("[workflows.a]", "grant = 1"), "[workflows.a] has one table, [workflows.a.grants]."),
    (("[workflows.a]", "grants = 1"), "[workflows.a] has one table, [workflows.a.grants]."),
    (("[workflows]", "a = 1"), "[workflows.a] has one table, [workflows.a.grants]."),
])
def test_what_is_wrong_with_it_is_told_with_its_place(place: Place, lines: tuple[str, ...], told: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(place, *lines)
    assert told in caught.value.message
