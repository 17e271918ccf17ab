"""`keep propose`, `proposals`, `accept`, `decline` and `withdraw`, without a host."""

from __future__ import annotations

import pytest

from .conftest import EXAMPLE, Place

WHY = "Ann wants her mail in a sheet"


@pytest.fixture
def proposal(place: Place) -> str:
    """A proposal that waits."""
    return str(place.json("propose", str(EXAMPLE), "--why", WHY, "--grant", "all")["id"])


def test_a_proposal_is_shown_and_accepted_by_its_digest(place: Place, proposal: str) -> None:
    [shown] = place.json("proposals")
    assert (shown["id"], shown["status"], shown["why"]) == (proposal, "waiting", WHY)
    assert {each["capability"]: (each["changes"], each["new"]) for each in shown["touches"]} == {
        "gmail.search": (False, False), "sheets.appendRow": (True, False)}
    assert "give --shown" not in place.type("accept", proposal, code=2).stdout
    place.type("accept", proposal, "--shown", "0" * 64, code=1)
    done = place.json("accept", proposal, "--shown", shown["digest"], "--grant", "sheets.appendRow=allow")["result"]
    assert (done["version"], done["must_ask"], done["not_granted"]) == ("1.0", [], [])
    assert place.json("proposals") == []
    assert place.json("proposals", proposal)[0]["status"] == "accepted"


def test_todo_asks_about_a_proposal_and_says_what_it_would_do(place: Place, proposal: str) -> None:
    told = place.type("todo", code=4).stdout
    for part in ("May this become the active version?", f"“{WHY}”", "(sheets.appendRow)", "It has no certificate",
                 f"keep accept {proposal}", f"keep decline {proposal}"):
        assert part in told
    assert place.json("todo", code=4)[0]["kind"] == "proposal"


def test_everything_of_a_proposal_is_shown_with_its_digest(place: Place, proposal: str) -> None:
    told = place.type("proposals", proposal).stdout
    digest = place.json("proposals", proposal)[0]["digest"]
    for part in (digest, f"“{WHY}”", "ctx.sheets.appendRow", "asks for: allow", "no certificate"):
        assert part in told


def test_a_proposal_is_declined_or_withdrawn(place: Place, proposal: str) -> None:
    place.json("decline", proposal, "--why", "not now")
    assert place.json("proposals", proposal)[0]["note"] == "not now"
    again = place.json("propose", str(EXAMPLE), "--why", WHY)["id"]
    place.json("withdraw", again)
    assert [each["status"] for each in place.json("proposals", "--all")] == ["withdrawn", "declined"]
    assert "No proposal waits" in place.type("proposals").stderr


def test_a_script_with_errors_is_not_proposed(place: Place) -> None:
    (place.folder / "wrong.js").write_text("export default 1;", "utf-8")
    assert place.json("propose", "wrong.js", "--why", WHY, code=3)["findings"]
    assert place.json("proposals", "--all") == []
