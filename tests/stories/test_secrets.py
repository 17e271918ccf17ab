"""Secrets stay in connectors: a canary that is in every request is in nothing that Keep keeps or says."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from keepai import (
    Call,
    Connector,
    OutcomeUnknown,
    PermissionDenied,
    Policy,
    Rejected,
    Transient,
    Verdict,
    mutation,
    read,
)
from keepai.views.cli.main import keep as command
from tests.harness import Story, consumer, producer, workflow

CANARY = "canary-5ecret-8f14e45f"
MORSEL = CANARY.encode()[2:-2]  #: also found when quoted, cut or wrapped


class Vault(Connector):
    """Holds a secret and puts it into every request; what it raises does not name it."""

    name = "vault"
    input_types = ("note",)
    account = "ann"

    def __init__(self) -> None:
        super().__init__()
        self.token = CANARY
        self.session = {"Authorization": f"Bearer {CANARY}"}
        self.sent: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.verdict: Callable[[], Verdict] = Verdict.failed

    def _request(self, params: Any) -> None:
        headers = {**self.session, "X-Token": self.token}
        self.sent.append({"headers": headers, "params": params})
        if self.error is not None:
            raise self.error

    @read
    async def look(self, params: dict[str, Any], call: Call) -> Any:
        """What is there."""
        self._request(params)
        return {"ok": True}

    @mutation(identity=("to",), target="to", settle=0)
    async def put(self, params: dict[str, Any], call: Call) -> Any:
        """Put something."""
        call.log("putting")
        self._request(params)
        return {"id": "1"}

    @put.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Look for it."""
        if self.error is not None:
            raise RuntimeError("the search failed")
        return self.verdict()

    def __repr__(self) -> str:
        return f"<Vault {self.token}>"


#: A script that tries to see what it must not, and logs whatever it finds.
PRY = """
  const seen = [];
  const look = (o, depth) => {
    if (depth > 3 || o === null || (typeof o !== "object" && typeof o !== "function")) return;
    for (const k of Object.getOwnPropertyNames(o)) {
      let v; try { v = o[k]; } catch (e) { seen.push(String(e)); continue; }
      seen.push(k); if (typeof v === "string") seen.push(v); look(v, depth + 1);
    }
  };
  look(ctx, 0); look(globalThis, 0);
  for (const name of ["process", "require", "std", "os", "Deno", "Bun"]) {
    ctx.log(`${name}:${typeof globalThis[name]}`);
  }
  ctx.log(JSON.stringify(seen).slice(0, 60000));
  ctx.log(new Error("where").stack);
"""


def acting() -> str:
    """A workflow that reads and puts, prying in every step."""
    take = """
      const [event] = await ctx.peek("in");
      await ctx.vault.look({ of: "x" });
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: [event.messageId] }], data: event, ui: { title: "Put it" } };
    """
    return workflow(producers={"poll": producer()}, consumers={
        "act": consumer(PRY + take, mutate=PRY + "await ctx.vault.put({ to: 'ann' });",
                        next=PRY + "ctx.log(JSON.stringify(mutationResult));")})


def deep(error: BaseException) -> BaseException:
    """An error with a cause, as libraries raise them."""
    error.__cause__ = OSError("connection reset")
    return error


ENDINGS: dict[str, BaseException | None] = {
    "it works": None, "transient": Transient("busy"), "permission": PermissionDenied("expired"),
    "rejected": Rejected("wrong"), "unknown": OutcomeUnknown("lost"), "a bug": deep(ValueError("bad answer")),
    "an error of the network": ConnectionResetError(104, "reset by peer"),
}


