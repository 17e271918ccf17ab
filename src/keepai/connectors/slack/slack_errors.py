"""What an answer of Slack's Web API proves. One table decides: an error that is not in it proves nothing.

Slack answers 200 and names the error in the body. Missing on purpose, because Slack says that some of the operation may
have succeeded, or says nothing: `fatal_error`, `internal_error`, `service_unavailable`, `request_timeout`,
`update_failed`. Of the statuses only 429 is documented as a refusal; the others prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ...model.errors import (
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    Transient,
)
from ..egress import Response


def _all(kind: type[ConnectorError], words: Iterable[str]) -> dict[str, type[ConnectorError]]:
    return dict.fromkeys(words, kind)


#: Error → what it means for a call that changes something. It proves that nothing happened.
REFUSED: Mapping[str, type[ConnectorError]] = MappingProxyType({
    **_all(Transient, ("rate_limited", "ratelimited", "message_limit_exceeded", "team_added_to_org",
                       "external_channel_migrating", "streaming_state_conflict")),
    **_all(PermissionDenied, (
        "access_denied", "accesslimited", "account_inactive", "cant_update_message", "edit_window_closed",
        "ekm_access_denied", "enterprise_is_restricted", "invalid_auth", "messages_tab_disabled",
        "metadata_must_be_sent_from_app", "missing_scope", "no_permission", "not_allowed_token_type", "not_authed",
        "org_login_required", "restricted_action", "restricted_action_non_threadable_channel",
        "restricted_action_read_only_channel", "restricted_action_thread_locked",
        "restricted_action_thread_only_channel", "team_access_not_granted", "token_expired", "token_revoked",
        "two_factor_setup_required",
    )),
    **_all(PreconditionFailed, (
        "cannot_reply_to_message", "channel_not_found", "is_archived", "is_inactive", "message_not_found",
        "not_in_channel", "team_not_found", "thread_not_found",
    )),
    **_all(Rejected, (
        "block_mismatch", "invalid_arg_name", "invalid_arguments", "invalid_array_arg", "invalid_charset",
        "invalid_cursor", "invalid_form_data", "invalid_json", "invalid_limit", "invalid_metadata_format",
        "invalid_metadata_schema", "invalid_post_type", "invalid_ts_latest", "invalid_ts_oldest", "json_not_object",
        "metadata_too_large", "missing_post_type", "msg_too_long", "no_text",
    )),
})
_HINTS: Mapping[str, str] = MappingProxyType({
    "not_in_channel": "Invite the app to the channel, then try again.",
    "channel_not_found": "Check the id of the channel, and invite the app to it.",
    "missing_scope": "Add the scope to the app and install it again.",
    "invalid_auth": "The token is not valid. Store another one.",
    "token_revoked": "The token is no longer valid. Store another one.",
})
_USUAL: Mapping[type[ConnectorError], str] = MappingProxyType({
    Transient: "Not now.",
    Rejected: "Slack refuses this call as it is.",
    PermissionDenied: "Access is missing. Check the app's scopes and its token.",
    PreconditionFailed: "The object of the call is not there.",
})


def write_result(answer: Response) -> dict[str, Any]:
    """The answer to a call that changes something; raises what is known if it failed."""
    body = answer.json_object() or {}
    if answer.status == 200 and body.get("ok") is True:
        return body
    raise _problem(answer, body)


def read_result(answer: Response) -> dict[str, Any]:
    """The answer to a read. If the result is not known, the read can be repeated."""
    try:
        return write_result(answer)
    except OutcomeUnknown:
        raise Transient(f"Slack answered a read with status {answer.status} and without a result.") from None


def _problem(answer: Response, body: Mapping[str, Any]) -> ConnectorError:
    if answer.status == 429:
        return Transient("Slack answered 429. Not now.", retry_after=answer.retry_after())
    word = body.get("error")
    kind = REFUSED.get(word) if isinstance(word, str) and answer.status == 200 and body.get("ok") is False else None
    if kind is None:
        return OutcomeUnknown(f"Slack answered {answer.status}, which does not say whether the call was carried out.")
    message = f"Slack refused it ({word}). {_HINTS.get(str(word), _USUAL[kind])}"
    return Transient(message, retry_after=answer.retry_after()) if kind is Transient else kind(message)
