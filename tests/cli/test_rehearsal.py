"""`keep deploy --dry-run` and `keep rollback`: before a version is active, and when it should not have been."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import ROOT, Place


def change(place: Place, old: str, new: str, name: str = "flow.js") -> None:
    source = (place.folder / name).read_text()
    assert old in source
    (place.folder / name).write_text(source.replace(old, new))


def test_a_dry_run_shows_every_mutation_and_leaves_nothing(place: Place) -> None:
    place.deliver("Invoice 1")
    place.deliver("Invoice 2")
    before = place.files()
    result = place.type("deploy", "flow.js", "--dry-run")
    assert "It would make 2 mutations." in result.stdout
    assert 'values=["Ann <ann@example.com>","Invoice 2"]' in result.stdout
    assert "Nothing was deployed, nothing was sent, nothing was stored." in result.stderr
    assert place.rows() == []
    after = place.files()
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert all(name.startswith("mail/") for name in changed), changed  # the mail folder's own index


def test_a_dry_run_as_json_tells_inputs_mutations_and_grants(place: Place) -> None:
    place.deliver("Invoice 1")
    done = place.json("deploy", "flow.js", "--dry-run", "--grant", "sheets.appendRow=ask")
    assert (done["dry_run"], done["deployment"]["version"], done["stops"], done["more"]) == (True, "1.0", [], False)
    [came] = done["inputs"]
    assert set(came) == {"source", "type", "external_id", "title"}
    [held] = done["mutations"]
    assert (held["connector"], held["operation"], held["grant"]) == ("sheets", "appendRow", "ask")
    assert held["params"]["values"] == ["Ann <ann@example.com>", "Invoice 1"]


def test_a_dry_run_goes_on_from_where_the_ledger_stands_and_does_not_touch_it(worked: Place) -> None:
    worked.deliver("Invoice 3")
    change(worked, "Add row for", "Add a row for")
    before = (worked.folder / "keep.db").read_bytes(), worked.rows(), worked.json("status", code=0)["workflows"]
    done = worked.json("deploy", "flow.js", "--dry-run")
    assert done["deployment"]["version"] == "2.0"
    assert [held["title"] for held in done["mutations"]] == ["Add a row for Ann <ann@example.com>"]
    assert ((worked.folder / "keep.db").read_bytes(), worked.rows(), worked.json("status")["workflows"]) == before


def test_a_dry_run_does_not_wait_for_the_schedule_nor_for_a_paused_workflow(worked: Place) -> None:
    worked.type("pause", "email-to-sheets")
    worked.deliver("Invoice 3")
    assert len(worked.json("deploy", "flow.js", "--dry-run")["mutations"]) == 1
    assert worked.json("status")["workflows"][0]["status"] == "paused"


def test_a_dry_run_works_beside_a_running_host(place: Place, hosts) -> None:  # type: ignore[no-untyped-def]
    place.type("deploy", "flow.js", "--grant", "all")
    place.type("pause", "email-to-sheets")
    hosts()
    place.deliver("Invoice 1")
    assert len(place.json("deploy", "flow.js", "--dry-run")["mutations"]) == 1
    assert place.rows() == []


def test_a_dry_run_says_where_the_script_would_fail(place: Place) -> None:
    place.deliver("Invoice 1")
    change(place, "= pending[0];", "= pending[0].no.such;")
    result = place.type("deploy", "flow.js", "--dry-run", code=1)
    assert "It would stop: logic: TypeError" in result.stdout
    assert "(at 44:" in result.stdout


def test_a_dry_run_of_a_script_with_errors_says_what_check_says(place: Place) -> None:
    change(place, "gmail.search", "gmail.serch")
    assert "unknown-operation" in place.type("deploy", "flow.js", "--dry-run", code=3).stderr
    assert place.json("deploy", "flow.js", "--dry-run", code=3)["findings"][0]["code"] == "unknown-operation"


def test_a_dry_run_of_a_routine_shows_every_mutation_of_every_item(place: Place) -> None:
    """The script of the README: what follows on a row is a mail to a stranger."""
    readme = (ROOT / "README.md").read_text("utf-8")
    script = readme[readme.index("```js") + 5 :]
    (place.folder / "readme.js").write_text(script[: script.index("```")])
    place.deliver("invoice 1")
    place.deliver("invoice 2", "Bob <bob@example.com>")
    done = place.json("deploy", "readme.js", "--dry-run")
    assert [(held["operation"], held["assumed"]) for held in done["mutations"]] == [
        ("appendRow", False), ("send", True), ("appendRow", True), ("send", True),
    ]
    assert [held["params"]["to"] for held in done["mutations"] if held["operation"] == "send"] == [
        ["Ann <ann@example.com>"], ["Bob <bob@example.com>"],
    ]
    assert set(done["mutations"][0]["result"]) == {"rowId", "row"}
    assert (done["stops"], done["more"]) == ([], False)
    told = place.type("deploy", "readme.js", "--dry-run").stdout
    assert "It would make 4 mutations." in told
    assert told.count("comes after  an assumed result") == 3
    assert told.count("assumed      it gives") == 4
    assert place.rows() == []


CHAIN = """
export default Keep.workflow({
  name: "chain", topics: { mail: {}, row: {} },
  producers: { poll: { publishes: ["mail"], schedule: { interval: "5m" }, handler: async (ctx, state) => {
    const mails = await ctx.gmail.search({});
    for (const mail of mails) {
      const inputId = ctx.registerInput({ source: "gmail", type: "email", id: mail.id, title: mail.subject });
      await ctx.publish("mail", { messageId: mail.id, inputId, payload: mail.from });
    }
  } } },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail"], publishes: ["row"],
      async prepare(ctx) {
        const [event] = await ctx.peek("mail");
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "mail", ids: [event.messageId] }], data: event, ui: { title: "Row" } };
      },
      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.payload] });
      },
      async next(ctx, prepared, done) {
        if (done.status !== "applied") return;
        const messageId = prepared.data.messageId;
        await ctx.publish("row", { messageId, payload: { to: prepared.data.payload, row: READ } });
      },
    }),
    thank: Keep.consumer({
      subscribe: ["row"], PUBLISHES
      async prepare(ctx) {
        const [event] = await ctx.peek("row");
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "row", ids: [event.messageId] }], data: event, ui: { title: "Mail" } };
      },
      async mutate(ctx, prepared) {
        const { to, row } = prepared.data.payload;
        await ctx.gmail.send({ to, subject: "Thanks", body: `row ${row}` });
      },
      NEXT
    }),
  },
});
"""


def chain(place: Place, *, read: str = "done.result.row", publishes: str = "publishes: [],", next: str = "") -> None:
    text = CHAIN.replace("READ", read).replace("PUBLISHES", publishes).replace("NEXT", next)
    (place.folder / "chain.js").write_text(text)


def test_a_dry_run_goes_on_through_next_and_the_consumers_after_it(place: Place) -> None:
    chain(place)
    place.deliver("invoice 1")
    place.deliver("invoice 2", "Bob <bob@example.com>")
    done = place.json("deploy", "chain.js", "--dry-run")
    assert sorted((held["handler"], held["operation"], held["assumed"]) for held in done["mutations"]) == [
        ("file", "appendRow", False), ("file", "appendRow", False), ("thank", "send", True), ("thank", "send", True),
    ]
    assert sorted(held["params"]["to"] for held in done["mutations"] if held["handler"] == "thank") == [
        ["Ann <ann@example.com>"], ["Bob <bob@example.com>"],
    ]


def test_a_dry_run_says_plainly_where_an_assumed_result_stopped_it(place: Place) -> None:
    chain(place, read="done.result.row.no.such")
    place.deliver("invoice 1")
    done = place.json("deploy", "chain.js", "--dry-run", code=1)
    assert [held["operation"] for held in done["mutations"]] == ["appendRow"]
    [stop] = done["stops"]
    assert stop["kind"] == "logic"
    assert "A result before it was assumed: with the real one it may go on." in stop["why"]


def test_a_dry_run_of_an_endless_chain_ends_and_says_that_there_is_more(place: Place) -> None:
    chain(place, publishes="", next="""
      async next(ctx, prepared, done) {
        await ctx.publish("mail", { messageId: prepared.data.messageId + "+", payload: "again@example.com" });
      },
    """)
    place.deliver("invoice 1")
    done = place.json("deploy", "chain.js", "--dry-run", code=0)
    assert (len(done["mutations"]), done["more"], done["stops"]) == (50, True, [])
    told = place.type("deploy", "chain.js", "--dry-run").stdout
    assert "The rehearsal ended here, after many mutations or much time. For real it would go on." in told


def test_a_dry_run_shows_a_call_that_a_person_was_asked_about_before(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask")
    place.type("dev", "--once", code=4)
    done = place.json("deploy", "flow.js", "--dry-run")
    assert ([held["operation"] for held in done["mutations"]], done["stops"]) == (["appendRow"], [])
    assert len(place.json("todo", code=4)) == 1, "the question itself is not answered"


# -- rollback --------------------------------------------------------------------------------------


def test_an_earlier_text_becomes_a_new_version(worked: Place) -> None:
    change(worked, "Add row for", "Add a row for")
    worked.type("deploy", "flow.js")
    told = worked.type("rollback", "email-to-sheets").stdout
    assert "email-to-sheets 3.0 deployed" in told
    assert "its text     is that of 1.0" in told
    versions = worked.json("rollback", "email-to-sheets", "--list")
    assert [each["version"] for each in versions] == ["1.0", "2.0", "3.0"]
    assert versions[0]["hash"] == versions[2]["hash"] != versions[1]["hash"]
    assert [each["active"] for each in versions] == [False, False, True]
    assert "3.0" in worked.type("rollback", "email-to-sheets", "--list").stdout


def test_rolling_back_twice_goes_to_the_text_before(worked: Place) -> None:
    change(worked, "Add row for", "Add a row for")
    worked.type("deploy", "flow.js")
    assert worked.json("rollback", "email-to-sheets")["rolled_back_to"] == "1.0"
    assert worked.json("rollback", "email-to-sheets")["rolled_back_to"] == "2.0"
    assert worked.json("rollback", "email-to-sheets", "1.0")["rolled_back_to"] == "1.0"


def test_a_rollback_grants_nothing(place: Place) -> None:
    place.type("deploy", "flow.js")
    change(place, "Add row for", "Add a row for")
    place.type("deploy", "flow.js")
    assert place.json("rollback", "email-to-sheets")["not_granted"] == ["gmail.search", "sheets.appendRow"]


@pytest.mark.parametrize(("version", "told"), [
    ("1.0", "The text of 1.0 is active already"), ("7.0", "has no version '7.0'"), (None, "has no earlier version"),
])
def test_a_rollback_that_changes_nothing_is_refused(worked: Place, version: str | None, told: str) -> None:
    assert told in worked.type("rollback", "email-to-sheets", *([version] if version else []), code=1).stderr


def becomes(done: Any) -> list[tuple[str, str]]:
    """What became of the runs that were open."""
    return [(each["kind"], each["what"]) for each in done["verdict"]["things"] if each["kind"] == "run"]


def test_a_rollback_says_what_becomes_of_the_run_that_stopped(worked: Place) -> None:
    change(worked, "= pending[0];", "= pending[0].no.such;")
    worked.type("deploy", "flow.js")
    worked.deliver("Invoice 3")
    worked.type("run-now", "email-to-sheets")
    worked.type("dev", "--once", code=4)
    told = worked.json("rollback", "email-to-sheets")
    assert becomes(told) == [("run", "starts_again")]
    worked.type("dev", "--once")
    assert len(worked.rows()) == 3


def test_a_rollback_names_parked_runs_too(blocked: Place) -> None:
    blocked.type("set", "email-to-sheets", "waiting=others")
    blocked.type("dev", "--once", code=4)
    [waits] = [run for run in blocked.json("runs", "email-to-sheets") if run["parked"]]
    change(blocked, "Add row for", "Add a row for")
    blocked.type("deploy", "flow.js")
    told = blocked.json("rollback", "email-to-sheets")["verdict"]["things"]
    assert [each["what"] for each in told if each["id"] == waits["id"]] == ["starts_again"]


def test_a_rollback_to_a_text_without_the_handler_says_so(blocked: Place) -> None:
    change(blocked, "processEmail:", "fileEmail:")
    blocked.type("deploy", "flow.js")
    assert becomes(blocked.json("rollback", "email-to-sheets")) == [("run", "starts_again")]
    change(blocked, "fileEmail:", "otherEmail:")
    blocked.type("deploy", "flow.js")
    assert becomes(blocked.json("rollback", "email-to-sheets", "2.0")) == [("run", "given_up")]


def test_a_dry_run_shows_warnings_too(place: Place) -> None:
    result = place.type("deploy", str(ROOT / "examples" / "chapter-06.js"), "--dry-run")
    assert "warning" in result.stderr


def test_a_dry_run_sends_nothing_even_if_a_call_is_approved_already(place: Place) -> None:
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask")
    place.type("dev", "--once", code=4)
    [question] = place.json("todo", code=4)
    place.type("approve", question["id"])  # without a host, nothing is sent yet
    done = place.json("deploy", "flow.js", "--dry-run")
    assert ([held["operation"] for held in done["mutations"]], done["stops"]) == (["appendRow"], [])
    assert place.rows() == []
    place.type("dev", "--once")
    assert len(place.rows()) == 1


# -- keep shadow ---------------------------------------------------------------------------------------------


def test_shadow_says_what_a_changed_script_would_do_otherwise_and_sends_nothing(worked: Place) -> None:
    rows = worked.rows()
    same = worked.json("shadow", "email-to-sheets", "flow.js", code=0)
    assert (same["all_same"], same["runs"] > 0, same["differing"]) == (True, True, [])
    change(worked, "values: [", 'values: ["new", ')
    told = worked.type("shadow", "email-to-sheets", "flow.js", "--last", "1", code=3).stdout
    assert "of 1 recorded run: 1 changed." in told
    assert 'now   "new"' in told
    assert worked.rows() == rows


def test_shadow_without_recordings_says_so(worked: Place) -> None:
    told = worked.type("shadow", "email-to-sheets", "flow.js", "--since", "2999-01-01T00:00:00Z", code=1).stdout
    assert "nothing to compare with" in told
