"""Which limits a call is under, and in which order workflows wait for a connection.

The order is fairness, not safety: it is in this process only, and forgotten with it. What may be sent is decided by the
ledger alone (ledger/transitions/flow_limits.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..ledger.base import Reader
from ..ledger.transitions import flow_limits
from ..ledger.transitions.flow_limits import Turn
from ..model.flow_limits import Rule, rules
from ..model.records import Approval, Run
from ..model.states import Reason

if TYPE_CHECKING:
    from .host_parts import Parts

#: Who waits is looked at once a minute at least; whoever was not seen for longer than this has gone.
_GONE_MS = 150_000


@dataclass
class Line:
    """The workflows that wait for each connection, in order."""

    _seen: dict[str, dict[str, int]] = field(default_factory=dict)  # connector → workflow → when it was seen waiting

    def wait(self, connector: str, workflow_id: str, steady_ms: int) -> None:
        """A workflow waits for a connection: behind all others, unless it waits already."""
        if workflow_id not in self._seen.setdefault(connector, {}):
            self.leave(workflow_id)
        self._seen.setdefault(connector, {})[workflow_id] = steady_ms

    def leave(self, workflow_id: str) -> None:
        """It waits no longer."""
        for waiting in self._seen.values():
            waiting.pop(workflow_id, None)

    def ahead(self, connector: str, workflow_id: str, steady_ms: int) -> int:
        """How many come before a workflow; one that does not wait comes last."""
        number = 0
        for each, seen_ms in self._seen.get(connector, {}).items():
            if each == workflow_id:
                break
            number += steady_ms - seen_ms <= _GONE_MS
        return number

    def first(self, connector: str, count: int) -> list[str]:
        """Those that come next."""
        return list(self._seen.get(connector, {}))[:count]


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
    return flow_limits.turn(read, limits, workflow_id, connector, now, ahead)


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
