"""The phase × operation matrix, cell by cell, through real scripts: what the table does not list ends the run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keepai import Policy
from keepai.model.operations import ALLOWED, Kind, Step
from keepai.model.records import Event, Mutation, Run
from tests.harness import POLL, Story, consumer, js, producer, take_first, workflow

#: The steps of producers and consumers; what a routine may do is in test_routines.py.
STEPS = (Step.PRODUCER, Step.PREPARE, Step.MUTATE, Step.NEXT)

GRANTS = dict.fromkeys(
    ("feed.list", "gmail.search", "gmail.get", "gmail.send", "sheets.getRow", "sheets.appendRow"), "allow")

#: Kind → (what the error calls it, how it is called so that `check` cannot see it). CELL marks who asked.
CALLS: dict[Kind, tuple[str, str]] = {
    Kind.PEEK: ("peek", 'hidden("peek")("in", { limit: 1 })'),
    Kind.GET_BY_IDS: ("getByIds", 'hidden("getByIds")("in", ["a"])'),
    Kind.REGISTER_INPUT: (
        "registerInput", 'hidden("registerInput")({ source: "feed", type: "note", id: "extra", title: "Extra" })'),
    Kind.PUBLISH: ("publish", 'hidden("publish")("out", { messageId: "m", payload: 1, ...linked })'),
    Kind.READ: ("gmail.search", 'hidden("gmail").search({ cell: CELL })'),
    Kind.READ_BY_ID: ("gmail.get", 'hidden("gmail").get({ id: "1", cell: CELL })'),
    Kind.MUTATION: ("gmail.send", 'hidden("gmail").send({ to: "ann@example.com", cell: CELL })'),
    Kind.WITH_ITEM: ("withItem", 'hidden("withItem")("i", "Item", async () => { ctx.log("inside"); })'),
    Kind.LOG: ("log", 'ctx.log("logged")'),
}

HANDLER = {Step.PRODUCER: "bring", Step.PREPARE: "take", Step.MUTATE: "take", Step.NEXT: "take"}
STOPPED_IN = {
    Step.PRODUCER: "executing", Step.PREPARE: "preparing", Step.MUTATE: "mutating", Step.NEXT: "emitting",
}


@dataclass(frozen=True)
class Cell:
    """What one script, which asks for one kind in one step, left behind."""

    run: Run
    line: int
    logs: list[str]
    reached: int  # calls of connectors in its name
    events: list[Event]
    inputs: list[str]
    mutations: list[Mutation]


def body(call: str, cell: str, linked: str) -> str:
    """Ask for something, and try everything to get away with it."""
    return f"""
      const CELL = {js(cell)};
      const hidden = name => ctx[name.split("").join("")];
      const linked = {linked};
      try {{
        await {call};  // HERE
      }} catch (error) {{
        ctx.log("caught");
      }} finally {{
        ctx.log("finally");
      }}
      ctx.log("went on");
