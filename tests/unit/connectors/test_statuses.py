"""What a status proves: repeated here, so that a status added to the table by mistake is noticed."""

from __future__ import annotations

import pytest

from keepai import OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.connectors.egress import Response
from keepai.connectors.google import google_errors as google
from keepai.connectors.http import statuses
from keepai.model.errors import ConnectorError

DONE = {200, 201, 202, 203, 204, 205}
REJECTED = {400, 405, 411, 413, 414, 415, 417, 421, 422, 426, 428, 431}
PROVES: dict[int, type[ConnectorError]] = {
    **dict.fromkeys(REJECTED, Rejected), **dict.fromkeys({401, 402, 403, 451}, PermissionDenied),
    **dict.fromkeys({404, 410}, PreconditionFailed), **dict.fromkeys({425, 429}, Transient),
}
GOOGLE: dict[int, type[ConnectorError]] = {
    400: Rejected, 401: PermissionDenied, 403: PermissionDenied, 404: PreconditionFailed, 410: PreconditionFailed,
    411: Rejected, 413: Rejected, 429: Transient,
}


def meaning(method: str, status: int) -> type[ConnectorError] | None:
    try:
        statuses.check_applied(method, "example.com", Response(status, {}, b""))
    except ConnectorError as error:
        return type(error)
    return None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_status_that_is_left_out_means_unknown(method: str) -> None:
    for status in range(100, 600):
        expected = None if status in DONE else PROVES.get(status, OutcomeUnknown)
        if method == "DELETE" and status in (404, 410):
            expected = OutcomeUnknown  # a gateway may have repeated a request that got through
        assert meaning(method, status) is expected, status


@pytest.mark.parametrize("status", [207, 301, 303, 307, 308, 406, 407, 408, 409, 412, 423, 500, 501, 502, 503, 504])
def test_a_status_that_proves_nothing_is_unknown(status: int) -> None:
    assert meaning("POST", status) is OutcomeUnknown


@pytest.mark.parametrize("reason", [None, "rateLimitExceeded", "notFound"])
def test_of_google_too_a_reason_makes_no_proof_of_what_is_left_out(reason: str | None) -> None:
    body = b"{}" if reason is None else b'{"error": {"errors": [{"reason": "%s"}]}}' % reason.encode()
    for status in range(300, 600):
        found = type(google.problem("Gmail", Response(status, {"content-type": "application/json"}, body)))
        assert (found is OutcomeUnknown) == (status not in GOOGLE), status
        if reason is None:
            assert found is GOOGLE.get(status, OutcomeUnknown), status
