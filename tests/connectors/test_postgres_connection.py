"""The connector `sql` connects to PostgreSQL with keep.toml and the vault alone, and only to a proven server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from keepai import Call, PermissionDenied, PreconditionFailed
from keepai.connectors import make
from keepai.connectors.sql import postgres_connection
from keepai.connectors.sql.postgres_connection import parameters
from keepai.model.errors import ConfigError, ConnectorError
from tests.postgres import PASSWORD, Proxy, binaries, shared

needs_server = pytest.mark.skipif(binaries() is None, reason="there is no PostgreSQL here")

#: A process that connects as a host would, and says as whom and with which settings it is there.
CHILD = """
import asyncio, json, os, sys
from keepai.connectors.sql import postgres_connection
order = json.loads(sys.argv[1])
own = dict(os.environ)
async def main():
    connection = await postgres_connection.connect(order["url"], order["password"], 5)
    asked = "select current_user, current_database(), current_setting('search_path'), "
    asked += "current_setting('default_transaction_read_only'), current_setting('application_name'), inet_server_port()"
    print(json.dumps((await (await connection.execute(asked)).fetchone())))
    await connection.close()
for variables in order["variables"]:
    os.environ.clear()
    os.environ.update(own | variables)
    try:
        asyncio.run(main())
    except Exception as error:
        print(json.dumps(type(error).__name__ + ": " + " ".join(str(error).split())))
