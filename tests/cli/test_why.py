"""`keep why` and `keep todo`: what they print can be read, can be typed, and hides nothing."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from keepai import Keep, Policy, Transient
from keepai.testing import ManualClock, World

from .conftest import Place

WF = "email-to-sheets"
Hosts = Callable[..., subprocess.Popen[str]]


def source(mutate: str, *, name: str = "blind", title: str = "Fire") -> str:
    """A workflow that acts once for each mail."""
    return f"""
export default Keep.workflow({{
  name: {name!r}, topics: {{ "in": {{}} }},
  producers: {{ poll: {{ publishes: ["in"], schedule: {{ interval: "1h" }}, handler: async (ctx, state) => {{
    const mails = await ctx.gmail.search({{}});
    for (const mail of mails) {{
      const inputId = ctx.registerInput({{ source: "gmail", type: "email", id: mail.id, title: mail.subject }});
      await ctx.publish("in", {{ messageId: mail.id, inputId, payload: {{ id: mail.id }} }});
    }}
  }} }} }},
  consumers: {{ act: Keep.consumer({{ subscribe: ["in"], publishes: [],
    async prepare(ctx, state) {{
      const [event] = await ctx.peek("in");
      if (!event) return {{ reservations: [], data: {{}} }};
      return {{ reservations: [{{ topic: "in", ids: [event.messageId] }}], data: event, ui: {{ title: {title!r} }} }};
    }},
    async mutate(ctx, prepared) {{ {mutate} }},
    async next(ctx, prepared, mutationResult) {{}}
  }}) }}
}});
"""


FIRE = "await ctx.webhook.fire({ of: prepared.data.messageId });"


def make(script: str, *, subject: str = "One", grants: Any = "all", lose: bool = True) -> None:
    """A ledger here in which one mail came in and its webhook never answered."""
    async def run() -> None:
        world = World(ManualClock())
        world.deliver(subject=subject)
        if lose:
            world.on("webhook.fire").lose_answer()
        async with Keep("keep.db", connectors=world.connectors(), clock=world.clock, policy=Policy()) as keep:
            await keep.deploy(script, grants=grants)
            await keep.run_until_idle()
    asyncio.run(run())


@pytest.fixture
def unknown(place: Place) -> Place:
    """A place whose workflow fired a webhook that never answered."""
    make(source(FIRE))
    return place


# -- why -------------------------------------------------------------------------------------------


def ids(place: Place, workflow: str = WF) -> dict[str, str]:
    """One id of each kind."""
    found = place.json("inputs", workflow)[0]
    return {
        "run": place.json("runs", workflow)[-1]["id"], "input": found["id"], "event": found["events"][0]["id"],
        "mutation": found["outputs"][0]["id"], "workflow": found["workflow_id"],
    }


@pytest.mark.parametrize("kind", ["run", "input", "event", "mutation", "workflow"])
def test_why_explains_anything_by_the_beginning_of_its_id(worked: Place, kind: str) -> None:
    before = worked.files()
    whole = ids(worked)[kind]
    told = worked.type("why", whole[:-2]).stdout
    assert told.startswith(f"{kind} {whole}  {WF}\n")
    for label in ("stands", "because", "moved by", "story"):
        assert f"  {label}" in told
    data = worked.json("why", whole)
    assert (data["id"], data["kind"]) == (whole, kind)
    assert data["story"][0]["told_at"].endswith("Z")
    assert worked.files() == before


def test_why_knows_a_workflow_by_its_name_and_a_question_by_its_id(unknown: Place) -> None:
    assert unknown.type("why", "blind").stdout.startswith("workflow wf_")
    [question] = unknown.json("todo", code=4)
    assert unknown.json("why", question["id"])["id"] == question["run_id"]
    assert unknown.json("why", question["id"][:-2])["id"] == question["run_id"]


@pytest.mark.parametrize(("typed", "told"), [
    ("run_zzz", "There is no run run_zzz."), ("nobody", "There is no workflow 'nobody'."),
    ("ask_zzz", "There is no run run_zzz."), ("apr_1", "There is no approval apr_1."), ("", "There is no workflow ''"),
])
def test_why_of_nothing_says_so(worked: Place, typed: str, told: str) -> None:
    result = worked.type("why", typed, code=1)
    assert told in result.stderr
    assert result.stdout == ""


def test_why_says_what_was_selected_attempted_and_what_to_type(unknown: Place) -> None:
    mutation = ids(unknown, "blind")["mutation"]
    told = unknown.type("why", ids(unknown, "blind")["run"]).stdout
    for part in (
        "paused:reconciliation in mutating", "The connection was lost before the answer came.", ": One",
        'webhook.fire: of="mail-1"', "in the script's words: “Fire”", 'params {"of": "mail-1"}',
        f"keep resolve {mutation} happened --result JSON", "in_flight → indeterminate",
    ):
        assert part in told


def test_why_says_when_it_goes_on_by_itself(place: Place) -> None:
    async def run() -> None:
        world = World()
        world.deliver()
        world.on("webhook.fire").fail(Transient("busy"))
        async with Keep("keep.db", connectors=world.connectors(), clock=world.clock) as keep:
            await keep.deploy(source(FIRE), grants="all")
            await keep.run_until_idle()
    asyncio.run(run())
    told = place.type("why", "blind").stdout
    assert "It goes on as soon as a host looks: it is time to try again." in told  # that was months ago
    assert place.type("todo").stdout == "Nothing waits for you.\n"


def test_who_did_what_is_in_the_story(unknown: Place) -> None:
    mutation = ids(unknown, "blind")["mutation"]
    unknown.type("resolve", mutation, "happened", "--result", '{"ok": 1}')
    [told] = [t for t in unknown.json("why", mutation)["story"] if t["target"] == "applied"]
    assert told["by"]
    assert f"(by {told['by']})" in unknown.type("why", mutation).stdout


# -- todo ------------------------------------------------------------------------------------------


def test_todo_is_a_card_that_a_person_can_answer_from(unknown: Place) -> None:
    told = unknown.type("todo", code=4).stdout
    for part in (
        "Did this happen?  blind  ask_", 'webhook.fire: of="mail-1"', "in the script's words: “Fire”",
        'params       {"of": "mail-1"}', "because of   One", "could not be looked up when it was sent",
        "check        Look in webhook whether this took effect", "as attempt 1", "not yet: keep resolve",
        "a running host measures how long the request may still arrive",
    ):
        assert part in told
    assert unknown.json("todo", code=4)[0]["facts"]["can_verify"] is False


def test_what_todo_prints_can_be_typed(unknown: Place) -> None:
    [card] = unknown.json("todo", code=4)
    lines = unknown.type("todo", code=4).stdout.splitlines()
    typed = [shlex.split(each, comments=True) for each in lines if each.startswith("    keep ")]
    assert [" ".join(each) for each in typed] == card["commands"]
    unknown.type(*typed[-1][1:])  # skip
    assert unknown.type("todo").stdout == "Nothing waits for you.\n"


def test_every_command_of_a_card_is_a_command(blocked: Place) -> None:
    [card] = blocked.json("todo", code=4)
    assert card["commands"][0] == f"keep grant {WF} sheets.appendRow"
    for each in card["commands"]:
        _, name, *_ = shlex.split(each)
        blocked.type(name, "--help")


def test_a_name_that_a_shell_would_read_is_not_printed_to_be_typed(place: Place) -> None:
    make(source(FIRE, name="x; rm -rf ~"), grants={"gmail.search": "allow"})
    for command in (("todo",), ("status",)):
        told = place.type(*command, code=4).stdout
        typed = [part for part in told.splitlines() if "keep grant" in part]
        assert typed
        assert not [part for part in typed if "rm -rf" in part]
    [card] = place.json("todo", code=4)
    assert card["commands"][0] == f"keep grant {card['workflow_id']} webhook.fire"


def test_nothing_can_hide_in_what_people_read(place: Place) -> None:
    # I30: titles come from scripts and from outside
    make(source(FIRE, title="Pay \u202eyppah\u200b\u001b[2J"), subject="Hi\u202e \u0007there")
    run = ids(place, "blind")["run"]
    for typed in (("todo",), ("why", run), ("why", "blind"), ("status",)):
        told = place.type(*typed, code=None).stdout
        assert not set(told) & {"\u202e", "\u200b", "\u001b", "\u0007"}
    told = place.type("todo", code=4).stdout
    assert "“Pay ‹U+202E›yppah‹U+200B›‹U+001B›[2J”" in told
    assert "Hi‹U+202E› ‹U+0007›there" in told


def test_params_are_shown_as_they_are(place: Place) -> None:
    # I30: no folding, no space left out, however narrow the terminal
    words = "a  b   " + "word " * 40
    make(source(f"await ctx.webhook.fire({{ text: {words!r} }});"))
    told = place.type("todo", code=4, columns=40).stdout
    assert f'params       {{"text": "{words}"}}' in told
    assert max(map(len, told.splitlines())) > 200


def test_a_running_host_tells_what_only_it_knows(unknown: Place, hosts: Hosts) -> None:
    # it has no such connector, and it measures the time
    hosts()
    [card] = unknown.json("todo", code=4)
    assert "are no longer configured" in card["facts"]["verifying"]
    assert card["facts"]["possible_from"]["did_not_happen"].endswith("Z")
    told = unknown.type("todo", code=4).stdout
    assert "may arrive   until 20" in told
    assert f"not yet: keep resolve {card['mutation_id']} did_not_happen  # from 20" in told
    explained = unknown.json("why", card["mutation_id"])
    assert [m["kind"] for m in explained["moved_by"]] == ["person", "time"]
    assert "blind" in unknown.type("status", code=4).stdout


def test_a_held_call_is_shown_with_its_term(place: Place) -> None:
    place.deliver("Invoice")
    place.type("deploy", "flow.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask")
    place.type("dev", "--once", code=4)
    told = place.type("todo", code=4).stdout
    assert "May this be sent?" in told
    assert "expires      in 23 h" in told
    [card] = place.json("todo", code=4)
    assert f"keep approve {card['id']}" in told
    approval = place.json("why", card["id"][:-2])
    assert (approval["kind"], approval["standing"]) == ("approval", "pending")


def test_a_repair_is_shown_and_answered(place: Place) -> None:
    async def run() -> None:
        world = World(ManualClock())
        world.deliver(subject="One")
        broken = source(f"if (prepared) throw new Error('no'); {FIRE}")
        async with Keep("keep.db", connectors=world.connectors(), clock=world.clock) as keep:
            done = await keep.deploy(broken, grants="all")
            await keep.run_until_idle()
            await keep.fix(done.workflow_id, source(FIRE), impact="potentially_impactful", note="it threw always")
    asyncio.run(run())
    told = place.type("todo", code=4).stdout
    assert "May this repair become the active version?" in told
    assert "it threw always" in told
    assert "await ctx.webhook.fire" in told  # the whole new script
    [card] = place.json("todo", code=4)
    assert card["commands"] == [f"keep approve {card['id']}", f"keep reject {card['id']}"]
    assert "is rejected" in place.type("reject", card["id"][:-2]).stdout
    assert [each["kind"] for each in place.json("todo", code=4)] == ["logic"]
    told = place.type("todo", code=4).stdout
    assert f"repairs      {card['id']} rejected: rejected by" in told
    assert "2 more may be tried" in told


def test_an_events_runs_are_listed_with_the_attempt_that_each_processed(place: Place) -> None:
    # R213
    async def run() -> str:
        world = World(ManualClock())
        world.deliver(subject="One")
        async with Keep("keep.db", connectors=world.connectors(), clock=world.clock) as keep:
            wf = (await keep.deploy(source(FIRE), grants="all")).workflow_id
            await keep.run_until_idle()
            [event] = await keep.events(wf)
            await keep.reprocess(event.id)
            await keep.run_until_idle()
            return event.id
    event_id = asyncio.run(run())
    first, second = place.json("show", event_id)["runs"]
    assert (first["attempt"], second["attempt"]) == (1, 2)
    shown = place.type("show", event_id).stdout
    assert "processed by" in shown
    assert f"{second['id']} committed 1.0 attempt 2" in shown
    told = place.type("why", event_id).stdout
    assert f"attempt 1 by run {first['id']} (act 1.0): committed" in told
    assert f"attempt 2 by run {second['id']} (act 1.0): committed" in told
    assert ", attempt 2" in place.type("why", second["id"]).stdout


def test_the_answer_happened_says_where_the_script_would_get_null(place: Place) -> None:
    script = source(FIRE).replace("mutationResult) {}", "mutationResult) { ctx.log(mutationResult.result.id); }")
    make(script)
    line = next(n for n, each in enumerate(script.splitlines(), 1) if "result.id" in each)
    told = place.type("todo", code=4).stdout
    assert f"the script reads it, and without one it gets null: line {line}: async next" in told
    assert f"line {line}: async next" in place.type("why", "blind").stdout
