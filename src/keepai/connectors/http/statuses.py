"""What a status proves. One table: what is not in it proves nothing.

Only a status by which a server refuses before it does anything may say that nothing happened. Why some are missing:

    3xx         a POST that was carried out is often answered with 303, and other redirects by whoever likes to
    404, 410    of a DELETE: a gateway that repeated the request by itself answers so when the first one got through
    406         found out by many servers only when they write the answer, after the work
    408, 504    somebody between waited for the answer no longer; the server behind may have done it
    409, 412    a server that knows the idempotency key may mean: the first one is still being carried out
    5xx         the server broke, or somebody between lost it, at any moment; also 503, which proxies make of a
                connection that ended after the request was sent

202 counts as applied: the server has taken it upon itself. 207 does not: parts of it may have failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...model.errors import (
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    Transient,
)
from ..egress import Response

APPLIED = frozenset({200, 201, 202, 203, 204, 205})

#: Status → what it means for a request that would have changed something. It proves that nothing happened.
REFUSED: Mapping[int, type[ConnectorError]] = MappingProxyType({
    400: Rejected,
    401: PermissionDenied,
    402: PermissionDenied,
    403: PermissionDenied,
    404: PreconditionFailed,
    405: Rejected,
    410: PreconditionFailed,
    411: Rejected,
    413: Rejected,
    414: Rejected,
    415: Rejected,
    417: Rejected,
    421: Rejected,
    422: Rejected,
    425: Transient,
    426: Rejected,
    428: Rejected,
    429: Transient,
    431: Rejected,
    451: PermissionDenied,
})
#: Method → statuses that prove nothing after it.
UNPROVEN: Mapping[str, frozenset[int]] = MappingProxyType({"DELETE": frozenset({404, 410})})

#: For a request that changes nothing, the question is only who can help.
_READ_LATER = frozenset({408, 425, 429})
_ABSENT = frozenset({404, 410})


def check_applied(method: str, host: str, answer: Response) -> None:
    """Return if the status says that it was done; otherwise raise what is known."""
    status = answer.status
    if status in APPLIED:
        return
    what = f"{host} answered {status} to a {method}"
    kind = OutcomeUnknown if status in UNPROVEN.get(method, ()) else REFUSED.get(status, OutcomeUnknown)
    if kind is Transient:
        raise Transient(f"{what}: not now.", retry_after=answer.retry_after())
    if kind is OutcomeUnknown:
        raise OutcomeUnknown(f"{what}, which does not say whether it was carried out.")
    raise kind(f"{what}: {_HINTS[kind]}")


def is_found(host: str, answer: Response) -> bool:
    """Whether a read has something to show; an answer that is neither that nor "it is not there" is raised."""
    status = answer.status
    if status in _ABSENT:
        return False
    if answer.ok:
        return True
    what = f"{host} answered {status} to a GET"
    if status >= 500 or status in _READ_LATER:
        raise Transient(f"{what}: not now.", retry_after=answer.retry_after())
    if status in (401, 402, 403, 407, 451):
        raise PermissionDenied(f"{what}: {_HINTS[PermissionDenied]}")
    raise Rejected(f"{what}: {_HINTS[Rejected]}")


_HINTS: Mapping[type[ConnectorError], str] = MappingProxyType({
    Rejected: "it does not take this request as it is.",
    PermissionDenied: "access is missing or has expired. Check the secrets of the connector.",
    PreconditionFailed: "what the request is about is not there.",
})
