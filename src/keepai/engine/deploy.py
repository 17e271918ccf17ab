"""Deploying: check, load, number, store and activate a script version. It runs none of its handlers."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps

from ..connectors.base import OperationSpec
from ..ledger.base import Reader, Row, Tx
from ..ledger.taken_back import taken_back
from ..ledger.transitions import workflows
from ..ledger.transitions.workflows import Version
from ..model.codec import digest
from ..model.errors import (
    ConfigError,
    Conflict,
    Finding,
    HostFault,
    Location,
    NotFound,
    Refused,
    ScriptError,
    ScriptInvalid,
    WorkerDied,
)
from ..model.operations import Kind
from ..model.permissions import INPUTS, Grant, Mode, check_for_inputs, check_params, from_text, grant_of
from ..model.records import Record
from ..model.states import Waiting
from ..script.check import check
from ..script.findings import ERROR
from ..script.manifest import HandlerKind, Manifest
from ..script.message_ids import MessageIds
from . import scheduler
from .certificate import CertificateStanding, required
from .host_parts import TRIES_MAX, Parts
from .verdict import DeployVerdict, Outlook, outlook, subscribed, untried

AUTHORS = ("person", "planner", "maintainer")

GrantRule = str | Mapping[str, object]
Grants = str | Mapping[str, GrantRule] | None
ALL = "all"  # in place of a capability: every one that the script uses, but for those that are named beside it
Configured = Mapping[str, Mapping[str, GrantRule]] | None  # workflow → what keep.toml grants it


@dataclass(frozen=True)
class Deployment(Record):
    """What a deploy did: the workflow, its version, what `check` found, and what is not granted."""

    workflow_id: str
    name: str
    version: str
    before: str | None  # the version that was active until then
    changed: bool
    capabilities: tuple[str, ...]
    new_capabilities: tuple[str, ...]  # that the version before did not have
    not_granted: tuple[str, ...]
    must_ask: tuple[str, ...]  # that are granted with `ask`
    configured: tuple[str, ...]  # what keep.toml changed, in words
    overruled: tuple[str, ...]  # what keep.toml says and a person has said otherwise, which stays
    certificate: CertificateStanding | None  # None: policy does not ask for one
    findings: tuple[Finding, ...]
    verdict: DeployVerdict | None  # what became of what was open; None: nothing was changed

    def to_json(self) -> dict[str, object]:  # type: ignore[override]
        return {
            **vars(self), "findings": [vars(f) for f in self.findings],
            "certificate": self.certificate.to_json() if self.certificate else None,
            "verdict": self.verdict.to_json() if self.verdict else None,
        }


@dataclass(frozen=True)
class Plan:
    """A version that keeps every rule and could be deployed now."""

    existing: Row | None
    version: Version
    number: tuple[int, int]
    manifest: Manifest
    findings: tuple[Finding, ...]
    earlier: frozenset[str]  # capabilities of the version before
    same: bool  # it is the active version already
    message_ids: MessageIds  # how it names its events
    overruled: tuple[str, ...] = ()  # what keep.toml says and a person has said otherwise
    certificate: CertificateStanding | None = None
    stranded: str | None = None  # the events that it would leave without a taker, in words

    @property
    def before(self) -> tuple[int, int] | None:
        """The version that it follows."""
        return _number(self.existing) if self.existing else None


async def deploy(
    parts: Parts, source: str, *, workflow_id: str | None, grants: Grants, author: str, strand: bool, actor: str,
    configured: Configured = None, cases: str | None = None,
) -> Deployment:
    """Store `source` as a new version of its workflow, or as a new workflow; the same source changes nothing."""
    planned = await plan(
        parts, source, workflow_id=workflow_id, grants=grants, author=author, impact="safe", strand=strand, actor=actor,
        configured=configured, cases=cases,
    )
    existing = planned.existing["id"] if planned.existing else None
    if planned.same and existing:
        version = planned.version
        await parts.ledger.write(workflows.grant_all, existing, version.grants, actor, version.waiting, barrier=True)
        return await parts.ledger.look(deployment_of, parts, existing, planned)
    try:
        new_id, seen = await parts.ledger.write(_deploy_and_look, parts, planned, barrier=True)
    except Conflict as error:
        raise Refused(f"{error.message} Somebody deployed meanwhile: look at it, then deploy again.") from error
    deployed = await parts.ledger.look(deployment_of, parts, new_id, planned)
    return replace(deployed, verdict=_verdict(planned, seen))


async def foresee(
    parts: Parts, source: str, *, workflow_id: str | None, grants: Grants, author: str, actor: str,
    configured: Configured = None, cases: str | None = None,
) -> DeployVerdict:
    """What `deploy` would do to everything that is open: it is done, looked at, and taken back."""
    planned = await plan(
        parts, source, workflow_id=workflow_id, grants=grants, author=author, impact="safe", strand=True, actor=actor,
        configured=configured, cases=cases,
    )
    return await foreseen(parts, planned)


async def foreseen(parts: Parts, planned: Plan) -> DeployVerdict:
    """What a deploy that is planned would do to everything that is open."""
    if planned.same or planned.existing is None:
        return _verdict(planned, Outlook())
    try:
        _, seen = await taken_back(parts.ledger, _deploy_and_look, parts, planned)
    except Conflict as error:
        raise Refused(f"{error.message} Somebody deployed meanwhile: ask again.") from error
    return _verdict(planned, seen)


@wraps(workflows.deploy)
def _deploy_and_look(tx: Tx, parts: Parts, planned: Plan) -> tuple[str, Outlook]:
    """Deploy, and see in the same transaction what becomes of everything that is open."""
    existing = planned.existing["id"] if planned.existing else None
    before = subscribed(tx, existing)
    new_id = workflows.deploy(tx, existing, planned.version, planned.number, planned.before)
    return new_id, outlook(tx, parts, new_id, before) if existing else Outlook()


def _verdict(planned: Plan, seen: Outlook) -> DeployVerdict:
    before = None if planned.same or planned.before is None else "{}.{}".format(*planned.before)
    waiting = untried(seen.things)
    return DeployVerdict(
        planned.existing["id"] if planned.existing else None, planned.manifest.name, "{}.{}".format(*planned.number),
        before, not planned.same, planned.stranded, seen.things, seen.more, waiting,
    )


async def plan(
    parts: Parts, source: str, *, workflow_id: str | None, grants: Grants, author: str, impact: str, strand: bool,
    actor: str, configured: Configured = None, cases: str | None = None,
) -> Plan:
    """Check a script against every rule for a new version; nothing is written."""
    held = parts.redactor.found(source) if parts.redactor is not None else None
    if held:
        raise Refused(f"The script holds the secret {held}, so it was not deployed. Connectors add their secrets "
                      "themselves: take it out of the script, and change the secret where it may have been seen.")
    by_id = parts.policy.mutate_reads == "by_id"
    checked = await asyncio.to_thread(check, source, parts.surface, mutate_reads=by_id)
    if checked.manifest is None or checked.errors:
        raise ScriptInvalid(checked.findings)
    if author not in AUTHORS:
        raise ConfigError(f"author must be one of {', '.join(AUTHORS)}, not {author!r}.")
    manifest, source_hash = checked.manifest, digest(source)
    if not await parts.ledger.look(_is_active, workflow_id, manifest.name, source_hash):
        await _check_loads(parts, source, checked.findings)

    def planned(read: Reader) -> Plan:
        existing, left = _existing(read, workflow_id, manifest.name), None
        certificate = required(read, parts, source_hash, cases)
        wanted, earlier = _wanted(parts, grants, manifest), frozenset[str]()
        if existing is not None:  # what the active version already asks permission for
            earlier = frozenset(parts.script(read, existing["id"], _number(existing)).manifest.capabilities)
        said = dict((configured or {}).get(manifest.name, {}))
        waiting = said.pop("waiting", None)
        settled, overruled = _configured(read, parts, said, wanted, existing)
        same = existing is not None and _same(read, existing, source_hash)
        if existing is not None and not same:
            if author == "maintainer":
                _check_not_wider(manifest, earlier)
            left = stranded(read, existing, manifest)
            if left and not strand:
                raise Refused(left)
        version = Version(
            name=manifest.name, source=source, hash=source_hash, manifest=manifest.to_text(), author=author,
            impact=impact, topics={t: h.name if (h := manifest.subscriber(t)) else None for t in manifest.topics},
            handlers={h.name: h.kind.value for h in manifest.handlers}, due=_due(read, parts, existing, manifest),
            grants=wanted | settled, actor=actor, waiting=_waiting(waiting),
        )
        number = _number(existing) if existing and same else _next_number(existing, author)
        return Plan(
            existing, version, number, manifest, checked.findings, earlier, same, checked.message_ids, overruled,
            certificate, left)

    return await parts.ledger.look(planned)


def _waiting(said: object) -> Waiting | None:
    if said is not None and said not in [*Waiting]:
        raise ConfigError(f"waiting must be {', '.join(Waiting)}, not {said!r}.")
    return None if said is None else Waiting(str(said))


def _is_active(read: Reader, workflow_id: str | None, name: str, source_hash: str) -> bool:
    """Whether this is the script of the active version."""
    existing = _existing(read, workflow_id, name)
    return existing is not None and _same(read, existing, source_hash)


def _due(read: Reader, parts: Parts, row: Row | None, manifest: Manifest) -> dict[str, int]:
    """When the handlers are due that are new, or have another schedule; all others keep their due time."""
    before = parts.script(read, row["id"], _number(row)).manifest if row else None
    due, now, workflow_id = {}, parts.clock.now_ms(), row["id"] if row else ""
    for handler in manifest.handlers:
        old = before.handler(handler.name) if before else None
        same = old is not None and (old.kind, old.schedule) == (handler.kind, handler.schedule)
        if handler.kind is HandlerKind.CONSUMER or same:
            continue
        known = read.one("handler_get", workflow_id=workflow_id, handler=handler.name) if old else None
        ran_at = known["ran_at"] if known else None
        ran = scheduler.taken(read, workflow_id, handler, now)
        due[handler.name] = scheduler.first_run_at(handler, ran_at, parts.policy, now, ran)
    return due


async def _check_loads(parts: Parts, source: str, findings: Sequence[Finding]) -> None:
    """Refuse a script whose top level does not get through: none of its handlers could ever run."""
    for _ in range(TRIES_MAX):
        try:
            await parts.runtime.load(source, parts.surface, parts.limits())
            return
        except WorkerDied as death:
            last = death
        except ScriptError as error:
            at = error.at or Location(1, 1)
            raise ScriptInvalid([*findings, Finding(
                "does-not-load", ERROR, at.line, at.column, f"The script cannot be loaded: {error.message}",
                "Mend what stands outside of the handlers: it runs before each of their steps.",
            )]) from error
    raise HostFault(f"The script was not deployed, because it could not be loaded as a trial: {last.message}") from last


def _existing(read: Reader, workflow_id: str | None, name: str) -> Row | None:
    if workflow_id is None:
        return read.one("workflow_by_name", name=name)
    row = read.one("workflow_by_id", workflow_id=workflow_id)
    if row is None:
        raise NotFound(f"There is no workflow {workflow_id}. Leave workflow_id out to deploy a new one.")
    if row["name"] != name:
        raise Refused(
            f"The script is named {name!r}, but {workflow_id} is {row['name']!r}. "
            "Give the script that name, or deploy it without workflow_id as a workflow of its own."
        )
    return row


def _wanted(parts: Parts, grants: Grants, manifest: Manifest) -> dict[str, Grant]:
    if grants is None:
        return {}
    if isinstance(grants, str):
        if grants != ALL:
            raise ConfigError(f'grants must be "all" or a mapping of capability to mode, not {grants!r}.')
        grants = {ALL: Mode.ALLOW.value}
    if grants.get(ALL, Mode.ALLOW.value) != Mode.ALLOW.value:
        raise ConfigError(f'"all" can only be allowed, not {grants[ALL]!r}: name what shall be asked for, or denied.')
    every = {capability: _mode_in_all(parts, capability).value for capability in manifest.capabilities
             } if ALL in grants else {}
    rules = {**every, **{capability: rule for capability, rule in grants.items() if capability != ALL}}
    return {capability: bound(parts, capability, grant_of(rule, capability)) for capability, rule in rules.items()}


def _mode_in_all(parts: Parts, capability: str) -> Mode:
    """What "all" grants: a mutation that only its server describes is asked for, until a person allows it by name."""
    connector, _, operation = capability.partition(".")
    spec = parts.connectors[connector].operations.get(operation) if connector in parts.connectors else None
    return Mode.ASK if spec and spec.asks and spec.kind is Kind.MUTATION else Mode.ALLOW


def _configured(
    read: Reader, parts: Parts, rules: Mapping[str, GrantRule], wanted: Mapping[str, Grant], row: Row | None,
) -> tuple[dict[str, Grant], tuple[str, ...]]:
    """What keep.toml changes, and what it says in vain: a rule that a person set by hand stays."""
    rows = read.all("grant_all", workflow_id=row["id"]) if row else []
    there = {r["capability"]: from_text(r["rule"], r["account"], r["configured"]) for r in rows} | dict(wanted)
    changed, overruled = {}, []
    for capability, rule in rules.items():
        said = replace(bound(parts, capability, grant_of(rule, capability)), configured=True)
        before = there.get(capability)
        if before is None or (before.configured and before != said):
            changed[capability] = said
        elif not before.configured and before.to_text() != said.to_text():
            overruled.append(f"{capability}: {before.in_words}; keep.toml says {said.in_words}")
    return changed, tuple(overruled)


def bound(parts: Parts, capability: str, rule: Grant) -> Grant:
    """The rule for the account that the connector has now.

    A grant that cannot mean what it says is refused: a slip in a `deny` must not be silent."""
    connector, _, operation = capability.partition(".")
    if connector == INPUTS:
        if operation not in parts.surface.input_types:
            known = ", ".join(parts.surface.input_types)
            raise NotFound(f"There is no source {operation!r} of inputs. There are: {known}.")
        check_for_inputs(rule, capability)
    elif operation not in parts.surface.operations.get(connector, {}):
        offered = [f"{name}.{each}" for name, has in parts.surface.operations.items() for each in has]
        close = difflib.get_close_matches(capability, offered, n=1)
        advice = f"Did you mean {close[0]!r}?" if close else "It is written connector.operation."
        raise NotFound(f"There is no capability {capability!r}. {advice}")
    else:
        _check_rule(parts.connectors[connector].operations[operation], capability, rule)
    return rule if connector == INPUTS else replace(rule, account=parts.account(connector))


def _check_rule(spec: OperationSpec, capability: str, rule: Grant) -> None:
    check_params(rule, capability, spec.param_names, spec.kinds)
    if spec.kind is Kind.MUTATION:
        return
    for name in ("ask_when", "per_day"):
        if name in rule.to_json():
            raise ConfigError(
                f"The grant of {capability}: {name} is for mutations, and {capability} is a read. "
                "A read can be narrowed by match, deny_when and per_run."
            )


def _same(read: Reader, row: Row, source_hash: str) -> bool:
    script = read.one("script_get", workflow_id=row["id"], major=row["major"], minor=row["minor"])
    return script is not None and script["hash"] == source_hash


def stranded(read: Reader, row: Row, manifest: Manifest) -> str | None:
    """Why a version is refused that would leave events without a consumer: that must not happen by accident."""
    waiting = read.all("topic_stranded", workflow_id=row["id"])
    left = [r for r in waiting if manifest.subscriber(r["topic"]) is None]
    if not left:
        return None
    listed = ", ".join(f"{r['pending']} in {r['topic']!r}" for r in left)
    return (
        f"This version of {row['name']!r} subscribes no longer to topics in which events wait: {listed}. "
        "Let them be processed or skip them first, or deploy with strand=True (--strand) to leave them."
    )


def _check_not_wider(manifest: Manifest, earlier: frozenset[str]) -> None:
    """A repair mends what is there; it must not reach for more."""
    wider = [c for c in manifest.capabilities if c not in earlier]
    if wider:
        raise Refused(
            f"A repair must not use more than before, and this one adds {', '.join(wider)}. A person must deploy it."
        )


def _number(row: Row) -> tuple[int, int]:
    return row["major"], row["minor"]


def _next_number(row: Row | None, author: str) -> tuple[int, int]:
    """A repair is a new minor version, everything else a new major one."""
    if row is None:
        return 1, 0
    return (row["major"], row["minor"] + 1) if author == "maintainer" else (row["major"] + 1, 0)


def modes_of(read: Reader, parts: Parts, workflow_id: str) -> dict[str, str]:
    """Capability → its mode, of every rule that counts for the account that its connector has now."""
    return {
        r["capability"]: r["mode"] for r in read.all("grant_all", workflow_id=workflow_id)
        if r["account"] == parts.account(r["capability"].partition(".")[0])
    }


def deployment_of(read: Reader, parts: Parts, workflow_id: str, planned: Plan) -> Deployment:
    """What a deploy did."""
    modes = modes_of(read, parts, workflow_id)
    needed = planned.manifest.capabilities
    before = None if planned.same or planned.before is None else "{}.{}".format(*planned.before)
    return Deployment(
        workflow_id, planned.manifest.name, "{}.{}".format(*planned.number), before, not planned.same, needed,
        tuple(c for c in needed if c not in planned.earlier),
        tuple(c for c in needed if modes.get(c, "deny") == "deny"),
        tuple(c for c in needed if modes.get(c) == "ask"),
        tuple(f"{c}: {rule.in_words}" for c, rule in planned.version.grants.items() if rule.configured),
        planned.overruled, planned.certificate, planned.findings, None,
    )
