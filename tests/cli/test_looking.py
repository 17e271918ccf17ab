"""Looking: every command, for people and for programs, on a ledger that is not touched by it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Place

LOOKS = (
    ("status",), ("inputs", "email-to-sheets"), ("outputs", "email-to-sheets"), ("runs", "email-to-sheets"),
    ("logs", "email-to-sheets"), ("show", "email-to-sheets"), ("blast", "email-to-sheets"),
)


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look[0])
def test_a_look_changes_no_byte(worked: Place, look: tuple[str, ...]) -> None:
    before = worked.files()
    assert worked.type(*look).stdout
    json.loads(worked.type(*look, "--json").stdout)
    assert worked.files() == before


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look[0])
def test_a_look_without_a_ledger_says_how_to_get_one(place: Place, look: tuple[str, ...]) -> None:
    before = place.files()
    result = place.type(*look, code=1)
    assert "There is no ledger at keep.db yet. `keep deploy FILE` makes one" in result.stderr
    assert result.stdout == ""
    assert place.files() == before


def test_status_shows_how_a_workflow_stands(worked: Place) -> None:
    told = worked.type("status").stdout
    assert "email-to-sheets  active  version 1.0  wf_" in told
    assert re.search(r"^  next       in ([1-5] min|\d+ s)$", told, re.MULTILINE)  # the ledger was made some minutes ago
    assert "No host is running" in told


def test_status_as_json_has_iso_times(worked: Place) -> None:
    status = worked.json("status")
    [workflow] = status["workflows"]
    assert status["host"] is False
    assert (workflow["name"], workflow["status"], workflow["pending"]) == ("email-to-sheets", "active", 0)
    assert workflow["next_due_at"].endswith("Z")
    assert workflow["blocked"] is None


def test_status_says_how_much_the_ledger_keeps_for_a_workflow(worked: Place) -> None:
    told = worked.type("status").stdout
    assert re.search(r"^  ledger     \d+\.\d kB of 4\.0 GB: events .+, runs .+, inputs .+$", told, re.MULTILINE)
    [workflow] = worked.json("status")["workflows"]
    kept = workflow["bytes"]
    assert kept["most"] == 4 << 30
    assert all(0 < kept[part] < 100_000 for part in ("events", "runs", "inputs"))


def test_status_says_what_to_type_when_a_person_must_act(blocked: Place) -> None:
    told = blocked.type("status", code=4).stdout
    assert "needs you  processEmail waits for approval" in told
    assert "keep grant email-to-sheets sheets.appendRow" in told
    assert "\n  next       after your answer\n" in told
    [workflow] = blocked.json("status", code=4)["workflows"]
    assert workflow["blocked"]["needs_you"] is True
    assert workflow["blocked"]["status"] == "paused:approval"
    assert workflow["blocked"]["commands"][0] == "keep grant email-to-sheets sheets.appendRow"


def test_inputs_say_what_came_of_each(worked: Place) -> None:
    lines = worked.type("inputs", "email-to-sheets").stdout.splitlines()
    assert 'Email from Ann <ann@example.com>: "Invoice 1"' in lines[0]
    assert "→ applied: Add row for Ann <ann@example.com>" in lines[1]
    assert len(lines) == 4


def test_inputs_as_json_carry_their_outputs(worked: Place) -> None:
    first, second = worked.json("inputs", "email-to-sheets")
    assert (first["status"], second["status"]) == ("done", "done")
    assert [output["status"] for output in first["outputs"]] == ["applied"]
    assert first["created_at"].endswith("Z")


def test_inputs_can_be_narrowed(worked: Place) -> None:
    assert len(worked.json("inputs", "email-to-sheets", "--search", "lunch")) == 1
    assert worked.json("inputs", "email-to-sheets", "--status", "pending") == []
    assert worked.type("inputs", "email-to-sheets", "--status", "skipped").stderr == "None.\n"


def test_inputs_that_are_not_shown_are_counted(worked: Place) -> None:
    result = worked.type("inputs", "email-to-sheets", "--last", "1")
    assert "Lunch?" in result.stdout
    assert "Invoice 1" not in result.stdout
    assert "… and earlier ones: --last 2 shows more, --limit 50 begins with the oldest." in result.stderr


def test_an_input_that_waits_says_for_what(blocked: Place) -> None:
    told = blocked.type("inputs", "email-to-sheets").stdout
    assert told.startswith("needs you")
    assert "processEmail waits for approval: sheets.appendRow has not been granted" in told


def test_outputs_name_the_inputs_behind_them(worked: Place) -> None:
    lines = worked.type("outputs", "email-to-sheets").stdout.splitlines()
    assert lines[0].startswith("applied")
    assert '← Email from Ann <ann@example.com>: "Invoice 1"' in lines[1]
    outputs = worked.json("outputs", "email-to-sheets")
    assert [len(each["inputs"]) for each in outputs] == [1, 1]
    assert outputs[0]["mutation"]["status"] == "applied"


def test_runs_are_listed_oldest_first(worked: Place) -> None:
    runs = worked.json("runs", "email-to-sheets")
    assert runs[0]["handler"] == "pollEmail"
    assert {run["status"] for run in runs} == {"committed"}
    header, *rows = worked.type("runs", "email-to-sheets", "--last", "2").stdout.splitlines()
    assert header.split()[0] == "RUN"
    assert len(rows) == 2


@pytest.mark.parametrize("kind", ["run", "input", "event", "mutation", "workflow"])
def test_show_tells_everything_by_the_beginning_of_an_id(worked: Place, kind: str) -> None:
    whole = one_of(worked, kind)
    data = worked.json("show", whole)
    assert (data["what"], data["id"]) == (kind, whole)
    assert data["history"] or kind in ("input", "workflow")
    told = worked.type("show", whole[:-2]).stdout
    assert told.startswith(f"{kind} {whole}")


def one_of(place: Place, kind: str) -> str:
    found = place.json("inputs", "email-to-sheets")[0]
    runs = place.json("runs", "email-to-sheets")
    return str({
        "run": runs[-1]["id"], "input": found["id"], "event": found["events"][0]["id"],
        "mutation": found["outputs"][0]["id"], "workflow": found["workflow_id"],
    }[kind])


def test_show_of_a_run_has_its_trace_and_its_moves(worked: Place) -> None:
    [run] = [r for r in worked.json("runs", "email-to-sheets") if r["handler"] == "pollEmail"]
    told = worked.type("show", run["id"]).stdout
    assert "gmail.search(" in told
    assert "phase: executing → committed" in told


def test_show_tells_who_acted(worked: Place) -> None:
    worked.type("pause", "email-to-sheets")
    acts = worked.json("show", "email-to-sheets")["acts"]
    assert [act["act"] for act in acts][-1] == "pause"
    assert acts[-1]["actor"]


def test_logs_show_the_calls(worked: Place) -> None:
    told = worked.type("logs", "email-to-sheets").stdout
    assert "pollEmail.producer gmail.search(" in told
    entries = worked.json("logs", "email-to-sheets")
    assert entries[0]["name"] == "gmail.search"
    assert entries[0]["at"].endswith("Z")


def test_logs_follow_until_interrupted(worked: Place) -> None:
    follower = worked.spawn("logs", "email-to-sheets", "-f", "--json")
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["name"] == "gmail.search"
    worked.deliver("Third")
    worked.type("run-now", "email-to-sheets")
    worked.type("dev", "--once")
    seen = [json.loads(follower.stdout.readline())["handler"] for _ in range(3)]
    follower.send_signal(2)
    follower.communicate(timeout=20)
    assert follower.returncode == 0
    assert "processEmail" in seen or "pollEmail" in seen


def test_a_workflow_may_be_named_by_its_beginning(worked: Place) -> None:
    assert worked.json("inputs", "email") == worked.json("inputs", "email-to-sheets")
    workflow_id = worked.json("status")["workflows"][0]["id"]
    assert worked.json("runs", workflow_id[:10])


def test_an_unknown_workflow_gets_advice(worked: Place) -> None:
    result = worked.type("inputs", "email-to-sheet5", code=1)
    assert result.stderr == (
        "keep: There is no workflow 'email-to-sheet5'. Did you mean 'email-to-sheets'?\n"
    )
    assert "There are: email-to-sheets." in worked.type("inputs", "zzz", code=1).stderr


def test_an_ambiguous_name_lists_what_it_could_mean(worked: Place) -> None:
    script = (worked.folder / "flow.js").read_text().replace("email-to-sheets", "email-to-slack")
    (worked.folder / "other.js").write_text(script)
    worked.type("deploy", "other.js")
    assert "'email' could be email-to-sheets, email-to-slack." in worked.type("inputs", "email", code=1).stderr


@pytest.mark.parametrize(("typed", "told"), [
    ("run_zzz", "There is no run run_zzz. `keep runs WORKFLOW` lists them."),
    ("inp_zzz", "There is no input inp_zzz. `keep inputs WORKFLOW` lists them."),
    ("run_", "could be"),
    ("nonsense", "There is no workflow 'nonsense'."),
    ("", "There is no workflow ''."),
])
def test_show_of_an_unknown_id_says_so(worked: Place, typed: str, told: str) -> None:
    assert told in worked.type("show", typed, code=1).stderr


def test_a_narrow_terminal_cuts_titles_and_keeps_ids(worked: Place) -> None:
    lines = worked.type("inputs", "email-to-sheets", columns=60).stdout.splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert "…  inp_" in lines[0]


def test_what_a_title_hides_is_made_visible(place: Place) -> None:
    place.deliver("evil \u202e\u200b title", "=?utf-8?q?A=1B=5B31mnn?= <a@example.com>")
    place.type("deploy", "flow.js", "--grant", "all")
    place.type("dev", "--once")
    told = place.type("inputs", "email-to-sheets").stdout
    assert "‹U+202E›" in told
    assert "\u202e" not in told
    assert "\x1b" not in told


def test_a_ledger_elsewhere_is_named_by_flag_or_variable(
    worked: Place, monkeypatch: pytest.MonkeyPatch,
) -> None:
    (worked.folder / "other").mkdir()
    shutil.move(worked.folder / "keep.db", worked.folder / "other" / "x.db")
    worked.type("status", code=1)
    assert worked.json("--db", "other/x.db", "status")["workflows"]
    monkeypatch.setenv("KEEP_DB", "other/x.db")
    assert worked.json("status")["workflows"]
    monkeypatch.setenv("KEEP_DB", "nowhere.db")
    assert worked.json("--db", "other/x.db", "status")["workflows"]


def test_where_there_is_one_workflow_it_need_not_be_named(worked: Place) -> None:
    for command in ("inputs", "outputs", "runs", "items", "logs"):
        told = worked.json(command)  # not the text: "3 s ago" goes on between the two
        assert told == worked.json(command, "email-to-sheets")


def test_where_there_are_several_workflows_a_list_shows_all_of_them_by_time(worked: Place) -> None:
    script = (worked.folder / "flow.js").read_text("utf-8")
    (worked.folder / "other.js").write_text(script.replace('name: "email-to-sheets"', 'name: "other"'), "utf-8")
    worked.type("deploy", "other.js", "--grant", "all")
    worked.type("dev", "--once")
    for command in ("inputs", "outputs", "runs"):
        single = [worked.json(command, name) for name in ("email-to-sheets", "other")]
        every = worked.json(command)
        moments = [(each.get("mutation") or each)["created_at"] for each in every]
        assert moments == sorted(moments)
        assert len(every) == sum(map(len, single)), command
        assert all(each in every for each in [*single[0], *single[1]])
        assert worked.json(command, "--last", "1") == every[-1:]
    told = worked.type("inputs").stdout
    assert "other · " in told
    assert "email-to-sheets · " in told
    assert "Say which" in worked.type("inputs", "--limit", "3", code=2).stderr
    assert "There are several workflows: email-to-sheets, other. Say which." in worked.type("logs", code=1).stderr


SHARED = """
export default Keep.workflow({ name: "shared", topics: { mails: {} }, producers: { poll: {
  publishes: ["mails"], schedule: { interval: "5m" }, handler: async (ctx) => {
    for (const mail of await ctx.gmail.search({})) {
      const inputId = ctx.registerInput({ source: "gmail", type: "email", id: mail.id, title: mail.subject });
      await ctx.publish("mails", { messageId: "newest", inputId, payload: { subject: mail.subject } });
    }
  },
} }, consumers: { take: Keep.consumer({ subscribe: ["mails"], publishes: [], prepare: async (ctx) => {
  const [event] = await ctx.peek("mails");
  return { reservations: event ? [{ topic: "mails", ids: ["newest"] }] : [], data: {} };
} }) } });
"""


def test_what_came_after_its_event_was_finished_can_be_seen(place: Place) -> None:
    (place.folder / "shared.js").write_text(SHARED)
    place.deliver("first")
    place.type("deploy", "shared.js", "--grant", "all")
    place.type("dev", "--once")
    place.deliver("second")
    place.type("run-now", "shared")
    place.type("dev", "--once")
    [first] = place.json("inputs", "shared", "--status", "done")
    [late] = place.json("inputs", "shared", "--status", "late")
    assert (first["title"], late["title"]) == ("first", "second")
    [held] = late["held"]
    told = place.type("inputs", "shared", "--status", "late").stdout
    assert "came too late: revision 2 was not processed" in told
    for look in (("show", held["event_id"]), ("show", late["id"]), ("why", held["event_id"]), ("why", late["id"])):
        told = place.type(*look).stdout
        assert '{"subject": "second"}' in told, look
        assert "revision 2" in told, look
    assert place.json("why", late["id"])["held"][0]["payload"] == {"subject": "second"}
    assert f"keep reprocess {held['event_id']}" in place.type("why", late["id"]).stdout


@pytest.mark.parametrize("look", ["inputs", "outputs", "runs"])
def test_a_list_goes_on_page_by_page_from_the_oldest(worked: Place, look: str) -> None:
    def ids(entries: list[dict[str, Any]]) -> list[str]:
        return [str((each.get("mutation") or each)["id"]) for each in entries]

    whole = ids(worked.json(look, "email-to-sheets"))
    assert len(whole) >= 2
    first = worked.type(look, "email-to-sheets", "--limit", "1", "--json")
    seen = ids(json.loads(first.stdout))
    assert f"There is more: --after {seen[0]} goes on." in first.stderr
    while len(seen) < len(whole):
        seen += ids(worked.json(look, "email-to-sheets", "--limit", "1", "--after", seen[-1]))
    assert seen == whole
    last = worked.type(look, "email-to-sheets", "--after", whole[-2])
    assert "There is more" not in last.stderr
    assert worked.json(look, "email-to-sheets", "--after", whole[-1]) == []


@pytest.mark.parametrize(("typed", "code", "told"), [
    (("--last", "1", "--limit", "1"), 2, "--last shows the newest, --limit and --after begin with the oldest."),
    (("--after", "inp_none"), 1, "There is no input inp_none."),
    (("--after", "run_none"), 1, "is not the id of an input"),
])
def test_a_page_that_cannot_be_is_refused(worked: Place, typed: tuple[str, ...], code: int, told: str) -> None:
    assert told in worked.type("inputs", "email-to-sheets", *typed, code=code).stderr


def test_help_and_version_are_told_to_programs(worked: Place) -> None:
    assert worked.json("help")["begin"]["init"] == "Make a folder with a workflow that works at once."
    told = worked.json("version")["version"]
    assert worked.type("version").stdout == f"keep {told}\n"


def test_a_file_has_one_host_at_a_time(worked: Place, hosts: Callable[..., subprocess.Popen[str]]) -> None:
    assert worked.type("hosts").stdout.startswith("None is running")
    host = hosts()
    assert f"One is running: process {host.pid} on " in worked.type("hosts").stdout
    assert worked.json("hosts") == [], "a file does not say"
    assert "None is there." in worked.type("host", "drain", "hst_1", code=1).stderr