def traces(folder: Path) -> list[str]:
    """Files in which the canary stands, in whole or in part: ledger, write-ahead log, lock, everything else."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert {"keep.db", "keep.db-wal", "keep.db.lock"} <= {p.name for p in files}
    return [p.name for p in files if MORSEL in p.read_bytes()]


async def said(story: Story, wf: str) -> str:
    """Everything that Keep tells about a workflow."""
    keep = story.keep
    runs = await keep.runs(wf)
    records: list[Any] = [
        *await keep.workflows(), *runs, *await keep.mutations(wf), *await keep.events(wf), *await keep.inputs(wf),
        *await keep.outputs(wf), *await keep.needs_you(wf), *(t for r in runs for t in keep.views.trace(r.id)),
    ]
    text = json.dumps([r.to_json() for r in records])
    explain = getattr(keep, "explain", None)
    if explain is not None:
        for record in [*runs, *await keep.mutations(wf), *await keep.events(wf), *await keep.inputs(wf)]:
            text += repr(await explain(record.id))
    return text


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_secret_that_a_connector_does_not_hand_out_is_nowhere(
    tmp_path: Path, ending: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:
    # I40, DESIGN 11, R290: ledger, log, lock, traces, errors, questions, stdout, stderr, logging
    caplog.set_level(0)
    vault = Vault()
    async with Story(tmp_path, connectors=[vault]) as story:
        story.feed.put("a")
        wf = await story.deploy(acting())
        vault.error = ENDINGS[ending]
        await story.run()
        await story.run(minutes=31)
        assert vault.sent
        assert all(CANARY in s["headers"]["X-Token"] for s in vault.sent)
        assert CANARY not in await said(story, wf)
        assert traces(tmp_path) == []
        out, err = capfd.readouterr()
        assert CANARY not in out + err + caplog.text


@pytest.mark.parametrize("ending", ["a bug", "unknown"])
async def test_an_unexpected_error_keeps_its_evidence_without_the_values_of_variables(
    tmp_path: Path, ending: str,
) -> None:
    # I40: the stack is kept where it helps; locals, `self` and its repr are not part of it
    vault = Vault()
    async with Story(tmp_path, connectors=[vault]) as story:
        story.feed.put("a")
        wf = await story.deploy(acting())
        vault.error = ENDINGS[ending]
        await story.run()
        run = await story.last(wf, "act")
        assert run.error is not None
        assert CANARY not in json.dumps(run.error.to_json())
        assert CANARY not in await said(story, wf)
        assert traces(tmp_path) == []


async def test_the_command_line_says_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # I40: every look, for people and for programs
    vault = Vault()
    async with Story(tmp_path, connectors=[vault]) as story:
        story.feed.put("a")
        wf = await story.deploy(acting())
        vault.error = OutcomeUnknown("lost")
        await story.run()
        run = await story.last(wf, "act")
    monkeypatch.chdir(tmp_path)
    for args in (["status"], ["todo"], ["runs", wf], ["inputs", wf], ["outputs", wf], ["show", run.id], ["logs", wf]):
        for more in ([], ["--json"]):
            result = await asyncio.to_thread(CliRunner().invoke, command, [*args, *more])
            assert CANARY not in result.output + result.stderr + repr(result.exception), args


async def test_a_script_sees_neither_secrets_nor_the_environment_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    # I39, I40: it looks into everything that it can name, in every step
    monkeypatch.setenv("KEEP_TEST_CANARY", CANARY)
    monkeypatch.setitem(os.environ, "CANARY_NAME_" + CANARY.replace("-", "_"), "1")
    vault = Vault()
    async with Story(tmp_path, connectors=[vault], policy=Policy(trace_bytes_max=1 << 20)) as story:
        story.feed.put("a")
        wf = await story.deploy(acting())
        await story.run()
        run = await story.last(wf, "act")
        assert run.status == "committed"
        logs = story.logs(run)
        assert sum(line.startswith('["') for line in logs) == 3, logs
        assert "peek" in "".join(logs)  # it did look
        told = "".join(logs)
        assert CANARY not in told
        assert "KEEP_TEST_CANARY" not in told
        assert "CANARY_NAME_" not in told
        for name in ("process", "require", "std", "os", "Deno", "Bun"):
            assert f"{name}:undefined" in told
        assert traces(tmp_path) == []


async def test_a_secret_in_an_approved_call_is_neither_asked_about_nor_kept(tmp_path: Path) -> None:
    # I40: the card shows the params and whose account it is, not how the connector signs in
    vault = Vault()
    async with Story(tmp_path, connectors=[vault]) as story:
        story.feed.put("a")
        grants = {"feed.list": "allow", "vault.look": "allow", "vault.put": "ask"}
        wf = await story.deploy(acting(), grants=grants)
        await story.run()
        [asked] = await story.keep.needs_you(wf)
        assert asked.facts["account"] == "ann"
        assert CANARY not in json.dumps(asked.to_json())
        await story.keep.approve(asked.id)
        await story.run()
        assert len(vault.sent) >= 2
        assert CANARY not in await said(story, wf)
        assert traces(tmp_path) == []
