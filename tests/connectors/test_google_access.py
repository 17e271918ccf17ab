"""The access to Google: renewed once for all waiting calls, repeated only if nothing was done, never shown."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator

import pytest

from keepai import PermissionDenied, Transient
from keepai.connectors.google.access import TOKEN
from keepai.testing import loopback
from keepai.testing.contract import CANARY
from keepai.testing.loopback import HttpReply, Loopback, Request, instead
from tests.connectors.cases import call
from tests.connectors.google_subjects import connect
from tests.connectors.services.google import SECRETS, GmailService

LETTER = {"to": "bob@example.com", "subject": "Hi", "body": "Hi"}


@pytest.fixture
def service() -> GmailService:
    return GmailService()


@pytest.fixture
def server(service: GmailService) -> Iterator[Loopback]:
    with Loopback(service.handle) as server:
        yield server


def gmail(server: Loopback, **vault: str):
    return connect("google.gmail", "gmail", server.url, "/gmail/v1/", **vault)


def is_token(request: Request) -> bool:
    return request.path == "/token"


async def test_a_token_is_asked_for_once_and_kept_in_the_vault(server: Loopback, service: GmailService) -> None:
    vault = dict(SECRETS)
    connector = gmail(server)
    connector.entrust(vault)
    for _ in range(3):
        await connector.operations["search"].invoke({}, call())
    assert service.renewals == 1
    later = gmail(server)  # as after a restart
    later.entrust(vault)
    await later.operations["search"].invoke({}, call())
    assert service.renewals == 1
    assert vault[TOKEN] in service.valid


async def test_many_calls_with_an_expired_token_renew_it_once(server: Loopback, service: GmailService) -> None:
    connector = gmail(server)
    await connector.operations["search"].invoke({}, call())
    service.expire()
    await asyncio.gather(*(connector.operations["send"].invoke(LETTER, call(f"k{n}")) for n in range(6)))
    assert service.renewals == 2
    assert len(service.sent) == 6


async def test_an_expired_token_in_the_middle_of_a_send_leaves_one_message(
    server: Loopback, service: GmailService,
) -> None:
    connector = gmail(server)
    await connector.operations["search"].invoke({}, call())
    service.expire()
    await connector.operations["send"].invoke(LETTER, call())
    assert len(service.sent) == 1
    assert len([each for each in server.seen if each.path.endswith("/send")]) == 2


async def test_a_send_is_repeated_once_at_most(server: Loopback, service: GmailService) -> None:
    connector = gmail(server)
    never = server.misbehaving(instead(HttpReply(401, {})), lambda request: request.path.endswith("/send"))
    with never, pytest.raises(PermissionDenied):
        await connector.operations["send"].invoke(LETTER, call())
    assert len([each for each in server.seen if each.path.endswith("/send")]) == 2


async def test_a_token_of_another_sign_in_is_not_used(server: Loopback, service: GmailService) -> None:
    vault = {**SECRETS, "refresh_token": "somebody else's", TOKEN: "theirs", "access_token_of": "0" * 16}
    connector = gmail(server)
    connector.entrust(vault)
    vault["refresh_token"] = SECRETS["refresh_token"]
    await connector.operations["search"].invoke({}, call())
    assert "Bearer theirs" not in [each.headers.get("authorization") for each in server.seen]


@pytest.mark.parametrize("fault", [loopback.drop_before, loopback.garbled, instead(HttpReply(503, {}))])
async def test_a_renewal_that_gets_no_answer_means_that_nothing_was_sent(
    server: Loopback, service: GmailService, fault: loopback.Fault,
) -> None:
    with server.misbehaving(fault, is_token), pytest.raises(Transient):
        await gmail(server).operations["send"].invoke(LETTER, call())
    assert service.sent == []


async def test_an_access_that_was_taken_back_is_a_question_to_a_person_and_tells_no_secret(
    server: Loopback, service: GmailService, caplog: pytest.LogCaptureFixture,
) -> None:
    service.revoked = True
    caplog.set_level("DEBUG")
    with pytest.raises(PermissionDenied, match="Sign in again") as told:
        await gmail(server).operations["send"].invoke(LETTER, call())
    assert CANARY not in "".join(traceback.format_exception(told.value)) + caplog.text


async def test_a_refresh_token_that_google_replaces_is_written_back(server: Loopback, service: GmailService) -> None:
    vault = dict(SECRETS)
    connector = gmail(server)
    connector.entrust(vault)
    service.valid.add("t1")
    renewed = HttpReply(200, {"access_token": "t1", "refresh_token": "another"})
    with server.misbehaving(instead(renewed), is_token):
        await connector.operations["search"].invoke({}, call())
        await connector.operations["search"].invoke({}, call())
    assert vault["refresh_token"] == "another"
    assert len([each for each in server.seen if is_token(each)]) == 1


async def test_without_its_secrets_it_says_what_is_missing(server: Loopback) -> None:
    connector = gmail(server)
    connector.entrust({})
    with pytest.raises(PermissionDenied, match="refresh_token"):
        await connector.operations["search"].invoke({}, call())
    assert server.seen == []


async def test_the_check_finds_the_wrong_account_and_a_secret_that_no_longer_counts(
    server: Loopback, service: GmailService,
) -> None:
    connector = gmail(server)
    await connector.check()
    service.revoked = True  # the present token still works, and the next one will not come
    with pytest.raises(PermissionDenied):
        await connector.check()
    service.revoked = False
    connector.account = "eve@example.com"
    with pytest.raises(PermissionDenied, match="not for eve"):
        await connector.check()
