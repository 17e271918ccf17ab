"""A proposal as a person judges it: what it will do, what it may touch, its cases, its proof, what differs.

Everything here is made of what the host found out and of the script itself. What the proposer says is kept apart.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ledger.base import Reader
from ..ledger.rows import proposal_record
from ..model.clock import iso
from ..model.codec import Json
from ..model.permissions import from_text, grant_of
from ..model.records import Escalation, Proposal, Record
from ..model.states import ProposalStatus
from ..script.manifest import Handler, HandlerKind, Manifest
from ..script.manifest import from_text as manifest_from
from .call_sentences import operation_words, sentence
from .diffs import DiffLine, changes
from .verdict_words import fates_in_words, lost
from .wording import count, one_line
from .workflow_details import schedule_text

#: What answers the question whether a proposal may become the active version.
PROPOSAL_ACTIONS = ("accept", "decline")
CASES_SHOWN = 50
_OUTPUTS_SHOWN = 5
_NAME_MAX = 120


@dataclass(frozen=True)
class Touch(Record):
    """One operation that the script uses."""

    capability: str
    words: str
    changes: bool  # whether it changes something outside
    new: bool  # the active version does not use it
    now: str | None  # the rule that holds now, in words
    wanted: str | None  # the rule that the proposer would like, in words
    mode: str | None  # of the rule that holds now
    limits: str  # of that rule, in words
    account: str  # whose data it is about


@dataclass(frozen=True)
class ProposalCard(Record):
    """Everything that a person is shown of a proposal."""

    proposal: Proposal
    status: str
    heading: str
    does: tuple[str, ...]
    touches: tuple[Touch, ...]
    cases: tuple[str, ...]
    proof: tuple[str, ...]
    warnings: tuple[str, ...]  # what speaks against accepting it
    base: str | None  # the version that it replaces
    before: str  # the text of that
    manifest: Manifest

    @property
    def changes(self) -> list[DiffLine]:
        """What differs from the active version, line by line."""
        return changes(self.before, self.proposal.source)

    def to_json(self) -> dict[str, Json]:
        """All of it; the proposal's own fields first."""
        return {
            **self.proposal.to_json(), "status": self.status, "does": list(self.does),
            "touches": [each.to_json() for each in self.touches], "cases_in_words": list(self.cases),
            "proof": list(self.proof), "warnings": list(self.warnings),
        }


def proposal_card(read: Reader, proposal: Proposal, now_ms: int) -> ProposalCard:
    """What a person is shown of a proposal."""
    facts: Mapping[str, Any] = proposal.facts
    manifest, base = manifest_from(str(facts["manifest"])), facts["base"]
    script = read.one("script_get", workflow_id=proposal.workflow_id, **_number(base)) if base else None
    status = standing(proposal, now_ms)
    return ProposalCard(
        proposal, status, heading(proposal), tuple(_does(manifest, facts["mutations"])),
        tuple(_touches(read, proposal)), tuple(_cases(proposal.cases)), tuple(_proof(facts)),
        tuple(_warnings(facts)), base,
        str(script["source"]) if script else "", manifest,
    )


def standing(proposal: Proposal, now_ms: int) -> str:
    """How it stands, in a word: one whose time is over has expired, whether or not a host has noticed."""
    over = proposal.status is ProposalStatus.WAITING and proposal.expires_at <= now_ms
    return str(ProposalStatus.EXPIRED if over else proposal.status)


def heading(proposal: Proposal) -> str:
    """What is proposed, in a sentence."""
    base = proposal.facts["base"]
    what = f"a new version of {proposal.name}, in place of {base}" if base else f"a new workflow, {proposal.name}"
    return f"{proposal.proposer} proposes {what}"


def waiting_proposals(read: Reader, now_ms: int, workflow_id: str | None) -> list[tuple[int, Escalation]]:
    """Each proposal that waits as a question, with the moment since which it is asked."""
    found = [proposal_record(row) for row in read.all("look_proposals_waiting")]
    return [(each.created_at, _question(read, each, now_ms)) for each in found
            if workflow_id in (None, each.workflow_id) and standing(each, now_ms) == ProposalStatus.WAITING]


def _question(read: Reader, proposal: Proposal, now_ms: int) -> Escalation:
    card = proposal_card(read, proposal, now_ms)
    changes = [f"{each.words} ({each.capability})" for each in card.touches if each.changes]
    return Escalation(
        id=proposal.id, kind="proposal", workflow_id=proposal.workflow_id or "", run_id="", mutation_id=None,
        title=card.heading, actions=PROPOSAL_ACTIONS,
        facts={
            "workflow": proposal.name, "why": f"{card.heading}.", "proposer": proposal.proposer,
            "why_by_proposer": proposal.why, "does": list(card.does), "changes": list[Json](changes),
            "new": proposal.facts["new"], "proof": list(card.proof), "warnings": list(card.warnings),
            "digest": proposal.digest, "asked_at": iso(proposal.created_at), "expires_at": iso(proposal.expires_at),
            "possible_from": {},
        },
    )


def _does(manifest: Manifest, mutations: Sequence[str]) -> Iterator[str]:
    """What each handler does, in a sentence."""
    for handler in manifest.handlers:
        yield f"“{handler.name}” {_WORK[handler.kind](handler)}{_passes_on(handler)}."
    if not mutations:
        yield "Nothing of it changes anything outside."


