"""When the turn of a call comes that is under limits: what the ledger says, and the line of those that wait here."""

from __future__ import annotations

from ..ledger.base import Reader
from ..ledger.transitions import turns
from ..ledger.transitions.turns import Turn
from ..model.flow_limits import Rule, rules
from ..model.records import Approval, Run
from ..model.states import Reason
from .host_parts import Parts


def rules_of(parts: Parts, workflow: str, connector: str) -> tuple[Rule, ...]:
    """The limits on what a workflow sends through a connection."""
    return rules(parts.policy.limits, workflow, connector)


def turn(
    read: Reader, limits: tuple[Rule, ...], workflow_id: str, connector: str, now: int, parts: Parts | None,
) -> Turn | None:
    """When a call may be sent; None: now. A look without a host knows of no others that wait."""
    if not limits:
        return None
    ahead = parts.line.ahead(connector, workflow_id, parts.clock.steady_ms()) if parts else 0
    return turns.turn(read, limits, workflow_id, connector, now, ahead)


def waits_for(run: Run, approved: Approval | None) -> str | None:
    """The connection for which a run waits its turn, if it does."""
    if run.reason is Reason.LIMIT and run.error is not None:
        return str(run.error.evidence)
    return approved.capability.partition(".")[0] if approved is not None else None


def call_ended(parts: Parts, connector: str) -> None:
    """A call of a connection has ended: whoever waits for that looks again."""
    limit = parts.policy.limits.get(f"connectors.{connector}")
    if limit is not None and limit.concurrency is not None:
        for workflow_id in parts.line.first(connector, limit.concurrency):
            parts.wake(workflow_id)
