"""What an answer of Google's APIs proves. One table decides: a status that is not in it proves nothing.

Google names a reason beside the status. A reason only refines a status that is in the table: a 500 with any reason
stays unknown, because the server may have done the work before it failed. Missing on purpose:

    408, 5xx    the server or a proxy gave up at any moment
    409, 412    of an event: an earlier send of Keep may be the cause; the caller looks

Google's own words are not passed on, only the reasons in this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...model.codec import Json
from ...model.errors import (
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    Transient,
)
from ..egress import Response

#: Status → what it means for a request that changes something. It proves that nothing happened.
REFUSED: Mapping[int, type[ConnectorError]] = MappingProxyType({
    400: Rejected,
    401: PermissionDenied,
    403: PermissionDenied,
    404: PreconditionFailed,
    410: PreconditionFailed,
    411: Rejected,
    413: Rejected,
    429: Transient,
})
#: Reason → what it means instead, if the status is in the table above.
REASONS: Mapping[str, type[ConnectorError]] = MappingProxyType({
    "rateLimitExceeded": Transient,
    "userRateLimitExceeded": Transient,
    "RATE_LIMIT_EXCEEDED": Transient,
    "RESOURCE_EXHAUSTED": Transient,
    "quotaExceeded": Transient,
    "dailyLimitExceeded": Transient,
    "authError": PermissionDenied,
    "insufficientPermissions": PermissionDenied,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": PermissionDenied,
    "accessNotConfigured": PermissionDenied,
    "SERVICE_DISABLED": PermissionDenied,
    "domainPolicy": PermissionDenied,
    "forbidden": PermissionDenied,
    "forbiddenForNonOrganizer": PermissionDenied,
    "failedPrecondition": PreconditionFailed,
    "FAILED_PRECONDITION": PreconditionFailed,
    "notFound": PreconditionFailed,
    "deleted": PreconditionFailed,
})
_HINTS: Mapping[str, str] = MappingProxyType({
    "insufficientPermissions": "The access lacks a scope: sign in again with all scopes.",
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": "The access lacks a scope: sign in again with all scopes.",
    "accessNotConfigured": "Enable this API in the Google Cloud project of the client.",
    "SERVICE_DISABLED": "Enable this API in the Google Cloud project of the client.",
    "domainPolicy": "The administrators of the domain do not allow it.",
})
_USUAL: Mapping[type[ConnectorError], str] = MappingProxyType({
    Transient: "Not now.",
    Rejected: "It refuses this request as it is.",
    PermissionDenied: "Access is missing. Check the permissions of the account, and the secrets of the connector.",
    PreconditionFailed: "The object of the request is not there.",
})


def problem(service: str, answer: Response) -> ConnectorError:
    """The error that an answer means for a request that changes something."""
    reason = reason_of(answer)
    kind = REFUSED.get(answer.status, OutcomeUnknown)
    if kind is OutcomeUnknown:
        return OutcomeUnknown(f"{service} answered {answer.status}, which does not say whether it was carried out.")
    kind = REASONS.get(reason, kind)
    status = f"{answer.status} ({reason})" if reason else f"{answer.status}"
    message = f"{service} answered {status}. {_HINTS.get(reason, _USUAL[kind])}"
    return Transient(message, retry_after=answer.retry_after()) if kind is Transient else kind(message)


def problem_of_read(service: str, answer: Response) -> ConnectorError:
    """The error that an answer means for a read: it says who can help."""
    error = problem(service, answer)
    if isinstance(error, OutcomeUnknown):
        return Transient(f"{service} answered a read with {answer.status}.", retry_after=answer.retry_after())
    return error


def reason_of(answer: Response) -> str:
    """The first reason that is in the table; empty if there is none."""
    error = _object((answer.json_object() or {}).get("error"))
    reasons = [_object(entry).get("reason") for entry in (*_list(error.get("errors")), *_list(error.get("details")))]
    return next((word for word in (*reasons, error.get("status")) if isinstance(word, str) and word in REASONS), "")


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
