"""Secrets stay in connectors: a canary that is in every request is in nothing that Keep keeps or says."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from keepai import (
    Call,
    Connector,
    OutcomeUnknown,
    Page,
    PermissionDenied,
    Policy,
    PreconditionFailed,
    Rejected,
    Transient,
    Verdict,
    mutation,
    read,
)
from keepai.config import Settings
from keepai.connectors.muted import MutedConnector, Muting
from keepai.connectors.redacted import redacted, redactor_of
from keepai.doors.cli.main import keep as command
from keepai.doors.web.page_server import PageServer
from keepai.ledger.sqlite.backups import backup
from keepai.model.errors import KeepError, Refused
from keepai.vault.keys import KeyPlaces
from keepai.vault.vault import Vault as Secrets
from tests.harness import Story, consumer, producer, views, workflow
from tests.ledger.stores import SqliteStore, store_in
from tests.web.conftest import Served

CANARY = "canary-5ecret-8f14e45f"
#: Also found when quoted, cut, wrapped or encoded.
MORSELS = (CANARY.encode()[2:-2], base64.b64encode(CANARY.encode())[2:-6], CANARY.encode().hex().encode())


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
    """Where the canary stands, in whole or in part: the ledger, its write-ahead log, lock, all other files."""
    kept = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} | store_in(folder).contents()
    return [name for name, content in kept.items() if any(morsel in content for morsel in MORSELS)]


async def said(story: Story, wf: str) -> str:
    """Everything that Keep tells about a workflow."""
    keep = story.keep
    runs = await keep.runs(wf)
    records: list[Any] = [
        *await keep.workflows(), *runs, *await keep.mutations(wf), *await keep.events(wf), *await keep.inputs(wf),
        *await keep.outputs(wf), *await keep.needs_you(wf), *(t for r in runs for t in views(keep).trace(r.id)),
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
        wf = await story.deploy_and_run(acting(), "a")
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
        wf = await story.deploy_and_run(acting(), grants=grants)
        [asked] = await story.keep.needs_you(wf)
        assert asked.facts["account"] == "ann"
        assert CANARY not in json.dumps(asked.to_json())
        await story.keep.approve(asked.id)
        await story.run()
        assert len(vault.sent) >= 2
        assert CANARY not in await said(story, wf)
        assert traces(tmp_path) == []


@pytest.mark.parametrize("where", [{"why": CANARY}, {"cases": f'a = "{CANARY}"'}, {"work": {"said": [CANARY]}}])
async def test_a_proposal_that_holds_a_secret_is_not_kept(tmp_path: Path, where: dict[str, Any]) -> None:
    async with Story(tmp_path, connectors=[Leaky(tmp_path)]) as story:
        with pytest.raises(Refused, match="The proposal holds the secret"):
            await story.keep.propose(acting(), **{"why": "it is needed", **where})
        assert await story.keep.proposals() == []
        assert traces(tmp_path) == []


# -- a careless connector: it says its secret wherever it can ------------------------------------------------

BASIC = base64.b64encode(f"ann:{CANARY}".encode()).decode()


def secrets_in(folder: Path) -> Secrets:
    """The vault beside the story's ledger; its key is in another folder."""
    return Secrets(folder / "keep.secrets", KeyPlaces(key_file=folder.parent / f"{folder.name}.key"))


