"""Signing in at Google: what is asked for, what the code gives, and that none of it is shown."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest

from keepai import Connector, PermissionDenied, Transient
from keepai.connectors import make
from keepai.connectors.redacted import redacted, redactor_of
from keepai.connectors.sign_in import Attempt, SignIn
from keepai.model.errors import ConfigError
from keepai.testing import loopback
from keepai.testing.contract import CANARY
from keepai.testing.loopback import HttpReply, Loopback, Request, instead
from tests.connectors.google_subjects import SETTINGS, connect
from tests.connectors.services.google import SECRETS, Service, SheetsService

HOME = "http://127.0.0.1:9/"
SCOPE = "https://www.googleapis.com/auth/spreadsheets"


@pytest.fixture
def service() -> SheetsService:
    return SheetsService()


@pytest.fixture
def server(service: SheetsService) -> Iterator[Loopback]:
    with Loopback(service.handle) as server:
        yield server


def sheets(server: Loopback) -> Connector:
    return connect("google.sheets", "sheets", server.url, "/v4/")


def offered(server: Loopback) -> SignIn:
    offer = sheets(server).sign_in()
    assert offer is not None
    return offer


def asked(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


def allowed(service: Service, address: str) -> str:
    """What a browser that follows the address comes back with."""
    reply = service.handle(Request("GET", "/auth", asked(address), {}, b""))
    return asked(reply.headers["Location"])["code"]


def is_token(request: Request) -> bool:
    return request.path == "/token"


@pytest.mark.parametrize(("type_name", "scope"), [
    ("google.gmail", "gmail.modify"), ("google.sheets", "spreadsheets"), ("google.calendar", "calendar.events"),
])
def test_a_person_is_asked_for_the_scope_of_the_type_and_for_their_address(type_name: str, scope: str) -> None:
    offer = make(type_name, "x", SETTINGS).sign_in()
    assert offer is not None
    attempt = Attempt(HOME)
    address = offer.address(attempt)
    assert address.startswith("https://accounts.google.com/o/oauth2/v2/auth?")
    assert asked(address) == {
        "client_id": "client-1", "redirect_uri": HOME, "response_type": "code", "state": attempt.state,
        "scope": f"https://www.googleapis.com/auth/{scope} openid email", "code_challenge": attempt.challenge,
        "code_challenge_method": "S256", "access_type": "offline", "prompt": "consent",
        "login_hint": "ann@example.com",
    }


def test_an_attempt_is_like_no_other_and_does_not_show_its_verifier() -> None:
    one, other = Attempt(HOME), Attempt(HOME)
    assert len({one.state, other.state, one.verifier, other.verifier}) == 4
    assert 43 <= len(one.verifier) <= 128
    assert one.verifier not in repr(one)
    appendix_b = Attempt(HOME, verifier="dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")  # of RFC 7636
    assert appendix_b.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_an_address_to_sign_in_at_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError):
        make("google.sheets", "x", {**SETTINGS, "auth_url": "file:///etc/passwd"})


async def test_a_code_becomes_a_refresh_token_that_works(server: Loopback, service: SheetsService) -> None:
    attempt, offer = Attempt(HOME), offered(server)
    earned = await offer.redeem(allowed(service, offer.address(attempt)), attempt)
    assert earned.keys() == {"refresh_token"}
    assert earned["refresh_token"] in service.refresh_tokens - {SECRETS["refresh_token"]}
    connector = sheets(server)
    connector.entrust({**SECRETS, **earned})
    await connector.check()


async def test_a_code_of_another_attempt_is_worth_nothing(server: Loopback, service: SheetsService) -> None:
    offer = offered(server)
    code = allowed(service, offer.address(Attempt(HOME)))
    with pytest.raises(PermissionDenied, match=r"\(invalid_grant\).*Sign in again") as told:
        await offer.redeem(code, Attempt(HOME))
    assert CANARY not in "".join(traceback.format_exception(told.value))


async def refusal(server: Loopback, service: SheetsService) -> str:
    attempt, offer = Attempt(HOME), offered(server)
    with pytest.raises(PermissionDenied) as told:
        await offer.redeem(allowed(service, offer.address(attempt)), attempt)
    assert CANARY not in "".join(traceback.format_exception(told.value))
    return told.value.message


async def test_somebody_else_who_signs_in_is_not_taken(server: Loopback, service: SheetsService) -> None:
    service.person = "eve@example.com"
    assert "Sign in as ann@example.com" in await refusal(server, service)


async def test_the_letters_of_an_address_may_be_small_or_large(server: Loopback, service: SheetsService) -> None:
    service.person = "Ann@Example.com"
    attempt, offer = Attempt(HOME), offered(server)
    assert await offer.redeem(allowed(service, offer.address(attempt)), attempt)


@pytest.mark.parametrize("id_token", [
    "", "x", "a.b", "a.!.c", "a.bm8.c", "a.W10.c", "a.eyJlbWFpbCI6NX0.c", "..", "a.YQ==.c",
])
async def test_an_id_token_that_tells_nobody_is_no_reason_to_refuse(
    server: Loopback, service: SheetsService, id_token: str,
) -> None:
    said = HttpReply(200, {"access_token": "a", "refresh_token": "r", "id_token": id_token})
    with server.misbehaving(instead(said), is_token):
        assert await offered(server).redeem("code", Attempt(HOME)) == {"refresh_token": "r"}


async def test_a_scope_that_was_not_ticked_is_told(server: Loopback, service: SheetsService) -> None:
    service.allowed = "openid https://www.googleapis.com/auth/userinfo.email"
    assert "allow everything" in await refusal(server, service)


async def test_an_answer_without_a_refresh_token_says_what_to_do(server: Loopback, service: SheetsService) -> None:
    service.withholds = {"refresh_token"}
    assert "returned no refresh token. Remove the access of this client" in await refusal(server, service)


async def test_a_wrong_client_secret_is_told(server: Loopback, service: SheetsService) -> None:
    connector = sheets(server)
    connector.entrust({"client_secret": "another"})
    offer, attempt = connector.sign_in(), Attempt(HOME)
    assert offer is not None
    with pytest.raises(PermissionDenied, match="do not belong together"):
        await offer.redeem(allowed(service, offer.address(attempt)), attempt)


@pytest.mark.parametrize("fault", [
    loopback.drop_before, loopback.drop_after, loopback.garbled, instead(HttpReply(503, {})),
])
async def test_a_code_that_gets_no_answer_is_not_sent_again(
    server: Loopback, service: SheetsService, fault: loopback.Fault,
) -> None:
    attempt, offer = Attempt(HOME), offered(server)
    code = allowed(service, offer.address(attempt))
    with server.misbehaving(fault, is_token), pytest.raises(Transient) as told:
        await offer.redeem(code, attempt)
    assert CANARY not in "".join(traceback.format_exception(told.value))
    assert len([each for each in server.seen if is_token(each)]) == 1


class Talkative(SignIn):
    secret = "refresh_token"

    def address(self, attempt: Attempt) -> str:
        return f"https://example.com/?secret={SECRETS['client_secret']}"

    async def redeem(self, code: str, attempt: Attempt) -> dict[str, str]:
        raise ValueError(SECRETS["client_secret"])


async def test_a_sign_in_behind_the_wall_says_no_secret(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = sheets(server)
    monkeypatch.setattr(connector, "sign_in", Talkative)
    offer = redacted(connector, redactor_of([connector])).sign_in()
    assert offer is not None
    assert CANARY not in offer.address(Attempt(HOME))
    with pytest.raises(RuntimeError) as told:
        await offer.redeem("code", Attempt(HOME))
    assert CANARY not in "".join(traceback.format_exception(told.value))


def test_a_connector_that_offers_none_says_so() -> None:
    connector = Connector(name="x")
    assert connector.sign_in() is None
    assert redacted(connector, redactor_of([make("google.sheets", "sheets", SETTINGS)])).sign_in() is None
