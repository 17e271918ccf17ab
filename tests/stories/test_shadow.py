# ruff: noqa: E501 (a script is read best on one line)
"""A new script is run over what earlier runs were given, and compared with what they did; nothing outside notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keepai.engine.recording import made_of
from keepai.engine.shadow import CHANGED, FAILS, NOT_COMPARABLE, ShadowedRun, ShadowReport
from keepai.ledger.transitions.events import Publication, Registration
from keepai.model.errors import NotFound
from keepai.model.policy import Policy
from keepai.model.principals import Principal, Role
from tests.harness import TOLD, Story, acting

MAILS = """
export default Keep.workflow({
  name: "mails",
  topics: { "mail": {}, "sent": {} },
  producers: {
    poll: {
      publishes: ["mail"], schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.gmail.search({ after: state?.cursor });
        for (const m of mails) {
          const inputId = ctx.registerInput({ source: "gmail", type: "email", id: m.id, title: `Mail ${m.subject}` });
          await ctx.publish("mail", { messageId: m.id, inputId, payload: { subject: m.subject, at: Date.now() } });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
  consumers: {
    answer: Keep.consumer({
      subscribe: ["mail"], publishes: ["sent"],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("mail");
        if (!event) return { reservations: [], data: {} };
        const whole = await ctx.gmail.get({ id: event.messageId });
        return {
          reservations: [{ topic: "mail", ids: [event.messageId] }],
          data: { subject: event.payload.subject, from: whole.from, number: (state?.count ?? 0) + 1, luck: Math.random() },
          ui: { title: `Answer ${event.payload.subject}` },
        };
      },
      async mutate(ctx, { data }) {
        await ctx.gmail.send({ to: data.from, subject: `Re: ${data.subject}`, body: `No. ${data.number}, ${data.luck}` });
      },
      async next(ctx, prepared, result) {
        await ctx.publish("sent", { messageId: `sent:${prepared.data.subject}`, payload: { at: Date.now() } });
        return { count: (ctx.state?.count ?? 0) + 1 };
      },
    }),
  },
});
"""

LIST = """
export default Keep.workflow({
  name: "list", topics: {},
  routines: {
    book: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        for (const mail of await ctx.gmail.search({})) {
          await ctx.withItem(mail.id, `Mail ${mail.subject}`, async (ctx) => {
            if (ctx.item.isDone) return;
            const row = await ctx.sheets.appendRow({ spreadsheetId: "book", values: [mail.subject, Math.random()] });
            await ctx.gmail.send({ to: mail.from, subject: `Booked ${mail.subject} as ${row.rowId}` });
          });
        }
        return { seen: (state?.seen ?? 0) + 1 };
      },
    },
  },
});
"""


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    async with Story(tmp_path) as made:
        yield made


async def mails(story: Story, count: int, first: int = 1) -> None:
    """So many mails come, one after the other, and are worked on."""
    for number in range(first, first + count):
        story.world.deliver(subject=f"s{number}", from_=f"{number}@here")
        await story.run(minutes=5)


async def lived(story: Story, source: str = MAILS, count: int = 3) -> str:
    wf = await story.deploy(source)
    await mails(story, count)
    return wf


def only(report: ShadowReport, verdict: str = CHANGED) -> ShadowedRun:
    """The first run that is not the same; they all are of this verdict."""
    assert {each.verdict for each in report.differing} == {verdict}, report
    return report.differing[0]


@pytest.mark.parametrize("source", [MAILS, LIST], ids=["events", "items"])
async def test_an_unchanged_script_does_the_same_and_nothing_leaves_the_host(story: Story, source: str) -> None:
    wf = await lived(story, source)
    calls, version = len(story.world.asked), await story.keep.version()
    report = await story.keep.shadow(wf, source)
    assert report.all_same, report
    assert report.runs == (6 if source == MAILS else 3)
    assert (len(story.world.asked), await story.keep.version()) == (calls, version)


@pytest.mark.parametrize("before", ["", 'if ((await ctx.peek("in")).length < 2) return { reservations: [], data: {} };'])
async def test_a_next_that_brings_nothing_about_is_compared_as_well(story: Story, before: str) -> None:
    source = acting(before=before)
    wf = await story.deploy_and_run(source, "a")
    report = await story.keep.shadow(wf, "// mended\n" + source)
    assert report.all_same, report
    assert set(report.handlers) == {"act", "poll"}
    loud = await story.keep.shadow(wf, acting(before=before, next=TOLD + "return 1;"))
    assert [(each.handler, each.verdict) for each in loud.differing] == [("act", CHANGED)], loud


CHANGES = {
    "another recipient": ("to: data.from,", 'to: "eve@there",', [("mutation", CHANGED)]),
    "another text": ("Re: ", "AW: ", [("mutation", CHANGED)]),
    "one call fewer": ("await ctx.gmail.send(", "if (data.number < 0) await ctx.gmail.send(", [("mutation", "missing")]),
    "another event": ("messageId: `sent:", "messageId: `sent!", [("event", "missing"), ("event", "added")]),
    "another payload": ("payload: { at: Date.now() }", "payload: { at: 0 }", [("event", CHANGED)]),
    "another state": ("?? 0) + 1 };", "?? 0) + 2 };", [("state", CHANGED)]),
}


@pytest.mark.parametrize(("old", "new", "differs"), CHANGES.values(), ids=CHANGES.keys())
async def test_what_a_script_would_do_otherwise_is_told_side_by_side(story: Story, old: str, new: str, differs) -> None:
    wf = await lived(story, count=1)
    report = await story.keep.shadow(wf, MAILS.replace(old, new))
    assert (report.same, report.changed) == (1, 1), report
    assert [(each.kind, each.verdict) for each in only(report).differences] == differs, report


async def test_events_that_would_be_taken_and_get_lost_are_told(story: Story) -> None:
    for number in (1, 2):
        story.world.deliver(subject=f"s{number}")
    wf = await story.deploy(MAILS)
    await story.run()
    greedy = MAILS.replace("ids: [event.messageId]", 'ids: (await ctx.peek("mail")).map((each) => each.messageId)')
    [taken] = only(await story.keep.shadow(wf, greedy)).differences[:1]
    assert (taken.kind, taken.verdict, taken.after) == ("taken", "added", ["mail", "mail-2"])


async def test_a_call_that_changed_shows_both_in_the_words_of_its_connector(story: Story) -> None:
    wf = await lived(story, count=1)
    run = only(await story.keep.shadow(wf, MAILS.replace("to: data.from,", 'to: "eve@there",')))
    [difference] = run.differences
    assert (difference.name, run.title) == ("gmail.send", "Mail s1")
    assert difference.before["to"] == "1@here"
    assert difference.after["to"] == "eve@there"
    assert "eve@there" in difference.after_words


ITEMS = {
    "another row": ("values: [mail.subject,", "values: [mail.from,", CHANGED),
    "another book": ('spreadsheetId: "book"', 'spreadsheetId: "mine"', CHANGED),
    "a call more": ("as ${row.rowId}` });", 'as ${row.rowId}` }); await ctx.gmail.send({ to: "eve@there" });', "added"),
    "a call fewer": ("await ctx.gmail.send(", "({})?.send?.(", "missing"),
}


@pytest.mark.parametrize(("old", "new", "verdict"), ITEMS.values(), ids=ITEMS.keys())
async def test_what_a_routine_would_do_otherwise_with_its_items_is_told(story: Story, old: str, new: str, verdict) -> None:
    wf = await lived(story, LIST, count=2)
    report = await story.keep.shadow(wf, LIST.replace(old, new))
    assert report.changed == 2, report
    assert verdict in {each.verdict for each in only(report).differences}


async def test_an_item_that_would_be_ended_without_its_work_is_told(story: Story) -> None:
    one = "await ctx.withItem(mail.id"
    passes_by = LIST.replace(one, f'if (mail.subject !== "s2") {one}')
    ends_it = LIST.replace("if (ctx.item.isDone) return;", 'if (ctx.item.isDone || mail.subject === "s2") return;')
    wf = await lived(story, passes_by, count=2)
    [difference] = only(await story.keep.shadow(wf, ends_it)).differences
    assert (difference.kind, difference.verdict, difference.name) == ("item", "added", "Mail s2")
    await story.keep.deploy(ends_it)
    await mails(story, 1, first=3)
    [difference] = only(await story.keep.shadow(wf, passes_by)).differences
    assert (difference.kind, difference.verdict) == ("item", "missing")


def test_an_input_that_is_told_instead_of_an_event_is_not_the_same() -> None:
    event, told = Publication("a", "b", "c", ("d",)), Registration("inp_1", "a", "b", "c", "d")
    assert made_of([told], [], None) != made_of([], [event], None)


async def test_a_producer_that_finds_less_is_told_by_its_inputs_and_events(story: Story) -> None:
    wf = await lived(story, count=1)
    report = await story.keep.shadow(wf, MAILS.replace("for (const m of mails)", "for (const m of mails.slice(1))"))
    assert [(each.kind, each.verdict) for each in only(report).differences] == [("input", "missing"), ("event", "missing")]


async def test_a_read_that_was_not_made_then_cannot_be_compared_and_is_named(story: Story) -> None:
    wf = await lived(story, count=1)
    report = await story.keep.shadow(
        wf, MAILS.replace("ctx.gmail.get({ id: event.messageId })", 'ctx.sheets.getRow({ rowId: "row-1" })'))
    assert "ctx.sheets.getRow" in str(only(report, NOT_COMPARABLE).why)


async def test_an_answer_that_was_too_large_to_be_recorded_cannot_be_compared(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(recording_bytes_max=2_000)) as story:
        story.world.deliver(subject="long", body="x" * 3_000)
        wf = await story.deploy(MAILS)
        await story.run()
        report = await story.keep.shadow(wf, MAILS)
        assert report.not_comparable == 2, report
        assert "gmail.search" in str(report.differing[-1].why)


async def test_a_script_that_fails_with_what_was_given_says_where(story: Story) -> None:
    wf = await lived(story, count=1)
    report = await story.keep.shadow(wf, MAILS.replace("if (!event)", "event.payload.lines.length; if (!event)"))
    assert "line" in str(only(report, FAILS).why)


async def test_a_difference_that_the_version_itself_would_show_is_not_blamed_on_the_new_script(story: Story) -> None:
    """What is recorded must be all that a run depends on; here somebody changed the recording."""
    wf = await lived(story, count=1)
    await story.keep.parts.ledger.write(lambda tx: tx.run("recorded_text_trim", workflow_id=wf, seq=1 << 40))
    report = await story.keep.shadow(wf, MAILS)
    assert {each.verdict for each in report.differing} <= {NOT_COMPARABLE}


async def test_events_in_a_later_form_are_compared_as_they_were(story: Story) -> None:
    """The mail's event gets another payload after a run took it, and while the next one waits."""
    wf = await lived(story, count=2)
    source = MAILS.replace("search({ after: state?.cursor })", "search({})")
    await story.keep.deploy(source, grants="all")
    await story.run(minutes=5)
    report = await story.keep.shadow(wf, source)
    assert (report.runs, report.version) == (1, "2.0"), "only runs of this major version count"
    assert report.all_same


