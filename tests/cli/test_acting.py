"""Acting: through a running host, and without one through the engine's own door."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from keepai import Keep
from keepai.ledger.transitions import mutations
from keepai.testing import World

from .conftest import Place, until

Hosts = Callable[..., subprocess.Popen[str]]
WF = "email-to-sheets"
BLIND = """
export default Keep.workflow({
  name: "blind", topics: { "mail": {} },
  producers: { poll: { publishes: ["mail"], schedule: { interval: "5m" }, handler: async (ctx, state) => {
    for (const m of await ctx.gmail.search({ after: state?.cursor })) {
      const inputId = ctx.registerInput({ source: "gmail", type: "email", id: m.id, title: m.subject });
      await ctx.publish("mail", { messageId: m.id, inputId, payload: {} });
    }
    return { cursor: "1" };
  } } },
  consumers: { fire: Keep.consumer({ subscribe: ["mail"], publishes: [],
    async prepare(ctx) {
      const [event] = await ctx.peek("mail", { limit: 1 });
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "mail", ids: [event.messageId] }], data: {}, ui: { title: "Fire" } };
    },
    async mutate(ctx) { await ctx.webhook.fire({ url: "x" }); },
    async next(ctx, prepared, result) { if (result.result?.boom) throw new Error("next is broken"); },
  }) },
});
"""


def state(place: Place) -> str:
    return str(place.json("status", code=0)["workflows"][0]["status"])


def test_a_workflow_is_paused_resumed_and_stopped_without_a_host(worked: Place) -> None:
    assert "email-to-sheets is paused" in worked.type("pause", WF).stdout
    assert state(worked) == "paused"
    assert worked.json("resume", "email")["act"] == "resume"
    assert state(worked) == "active"
    worked.type("stop", WF)
    assert state(worked) == "stopped"


def test_an_act_that_does_not_fit_is_refused_with_the_state(worked: Place) -> None:
    worked.type("pause", WF)
    before = worked.files()["keep.db"]
    result = worked.type("pause", WF, code=1)
    assert "is paused" in result.stderr
    assert result.stdout == ""
    assert "resume it first" in worked.type("run-now", WF, code=1).stderr
    assert len(worked.files()["keep.db"]) == len(before)


def test_what_goes_on_while_a_run_waits_is_set_and_shown(worked: Place) -> None:
    assert worked.json("status")["workflows"][0]["waiting"] == "stop"
    told = worked.type("set", WF, "waiting=others").stdout
    assert told == f"While a run of {WF} waits for a person, whatever does not depend on that run goes on.\n"
    assert "waiting    others" in worked.type("status").stdout
    assert worked.json("set", WF, "waiting=intake")["result"] == {"waiting": "intake"}
    assert worked.json("show", WF)["waiting"] == "intake"
    assert "waiting=stop" in worked.type("set", WF, "waiting=all", code=2).stderr


def test_parked_runs_are_shown_with_what_they_hold(worked: Place) -> None:
    worked.type("set", WF, "waiting=others")
    worked.type("grant", WF, "sheets.appendRow", "--mode", "ask")
    worked.deliver("Third")
    worked.type("run-now", WF)
    worked.type("dev", "--once", code=4)
    [parked] = worked.json("status", code=4)["workflows"][0]["parked"]
    assert (parked["status"], parked["holds"][0]) == ("paused:approval", "1 reserved event")
    assert f"{parked['run_id']} of" in worked.type("status", code=4).stdout
    assert "is parked." in worked.type("graph", WF).stdout
    assert "1 run of it is parked" in worked.type("why", WF, code=None).stdout.replace("\n", " ")


def test_run_now_queues_the_producers(worked: Place) -> None:
    assert worked.type("run-now", WF).stdout == "Queued: pollEmail.\n"
    assert worked.json("run-now", WF)["result"] == ["pollEmail"]
    worked.deliver("Third")
    worked.type("dev", "--once")
    assert len(worked.rows()) == 3


def test_a_grant_lets_a_waiting_run_go_on(blocked: Place) -> None:
    assert blocked.type("grant", WF, "sheets.appendRow").stdout == "email-to-sheets may use sheets.appendRow.\n"
    blocked.type("dev", "--once")
    assert len(blocked.rows()) == 1
    assert blocked.json("grant", WF, "sheets.appendRow", "--mode", "deny")["result"]["mode"] == "deny"


def test_a_grant_can_be_narrowed_to_certain_params_and_so_many_calls(blocked: Place) -> None:
    limits = ("--match", "values=Bob*", "--match", "spreadsheetId=*", "--per-run", "1", "--per-day", "3")
    told = blocked.type("grant", WF, "sheets.appendRow", *limits).stdout
    assert told == (
        "email-to-sheets may use sheets.appendRow, only where values is like Bob*, only where spreadsheetId is like *, "
        "at most 1 per run, at most 3 per day.\n")
    blocked.type("dev", "--once", code=4)
    assert blocked.rows() == []
    assert "granted only for values like 'Bob*'" in blocked.type("todo", code=4).stdout
    rule = blocked.json("grant", WF, "sheets.appendRow", "--match", "values=*", "--per-day", "1")["result"]
    assert rule == {"capability": "sheets.appendRow", "mode": "allow", "match": {"values": "*"}, "per_day": 1}
    blocked.type("dev", "--once")
    assert len(blocked.rows()) == 1


@pytest.mark.parametrize(("typed", "told"), [
    (("--match", "values"), "'values' is not PARAM=PATTERN"),
    (("--match", "=x"), "'=x' is not PARAM=PATTERN"),
    (("--match", "values="), "'values=' is not PARAM=PATTERN"),
    (("--match", "a=1", "--match", "a=2"), "a is given twice"),
    (("--per-run", "0"), "0 is not in the range"),
    (("--per-day", "many"), "'many' is not a valid integer"),
])
def test_a_limit_that_makes_no_sense_is_refused(blocked: Place, typed: tuple[str, ...], told: str) -> None:
    before = blocked.files()
    assert told in blocked.type("grant", WF, "sheets.appendRow", *typed, code=2).stderr
    assert blocked.files() == before


def test_a_grant_of_nothing_known_is_refused(blocked: Place) -> None:
    assert "Did you mean 'sheets.appendRow'?" in blocked.type("grant", WF, "sheets.apendRow", code=1).stderr
    assert "There is no capability 'sheets.nothing'" in blocked.type("grant", WF, "sheets.nothing", code=1).stderr
    assert "'maybe' is not one of" in blocked.type("grant", WF, "a.b", "--mode", "maybe", code=2).stderr


def test_a_stopped_run_is_retried_by_the_beginning_of_its_id(blocked: Place) -> None:
    run = blocked.json("status", code=4)["workflows"][0]["blocked"]["run_id"]
    new = blocked.json("retry", run[:-2])["result"]
    assert new.startswith("run_")
    assert new != run
    assert "cannot be retried: it is superseded" in blocked.type("retry", run, code=1).stderr


def test_a_stopped_run_is_skipped_with_its_events(blocked: Place) -> None:
    run = blocked.json("status", code=4)["workflows"][0]["blocked"]["run_id"]
    assert blocked.type("skip", run).stdout == f"{run} is skipped.\n"
    blocked.type("dev", "--once")
    assert blocked.rows() == []
    [event] = [e for i in blocked.json("inputs", WF) for e in i["events"] if e["topic"] == "email.received"]
    assert event["status"] == "skipped"


def test_an_event_and_an_input_are_skipped(place: Place) -> None:
    place.deliver("One")
    place.deliver("Two")
    place.type("deploy", "flow.js", "--grant", "gmail.search")
    place.type("dev", "--once", code=4)
    first, second = place.json("inputs", WF)
    held = place.type("skip", first["events"][0]["id"], code=1).stderr
    assert "has reserved it" in held
    assert place.json("skip", second["id"])["result"] == [second["events"][0]["id"]]
    assert "is skipped already" in place.type("skip", second["id"], code=1).stderr


def test_a_run_that_has_not_mutated_cannot_be_finished(blocked: Place) -> None:
    run = blocked.json("status", code=4)["workflows"][0]["blocked"]["run_id"]
    assert "Only a run that stopped after its mutation can." in blocked.type("finish", run, code=1).stderr


@pytest.mark.parametrize(("typed", "told"), [
    (("skip", "mut_1"), "'mut_1' is not the id of a run or an input or an event"),
    (("retry", "inp_1"), "'inp_1' is not the id of a run, which begins with run_…."),
    (("retry", "run_zzz"), "There is no run run_zzz."),
    (("resolve", "mut_zzz", "skip"), "There is no mutation mut_zzz."),
    (("pause", "nobody"), "There is no workflow 'nobody'."),
])
def test_an_act_on_nothing_says_so_and_changes_nothing(worked: Place, typed: tuple[str, ...], told: str) -> None:
    before = worked.files()
    assert told in worked.type(*typed, code=1).stderr
    assert worked.files() == before


def test_no_act_makes_a_ledger(place: Place) -> None:
    before = place.files()
    for typed in (("pause", WF), ("retry", "run_1"), ("skip", "evt_1"), ("grant", WF, "a.b"), ("run-now", WF)):
        assert "There is no ledger at keep.db yet." in place.type(*typed, code=1).stderr
    assert place.files() == before


def test_a_call_is_approved_or_rejected_as_it_was_shown(place: Place) -> None:
    for number in range(2):
        place.deliver(f"Invoice {number}")
    place.type("deploy", "flow.js", "--grant", "gmail.search", "--grant", "sheets.appendRow=ask")
    place.type("dev", "--once", code=4)
    told = place.type("todo", code=4).stdout
    assert 'values=["Ann <ann@example.com>","Invoice 0"]' in told
    [asked] = place.json("todo", code=4)
    assert f"keep approve {asked['id']}" in asked["commands"]
    assert place.json("show", asked["id"][:-2])["status"] == "pending"
    assert "is approved" in place.type("approve", asked["id"][:-2]).stdout
    assert "there is nothing to decide" in place.type("reject", asked["id"], code=1).stderr
    place.type("dev", "--once", code=4)
    assert len(place.rows()) == 1
    place.type("reject", place.json("todo", code=4)[0]["id"])
    place.type("dev", "--once")
    assert len(place.rows()) == 1
    assert place.type("todo").stdout == "Nothing waits for you.\n"


def test_an_event_is_processed_once_more(worked: Place) -> None:
    event = worked.json("inputs", WF)[0]["events"][0]["id"]
    assert "waits again" in worked.type("reprocess", event).stdout
    assert worked.json("show", event)["attempt"] == 2
    assert "is pending already" in worked.type("reprocess", event, code=1).stderr


# -- a mutation that nobody can verify -------------------------------------------------------------


@pytest.fixture
def unknown(place: Place) -> Place:
    """A place whose workflow fired a webhook that never answered."""
    async def make() -> None:
        world = World()
        world.deliver(subject="One")
        world.on("webhook.fire").lose_answer()
        async with Keep("keep.db", connectors=world.connectors(), clock=world.clock) as keep:
            await keep.deploy(BLIND, grants="all")
            await keep.run_until_idle()
    asyncio.run(make())
    return place


def question(place: Place) -> Any:
    return place.json("status", code=4)["workflows"][0]["blocked"]


def test_status_asks_about_a_mutation_that_nobody_can_verify(unknown: Place) -> None:
    asked = question(unknown)
    assert asked["needs_you"] is True
    on = asked["mutation_id"]
    assert asked["commands"] == [f"keep resolve {on} happened --result JSON", f"keep resolve {on} skip"]
    assert "unknown, needs you: Fire" in unknown.type("inputs", "blind").stdout


def test_it_happened_is_noted_with_its_result(unknown: Place) -> None:
    asked = question(unknown)
    unknown.type("resolve", asked["mutation_id"], "happened", "--result", '{"ok": true}')
    shown = unknown.json("show", asked["mutation_id"])
    assert (shown["status"], shown["result"]) == ("applied", {"ok": True})
    assert shown["acts"][0]["act"] == "happened"
    again = unknown.type("resolve", asked["mutation_id"], "skip", code=1)
    assert "is applied; there is nothing to resolve" in again.stderr


def test_a_mutation_is_skipped(unknown: Place) -> None:
    asked = question(unknown)
    assert unknown.json("resolve", asked["mutation_id"], "skip")["subject"] == asked["mutation_id"]
    assert unknown.json("show", asked["mutation_id"])["status"] == "skipped"


def test_an_answer_that_cannot_be_is_refused(unknown: Place) -> None:
    asked = question(unknown)["mutation_id"]
    assert "no way to look up" in unknown.type("resolve", asked, "try_again", code=1).stderr
    assert "may still arrive" in unknown.type("resolve", asked, "did_not_happen", "--no-wait", code=1).stderr
    assert "this is not JSON" in unknown.type("resolve", asked, "happened", "--result", "{", code=2).stderr
    assert "belongs to happened" in unknown.type("resolve", asked, "skip", "--result", "1", code=2).stderr
    assert "'perhaps' is not one of" in unknown.type("resolve", asked, "perhaps", code=2).stderr
    assert question(unknown)["mutation_id"] == asked


def test_it_did_not_happen_waits_until_nothing_can_arrive_any_more(unknown: Place) -> None:
    # I33: without a host, this process measures the time itself
    unknown.settles(0.2)
    asked = question(unknown)["mutation_id"]
    done = unknown.type("resolve", asked, "did_not_happen")
    assert "The request may still arrive" in done.stderr
    assert "Noted; the run goes on from there." in done.stdout
    assert unknown.json("show", asked)["status"] == "failed"


def test_waiting_can_be_interrupted_and_leaves_everything_as_it_is(unknown: Place) -> None:
    unknown.settles(60)
    asked = question(unknown)["mutation_id"]
    waiting = unknown.spawn("resolve", asked, "did_not_happen")
    assert waiting.stderr is not None
    assert "waiting 60 s" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(20) == 1
    waiting.communicate()
    assert question(unknown)["mutation_id"] == asked


def test_nobody_waits_where_the_answer_does_not_fit_anyway(unknown: Place) -> None:
    asked = question(unknown)["mutation_id"]
    unknown.type("resolve", asked, "skip")
    assert "is skipped; there is nothing to resolve" in unknown.type("resolve", asked, "did_not_happen", code=1).stderr


def test_a_run_whose_next_is_broken_is_finished(unknown: Place) -> None:
    asked = question(unknown)
    unknown.type("resolve", asked["mutation_id"], "happened", "--result", '{"boom": true}')
    unknown.type("dev", "--once", code=4)
    stopped = question(unknown)
    assert stopped["status"] == "failed:logic"
    assert "its mutation has happened" in unknown.type("skip", stopped["run_id"], code=1).stderr
    assert unknown.json("finish", stopped["run_id"])["act"] == "finish"
    assert unknown.json("inputs", "blind")[0]["status"] == "done"


# -- what was shown --------------------------------------------------------------------------------


def test_an_act_with_the_version_that_was_shown_does_nothing_once_that_has_moved(worked: Place) -> None:
    # I31
    shown = str(worked.json("status")["shown"])
    worked.type("pause", WF, "--shown", shown)
    assert "is paused" in worked.type("pause", WF, "--shown", shown).stdout, "the same click twice"
    stale = worked.type("stop", WF, "--shown", shown, code=1).stderr
    assert "has moved since" in stale
    assert "is paused" in stale
    assert "not in the range" in worked.type("resume", WF, "--shown", "-1", code=2).stderr
    worked.type("resume", WF, "--shown", str(worked.json("show", WF)["shown"]))
    assert state(worked) == "active"


def test_a_card_names_its_version_and_an_answer_to_an_older_one_is_refused(blocked: Place) -> None:
    [asked] = blocked.json("todo", code=4)
    assert f"--shown {asked['version']}" in blocked.type("todo", code=4).stdout
    blocked.type("retry", asked["run_id"], "--shown", str(asked["version"]))
    for typed in (("skip", asked["run_id"]), ("grant", WF, "sheets.appendRow")):
        assert "has moved since" in blocked.type(*typed, "--shown", str(asked["version"]), code=1).stderr


# -- a sign against what is on record --------------------------------------------------------------


@pytest.fixture
def contradicted(worked: Place) -> str:
    """The id of an applied mutation that a later sign says never happened."""
    mutation_id = str(worked.json("outputs", WF)[0]["mutation"]["id"])

    async def hear() -> None:
        sign = mutations.LateEvidence('{"ended_late":"the call raised Rejected: no"}', happened=False)
        async with Keep("keep.db") as keep:
            await keep.parts.ledger.write(mutations.hear, mutation_id, sign)
    asyncio.run(hear())
    return mutation_id


def test_a_sign_against_what_is_on_record_is_shown_until_it_was_seen(worked: Place, contradicted: str) -> None:
    told = worked.type("todo", code=4).stdout
    assert told.startswith(f"Later evidence contradicts what is on record.  {WF}  ask_{contradicted}\n")
    assert "the call raised Rejected: no" in told
    assert f"keep resolve {contradicted} seen" in told
    assert "needs you  1 question" in worked.type("status", code=4).stdout
    assert worked.json("status", code=4)["workflows"][0]["needs_you"] == [f"ask_{contradicted}"]
    why = worked.type("why", f"ask_{contradicted}").stdout
    assert f"keep resolve {contradicted} seen" in why
    assert "Noted; what is on record stays." in worked.type("resolve", contradicted, "seen").stdout
    assert worked.type("todo").stdout == "Nothing waits for you.\n"
    assert worked.json("show", contradicted)["status"] == "applied"
    assert "nothing that waits to be seen" in worked.type("resolve", contradicted, "seen", code=1).stderr


# -- with a host -----------------------------------------------------------------------------------


def test_acts_go_through_the_running_host(worked: Place, hosts: Hosts) -> None:
    hosts()
    assert worked.json("status")["host"] is True
    worked.type("pause", WF)
    assert state(worked) == "paused"
    assert "is paused" in worked.type("pause", WF, code=1).stderr
    worked.type("resume", WF)
    worked.deliver("Third")
    worked.type("run-now", WF)
    until(lambda: len(worked.rows()) == 3)


def test_a_deploy_through_the_host_runs_at_once(place: Place, hosts: Hosts) -> None:
    place.deliver("One")
    host = hosts()
    place.type("deploy", "flow.js", "--grant", "all")
    until(lambda: len(place.rows()) == 1)
    (place.folder / "bad.js").write_text("export default 1;")
    result = place.type("deploy", "bad.js", code=3)
    assert "bad.js:1:16 error" in result.stderr
    assert host.poll() is None


def test_a_second_host_is_refused_with_the_name_of_the_first(place: Place, hosts: Hosts) -> None:
    first = hosts()
    result = place.type("dev", "--once", code=1)
    assert f"is in use by process {first.pid}" in result.stderr


def test_a_ledger_that_another_program_holds_is_not_forced(worked: Place) -> None:
    async def held() -> None:
        async with Keep("keep.db"):
            result = await asyncio.to_thread(worked.type, "pause", WF, code=1)
            assert "is in use by process" in result.stderr
    asyncio.run(held())
    assert state(worked) == "active"
