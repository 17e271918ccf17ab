"""Judges every call of a run by the workflow's grants, counts what was used, and says what a host lacks for it."""

from __future__ import annotations

from collections.abc import Mapping

from ..ledger.base import Reader
from ..ledger.rows import open_runs
from ..model.codec import Json
from ..model.errors import ConnectorMissing, KeepError, RuleBroken
from ..model.ids import typed_name
from ..model.operations import Kind, Step
from ..model.permissions import INPUTS, Grant, Judged, Mode, Use, from_text, judge, judge_inputs
from ..model.records import Run
from ..model.states import Phase, Status
from ..script.manifest import Manifest
from .host_parts import Parts

_DAY_MS = 86_400_000


def grants_of(read: Reader, workflow_id: str) -> Mapping[str, Grant]:
    """A workflow's grants by capability, as they are now."""
    rows = read.all("grant_all", workflow_id=workflow_id)
    return {str(r["capability"]): from_text(r["rule"], r["account"], r["configured"]) for r in rows}


class Permissions:
    """What one run may call, by these grants."""

    def __init__(self, parts: Parts, run: Run, grants: Mapping[str, Grant], name: str) -> None:
        self._parts, self._run, self.grants = parts, run, grants
        self._workflow = typed_name(name, run.workflow_id)  # for what a person is told to type
        self._used: dict[str, int] = {}

    def check(self, read: Reader, capability: str, params: Json, *, may_ask: bool = False) -> Judged:
        """Allow a call or say that a person must see it; anything else raises `NotGranted`."""
        return self.judge(capability, params, self.used(read, capability), may_ask=may_ask)

    def counts(self, capability: str) -> bool:
        """Whether a limit of its rule makes it matter how often a capability was used."""
        grant = self.grants.get(capability)
        return grant is not None and (grant.per_run is not None or grant.per_day is not None)

    def used(self, read: Reader, capability: str) -> Use:
        """How often a capability was used, as far as its rule has limits."""
        grant = self.grants.get(capability)
        return Use() if grant is None else Use(
            in_run=0 if grant.per_run is None else self._in_run(read, capability),
            in_day=0 if grant.per_day is None else self._in_day(read, capability),
        )

    def judge(self, capability: str, params: Json, used: Use, *, may_ask: bool) -> Judged:
        """The same as `check`, for a capability that was used so often."""
        name, _, operation = capability.partition(".")
        connector = self._parts.connectors[name]
        judged = judge(
            self.grants.get(capability), capability, params, used, may_ask=may_ask,
            kinds=connector.operations[operation].kinds, account=connector.account, workflow=self._workflow,
        )
        self._used[capability] = self._used.get(capability, 0) + 1
        return judged

    def check_inputs(self, source: str) -> None:
        """Refuse inputs of a source that is denied to the workflow."""
        judge_inputs(self.grants.get(f"{INPUTS}.{source}"), source, self._workflow)

    def _in_run(self, read: Reader, capability: str) -> int:
        """How often it was used; what a routine sent counts over all its replays, what it found again does not."""
        sends = self._parts.surface.kind(capability) is Kind.MUTATION
        if not sends or self._run.phase is not Phase.EXECUTING:
            return self._used.get(capability, 0)
        connector, _, operation = capability.partition(".")
        row = read.one(
            "mutation_made_in_lineage", workflow_id=self._run.workflow_id, lineage=self._run.lineage,
            connector=connector, operation=operation,
        )
        return int(row["made"]) if row else 0

    def _in_day(self, read: Reader, capability: str) -> int:
        connector, _, operation = capability.partition(".")
        row = read.one(
            "mutation_sent_since", workflow_id=self._run.workflow_id, connector=connector, operation=operation,
            since=self._parts.clock.now_ms() - _DAY_MS,
        )
        return int(row["sent"]) if row else 0


def mode_of(read: Reader, workflow_id: str, capability: str) -> Mode | None:
    """How a capability is granted; None if it is not."""
    rows = read.all("grant_all", workflow_id=workflow_id)
    return next((Mode(r["mode"]) for r in rows if r["capability"] == capability), None)


def granted_meanwhile(read: Reader, run: Run) -> bool:
    """Whether the rule that stopped a run was changed since it began, to one that may let it go on.

    A read cannot be asked for: only `allow` lets it go on."""
    if run.lacks is None or run.state is not Status.PAUSED:
        return False
    reads = run.error is not None and run.error.step in (Step.PRODUCER, Step.PREPARE)
    enough = (Mode.ALLOW,) if reads else (Mode.ALLOW, Mode.ASK)
    grants = read.all("grant_all", workflow_id=run.workflow_id)
    return any(g["capability"] == run.lacks and g["seq"] > run.seq and g["mode"] in enough for g in grants)


def waiting_for(read: Reader, workflow_id: str, capability: str) -> list[str]:
    """The open runs of a workflow that wait for a capability: they lack it, or a call to it was not answered yet."""
    found = list[str]()
    for run in open_runs(read, workflow_id):
        asked = read.one("approval_open", run_id=run.id)
        if capability in (run.lacks, asked["capability"] if asked else None):
            found.append(run.id)
    return found


def lacking(parts: Parts, manifest: Manifest, error: KeepError) -> ConnectorMissing | None:
    """What an error is really about, if a rule was broken only because a connector of the script is not configured."""
    for capability in manifest.capabilities if isinstance(error, RuleBroken) else ():
        connector, _, operation = capability.partition(".")
        name = operation if connector in parts.surface.operations else connector
        if parts.surface.kind(capability) is None and repr(name) in error.message:
            there = name == operation
            lacks = f"{connector!r} has no {name!r}" if there else f"no connector {connector!r} is configured"
            return ConnectorMissing(
                f"ctx.{capability} cannot be called: {lacks}, though the script was deployed with it. Configure it and "
                "start the host again; then the run goes on by itself.", capability, at=error.at,
            )
    return None


def connected_meanwhile(parts: Parts, run: Run) -> bool:
    """Whether a run stopped because a connector was missing, and it is there now."""
    capability = run.error.evidence if run.error and run.error.code == ConnectorMissing.code else None
    return capability is not None and run.state is Status.PAUSED and parts.surface.kind(str(capability)) is not None