"""


def script(name: str, step: Step, kind: Kind) -> tuple[str, int]:
    """A workflow that asks for `kind` in `step`, and the line of the call."""
    register = 'ctx.registerInput({ source: "feed", type: "item", id: "p", title: "P" })'
    text = body(CALLS[kind][1], name, f"{{ inputId: {register} }}" if step is Step.PRODUCER else "{}")
    source = workflow(
        name,
        producers={"bring": producer(
            text if step is Step.PRODUCER else POLL, publishes=["in", "out"] if step is Step.PRODUCER else ["in"])},
        consumers={"take": consumer(
            (text if step is Step.PREPARE else "") + take_first(),
            publishes=["out"] if step is not Step.PRODUCER else [],
            mutate=text if step is Step.MUTATE else None, next=text if step is Step.NEXT else None,
        )},
    )
    [line] = [n for n, each in enumerate(source.splitlines(), 1) if "// HERE" in each]
    return source, line


async def cells(folder: Path, policy: Policy | None = None) -> dict[tuple[Step, Kind], Cell]:
    """Run every cell of the matrix, side by side in one host."""
    found = {}
    async with Story(folder, policy=policy) as story:
        story.feed.put("a", 1)
        deployed = {}
        for step in STEPS:
            for kind in Kind:
                source, line = script(f"{step} {kind}", step, kind)
                deployed[step, kind] = await story.deploy(source, grants=GRANTS), line
        await story.run()
        for (step, kind), (wf, line) in deployed.items():
            run = await story.last(wf, HANDLER[step])
            name = f"{step} {kind}"
            found[step, kind] = Cell(
                run, line, story.logs(run), sum(1 for a in story.world.asked if a.params.get("cell") == name),
                await story.events(wf), list(await story.inputs(wf)), await story.keep.mutations(wf),
            )
    return found


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Step, Kind], Cell]:
    return asyncio.run(cells(tmp_path_factory.mktemp("matrix")))


def _cells(*, allowed: bool) -> list[Any]:
    return [
        pytest.param(step, kind, id=f"{step}-{kind}")
        for step in STEPS for kind in Kind if (kind in ALLOWED[step]) is allowed
    ]


@pytest.mark.parametrize(("step", "kind"), _cells(allowed=True))
def test_what_the_table_lists_is_carried_out(
    matrix: dict[tuple[Step, Kind], Cell], step: Step, kind: Kind,
) -> None:
    # R188–R192, R100, R101, R149
    cell = matrix[step, kind]
    assert cell.run.status == "committed", cell.run.error
    if kind is Kind.MUTATION:
        assert cell.logs == []  # terminal
        assert [m.status for m in cell.mutations] == ["applied"]
    else:
        assert cell.logs[-1] == "went on"
        assert "caught" not in cell.logs
        assert cell.mutations == []
    assert cell.reached == (1 if kind in (Kind.READ, Kind.READ_BY_ID, Kind.MUTATION) else 0)
    assert [e.message_id for e in cell.events if e.topic == "out"] == (["m"] if kind is Kind.PUBLISH else [])
    assert ("extra" in cell.inputs) is (kind is Kind.REGISTER_INPUT)


@pytest.mark.parametrize(("step", "kind"), _cells(allowed=False))
def test_what_the_table_does_not_list_ends_the_run_before_anything_happens(
    matrix: dict[tuple[Step, Kind], Cell], step: Step, kind: Kind,
) -> None:
    # R103, R104, R125–R127, R150–R152, R188–R192, R194
    cell, name = matrix[step, kind], CALLS[kind][0]
    assert cell.run.status == "failed:logic"
    assert cell.run.phase == STOPPED_IN[step]
    assert cell.run.error is not None
    assert cell.run.error.code == "phase_violation"
    assert f"ctx.{name}" in cell.run.error.message
    assert step.value in cell.run.error.message
    assert (cell.run.error.line, cell.run.error.step) == (cell.line, step.value)
    assert cell.run.error.column is not None
    assert cell.run.error.column > 0
    assert cell.logs == []  # neither catch nor finally nor what follows
    assert cell.reached == 0
    assert cell.mutations == []
    assert [e for e in cell.events if e.topic == "out"] == []
    assert "extra" not in cell.inputs


def test_a_refused_call_in_a_consumer_leaves_its_event_unconsumed(matrix: dict[tuple[Step, Kind], Cell]) -> None:
    # R105, R114, R157: before prepare returned nothing is reserved, afterwards the reservation stays
    for (step, kind), cell in matrix.items():
        if step is Step.PRODUCER or kind in ALLOWED[step]:
            continue
        [event] = [e for e in cell.events if e.topic == "in"]
        assert event.status == "pending", (step, kind)
        assert event.reserved_by == (None if step is Step.PREPARE else cell.run.id), (step, kind)


def test_a_refused_call_in_a_producer_leaves_nothing(matrix: dict[tuple[Step, Kind], Cell]) -> None:
    for (step, kind), cell in matrix.items():
        if step is Step.PRODUCER and kind not in ALLOWED[step]:
            assert (cell.events, cell.inputs) == ([], []), kind


async def test_reads_by_id_work_in_mutate_only_where_policy_allows_them(tmp_path: Path) -> None:
    # R126, R191: by-id reads under the option, searches never
    async with Story(tmp_path, policy=Policy(mutate_reads="by_id")) as story:
        story.feed.put("a", 1)
        story.world.deliver(subject="Found", id="1")
        runs, lines = {}, {}
        for kind in (Kind.READ, Kind.READ_BY_ID):
            source, lines[kind] = script(f"mutate {kind}", Step.MUTATE, kind)
            wf = await story.deploy_and_run(source, grants=GRANTS)
            runs[kind] = await story.last(wf, "take")
        assert runs[Kind.READ_BY_ID].status == "committed"
        assert story.world.count("gmail.get") == 1
        assert runs[Kind.READ].status == "failed:logic"
        error = runs[Kind.READ].error
        assert error is not None
        assert (error.code, error.line) == ("phase_violation", lines[Kind.READ])
        assert story.world.count("gmail.search") == 0


async def test_a_read_by_id_in_mutate_gives_its_answer_and_the_mutation_may_depend_on_it(tmp_path: Path) -> None:
    # R126
    async with Story(tmp_path, policy=Policy(mutate_reads="by_id")) as story:
        story.feed.put("a", 1)
        story.world.deliver(subject="Found", id="1")
        wf = await story.deploy_and_run(workflow(producers={"bring": producer()}, consumers={"take": consumer(
            mutate='const mail = await ctx.gmail.get({ id: "1" });'
                   'await ctx.gmail.send({ to: mail.from, subject: mail.subject });')}))
        [mutation] = await story.keep.mutations(wf)
        assert mutation.status == "applied"
        assert mutation.params == {"to": "ann@example.com", "subject": "Found"}
