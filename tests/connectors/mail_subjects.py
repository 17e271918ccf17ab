"""The mutations of `mail` as subjects of the contract; effects are counted on the servers' side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from keepai.connectors.base import Connector
from keepai.connectors.mail.mail_connector import Mail
from keepai.model.errors import PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.testing.contract import Fault, Subject
from tests.connectors.mail_servers import Dovecot, Post, Wire, free_port, settings


class Sending(Mail):
    name = "mail"


class Filing(Mail):
    name = "mail"


# A process is killed at lines of the module that the class counts to: the one in which the order of steps stands.
Sending.__module__ = "keepai.connectors.mail.delivery"
Filing.__module__ = "keepai.connectors.mail.filing"

ASKED = b"From: ann@example.com\r\nSubject: Hi\r\nMessage-ID: <q@example.com>\r\n\r\nA question\r\n"


class MailSubject(Subject):
    """A fresh mailbox for every trial."""

    servers: ClassVar[tuple[Dovecot, Post]]
    type: ClassVar[type[Mail]]
    same_key_once = True
    patience_s = 2.5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.imap, self.post = self.servers
        self.imap.fresh()
        self.post.reset()
        self.imap.put(ASKED)
        self.changed: dict[str, Any] = {}
        self.password = self.imap.password

    def connector(self) -> Connector:
        made = self.type(**settings(self.imap, self.post, **self.changed))
        made.entrust({"password": self.password})
        return made

    @contextmanager
    def set(self, thing: object, name: str, value: object) -> Iterator[None]:
        before = getattr(thing, name)
        setattr(thing, name, value)
        try:
            yield
        finally:
            setattr(thing, name, before)

    def looking(self, fault: Fault) -> AbstractContextManager[object] | None:
        if fault is Fault.LOOKUP_BROKEN:
            return self.set(self, "changed", {**self.changed, "imap_port": free_port(), "imap_security": "tls"})
        return self.set(self, "password", "wrong") if fault is Fault.LOOKUP_DENIED else None


class Send(MailSubject):
    """Where Keep files the copies: a lost answer is a question to a person."""

    type = Sending
    operation, params = "send", MappingProxyType({"to": "bob@example.com", "subject": "Hi", "body": "Hello\n"})
    refusals: ClassVar[Any] = MappingProxyType({
        "greeting 421 busy": Transient, "login 535 expired": PermissionDenied, "MAIL 550 not yours": PermissionDenied,
        "RCPT 550 unknown": Rejected, "RCPT 450 greylisted": Transient, "DATA 554 no": Rejected,
        "end 451 rate limited": Transient, "end 554 spam": Rejected, "end 421 closing": Transient,
    })
    crash_lines_max = 10

    def effects(self) -> int:
        return len(self.post.taken)

    def fault(self, fault: Fault) -> AbstractContextManager[object] | None:
        orders = self.post.orders
        told: dict[Fault, tuple[str, object]] = {
            Fault.ANSWER_LOST: ("lose", "after"), Fault.REQUEST_LOST: ("lose", "before"), Fault.LATE: ("late", True),
            Fault.HELD: ("answer_s", 60.0), Fault.WRONG_ANSWER: ("garbled", True),
        }
        return self.set(orders, *told[fault]) if fault in told else self.looking(fault)

    def refusal(self, name: str) -> AbstractContextManager[object]:
        step, _, answer = name.partition(" ")
        return self.set(self.post.orders, "refuse", {step: answer})

    def land(self) -> None:
        self.post.land()


class SendWithCopies(Send):
    """Where the server keeps a copy of what it takes: a lost answer is found."""

    how = "with copies"
    refusals: ClassVar[Any] = MappingProxyType({"end 554 spam": Rejected})
    crash_lines_max = 5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.post.orders.copies = True
        self.changed = {"sent_copy": "server"}


class Reply(Send):
    operation = "reply"
    params = MappingProxyType({"id": "<q@example.com>", "to": "ann@example.com", "body": "An answer\n"})
    refusals: ClassVar[Any] = MappingProxyType({"end 554 spam": Rejected})
    crash_lines_max = 2


class Label(MailSubject):
    type = Filing
    patience_s = 1.5
    operation, params = "label", MappingProxyType({"id": "<q@example.com>", "add": ["done"], "remove": ["seen"]})
    by_state = True
    refusals: ClassVar[Any] = MappingProxyType({
        "NO [LIMIT] slowly": Transient, "NO [NOPERM] not yours": PermissionDenied, "BAD what": Transient,
        "NO [OVERQUOTA] full": PreconditionFailed,
    })
    crash_lines_max = 4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.wire = Wire(self.imap)
        self.changed = {"imap_host": "127.0.0.1", "imap_port": self.wire.port, "imap_security": "none"}

    def effects(self) -> int:
        with self.imap.client() as client:
            client.select("INBOX", readonly=True)
            return len(client.uid("SEARCH", "KEYWORD done")[1][0].split())

    def fault(self, fault: Fault) -> AbstractContextManager[object] | None:
        told = {
            Fault.ANSWER_LOST: "after", Fault.REQUEST_LOST: "before", Fault.LATE: "late", Fault.HELD: "held",
            Fault.WRONG_ANSWER: "garbled",
        }
        return self.set(self.wire, "order", told[fault]) if fault in told else self.looking(fault)

    def refusal(self, name: str) -> AbstractContextManager[object]:
        return self.set(self.wire, "order", name)

    def land(self) -> None:
        self.wire.land()

    def close(self) -> None:
        self.wire.close()


class Move(Label):
    operation, params = "move", MappingProxyType({"id": "<q@example.com>", "to": "Archive"})

    def effects(self) -> int:
        return self.imap.count("Archive")


MAIL: list[type[MailSubject]] = [Send, SendWithCopies, Reply, Label, Move]