"""


def said_by_children(home: Path, password: str | None, *variables: dict[str, str]) -> list[Any]:
    """What a process comes to that connects with each of these sets of variables."""
    order = json.dumps({"url": shared().url(), "password": password, "variables": variables})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, order], env={**os.environ, "HOME": str(home)}, capture_output=True, text=True,
        timeout=60, check=True)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def there() -> list[Any]:
    return ["postgres", "postgres", '"$user", public', "off", "keep", shared().port]


VARIABLES = {
    "PGHOST": "192.0.2.1", "PGHOSTADDR": "192.0.2.1", "PGPORT": "1", "PGDATABASE": "other", "PGUSER": "other",
    "PGPASSWORD": "wrong", "PGSERVICE": "other", "PGOPTIONS": "-c default_transaction_read_only=on -c search_path=evil",
    "PGSSLMODE": "verify-full", "PGREQUIREAUTH": "none", "PGAPPNAME": "other", "PGTARGETSESSIONATTRS": "standby",
    "PGCONNECT_TIMEOUT": "nonsense", "PGLOADBALANCEHOSTS": "nonsense", "PGSSLCERTMODE": "require",
    "PGMINPROTOCOLVERSION": "nonsense", "PGSSLNEGOTIATION": "direct", "PGCHANNELBINDING": "require",
    "PGGSSENCMODE": "require", "PGSYSCONFDIR": "/nowhere", "PGCLIENTENCODING": "nonsense",
}


@needs_server
def test_no_variable_changes_where_or_how_keep_connects(tmp_path: Path) -> None:
    each = [{name: value} for name, value in VARIABLES.items()]
    said = said_by_children(tmp_path, PASSWORD, *each, VARIABLES)
    assert {name: answer for name, answer in zip([*VARIABLES, "all"], said, strict=True) if answer != there()} == {}


@needs_server
def test_a_service_file_is_not_read(tmp_path: Path) -> None:
    services = "[other]\nhost=192.0.2.1\noptions=-c search_path=evil\n"
    (tmp_path / ".pg_service.conf").write_text(services)
    (tmp_path / "services").write_text(services)
    named = {"PGSERVICE": "other", "PGSERVICEFILE": str(tmp_path / "services")}
    assert said_by_children(tmp_path, PASSWORD, {"PGSERVICE": "other"}, named) == [there(), there()]


@needs_server
def test_a_password_comes_from_the_vault_only(tmp_path: Path) -> None:
    line = f"*:*:*:*:{PASSWORD}\n"
    for name in (".pgpass", "elsewhere"):
        (tmp_path / name).write_text(line)
        (tmp_path / name).chmod(0o600)
    ways: list[dict[str, str]] = [{}, {"PGPASSFILE": str(tmp_path / "elsewhere")}, {"PGPASSWORD": PASSWORD}]
    said = said_by_children(tmp_path, None, *ways)
    assert ["no password supplied" in each for each in said] == [True] * 3, said


@needs_server
def test_the_variables_are_there_again_for_everybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSERVICE", "other")

    async def connected() -> None:
        connection = await postgres_connection.connect(shared().url(), PASSWORD, 5)
        assert os.environ["PGSERVICE"] == "other"
        await connection.close()

    asyncio.run(connected())


@needs_server
async def test_a_driver_that_connects_in_another_way_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    monkeypatch.setattr(postgres_connection, "_connection_class", lambda: psycopg.AsyncConnection)
    with pytest.raises(PreconditionFailed, match="in a way that Keep does not know"):
        await postgres_connection.connect(shared().url(), PASSWORD, 5)


@pytest.mark.parametrize("name", ["service=x", "passfile=/x", "password=x"])
def test_a_url_names_no_file_of_parameters_and_no_password(name: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match="must not"):
        make("sql", "books", {"url": f"postgresql://u@h/d?{name}", "tables": ["a"]})


def test_a_url_that_libpq_cannot_read_is_refused_at_once() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match="not an address"):
        make("sql", "books", {"url": "postgresql://u@h/d?nonsense=1", "tables": ["a"]})


OFF, ON = "verify-full", None
HOSTS = {
    "postgresql://u@db.example.com/d": OFF, "postgresql://u@10.0.0.1/d": OFF, "postgresql://u@127.0.0.1/d": ON,
    "postgresql://u@127.8.9.1/d": ON, "postgresql://u@[::1]/d": ON, "postgresql://u@[2001:db8::1]/d": OFF,
    "postgresql://u@localhost/d": ON, "postgresql://u@LOCALHOST/d": ON, "postgresql:///d": ON,
    "postgresql:///d?host=/run/postgresql": ON, "postgresql://u@localhost,db.example.com/d": OFF,
    "postgresql://u@localhost.example.com/d": OFF, "postgresql://u@localhost/d?hostaddr=10.0.0.1": OFF,
    "postgresql://u@db.example.com/d?hostaddr=127.0.0.1": ON, "postgresql://u@/d?host=db.example.com": OFF,
    "postgresql://u@127.0.0.1.example.com/d": OFF, "postgresql://u@0.0.0.0/d": OFF,
}


@pytest.mark.parametrize("url", HOSTS)
def test_off_the_loopback_a_server_must_prove_who_it_is(url: str) -> None:
    pytest.importorskip("psycopg")
    made = parameters(url)
    assert made.get("sslmode") == HOSTS[url]
    assert ("sslrootcert" in made) is (HOSTS[url] is OFF)
    assert made["require_auth"] == "scram-sha-256"
    assert made["sslcertmode"] == "disable"


def test_what_keep_toml_says_counts() -> None:
    pytest.importorskip("psycopg")
    said = "sslmode=require&require_auth=none&sslcert=/c&sslrootcert=/r&gssencmode=prefer&target_session_attrs=primary"
    made = parameters(f"postgresql://u@db.example.com:6432/d?{said}")
    for pair in (*said.split("&"), "host=db.example.com", "port=6432"):
        name, _, value = pair.partition("=")
        assert made[name] == value
    assert "sslcertmode" not in made


def books(url: str) -> Any:
    connector = make("sql", "books", {"url": url, "tables": ["bill"], "timeout": 5})
    connector.entrust({"password": PASSWORD})
    return connector


async def refused(url: str) -> ConnectorError:
    spec = books(url).operations["query"]
    with pytest.raises(ConnectorError) as caught:
        await spec.invoke(spec.parse({"table": "bill"}), Call())
    return caught.value


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """db.example.test is a server off the loopback, as far as anybody can tell from its name."""
    loop = asyncio.get_running_loop()
    real = loop.getaddrinfo

    async def resolved(host: Any, port: Any, **more: Any) -> Any:
        return await real("127.0.0.1" if host == "db.example.test" else host, port, **more)

    monkeypatch.setattr(loop, "getaddrinfo", resolved)


@needs_server
async def test_a_server_elsewhere_without_tls_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(monkeypatch)
    with Proxy(shared().port) as proxy:
        error = await refused(f"postgresql://postgres@db.example.test:{proxy.port}/postgres")
        assert isinstance(error, PreconditionFailed)
        assert "sslmode" in error.message
        proxy.settled()
        assert len(proxy.seen) == 8, "it asked for TLS, and named neither user nor database"
        plain = books(f"postgresql://postgres@db.example.test:{proxy.port}/postgres?sslmode=disable")
        with pytest.raises(ConnectorError, match="bill"):  # it is in, and there is no such table
            await plain.check()


@contextmanager
def demanding(answer: bytes) -> Iterator[tuple[int, bytearray]]:
    """A server that answers the first message of a client with this, and keeps what it is told."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def serve() -> None:
            client, _ = listening.accept()
            with client, suppress(OSError):  # a client that goes away may reset
                while data := client.recv(65536):
                    heard.extend(data)
                    if PASSWORD.encode() in heard:
                        return  # it has what it wanted
                    client.sendall(b"N" if data[4:8] == b"\x04\xd2\x16\x2f" else answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], heard
        thread.join(5)


