"""Keep: a durable engine for automations that a language model wrote. These are its public names.

They are imported when they are first asked for, so that `keep --help` need not wait for the engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app import Keep
    from .connectors.base import Call, Connector, Page, Verdict, mutation, read
    from .model.errors import (
        OutcomeUnknown,
        PermissionDenied,
        PreconditionFailed,
        Rejected,
        ScriptInvalid,
        Transient,
    )
    from .model.flow_limits import FlowLimit
    from .model.policy import Policy
    from .model.principals import Principal, Role

__all__ = [
    "Call",
    "Connector",
    "FlowLimit",
    "Keep",
    "OutcomeUnknown",
    "Page",
    "PermissionDenied",
    "Policy",
    "PreconditionFailed",
    "Principal",
    "Rejected",
    "Role",
    "ScriptInvalid",
    "Transient",
    "Verdict",
    "mutation",
    "read",
]

_ERRORS = "OutcomeUnknown PermissionDenied PreconditionFailed Rejected ScriptInvalid Transient"
_HOMES = {
    "app": "Keep",
    "connectors.base": "Call Connector Page Verdict mutation read",
    "model.errors": _ERRORS,
    "model.flow_limits": "FlowLimit",
    "model.policy": "Policy",
    "model.principals": "Principal Role",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
