"""Agents come in by a socket of their own, with a token, and have the acts of their role; people then show presence."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import subprocess
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep
from keepai.config import Settings
from keepai.doors import agents, control
from keepai.doors.agents import AgentSocket, HostReader
from keepai.doors.cli.auto_deploy import AutoDeploy
from keepai.doors.control import ControlSocket
from keepai.ledger import queries
from keepai.model.acts import REQUESTS
from keepai.model.errors import KeepError, LedgerUnusable, PresenceNeeded, Refused
from keepai.model.principals import ENV_AGENT_TOKEN, Role
from keepai.reading.look import open_look
from tests.harness import producer, workflow

from . import shapes
from .conftest import COMMAND, Place

PIN = "correct horse"
FLOW = workflow("controlled", producers={"poll": producer('ctx.log("x");', publishes=())})
on_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")


@dataclass
class Served:
    """A host with both sockets, an agent of each role, and the example deployed."""

    keep: Keep
    ledger: Path
    tokens: dict[Role, str]
    wf: str

    async def ask(self, token: str, act: str, **params: Any) -> Any:
        """What the host answers to an agent."""
        return await asyncio.to_thread(agents.ask, self.ledger, token, act, params)

    async def person(self, act: str, typed: str | None = None, **params: Any) -> Any:
        """What the host answers to a person at the terminal."""
        return await asyncio.to_thread(control.ask, self.ledger, act, params, control.ANSWER_S, typed)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """A host without agents."""
    ledger = folder / "keep.db"
    async with Keep(ledger) as keep, ControlSocket(keep, ledger), AgentSocket(keep, Settings(ledger=ledger)):
        wf = (await keep.deploy(FLOW)).workflow_id
        yield Served(keep, ledger, {}, wf)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as host:
        await host.keep.set_pin(PIN)
        for role in (Role.LOOK, Role.PROPOSE):
            host.tokens[role] = await host.keep.agent_add(str(role), str(role))
        yield host


@pytest.mark.parametrize("role", [Role.LOOK, Role.PROPOSE])
async def test_for_an_agent_there_is_no_act_that_its_role_does_not_have(served: Served, role: Role) -> None:
    before = await served.keep.version()
    for name, act in REQUESTS.items():
        if role not in act.roles:
            with pytest.raises(Refused, match=f"There is no act '{name}'"):
                await served.ask(served.tokens[role], name, **dict.fromkeys(act.params, "x"))
    assert await served.keep.version() == before


async def test_an_agent_acts_under_its_own_name(served: Served) -> None:
    await served.ask(served.tokens[Role.PROPOSE], "pause", wf=served.wf)
    acts = await served.keep.parts.ledger.all("action_all", workflow_id=served.wf)
    assert (acts[-1]["act"], acts[-1]["actor"]) == ("pause", "agent:propose")


async def test_who_has_no_token_of_an_agent_here_learns_and_does_nothing(served: Served) -> None:
    await served.keep.agent_remove("look")
    for token in ("", "x", PIN, served.tokens[Role.LOOK]):
        for asked in ("needs_you", "pause", "all"):
            with pytest.raises(Refused, match="No agent here has this token"):
                await served.ask(token, asked, wf=served.wf, statement="workflow_all")


async def test_an_agent_reads_what_people_read_but_nothing_about_tokens(served: Served) -> None:
    read = HostReader(served.ledger, served.tokens[Role.LOOK])

    def both() -> None:
        with open_look(served.ledger, served.keep.parts.policy) as look:
            asked: dict[str, dict[str, Any]] = {
                "workflow_all": {}, "account_page": {"first": 1, "limit": 3}, "script_all": {"workflow_id": served.wf}}
            for name, params in asked.items():
                assert read.all(name, **params) == [dict(each) for each in look.read.all(name, **params)] != []
            assert read.change() == look.read.change()

    await asyncio.to_thread(both)
    writes = set(queries.load()) - queries.reading()
    for name in ("principal_get", "principal_of_secret", "principal_all", *sorted(writes)[:3], "x", None, 3):
        with pytest.raises(Refused, match="There is no statement"):
            await served.ask(served.tokens[Role.LOOK], "all", statement=name, kind="agent", name="look")


async def test_an_agent_is_given_no_more_than_one_answer_may_have(served: Served) -> None:
    for number in range(3):
        source = FLOW.replace("controlled", f"flow{number}")
        await served.ask(served.tokens[Role.PROPOSE], "propose", source=source, why="x", work="y" * 3_000_000)
    with pytest.raises(Refused, match="This is more than 8 MiB"):
        await served.ask(served.tokens[Role.LOOK], "all", statement="proposal_newest", name=None, limit=100)
    [one] = await served.ask(served.tokens[Role.LOOK], "one", statement="proposal_newest", name=None, limit=100)
    assert len(one["work"]) > 3_000_000


async def test_a_read_that_fails_says_so_and_the_next_one_is_answered(served: Served) -> None:
    token, asked = served.tokens[Role.LOOK], {"statement": "look_runs", "workflow_id": served.wf}
    with pytest.raises(Refused, match="more than 64 bits"):
        await served.ask(token, "all", **asked, limit=1 << 63)
    with pytest.raises(LedgerUnusable, match="datatype mismatch"):  # looked up twice, for a connection may be lost
        await served.ask(token, "all", **asked, limit="x")
    assert await served.ask(token, "all", **asked, limit=5) == []
    with pytest.raises(Refused, match="must be an object"):
        await served.ask(token, "tool", name="status", params=[1])


async def test_once_there_is_an_agent_acts_of_people_need_the_pin(tmp_path: Path) -> None:
    async with serving(tmp_path) as host:
        await host.person("pause", wf=host.wf)
        await host.person("resume", wf=host.wf)
        with pytest.raises(Refused, match="There is no PIN yet"):
            await host.person("agent_add", name="claude")
        await host.person("set_pin", pin=PIN)
        token = await host.person("agent_add", name="claude")
        for act, params in (
            ("resume", {"wf": host.wf}), ("deploy", {"source": FLOW}), ("agent_remove", {"name": "claude"})
        ):
            with pytest.raises(PresenceNeeded):
                await host.person(act, **params)
            with pytest.raises(Refused, match="not the PIN"):
                await host.person(act, "123456", **params)
        await host.person("pause", wf=host.wf)  # an agent could do this too
        await host.person("needs_you")
        await host.person("resume", PIN, wf=host.wf)
        await host.person("agent_remove", PIN, name="claude")
        assert token.encode() not in host.ledger.with_name("keep.db-wal").read_bytes() + host.ledger.read_bytes()
        await host.person("pause", wf=host.wf)
        await host.person("resume", wf=host.wf)


async def test_a_script_that_is_saved_is_only_proposed_once_there_is_an_agent(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "keep.toml"
    file.write_text("")
    async with AutoDeploy(served.keep, Settings(ledger=served.ledger, file=file)):
        (tmp_path / "flow.js").write_text(FLOW + "// mended\n", "utf-8")
        told = ""
        while "keep accept" not in told:
            await asyncio.sleep(0.05)
            told += capsys.readouterr().err
    [proposed] = await served.keep.proposals()
    assert f"flow.js was saved and is proposed as {proposed.id}" in told
    assert [each.version for each in await served.keep.workflows()] == ["1.0"]


@on_root
async def test_an_agent_that_is_another_user_comes_in_and_reaches_nothing_else(served: Served, tmp_path: Path) -> None:
    told = await asyncio.to_thread(_as_nobody, tmp_path, served)
    assert told == ["paused", "LedgerUnusable", "PermissionError"]


def _as_nobody(folder: Path, served: Served) -> list[str]:
    """What a process of another user gets: of the agents' socket, of the one for people, and of the file."""
    reader, writer = os.pipe()
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/") and each != Path("/tmp"):
            each.chmod(each.stat().st_mode | 0o011)
    child = os.fork()
    if not child:
        try:
            os.setgid(65534)
            os.setuid(65534)
            told = []
            for what in (
                lambda: agents.ask(served.ledger, served.tokens[Role.PROPOSE], "pause", {"wf": served.wf}) or "paused",
                lambda: control.ask(served.ledger, "pause", {"wf": served.wf}),
                served.ledger.read_bytes,
            ):
                try:
                    told.append(what())
                except (KeepError, OSError) as error:
                    told.append(type(error).__name__)
            os.write(writer, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        found: list[str] = json.loads(said.read())
    return found


# -- the command -----------------------------------------------------------------------------------


async def test_with_a_token_the_command_has_only_what_the_agent_has(
    served: Served, place: Place, monkeypatch: pytest.MonkeyPatch,
) -> None:
    def typed() -> None:
        for looks in (("status",), ("show", served.wf), ("todo",), ("digest",), ("runs",), ("watch",)):
            theirs = place.json(*looks, code=0)
            monkeypatch.setenv(ENV_AGENT_TOKEN, served.tokens[Role.PROPOSE])
            assert place.json(*looks, code=0).keys() == theirs.keys() if isinstance(theirs, dict) else True
            monkeypatch.delenv(ENV_AGENT_TOKEN)
        monkeypatch.setenv(ENV_AGENT_TOKEN, served.tokens[Role.LOOK])
        assert "There is no act 'pause'" in place.type("pause", served.wf, code=1).stderr
        monkeypatch.setenv(ENV_AGENT_TOKEN, served.tokens[Role.PROPOSE])
        place.type("pause", served.wf)
        for absent in ("deploy", "approve", "grant", "secrets", "agent", "db", "dev", "serve", "rollback"):
            assert f"There is no command '{absent}' for an agent" in place.type(absent, code=2).stderr
            assert f"\n  {absent} " not in place.type("--help").stdout

    await asyncio.to_thread(typed)


def test_an_agent_never_takes_the_ledger_itself(worked: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_AGENT_TOKEN, "keep_agent_x")
    for command in ("status", "runs"):
        told = worked.type(command, code=1).stderr
        assert "No host is running for keep.db, and an agent acts and looks only through one" in told
    assert "No host is running" in worked.type("pause", "email-to-sheets", code=1).stderr


@dataclass
class Terminal:
    """A terminal at which commands are typed, each with an answer to every question; `piped` comes in on stdin."""

    place: Place
    answer: str

    def type(self, *args: str, piped: str = "") -> tuple[int, str, str]:
        """The exit code, what stands on the terminal, and what was printed."""
        ours, theirs = pty.openpty()

        def take() -> None:
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        done = subprocess.Popen(
            [*COMMAND, *args], cwd=self.place.folder, stdin=subprocess.PIPE, pass_fds=(theirs,), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=take,  # noqa: PLW1509
        )
        os.close(theirs)
        assert done.stdin is not None
        done.stdin.write(piped)
        done.stdin.close()
        done.stdin = None
        asked = b""
        while True:
            try:
                part = os.read(ours, 1024)
            except OSError:  # the last process at the terminal has ended
                break
            asked += part
            if part.rstrip().endswith(b":"):
                os.write(ours, self.answer.encode() + b"\n")
        said, _ = done.communicate(timeout=60)
        os.close(ours)
        return done.returncode, asked.decode(), said

    def json(self, *args: str) -> Any:
        """What a command prints for programs."""
        code, _, said = self.type(*args, "--json")
        assert code == 0, said
        printed = json.loads(said[said.index("{"):])
        shapes.check(args, printed)
        return printed


def test_the_pin_is_typed_at_the_terminal_and_taken_from_nowhere_else(worked: Place) -> None:
    terminal = Terminal(worked, PIN)
    terminal.json("agent", "pin")
    assert worked.json("agent", "add", "claude", "--scope", "propose")["token"].startswith("keep_agent_")
    assert [(each["name"], each["role"]) for each in worked.json("agent", "list")] == [("claude", "propose")]
    worked.type("pause", "email-to-sheets")
    refused = subprocess.run(
        [*COMMAND, "resume", "email-to-sheets"], cwd=worked.folder, input=f"{PIN}\n", text=True, check=False,
        capture_output=True, start_new_session=True, env={**os.environ, "KEEP_PIN": PIN},
    )
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "there is no terminal to type it at" in refused.stderr
    code, asked, said = terminal.type("resume", "email-to-sheets", piped="wrong\n")
    assert (code, "email-to-sheets is active." in said) == (0, True)
    assert PIN not in asked
    terminal.json("agent", "remove", "claude")
    worked.type("pause", "email-to-sheets")
    worked.type("resume", "email-to-sheets")


#: What changes secrets, keep.toml or the ledger's place, beside the acts of a host.
BESIDE = [
    ("secrets", "set", "gmail", "token"), ("secrets", "rotate"), ("secrets", "delete", "gmail"),
    ("connect", "gmail", "gmail"), ("db", "move", "--to", "other.db"), ("db", "accept-older"),
    ("deploy", "flow.js", "--dry-run"),
]


def test_what_changes_secrets_settings_or_the_place_of_the_ledger_needs_the_pin(worked: Place) -> None:
    terminal = Terminal(worked, PIN)
    terminal.json("agent", "pin")
    terminal.json("agent", "add", "claude")
    before = {each: each.read_bytes() for each in worked.folder.iterdir() if each.suffix in (".toml", ".secrets")}
    for command in BESIDE:
        done = subprocess.run(
            [*COMMAND, *command], cwd=worked.folder, input=f"{PIN}\n", text=True, check=False, capture_output=True,
            start_new_session=True)
        assert (done.returncode, done.stdout) == (4, ""), (command, done.stderr)
    worked.type("db", "move", "--to", "other.db", "--dry-run")
    code, _, said = Terminal(worked, "123456").type("db", "accept-older")
    assert (code, "That is not the PIN" in said) == (1, True)
    assert before == {each: each.read_bytes() for each in before}
    assert not terminal.json("db", "accept-older")["was_older"]


async def test_the_host_judges_presence_for_what_lies_beside_it(served: Served) -> None:
    with pytest.raises(PresenceNeeded):
        await served.person("confirm_presence")
    with pytest.raises(Refused, match="not the PIN"):
        await served.person("confirm_presence", "123456")
    await served.person("confirm_presence", PIN)
    for token in served.tokens.values():
        with pytest.raises(Refused, match="There is no act 'confirm_presence'"):
            await served.ask(token, "confirm_presence")


async def test_agents_see_proposals_through_the_host(served: Served) -> None:
    made = await served.ask(served.tokens[Role.PROPOSE], "propose", source=FLOW + "// mended\n", why="It is better.")
    [listed] = await served.ask(served.tokens[Role.LOOK], "proposals", wf="controlled")
    assert listed == await served.ask(served.tokens[Role.LOOK], "proposal", id=made["id"]) == made
    assert await served.person("proposals", wf="another") == []


def test_agents_are_listed_and_removed_by_name(place: Place) -> None:
    place.type("deploy", "flow.js")
    assert "There are no agents." in place.type("agent", "list").stdout
    assert "there is no agent 'x'" in place.type("agent", "remove", "x", code=1).stderr


def test_users_are_let_in_listed_and_removed_by_name(place: Place) -> None:
    added = place.json("user", "add", "ann", "--role", "operator")
    assert (added["user"], added["token"].startswith("keep_user_")) == ("ann", True)
    assert [(each["name"], each["role"]) for each in place.json("user", "list")] == [("ann", "operator")]
    place.json("user", "remove", "ann")
    assert "there is no user 'ann'" in place.type("user", "remove", "ann", code=1).stderr
    assert "no agents" in place.type("agent", "list").stdout
