"""Which runs are parked while others of their workflow go on, and what each of them holds: pure functions.

docs/internals/parking.md has the rule and its reasons. What cannot be known is taken for held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..ledger.base import Reader
from ..ledger.transitions.parking import ANYTHING, CONNECTOR, TARGET, Holds
from ..model.codec import stored
from ..model.errors import PermissionDenied, TargetHeld
from ..model.records import Approval, Mutation, Run
from ..model.states import DOUBTFUL, MutationStatus, Phase, Reason, Status
from ..script.manifest import Handler, Manifest


@dataclass(frozen=True)
class Facts:
    """What decides what a stopped run holds."""

    handler: Handler | None  # as its version declares it
    has_state: bool  # the handler has stored a state before
    mutation: Mutation | None  # the newest of its lineage
    sent_version: str | None  # of the run that sent it
    approval: Approval | None  # of the call that waits for a person


def asks(run: Run, mutation: Mutation | None) -> bool:
    """Whether a stopped run waits for a person, or for a parked run. Any other goes on by itself, or has met a fault of
    the host: it holds its workflow, as it always does."""
    match run.reason:
        case Reason.HELD | Reason.APPROVAL | Reason.LOGIC:
            return True
        case Reason.TRANSIENT:
            return run.exhausted
        case Reason.RECONCILIATION:
            return mutation is not None and mutation.status is MutationStatus.INDETERMINATE
    return run.state is Status.ACTIVE  # a person has answered, and it waits for its turn


def to_hold(
    read: Reader, run: Run, sent: Mutation | None, asked: Approval | None, manifest: Manifest,
) -> Holds | None:
    """What a run holds if it is parked; None if it must not be."""
    if run.reason is None or run.reason is Reason.INTERNAL:
        return None
    row = read.one("handler_get", workflow_id=run.workflow_id, handler=run.handler)
    sender = read.one("run_by_id", run_id=sent.run_id) if sent else None
    return holds(run, Facts(
        manifest.handler(run.handler), row is not None and row["state"] is not None, sent,
        f"{sender['major']}.{sender['minor']}" if sender else None, asked,
    ))


def holds(run: Run, facts: Facts) -> Holds:
    """What a run holds while it is parked, beside its events."""
    declared, target = facts.handler, _target(run, facts)
    if run.phase is Phase.PREPARING or run.kind == "producer":
        return Holds(handler=run.handler)  # it has chosen nothing: the next run would stop in the same way
    if run.kind == "routine":
        item_id = _item_of_question(run, facts) if target is not None else None
        alone = item_id is not None or run.item_id is not None
        return replace(_writing(target, None if alone else run.handler), item_id=item_id)
    uses_state = declared is None or declared.uses_state or facts.has_state
    if _sends_nothing(run, facts):
        return Holds(handler=run.handler if uses_state else None)
    if _lacks(run):
        connector = target[0] if target else run.lacks.partition(".")[0] if run.lacks else None
        return Holds(run.handler, writes=CONNECTOR if connector else ANYTHING, connector=connector or "")
    return _writing(target, run.handler if uses_state or target is None else None)


def _item_of_question(run: Run, facts: Facts) -> str | None:
    """The item of a routine's call about which a person is asked: the run waits with it alone, and others do the rest.

    Nothing else lets a routine go on: what fails in one item, or waits for a target, may do so in all."""
    if facts.approval is not None and run.reason is Reason.APPROVAL:
        return str(_intent(facts.approval)["item_id"])
    sent = facts.mutation
    return sent.item_id if sent is not None and sent.status is MutationStatus.INDETERMINATE else None


def _intent(asked: Approval) -> dict[str, Any]:
    intent: Any = stored(asked.intent)
    return dict(intent)


def _writing(target: tuple[str, str, str] | None, handler: str | None) -> Holds:
    return Holds(handler, ANYTHING) if target is None else Holds(handler, TARGET, *target)


def _lacks(run: Run) -> bool:
    """Whether it lacks a permission: whatever else needs that would stop in the same way."""
    return run.error is not None and run.error.code == PermissionDenied.code


def _sends_nothing(run: Run, facts: Facts) -> bool:
    """Whether a run that has chosen its work has nothing to send, and sent nothing."""
    if facts.handler is not None and not facts.handler.has_mutate:
        return True
    return run.phase in (Phase.MUTATED, Phase.EMITTING) and facts.mutation is None


def _target(run: Run, facts: Facts) -> tuple[str, str, str] | None:
    """Connector, account and target of the call that a run made or will make; None if that is not known.

    `mutate` repeats itself: what the same version made of the same PrepareResult it makes again."""
    if facts.approval is not None:
        intent = _intent(facts.approval)
        return str(intent["connector"]), str(intent["account"]), str(intent["target"])
    if (held := target_of(run)) is not None:
        return held
    sent = facts.mutation
    if sent is None or run.differs is not None:
        return None
    again = facts.sent_version == run.version and sent.status is MutationStatus.FAILED and (
        run.kind == "consumer" or sent.run_id == run.id)
    if again or sent.status in DOUBTFUL or run.phase in (Phase.MUTATED, Phase.EMITTING):
        return sent.connector, sent.account, sent.target
    return None


def target_of(run: Run) -> tuple[str, str, str] | None:
    """The target for which a run waits until a parked run is done, as it is kept with the run."""
    if run.error is None or run.error.code != TargetHeld.code or not isinstance(run.error.evidence, dict):
        return None
    target: Any = run.error.evidence["target"]
    connector, account, name = (str(each) for each in target)
    return connector, account, name


def held_behind(read: Reader, run: Run, approval: Approval | None) -> str | None:
    """The parked run that must be done before a stopped run may make its call, if there is one."""
    target = target_of(run)
    if approval is not None:
        target = _target(run, Facts(None, False, None, None, approval))
    if target is None:
        return None
    connector, account, name = target
    before = read.one(
        "parked_before", workflow_id=run.workflow_id, run_id=run.id, lineage=run.lineage, connector=connector,
        account=account, target=name,
    )
    return str(before["run_id"]) if before else None
