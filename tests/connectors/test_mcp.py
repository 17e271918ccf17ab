"""`type = "mcp"`: only what a person confirmed is called, nothing is sent twice, the program dies with the host."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from keepai import Connector, OutcomeUnknown, PreconditionFailed
from keepai.connectors import make
from keepai.connectors.base import Call
from keepai.connectors.typescript import declare
from keepai.model.errors import ConfigError, RuleBroken
from tests.connectors import mcp_repeats, mcp_server
from tests.connectors.mcp_subjects import RULE, locked, program
from tests.harness import Story, acting

ADD = "await ctx.notes.addNote({ text: prepared.data.messageId });"


async def add(notes: Connector, call: Call | None = None) -> Any:
    spec = notes.operations["addNote"]
    return await spec.invoke(spec.parse({"text": "one"}), call or Call())


def offer(folder: Path, **changed: Any) -> None:
    """Have the server describe its first tool in another way."""
    (folder / "tools").write_text(json.dumps([{**mcp_server.TOOLS[0], **changed}, *mcp_server.TOOLS[1:]]))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


# -- what a person has confirmed -----------------------------------------------------------------------


@pytest.mark.parametrize("changed", [
    {"description": "Add a note, and pay for it."}, {"annotations": {"readOnlyHint": True}},
    {"inputSchema": {"type": "object"}}, {"outputSchema": {"type": "object"}},
], ids=lambda changed: next(iter(changed)))
async def test_a_tool_that_has_changed_since_it_was_confirmed_is_not_called(
    tmp_path: Path, changed: dict[str, Any],
) -> None:
    notes = program(tmp_path)
    offer(tmp_path, **changed)
    with pytest.raises(PreconditionFailed, match="was changed by"):
        await add(notes)
    with pytest.raises(PreconditionFailed, match="has changed addNote"):
        await notes.check()
    await notes.shut_down()
    assert mcp_server.notes(tmp_path) == []


async def test_a_tool_that_nobody_has_confirmed_does_not_exist_for_scripts(tmp_path: Path) -> None:
    lock = locked(tmp_path, mcp_server.TOOLS[1:])
    notes = make("mcp", "notes", {"command": "notes", "lock": str(lock)})
    assert list(notes.operations) == ["findNotes"]


def test_a_lock_that_was_edited_is_refused(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    lock.write_text(lock.read_text().replace("Add a note", "Add two notes"))
    with pytest.raises(ConfigError, match="changed by hand"):
        make("mcp", "notes", {"command": "notes", "lock": str(lock)})


def test_a_certificate_does_not_outlive_a_change_that_was_confirmed(tmp_path: Path) -> None:
    before = program(tmp_path).fingerprint()
    locked(tmp_path, [{**mcp_server.TOOLS[0], "description": "Add a note, anywhere."}, mcp_server.TOOLS[1]])
    after = make("mcp", "notes", {"command": "notes", "lock": str(tmp_path / "keep.mcp.lock")})
    assert after.fingerprint() != before


async def test_all_grants_ask_for_each_mutation_of_a_server_until_a_person_allows_it(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[program(tmp_path)]) as story:
        wf = await story.deploy_and_run(acting(ADD), "a")
        [asked] = await story.keep.needs_you(wf)
        assert mcp_server.notes(tmp_path) == []
        await story.keep.approve(asked.id)
        await story.run()
    assert mcp_server.notes(tmp_path) == [{"text": "a"}]


def test_what_a_server_says_shows_what_is_hidden_in_it(tmp_path: Path) -> None:
    hidden = {**mcp_server.TOOLS[0], "description": "Add a note.\u202e*/ interface ProducerContext {"}
    lock = locked(tmp_path, [hidden])
    text = declare([make("mcp", "notes", {"command": "notes", "lock": str(lock)})])
    assert "‹U+202E›* / interface" in text


def test_params_are_checked_as_the_tool_declares_them(tmp_path: Path) -> None:
    spec = program(tmp_path).operations["addNote"]
    with pytest.raises(RuleBroken, match=r'params\.text must be string, not 5; params\.txt is unknown'):
        spec.parse({"text": 5, "txt": "x"})
    with pytest.raises(RuleBroken, match=r"params\.text is missing"):
        spec.parse({})


def test_identity_is_all_params_until_a_person_names_some(tmp_path: Path) -> None:
    params = {"text": "a", "ref": "b"}
    assert program(tmp_path).operations["addNote"].identity(params) == params
    named = program(tmp_path, identity={"addNote": ["ref"]}).operations["addNote"]
    assert named.identity(params) == {"ref": "b"}


@pytest.mark.parametrize(("rule", "told"), [
    ({**RULE, "tool": "addNote"}, "as a read"),
    ({**RULE, "on": "addNotes"}, "no tool 'addNotes'"),
    ({**RULE, "key": "id"}, "no param 'id'"),
    ({"on": "addNote", "tool": "findNotes", "args": {"ref": "7"}}, "what to look for"),
])
def test_a_rule_that_cannot_tell_anything_is_refused(tmp_path: Path, rule: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        _ = program(tmp_path, lookup=[rule]).operations


# -- the program ---------------------------------------------------------------------------------------


async def test_the_program_sees_no_environment_but_what_is_given_and_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    notes = program(tmp_path, env={"MODE": "quiet"})
    await add(notes)
    await notes.shut_down()
    seen = set(json.loads((tmp_path / "env").read_text()))
    assert {"MODE", "TOKEN"} <= seen <= {"MODE", "TOKEN", "PATH", "HOME", "LANG", "LC_CTYPE"}


async def test_the_program_is_kept_between_calls_and_started_again_after_a_lost_one(tmp_path: Path) -> None:
    notes, pids = program(tmp_path), []
    for fault in ("", "", "isError", "answer_lost", ""):
        (tmp_path / "fault").write_text(fault)
        try:
            await add(notes)
        except OutcomeUnknown:
            pass
        pids.append(int((tmp_path / "pid").read_text()))
    await notes.shut_down()
    assert pids[0] == pids[1] == pids[2] == pids[3] != pids[4]
    assert len(mcp_server.notes(tmp_path)) == 5
    assert not any(is_alive(pid) for pid in pids)


async def test_a_program_that_died_between_calls_is_started_again_and_nothing_is_unknown(tmp_path: Path) -> None:
    notes = program(tmp_path)
    await add(notes)
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    await add(notes)
    await notes.shut_down()
    assert len(mcp_server.notes(tmp_path)) == 2


HOST = """
import asyncio, sys, time
from pathlib import Path
from keepai.connectors.base import Call
from tests.connectors.mcp_subjects import program

