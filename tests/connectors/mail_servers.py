"""A real IMAP server and an SMTP server that misbehave on demand, both on the loopback.

Dovecot runs as an ordinary process with a folder of its own. The SMTP server is aiosmtpd: it takes down every message
that it really took, and may lose the answer, refuse at any step, or be slow. Where there is no dovecot, tests are
skipped and say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import imaplib
import ipaddress
import os
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from keepai.runtime.javascript import linux
from keepai.testing.contract import CANARY
from tests.folders import open_folder

PASSWORD = f"{CANARY}-é"
START_S_MAX = 15.0

CONFIG = """
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <{home}/server.pem
ssl_key = <{home}/server.key
disable_plaintext_auth = no
default_internal_user = {internal}
default_internal_group = {internal_group}
default_login_user = {login}
first_valid_uid = 1
auth_failure_delay = 0
mail_location = maildir:{home}/mail/%u
mailbox_list_index = yes
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={home}/mail/%u
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
  mailbox Archive {{
    auto = create
  }}
}}
service imap-login {{
  chroot =
  service_count = 0
  process_min_avail = 1
  idle_kill = 1 hour
  inet_listener imap {{
    port = {plain}
  }}
  inet_listener imaps {{
    port = {tls}
    ssl = yes
  }}
}}
service imap {{
  service_count = 200
  process_min_avail = 1
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
imap_capability = {capability}
"""


def why_not() -> str:
    """Why no IMAP server can run here; empty when one can."""
    binary = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        return "no dovecot on this machine: make mailserver installs it on Debian"
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    return "" if told.startswith("2.3") else f"the test configuration is for dovecot 2.3, here is {told.strip()}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_certificates(folder: Path) -> None:
    """An authority `ca.pem`, and a server's certificate for localhost that it signed."""
    now = datetime.datetime.now(datetime.UTC)

    def made(subject: str, issuer: str, key: Any, signer: Any, *, ca: bool) -> x509.Certificate:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = x509.CertificateBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]),
            key.public_key(), x509.random_serial_number(), now - datetime.timedelta(1), now + datetime.timedelta(9),
        ).add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if ca:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(signer, hashes.SHA256())

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(made("Test CA", "Test CA", authority, authority, ca=True).public_bytes(pem))
    (folder / "server.pem").write_bytes(made("localhost", "Test CA", server, authority, ca=False).public_bytes(pem))
    (folder / "server.key").write_bytes(server.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption(),
    ))


