"""The blast radius: exactly what runs of a version, or of a span of time, have touched; and a repair shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from keepai.engine.repair import evidence
from keepai.ledger.queries import load
from keepai.model.clock import parse_iso
from keepai.model.errors import NotFound, Refused
from keepai.model.records import Escalation
from keepai.reading.blast import Blast
from tests.harness import NOTHING, POLL, START, Story, consumer, producer, take_first, workflow

SWEEP = """
  for (const item of await ctx.feed.list({})) {
    if (!item.sweep) continue;
    await ctx.withItem(item.id, `Sweep ${item.id}`, async (ctx) => {
      if (ctx.item.isDone) return;
      /*BUG*/
      await ctx.sheets.appendRow({ spreadsheetId: "swept", values: [item.id] });
    });
  }
"""
FILE = 'await ctx.sheets.appendRow({ spreadsheetId: "filed", values: [prepared.data.messageId] });'
REST = POLL.replace("const inputId", "if (item.sweep) continue; const inputId")


def script(*, filing: bool = True, sweep: str | None = SWEEP, poll: str = REST, note: str = "") -> str:
    """A producer, a consumer that files what it finds, and a routine that sweeps the rest."""
    made = workflow(
        producers={"poll": producer(poll)},
        consumers={"file": consumer(take_first() if filing else NOTHING, mutate=FILE, publishes=["out"], next=(
            'await ctx.publish("out", { messageId: prepared.data.messageId, payload: {} });'))},
        head=f"// {note}",
    )
    routine = f"routines: {{ sweep: {{ schedule: {{ interval: '5m' }}, handler: async (ctx) => {{ {sweep} }} }} }},"
    return made.replace("producers:", f"{routine} producers:") if sweep else made


def names(blast: Blast) -> tuple[list[str], list[str], list[str]]:
    """What was touched, by the names outside."""
    values = [cast("Any", m.params)["values"][0] for m in blast.mutations]
    assert (blast.inputs_count, blast.items_count, blast.mutations_count) == (
        len(blast.inputs), len(blast.items), len(blast.mutations))
    return [i.external_id for i in blast.inputs], [i.external_id for i in blast.items], values


async def test_each_version_has_exactly_what_its_runs_touched(story: Story) -> None:
    # R291
    story.feed.put("a")
    story.feed.put("x", sweep=True)
    wf = await story.deploy_and_run(script())
    assert await story.deploy(script(note="second")) == wf
    story.feed.put("b")
    story.feed.put("y", sweep=True)
    await story.run(minutes=5)
    first, second = await story.keep.blast(wf, "1.0"), await story.keep.blast(wf, "2.0")
    assert [sorted(each) for each in names(first)] == [["a", "x"], ["x"], ["a", "x"]], "an item is an input too"
    assert [sorted(each) for each in names(second)] == [["b", "y"], ["y"], ["b", "y"]]
    assert {i.source for i in second.inputs} == {"feed", "workflow"}
    runs = [r.version for r in await story.keep.runs(wf)]
    assert (first.runs, second.runs) == (runs.count("1.0"), runs.count("2.0"))
    assert (first.version, first.since_at, first.workflow_id) == ("1.0", None, wf)
    assert await story.keep.blast("story") == second, "without more, it is the active version"


async def test_an_input_that_two_versions_touched_is_in_both(story: Story) -> None:
    # R291
    wf = await story.deploy_and_run(script(filing=False, sweep=None), "a")
    await story.deploy_and_run(script(sweep=None))
    first, second = await story.keep.blast(wf, "1.0"), await story.keep.blast(wf, "2.0")
    assert (names(first), names(second)) == ((["a"], [], []), (["a"], [], ["a"]))
    assert [m.id for m in first.inputs[0].outputs or ()] == [m.id for m in second.mutations]


async def test_an_event_that_a_later_version_published_for_an_old_input_counts(story: Story) -> None:
    again = REST.replace("messageId: item.id", "messageId: `again-${item.id}`")
    wf = await story.deploy_and_run(script(sweep=None), "a")
    await story.deploy(script(filing=False, sweep=None, poll=again))
    await story.run(minutes=5)
    assert names(await story.keep.blast(wf, "2.0")) == (["a"], [], [])


async def test_a_payload_that_came_too_late_counts(story: Story) -> None:
    story.feed.put("a", 1)
    story.feed.put("b", 1)
    wf = await story.deploy_and_run(script(sweep=None))
    await story.deploy(script(sweep=None, note="second"))
    story.feed.put("a", 2)
    await story.run(minutes=5)
    assert names(await story.keep.blast(wf, "2.0")) == (["a"], [], [])


async def test_other_workflows_and_done_items_are_not_in_it(story: Story) -> None:
    story.feed.put("x", sweep=True)
    wf = await story.deploy(script(filing=False))
    other = await story.deploy_and_run(script().replace('"story"', '"other"'))
    await story.deploy(script(filing=False, note="second"))
    await story.run(minutes=5)
    assert names(await story.keep.blast(wf, "2.0")) == ([], [], []), "the routine passed by what is done"
    for blast in (await story.keep.blast(wf, "1.0"), await story.keep.blast(other)):
        owners = [i.workflow_id for i in blast.inputs] + [i.workflow_id for i in blast.items]
        assert {*owners, *(m.workflow_id for m in blast.mutations)} == {blast.workflow_id}


async def test_a_run_that_only_tried_is_in_it(story: Story) -> None:
    story.feed.put("x", sweep=True)
    wf = await story.deploy_and_run(script(filing=False, sweep=SWEEP.replace("/*BUG*/", "throw new Error('no');")))
    found = await story.keep.blast(wf)
    assert ([i.status for i in found.items], found.mutations) == (["failed"], ())
    assert any(i.source == "workflow" for i in found.inputs)


@pytest.mark.parametrize(("since", "until", "seen"), [
    ("2026-01-05T09:00:00Z", None, ["a", "b"]),
    ("2026-01-05T09:00:00.001Z", None, ["b"]),
    (None, "2026-01-05T09:05:00Z", ["a"]),
    (None, "2026-01-05T09:05:00.001Z", ["a", "b"]),
    ("2026-01-05T09:05:00", "2026-01-05T09:06:00", ["b"]),
    ("2026-01-05T10:05:00+01:00", None, ["b"]),
    (parse_iso(START) + 300_000, None, ["b"]),
    (parse_iso(START) + 300_001, None, []),
])
async def test_a_span_of_time_has_its_beginning_and_not_its_end(
    story: Story, since: int | str | None, until: int | str | None, seen: list[str],
) -> None:
    wf = await story.deploy_and_run(script(sweep=None), "a")
    story.feed.put("b")
    await story.run(minutes=5)
    found = await story.keep.blast(wf, since=since, until=until)
    assert (names(found), found.version) == ((seen, [], seen), None)


async def test_a_version_and_a_span_of_time_both_hold(story: Story) -> None:
    wf = await story.deploy_and_run(script(sweep=None), "a")
    await story.deploy(script(sweep=None, note="second"))
    story.feed.put("b")
    await story.run(minutes=5)
    assert names(await story.keep.blast(wf, "1.0", since="2026-01-05T09:05:00Z"))[0] == []
    assert names(await story.keep.blast(wf, "2.0", since="2026-01-05T09:05:00Z"))[0] == ["b"]


@pytest.mark.parametrize("version", ["3.0", "1", "1.0.0", "", "x", "1.99999999999999999999", "¹.0"])
async def test_an_unknown_version_is_refused_with_those_that_there_are(story: Story, version: str) -> None:
    wf = await story.deploy(script())
    await story.deploy(script(note="second"))
    with pytest.raises(NotFound, match=r"'story' has no version .+ There are: 1\.0, 2\.0\."):
        await story.keep.blast(wf, version)


@pytest.mark.parametrize(("since", "until", "why"), [
    ("yesterday", None, "since must be a time such as"), (None, "", "until must be a time such as"),
    ("2026-01-05T09:00:00Z", "2026-01-05T09:00:00Z", "until must be later"), (5, 4, "until must be later"),
])
async def test_a_span_that_is_none_is_refused(story: Story, since: Any, until: Any, why: str) -> None:
    wf = await story.deploy(script())
    with pytest.raises(Refused, match=why):
        await story.keep.blast(wf, since=since, until=until)


@pytest.mark.sqlite("it reads the plan of a statement")
async def test_one_version_is_found_through_indexes(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        await story.deploy(script())
    import apsw

    connection = apsw.Connection(str(story.path))
    nothing = {"workflow_id": "wf_x", "major": 1, "minor": 0, "since_at": None, "until_at": None, "limit": 10}
    plan = [row[3] for row in connection.execute("explain query plan " + load()["blast_touched"], nothing)]
    connection.close()
    ours = ("chosen", "worked", "reached", "touched", "counted", "p", "w", "(subquery")
    assert [line for line in plan if line.startswith("SCAN") and not line.split()[1].startswith(ours)] == []
    for alias, index in {"e": "workflow_id=? AND seq>? AND seq<?", "i": "workflow_id=? AND seq>? AND seq<?",
                         "m": "run_id=? AND workflow_id=?", "v": "run_id=? AND workflow_id=?"}.items():
        assert any(line.startswith(f"SEARCH {alias} ") and index in line for line in plan), (alias, plan)
    assert not any("AUTOMATIC" in line for line in plan)


# -- a repair that waits for a person ------------------------------------------------------------------


async def waiting(story: Story) -> tuple[str, Escalation]:
    """Twelve things were done by 1.0; then it fails, a first repair does not help, and a second waits."""
    for number in range(12):
        story.feed.put(f"ok-{number:02}", sweep=True)
    broken = script(sweep=SWEEP.replace("/*BUG*/", 'if (item.id === "bad") throw new Error("no");'))
    wf = await story.deploy_and_run(broken)
    story.feed.put("bad", sweep=True)
    await story.run(minutes=5)
    await story.keep.approve(await story.keep.fix(wf, broken + "// did not help\n"))
    await story.run()
    await story.keep.fix(wf, script(note="mended"), note="rows may be wrong")
    await story.run()
    [asked] = await story.keep.needs_you()
    return wf, asked


async def test_a_repair_is_not_active_before_a_person_has_looked(story: Story) -> None:
    # R290
    wf, asked = await waiting(story)
    assert (asked.kind, asked.actions) == ("approval", ("approve", "reject"))
    await story.reopen()
    await story.run(hours=1)
    assert (await story.workflow(wf)).version == "1.1"
    assert (await story.last(wf)).version == "1.1"
    before = len(story.world.effects)
    [same] = await story.keep.needs_you()
    await story.keep.approve(same.id)
    await story.run()
    assert (await story.workflow(wf)).version == "1.2"
    assert len(story.world.effects) == before + 1


async def test_the_evidence_of_a_routine_names_the_item(story: Story) -> None:
    story.feed.put("x", sweep=True)
    wf = await story.deploy_and_run(script(filing=False, sweep=SWEEP.replace("/*BUG*/", "throw new Error('no');")))
    assert evidence(story.reader(), story.keep.parts, await story.last(wf)).inputs == ("Sweep x",)


async def test_its_card_lists_what_the_faulty_versions_touched(story: Story) -> None:
    # R291
    wf, asked = await waiting(story)
    cards = cast("list[dict[str, Any]]", asked.facts["blast"])
    assert [card["version"] for card in cards] == ["1.0", "1.1"]
    for card in cards:
        whole = await story.keep.blast(wf, card["version"])
        assert card["runs"] == whole.runs
        for kind, titles in (
            ("inputs", [i.title for i in whole.inputs]),
            ("items", [f"{i.title} ({i.status})" for i in whole.items]),
            ("mutations", [f"{m.preview} ({m.status})" for m in whole.mutations]),
        ):
            assert (card[f"{kind}_count"], card[kind]) == (len(titles), titles[:10])
    assert (cards[0]["items_count"], len(cards[0]["items"])) == (13, 10)
    assert cards[1]["items"] == ["Sweep bad (failed)"]