class Leaky(Connector):
    """Has its secret from the vault, and tells it in everything that it says."""

    name = "leaky"
    secrets: ClassVar[Mapping[str, str]] = {"password": "the password"}

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.used: list[str] = []
        self.error: Callable[[str], BaseException] | None = None
        self.fails_in: set[str] = set()
        self.verdict: Callable[[str], Verdict] = lambda secret: Verdict.applied({"found": secret})
        if folder is not None:
            secrets_in(folder).put("leaky", {"password": CANARY})
            self.entrust(secrets_in(folder).view("leaky"))

    @property
    def account(self) -> str:  # type: ignore[override]
        """Whose it is."""
        return f"ann:{self.secret('password')}"

    def _use(self, where: str) -> str:
        secret = self.secret("password")
        self.used.append(where)
        if where in self.fails_in and self.error is not None:
            raise self.error(secret)
        return secret

    @read
    async def look(self, params: dict[str, Any], call: Call) -> Any:
        """What is there."""
        call.log(f"looking with {self.secret('password')}")
        call.skip(f"what {self.secret('password')} hides")
        secret = self._use("look")
        return {"header": f"Basic {BASIC}", secret: [secret, {"url": f"https://x/?p={quote(secret)}", "n": 5}]}

    @read
    async def pages(self, params: dict[str, Any], call: Call) -> Page[Any]:
        """The same in pages."""
        secret = self._use("pages")
        return Page([secret, {"x": secret}], cursor=secret, next={"url": secret})

    @mutation(identity=("to",), target="to", settle=0)
    async def put(self, params: dict[str, Any], call: Call) -> Any:
        """Put something."""
        call.log(f"putting with {self.secret('password')}")
        logging.getLogger("leaky").warning("putting with %s", self.secret("password"))
        secret = self._use("put")
        return {"id": "1", "token": secret}

    @put.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Look for it."""
        return self.verdict(self._use("find"))

    @put.preview
    def say(self, params: dict[str, Any]) -> str:
        """What will be done."""
        return f"Put it with {self._use('say')}"

    @put.compare_payload
    def same(self, old: Any, new: Any) -> Any:
        """Whether it is the same."""
        self._use("same")
        return "minor"

    async def check(self) -> None:
        """Whether it works."""
        self._use("check")


def leaking() -> str:
    """A workflow that reads, puts what it read elsewhere, and tells all that it was given."""
    take = """
      const [event] = await ctx.peek("in");
      const seen = [await ctx.leaky.look({}), await ctx.leaky.pages({})];
      ctx.log(JSON.stringify(seen) + seen[1].cursor + JSON.stringify(seen[1].next));
      if (!event) return { reservations: [], data: {} };
      const reservations = [{ topic: "in", ids: [event.messageId] }];
      return { reservations, data: { event, seen }, ui: { title: "Put it" } };
    """
    return workflow(producers={"poll": producer()}, consumers={
        "act": consumer(take, publishes=["out"], mutate="await ctx.leaky.put({ to: 'ann' });",
                        next="ctx.log(JSON.stringify(mutationResult));")})


def putting() -> str:
    """A workflow that only puts."""
    return workflow("putting", producers={"poll": producer()}, consumers={
        "act": consumer(mutate="await ctx.leaky.put({ to: 'ann' });", next="ctx.log(JSON.stringify(mutationResult));")})


async def nowhere(story: Story, folder: Path, *workflows: str) -> None:
    """The canary is in no file, in no answer of Keep, and in no backup."""
    for wf in workflows:
        told = await said(story, wf)
        assert CANARY not in told
        assert BASIC[8:] not in told
    if isinstance(story.store, SqliteStore):
        backup(story.path, folder / "copy.db")
    assert traces(folder) == []
    (folder / "copy.db").unlink(missing_ok=True)


def unheard(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """Nor was it said aloud."""
    out, err = capfd.readouterr()
    assert CANARY not in out + err + caplog.text


async def test_what_a_careless_connector_says_is_kept_without_its_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:
    # I40, R290: results, pages and their fields, logs, previews, accounts, PrepareResults, traces
    caplog.set_level(0)
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        wf = await story.deploy_and_run(leaking(), "a")
        run = await story.last(wf, "act")
        assert run.status == "committed", run.error
        [sent] = await story.keep.mutations(wf)
        assert sent.result == {"id": "1", "token": "[secret leaky.password]"}
        assert sent.preview == "Put it with [secret leaky.password]"
        logs = story.logs(run)
        assert "putting with [secret leaky.password]" in logs
        assert sum("[secret leaky.password]" in line for line in logs) == 4
        assert {"look", "pages", "put", "say"} <= set(leaky.used)
        assert "putting with [secret leaky.password]" in caplog.text
        await nowhere(story, tmp_path, wf)
    unheard(capfd, caplog)


class Hidden(Exception):
    """An error whose text is made from what it carries."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret = secret

    def __str__(self) -> str:
        return f"with {self.secret}"


def caused(secret: str) -> BaseException:
    """An error that says nothing itself."""
    error = ValueError("bad answer")
    error.__cause__ = OSError(f"connection reset after Authorization: Basic {BASIC}")
    error.add_note(f"sent: {secret}")
    return error


