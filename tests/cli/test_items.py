"""Items and the blast radius: listed, shown, explained, asked about and acted on from the command line."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from keepai.doors.cli.todo import differs

from .conftest import SETTINGS, Place, until

Hosts = Callable[..., subprocess.Popen[str]]
SCRIPT = """
export default Keep.workflow({ name: "sorting", routines: { sort: {
  schedule: { interval: "5m" },
  handler: async (ctx) => {
    for (const mail of await ctx.gmail.search({})) {
      /*OFFER*/
      await ctx.withItem(mail.id, `Sort "${mail.subject}"`, async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.sheets.appendRow({ spreadsheetId: "log", values: [mail.subject/*MORE*/] });
        /*THEN*/
        await ctx.sheets.appendRow({ spreadsheetId: "end", values: [mail.subject] });
      });
    }
  },
} } });
"""
FAILS = SCRIPT.replace("/*THEN*/", 'if (mail.subject === "bad") throw new Error("cannot sort this");')
OTHERWISE = SCRIPT.replace("/*MORE*/", ', "seen"')
LEAVES = SCRIPT.replace("/*OFFER*/", 'if (mail.subject === "bad") continue;')


def deploy(place: Place, source: str, code: int = 0) -> None:
    (place.folder / "sort.js").write_text(source)
    place.type("deploy", "sort.js", "--grant", "all")
    place.type("dev", "--once", code=code)


def item(place: Place, name: str = "bad") -> dict[str, Any]:
    [found] = [i for i in place.json("items", "sorting") if name in i["title"]]
    return dict(found)


#: A place → the e-mails in it, and each script that was deployed with the exit code of the host that ran it.
PLACES: dict[str, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]] = {
    "sorted": (("one", "two"), ((SCRIPT, 0),)),
    "failed": (("one", "bad"), ((FAILS, 4),)),
    "differing": (("one", "bad"), ((FAILS, 4), (OTHERWISE, 4))),
    "left": (("one", "bad"), ((FAILS, 4), (LEAVES, 4))),
}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each place is made once and copied: it takes hosts to make it."""

    @cache
    def make(name: str) -> Path:
        new = Place(tmp_path_factory.mktemp(name))
        (new.folder / "keep.toml").write_text(SETTINGS, "utf-8")
        mails, scripts = PLACES[name]
        for subject in mails:
            new.deliver(subject)
        with contextlib.chdir(new.folder):
            for source, code in scripts:
                deploy(new, source, code)
        return new.folder

    return make


def _copied(name: str) -> Any:
    def fixture(place: Place, made: Callable[[str], Path]) -> Place:
        shutil.copytree(made(name), place.folder, dirs_exist_ok=True)
        place.type("deploy", "sort.js", "--grant", "all")  # mailbox and sheets are others there, and grants know that
        return place

    return pytest.fixture(fixture)


sorted_ = _copied("sorted")  # a routine has sorted two e-mails
failed = _copied("failed")  # it failed in the second item, after that one's first mutation
differing = _copied("differing")  # it goes on with a script that wants another row than the one that was written
left = _copied("left")  # it went on with a script that does not offer the item again


# -- looking -------------------------------------------------------------------------------------------------


def test_items_say_how_far_each_has_come(sorted_: Place) -> None:
    lines = sorted_.type("items", "sorting").stdout.splitlines()
    assert re.fullmatch(r'done +\S.* Sort "one"  itm_\w+', lines[0])
    assert re.fullmatch(r" +→ attempt 1, 2 mutations applied  \d{4}\.mail", lines[1])
    assert len(lines) == 4
    first, _ = sorted_.json("items", "sorting")
    assert (first["status"], first["attempt"], first["applied"], first["needs_you"]) == ("done", 1, 2, False)
    assert (first["external_id"], first["handler"]) == ("0001.mail", "sort")


def test_items_that_need_you_say_so_with_their_state(failed: Place) -> None:
    told = failed.type("items", "sorting", "--status", "failed").stdout
    assert told.startswith("needs you")
    assert "→ failed, attempt 1, 1 mutation applied" in told
    assert "one" not in told


def test_the_input_of_an_item_says_what_holds_it(failed: Place) -> None:
    assert "→ sort failed: Error: cannot sort this  run_" in failed.type("inputs", "sorting").stdout
    deploy(failed, LEAVES, code=4)
    assert f"→ sort left it unfinished  {item(failed)['id']}" in failed.type("inputs", "sorting").stdout
    failed.type("reprocess", item(failed)["id"])
    assert f"→ waits for sort  {item(failed)['id']}" in failed.type("inputs", "sorting").stdout