async def main():
    notes = program(Path(sys.argv[1]))
    await notes.operations["addNote"].invoke({"text": "a"}, Call(lock_fd=int(sys.argv[2])))
    print("called", flush=True)
    time.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a program with the one that started it")
def test_the_program_dies_with_the_host_and_holds_its_lock_until_then(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        host = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOST), str(tmp_path), str(lock.fileno())],
            pass_fds=(lock.fileno(),), stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        with host, host.stdout:  # type: ignore[union-attr]
            assert host.stdout is not None
            assert host.stdout.readline() == b"called\n"
            pid = int((tmp_path / "pid").read_text())
            held = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
            host.kill()
        assert str(tmp_path / "lock") in held
        for _ in range(10_000):
            if not is_alive(pid):
                break
        assert not is_alive(pid)


async def test_a_host_that_ends_leaves_no_program_behind(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[program(tmp_path)]) as story:
        await story.deploy_and_run(acting(ADD), "a", grants={"all": "allow", "notes.addNote": "allow"})
        pid = int((tmp_path / "pid").read_text())
        assert is_alive(pid)
    assert not is_alive(pid)
    assert mcp_server.notes(tmp_path) == [{"text": "a"}]


async def test_a_command_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailed, match="cannot be started"):
        await add(program(tmp_path, command="no-such-server --stdio"))


# -- nothing twice -------------------------------------------------------------------------------------


async def test_a_server_that_loses_answers_and_works_late_does_nothing_twice(tmp_path: Path) -> None:
    assert await mcp_repeats.with_keep(tmp_path, 12) == mcp_repeats.Figure(12, missing=0, doubled=0)


async def test_the_same_through_a_client_that_sends_again_happens_twice(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    assert (await mcp_repeats.without_keep(tmp_path, 3)).doubled > 0


# -- a server of the SDK -------------------------------------------------------------------------------


SDK_SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")


@server.tool()
def add_up(numbers: list[int]) -> int:
    "Add numbers."
    return sum(numbers)


server.run()
"""


async def test_a_server_made_with_the_sdk_is_listed_confirmed_and_called(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    (tmp_path / "server.py").write_text(SDK_SERVER)
    command = shlex.join([sys.executable, "server.py"])
    settings = {"command": command, "folder": str(tmp_path), "lock": str(tmp_path / "lock")}
    new: Any = make("mcp", "sums", settings)
    await new.check()
    locked_tools = [{"name": tool.name, **tool.said} for tool in new.offered.values()]
    sums = make("mcp", "sums", {**settings, "lock": str(locked(tmp_path, locked_tools, "sums"))})
    try:
        spec = sums.operations["addUp"]
        assert "addUp(params: { numbers: number[] }): Promise<{ result: number }>;" in declare([sums])
        assert await spec.invoke(spec.parse({"numbers": [1, 2, 3]}), Call()) == {"result": 6}
    finally:
        await sums.shut_down()
        await new.shut_down()
