"""Proposals: a script that somebody offers, what the host finds out about it, and how a person lets it in.

Whatever a proposer says about a proposal is only shown. The host itself checks the script, looks up its certificate and
compares it with what is active; a digest over all of that and over the script is what a person accepts, once. If any of
it is another by then, nothing is accepted: the proposal is shown anew.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..ledger.base import Reader, Row
from ..ledger.rows import proposal_record
from ..ledger.transitions import proposals
from ..ledger.transitions.proposals import Proposed
from ..model.codec import Json, canonical, check_size, encode, sound
from ..model.codec import digest as hashed
from ..model.errors import ConfigError, Conflict, KeepError, Refused
from ..model.operations import Kind
from ..model.permissions import Grant, Mode, from_text, grant_of
from ..model.principals import PrincipalKind
from ..model.records import Proposal
from ..model.states import ProposalStatus
from .deploy import Deployment, Grants, Plan, bound, deployment_of, foreseen, plan
from .host_parts import Parts
from .shadow import shadow

KEEP = "keep"  #: in place of a grant's mode: the rule that is there already stays as it is
WAITING_MAX = 100  #: proposals that wait at the same time
WHY_BYTES_MAX = 8 << 10
CASES_BYTES_MAX = 1 << 20
WORK_BYTES_MAX = 4 << 20

#: Of what the host found out: what must still hold when a person accepts, and how it is named if it does not. The rest
#: is evidence of the moment at which it was gathered.
HOLDS = {
    "base": "the active version", "manifest": "what Keep reads in the script", "findings": "what `keep check` finds",
    "certificate": "the certificate", "connectors": "the connectors or their accounts", "reads": "what it may read",
    "mutations": "what it may change", "new": "what is new in that",
}


async def propose(
    parts: Parts, source: str, cases: str | None, grants: Grants, why: str, workflow_id: str | None, work: Json,
    actor: str,
) -> Proposal:
    """Have a script wait for a person. Raises what the rules refuse."""
    text, why = None if work is None else encode(work, what="work", bytes_max=WORK_BYTES_MAX), words(why)
    cases = None if cases is None else sound(cases)
    _check_texts(parts, cases, why, work)
    now = parts.clock.now_ms()
    waiting = [row for row in await parts.ledger.all("look_proposals_waiting") if row["expires_at"] > now]
    if len(waiting) >= WAITING_MAX:
        raise Refused(f"{WAITING_MAX} proposals wait already. Somebody must accept or decline some of them first.")
    planned, facts = await gather(parts, source, cases, workflow_id, grants, actor)
    if planned.same:
        raise Refused(f"This script is the active version of {planned.manifest.name!r} already.")
    wanted = {capability: rule.to_json() for capability, rule in planned.version.grants.items()}
    unused = [each for each in wanted if each not in planned.manifest.capabilities]
    if unused:
        raise Refused(f"The script does not use {', '.join(unused)}, so it needs no grant for that.")
    facts |= await _evidence(parts, planned)
    proposed = Proposed(
        planned.existing["id"] if planned.existing else None, planned.manifest.name, actor, source, cases,
        canonical(wanted), why, text, canonical(facts), "",
        now + int(parts.policy.proposal_s * 1000),
    )
    proposed = replace(proposed, digest=digest_of(vars(proposed)))
    proposal_id = await parts.ledger.write(proposals.propose, proposed, barrier=True)
    row = await parts.ledger.one("proposal_by_id", proposal_id=proposal_id)
    assert row is not None, f"{proposal_id} was just written"
    return proposal_record(row)


async def gather(
    parts: Parts, source: str, cases: str | None, workflow_id: str | None, grants: Grants, actor: str,
) -> tuple[Plan, dict[str, Json]]:
    """What this host finds out about a proposed script, to hold until it is accepted, and the plan to deploy it."""
    planned = await plan(
        parts, source, workflow_id=workflow_id, grants=grants, author=_author(actor), impact="safe", strand=False,
        actor=actor, cases=cases,
    )
    uses, standing = planned.manifest.capabilities, planned.certificate
    mutations = [each for each in uses if parts.surface.kind(each) is Kind.MUTATION]
    named = sorted({each.partition(".")[0] for each in uses} & parts.connectors.keys())
    facts: dict[str, Json] = {
        "base": "{}.{}".format(*planned.before) if planned.before else None,
        "manifest": planned.version.manifest,
        "findings": [cast("Json", vars(each)) for each in planned.findings],
        "certificate": {"valid": standing.valid, "words": standing.words} if standing else None,
        "connectors": {name: {"fingerprint": parts.connectors[name].fingerprint(), "account": parts.account(name)}
                       for name in named},
        "reads": [each for each in uses if each not in mutations], "mutations": list[Json](mutations),
        "new": [each for each in uses if each not in planned.earlier],
    }
    return planned, facts


async def _evidence(parts: Parts, planned: Plan) -> dict[str, Json]:
    """What a script would do beside the work that was done, and to what is open: how things were at that moment.

    Only names and numbers are kept of it: what was worked on is content, and is not kept for longer than that."""
    if planned.existing is None:
        return {"shadow": None, "verdict": None}
    report = await shadow(parts, planned.existing["id"], planned.version.source)
    verdict = await foreseen(parts, planned)
    fates = Counter((each.what.value, each.kind) for each in verdict.things)
    return {"verdict": {
        "fates": [{"what": what, "kind": kind, "count": number} for (what, kind), number in sorted(fates.items())],
        "more": verdict.more,
    }, "shadow": {
        "words": report.words, "runs": report.runs, "same": report.same, "changed": report.changed,
        "not_comparable": report.not_comparable, "not_shown": report.not_shown,
        "differing": [{
            "run_id": each.run_id, "handler": each.handler, "verdict": each.verdict,
            "differences": [{"kind": one.kind, "name": one.name, "verdict": one.verdict} for one in each.differences],
        } for each in report.differing],
    }}


def digest_of(row: Mapping[str, Any]) -> str:
    """A hash over everything of a proposal that a person is shown."""
    shown = ("name", "proposer", "source", "cases", "wanted", "why", "work", "facts")
    return hashed(*("" if row[each] is None else f"={row[each]}" for each in shown))


async def accept(parts: Parts, row: Row, grants: Mapping[str, object] | None, shown: str, actor: str) -> Deployment:
    """A person accepts exactly what was shown: it is deployed in the same commit."""
    await check_waits(parts, row)
    if shown != row["digest"]:
        raise Refused(
            f"Nothing was accepted: what you were shown of {row['id']} is not what it is now. Look at it again.")
    planned = await _still_holds(parts, row)
    chosen = await parts.ledger.look(_chosen, parts, planned, grants or {})
    version = replace(planned.version, grants=chosen, actor=actor)
    try:
        new_id = await parts.ledger.write(
            proposals.accept, row, version, planned.number, planned.before, barrier=True,
        )
    except Conflict as error:
        raise Refused(f"{error.message} Look at it again.") from error
    return await parts.ledger.look(deployment_of, parts, new_id, replace(planned, version=version))


async def recertified(parts: Parts, source: str) -> None:
    """A script was tried: whoever looks at a proposal of it from now on sees what came of that."""
    for row in await parts.ledger.all("proposal_waiting"):
        if row["source"] != source:
            continue
        try:
            planned, facts = await gather(parts, source, row["cases"], row["workflow_id"], None, row["proposer"])
            await _renew(parts, row, planned, facts)
        except KeepError:
            continue  # it cannot be deployed as things are: whoever accepts it is told why


async def _still_holds(parts: Parts, row: Row) -> Plan:
    """The plan to deploy it, if all that was shown still holds; if not, it is shown anew."""
    planned, now = await gather(parts, row["source"], row["cases"], row["workflow_id"], None, row["proposer"])
    before = proposal_record(row).facts
    changed = [what for name, what in HOLDS.items() if before[name] != now[name]]
    if changed:
        await _renew(parts, row, planned, now)
        raise Refused(
            f"Nothing was accepted: since proposal {row['id']} was shown, {' and '.join(changed)} changed. It is shown "
            "anew: look at it again.")
    return planned


async def _renew(parts: Parts, row: Row, planned: Plan, facts: dict[str, Json]) -> None:
    """Keep what the host found out now as what is shown."""
    text = canonical(facts | await _evidence(parts, planned))
    if text != row["facts"]:
        await parts.ledger.write(proposals.renew, row, text, digest_of({**row, "facts": text}), barrier=True)


async def check_waits(parts: Parts, row: Row) -> None:
    """Refuse to decide what is decided already."""
    if row["status"] == ProposalStatus.WAITING and row["expires_at"] <= parts.clock.now_ms():
        await parts.ledger.write(proposals.expire, barrier=True)
        raise Refused(f"Proposal {row['id']} has expired: it must be proposed anew.")
    if row["status"] != ProposalStatus.WAITING:
        why = f" ({row['note']})" if row["note"] else ""
        raise Refused(f"Proposal {row['id']} is {row['status']}{why}: there is nothing to decide.")


def _chosen(read: Reader, parts: Parts, planned: Plan, grants: Mapping[str, object]) -> dict[str, Grant]:
    """What the workflow may do from now on: as the person says; else reads are allowed, and every mutation asks."""
    manifest = planned.manifest
    unused = [each for each in grants if each not in manifest.capabilities]
    if unused:
        raise ConfigError(f"The script does not use {', '.join(unused)}. It uses: {', '.join(manifest.capabilities)}.")
    rows = read.all("grant_all", workflow_id=planned.existing["id"]) if planned.existing else []
    there = {
        str(r["capability"]): from_text(r["rule"], r["account"], r["configured"]) for r in rows
        if r["account"] == parts.account(str(r["capability"]).partition(".")[0])
    }
    found = {each: _rule(parts, each, there.get(each), grants.get(each)) for each in manifest.capabilities}
    return {capability: rule for capability, rule in found.items() if rule is not None}


def _rule(parts: Parts, capability: str, before: Grant | None, said: object) -> Grant | None:
    """The new rule for one capability; None: the one that is there stays."""
    if said == KEEP:
        if before is None:
            raise ConfigError(f"There is no rule for {capability} that could be kept: say allow, ask or deny.")
        return None
    if said is not None:
        return bound(parts, capability, grant_of(said, capability))
    if parts.surface.kind(capability) is not Kind.MUTATION:
        return bound(parts, capability, Grant(Mode.ALLOW)) if before is None else None
    if before is None:
        return bound(parts, capability, Grant(Mode.ASK))
    return replace(before, mode=Mode.ASK, configured=False) if before.mode is Mode.ALLOW else None


def words(why: str) -> str:
    """Why somebody does something, as it is kept."""
    said = sound(why).strip()
    check_size(said, "why", WHY_BYTES_MAX)
    return said


def _check_texts(parts: Parts, cases: str | None, why: str, work: Json) -> None:
    """Refuse what cannot be shown to a person, or must not be."""
    if not why:
        raise Refused("A proposal says why it is made, in a sentence that a person reads.")
    check_size(cases or "", "cases", CASES_BYTES_MAX)
    held = parts.redactor.found_in([why, cases or "", work]) if parts.redactor is not None else None
    if held:
        raise Refused(f"The proposal holds the secret {held}, and nothing was kept. Leave it out, and change the "
                      "secret where it may have been seen.")
    try:
        tomllib.loads(cases or "")
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"The cases are not TOML: {error}.") from None


def _author(proposer: str) -> str:
    """Who wrote the version, as versions say it."""
    return "person" if proposer.partition(":")[0] == PrincipalKind.PERSON else "planner"
