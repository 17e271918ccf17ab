"""What a status proves. One table decides: a status that is not in it proves nothing.

Only a status with which a server refuses before it does anything may mean that nothing happened. Missing on purpose:

    3xx         a POST that was carried out is often answered with 303
    404, 410    of a DELETE: a gateway that repeated the request gets this answer if the first request got through
    406         many servers find this out only when they write the answer, after the work
    408, 504    a proxy stopped waiting for the answer; the server behind it may have done the work
    409, 412    a server that knows the idempotency key may mean that the first request is still running
    5xx         the server or a proxy failed at any moment; also 503, with which a proxy answers if the connection
                ended after the request was sent

202 counts as applied: the server has accepted the work. 207 does not: parts of the work may have failed.
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

#: Status → what it means for a request that changes something. It proves that nothing happened.
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
#: Method → statuses that prove nothing for it.
UNPROVEN: Mapping[str, frozenset[int]] = MappingProxyType({"DELETE": frozenset({404, 410})})

#: A request that changes nothing needs no proof; its status only says who can help.
_READ_LATER = frozenset({408, 425, 429})
_ABSENT = frozenset({404, 410})


def check_applied(method: str, host: str, answer: Response) -> None:
    """Return if the status means that the request was carried out; otherwise raise what is known."""
    status = answer.status
    if status in APPLIED:
        return
    message = f"{host} answered {status} to a {method}"
    kind = OutcomeUnknown if status in UNPROVEN.get(method, ()) else REFUSED.get(status, OutcomeUnknown)
    if kind is Transient:
        raise Transient(f"{message}: not now.", retry_after=answer.retry_after())
    if kind is OutcomeUnknown:
        raise OutcomeUnknown(f"{message}, which does not say whether the request was carried out.")
    raise kind(f"{message}: {_HINTS[kind]}")


def is_found(host: str, answer: Response) -> bool:
    """Whether a read found something. Raises for every answer that is neither success nor "it is not there"."""
    status = answer.status
    if status in _ABSENT:
        return False
    if answer.ok:
        return True
    message = f"{host} answered {status} to a GET"
    if status >= 500 or status in _READ_LATER:
        raise Transient(f"{message}: not now.", retry_after=answer.retry_after())
    if status in (401, 402, 403, 407, 451):
        raise PermissionDenied(f"{message}: {_HINTS[PermissionDenied]}")
    raise Rejected(f"{message}: {_HINTS[Rejected]}")


_HINTS: Mapping[type[ConnectorError], str] = MappingProxyType({
    Rejected: "it refuses this request as it is.",
    PermissionDenied: "access is missing or has expired. Check the secrets of the connector.",
    PreconditionFailed: "the object of the request is not there.",
})
