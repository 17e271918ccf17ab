"""In which order the workflows of this host wait for a connection that has a limit.

The order is fairness, not safety: it is in this process only, and forgotten with it. What may be sent is decided by the
ledger alone (ledger/transitions/turns.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