async def test_without_recordings_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(recordings="off")) as story:
        wf = await lived(story)
        report = await story.keep.shadow(wf, MAILS)
        assert (report.runs, report.all_same) == (0, False)
        assert await story.rows("recording_oldest_kept", workflow_id=wf, most=0) == []


async def test_only_the_newest_runs_keep_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.engine.run_context.TRIM_EVERY", 3)
    async with Story(tmp_path, policy=Policy(recordings_max=2)) as story:
        wf = await lived(story, count=8)
        report = await story.keep.shadow(wf, MAILS)
        assert 2 <= report.runs <= 4, "those that came since it was last looked at, and two more"
        assert report.all_same


async def test_a_run_that_waited_for_a_person_between_its_steps_is_compared_whole(story: Story) -> None:
    wf = await story.deploy(MAILS, grants={"all": "allow", "gmail.send": "ask"})
    story.world.deliver(subject="s", from_="ann@here")
    await story.run()
    await story.reopen()
    await story.keep.approve((await story.question()).id)
    await story.run()
    report = await story.keep.shadow(wf, MAILS.replace("Re: ", "AW: "))
    assert (report.same, report.changed) == (1, 1), report


async def test_recordings_are_thrown_away_with_the_content_of_old_work(story: Story) -> None:
    wf = await lived(story, count=1)
    story.clock.advance(days=40)
    assert (await story.keep.prune(days=30)).runs == 2
    assert (await story.keep.shadow(wf, MAILS)).runs == 0