class Dovecot:
    """One server with one mailbox at a time; `fresh` gives an empty one."""

    def __init__(self, capability: str = "", password: str = PASSWORD) -> None:
        self.home = open_folder("keep-imap-")
        self.port, self.tls_port = free_port(), free_port()
        self._capability = capability
        self._process: subprocess.Popen[bytes] | None = None
        self.users = 0
        self.user, self.password = "", password
        make_certificates(self.home)
        self._configure()
        self.start()

    @property
    def certificates(self) -> str:
        return str(self.home / "ca.pem")

    def fresh(self) -> str:
        """A user nobody has used before; its name is its address."""
        self.users += 1
        self.user = f"me{self.users}@example.com"
        return self.user

    def start(self) -> None:
        binary = shutil.which("dovecot") or "/usr/sbin/dovecot"
        self._process = subprocess.Popen(
            [binary, "-F", "-c", str(self.home / "dovecot.conf")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            preexec_fn=linux.die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (one system call)
        )
        until = time.monotonic() + START_S_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                if probe.recv(4):
                    return
            if self._process.poll() is not None or time.monotonic() > until:
                told = self._process.stderr.read().decode() if self._process.poll() is not None else "it is silent"
                raise AssertionError(f"dovecot does not start: {told}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process.stderr.close()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def client(self) -> imaplib.IMAP4:
        """A look from outside, by Python's own library."""
        plain = b"\0" + self.user.encode() + b"\0" + self.password.encode()
        for _ in range(4):  # under load it may drop a connection before the login
            client = imaplib.IMAP4("127.0.0.1", self.port, timeout=10)
            try:
                client.authenticate("PLAIN", lambda _: plain)
                return client
            except imaplib.IMAP4.abort:
                client.shutdown()
        raise AssertionError("dovecot lets nobody in")

    def put(self, data: bytes, folder: str = "INBOX", flags: str | None = None) -> None:
        """Deliver a message."""
        with self.client() as client:
            status, told = client.append(f'"{folder}"', flags, None, data)
            assert status == "OK", told

    def count(self, folder: str) -> int:
        return len(self.messages(folder))

    def messages(self, folder: str) -> list[bytes]:
        with self.client() as client:
            status, _ = client.select(f'"{folder}"', readonly=True)
            if status != "OK":
                return []
            _, [uids] = client.uid("SEARCH", "ALL")
            return [client.uid("FETCH", uid.decode(), "(BODY.PEEK[])")[1][0][1] for uid in uids.split()]

    def forget_numbers(self) -> None:
        """Have the server number the inbox anew, as after its indexes were lost."""
        box = self.home / "mail" / self.user
        for path in [*box.glob("dovecot-uidlist"), *box.glob("dovecot.index*")]:
            path.unlink()

    def _configure(self) -> None:
        root = os.getuid() == 0
        own = pwd.getpwuid(os.getuid())
        mailer = pwd.getpwnam("nobody") if root else own
        (self.home / "mail").mkdir()
        os.chown(self.home / "mail", mailer.pw_uid, mailer.pw_gid)
        (self.home / "dovecot.conf").write_text(CONFIG.format(
            home=self.home, plain=self.port, tls=self.tls_port, uid=mailer.pw_uid, gid=mailer.pw_gid,
            internal="dovecot" if root else own.pw_name, internal_group="dovecot" if root else _group(own.pw_gid),
            login="dovenull" if root else own.pw_name, capability=self._capability,
            password=self.password,
        ))


def _group(gid: int) -> str:
    import grp

    return grp.getgrgid(gid).gr_name


@dataclass
class Taken:
    """A message that the SMTP server took."""

    sender: str
    recipients: list[str]
    data: bytes

    @property
    def message_id(self) -> str:
        return str(message_from_bytes(self.data)["Message-ID"])


@dataclass
class Orders:
    """What the SMTP server is told to do; each holds until it is changed."""

    refuse: dict[str, str] = field(default_factory=dict)  # step → answer: greeting, login, MAIL, RCPT, DATA, end
    refuse_recipient: str = ""  # only this one
    lose: str = ""  # "before": drop the connection without taking it; "after": take it, then drop the connection
    answer_s: float = 0.0  # how long it waits with the answer after it took the message
    late: bool = False  # it answers nothing, and takes the message at `land()`
    garbled: bool = False  # it takes the message and answers with nonsense
    copies: bool = False  # it puts a copy of what it takes into the sent folder


class Post:
    """The SMTP server, and what it took."""

    def __init__(self, imap: Dovecot, *, security: str = "starttls") -> None:
        self.imap = imap
        self.taken: list[Taken] = []
        self._late: list[Taken] = []
        self.orders = Orders()
        self.offered = threading.Event()  # a message came whole
        self.accepted = threading.Event()  # it was taken
        self.logins: list[bytes] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(imap.home / "server.pem", imap.home / "server.key")
        self._controller = _Controller(self, context, security)
        self._controller.start()
        self.port = self._controller.port

    def reset(self) -> None:
        self.taken.clear()
        self._late.clear()
        self.orders = Orders()
        self.offered.clear()
        self.accepted.clear()

    def close(self) -> None:
        self._controller.stop()

    # -- what aiosmtpd asks -------------------------------------------------------------------------

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if "MAIL" in self.orders.refuse:
            return self.orders.refuse["MAIL"]
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if "RCPT" in self.orders.refuse and self.orders.refuse_recipient in ("", address):
            return self.orders.refuse["RCPT"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        orders = self.orders
        self.offered.set()
        if "end" in orders.refuse:
            return orders.refuse["end"]
        if orders.lose == "before":
            server.transport.abort()
            return "250 never heard"
        taken = Taken(envelope.mail_from, list(envelope.rcpt_tos), bytes(envelope.content))
        if orders.late:
            self._late.append(taken)
            await asyncio.sleep(60)
        await asyncio.to_thread(self._take, taken)
        await asyncio.sleep(orders.answer_s)
        if orders.lose == "after":
            server.transport.abort()
        return "nonsense" if orders.garbled else "250 OK, taken"

    def land(self) -> None:
        """Take what is late."""
        while self._late:
            self._take(self._late.pop())

    def forget_late(self) -> None:
        """What is late is never taken."""
        self._late.clear()

    def _take(self, taken: Taken) -> None:
        self.taken.append(taken)
        if self.orders.copies:
            self.imap.put(taken.data, "Sent", "(\\Seen)")
        self.accepted.set()

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        if "login" in self.orders.refuse:
            return AuthResult(success=False, handled=False, message=self.orders.refuse["login"])
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        return AuthResult(success=data.password == self.imap.password.encode())


class _Server(SMTP):
    post: Post

    async def smtp_DATA(self, arg: str) -> None:
        if "DATA" in self.post.orders.refuse:
            await self.push(self.post.orders.refuse["DATA"])
            return
        await super().smtp_DATA(arg)

    async def push(self, status: Any) -> None:
        greeting = self.post.orders.refuse.get("greeting")
        first = str(status).startswith("220") and not self.session.host_name
        await super().push(greeting if greeting and first else status)


class _Controller(Controller):
    def __init__(self, post: Post, context: ssl.SSLContext, security: str) -> None:
        self._post, self._context, self._security = post, context, security
        super().__init__(
            post, hostname="127.0.0.1", port=0, ready_timeout=10,
            ssl_context=context if security == "tls" else None,
        )

    def factory(self) -> SMTP:
        starttls = self._security == "starttls"
        server = _Server(
            self._post, hostname="post.example.com", authenticator=self._post.authenticate, auth_require_tls=starttls,
            tls_context=self._context if starttls else None, require_starttls=starttls, data_size_limit=2_000_000,
        )
        server.post = self._post
        return server

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


class Wire:
    """A way to the IMAP server on which the commands that change something can be lost, held or refused."""

    def __init__(self, imap: Dovecot) -> None:
        self.imap = imap
        self.order = ""  # "after", "before", "late", "held", "garbled", or an answer such as "NO [LIMIT] slowly"
        self._late: list[tuple[socket.socket, bytes]] = []
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def land(self) -> None:
        """Let the server have what was held back."""
        while self._late:
            server, line = self._late.pop()
            server.sendall(line)
            time.sleep(0.3)  # its answer goes to nobody

    def close(self) -> None:
        for each in [self._listening, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self.imap.port))
                self._open += [client, server]
                mute = threading.Event()
                threading.Thread(target=self._back, args=(server, client, mute), daemon=True).start()
                threading.Thread(target=self._forth, args=(client, server, mute), daemon=True).start()

    def _forth(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as lines:
            for line in lines:
                if self.order and re.match(rb"\S+ UID (STORE|MOVE) ", line):
                    self._meddle(line, client, server, mute)
                    if self._late:
                        return  # what the client says later is lost, too
                else:
                    server.sendall(line)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _meddle(self, line: bytes, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        tag = line.split()[0].decode()
        if self.order in ("after", "held", "garbled"):
            mute.set()
            server.sendall(line)
            time.sleep(0.2)  # the server's answer goes nowhere
        if self.order == "late":
            self._late.append((server, line))
        elif self.order == "garbled":
            client.sendall(b"%% nonsense\r\n")
        elif self.order in ("after", "before"):
            client.shutdown(socket.SHUT_RDWR)
        elif self.order != "held":
            client.sendall(f"{tag} {self.order}\r\n".encode())

    def _back(self, server: socket.socket, client: socket.socket, mute: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if not mute.is_set():
                    client.sendall(data)


@contextlib.contextmanager
def running(capability: str = "", password: str = PASSWORD) -> Iterator[tuple[Dovecot, Post]]:
    """Both servers, ended at the end."""
    imap = Dovecot(capability, password)
    try:
        post = Post(imap)
        try:
            yield imap, post
        finally:
            post.close()
    finally:
        imap.close()


def settings(imap: Dovecot, post: Post, **more: Any) -> dict[str, Any]:
    """What keep.toml would say."""
    return {
        "address": imap.user, "imap_host": "localhost", "imap_port": imap.tls_port, "smtp_host": "localhost",
        "smtp_port": post.port, "smtp_security": "starttls", "certificates": imap.certificates, **more,
    }
