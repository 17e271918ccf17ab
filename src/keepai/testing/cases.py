"""Runs one case with the real engine, on a ledger of its own, with a clock that the case moves and a scripted world."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..app import Keep
from ..connectors.base import Connector
from ..engine.deploy import Grants
from ..model import crash_points
from ..model.codec import Json
from ..model.errors import ConfigError, KeepError
from ..model.operations import Kind
from ..model.policy import Policy
from ..model.records import Record
from ..runtime.base import Runtime
from ..script.check import check
from .crash import Crashed
from .fixtures import OF_MUTATIONS, Case, lasts_ms
from .manual_clock import ManualClock
from .standin import Scripted, StandIn, fits
from .world import World

START = "2026-01-05T09:00:00Z"
ROUNDS_MAX = 10_000  #: how often a case's clock may be moved
DEATHS_MAX = 20  #: how often a case's host may die


@dataclass(frozen=True)
class Difference(Record):
    """What was wanted, and what there is instead."""

    what: str  # "output", "needs_you", "input" or "event"
    wanted: tuple[Json, ...]
    found: tuple[Json, ...]


@dataclass(frozen=True)
class Result(Record):
    """How a case went."""

    name: str
    passed: bool
    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()  # what else is wrong, in sentences
    questions: tuple[str, ...] = field(default=())  # what a person was asked


async def run(
    source: str, case: Case, connectors: Sequence[Connector], policy: Policy, runtime: Runtime | None = None,
) -> Result:
    """Run a case. Raises `ScriptInvalid` if the script cannot be deployed, `ConfigError` if the case cannot be run."""
    check_calls(case, connectors)
    with tempfile.TemporaryDirectory(prefix="keep-test-") as folder:
        life = _Life(Path(folder) / "keep.db", source, case, connectors, policy, runtime)
        return await life.live()


def check_calls(case: Case, connectors: Iterable[Connector]) -> None:
    """Refuse what names an operation that no connector offers, or a fault that a read cannot have."""
    kinds = {spec.full_name: spec.kind for connector in connectors for spec in connector.operations.values()}
    expect = case.get("expect", {})
    named = [e["call"] for e in (*case.get("answer", ()), *case.get("fault", ()), *expect.get("output", ()))]
    unknown = [call for call in named if call not in kinds]
    if unknown:
        known = ", ".join(sorted(kinds)) or "none"
        raise ConfigError(f"The case {case['name']!r} names {unknown[0]!r}. keep.toml has these operations: {known}.")
    for fault in case.get("fault", ()):
        if fault["what"] in OF_MUTATIONS and kinds[fault["call"]] is not Kind.MUTATION:
            raise ConfigError(f"The case {case['name']!r}: {fault['call']} only reads: {fault['what']} cannot be.")


def grants_of(source: str, case: Case, keep: Keep) -> Grants:
    """Everything is allowed that the case does not say otherwise."""
    manifest = check(source, keep.parts.surface).manifest
    return {**dict.fromkeys(manifest.capabilities if manifest else (), "allow"), **case.get("grant", {})}


class _Life:
    """A case from its deploy to its end, through as many hosts as it takes."""

    def __init__(
        self, path: Path, source: str, case: Case, connectors: Sequence[Connector], policy: Policy,
        runtime: Runtime | None,
    ) -> None:
        self._path, self._source, self._case, self._runtime = path, source, case, runtime
        self._policy = replace(policy, certified="off")  # a case is tried before there is a certificate
        self._clock = ManualClock(START)
        self._end_ms = self._clock.now_ms() + lasts_ms(case)
        self._scripted = Scripted(case, World(self._clock))
        self._connectors = connectors

    async def live(self) -> Result:
        keep = await self._host()
        loop = asyncio.get_running_loop()
        told = loop.get_exception_handler()
        loop.set_exception_handler(tell_but_crashes)
        try:
            deployed = await keep.deploy(self._source, grants=grants_of(self._source, self._case, keep))
            await keep.run_now(deployed.workflow_id)  # a case is about what its handlers do, not when
            crash_points.listen(self._scripted.reach)
            for _ in range(ROUNDS_MAX):
                keep = await self._until_idle(keep)
                if not await self._pass_time(keep):
                    break
            return await self._judged(keep, deployed.workflow_id)
        finally:
            crash_points.listen(None)
            await keep.close()
            loop.set_exception_handler(told)

    async def _host(self) -> Keep:
        stand_ins = [StandIn(real, self._scripted) for real in self._connectors]
        keep = Keep(
            self._path, connectors=stand_ins, policy=self._policy, clock=self._clock, runtime=self._runtime)
        return await keep.__aenter__()

    async def _until_idle(self, keep: Keep) -> Keep:
        """Run what is due; a host that the case kills is followed by another."""
        for _ in range(DEATHS_MAX):
            try:
                await keep.run_until_idle()
                return keep
            except Crashed:
                await bury(keep, self._runtime)
                self._scripted.dead = False
                keep = await self._host()
        raise ConfigError(f"The case {self._case['name']!r} kills its host more than {DEATHS_MAX} times.")

    async def _pass_time(self, keep: Keep) -> bool:
        """Let time pass until something is due; False if nothing is before the case's end."""
        due = [w.next_due_at for w in await keep.workflows() if w.next_due_at is not None]
        now = self._clock.now_ms()
        if not due or min(due) > self._end_ms:
            return False
        self._clock.advance(ms=max(1, min(due) - now))
        return True

    # -- judging -----------------------------------------------------------------------------------

    async def _judged(self, keep: Keep, workflow_id: str) -> Result:
        questions = await keep.needs_you(workflow_id)
        found: dict[str, list[Any]] = {
            "output": [
                {"call": f"{m.connector}.{m.operation}", "params": m.params, "status": m.status.value}
                for m in await keep.mutations(workflow_id) if m.status.value != "failed"
            ],
            "needs_you": [q.kind for q in questions],
            "input": [
                {"title": i.title, "source": i.source, "type": i.type, "id": i.external_id, "status": i.status}
                for i in await keep.inputs(workflow_id)
            ],
            "event": [
                {"topic": e.topic, "messageId": e.message_id, "payload": e.payload, "status": e.status.value}
                for e in await keep.events(workflow_id)
            ],
        }
        differences = tuple(_differences(self._case, found))
        problems = tuple(dict.fromkeys(self._scripted.problems))
        told = tuple(f"{q.kind}: {_why(q.facts) or q.title}" for q in questions)
        return Result(self._case["name"], not differences and not problems, differences, problems, told)


