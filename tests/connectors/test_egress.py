"""The HTTP client: where it connects to, what it never does, and what its errors say is known."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepai import OutcomeUnknown, PreconditionFailed, Rejected, Transient
from keepai.connectors.base import Call
from keepai.connectors.egress import Client, Rules, forbidden
from keepai.connectors.egress.networks import parse_networks
from keepai.model.clock import SystemClock
from keepai.model.errors import ConfigError, KeepError
from keepai.testing import loopback
from keepai.testing.loopback import HttpReply, Loopback, Request

HERE = ["127.0.0.0/8"]


def call(seconds: float = 5) -> Call:
    return Call(idempotency_key="key-1", deadline=SystemClock().steady_ms() + seconds * 1000)


def client_of(server: Loopback, **more: Any) -> Client:
    return Client(Rules.under([server.url], HERE, **more))


@pytest.fixture
def server() -> Iterator[Loopback]:
    def handle(request: Request) -> HttpReply:
        if request.path.startswith("/to/"):
            return HttpReply(302, headers={"Location": request.query["url"]})
        return HttpReply(200, {"path": request.path, "headers": dict(request.headers)})

    with Loopback(handle) as made:
        yield made


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [
    "93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808",
])
def test_public_addresses_are(address: str) -> None:
    assert forbidden(address) is None


def test_a_network_that_the_owner_names_is_allowed_and_no_other() -> None:
    allowed = parse_networks(["10.1.0.0/16", "::1"])
    assert forbidden("10.1.2.3", allowed) is None
    assert forbidden("::ffff:10.1.2.3", allowed) is None
    assert forbidden("::1", allowed) is None
    assert forbidden("10.2.0.1", allowed) is not None
    assert forbidden("127.0.0.1", allowed) is not None
    with pytest.raises(ConfigError, match="is not a network"):
        parse_networks(["10.1.0.0/99"])


async def test_of_several_addresses_only_the_allowed_ones_are_tried(server: Loopback) -> None:
    port = int(server.url.rpartition(":")[2])

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["169.254.169.254", "127.0.0.1"]

    client = Client(Rules.under([f"http://service.test:{port}/"], HERE), resolve=resolve)
    assert (await client.get(f"http://service.test:{port}/", call())).status == 200


# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [
    "https://api.example.com/v1/x", "https://API.example.com:443/v1/", "https://api.example.com/v1/?a=b",
    "https://api.example.com./v1/x", "https://api.example.com/v2", "https://api.example.com/v2/x",
    "https://api.example.com/v2?x=1",
])
def test_urls_below_a_prefix_are_allowed(url: str) -> None:
    Rules.under(["https://api.example.com/v1/", "https://api.example.com/v2"]).check(url)


async def test_by_default_only_https_on_its_own_port() -> None:
    for url in ("http://example.com/", "https://example.com:8443/"):
        with pytest.raises(Rejected, match="may not be reached"):
            await Client().get(url, call())


# -- redirects -------------------------------------------------------------------------------------


async def test_a_read_follows_redirects_within_the_rules(server: Loopback) -> None:
    answer = await client_of(server).get(f"{server.url}/to/?url=/there", call(), credentials={"X-Token": "t"})
    told: Any = answer.json()
    assert told["path"] == "/there"
    assert told["headers"]["x-token"] == "t"


# -- what is known ---------------------------------------------------------------------------------


async def test_what_was_never_sent_is_told_as_such() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        with pytest.raises(Transient, match=r"refused\. Nothing was sent"):
            await Client(Rules.under([url], HERE)).send("POST", url, call(), json={})


async def test_a_name_that_nobody_knows_is_transient() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(Transient, match=r"api\.example\.com cannot be looked up. Nothing was sent"):
        await Client(resolve=resolve).send("POST", "https://api.example.com/", call())


async def test_a_name_that_is_looked_up_for_ever_is_transient() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    with pytest.raises(Transient, match="Nothing was sent"):
        await Client(resolve=resolve).send("POST", "https://api.example.com/", call(0.05))


async def test_a_call_whose_time_is_over_sends_nothing(server: Loopback) -> None:
    with pytest.raises(Transient, match="before anything was sent"):
        await client_of(server).send("POST", server.url, call(0), json={})
    assert server.seen == []


@pytest.mark.parametrize("fault", [loopback.drop_before, loopback.drop_after, loopback.held])
async def test_whatever_was_sent_without_a_whole_answer_is_unknown(server: Loopback, fault: Any) -> None:
    with server.misbehaving(fault), pytest.raises(OutcomeUnknown):
        await client_of(server).send("POST", server.url, call(0.3), json={})


async def test_half_an_answer_is_unknown() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(OutcomeUnknown):
            await Client(Rules.under([url], HERE)).send("POST", url, call())


async def test_a_cancelled_request_leaves_no_connection_behind(server: Loopback) -> None:
    with server.misbehaving(loopback.held):
        task = asyncio.create_task(client_of(server).send("POST", server.url, call(), json={}))
        await asyncio.to_thread(server.arrived.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# -- limits ----------------------------------------------------------------------------------------


async def test_a_packed_answer_is_unpacked_and_a_broken_one_is_unknown() -> None:
    packed = gzip.compress(b'{"a": 1}')
    replies = [packed, packed[:-6], b"no gzip", packed + b"more" * 50_000]
    with Loopback(lambda _request: HttpReply(content=replies.pop(0), headers={"Content-Encoding": "gzip"})) as server:
        assert (await client_of(server).get(server.url, call())).json() == {"a": 1}
        for _ in range(3):
            with pytest.raises(OutcomeUnknown):
                await client_of(server).get(server.url, call())


# -- what stays secret, and what is not kept ---------------------------------------------------------


async def test_no_error_and_no_log_names_a_secret(server: Loopback, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    secret = {"Authorization": "Bearer s3cret"}
    for fault in (loopback.drop_after, loopback.held):
        with server.misbehaving(fault), pytest.raises(KeepError) as caught:
            await client_of(server).send("POST", f"{server.url}/?token=s3cret", call(0.2), credentials=secret)
        told.append(str(caught.value))
    bad = {"Authorization": "Bearer s3cret\r\nX: y"}
    with pytest.raises(Rejected) as refused:
        await client_of(server).send("POST", server.url, call(), credentials=bad)
    with pytest.raises(Rejected) as outside:
        await client_of(server).get("https://elsewhere.test/?token=s3cret", call())
    told += [str(refused.value), str(outside.value), caplog.text]
    assert not [text for text in told if "s3cret" in text]


async def test_cookies_and_proxies_of_the_environment_are_not_used(
    server: Loopback, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with server.misbehaving(loopback.instead(HttpReply(200, {}, {"Set-Cookie": "a=b"})), loopback.is_read):
        await client_of(server).get(server.url, call())
    answer: Any = (await client_of(server).get(server.url, call())).json()
    assert "cookie" not in answer["headers"]


async def test_retry_after_is_a_number_or_a_date_and_never_more_than_a_day() -> None:
    from keepai.connectors.egress import Response
    from keepai.testing import ManualClock

    clock = ManualClock("2026-01-05T09:00:00Z")
    said = {"7": 7.0, "Mon, 05 Jan 2026 09:01:00 GMT": 60.0, "Mon, 05 Jan 2026 08:00:00 GMT": 0.0, "soon": None,
            "": None, "99999999999": 86_400.0, "-5": None, "Mon, 99 Foo 2026": None}
    for text, seconds in said.items():
        assert Response(429, {"retry-after": text}, b"").retry_after(clock) == seconds, text


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for service.test that signs itself."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "service.test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(start).not_valid_after(start.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("service.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def tls_server(certificate: Path, requests: list[bytes]) -> asyncio.Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)


async def here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_tls_is_verified_for_the_name_though_the_address_is_given(certificate: Path) -> None:
    requests: list[bytes] = []
    server = await tls_server(certificate, requests)
    port = server.sockets[0].getsockname()[1]
    async with server:
        trusting = Rules.under([f"https://service.test:{port}/"], HERE, certificates=str(certificate))
        answer = await Client(trusting, resolve=here).send("POST", f"https://service.test:{port}/", call())
        assert answer.status == 200
        other = Rules.under([f"https://other.test:{port}/"], HERE, certificates=str(certificate))
        with pytest.raises(PreconditionFailed, match=r"certificate is not valid.*Nothing was sent"):
            await Client(other, resolve=here).send("POST", f"https://other.test:{port}/", call())
        unknown = Rules.under([f"https://service.test:{port}/"], HERE)
        with pytest.raises(PreconditionFailed, match=r"certificate is not valid.*Nothing was sent"):
            await Client(unknown, resolve=here).send("POST", f"https://service.test:{port}/", call())
    assert len(requests) == 1