def test_items_can_be_narrowed_and_are_counted(sorted_: Place) -> None:
    assert sorted_.json("items", "sorting", "--status", "failed") == []
    assert sorted_.type("items", "sorting", "--status", "skipped").stderr == "None.\n"
    assert "… and earlier ones: --last 2 shows more" in sorted_.type("items", "sorting", "--last", "1").stderr
    assert sorted_.type("items", "sorting", "--status", "lost", code=2)


def test_a_workflow_without_routines_has_no_items(worked: Place) -> None:
    result = worked.type("items", "email-to-sheets")
    assert (result.stdout, result.stderr) == ("", "No routine has worked on anything yet.\n")


@pytest.mark.parametrize("look", [("items", "sorting"), ("blast", "sorting"), ("todo",), ("status",)])
def test_a_look_changes_no_byte(left: Place, look: tuple[str, ...]) -> None:
    before = left.files()
    json.loads(left.type(*look, "--json", code=None).stdout)
    assert left.type(*look, code=None).stdout
    assert left.files() == before


def test_show_of_an_item_by_the_beginning_of_its_id(failed: Place) -> None:
    found = item(failed)
    told = failed.type("show", found["id"][:-2]).stdout
    assert told.startswith(f"item {found['id']}\n")
    assert "appendRow" in told
    assert "item: processing → failed" in told
    data = failed.json("show", found["id"])
    assert (data["what"], data["held_by"]) == ("item", data["runs"][-1]["id"])
    assert [m["status"] for m in data["outputs"]] == ["applied"]


def test_show_of_an_item_tells_who_acted_on_it(left: Place) -> None:
    found = item(left)
    left.type("reprocess", found["id"])
    assert [act["act"] for act in left.json("show", found["id"])["acts"]] == ["reprocess"]


def test_an_unknown_item_says_where_they_are_listed(sorted_: Place) -> None:
    lists = "There is no item itm_zzz. `keep items WORKFLOW` lists them."
    assert lists in sorted_.type("show", "itm_zzz", code=1).stderr
    assert "could be 2 items: itm_" in sorted_.type("why", "itm_", code=1).stderr


def test_a_routines_run_lists_what_it_worked_on(failed: Place) -> None:
    [run] = failed.json("runs", "sorting")
    assert run["items"] == [i["id"] for i in failed.json("items", "sorting")]
    data = failed.json("show", run["id"])
    assert [(i["title"], i["status"], i["attempt"]) for i in data["items"]] == [
        ('Sort "one"', "done", 1), ('Sort "bad"', "failed", 1)]
    assert (len(data["outputs"]), data["mutation"]) == (3, None)
    told = failed.type("show", run["id"]).stdout
    assert re.search(r'worked on\n    itm_\w+ done Sort "one"\n    itm_\w+ failed Sort "bad"\n', told)


def test_runs_name_the_items_of_a_routine(sorted_: Place) -> None:
    assert '2 items: Sort "one", Sort "two"' in sorted_.type("runs", "sorting").stdout


def test_why_explains_an_item(left: Place) -> None:
    found = item(left)
    told = left.type("why", found["id"][:-3]).stdout
    assert told.startswith(f"item {found['id']}  sorting\n  stands       failed\n")
    assert "did not come back to it" in told
    assert f"is also      input {found['input_id']}" in told
    assert f"keep reprocess {found['id']} " in told
    assert f"keep skip {found['input_id']} " in told
    assert left.json("why", f"ask_{found['id']}") == left.json("why", found["id"])


# -- being asked ---------------------------------------------------------------------------------------------


def typed_in(told: str) -> list[list[str]]:
    """The commands that a card prints."""
    return [each.split()[1:] for each in re.findall(r"^    (keep .+?)  # ", told, re.MULTILINE)]


def test_a_difference_is_shown_field_by_field(differing: Place) -> None:
    [card] = differing.json("todo", code=4)
    mutation, run = card["mutation_id"], card["run_id"]
    assert card["commands"] == [f"keep resolve {mutation} keep", f"keep skip {run}"]
    told = differing.type("todo", code=4).stdout
    assert told.startswith("It was done before with another content.  sorting  ask_")
    assert "  wanted now   " in told
    assert "  differs      FIELD      APPLIED   WANTED\n               values[1]  (absent)  \"seen\"\n" in told
    assert re.search(r"^ {15}\d other fields the same$", told, re.MULTILINE)
    assert "params" not in told
    assert typed_in(told) == [["resolve", mutation, "keep"], ["skip", run]]


