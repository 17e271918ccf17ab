"""Each channel against a real server on the loopback: SMTP, HTTP, programs, Apprise."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP as Server
from aiosmtpd.smtp import AuthResult, Envelope, Session

from keepai.model.errors import ConfigError
from keepai.notices import TYPES, load, make
from keepai.notices.base import Channel, Message, Undelivered, fitting
from keepai.testing.loopback import HttpReply, Loopback, drop_before, instead
from tests.connectors.mail_servers import make_certificates

SECRET = "s3cr3t-Pa55"
MESSAGE = Message(
    "question", "invoices: May this be sent? äöü 漢", "what: gmail.send\n<!channel> & <https://evil.example|Approve>",
    1767603600000,
    "k1", "http://127.0.0.1:7777/needs-you", {"questions": [{"id": "apr_1"}]},
)


def channel(kind: str, folder: Path = Path(), secrets: dict[str, str] | None = None, **settings: Any) -> Channel:
    made = make(kind, "ops", settings, folder)
    made.entrust(secrets or {})
    return made


# -- mail ------------------------------------------------------------------------------------------


class Mailbox:
    """Takes mail, but not for nobody@example.com."""

    def __init__(self) -> None:
        self.got: list[EmailMessage] = []

    async def handle_RCPT(self, server: Server, session: Session, envelope: Envelope, to: str, options: Any) -> str:
        if to == "nobody@example.com":
            return "550 no such mailbox"
        envelope.rcpt_tos.append(to)
        return "250 OK"

    async def handle_DATA(self, server: Server, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.got.append(mail)
        return "250 OK"


@asynccontextmanager
async def serving(security: str = "none", home: Path = Path()) -> AsyncIterator[tuple[Mailbox, int]]:
    """A real server; with a certificate for localhost in `home`, signed by its `ca.pem`, where that is asked for."""
    mailbox, context = Mailbox(), None
    if security != "none":
        make_certificates(home)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(home / "server.pem", home / "server.key")

    def check(server: Server, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        return AuthResult(success=data.password == SECRET.encode(), handled=False)

    def protocol() -> Server:
        later = {"tls_context": context, "require_starttls": True} if security == "starttls" else {}
        return Server(
            mailbox, authenticator=check, auth_require_tls=False, enable_SMTPUTF8=True, hostname="here", **later)

    listening = await asyncio.get_running_loop().create_server(
        protocol, "127.0.0.1", 0, ssl=context if security == "tls" else None)
    async with listening:
        yield mailbox, listening.sockets[0].getsockname()[1]


@pytest.fixture
async def smtp() -> AsyncIterator[tuple[Mailbox, int]]:
    async with serving() as server:
        yield server


def mail(port: int, *to: str, secrets: dict[str, str] | None = None, folder: Path = Path(), **more: Any) -> Channel:
    settings = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "keep@example.com", **more}
    return channel("email", folder, secrets, to=list(to or ("ann@example.com",)), **settings)


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_mail_and_password_travel_encrypted_to_a_server_whose_authority_is_trusted(
    security: str, tmp_path: Path,
) -> None:
    async with serving(security, tmp_path) as (mailbox, port):
        trusting = {"host": "localhost", "tls": security, "certificates": "ca.pem", "folder": tmp_path}
        right = mail(port, username="keep", secrets={"password": SECRET}, **trusting)
        assert await right.send(MESSAGE) is None
    assert [got["Subject"] for got in mailbox.got] == [MESSAGE.title]


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_nothing_is_said_to_a_server_whose_certificate_nobody_vouches_for(security: str, tmp_path: Path) -> None:
    async with serving(security, tmp_path) as (mailbox, port):
        with pytest.raises(Undelivered, match="its certificate is not valid"):
            await mail(port, host="localhost", tls=security).send(MESSAGE)
    assert mailbox.got == []


async def test_mail_is_not_sent_in_clear_to_a_server_without_starttls(smtp: tuple[Mailbox, int]) -> None:
    mailbox, port = smtp
    with pytest.raises(Undelivered):
        await mail(port, tls="starttls").send(MESSAGE)
    assert mailbox.got == []


async def test_mail_arrives_as_plain_text_that_no_mailbox_answers(smtp: tuple[Mailbox, int]) -> None:
    mailbox, port = smtp
    for _ in range(2):
        assert await mail(port).send(MESSAGE) is None
    got, again = mailbox.got
    assert got["Subject"] == MESSAGE.title
    assert (got["From"], got["To"]) == ("keep@example.com", "ann@example.com")
    assert (got["Auto-Submitted"], got.get_content_type()) == ("auto-generated", "text/plain")
    assert got.get_content().split() == MESSAGE.text.split()
    assert got["Date"].datetime.isoformat() == "2026-01-05T09:00:00+00:00"
    assert got["Message-ID"] == again["Message-ID"], "told twice by chance, it is the same mail"


async def test_mail_signs_in_and_says_no_password_when_that_fails(smtp: tuple[Mailbox, int]) -> None:
    mailbox, port = smtp
    await mail(port, username="keep", secrets={"password": SECRET}).send(MESSAGE)
    assert len(mailbox.got) == 1
    with pytest.raises(Undelivered, match="refused the user name or the password") as refused:
        await mail(port, username="keep", secrets={"password": "another " + SECRET}).send(MESSAGE)
    assert SECRET not in refused.value.message
    with pytest.raises(Undelivered, match="has no secret password"):
        await mail(port, username="keep").send(MESSAGE)


async def test_mail_that_some_do_not_get_is_taken_with_a_remark(smtp: tuple[Mailbox, int]) -> None:
    mailbox, port = smtp
    remark = await mail(port, "ann@example.com", "nobody@example.com").send(MESSAGE)
    assert (remark, len(mailbox.got)) == ("127.0.0.1 refused 1 of 2 addresses.", 1)
    with pytest.raises(Undelivered, match="every recipient"):
        await mail(port, "nobody@example.com").send(MESSAGE)


async def test_mail_never_goes_without_the_encryption_that_was_asked_for(smtp: tuple[Mailbox, int]) -> None:
    mailbox, port = smtp
    for tls in ("starttls", "tls"):
        with pytest.raises(Undelivered):
            await mail(port, tls=tls).send(MESSAGE)
    assert mailbox.got == []


async def test_a_mail_server_that_is_not_there_is_said() -> None:
    with pytest.raises(Undelivered, match=r"127\.0\.0\.1:9 cannot be reached"):
        await mail(9).send(MESSAGE)


# -- HTTP ------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda request: HttpReply(content=b"ok")) as loopback:
        yield loopback


def slack(server: Loopback, networks: list[str] | None = None) -> Channel:
    secrets = {"url": f"{server.url}/services/T0/B0/{SECRET}"}
    return channel("slack", secrets=secrets, networks=["127.0.0.1"] if networks is None else networks)


async def test_slack_gets_text_in_which_nothing_is_a_link_or_a_call_to_everybody(server: Loopback) -> None:
    await slack(server).send(MESSAGE)
    [request] = server.seen
    assert (request.method, request.path) == ("POST", f"/services/T0/B0/{SECRET}")
    body = request.json()
    assert body["text"].startswith(MESSAGE.title)
    assert "&lt;!channel&gt; &amp; &lt;https" in body["text"]
    assert "<" not in body["text"]
    assert (body["mrkdwn"], body["unfurl_links"]) == (False, False)


async def test_the_address_of_a_webhook_is_in_no_error(server: Loopback) -> None:
    told = []
    for fault in (instead(HttpReply(status=404, content=SECRET.encode())), drop_before):
        with server.misbehaving(fault), pytest.raises(Undelivered) as failed:
            await slack(server).send(MESSAGE)
        told.append(failed.value.message)
    with pytest.raises(Undelivered, match="the machine itself") as failed:
        await slack(server, networks=[]).send(MESSAGE)
    told.append(failed.value.message)
    with pytest.raises(Undelivered) as failed:
        await channel("slack", secrets={"url": f"gopher://{SECRET}"}).send(MESSAGE)
    told.append(failed.value.message)
    assert "status 404" in told[0]
    assert not [each for each in told if SECRET in each or "services" in each]


async def test_ntfy_gets_the_message_its_topic_and_a_page_to_open(server: Loopback) -> None:
    settings = {"url": server.url, "topic": "keep-7", "networks": ["127.0.0.1"]}
    await channel("ntfy", signed_in=True, secrets={"token": SECRET}, **settings).send(MESSAGE)
    await channel("ntfy", **settings).send(MESSAGE)
    first, second = server.seen
    assert first.headers["authorization"] == f"Bearer {SECRET}"
    assert "authorization" not in second.headers
    assert first.json() == {"topic": "keep-7", "title": MESSAGE.title, "message": MESSAGE.text, "click": MESSAGE.link}
    assert "actions" not in first.json()


async def test_ntfy_cuts_what_would_become_a_file(server: Loopback) -> None:
    long = Message("question", "long", "ä" * 10_000, 0, "k")
    await channel("ntfy", url=server.url, topic="t", networks=["127.0.0.1"]).send(long)
    message = server.seen[0].json()["message"]
    assert len(message.encode()) <= 4_096
    assert message.endswith("`keep todo` shows everything.")


# -- programs --------------------------------------------------------------------------------------


def program(folder: Path, text: str) -> list[str]:
    (folder / "tell.py").write_text(text)
    return [sys.executable, "tell.py"]


async def test_a_program_gets_the_message_as_json_and_nothing_of_keeps_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEEP_PASSWORD", SECRET)
    words = program(tmp_path, "import sys, os; open('got', 'w').write(sys.stdin.read() + repr(dict(os.environ)))")
    await channel("command", tmp_path, command=words).send(MESSAGE)
    got = (tmp_path / "got").read_text()
    told, _ = json.JSONDecoder().raw_decode(got)
    assert told == MESSAGE.to_json()
    assert told["questions"] == [{"id": "apr_1"}]
    assert SECRET not in got


@pytest.mark.parametrize("text", ["import sys; sys.stdin.read(); sys.exit(3)", "import sys; sys.exit(3)"])
async def test_a_program_that_fails_has_not_taken_it(tmp_path: Path, text: str) -> None:
    big = Message("question", "t", "x" * 1_000_000, 0, "k")
    with pytest.raises(Undelivered, match="ended with code 3"):
        await channel("command", tmp_path, command=program(tmp_path, text)).send(big)


async def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Undelivered, match="nosuch cannot be run: No such file"):
        await channel("command", tmp_path, command=["./nosuch"]).send(MESSAGE)


async def test_a_program_that_does_not_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    words = program(tmp_path, """
import os, subprocess, time
child = subprocess.Popen(["sleep", "60"])
open("pids.part", "w").write(f"{os.getpid()} {child.pid}")
os.rename("pids.part", "pids")
time.sleep(60)
""")
    sending = asyncio.ensure_future(channel("command", tmp_path, command=words).send(MESSAGE))
    async with asyncio.timeout(20):
        await until((tmp_path / "pids").exists)
        sending.cancel()
        await asyncio.wait({sending})
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        await until(lambda: not any(map(_lives, pids)))


async def test_a_program_that_is_cut_off_while_it_starts_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = asyncio.create_subprocess_exec
    begun, pids = asyncio.Event(), list[int]()

    async def slow(*words: str, **more: Any) -> Any:
        process = await made(*words, **more)
        pids.append(process.pid)
        begun.set()
        await asyncio.sleep(0.05)  # the program runs already, and its start is not over for us
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    sending = asyncio.ensure_future(channel("command", tmp_path, command=["sleep", "60"]).send(MESSAGE))
    await begun.wait()
    sending.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait({sending})
        await until(lambda: not any(map(_lives, pids)))
    assert sending.cancelled()


async def until(holds: Callable[[], bool]) -> None:
    """Another process is waited for: nothing tells when it is there."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- Apprise ---------------------------------------------------------------------------------------


