"""A script that failed is mended by a hook or by hand, inside the host's rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from keepai import Keep, ScriptInvalid
from keepai.engine.repair import Evidence, Fix, by_command
from keepai.model.errors import Refused
from keepai.model.policy import Policy
from keepai.testing import ManualClock, World
from tests.ledger.stores import place_in, reads

SCRIPT = """
export default Keep.workflow({
  name: "mend",
  topics: { "mail": {}, "row": {} },
  producers: {
    poll: {
      publishes: ["mail"], schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.gmail.search({ after: state?.cursor });
        for (const m of mails) {
          const inputId = ctx.registerInput({ source: "gmail", type: "email", id: m.id, title: `Mail ${m.subject}` });
          await ctx.publish("mail", { messageId: m.id, inputId, payload: { subject: m.subject } });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail"], publishes: ["row"],
      async prepare(ctx) {
        const [event] = await ctx.peek("mail", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        /*BUG*/
        return {
          reservations: [{ topic: "mail", ids: [event.messageId] }], data: event.payload,
          ui: { title: `Row for ${event.payload.subject}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.subject] });
      },
    }),
  },
});
"""
BROKEN = SCRIPT.replace("/*BUG*/", 'console.log("looking at", event.messageId); event.payload.missing.field;')


class Hook:
    """Offers one answer after the other and remembers what it was shown."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.shown = list(answers), list[Evidence]()

    async def __call__(self, evidence: Evidence) -> Fix | str | None:
        self.shown.append(evidence)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]


class Scene:
    """A broken workflow with one mail, and a hook."""

    def __init__(self, folder: Path, hook: Hook | None, **policy: int) -> None:
        self.world, self.clock = World(), ManualClock("2026-01-05T09:00:00Z")
        self.keep = Keep(
            place_in(folder), connectors=self.world.connectors(), clock=self.clock, repair=hook,
            policy=Policy(**policy),
        )
        self.wf = ""

    async def __aenter__(self) -> Scene:
        await self.keep.__aenter__()
        self.world.deliver(from_="ann@example.com", subject="one")
        self.wf = (await self.keep.deploy(BROKEN, grants="all")).workflow_id
        await self.keep.run_until_idle()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.keep.close()

    async def let_in(self) -> None:
        """A person looks at the repair that waits, and lets it in."""
        [asked] = await self.keep.needs_you()
        assert asked.id.startswith("fix_"), asked
        await self.keep.approve(asked.id, shown=asked.version)
        await self.keep.run_until_idle()

    async def versions(self) -> list[str]:
        return [r.version for r in await self.keep.runs(self.wf) if r.handler == "file"]


ELSEWHERE = SCRIPT.replace('spreadsheetId: "s"', 'spreadsheetId: "somebody-else"')


@pytest.mark.parametrize("answer", [
    ELSEWHERE, Fix(ELSEWHERE), Fix(ELSEWHERE, impact="safe", note="harmless"), Fix(ELSEWHERE, "potentially_impactful"),
], ids=["a script", "says nothing", "says safe", "says impactful"])
async def test_whatever_a_hook_says_of_its_repair_it_waits_for_a_person(tmp_path: Path, answer: object) -> None:
    # a model that vouches for its own change: another recipient is nothing that a rule of the host can see
    async with Scene(tmp_path, Hook(answer)) as scene:
        await scene.keep.run_until_idle()
        scene.clock.advance(hours=30)
        await scene.keep.run_until_idle()
        assert (await scene.versions(), scene.world.effects) == (["1.0"], [])
        [asked] = await scene.keep.needs_you()
        assert (asked.kind, asked.actions, asked.facts["source"]) == ("approval", ("approve", "reject"), ELSEWHERE)
        assert asked.facts["impact_by_author"] == getattr(answer, "impact", None), "its own word, and marked as that"
        await scene.keep.reject(asked.id)
        await scene.keep.run_until_idle()
        assert (await scene.versions(), scene.world.effects) == (["1.0"], [])


async def test_a_hook_gets_the_evidence_and_its_script_carries_the_run_on_once_a_person_said_yes(
    tmp_path: Path,
) -> None:
    hook = Hook(SCRIPT)
    async with Scene(tmp_path, hook) as scene:
        [shown] = hook.shown
        assert (shown.handler, shown.version, shown.source, shown.tries_left) == ("file", "1.0", BROKEN, 2)
        assert shown.error is not None
        line = BROKEN[:BROKEN.index("missing.field")].count("\n") + 1
        assert (shown.error.line, "undefined" in shown.error.message) == (line, True)
        assert any("looking at" in line for line in shown.trace)
        await scene.let_in()
        assert await scene.versions() == ["1.0", "1.1"]
        assert len(scene.world.effects) == 1
        assert await scene.keep.needs_you() == []
        carried_on = [r for r in await scene.keep.runs(scene.wf) if r.handler == "file"][1]
        assert (carried_on.status, carried_on.trigger) == ("committed", "new_version")


NAMED = "messageId: m.id,"


@pytest.mark.parametrize(("before", "after"), [
    ("m.id", "m.threadId"), ("m.id", "`${m.id}-2`"), ("'a' + m.id", "'b' + m.id"),
    ("`mail:${ m.id }`", "`mail: ${m.id}`"), ("`mail:${m.id}`", "m.id"), ("'one'", "'two'"),
    ("`mail:${m.id}`", "String(m.id)"),
])
async def test_a_repair_that_names_events_otherwise_is_refused(tmp_path: Path, before: str, after: str) -> None:
    async with Scene(tmp_path, None) as scene:
        old, new = (text.replace(NAMED, f"messageId: {name},") for text, name in ((BROKEN, before), (SCRIPT, after)))
        await scene.keep.deploy(old, grants="all")
        await scene.keep.run_until_idle()
        with pytest.raises(Refused, match="keeps the messageIds") as refused:
            await scene.keep.fix(scene.wf, new)
        assert before in str(refused.value)
        assert after in str(refused.value)
        assert (await scene.keep.deploy(new)).version == ("3.0" if before != "m.id" else "2.0"), "a person may"


async def test_a_repair_that_leaves_the_naming_to_the_host_is_refused(tmp_path: Path) -> None:
    async with Scene(tmp_path, None) as scene:
        with pytest.raises(Refused, match=r"named those of 'mail' m\.id in producer, .* names them no messageId"):
            await scene.keep.fix(scene.wf, SCRIPT.replace(NAMED, ""))


@pytest.mark.parametrize(("before", "after"), [
    ("'a:' + m.id", "\n  \"a:\"+m.id"), ("`mail:${m.id}`", "`mail:${ m.id }`"), ('"one"', "'one'"),
    ("String(m.id)", "`${m.id}`"), ("(m.id)", "m.id"),
])
async def test_a_repair_that_writes_the_same_name_otherwise_is_let_in(tmp_path: Path, before: str, after: str) -> None:
    async with Scene(tmp_path, None) as scene:
        old, new = (text.replace(NAMED, f"messageId: {name},") for text, name in ((BROKEN, before), (SCRIPT, after)))
        await scene.keep.deploy(old, grants="all")
        await scene.keep.run_until_idle()
        await scene.keep.fix(scene.wf, new)


async def test_a_repair_may_call_its_variables_otherwise_and_publish_less(tmp_path: Path) -> None:
    async with Scene(tmp_path, None) as scene:
        other = SCRIPT.replace("const m of mails", "const mail of mails").replace("m.id", "mail.id")
        await scene.keep.fix(scene.wf, other.replace("m.subject", "mail.subject"))


async def test_without_a_hook_a_person_is_asked(tmp_path: Path) -> None:
    async with Scene(tmp_path, None) as scene:
        [asked] = await scene.keep.needs_you()
        assert asked.kind == "logic"
        assert scene.world.effects == []


@pytest.mark.parametrize("answer", [
    None, RuntimeError("model is down"), "export default 1", BROKEN,
    SCRIPT.replace("ctx.sheets.appendRow({ spreadsheetId: \"s\",", "ctx.webhook.fire({ url: \"x\","),
    SCRIPT.replace('"row": {}', '"row": {}, "more": {}'),
    SCRIPT.replace("file: Keep", "other: Keep"),
    SCRIPT.replace('name: "mend"', 'name: "else"'),
    Fix(SCRIPT, impact="whatever"),
], ids=["nothing", "raises", "invalid", "the same", "wider", "other topics", "handler gone", "other name", "no impact"])
async def test_what_the_rules_refuse_is_not_deployed_and_a_person_is_asked(tmp_path: Path, answer: object) -> None:
    hook = Hook(answer)
    async with Scene(tmp_path, hook) as scene:
        await scene.keep.run_until_idle()
        assert len(hook.shown) == 1, "a run is shown once"
        assert await scene.versions() == ["1.0"]
        assert [q.kind for q in await scene.keep.needs_you()] == ["logic"]
        assert scene.world.effects == []


async def test_repairs_that_do_not_help_end_with_the_budget(tmp_path: Path) -> None:
    hook = Hook(*(BROKEN + f"// try {n}\n" for n in range(9)))
    async with Scene(tmp_path, hook, repairs_max=3) as scene:
        for _ in range(3):
            await scene.let_in()
        assert await scene.versions() == ["1.0", "1.1", "1.2", "1.3"]
        assert [e.tries_left for e in hook.shown] == [2, 1, 0]
        assert [q.kind for q in await scene.keep.needs_you()] == ["logic"]
        with pytest.raises(Refused, match="3 repairs"):
            await scene.keep.fix(scene.wf, SCRIPT)
        await scene.keep.deploy(SCRIPT)
        await scene.keep.run_until_idle()
        assert len(scene.world.effects) == 1


async def test_a_repair_waits_with_what_the_faulty_version_touched(tmp_path: Path) -> None:
    always = "event.payload.missing.field;"
    late = BROKEN.replace(always, f'if (event.payload.subject === "two") {always}')
    hook = Hook(Fix(SCRIPT, "potentially_impactful", "rows may have been wrong"))
    async with Scene(tmp_path, None) as scene:
        await scene.keep.deploy(late)
        await scene.keep.run_until_idle()
        assert len(scene.world.effects) == 1
    scene.keep = Keep(place_in(tmp_path), connectors=scene.world.connectors(), clock=scene.clock, repair=hook,
            policy=Policy(repairs="person"))
    async with scene.keep:
        scene.world.deliver(from_="bob@example.com", subject="two")
        scene.clock.advance(minutes=5)
        await scene.keep.run_until_idle()
        [asked] = await scene.keep.needs_you()
        assert (asked.kind, asked.actions) == ("approval", ("approve", "reject"))
        [touched] = cast("list[dict[str, object]]", asked.facts["blast"])
        assert (touched["version"], touched["inputs"]) == ("2.0", ["Mail one", "Mail two"])
        assert asked.facts["note"] == "rows may have been wrong"
        assert len(scene.world.effects) == 1
        await scene.keep.approve(asked.id)
        with pytest.raises(Refused):
            await scene.keep.approve(asked.id)
        await scene.keep.run_until_idle()
        assert len(scene.world.effects) == 2


async def test_a_rejected_repair_leaves_the_question(tmp_path: Path) -> None:
    async with Scene(tmp_path, Hook(Fix(SCRIPT, "potentially_impactful"))) as scene:
        [asked] = await scene.keep.needs_you()
        await scene.keep.reject(asked.id)
        await scene.keep.run_until_idle()
        assert [q.kind for q in await scene.keep.needs_you()] == ["logic"]
        assert await scene.versions() == ["1.0"]


async def test_what_is_offered_by_hand_waits_at_the_same_door(tmp_path: Path) -> None:
    async with Scene(tmp_path, None) as scene:
        with pytest.raises(ScriptInvalid):
            await scene.keep.fix(scene.wf, "export default 1")
        repair = await scene.keep.fix(scene.wf, SCRIPT, impact="safe")
        await scene.keep.run_until_idle()
        assert (await scene.versions(), scene.world.effects) == (["1.0"], []), "who offers does not also decide"
        with pytest.raises(Refused, match=f"{repair} waits"):
            await scene.keep.fix(scene.wf, SCRIPT + "// other")
        await scene.let_in()
        assert await scene.versions() == ["1.0", "1.1"]
        assert len(scene.world.effects) == 1
        with pytest.raises(Refused, match="no failed run"):
            await scene.keep.fix(scene.wf, BROKEN)


async def test_a_repair_that_comes_after_its_run_went_on_is_refused_and_says_so(tmp_path: Path) -> None:
    async with Scene(tmp_path, None) as scene:
        async def late(evidence: Evidence) -> str | None:
            if evidence.run_id == first.id:
                await scene.keep.retry(first.id)  # a person is quicker than the hook
                return SCRIPT
            return None

        first = (await scene.keep.runs(scene.wf))[-1]
        scene.keep.parts.repair = late
        scene.keep.host.wake()
        await scene.keep.run_until_idle()
        tried = reads(scene.keep.parts.ledger).all("look_repairs", workflow_id=scene.wf, limit=10)
        assert [(row["run_id"] == first.id, row["status"]) for row in tried] == [(True, "refused"), (False, "declined")]
        assert "no longer failed:logic" in tried[0]["note"]
        assert [q.kind for q in await scene.keep.needs_you()] == ["logic"]


async def test_an_unknown_outcome_is_never_handed_to_repair(tmp_path: Path) -> None:
    hook = Hook(SCRIPT)
    async with Scene(tmp_path, hook) as scene:
        scene.world.on("sheets.appendRow").raise_(RuntimeError("boom"))
        scene.world.on_reconcile("sheets.appendRow").unknown()
        await scene.let_in()
        assert [q.kind for q in await scene.keep.needs_you()] == ["unknown_outcome"]
        assert len(hook.shown) == 1


async def test_a_program_that_repairs_gets_none_of_the_hosts_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("KEEP_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "SOME_TOKEN"):
        monkeypatch.setenv(name, "secret")
    program = "import json, os, sys; sys.stdin.read(); print(json.dumps({'source': '', 'note': ' '.join(os.environ)}))"
    known = Evidence("wf", "w", "run", "h", "1.0", "", None, (), (), 1)
    offered = await by_command([sys.executable, "-c", program])(known)
    assert isinstance(offered, Fix)
    assert set(offered.note.split()) <= {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}