def test_a_difference_is_stacked_on_a_narrow_terminal() -> None:
    assert differs({"to": "a", "row": {"x": 1}}, {"to": "a", "row": {"x": [], "y": None}}) == [
        "  differs      FIELD  APPLIED   WANTED", "               row.x  1         []",
        "               row.y  (absent)  null", "               1 other field the same",
    ]
    assert differs({"a": 1}, {"a": 1}) == []
    assert differs("old", ["new\x1b"])[1:] == ['               params  "old"     (absent)',
                                               '               [0]     (absent)  "new\\u001b"']


def test_a_long_difference_is_stacked(differing: Place) -> None:
    told = differing.type("todo", code=4, columns=40).stdout
    assert '  differs      values[1]\n                 applied  (absent)\n                 wanted   "seen"\n' in told


def test_what_was_applied_can_be_kept(differing: Place) -> None:
    [card] = differing.json("todo", code=4)
    assert "keep. Noted" in differing.type("resolve", card["mutation_id"][:-2], "keep").stdout
    differing.type("dev", "--once")
    assert [i["status"] for i in differing.json("items", "sorting")] == ["done", "done"]
    assert sum("bad" in row for row in differing.rows()) == 2
    assert "no run asks whether to keep it" in differing.type("resolve", card["mutation_id"], "keep", code=1).stderr


def test_a_difference_can_be_skipped_by_the_item(differing: Place) -> None:
    found = item(differing)
    [card] = differing.json("todo", code=4)
    assert differing.json("skip", found["id"]) == {"act": "skip_run", "subject": card["run_id"], "result": None}
    differing.type("dev", "--once")
    assert item(differing)["status"] == "skipped"
    assert sum("bad" in row for row in differing.rows()) == 1


def test_an_item_that_was_left_says_what_was_applied_and_what_to_type(left: Place) -> None:
    found = item(left)
    told = left.type("todo", code=4).stdout
    assert told.startswith(f"This was begun and not finished.  sorting  ask_{found['id']}\n")
    assert "  in           sort\n" in told
    assert f"  item         {found['id']}, attempt 1\n" in told
    assert re.search(r"^  applied      .*bad", told, re.MULTILINE)
    assert typed_in(told) == [["reprocess", found["id"]], ["skip", found["input_id"]]]


@pytest.mark.parametrize(("number", "becomes"), [(0, "processing"), (1, "skipped")])
def test_what_the_card_of_a_left_item_prints_can_be_typed(left: Place, number: int, becomes: str) -> None:
    command = typed_in(left.type("todo", code=4).stdout)[number]
    left.type(*command)
    assert item(left)["status"] == becomes
    assert left.type("todo").stdout == "Nothing waits for you.\n"


@pytest.mark.parametrize("number", [0, 1])
def test_what_the_card_of_a_difference_prints_can_be_typed(differing: Place, number: int) -> None:
    differing.type(*typed_in(differing.type("todo", code=4).stdout)[number])
    differing.type("dev", "--once")
    assert differing.type("todo").stdout == "Nothing waits for you.\n"


def test_status_counts_what_was_left(left: Place) -> None:
    told = left.type("status", code=4).stdout
    assert '  needs you  1 question: Sort "bad"\n    type     keep todo\n' in told
    [workflow] = left.json("status", code=4)["workflows"]
    assert (workflow["blocked"], workflow["needs_you"]) == (None, [f"ask_{item(left)['id']}"])


# -- acting --------------------------------------------------------------------------------------------------


def test_an_item_is_worked_on_once_more(sorted_: Place) -> None:
    found = item(sorted_, "one")
    assert "waits again" in sorted_.type("reprocess", found["id"][:-2]).stdout
    sorted_.type("dev", "--once")
    again = item(sorted_, "one")
    assert (again["status"], again["attempt"], again["applied"]) == ("done", 2, 4)
    assert "→ attempt 2, 4 mutations applied in all of them" in sorted_.type("items", "sorting").stdout
    assert sum("one" in row for row in sorted_.rows()) == 4


def test_an_item_is_worked_on_once_more_by_a_running_host(sorted_: Place, hosts: Hosts) -> None:
    hosts()
    sorted_.type("reprocess", item(sorted_, "one")["id"])
    until(lambda: item(sorted_, "one")["applied"] == 4)
    found = item(sorted_, "two")
    assert "it is done already" in sorted_.type("skip", found["input_id"], code=1).stderr


def test_an_item_that_a_run_has_in_hand_is_not_reprocessed(failed: Place) -> None:
    assert "holds it" in failed.type("reprocess", item(failed)["id"], code=1).stderr


def test_an_item_that_was_left_is_skipped_with_its_input(left: Place) -> None:
    found = item(left)
    assert left.json("skip", found["id"])["subject"] == found["input_id"]
    assert item(left)["status"] == "skipped"
    assert "skipped already" in left.type("skip", found["id"], code=1).stderr


