"""What every piece of the engine needs, put together once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..connectors.base import Connector
from ..connectors.webhook.inbox import Inbox
from ..ledger.base import Ledger, Reader, Row
from ..ledger.rows import script_record
from ..model.clock import Clock, Ids
from ..model.errors import NotFound
from ..model.operations import Surface
from ..model.policy import Policy
from ..model.redaction import Redactor
from ..runtime.base import Limits, Runtime
from ..script.manifest import Manifest, from_text
from .call_ends import CallEnds
from .line import Line

TRIES_MAX = 20  # of a step, or of loading a script, whose worker process dies each time


def _nobody(workflow_id: str | None = None) -> None:
    """Before there is a host, nobody is woken."""


def _rests(workflow_id: str) -> bool:
    """Before there is a host, nothing is run."""
    return False


@dataclass(frozen=True)
class Loaded:
    """One script version, ready to run."""

    source: str
    manifest: Manifest


@dataclass
class Parts:
    """The ledger, the runtime, the connectors, the policy and the clock of one host."""

    ledger: Ledger
    runtime: Runtime
    connectors: Mapping[str, Connector]
    surface: Surface
    policy: Policy
    clock: Clock
    ids: Ids
    call_ends: CallEnds
    place: str | Path = ""  # of the ledger: a file or an address
    repair: Callable[[Any], Awaitable[Any]] | None = None  # see engine/repair.py
    redactor: Redactor | None = None  # knows the secrets of the connectors; None: they have none
    calls: set[asyncio.Task[None]] = field(default_factory=set)  # given up, but not ended yet
    questions: set[asyncio.Task[None]] = field(default_factory=set)  # the same, of questions what became of a mutation
    put_back: Mapping[str, Row] = field(default_factory=dict)  # workflows in restored_ledger.py, by id
    inboxes: Mapping[str, Inbox] = field(default_factory=dict)  # the connectors that take deliveries in
    recorded: Counter[str] = field(default_factory=Counter)  # how many steps of each workflow this host recorded
    line: Line = field(default_factory=Line)  # who waits for a connection that has a limit
    wake: Callable[[str | None], None] = _nobody  # has the host look at a workflow again
    at_work: Callable[[str], bool] = _rests  # whether a run of a workflow may be under way at this moment
    _scripts: dict[tuple[str, int, int], Loaded] = field(default_factory=dict)
    _limits: tuple[Policy, Limits] | None = None  # as made of this policy

    def script(self, read: Reader, workflow_id: str, version: tuple[int, int]) -> Loaded:
        """A version of a workflow's script."""
        key = (workflow_id, *version)
        if key not in self._scripts:
            row = read.one("script_get", workflow_id=workflow_id, major=version[0], minor=version[1])
            if row is None:
                raise NotFound(f"Workflow {workflow_id} has no version {version[0]}.{version[1]}.")
            script = script_record(row)
            self._scripts[key] = Loaded(script.source, from_text(script.manifest))
        return self._scripts[key]

    def account(self, connector: str) -> str:
        """Whose data a connector acts on; empty if it has no account, or is not there."""
        found = self.connectors.get(connector)
        return found.account if found else ""

    def limits(self) -> Limits:
        """Policy's limits for one step."""
        if self._limits is None or self._limits[0] is not self.policy:
            self._limits = self.policy, _limits(self.policy)
        return self._limits[1]


def _limits(policy: Policy) -> Limits:
    return Limits(
        compute_s=policy.script_s, memory_bytes=policy.script_memory_bytes, calls_max=policy.script_calls_max,
        items_max=policy.items_per_run_max, message_bytes_max=policy.message_bytes_max,
        log_bytes_max=policy.script_log_bytes_max,
    )