#: Its own imports are deprecated, which is not ours to mend.
LOADING = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@LOADING
async def test_apprise_sends_to_every_address_and_says_which_did_not_take_it(server: Loopback) -> None:
    here = server.url.replace("http://", "json://")
    good = channel("apprise", secrets={"urls": f"{here}/a {here}/b"})
    assert await good.send(MESSAGE) is None
    assert sorted(request.path for request in server.seen) == ["/a", "/b"]
    assert server.seen[0].json()["title"] == MESSAGE.title
    half = channel("apprise", secrets={"urls": f"{here}/c nosuch://{SECRET}"})
    assert await half.send(MESSAGE) == "Apprise could not reach address 2 of 2."
    with pytest.raises(Undelivered) as failed:
        await channel("apprise", secrets={"urls": f"nosuch://{SECRET}"}).send(MESSAGE)
    assert SECRET not in failed.value.message


async def test_without_apprise_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    for kind, secrets in (("apprise", {"urls": "json://127.0.0.1"}), ("desktop", {})):
        with pytest.raises(Undelivered, match=r"pip install 'keepai\[notify\]'"):
            await channel(kind, secrets=secrets).send(MESSAGE)


@LOADING
@pytest.mark.skipif("DBUS_SESSION_BUS_ADDRESS" in os.environ, reason="it would be shown on somebody's desktop")
async def test_a_machine_without_a_desktop_is_said() -> None:
    with pytest.raises(Undelivered, match="no desktop"):
        await channel("desktop").send(MESSAGE)


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "settings", "told"), [
    ("mail", {}, "There is no channel type 'mail'"),
    ("emial", {}, "Did you mean 'email'"),
    ("email", {"host": "h", "sender": "a@b", "to": ["c@d"], "password": "x"}, "'password' is a secret"),
    ("slack", {"url": "https://hooks.example.com/x"}, "'url' is a secret"),
    ("email", {"host": "h", "sender": "a@b", "to": "c@d"}, "'to' must be a list of strings"),
    ("email", {"host": "h", "sender": "a@b\nBcc: e@f", "to": ["c@d"]}, "sender must be one address"),
    ("email", {"host": "h", "sender": "a@b", "to": []}, "to must name at least one address"),
    ("email", {"host": "h", "sender": "a@b", "to": ["c"]}, "'c' is not an address"),
    ("email", {"host": "h", "sender": "a@b", "to": ["c@d"], "tls": "ssl"}, "tls must be one of"),
    ("command", {"command": []}, "must be a list of words"),
    ("ntfy", {}, "'topic' is missing"),
    ("ntfy", {"topic": "t", "url": "ftp://x"}, "cannot be used"),
    ("ntfy", {"topic": "t", "toppic": "t"}, "did you mean 'topic'"),
])
def test_wrong_settings_are_told_with_the_fix(kind: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make(kind, "ops", settings, Path())


def test_every_type_says_what_its_settings_mean() -> None:
    for name in TYPES:
        kind = load(name)
        assert kind.__doc__
        settings = [each for each in kind.__init__.__code__.co_varnames[:kind.__init__.__code__.co_argcount]
                    if each not in ("self", "name")]
        assert all(f"{each}: " in kind.__doc__ for each in settings), name


def test_a_text_is_cut_between_characters() -> None:
    assert fitting("short", 100) == "short"
    cut = fitting("漢" * 100, 200)
    assert len(cut.encode()) <= 200
    assert cut.startswith("漢漢")