def tell_but_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A host says what went wrong in it; a death that the case itself brought about is no news."""
    if not isinstance(context.get("exception"), Crashed):
        loop.default_exception_handler(context)


async def bury(keep: Keep, shared: Runtime | None) -> None:
    """Let go of what a dead host held; it writes nothing more, not even its end. A shared runtime goes on."""
    parts = keep.parts
    with suppress(Crashed, KeepError):
        await keep.host.close()
    if parts.runtime is not shared:
        await parts.runtime.close()
    with suppress(Crashed):
        await parts.ledger.close()


def _why(facts: dict[str, Json]) -> str:
    """The sentence that says why a person is asked, with its place in the script."""
    place = f" (at {facts['location']})" if facts.get("location") else ""
    return f"{facts['why']}{place}" if facts.get("why") else ""


def _differences(case: Case, found: dict[str, list[Any]]) -> Iterable[Difference]:
    expect: Any = case.get("expect", {})
    wanted: dict[str, list[Any]] = {
        "output": [{"status": "applied", **each} for each in expect.get("output", ())],
        "needs_you": list(expect.get("needs_you", ())),
        **{name: expect[name] for name in ("input", "event") if name in expect},
    }
    for what, each in wanted.items():
        if not fits(each, found[what]):
            yield Difference(what, tuple(each), tuple(found[what]))
