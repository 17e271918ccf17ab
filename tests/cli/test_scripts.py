"""`keep check` and `keep deploy`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Place

RIGHT, WRONG = "const event = pending[0];", "const event = pending[0].no.such;"
BAD = """export default Keep.workflow({
  name: "bad",
  topics: { "a": {} },
  producers: {
    poll: { publishes: ["b"], schedule: { interval: "5 parsecs" }, handler: async (ctx) => {
      await ctx.gmail.serch({}); } },
    tick: { publishes: ["a"], schedule: { cron: "61 * * * *" }, handler: async (ctx) => {} },
  },
});
"""


def test_a_good_script_has_no_findings(place: Place) -> None:
    result = place.type("check", "flow.js")
    assert result.stdout == ""
    assert result.stderr == "1 file: 0 errors, 0 warnings\n"
    assert place.json("check", "flow.js") == []


def test_findings_have_their_place_and_their_fix(place: Place) -> None:
    (place.folder / "bad.js").write_text(BAD)
    lines = place.type("check", "bad.js", "flow.js", code=3).stdout.splitlines()
    assert all(line.startswith("bad.js:") for line in lines)
    assert any(line.startswith("bad.js:5:") and "5 parsecs" in line for line in lines), lines
    assert any("61 * * * *" in line for line in lines), lines
    assert any("serch" in line and "search" in line for line in lines), lines
    found = place.json("check", "bad.js", code=3)
    assert {"file", "line", "column", "severity", "code", "message", "fix"} == set(found[0])


def test_a_script_that_is_no_script_is_one_finding(place: Place) -> None:
    (place.folder / "bad.js").write_text("export default {{{")
    [line] = place.type("check", "bad.js", code=3).stdout.splitlines()[:1]
    assert line.startswith("bad.js:1:")
    assert " error " in line


def test_check_reads_from_a_pipe(place: Place) -> None:
    assert place.type("check", "-", stdin=(place.folder / "flow.js").read_text()).exit_code == 0
    assert place.type("check", "-", stdin="nonsense(", code=3).stdout.startswith("-:1:")


def test_without_a_keep_toml_connectors_are_not_judged(place: Place) -> None:
    (place.folder / "keep.toml").unlink()
    text = (place.folder / "flow.js").read_text().replace("gmail.search", "gmail.whatever")
    (place.folder / "flow.js").write_text(text)
    assert "no connector is known" in place.type("check", "flow.js").stderr


def test_a_file_that_is_missing_or_no_text_is_a_usage_error(place: Place) -> None:
    assert "'none.js' does not exist" in place.type("check", "none.js", code=2).stderr
    (place.folder / "bytes.js").write_bytes(b"let a;\n\xff\xfe")
    assert "bytes.js:2: this is not UTF-8. Save the script as UTF-8." in place.type("check", "bytes.js", code=2).stderr
    assert "bytes.js:2:" in place.type("deploy", "bytes.js", code=2).stderr


def test_check_makes_no_ledger(place: Place) -> None:
    place.type("check", "flow.js")
    assert not (place.folder / "keep.db").exists()


def test_a_deploy_refuses_a_script_that_cannot_be_loaded_with_its_place(place: Place) -> None:
    flow = (place.folder / "flow.js").read_text()
    (place.folder / "bad.js").write_text("\nnull.x;\n" + flow)
    result = place.type("deploy", "bad.js", "--grant", "all", code=3)
    assert "bad.js:2:1 error does-not-load" in result.stderr
    printed = json.loads(place.type("deploy", "bad.js", "--grant", "all", "--json", code=3).stdout)
    [found] = [each for each in printed["findings"] if each["severity"] == "error"]
    assert (found["code"], found["line"]) == ("does-not-load", 2)
    assert "1.0 deployed" in place.type("deploy", "flow.js").stdout, "nothing was kept of the other"


def test_a_deploy_says_what_is_not_granted(place: Place) -> None:
    told = place.type("deploy", "flow.js", "--grant", "gmail.search").stdout
    assert "email-to-sheets 1.0 deployed" in told
    assert "not granted  sheets.appendRow" in told
    assert "keep grant email-to-sheets sheets.appendRow" in told


def test_a_deploy_says_what_must_be_asked_for_each_time(place: Place) -> None:
    told = place.type("deploy", "flow.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask").stdout
    assert "\n  may use      gmail.search\n" in told
    assert "\n  must ask     sheets.appendRow\n" in told


def test_a_deploy_as_json_is_the_deployment(place: Place) -> None:
    done = place.json("deploy", "flow.js", "--grant", "all")
    assert (done["version"], done["changed"], done["not_granted"]) == ("1.0", True, [])
    assert place.json("deploy", "flow.js")["changed"] is False
    assert "has not changed" in place.type("deploy", "flow.js").stdout


def test_a_changed_script_is_a_new_version(place: Place) -> None:
    place.type("deploy", "flow.js")
    (place.folder / "flow.js").write_text((place.folder / "flow.js").read_text() + "// more\n")
    assert place.json("deploy", "flow.js")["version"] == "2.0"


def test_a_deploy_says_what_the_new_version_wants_beyond_the_one_before(place: Place) -> None:
    assert "new since" not in place.type("deploy", "flow.js", "--grant", "all").stdout
    source = (place.folder / "flow.js").read_text()
    updating = source.replace("ctx.sheets.appendRow({", "ctx.sheets.updateRow({ rowId: 'r1',")
    (place.folder / "flow.js").write_text(updating)
    told = place.type("deploy", "flow.js").stdout
    assert "  new since 1.0: sheets.updateRow\n" in told
    assert "new since" not in place.type("deploy", "flow.js").stdout, "it has not changed"
    (place.folder / "flow.js").write_text(source)
    done = place.json("deploy", "flow.js")
    assert (done["before"], done["new_capabilities"]) == ("2.0", ["sheets.appendRow"])


def test_a_script_with_errors_is_not_deployed(place: Place) -> None:
    (place.folder / "bad.js").write_text(BAD)
    before = place.files()
    result = place.type("deploy", "bad.js", code=3)
    assert "bad.js:5:" in result.stderr
    assert "Nothing was deployed: the script has" in result.stderr
    found = json.loads(place.type("deploy", "bad.js", "--json", code=3).stdout)["findings"]
    assert found[0]["file"] == "bad.js"
    assert "keep.db" not in before


def test_grants_that_mean_nothing_are_refused(place: Place) -> None:
    told = place.type("deploy", "flow.js", "--grant", "sheets.appendRow=maybe", code=2).stderr
    assert "must be one of allow, ask, deny, not 'maybe'" in told
    told = place.type("deploy", "flow.js", "--grant", "all=deny", code=2).stderr
    assert '"all" can only be allowed' in told


def test_all_is_granted_but_for_what_is_named_beside_it(place: Place) -> None:
    told = place.type("deploy", "flow.js", "--grant", "sheets.appendRow=ask", "--grant", "all").stdout
    assert "\n  may use      gmail.search\n" in told
    assert "\n  must ask     sheets.appendRow\n" in told


def test_a_deploy_that_would_strand_events_is_refused_unless_told(blocked: Place) -> None:
    run = blocked.json("status", code=4)["workflows"][0]["blocked"]["run_id"]
    assert run
    text = (blocked.folder / "flow.js").read_text()
    head = text[: text.index("consumers:")] + "});\n"
    (blocked.folder / "flow.js").write_text(head)
    result = blocked.type("deploy", "flow.js", code=1)
    assert "1 in 'email.received'" in result.stderr
    assert "--strand" in result.stderr
    assert blocked.json("deploy", "flow.js", "--strand")["version"] == "2.0"


def test_a_repair_is_offered_by_hand_and_the_failed_run_goes_on(place: Place) -> None:
    good = (place.folder / "flow.js").read_text()
    (place.folder / "broken.js").write_text(good.replace(RIGHT, WRONG))
    place.deliver("Invoice")
    place.type("deploy", "broken.js", "--grant", "all")
    place.type("dev", "--once", code=None)
    assert "no failed run" not in place.type("fix", "email-to-sheets", "broken.js", code=1).stderr
    done = place.json("fix", "email-to-sheets", "flow.js", "--note", "typo")
    assert done["repair"].startswith("fix_")
    place.type("dev", "--once", code=4)
    assert place.rows() == []
    place.type("approve", done["repair"])
    place.type("dev", "--once")
    assert len(place.rows()) == 1
    assert "no failed run" in place.type("fix", "email-to-sheets", "broken.js", code=1).stderr


def test_a_program_named_in_keep_toml_offers_a_repair_for_what_failed(place: Place) -> None:
    good = (place.folder / "flow.js").read_text()
    (place.folder / "mend.py").write_text(
        "import json, sys\n"
        "known = json.load(sys.stdin)\n"
        f"mended = known['source'].replace({WRONG!r}, {RIGHT!r})\n"
        "json.dump({'source': mended, 'note': 'typo', 'impact': 'safe'}, sys.stdout)\n"
    )
    words = json.dumps([sys.executable, str(place.folder / "mend.py")])
    settings = (place.folder / "keep.toml").read_text()
    (place.folder / "keep.toml").write_text(f"[keep]\nrepair = {words}\n\n{settings}")
    (place.folder / "flow.js").write_text(good.replace(RIGHT, WRONG))
    place.deliver("Invoice")
    place.type("deploy", "flow.js", "--grant", "all")
    place.type("dev", "--once", code=4)
    assert place.rows() == []
    [card] = place.json("todo", code=4)
    assert "its author calls it safe" in place.type("todo", code=4).stdout
    place.type("approve", card["id"], "--shown", str(card["version"]))
    place.type("dev", "--once")
    assert len(place.rows()) == 1
    assert "1.1" in place.type("status").stdout
    (place.folder / "keep.toml").write_text(f'[keep]\nrepair = "mend"\n\n{settings}')
    assert "must be a list of words" in place.type("status", code=2).stderr


def test_a_repair_that_is_no_script_is_refused_with_its_findings(place: Place) -> None:
    good = (place.folder / "flow.js").read_text()
    (place.folder / "flow.js").write_text(good.replace(RIGHT, WRONG))
    place.deliver("Invoice")
    place.type("deploy", "flow.js", "--grant", "all")
    place.type("dev", "--once", code=None)
    (place.folder / "bad.js").write_text(BAD)
    assert "bad.js:5:" in place.type("fix", "email-to-sheets", "bad.js", code=3).stderr


def test_without_a_file_every_script_here_is_checked(place: Place) -> None:
    (place.folder / "broken.js").write_text("export default 1;\n", "utf-8")
    found = place.json("check", code=3)
    assert {each["file"] for each in found} == {"broken.js"}
    assert "2 files: " in place.type("check", code=3).stderr


def test_without_any_script_check_still_judges_keep_toml(place: Place) -> None:
    (place.folder / "flow.js").unlink()
    assert "keep.toml is fine. There is no *.js file here." in place.type("check").stderr
    (place.folder / "keep.toml").write_text("[polcy]\n", "utf-8")
    assert "[polcy] is unknown" in place.type("check", code=2).stderr


def test_where_there_is_no_script_check_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "keep init" in Place(tmp_path).type("check", code=2).stderr