SPILLS: dict[str, Callable[[str], BaseException]] = {
    "transient": lambda s: Transient(f"busy {s}"), "permission": lambda s: PermissionDenied(f"expired {s}"),
    "precondition": lambda s: PreconditionFailed(f"gone {s}"), "rejected": lambda s: Rejected(f"wrong {s!r}"),
    "unknown": lambda s: OutcomeUnknown(f"lost https://x/?p={quote(s)}"), "a bug": caused, "a text of its own": Hidden,
    "the end of the process": SystemExit, "several": lambda s: ExceptionGroup(s, [ValueError(s), KeyError(s)]),
}


@pytest.mark.parametrize("spill", SPILLS)
async def test_what_a_careless_connector_raises_is_kept_without_its_secret(
    tmp_path: Path, spill: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:
    # I40: in a read, in a mutation and in the question what became of it; the meaning of the error stays
    caplog.set_level(0)
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        story.feed.put("a")
        leaky.error, leaky.fails_in = SPILLS[spill], {"look", "put", "find", "pages"}
        reading, writing = await story.deploy(leaking()), await story.deploy(putting())
        await story.run()
        await story.run(minutes=31)
        assert {"look", "put"} <= set(leaky.used)
        unknown = spill not in ("transient", "permission", "precondition", "rejected")
        assert ("find" in leaky.used) is unknown
        statuses = {m.status for m in await story.keep.mutations(writing)}
        assert statuses == ({"needs_reconcile"} if unknown else {"failed"})
        told = await said(story, reading) + await said(story, writing)
        assert "[secret leaky.password]" in told
        await nowhere(story, tmp_path, reading, writing)
    unheard(capfd, caplog)


VERDICTS: dict[str, Callable[[str], Verdict]] = {
    "applied": lambda s: Verdict.applied({"id": s, "at": [BASIC]}),
    "unknown": lambda s: Verdict.unknown(f"nobody knows with {s}"),
    "retry": lambda s: Verdict("retry", why=f"busy with {s}"),
    "no verdict": lambda s: s,  # type: ignore[dict-item, return-value]
}


@pytest.mark.parametrize("verdict", VERDICTS)
async def test_what_a_careless_connector_finds_out_is_kept_without_its_secret(tmp_path: Path, verdict: str) -> None:
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        story.feed.put("a")
        leaky.error, leaky.fails_in, leaky.verdict = OutcomeUnknown, {"put"}, VERDICTS[verdict]
        wf = await story.deploy_and_run(putting())
        [sent] = await story.keep.mutations(wf)
        assert sent.status == {"applied": "applied", "unknown": "indeterminate"}.get(verdict, "needs_reconcile")
        if verdict == "applied":
            assert sent.result == {"id": "[secret leaky.password]", "at": sent.result["at"]}
        assert "find" in leaky.used
        await nowhere(story, tmp_path, wf)


@pytest.mark.parametrize("spill", ["a bug", "permission"])
async def test_a_preview_that_fails_says_no_secret_and_nothing_is_sent(tmp_path: Path, spill: str) -> None:
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        story.feed.put("a")
        leaky.error, leaky.fails_in = SPILLS[spill], {"say"}
        wf = await story.deploy_and_run(putting())
        assert "put" not in leaky.used
        assert (await story.last(wf, "act")).error is not None
        await nowhere(story, tmp_path, wf)


async def test_the_card_of_a_call_says_no_secret_and_what_is_approved_is_sent(tmp_path: Path) -> None:
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        wf = await story.deploy_and_run(putting(), "a", grants={"feed.list": "allow", "leaky.put": "ask"})
        [asked] = await story.keep.needs_you(wf)
        assert asked.facts["account"] == "ann:[secret leaky.password]"
        assert "[secret leaky.password]" in json.dumps(asked.to_json())
        await nowhere(story, tmp_path, wf)
        await story.keep.approve(asked.id)
        await story.run()
        assert leaky.used[-1] == "put"
        await nowhere(story, tmp_path, wf)


@pytest.mark.parametrize("wrapped", [False, True])
async def test_checks_and_comparisons_that_fail_say_no_secret(tmp_path: Path, wrapped: bool) -> None:
    leaky = Leaky(tmp_path)
    leaky.error, leaky.fails_in = caused, {"check", "same"}
    one = MutedConnector(leaky, Muting(9)) if wrapped else leaky  # a rehearsal's are the same to it
    walled = redacted(one, redactor_of([one]))
    if not wrapped:
        with pytest.raises(RuntimeError) as caught:
            await walled.check()
        assert CANARY not in repr(caught.value) + repr(caught.value.__cause__)
    with pytest.raises(RuntimeError) as caught:
        walled.operations["put"].compare({}, {})
    assert CANARY not in repr(caught.value) + repr(caught.value.__cause__)
    assert "[secret leaky.password]" in str(caught.value.__cause__)


async def test_what_a_careless_connector_says_too_late_is_kept_without_its_secret(tmp_path: Path) -> None:
    late = asyncio.Event()

    class Slow(Leaky):
        name = "leaky"

        @mutation(identity=("to",), settle=0)
        async def put(self, params: dict[str, Any], call: Call) -> Any:
            """Put something, and do not let go."""
            while not late.is_set():
                try:
                    await late.wait()
                except asyncio.CancelledError:
                    continue
            return {"token": self.secret("password")}

    leaky = Slow(tmp_path)
    async with Story(tmp_path, connectors=[leaky], policy=Policy(call_s=0.05)) as story:
        wf = await story.deploy_and_run(putting(), "a")
        late.set()
        await asyncio.wait(set(story.keep.parts.calls), timeout=5)
        [sent] = await story.keep.mutations(wf)
        assert sent.status == "applied"
        assert sent.result == {"token": "[secret leaky.password]"}
        await nowhere(story, tmp_path, wf)


# -- scripts that hold a secret ------------------------------------------------------------------------------


async def test_a_script_that_holds_a_secret_is_not_deployed(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[Leaky(tmp_path)]) as story:
        with pytest.raises(Refused, match=r"leaky\.password") as caught:
            await story.deploy(putting().replace("'ann'", f"'{CANARY}'"))
        assert CANARY not in caught.value.message
        assert await story.keep.workflows() == []
        assert traces(tmp_path) == []


async def test_params_that_hold_a_secret_are_refused_and_not_kept(tmp_path: Path) -> None:
    # a script can only have made it up, piece by piece
    leaky, half = Leaky(tmp_path), len(CANARY) // 2
    spelled = f"'{CANARY[:half]}' + '{CANARY[half:]}'"
    async with Story(tmp_path, connectors=[leaky]) as story:
        story.feed.put("a")
        wf = await story.deploy(putting().replace("'ann'", spelled))
        other = await story.deploy_and_run(leaking().replace("look({})", f"look({{ q: {spelled} }})"))
        run = await story.last(wf, "act")
        assert run.status == "failed:logic"
        assert run.error is not None
        assert "a secret of this host" in run.error.message
        assert "leaky.password" not in run.error.message
        assert leaky.used == []
        assert (await story.last(other, "act")).status == "failed:logic"
        for each in (wf, other):
            assert CANARY not in await said(story, each)


async def test_an_answer_of_a_person_that_holds_a_secret_is_refused(tmp_path: Path) -> None:
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        story.feed.put("a")
        leaky.error, leaky.fails_in, leaky.verdict = OutcomeUnknown, {"put"}, VERDICTS["unknown"]
        wf = await story.deploy_and_run(putting())
        [sent] = await story.keep.mutations(wf)
        with pytest.raises(Refused, match=r"leaky\.password"):
            await story.keep.resolve(sent.id, "happened", {"token": CANARY})
        await nowhere(story, tmp_path, wf)


# -- a host that runs ----------------------------------------------------------------------------------------


async def test_a_host_uses_a_secret_that_was_set_or_changed_while_it_runs(tmp_path: Path) -> None:
    seen: list[str] = []

    class Plain(Leaky):
        name = "leaky"
        account = "ann"  # type: ignore[assignment]

        def _use(self, where: str) -> str:
            seen.append(super()._use(where))
            return ""

    leaky = Plain()
    leaky.entrust(secrets_in(tmp_path).view("leaky"))
    async with Story(tmp_path, connectors=[leaky]) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer("await ctx.leaky.pages({});")}))
        run = await story.last(wf)
        assert run.status == "paused:approval"
        assert run.error is not None
        assert "keep secrets set leaky password" in run.error.message
        secrets_in(tmp_path).put("leaky", {"password": CANARY})
        await story.keep.retry(run.id)
        await story.run()
        assert seen == [CANARY]
        secrets_in(tmp_path).put("leaky", {"password": "another-value"})
        secrets_in(tmp_path).rotate(KeyPlaces(key_file=tmp_path.parent / f"{tmp_path.name}.key"))
        await story.run(minutes=5)
        assert seen == [CANARY, "another-value"]
        leaky.error, leaky.fails_in = (lambda _: ValueError(f"{CANARY} was refused")), {"pages"}
        await story.run(minutes=5)  # the old value is still nobody's to know
        assert "[secret leaky.password]" in await said(story, wf)
        await nowhere(story, tmp_path, wf)


