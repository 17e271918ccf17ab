"""`keep certify` and the certificate: made by running, bound to what it names, shown by deploy and show."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep
from keepai.model.acts import ACTS
from tests.cli.conftest import SETTINGS, Place

SCRIPT = """export default Keep.workflow({
  name: "daily",
  routines: { note: { schedule: { cron: "0 9 * * *" }, handler: async (ctx) => {
    const day = new Date().toISOString().slice(0, 10);
    await ctx.withItem(day, `Note of ${day}`, async (ctx) => {
      if (ctx.item.isDone) return;
      await ctx.sheets.appendRow({ spreadsheetId: "days", values: [day] });
    });
  } } },
});
"""
CASES = """[[case]]
name = "a row a day"
[[case.expect.output]]
call = "sheets.appendRow"
"""


@pytest.fixture
def daily(place: Place) -> Place:
    (place.folder / "daily.js").write_text(SCRIPT, "utf-8")
    (place.folder / "daily.test.toml").write_text(CASES, "utf-8")
    return place


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder that holds what `keep certify` kept, and what it printed: made once and copied."""
    place = Place(tmp_path_factory.mktemp("kept"))
    (place.folder / "keep.toml").write_text(SETTINGS, "utf-8")
    (place.folder / "daily.js").write_text(SCRIPT, "utf-8")
    (place.folder / "daily.test.toml").write_text(CASES, "utf-8")
    with contextlib.chdir(place.folder):
        [done] = place.json("certify", "daily.js")
    return place.folder, done


@pytest.fixture
def certified(daily: Place, kept: tuple[Path, Any]) -> Place:
    """As after `keep certify daily.js`."""
    shutil.copytree(kept[0], daily.folder, dirs_exist_ok=True)
    return daily


def words(place: Place) -> str:
    return str(place.json("deploy", "daily.js")["certificate"]["words"])


def test_what_passes_gets_a_certificate_that_deploy_and_show_tell(
    certified: Place, kept: tuple[Path, Any],
) -> None:
    daily, done = certified, kept[1]
    assert (done["passed"], done["kept"], done["broken"], done["contracts"]) == (True, True, [], {"sheets": "built in"})
    assert words(daily) == f"certified: {done['trials']} trials"
    assert daily.json("show", "daily")["certificate"] == words(daily)


def test_a_certificate_is_void_when_something_that_it_names_changes(certified: Place) -> None:
    daily = certified
    (daily.folder / "daily.test.toml").write_text(CASES.replace("a row a day", "one row"), "utf-8")
    assert words(daily) == "not certified any more: its cases changed since"
    (daily.folder / "daily.test.toml").write_text(CASES, "utf-8")
    assert words(daily).startswith("certified")
    settings = daily.folder / "keep.toml"
    settings.write_text(settings.read_text("utf-8").replace("local.sheets", "google.sheets").replace(
        '[connectors.sheets]\ntype = "google.sheets"\npath = "sheets"\ncreate = true',
        '[connectors.sheets]\ntype = "google.sheets"\naccount = "me@example.com"\nclient_id = "id"'), "utf-8")
    assert words(daily) == "not certified any more: the connector sheets changed since"
    (daily.folder / "daily.js").write_text(SCRIPT.replace("Note of", "Row of"), "utf-8")
    assert "nobody has tried" in words(daily)


def test_policy_may_require_a_certificate(daily: Place) -> None:
    settings = daily.folder / "keep.toml"
    settings.write_text(settings.read_text("utf-8") + '\n[policy]\ncertified = "require"\n', "utf-8")
    refused = daily.type("deploy", "daily.js", code=1)
    assert "Policy requires a certificate: run `keep certify FILE` first." in refused.stderr
    assert daily.type("test").exit_code == 0
    daily.type("deploy", "daily.js", "--dry-run")
    daily.json("certify", "daily.js")
    assert words(daily).startswith("certified")


def test_with_policy_off_nothing_is_said(daily: Place) -> None:
    settings = daily.folder / "keep.toml"
    settings.write_text(settings.read_text("utf-8") + '\n[policy]\ncertified = "off"\n', "utf-8")
    assert daily.json("deploy", "daily.js")["certificate"] is None


def test_a_broken_trial_is_told_with_its_line_and_what_to_write(daily: Place) -> None:
    (daily.folder / "daily.js").write_text(SCRIPT.replace("withItem(day,", "withItem(`${day}-${Date.now()}`,"), "utf-8")
    done = daily.type("certify", "daily.js", code=3)
    assert "the item's id differs on replay: Date.now() at daily.js:5" in done.stdout
    assert "Write instead: Make it from the id of what came in" in done.stdout
    assert "Again: keep certify daily.js --only 1/other-time" in done.stdout
    assert "nobody has tried" in words(daily)
    only = daily.type("certify", "daily.js", "--only", "1/other-time", code=3)
    assert "1 trial" in only.stdout
    unknown = daily.type("certify", "daily.js", "--only", "1/no-such", code=2)
    assert "There is no trial '1/no-such'" in unknown.stderr


def test_a_script_without_cases_is_told_so_and_its_certificate_too(daily: Place) -> None:
    (daily.folder / "daily.test.toml").unlink()
    done = daily.type("certify", "daily.js")
    assert "It has no cases: one was made from the types of its connectors." in done.stdout
    assert words(daily).endswith("with made-up data only")


def test_no_door_takes_a_certificate_from_outside(daily: Place) -> None:
    assert set(ACTS["certify"].params) == {"source", "cases", "script"}
    assert "keep_certificate" not in ACTS


async def test_a_host_has_a_script_tried_in_a_process_of_its_own(daily: Place) -> None:
    from keepai.doors.cli.command_session import CommandSession
    from keepai.doors.host_process import new_host

    settings = CommandSession(config=str(daily.folder / "keep.toml")).settings(connectors=True)
    async with new_host(settings) as keep:
        done = await keep.certify(SCRIPT, cases=CASES, script="daily.js")
        assert done.passed
        told = (await keep.deploy(SCRIPT, cases=CASES)).certificate
        assert told is not None
        assert told.valid
        broken = await keep.certify(SCRIPT.replace("if (ctx.item.isDone) return;", ""), cases=CASES, script="daily.js")
        assert not broken.passed
        assert json.dumps(broken.to_json())


async def test_a_host_without_a_keep_toml_cannot_certify(tmp_path: Path) -> None:
    from keepai.model.errors import Refused

    async with Keep(tmp_path / "keep.db") as keep:
        with pytest.raises(Refused, match="was not made from"):
            await keep.certify(SCRIPT)