ANSWERS = {
    "the password in the clear": b"R\0\0\0\x08\0\0\0\x03",
    "the password with MD5": b"R\0\0\0\x0c\0\0\0\x05salt",
    "nothing": b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I",
}


@pytest.mark.parametrize("wanted", ANSWERS)
async def test_a_server_that_does_not_use_scram_is_not_given_the_password(wanted: str) -> None:
    pytest.importorskip("psycopg")
    with demanding(ANSWERS[wanted]) as (port, heard):
        error = await refused(f"postgresql://ann@127.0.0.1:{port}/d")
    assert isinstance(error, PermissionDenied)
    assert "require_auth" in error.message
    assert b"ann" in heard
    assert PASSWORD.encode() not in heard
    assert b"md5" not in heard


async def test_a_person_may_say_that_another_way_is_right() -> None:
    pytest.importorskip("psycopg")
    with demanding(ANSWERS["the password in the clear"]) as (port, heard):
        await refused(f"postgresql://ann@127.0.0.1:{port}/d?require_auth=password")
    assert PASSWORD.encode() in heard


# -- certificates --------------------------------------------------------------------------------------------


def certified(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS with a certificate for a name, and the file of its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority, private = folder / f"{name}.pem", folder / f"{name}.key"
    authority.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, private)
    return context, authority


@asynccontextmanager
async def behind_tls(context: ssl.SSLContext) -> AsyncIterator[int]:
    """The real server, which has no TLS itself, behind somebody who has."""
    opened: list[asyncio.StreamWriter] = []
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        opened.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(8)
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(context)
            there, on = await asyncio.open_connection("127.0.0.1", shared().port)
            opened.append(on)
            await asyncio.gather(_pass(reader, on), _pass(there, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for each in opened:
            each.close()
        for each in opened:
            with suppress(OSError):
                await each.wait_closed()
        await asyncio.wait(serving, timeout=5)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


#: Whose certificate the server shows, and what the url says of TLS → whether Keep goes in.
PROOFS = {
    "its own, of an authority that keep.toml names": ("db.example.test", "sslrootcert={authority}", True),
    "its own, of an authority that nobody knows": ("db.example.test", "", False),
    "another one's, of the same authority": ("evil.example.test", "sslrootcert={authority}", False),
    "another one's, and keep.toml wants no more than TLS": ("evil.example.test", "sslmode=require", True),
}


@needs_server
@pytest.mark.parametrize("proof", PROOFS)
async def test_a_server_elsewhere_is_let_in_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proof: str,
) -> None:
    name, said, good = PROOFS[proof]
    context, authority = certified(tmp_path, name)
    elsewhere(monkeypatch)
    async with behind_tls(context) as port:
        where = f"postgresql://postgres@db.example.test:{port}/postgres?{said.format(authority=authority)}"
        if good:
            connection = await postgres_connection.connect(where, PASSWORD, 5)
            await connection.close()
        else:
            error = await refused(where)
            assert isinstance(error, PreconditionFailed)
            assert "did not prove who it is" in error.message