async def test_a_vault_that_cannot_be_opened_is_a_question_and_nothing_is_sent(tmp_path: Path) -> None:
    leaky = Leaky(tmp_path)
    key = tmp_path.parent / f"{tmp_path.name}.key"
    key.chmod(0o644)
    leaky.__class__ = type("Plain", (Leaky,), {"name": "leaky", "account": "ann"})
    async with Story(tmp_path, connectors=[leaky]) as story:
        wf = await story.deploy_and_run(putting(), "a")
        assert leaky.used == []
        assert [q.kind for q in await story.keep.needs_you(wf)] == ["permission"]
        assert "chmod 600" in await said(story, wf)


async def test_connectors_without_secrets_are_not_wrapped(story: Story) -> None:
    # where there is nothing to hide, nothing is looked for
    assert story.keep.parts.redactor is None
    assert story.keep.parts.connectors["feed"] is story.feed


async def test_the_page_says_no_secret_of_a_careless_connector(tmp_path: Path) -> None:
    # a read that failed, a call in doubt, one that asks, and a close look at a connector that does not answer
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        story.feed.put("a")
        leaky.error, leaky.fails_in = caused, {"look", "put", "find", "check"}
        wfs = [await story.deploy(leaking()), await story.deploy(putting()), await story.deploy(
            putting().replace('"putting"', '"asking"'), grants={"feed.list": "allow", "leaky.put": "ask"})]
        await story.run()
        paths = ["/", "/needs-you", "/health", "/healthz"]
        for wf in wfs:
            paths += [f"/workflows/{wf}{page}" for page in ("", "/events", "/inputs", "/outputs", "/runs", "/needs-you",
                                                            "/versions", "/blast")]
            paths += [f"/runs/{run.id}" for run in await story.keep.runs(wf)]
            paths += [f"/outputs/{sent.id}" for sent in await story.keep.mutations(wf)]
            paths += [f"/inputs/{each.id}" for each in await story.keep.inputs(wf)]
        async with PageServer(story.keep, Settings(ledger=story.path), port=0) as web:
            served = Served(story, web)
            await served.sign_in()
            assert (await served.post("/health/examine")).status == 303
            for _ in range(400):  # a process of its own looks at the ledger
                if "bad answer" in (await served.get("/health")).body:
                    break
                await asyncio.sleep(0.05)
            bodies = {path: await served.get(path) for path in paths}
            assert {path: answer.status for path, answer in bodies.items() if answer.status != 200} == {}
            assert "bad answer" in bodies["/health"].body
            told = "".join(answer.body for answer in bodies.values())
            assert told.count("[secret leaky.password]") > 5
            assert CANARY not in told
            assert BASIC[8:] not in told


async def test_the_command_line_says_no_secret_of_a_careless_connector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaky = Leaky(tmp_path)
    async with Story(tmp_path, connectors=[leaky]) as story:
        story.feed.put("a")
        leaky.error, leaky.fails_in = caused, {"put", "find"}
        wf = await story.deploy_and_run(leaking())
        run = await story.last(wf, "act")
        [sent] = await story.keep.mutations(wf)
    monkeypatch.chdir(tmp_path)
    looks = [["status"], ["todo"], ["runs", wf], ["inputs", wf], ["outputs", wf], ["show", run.id], ["logs", wf],
             ["why", run.id], ["show", sent.id], ["blast", wf], ["db", "check"]]
    for args in looks:
        for more in ([], ["--json"]):
            result = await asyncio.to_thread(CliRunner().invoke, command, [*args, *more])
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
            assert CANARY not in result.output + result.stderr, args
            assert BASIC[8:] not in result.output, args


def test_an_error_of_the_vault_means_that_nothing_happened() -> None:
    from keepai.model.errors import VaultClosed

    assert issubclass(VaultClosed, PermissionDenied)
    assert issubclass(VaultClosed, KeepError)