async def test_last_and_since_say_which_runs_are_compared(story: Story) -> None:
    wf = await lived(story, count=3)
    newest = (await story.runs(wf))[-1]
    assert (await story.keep.shadow(wf, MAILS, last=1)).runs == 1
    assert (await story.keep.shadow("mails", MAILS, since=newest.created_at)).runs in (1, 2)


# -- the gate of repairs ---------------------------------------------------------------------------------------

FAULTY = MAILS.replace("subject: event.payload.subject, from", "subject: event.payload.subject.split(':')[1].trim(), from")
MENDED = FAULTY.replace(".split(':')[1].trim()", ".split(':').at(-1).trim()")
ALONE = ("publishes: [\"sent\"]", "publishes: []"), ('await ctx.publish("sent", { messageId: `sent:${prepared.data.subject}`, payload: { at: Date.now() } });', "")


def alone(source: str) -> str:
    """Without the event that follows from each mail."""
    for old, new in ALONE:
        assert old in source
        source = source.replace(old, new)
    return source


async def failed(story: Story, *, sender: str = "1@here") -> str:
    """A workflow that did well with some mails, and failed with one."""
    wf = await story.deploy(alone(FAULTY))
    for number in (1, 2):
        story.world.deliver(subject=f"Re: {number}", from_=f"{number}@here")
        await story.run(minutes=5)
    story.world.deliver(subject="odd", from_=sender)
    await story.run(minutes=5)
    assert (await story.last(wf, "answer")).status == "failed:logic"
    return wf


