"""A script that cannot be loaded is refused when it is deployed, with the place, and not when it first runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep, Policy, ScriptInvalid
from keepai.model.errors import Finding, HostFault, WorkerDied
from tests.harness import POLL, Story, consumer, producer, workflow

FLOW = workflow(producers={"poll": producer(POLL)}, consumers={"take": consumer()})

#: What stands at the top, and what the finding says of it, with line and column.
BROKEN = {
    "it throws": ("\nthrow new TypeError('no such thing');", "no such thing", (2, 11)),
    "it calls what is not there": ("const x = 1;\n  const y = missing();", "missing", (2, 13)),
    "it throws in a function": ("const f = () => {\n  null.x; };\nf();", "x", (2, 3)),
    "it declares a name twice": ("let a = 1; let a = 2;", "SyntaxError", None),
    "it waits for ever": ("await new Promise(() => {});", "never comes", (1, 1)),
    "it rejects": ("await Promise.reject(new Error('later'));", "later", (1, None)),
    "it loops for ever": ("for (;;);", "time limit of 0.3 s", (1, 1)),
    "it takes all memory": ("const all = []; for (;;) all.push(new Array(1e6).fill(1));", "memory limit", (1, 1)),
}
SMALL = Policy(script_s=0.3, script_memory_bytes=32 << 20)


async def refused(keep: Keep, source: str, **options: Any) -> Finding:
    with pytest.raises(ScriptInvalid) as caught:
        await keep.deploy(source, grants="all", **options)
    [found] = [f for f in caught.value.findings if f.severity == "error"]
    return found


@pytest.mark.parametrize(("top", "said", "place"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_script_that_cannot_be_loaded_is_refused_with_its_place(
    tmp_path: Path, top: str, said: str, place: tuple[int, int | None] | None,
) -> None:
    async with Story(tmp_path, policy=SMALL) as story:
        found = await refused(story.keep, f"{top}\n{FLOW}")
        assert found.code == "does-not-load"
        assert said in found.message
        if place is not None:
            line, column = place
            assert (found.line, found.column) == (line, found.column if column is None else column)
        assert found.fix
        assert await story.keep.workflows() == []


async def test_a_new_version_that_cannot_be_loaded_leaves_the_old_one_at_work(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=SMALL) as story:
        wf = await story.deploy(FLOW)
        await refused(story.keep, "throw 1;\n" + FLOW, workflow_id=wf)
        story.feed.put("a")
        await story.run()
        assert (await story.workflow(wf)).version == "1.0"
        assert await story.ids(wf, status="consumed") == ["a"]


async def test_what_the_top_level_logs_and_draws_is_no_hindrance(story: Story) -> None:
    wf = await story.deploy("console.log(Date.now(), Math.random());\nconst all = [1, 2].map(String);\n" + FLOW)
    assert await story.runs(wf) == []
    assert story.feed.count == 0, "no handler was run"


async def test_other_workflows_run_while_a_script_that_never_ends_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Event()
    monkeypatch.setattr("keepai.runtime.javascript.runtime._Silent.log", lambda self, line: begun.set())
    async with Story(tmp_path, policy=Policy(script_s=2.0)) as story:
        story.feed.put("a")
        wf = await story.deploy(FLOW)
        endless = "console.log(1); for (;;);\n" + FLOW.replace('"story"', '"other"')
        trying = asyncio.create_task(refused(story.keep, endless))
        await begun.wait()
        await story.run()
        assert await story.ids(wf, status="consumed") == ["a"]
        assert not trying.done(), "the host did not wait for it"
        assert (await trying).code == "does-not-load"


@pytest.mark.parametrize("deaths", [3, 1000])
async def test_a_worker_that_dies_while_it_loads_is_replaced_until_that_is_no_chance(
    story: Story, monkeypatch: pytest.MonkeyPatch, deaths: int,
) -> None:
    runtime: Any = story.keep.parts.runtime
    load, died = runtime.load, []

    async def dying(*args: Any) -> None:
        if len(died) < deaths:
            died.append(args)
            raise WorkerDied("It died.")
        await load(*args)

    monkeypatch.setattr(runtime, "load", dying)
    if deaths == 3:
        await story.deploy(FLOW)
        return
    with pytest.raises(HostFault, match="not deployed"):
        await story.keep.deploy(FLOW)
    assert len(died) == 20
    assert await story.keep.workflows() == []
