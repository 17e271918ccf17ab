"""Secrets are found in every encoding, and an error without its secret still means the same."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import logging
import traceback
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepai import Connector, OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.connectors import redacted_logs
from keepai.model.errors import ConnectorBroke, KeepError, RuleBroken, in_words
from keepai.model.redaction import Redactor

CANARY = "cänary/5ecret+8f14 \"e45f\""


class Bank(Connector):
    name = "bank"
    secrets: ClassVar[Mapping[str, str]] = {"password": "the password"}


def knowing(**secrets: str) -> tuple[Redactor, dict[str, str]]:
    """A redactor for one connector, and the connector's vault."""
    bank = Bank()
    bank.entrust(secrets)
    return Redactor([bank]), secrets


FORMS = {
    "as it is": CANARY,
    "JSON": json.dumps({"p": CANARY}),
    "JSON, unescaped": json.dumps({"p": CANARY}, ensure_ascii=False),
    "base64": base64.b64encode(CANARY.encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(CANARY.encode()).decode(),
    "a header": "Basic " + base64.b64encode(f"ann:{CANARY}".encode()).decode(),
    "a longer header": "Basic " + base64.b64encode(f"anna:{CANARY}:more".encode()).decode(),
    "the longest header": "Basic " + base64.b64encode(f"annas:{CANARY}!".encode()).decode(),
    "in an address": f"https://x/?p={quote(CANARY)}",
    "in an address, strictly": f"https://x/{quote(CANARY, safe='')}/y",
    "in an address, in small letters": f"https://x/{quote(CANARY, safe='').lower()}/y",
    "in a form": urlencode({"p": CANARY}),
    "with plus": quote_plus(CANARY),
    "in HTML": html.escape(CANARY),
    "Python's spelling": repr([CANARY]),
    "Python's plain spelling": ascii(CANARY),
    "Python's bytes": repr(CANARY.encode()),
    "hex": CANARY.encode().hex(),
    "hex in capitals": CANARY.encode().hex().upper(),
    "in an address, every byte": "".join(f"%{byte:02X}" for byte in CANARY.encode()),
    "in an address, every byte in small letters": "".join(f"%{byte:02x}" for byte in CANARY.encode()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_every_spelling(form: str) -> None:
    redactor, _ = knowing(password=CANARY)
    said = redactor.text(f"before {FORMS[form]} after")
    assert "[secret bank.password]" in said, said
    assert said.startswith("before ")
    assert said.endswith(" after")
    for tell in ("5ecret", "NWVjcmV0", base64.b64encode(CANARY.encode()).decode()[4:12], "35656372"):
        assert tell not in said


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_every_spelling_also_inside_of_json(form: str) -> None:
    redactor, _ = knowing(password=CANARY)
    said = redactor.value({"said": [f"before {FORMS[form]} after"]})
    assert "[secret bank.password]" in str(said)
    assert "5ecret" not in str(said)
    assert redactor.spelled_in({"q": FORMS[form]})


@given(st.text(st.characters(codec="utf-8"), min_size=6, max_size=40), st.text(max_size=5), st.text(max_size=5))
@settings(max_examples=60, deadline=None)
def test_what_is_taken_out_is_gone(secret: str, before: str, after: str) -> None:
    redactor, _ = knowing(password=secret)
    text = f"{before}{secret}{after}"
    assert redactor.found(redactor.text(text).replace("[secret bank.password]", "\0")) is None


def test_short_values_and_other_texts_stay() -> None:
    redactor, _ = knowing(password="short", token="longer-value")
    assert redactor.text("short and sweet") == "short and sweet"
    text = "nothing of it"
    assert redactor.text(text) is text


def test_the_longer_of_two_secrets_is_named() -> None:
    redactor, _ = knowing(user="ann-of-x", password="ann-of-x-5ecret")
    assert redactor.text("it is ann-of-x-5ecret") == "it is [secret bank.password]"


def test_lines_of_a_long_secret_are_found_one_by_one() -> None:
    lines = ["-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEF", "qkLmNoPqRsTuVwXyZ0123456789a", "-----END"]
    redactor, _ = knowing(key="\n".join(lines))
    said = redactor.text(f"  | {lines[1]}\n  | {lines[0]}\n  | {lines[2]}")
    assert lines[1] not in said
    assert lines[2] not in said
    assert lines[0] in said  # it says nothing, and stands in many texts


def test_json_is_cleaned_in_values_keys_and_numbers_and_else_left_as_it_is() -> None:
    redactor, _ = knowing(password="5ecret-value", pin="123456789")
    value: Any = {"a": ["5ecret-value", 1, None, True, {"5ecret-value": 123456789}], "b": 2.5}
    assert redactor.value(value) == {
        "a": ["[secret bank.password]", 1, None, True, {"[secret bank.password]": "[secret bank.pin]"}], "b": 2.5,
    }
    clean = {"a": [1]}
    assert redactor.value(clean) is clean


def test_a_value_that_was_changed_or_renewed_is_known_from_then_on_and_the_old_one_still() -> None:
    redactor, vault = knowing(password="the-first-value")
    assert redactor.text("the-first-value") == "[secret bank.password]"
    vault["password"] = "the-second-value"
    assert redactor.text("the-second-value the-first-value") == "[secret bank.password] [secret bank.password]"


def test_a_value_that_was_handed_out_and_changed_at_once_is_known() -> None:
    bank, vault = Bank(), {"password": "the-first-value"}
    bank.entrust(vault)
    redactor = Redactor([bank])
    assert bank.secret("password") == "the-first-value"
    vault["password"] = "the-second-value"  # before anybody looked
    assert redactor.text("the-first-value") == "[secret bank.password]"


def test_a_token_that_is_renewed_for_years_is_forgotten_in_time_and_the_password_is_not() -> None:
    redactor, vault = knowing(password="the-password", token="token-0000")
    for number in range(100):
        vault["token"] = f"token-{number:04}"
        assert redactor.found(f"token-{number:04}") == "bank.token"
        assert redactor.found("the-password") == "bank.password"
    assert redactor.text("token-0098 the-password") == "[secret bank.token] [secret bank.password]"
    assert redactor.text("token-0000") == "token-0000"


# -- errors ----------------------------------------------------------------------------------------


class Own(Transient):
    """A connector's own kind, which tells more than its message."""

    def __init__(self, more: str) -> None:
        super().__init__("busy", retry_after=7)
        self.more = more

    def __str__(self) -> str:
        return f"busy: {self.more}"


def chained(error: BaseException) -> BaseException:
    error.__cause__ = ConnectionResetError(f"while sending {CANARY}")
    error.__cause__.__context__ = KeyError(CANARY)
    return error


def noted(error: BaseException) -> BaseException:
    error.add_note(f"the header was {CANARY}")
    return error


ERRORS: dict[str, tuple[BaseException, type[BaseException]]] = {
    "transient": (Transient(f"busy {CANARY}", retry_after=7), Transient),
    "permission": (PermissionDenied(f"no {CANARY}"), PermissionDenied),
    "precondition": (PreconditionFailed(f"gone {CANARY}"), PreconditionFailed),
    "rejected": (Rejected(f"wrong {CANARY}"), Rejected),
    "unknown": (OutcomeUnknown(f"lost {CANARY}"), OutcomeUnknown),
    "broke": (ConnectorBroke(f"bad {CANARY}"), ConnectorBroke),
    "rule": (RuleBroken(f"bad {CANARY}"), RuleBroken),
    "a kind of its own": (Own(CANARY), Transient),
    "only its cause": (chained(Rejected("wrong")), Rejected),
    "a bug": (chained(ValueError(CANARY, 5)), RuntimeError),
    "a note": (noted(ValueError("bad")), RuntimeError),
    "a key": (KeyError(CANARY), RuntimeError),
    "bytes": (ValueError(CANARY.encode()), RuntimeError),
    "several": (ExceptionGroup("several", [ValueError(CANARY), Transient("busy")]), RuntimeError),
    "the end of the process": (SystemExit(CANARY), RuntimeError),
    "cancelled": (asyncio.CancelledError(CANARY), asyncio.CancelledError),
    "stopped": (KeyboardInterrupt(CANARY), KeyboardInterrupt),
}


@pytest.mark.parametrize("which", ERRORS)
def test_an_error_means_the_same_and_says_no_secret(which: str) -> None:
    redactor, _ = knowing(password=CANARY)
    error, meant = ERRORS[which]
    with pytest.raises(BaseException) as caught, redactor.guard():  # noqa: PT011
        raise error
    clean = caught.value
    assert type(clean) is meant
    said = in_words(clean) + "".join(traceback.format_exception(clean)) + repr(clean)
    said += clean.message if isinstance(clean, KeepError) else ""
    assert "5ecret" not in said
    if isinstance(clean, Transient):
        assert clean.retry_after == 7
    if which == "a bug":
        assert "[secret bank.password]" in said
        assert "ConnectionResetError: while sending" in said  # the evidence is still there


def test_an_error_without_a_secret_is_the_very_same() -> None:
    redactor, _ = knowing(password=CANARY)
    error = Own("nothing")
    with pytest.raises(Own) as caught, redactor.guard():
        raise error
    assert caught.value is error


# -- logging ---------------------------------------------------------------------------------------


def test_pythons_logging_says_no_secret_while_it_is_covered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    redactor, _ = knowing(password=CANARY)
    log = logging.getLogger("some.library")
    redacted_logs.cover(redactor)
    try:
        log.info("GET https://x/?p=%s", quote(CANARY))
        log.info("broken %d %s", CANARY)  # noqa: PLE1206
        try:
            raise ValueError(CANARY)
        except ValueError:
            log.exception("it failed")
        log.warning("nothing of it: %s", 5)
    finally:
        redacted_logs.uncover(redactor)
    assert "5ecret" not in caplog.text
    assert caplog.text.count("[secret bank.password]") >= 3
    assert "it failed" in caplog.text
    assert "nothing of it: 5" in caplog.text
    log.info("no longer covered %s", CANARY)
    assert CANARY in caplog.text