async def test_a_repair_that_changes_nothing_else_goes_live_by_itself(story: Story) -> None:
    wf = await failed(story)
    await story.keep.fix(wf, alone(MENDED), impact="potentially_impactful")
    await story.run()
    assert (await story.workflow(wf)).version == "1.1"
    assert [each.params["subject"] for each in story.world.effects] == ["Re: 1", "Re: 2", "Re: odd"]


WAITS = {
    "another recipient for all": ("to: data.from,", 'to: "1@here",', "something else"),
    "another recipient for the mail that failed": (
        "to: data.from,", 'to: data.subject === "odd" ? "eve@there" : data.from,', "went there before"),
    "it takes the mail and sends nothing": (
        "await ctx.gmail.send(", 'if (data.subject !== "odd") await ctx.gmail.send(', "sends nothing"),
    "it looks at something new": (
        "subject: event.payload.subject.split(':').at(-1).trim()",
        "subject: event.payload.subject === 'odd' ? (await ctx.gmail.search({}))[0].subject : "
        "event.payload.subject.split(':').at(-1).trim()", "gmail.search"),
    "another schedule": ('interval: "5m"', 'interval: "1s"', "schedules"),
    "it fails again": (".at(-1).trim()", ".at(1).trim()", "fails as well"),
}


@pytest.mark.parametrize(("old", "new", "why"), WAITS.values(), ids=WAITS.keys())
async def test_a_repair_that_may_do_something_else_waits_and_says_why(story: Story, old: str, new: str, why: str) -> None:
    wf = await failed(story)
    source = alone(MENDED)
    assert old in source
    await story.keep.fix(wf, source.replace(old, new), impact="safe", note="nothing to see")
    await story.run()
    asked = await story.question()
    assert (await story.workflow(wf)).version == "1.0"
    assert why in asked.facts["trial"]["waits"], asked.facts["trial"]
    assert len(story.world.effects) == 2


async def test_only_an_owner_lets_a_repair_in_and_an_operator_may_refuse_it(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(repairs="person")) as story:
        wf = await failed(story)
        await story.keep.fix(wf, alone(MENDED))
        await story.run()
        asked, operator = await story.question(), story.keep.acting_as(Principal.person("bo", Role.OPERATOR))
        with pytest.raises(NotFound, match=f"There is no act 'approve' on {asked.id} for person:bo"):
            await operator.approve(asked.id)
        assert (await story.workflow(wf)).version == "1.0"
        await operator.reject(asked.id)
        assert (await story.question()).kind == "logic"


async def test_a_person_may_want_to_see_every_repair(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(repairs="person")) as story:
        wf = await failed(story)
        await story.keep.fix(wf, alone(MENDED))
        asked = await story.question()
        assert "policy repairs" in asked.facts["trial"]["waits"]
        assert asked.facts["trial"]["report"]["all_same"], "what was tried is shown all the same"
        await story.keep.approve(asked.id)
        await story.run()
        assert (await story.workflow(wf)).version == "1.1"
