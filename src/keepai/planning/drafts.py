"""A draft that a model wrote, and what is wrong with it: checked, its cases run, certified, rehearsed, in this order.

A model's word about its draft counts for nothing here. What runs a draft runs in a process of its own, or on a copy of
the ledger that cannot send. Nothing is read from outside unless a person has named the read.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..connectors.base import Connector, surface
from ..engine.certificate import Certification
from ..model.codec import Json
from ..model.errors import ConfigError, KeepError, Refused, ScriptInvalid
from ..model.operations import Kind
from ..model.policy import Policy
from ..model.records import Record
from ..script.check import check
from ..testing.fixtures import SUFFIX, parse
from ..testing.rehearsal import rehearse
from .wires import ModelReply

WHY_MAX = 2_000  #: characters of what a model says of its draft
SHOWN_MAX = 12  #: findings, differences or broken trials that a model is told at once
STEPS = ("reply", "check", "test", "certify", "rehearse", "offer")  #: how far a draft can come

_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


@dataclass(frozen=True)
class ScriptDraft(Record):
    """What a model answered: a script, its cases, and what it says of them."""

    source: str
    cases: str | None
    why: str = ""

    @property
    def name(self) -> str:
        """The name of its workflow; `draft` if it has none that can be read."""
        manifest = check(self.source).manifest
        return manifest.name if manifest else "draft"


@dataclass(frozen=True)
class DraftFault(Record):
    """What is wrong with a draft: for people in a sentence, for the model as JSON."""

    step: str  # one of STEPS
    words: str
    facts: Json = None

    def to_json(self) -> dict[str, Json]:
        return {"failed": self.step, "because": self.words, "details": self.facts}


def draft_of(reply: ModelReply, *, needs_cases: bool) -> ScriptDraft | DraftFault:
    """The draft in a reply, or why there is none."""
    if reply.cut:
        return DraftFault("reply", f"the answer was cut off after {reply.tokens_out:,} tokens: write a shorter one")
    text = _THOUGHT.sub("", reply.text.replace("\r\n", "\n"))
    found: dict[str, list[str]] = {"js": [], "toml": []}
    for language, block in _BLOCK.findall(text):
        found.setdefault({"javascript": "js"}.get(language, language), []).append(block)
    for language, what in (("js", "the script"), ("toml", "its cases")):
        count = len(found[language])
        if count > 1 or (count == 0 and (language == "js" or needs_cases)):
            told = f"the answer has {count} blocks that begin with ```{language}; it must have exactly one, with {what}"
            return DraftFault("reply", told)
    why = " ".join(_BLOCK.sub("", text).split())[:WHY_MAX] or "The model says nothing about it."
    return ScriptDraft(found["js"][0], found["toml"][0] if found["toml"] else None, why)


#: Runs the cases of a draft (script, cases, name of its file) in a process of its own; gives their results as JSON.
CaseRunner = Callable[[str, str, str], Awaitable[list[dict[str, Any]]]]
#: Has Keep try a draft with everything that can go wrong, and keep a certificate if it passes.
DraftCertifier = Callable[[str, str | None, str], Awaitable[Certification]]


@dataclass(frozen=True)
class DraftTrials:
    """What drafts are tried with on this host."""

    connectors: Sequence[Connector]
    policy: Policy
    ledger: str | Path
    run_cases: CaseRunner
    certify: DraftCertifier
    may_read: frozenset[str] = frozenset()  # what a rehearsal may read for real; without it none is held
    taken: frozenset[str] = frozenset()  # names that a new workflow must not have
    mends: str | None = None  # the workflow that is mended: a draft of another name would not have its rules
    configured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what keep.toml grants

    async def first_fault(self, draft: ScriptDraft, tell: Callable[[str], None]) -> DraftFault | None:
        """What is wrong with a draft, from the cheapest look to the dearest; None if nothing was found."""
        fault = self._checked(draft)
        file = f"{draft.name}.js"
        if fault is None and draft.cases is not None:
            tell("running its cases")
            fault = await self._tested(draft, draft.cases, file)
        if fault is None:
            tell("trying it with everything that can go wrong")
            fault = await self._certified(draft, file)
        if fault is None:
            fault = await self._rehearsed(draft, tell)
        return fault

    def grants_of(self, draft: ScriptDraft) -> dict[str, str]:
        """What a draft asks for: to read, and to be asked before each call that changes something."""
        kinds = {spec.full_name: spec.kind for each in self.connectors for spec in each.operations.values()}
        manifest = check(draft.source).manifest
        return {name: "ask" if kinds.get(name) is Kind.MUTATION else "allow"
                for name in (manifest.capabilities if manifest else ())}

    def _checked(self, draft: ScriptDraft) -> DraftFault | None:
        by_id = self.policy.mutate_reads == "by_id"
        checked = check(draft.source, surface(self.connectors), mutate_reads=by_id)
        if checked.errors:
            first = checked.errors[0]
            more = f" and {len(checked.errors) - 1} more" if len(checked.errors) > 1 else ""
            facts: list[Json] = [dict(vars(each)) for each in checked.findings[:SHOWN_MAX]]
            return DraftFault("check", f"line {first.line}: {first.message}{more}", facts)
        if self.mends is not None and draft.name != self.mends:
            return DraftFault("check", f"a repair keeps the name of its workflow, {self.mends!r}")
        if draft.name in self.taken:
            return DraftFault("check", f"there is a workflow named {draft.name!r} already: give yours another name")
        return None

    async def _tested(self, draft: ScriptDraft, cases: str, file: str) -> DraftFault | None:
        try:
            wanted = parse(cases, Path(file.removesuffix(".js") + SUFFIX)).cases
            failed = [each for each in await self.run_cases(draft.source, cases, file) if not each["passed"]]
        except (ConfigError, ScriptInvalid, Refused) as error:
            return DraftFault("test", error.message)
        if not failed:
            return None
        first = failed[0]
        told = (first["problems"] or first["questions"] or ["what came of it differs from what the case expects"])[0]
        words = f"{len(failed)} of {len(wanted)} cases failed: “{first['name']}”: {told}"
        return DraftFault("test", words, list(failed[:SHOWN_MAX]))

    async def _certified(self, draft: ScriptDraft, file: str) -> DraftFault | None:
        try:
            done = await self.certify(draft.source, draft.cases, file)
        except (ConfigError, ScriptInvalid, Refused) as error:
            return DraftFault("certify", error.message)
        if done.passed:
            return None
        if not done.broken:
            rule = next(iter(done.broken_contracts.items()), None)
            told = f"the connector {rule[0]} breaks a rule: {rule[1]}" if rule else "its cases reach nothing to try"
            return DraftFault("certify", told, {"unreached": list(done.unreached), "untried": list(done.untried)})
        first = done.broken[0]
        place = f"line {first.line}: " if first.line else ""
        words = f"{len(done.broken)} of {done.trials} trials broke a rule: {place}{first.cause or first.what}"
        return DraftFault("certify", words, [dict(vars(each)) for each in done.broken[:SHOWN_MAX]])

    async def _rehearsed(self, draft: ScriptDraft, tell: Callable[[str], None]) -> DraftFault | None:
        """A rehearsal reads for real, so it is held only if a person has named every read that the draft may make."""
        reads = {name for name, mode in self.grants_of(draft).items() if mode == "allow"}
        if not self.may_read or not reads <= self.may_read:
            unnamed = ", ".join(sorted(reads - self.may_read))
            tell(f"not rehearsed: nobody let it read {unnamed}" if self.may_read else "not rehearsed")
            return None
        tell("rehearsing it with real reads; nothing is sent")
        try:
            done = await rehearse(
                self.ledger, draft.source, None, self.connectors, self.policy, configured=self.configured)
        except KeepError as error:
            return DraftFault("rehearse", error.message)
        if not done.stops:
            return None
        first = done.stops[0]
        return DraftFault("rehearse", f"it would stop: {first.why}", [dict(vars(each)) for each in done.stops])
