"""Asking a person about exactly one call, and sending exactly that.

The call is held whole, with a digest over everything it depends on. When a person has approved it, it is sent
from what was held: the script does not run again in between, so what was shown is what is sent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any

from ..ledger.base import Reader
from ..ledger.rows import approval_record
from ..ledger.transitions import approvals
from ..ledger.transitions.approvals import Ask
from ..ledger.transitions.mutations import Intent
from ..model.codec import canonical, digest, encode, stored
from ..model.errors import ApprovalNeeded, NotGranted
from ..model.operations import Kind, Step
from ..model.permissions import Judged, Mode
from ..model.records import Approval, Mutation, Run
from ..model.states import ApprovalStatus
from . import failure, permission
from .host_parts import Parts
from .permission import Permissions
from .run_context import RunContext


async def ask(context: RunContext, intent: Intent, because: str) -> None:
    """Hold a call until a person has decided; `because` is the rule by which that is asked."""
    parts, run = context.parts, context.run
    needed = ApprovalNeeded(in_words(intent.preview, because))
    why = failure.stop(needed, run, Step.MUTATE, parts.policy, parts.clock.now_ms())
    asked = await parts.ledger.look(_ask, parts, run, intent, because)
    await parts.ledger.write(
        approvals.ask, run, asked, failure.until(why, asked.expires_at), context.trace.take(), barrier=True,
    )


def in_words(preview: str, because: str) -> str:
    """Why a run waits."""
    return f"“{preview}” waits for a person to approve it. It asks because {because}."


def of_run(read: Reader, run: Run) -> Approval | None:
    """The approval that a run waits for or may use."""
    row = read.one("approval_open", run_id=run.id)
    return approval_record(row) if row else None


class Standing(StrEnum):
    WAITS = "waits"  #: a person has not answered yet
    EXPIRED = "expired"  #: not answered, or not used, in time: Keep asks again
    USABLE = "usable"  #: a person said yes to exactly this call
    UNFIT = "unfit"  #: what the call depends on has changed since it was shown: `mutate` runs again


def standing(
    read: Reader, run: Run, approval: Approval, at: int, active: tuple[int, int], parts: Parts | None,
) -> Standing:
    """What may be done with an approval at a moment. A look without a host takes its connectors to be as they were."""
    if at >= approval.expires_at or at < approval.created_at:  # a clock set back makes nothing valid for longer
        return Standing.EXPIRED
    if run.number != active or not _permitted(read, run, approval, parts):
        return Standing.UNFIT
    return Standing.WAITS if approval.status is ApprovalStatus.PENDING else Standing.USABLE


def _permitted(read: Reader, run: Run, approval: Approval, parts: Parts | None) -> bool:
    """Whether the grant, the connector, its account and what was reserved are as they were when the call was shown."""
    if parts is None:
        return permission.mode_of(read, run.workflow_id, approval.capability) in (Mode.ALLOW, Mode.ASK)
    intent = intent_of(approval)
    known = parts.surface.kind(approval.capability) is Kind.MUTATION
    if not known or _digest(read, parts, run, intent) != approval.digest:
        return False
    try:
        _rule_now(read, parts, run, approval)
    except NotGranted:
        return False
    return True


async def ask_afresh(parts: Parts, run: Run, approval: Approval) -> None:
    """Show the same call again, with a new term."""
    def again(read: Reader) -> Ask:
        because = approval.because
        with suppress(NotGranted):  # by the rule that there is now; if there is none, by the one that asked first
            because = _rule_now(read, parts, run, approval).because or because
        return _ask(read, parts, run, intent_of(approval), because)

    asked = await parts.ledger.look(again)
    await parts.ledger.write(approvals.ask_afresh, run, approval, asked, barrier=True)


def _rule_now(read: Reader, parts: Parts, run: Run, approval: Approval) -> Judged:
    """How the grants judge the call that an approval holds, as they are now."""
    name = parts.script(read, run.workflow_id, run.number).manifest.name
    permissions = Permissions(parts, run, permission.grants_of(read, run.workflow_id), name)
    return permissions.check(read, approval.capability, stored(intent_of(approval).params), may_ask=True)


async def send(context: RunContext, approval: Approval) -> Mutation:
    """Record that the approved call is about to leave; the approval is used up in the same commit."""
    parts = context.parts
    deadline_at = parts.clock.now_ms() + int(parts.policy.call_s * 1000)  # counts from now; the rest is as it was held
    intent = replace(intent_of(approval), deadline_at=deadline_at)
    limits = context.limits(intent.connector)
    context.run, mutation = await parts.ledger.write(
        approvals.send, context.run, approval, intent, limits, barrier=True)
    return mutation


def intent_of(approval: Approval) -> Intent:
    """The call that an approval holds."""
    data: Any = stored(approval.intent)
    return Intent(**data)


def _ask(read: Reader, parts: Parts, run: Run, intent: Intent, because: str) -> Ask:
    return Ask(
        intent, parts.account(intent.connector), because, _digest(read, parts, run, intent),
        parts.clock.now_ms() + int(parts.policy.approval_s * 1000),
    )


def _digest(read: Reader, parts: Parts, run: Run, intent: Intent) -> str:
    """Binds an answer to workflow, run, attempt, version, connector, account, operation, params and inputs."""
    reserved = read.all("reservation_of_run", workflow_id=run.workflow_id, run_id=run.id)
    item = read.one("item_by_id", item_id=intent.item_id) if intent.item_id else None
    pinned = [[r["event_id"], r["attempt"], r["payload"]] for r in reserved]
    inputs = encode([*pinned, *([[item["id"], item["attempt"]]] if item else [])])
    return digest(
        run.workflow_id, run.id, str(run.attempt), run.version, intent.connector, parts.account(intent.connector),
        intent.operation, canonical(stored(intent.params)), intent.subkey or "", inputs,
    )

