"""Mail servers for the tests that need some: started once per worker, a fresh mailbox for every test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from keepai.connectors import make
from keepai.connectors.base import Connector, OperationSpec
from tests.connectors.mail_servers import Dovecot, Post, running, settings, why_not


@dataclass
class Mailbox:
    """A fresh mailbox, the server that takes its mail, and a connector to both."""

    imap: Dovecot
    post: Post

    def connector(self, **more: Any) -> Connector:
        made = make("mail", "gmail", settings(self.imap, self.post, **more))
        made.entrust({"password": self.imap.password})
        return made

    def op(self, operation: str, **more: Any) -> OperationSpec:
        return self.connector(**more).operations[operation]

    @property
    def sent(self) -> int:
        return self.imap.count("Sent")

    @property
    def records(self) -> int:
        return self.imap.count("Keep Outbox")


@pytest.fixture(scope="session")
def mail_servers() -> Iterator[tuple[Dovecot, Post]]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with running() as servers:
        yield servers


@pytest.fixture
def mailbox(mail_servers: tuple[Dovecot, Post]) -> Mailbox:
    imap, post = mail_servers
    imap.fresh()
    post.reset()
    return Mailbox(imap, post)
