"""What the host allows and how long it waits: every setting with its default and one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields

from .errors import ConfigError
from .flow_limits import FlowLimit, check_limits


def _setting(default: float | int | str, meaning: str) -> object:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Policy:
    """Settings of a host. Units stand last in each name."""

    producer_interval_s: float = _setting(300, "How often a producer without a schedule runs.")  # type: ignore[assignment]
    script_s: float = _setting(5.0, "How much processor time one step may use; each item of a routine adds 6 ms.")  # type: ignore[assignment]
    script_memory_bytes: int = _setting(64 << 20, "How much memory one step of a script may use.")  # type: ignore[assignment]
    script_calls_max: int = _setting(50_000, "How often one step may read, and how many mutations it may send.")  # type: ignore[assignment]
    script_log_bytes_max: int = _setting(256 << 10, "How much one step may log; the rest is cut off.")  # type: ignore[assignment]
    message_bytes_max: int = _setting(4 << 20, "How large one call, one answer or one result may be.")  # type: ignore[assignment]
    state_bytes_max: int = _setting(1 << 20, "How large a handler's state may be.")  # type: ignore[assignment]
    payload_bytes_max: int = _setting(1 << 20, "How large an event's payload may be.")  # type: ignore[assignment]
    prepare_bytes_max: int = _setting(2 << 20, "How large a PrepareResult may be.")  # type: ignore[assignment]
    events_per_run_max: int = _setting(10_000, "How many events one run may publish, and inputs register.")  # type: ignore[assignment]
    revisions_max: int = _setting(10, "How many payloads that came too late for an event are kept of it.")  # type: ignore[assignment]
    run_bytes_max: int = _setting(32 << 20, "How much one run may publish and register, and how much reserve.")  # type: ignore[assignment]
    workflow_bytes_max: int = _setting(4 << 30, "How much the ledger keeps for one workflow before it stops and asks.")  # type: ignore[assignment]
    trace_bytes_per_run_max: int = _setting(4 << 20, "How much of its calls and logs one run keeps whole.")  # type: ignore[assignment]
    items_per_run_max: int = _setting(100_000, "How many items one run of a routine may begin.")  # type: ignore[assignment]
    chain_max: int = _setting(100, "How many consumers in a row may pass on what follows from one event.")  # type: ignore[assignment]
    reservations_max: int = _setting(1_000, "How many events one run may reserve.")  # type: ignore[assignment]
    peek_default: int = _setting(100, "How many events ctx.peek returns when no limit is given.")  # type: ignore[assignment]
    peek_max: int = _setting(1_000, "How many events ctx.peek returns at most.")  # type: ignore[assignment]
    peek_bytes_max: int = _setting(1 << 20, "How large one page of ctx.peek is; a larger event comes alone.")  # type: ignore[assignment]
    trace_bytes_max: int = _setting(4_096, "How much of a call's arguments or answer is kept with the run.")  # type: ignore[assignment]
    call_s: float = _setting(30.0, "How long one call to a connector may take.")  # type: ignore[assignment]
    mutate_reads: str = _setting("none", 'Whether mutate may read: "none", or "by_id".')  # type: ignore[assignment]
    retry_first_s: float = _setting(30, "How long to wait after the first transient failure.")  # type: ignore[assignment]
    retry_longest_s: float = _setting(900, "How long to wait at most between retries.")  # type: ignore[assignment]
    retries_max: int = _setting(8, "How often work that failed transiently is tried again before a person is asked.")  # type: ignore[assignment]
    repairs_max: int = _setting(3, "How many repairs one piece of work may have before a person must act.")  # type: ignore[assignment]
    repair_s: float = _setting(600, "How long the repair hook may take.")  # type: ignore[assignment]
    approval_s: float = _setting(86_400, "How long an approval is valid before Keep asks again.")  # type: ignore[assignment]
    proposal_s: float = _setting(14 * 86_400, "How long a proposal waits for a person before it expires.")  # type: ignore[assignment]
    settle_s: float = _setting(60, "How long after its end a call may still show its effect.")  # type: ignore[assignment]
    reconcile_s: float = _setting(30.0, "How long one reconcile may take.")  # type: ignore[assignment]
    reconcile_first_s: float = _setting(30, "How long to wait after the first reconcile that could not tell.")  # type: ignore[assignment]
    reconcile_longest_s: float = _setting(1_800, "How long to wait at most between reconciles.")  # type: ignore[assignment]
    reconciles_max: int = _setting(12, "How many reconciles before a person is asked.")  # type: ignore[assignment]
    reconcile_total_s: float = _setting(86_400, "How long to reconcile before a person is asked.")  # type: ignore[assignment]
    parked_max: int = _setting(100, "How many runs of one workflow may wait for a person while others go on.")  # type: ignore[assignment]
    crashes_max: int = _setting(3, "After how many host crashes one piece of work is stopped.")  # type: ignore[assignment]
    wake_soonest_s: float = _setting(30, "How soon wakeAt may be.")  # type: ignore[assignment]
    wake_latest_s: float = _setting(86_400, "How late wakeAt may be.")  # type: ignore[assignment]
    recheck_s: float = _setting(3_600, "How long to wait before asking a consumer again that reserved nothing.")  # type: ignore[assignment]
    stale_s: float = _setting(7 * 86_400, "How long an event may be pending before it is flagged stale.")  # type: ignore[assignment]
    notify_s: float = _setting(30.0, "How long sending one message to a person may take.")  # type: ignore[assignment]
    notify_retry_first_s: float = _setting(30, "How long to wait after a channel first failed to tell a person.")  # type: ignore[assignment]
    notify_retry_longest_s: float = _setting(3_600, "How long to wait at most before such a channel is tried again.")  # type: ignore[assignment]
    notify_remind_s: float = _setting(86_400, "How long a question may stay unanswered before a person is told again.")  # type: ignore[assignment]
    certified: str = _setting("warn", 'What becomes of a deploy without a certificate: "off", "warn" or "require".')  # type: ignore[assignment]
    recordings: str = _setting("on", 'Whether what runs are given is recorded, for shadow and repairs: "on" or "off".')  # type: ignore[assignment]
    recordings_max: int = _setting(1_000, "Of how many of a workflow's newest runs the recordings are kept.")  # type: ignore[assignment]
    recording_bytes_max: int = _setting(256 << 10, "How much is recorded of what one step is given.")  # type: ignore[assignment]
    repairs: str = _setting("gate", 'Who lets a repair in: the "gate", if recorded runs allow it, or a "person".')  # type: ignore[assignment]
    retention_days: int = _setting(36_500, "How many days the content of finished work is kept (see keep db prune).")  # type: ignore[assignment]
    connections_max: int = _setting(256, "How many connections the page, and the webhook port, hold at the same time.")  # type: ignore[assignment]
    connections_per_address_max: int = _setting(64, "How many of them one address (or IPv6 network) may have.")  # type: ignore[assignment]
    request_s: float = _setting(10.0, "How long the head of a request may take to arrive, and then its body.")  # type: ignore[assignment]
    runs_at_once_max: int = _setting(64, "How many workflows run at the same time.")  # type: ignore[assignment]
    speculate: bool = _setting(True, "Whether a step may be run, or answered, before it is asked for.")  # type: ignore[assignment]
    workers_max: int = _setting(8, "How many sandbox processes run at most; one per processor stays.")  # type: ignore[assignment]

    #: Place, such as "connectors.slack" or "workflows.orders" → how fast and when it may send.
    limits: Mapping[str, FlowLimit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_limits(self.limits)
        for setting in _plain():
            if not isinstance(setting.default, str | bool):
                _check_number(setting.name, getattr(self, setting.name))
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                known = ", ".join(f'"{word}"' for word in words[:-1])
                raise ConfigError(f'Policy {name} must be {known} or "{words[-1]}", not {getattr(self, name)!r}.')
        if not isinstance(self.speculate, bool):
            raise ConfigError(f"Policy speculate must be true or false, not {self.speculate!r}.")


#: Settings that are a word → the words that they may be.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "mutate_reads": ("none", "by_id"), "certified": ("off", "warn", "require"), "recordings": ("on", "off"),
    "repairs": ("gate", "person"),
}


def _check_number(name: str, value: object) -> None:
    """Seconds may have fractions; counts may not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"Policy {name} must be a number above zero, not {value!r}.")
    if not name.endswith("_s") and not isinstance(value, int):
        raise ConfigError(f"Policy {name} must be a whole number, not {value!r}.")


def settings() -> list[tuple[str, object, str]]:
    """Every setting: name, default, meaning."""
    return [(f.name, f.default, str(f.metadata["meaning"])) for f in _plain()]


def _plain() -> list[Field[object]]:
    """The settings that are one number or one word."""
    return [f for f in fields(Policy) if "meaning" in f.metadata]
