"""Keep: a durable engine for automations that a language model wrote. These are its public names."""

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
from .model.policy import Policy

__all__ = [
    "Call",
    "Connector",
    "Keep",
    "OutcomeUnknown",
    "Page",
    "PermissionDenied",
    "Policy",
    "PreconditionFailed",
    "Rejected",
    "ScriptInvalid",
    "Transient",
    "Verdict",
    "mutation",
    "read",
]