def test_run_now_queues_routines(sorted_: Place) -> None:
    assert sorted_.type("run-now", "sorting").stdout == "Queued: sort.\n"


# -- being told ----------------------------------------------------------------------------------------------


def told_by(place: Place, source: str, code: int = 0) -> list[str]:
    (place.folder / "sort.js").write_text(source)
    place.type("deploy", "sort.js", "--grant", "all")
    lines = place.type("dev", "--once", code=code).stdout.splitlines()
    return [line.partition("sorting/sort  ")[2] for line in lines if not re.search("started|sending", line)]


def test_a_routine_is_told_item_by_item(place: Place) -> None:
    place.deliver("one")
    place.deliver("two")
    told = told_by(place, SCRIPT)
    assert [line.partition(":")[0] for line in told] == [*["applied sheets.appendRow"] * 2, "done"] * 2 + ["committed"]
    assert ("log" in told[0], "end" in told[1], told[2]) == (True, True, 'done: Sort "one"')


def test_a_routine_that_had_nothing_to_do_is_not_told(sorted_: Place) -> None:
    sorted_.type("run-now", "sorting")
    assert "committed" not in sorted_.type("dev", "--once").stdout


def test_what_a_routine_left_is_told_with_what_to_type(failed: Place) -> None:
    found = item(failed)
    assert told_by(failed, LEAVES, code=4)[-4:] == [
        "committed", 'left unfinished: Sort "bad"', f"type: keep reprocess {found['id']}",
        f"type: keep skip {found['input_id']}",
    ]


# -- the blast radius ----------------------------------------------------------------------------------------


def test_blast_lists_what_a_version_touched(left: Place) -> None:
    told = left.type("blast", "sorting", "--version", "1.0").stdout
    assert told.startswith("sorting, version 1.0: 1 run touched 2 inputs, 2 items and 3 mutations.\ninputs\n")
    assert re.search(r'^needs you +\S.*Sort "bad"  inp_\w+\n +→ applied: .*bad.*  mut_', told, re.MULTILINE)
    data = left.json("blast", "sorting", "--version", "1.0")
    assert [i["title"] for i in data["items"]] == ['Sort "one"', 'Sort "bad"']
    assert (data["runs"], data["since_at"], data["mutations_count"]) == (1, None, 3)
    nothing = "sorting, version 2.0: 1 run touched 0 inputs, 0 items and 0 mutations.\n"
    assert left.type("blast", "sorting").stdout == nothing


def test_blast_takes_a_span_of_time(sorted_: Place) -> None:
    told = sorted_.type("blast", "sorting", "--since", "2020-01-01", "--until", "2020-01-02T00:00:00+00:00").stdout
    assert told == ("sorting, every version since 2020-01-01T00:00:00.000Z until 2020-01-02T00:00:00.000Z: "
                    "0 runs touched 0 inputs, 0 items and 0 mutations.\n")
    assert sorted_.json("blast", "sorting", "--since", "2020-01-01")["items_count"] == 2


@pytest.mark.parametrize(("options", "code", "why"), [
    (("--version", "9.9"), 1, "The workflow 'sorting' has no version '9.9'. There are: 1.0."),
    (("--since", "soon"), 2, "must be a time such as 2026-01-05T09:00:00Z, not 'soon'"),
    (("--since", "2021-01-01", "--until", "2020-01-01"), 1, "until must be later"),
])
def test_blast_says_what_it_cannot_do(sorted_: Place, options: tuple[str, ...], code: int, why: str) -> None:
    result = sorted_.type("blast", "sorting", *options, code=code)
    assert why in result.stderr
    assert result.stdout == ""


def test_the_card_of_a_repair_shows_the_blast_radius(failed: Place) -> None:
    # R291
    (failed.folder / "sort.js").write_text(SCRIPT)
    impact = ("--impact", "potentially_impactful", "--note", "rows may be wrong")
    failed.type("fix", "sorting", "sort.js", *impact, code=None)
    told = failed.type("todo", code=4).stdout
    assert told.startswith("May this repair become the active version?  sorting  fix_")
    assert "  touched      by version 1.0, in 1 run: 2 inputs, 2 items, 3 mutations\n" in told
    assert '  items        Sort "one" (done)\n               Sort "bad" (failed)\n' in told
    assert "  all of it    keep blast sorting --version 1.0\n" in told
    typed = re.findall(r"keep (blast .+)", told)[0].split()
    summary = "sorting, version 1.0: 1 run touched 2 inputs, 2 items and 3 mutations."
    assert failed.type(*typed).stdout.startswith(summary)
