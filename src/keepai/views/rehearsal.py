"""What a script would do if it were deployed: tried on a copy of the ledger, with real reads and nothing sent.

Every mutation is held for approval, noted and rejected, so the script goes on with its next piece of work as if a
person had said no. Whatever tries to send all the same is refused by connectors that have no way to do it. The copy
is thrown away.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from ..app import Keep
from ..connectors.base import Call, Connector, OperationSpec, Page, Verdict
from ..engine.deploy import Deployment, Grants
from ..ledger.sqlite.copies import copy
from ..model.codec import Json
from ..model.errors import Transient
from ..model.operations import Kind
from ..model.policy import Policy
from ..model.records import Escalation, Record, Workflow
from ..script.check import check

#: After so many mutations the rehearsal has shown enough.
SHOWN_MAX = 50


@dataclass(frozen=True)
class Came(Record):
    """An input that it registered."""

    source: str
    type: str
    external_id: str
    title: str


@dataclass(frozen=True)
class Held(Record):
    """A mutation that was not sent."""

    handler: str
    connector: str
    operation: str
    params: Json
    preview: str  # the host's words
    title: str | None  # the script's
    grant: str | None  # what a person has granted: "allow", "ask", "deny" or nothing


@dataclass(frozen=True)
class Stop(Record):
    """What the workflow would stop at."""

    kind: str
    why: str


@dataclass(frozen=True)
class Rehearsal(Record):
    """What the script would do now."""

    deployment: Deployment
    inputs: tuple[Came, ...]
    mutations: tuple[Held, ...]
    stops: tuple[Stop, ...]
    more: bool  # whether it was cut off


async def rehearse(
    path: Path, source: str, grants: Grants, connectors: Sequence[Connector], policy: Policy, strand: bool = False,
) -> Rehearsal:
    """Try a script on a copy of the ledger at `path`, if there is one. Raises what a deploy would."""
    with tempfile.TemporaryDirectory(prefix="keep-rehearsal-") as folder:
        copied = Path(folder) / "keep.db"
        await asyncio.to_thread(_copy, path, copied)
        muted = [Muted(connector) for connector in connectors]
        async with Keep(copied, connectors=muted, policy=policy) as keep:
            return await _rehearse(keep, source, grants, strand)


def _copy(path: Path, target: Path) -> None:
    if path.exists() and path.stat().st_size:
        copy(path, target)


async def _rehearse(keep: Keep, source: str, grants: Grants, strand: bool) -> Rehearsal:
    others = await keep.workflows()
    deployed = await keep.deploy(source, grants=grants, strand=strand)
    real = _modes(keep, deployed.workflow_id)
    await _leave_alone(keep, others, deployed.workflow_id)
    before = {each.id for each in await keep.inputs(deployed.workflow_id)}
    await keep.deploy(source, grants=_only_reads(keep, source))
    await keep.run_now(deployed.workflow_id)
    held, more = await _hold_all(keep, deployed.workflow_id, real)
    inputs = [Came(each.source, each.type, each.external_id, each.title)
              for each in await keep.inputs(deployed.workflow_id) if each.id not in before]
    stops = [_stop(each) for each in await keep.needs_you(deployed.workflow_id) if each.kind != "approval"]
    stops += [Stop(each.blocked_status, "it is tried again later") for each in await keep.workflows()
              if each.id == deployed.workflow_id and each.blocked_status and not stops and not more]
    return Rehearsal(deployed, tuple(inputs), tuple(held), tuple(stops), more)


def _modes(keep: Keep, workflow_id: str) -> dict[str, str]:
    rows = keep.parts.ledger.read().all("grant_all", workflow_id=workflow_id)
    return {str(row["capability"]): str(row["mode"]) for row in rows}


async def _leave_alone(keep: Keep, others: Sequence[Workflow], workflow_id: str) -> None:
    """Only the rehearsed workflow runs, whatever a person has halted."""
    for each in others:
        if each.id != workflow_id and each.status.value == "active":
            await keep.pause(each.id)
        elif each.id == workflow_id and each.status.value != "active":
            await keep.resume(each.id)


def _only_reads(keep: Keep, source: str) -> Grants:
    """Reads are allowed, mutations are held."""
    manifest = check(source, keep.parts.surface).manifest
    assert manifest is not None, "it was just deployed"
    kinds = {capability: keep.parts.surface.kind(capability) for capability in manifest.capabilities}
    return {capability: "ask" if kind is Kind.MUTATION else "allow" for capability, kind in kinds.items()}


async def _hold_all(keep: Keep, workflow_id: str, grants: Mapping[str, str]) -> tuple[list[Held], bool]:
    held: list[Held] = []
    while True:
        await keep.run_until_idle()
        asked = [q for q in await keep.needs_you(workflow_id) if q.kind == "approval" and "connector" in q.facts]
        if not asked or len(held) >= SHOWN_MAX:
            return held, bool(asked)
        held.append(_held(asked[0], grants))
        await keep.reject(asked[0].id)


def _held(question: Escalation, grants: Mapping[str, str]) -> Held:
    facts = question.facts
    title = facts["title_by_script"]
    return Held(
        str(facts["handler"]), str(facts["connector"]), str(facts["operation"]), facts["params"],
        str(facts["attempted"]), None if title is None else str(title), grants.get(str(facts["capability"])),
    )


def _stop(question: Escalation) -> Stop:
    place = f" (at {question.facts['location']})" if question.facts.get("location") else ""
    return Stop(question.kind, f"{question.facts.get('why') or question.title}{place}")


class Muted(Connector):
    """A connector that reads as ever and can send nothing."""

    def __init__(self, real: Connector) -> None:
        super().__init__(name=real.name)
        self.account = real.account
        self.input_types, self.secrets = real.input_types, real.secrets  # type: ignore[misc]
        self._real = real

    def entrusted(self) -> Mapping[str, str]:
        return self._real.entrusted()

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """The real reads, and mutations that only know how they are told."""
        return MappingProxyType({
            name: _mute(spec) if spec.kind is Kind.MUTATION else spec for name, spec in self._real.operations.items()
        })


def _mute(spec: OperationSpec) -> OperationSpec:
    return _Mute(**{each.name: getattr(spec, each.name) for each in fields(OperationSpec)})


class _Mute(OperationSpec):
    """A mutation that is not sent, and not looked up either."""

    async def invoke(self, params: Json, call: Call) -> Json | Page[Json]:
        raise Transient(f"{self.full_name} was not sent: this is a rehearsal.")

    async def reconcile(self, params: Json, call: Call) -> Verdict:
        return Verdict.retry()
