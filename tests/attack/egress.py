# ruff: noqa: E501 (an attack is read best on one line)
"""The one HTTP client, by URLs, names, redirects and answers that would lead it elsewhere or hold it up."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import posixpath
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, unquote

import httpcore2

from keepai.connectors.base import Call
from keepai.connectors.egress import Client, Rules, dns, networks, url_rules
from keepai.model.clock import SystemClock
from keepai.model.errors import ConnectorError, KeepError, OutcomeUnknown, Rejected
from keepai.testing.loopback import HttpReply, Loopback, Request
from tests.attack.base import Area, Attack, Broken, Planted, must, refused

HERE = ["127.0.0.0/8"]
SPECIAL = (
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "168.63.129.16", "192.88.99.1", "203.0.113.7", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254",
    "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:c0a8:101::", "2001::1", "2001:db8::1", "3fff::1",
)
SPELLED = ("localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "[::ffff:127.0.0.1]", "[0:0:0:0:0:0:0:1]",
           "127.0.0.1.", "0", "[::ffff:7f00:1]", "017700000001", "0x7f000001")
OTHER_URLS = (
    "http://api.example.com/v1/x", "https://api.example.com:8443/v1/x", "https://api.example.com/v1",
    "https://api.example.com/v22", "https://api.example.com/", "https://example.com/v1/", "ftp://api.example.com/v1/",
    "https://api.example.com@evil.test/v1/", "https://u:p@api.example.com/v1/x", "https://api.example.com.evil.test/v1/",
    "https://api.example.com/v1/../admin", "https://api.example.com/v1/%2e%2e/admin", "https://api.example.com/v1/..;x/admin",
    "https://api.example.com/v1/%252e%252e/admin", "https://api.example.com/v1/..%2fadmin",
    "https://api.example.com\\@evil.test/v1/", "https://api.example.com/v1/ x", "https://api.example.com/v1/\nx",
    "//api.example.com/v1/", "file:///etc/passwd", "", "https://", "https://api.example.com/v1/" + "x" * 9000,
    "gopher://api.example.com/v1/", "https://api.example.com:443@evil.test/v1/", "https://evil.test#@api.example.com/v1/",
)


@dataclass
class Net:
    """What was connected to, beside the servers of this process."""

    port: int
    server: Loopback
    connected: list[str] = field(default_factory=list)


@contextmanager
def _watched(connected: list[str]) -> Iterator[None]:
    """No connection is made to anything but this process; each that was tried is noted."""
    real = httpcore2.AnyIOBackend.connect_tcp

    async def connect(self: Any, host: str, port: int, *more: Any, **options: Any) -> Any:
        connected.append(host)
        if host != "127.0.0.1":
            raise httpcore2.ConnectError("nothing leaves this machine")
        return await real(self, host, port, *more, **options)

    with patch.object(httpcore2.AnyIOBackend, "connect_tcp", connect):
        yield


@asynccontextmanager
async def place(_folder: Path) -> AsyncIterator[Net]:
    def handle(request: Request) -> HttpReply:
        if "to" in request.query:
            return HttpReply(302, headers={"Location": request.query["to"]})
        return HttpReply(200, {"headers": dict(request.headers)})

    with Loopback(handle) as server:
        net = Net(int(server.url.rpartition(":")[2]), server)
        with _watched(net.connected):
            yield net


def call(seconds: float = 5) -> Call:
    return Call(idempotency_key="key-1", deadline=SystemClock().steady_ms() + seconds * 1000)


def attacks(net: Net) -> Iterator[Attack]:
    for address in SPECIAL:
        yield Attack(f"a public name leads to {address}", lambda a=address: _named(net, a))
        if "127." not in address and "7f00" not in address:  # where this attack comes from is allowed
            yield Attack(f"a redirect leads to a name of {address}", lambda a=address: _redirected(net, a))
    for host in SPELLED:
        yield Attack(f"the machine itself is spelled {host}", lambda host=host: _spelled(net, host))
    for url in OTHER_URLS:
        yield Attack(f"a URL outside of the prefixes: {url[:60]!r}", lambda url=url: _outside(url))
    for url in ("http://169.254.169.254/latest/", "https://evil.test/", "file:///etc/passwd", "//evil.test/x",
                "http://127.0.0.1:1/", "\\\\evil.test\\x"):
        yield Attack(f"a redirect leaves the rules: {url!r}", lambda url=url: _leaves(net, url))
    yield Attack("a name points elsewhere at its second look-up", lambda: _rebinds(net))
    yield Attack("a redirect to another origin carries the credentials along", lambda: _credentials(net))
    yield Attack("a redirect without end", _endless)
    yield Attack("a mutation is redirected", lambda: _moved(net))
    for name, reply in {
        "a large answer": HttpReply(content=b"x" * 100_000),
        "an answer that grows when it is unpacked": HttpReply(
            content=gzip.compress(b"x" * 50_000_000), headers={"Content-Encoding": "gzip"}),
    }.items():
        yield Attack(f"{name} fills the memory", lambda reply=reply: _large(reply))
    yield Attack("an answer trickles for ever", _trickles)
    for value in ("x\r\nX-Evil: 1", "x\nHost: evil.test", "x\x00y", "x\ry"):
        yield Attack(f"a header brings another header: {value!r}", lambda value=value: _header(net, value))


def _always(address: str) -> dns.Resolve:
    async def resolve(host: str, _port: int) -> list[str]:
        return ["127.0.0.1"] if host == "here.test" else [address]

    return resolve


async def _named(net: Net, address: str) -> None:
    net.connected.clear()
    client = Client(Rules(schemes=frozenset({"http"}), ports=frozenset({80})), resolve=_always(address))
    with refused(f"{address} was connected to", ConnectorError):
        await client.send("POST", "http://service.test/", call())
    must(not net.connected, f"{net.connected} was connected to")


async def _redirected(net: Net, address: str) -> None:
    net.connected.clear()
    allowed = Rules(schemes=frozenset({"http"}), ports=frozenset({net.port, 9}), networks=networks.parse_networks(HERE))
    url = f"http://here.test:{net.port}/?to={quote('http://inside.test:9/')}"
    with refused(f"{address} was connected to", ConnectorError):
        await Client(allowed, resolve=_always(address)).get(url, call())
    must(set(net.connected) == {"127.0.0.1"}, f"{net.connected} was connected to")


async def _spelled(net: Net, host: str) -> None:
    net.connected.clear()
    client = Client(Rules(schemes=frozenset({"http"}), ports=frozenset({net.port})))
    with refused("this machine was connected to", ConnectorError):
        await client.send("POST", f"http://{host}:{net.port}/", call())
    must(not net.connected, f"{net.connected} was connected to")


def _outside(url: str) -> None:
    with refused("it was allowed", Rejected):
        Rules.under(["https://api.example.com/v1/", "https://api.example.com/v2"]).check(url)


async def _leaves(net: Net, url: str) -> None:
    net.connected.clear()
    with refused("it was followed", ConnectorError):
        await Client(Rules.under([net.server.url], HERE)).get(f"{net.server.url}/?to={quote(url, safe='')}", call())
    must(net.connected == ["127.0.0.1"], f"{net.connected} was connected to")


async def _rebinds(net: Net) -> None:
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.5"]

    net.connected.clear()
    client = Client(Rules.under([f"http://service.test:{net.port}/"], HERE), resolve=resolve)
    await client.get(f"http://service.test:{net.port}/x", call())
    must(asked == ["service.test"] and net.connected == ["127.0.0.1"], f"it asked {len(asked)} times: {net.connected}")


async def _credentials(net: Net) -> None:
    with Loopback(lambda request: HttpReply(200, dict(request.headers))) as other:
        client = Client(Rules.under([net.server.url, other.url], HERE))
        url = f"{net.server.url}/?to={quote(other.url)}"
        told: Any = (await client.get(url, call(), credentials={"X-Token": "t", "Authorization": "Bearer s"})).json()
    must("x-token" not in told and "authorization" not in told and "cookie" not in told, f"it was sent {told}")


async def _endless() -> None:
    with Loopback(lambda _request: HttpReply(302, headers={"Location": "/again"})) as server:
        with refused("it was followed to an end", Rejected):
            await Client(Rules.under([server.url], HERE)).get(server.url, call())
        must(len(server.seen) <= 6, f"it was followed {len(server.seen)} times")


async def _moved(net: Net) -> None:
    net.server.seen.clear()
    url = f"{net.server.url}/?to={quote(net.server.url + '/there')}"
    answer = await Client(Rules.under([net.server.url], HERE)).send("POST", url, call(), json={})
    must(answer.status == 302 and len(net.server.seen) == 1, f"it was sent {len(net.server.seen)} times")


async def _large(reply: HttpReply) -> None:
    with Loopback(lambda _request: reply) as server, refused("it was read whole", OutcomeUnknown):
        await Client(Rules.under([server.url], HERE, bytes_max=1000)).get(server.url, call())


async def _trickles() -> None:
    over = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not over.is_set():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        try:
            async with asyncio.timeout(5):
                with refused("it was waited for", OutcomeUnknown):
                    await Client(Rules.under([url], HERE)).get(url, call(0.2))
        finally:
            over.set()
            await asyncio.sleep(0.05)


async def _header(net: Net, value: str) -> None:
    net.server.seen.clear()
    with refused("it was sent", Rejected):
        await Client(Rules.under([net.server.url], HERE)).send("POST", net.server.url, call(), headers={"X": value})
    must(not net.server.seen, f"{net.server.seen} was sent")


_PIECES = ("/", "..", ".", "%2e", "%2f", "%5c", "\\", "%252e", "v1", "v1/", "x", "?", "#", ";", "@", ":", "//", "evil.test",
           "service.test", "%00", "\t", " ", "%", "&", "\uff0e", "\uff0f", "[", "]", "%40", "V1", "\u3002")


def drawn(net: Net, chance: Random) -> Attack:
    """A URL of pieces, or a number that is an address; what is connected to and asked for is looked at."""
    if chance.random() < 0.3:
        return _number(net, chance)
    prefix = f"http://service.test:{net.port}/v1/"
    begin = chance.choice([prefix, prefix, f"http://service.test:{net.port}", "http://", f"http://service.test:{net.port}/v1"])
    url = begin + "".join(chance.choice(_PIECES) for _ in range(chance.randint(1, 8)))

    async def attack() -> None:
        net.server.seen.clear()
        net.connected.clear()
        client = Client(Rules.under([prefix], HERE), resolve=_only_service)
        try:
            await client.send("POST", url, call())
        except KeepError:
            pass
        must(set(net.connected) <= {"127.0.0.1"}, f"{net.connected} was connected to")
        for request in net.server.seen:
            must(request.headers["host"] == f"service.test:{net.port}", f"the host was {request.headers['host']}")
            must(_is_below(request.path), f"{request.path} was asked for")

    return Attack(f"a URL of pieces: {url!r}", attack)


async def _only_service(host: str, _port: int) -> list[str]:
    return ["127.0.0.1" if host.rstrip(".") == "service.test" else "93.184.216.34"]


def _is_below(path: str) -> bool:
    for _ in range(3):
        path = "/".join(part.partition(";")[0] for part in path.replace("\\", "/").split("/"))
        if not f"{posixpath.normpath(path)}/".startswith("/v1/"):
            return False
        path = unquote(path)
    return True


def _number(net: Net, chance: Random) -> Attack:
    """An address in one of its many spellings."""
    value = chance.choice([chance.getrandbits(32), int(ipaddress.ip_address(chance.choice(SPECIAL[:17])))])
    dotted = ipaddress.IPv4Address(value)
    a, b, c, d = dotted.packed
    host = chance.choice([
        str(dotted), str(value), hex(value), oct(value).replace("0o", "0"), f"{a}.{(b << 16) + (c << 8) + d}",
        f"0x{a:x}.{b}.{c:o}.{d}", f"[::ffff:{dotted}]", f"[64:ff9b::{a << 8 | b:x}:{c << 8 | d:x}]", f"{dotted}.",
        f"[2002:{a << 8 | b:x}:{c << 8 | d:x}::]", f"{a}.{b}.{c << 8 | d}",
    ])

    async def attack() -> None:
        net.connected.clear()
        client = Client(Rules(schemes=frozenset({"http"}), ports=frozenset({80})))
        try:
            await client.send("POST", f"http://{host}/", call())
        except KeepError:
            pass
        for each in net.connected:
            if not _is_public(each):
                raise Broken(f"{each} was connected to")

    return Attack(f"an address that is spelled {host}", attack)


def _is_public(text: str) -> bool:
    """By Python's own register, for the address and for the one that is inside of it."""
    found = ipaddress.ip_address(text)
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    if found.version == 6 and found in ipaddress.ip_network("64:ff9b::/96"):
        inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return all(each.is_global and not each.is_multicast for each in (found, inner) if each is not None)


AREA = Area(
    "egress", "the HTTP client, by URLs, names, redirects and answers", place, attacks, drawn,
    (
        Planted("private addresses are allowed", lambda: patch.object(dns, "forbidden", lambda *_: None), "leads to"),
        Planted("private addresses are allowed, seen by drawn ones", lambda: patch.object(dns, "forbidden", lambda *_: None),
                rounds=60),
        Planted("dots in a path stay", lambda: patch.object(url_rules, "_climbs", lambda path: False), "a URL outside"),
    ),
)