def _produces(handler: Handler) -> str:
    return f"runs {schedule_text(handler)} and looks for work{_reads(handler)}"


def _consumes(handler: Handler) -> str:
    takes = f"takes what waits in {_named(handler.subscribe)}{_reads(handler)}"
    return f"{takes}, and makes at most one call for it" if handler.has_mutate else takes


def _works_through(handler: Handler) -> str:
    return f"runs {schedule_text(handler)} and works through a list{_reads(handler)}, with several calls for each item"


_WORK: Mapping[HandlerKind, Callable[[Handler], str]] = {
    HandlerKind.PRODUCER: _produces, HandlerKind.CONSUMER: _consumes, HandlerKind.ROUTINE: _works_through,
}


def _named(topics: Iterable[str]) -> str:
    return ", ".join(f"“{each}”" for each in topics)


def _reads(handler: Handler) -> str:
    return f", reading {', '.join(handler.reads)}" if handler.reads else ""


def _passes_on(handler: Handler) -> str:
    return f"; what it finds goes to {_named(handler.publishes)}" if handler.publishes else ""


def _touches(read: Reader, proposal: Proposal) -> Iterator[Touch]:
    """What it may touch, what it may change first."""
    facts: Mapping[str, Any] = proposal.facts
    rows = read.all("grant_all", workflow_id=proposal.workflow_id) if proposal.workflow_id else []
    accounts = {name: each["account"] for name, each in facts["connectors"].items()}
    there = {str(r["capability"]): from_text(r["rule"], r["account"], r["configured"]) for r in rows}
    for capability in (*facts["mutations"], *facts["reads"]):
        connector, _, operation = capability.partition(".")
        rule, wanted = there.get(capability), proposal.wanted.get(capability)
        holds = rule is not None and rule.account == accounts.get(connector, "")
        yield Touch(
            capability, operation_words(connector, operation), capability in facts["mutations"],
            bool(facts["base"]) and capability in facts["new"], rule.in_words if rule and holds else None,
            grant_of(wanted, capability).in_words if wanted else None,
            rule.mode.value if rule and holds else None, ", ".join(rule.limits) if rule and holds else "",
            accounts.get(connector, ""),
        )


def _cases(text: str | None) -> Iterator[str]:
    """Each case in a sentence: its name, and what must go out."""
    found = tomllib.loads(text or "").get("case")
    for case in (found if isinstance(found, list) else [])[:CASES_SHOWN]:
        if isinstance(case, dict):
            yield f"{one_line(str(case.get('name')), _NAME_MAX)}: {'; '.join(_comes_of(case))}."


def _comes_of(case: Mapping[str, Any]) -> Iterator[str]:
    """What a case wants to come of it, as it says it."""
    expect = case.get("expect")
    expect = expect if isinstance(expect, dict) else {}
    outputs = _entries(expect.get("output"))
    for fault in _entries(case.get("fault")):
        yield f"{fault.get('call')} goes wrong ({str(fault.get('what')).replace('_', ' ')})"
    for output in outputs[:_OUTPUTS_SHOWN]:
        connector, _, operation = str(output.get("call")).partition(".")
        status = output.get("status", "applied")
        yield sentence(connector, operation, output.get("params") or {}) + (
            "" if status == "applied" else f" (which ends as {status})")
    if len(outputs) > _OUTPUTS_SHOWN:
        yield f"and {count(len(outputs) - _OUTPUTS_SHOWN, 'more output')}"
    if not outputs:
        yield "nothing goes out"
    asked = expect.get("needs_you")
    if isinstance(asked, list) and asked:
        yield f"a person is asked ({', '.join(map(str, asked)).replace('_', ' ')})"


def _entries(found: object) -> list[Mapping[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _proof(facts: Mapping[str, Any]) -> Iterator[str]:
    """What the host itself found out about it."""
    if facts["certificate"]:
        yield facts["certificate"]["words"].capitalize()
    if beside := facts["shadow"]:
        yield f"Beside recorded work: {beside['words']}"
        for run in beside["differing"][:_OUTPUTS_SHOWN]:
            what = ", ".join(f"{each['name']} {each['verdict']}" for each in run["differences"])
            yield f"{run['run_id']} of “{run['handler']}”: {what or run['verdict'].replace('_', ' ')}"
    if verdict := facts["verdict"]:
        yield f"Of what is open, {fates_in_words(verdict['fates'])}" if verdict["fates"] else "Nothing is open"
    yield f"keep check finds {count(len(facts['findings']), 'warning')}" if facts["findings"] else (
        "keep check finds nothing wrong")


def _warnings(facts: Mapping[str, Any]) -> Iterator[str]:
    """What speaks against accepting it."""
    if facts["certificate"] and not facts["certificate"]["valid"]:
        yield "It has no certificate that holds: nobody has tried what happens when something goes wrong."
    if facts["shadow"] and facts["shadow"]["changed"]:
        yield f"It would do something else than before in {count(facts['shadow']['changed'], 'recorded run')}."
    yield from lost(facts["verdict"]["fates"] if facts["verdict"] else ())
    for each in facts["findings"]:
        yield f"Line {each['line']}: {each['message']}"


def _number(version: str) -> dict[str, int]:
    major, _, minor = version.partition(".")
    return {"major": int(major), "minor": int(minor)}
