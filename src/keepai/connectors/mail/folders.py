"""The folders of a mailbox that the connector uses, with their names on this server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...model.errors import PreconditionFailed
from .imap import ImapMailbox
from .server_errors import nothing_happened

Open = Callable[[], ImapMailbox]


@dataclass(frozen=True)
class Folders:
    """Folder names. An empty `sent` is found by the server's own mark; an empty `all_mail` is not used."""

    inbox: str
    sent: str
    all_mail: str
    outbox: str
    server_copies: bool  # the SMTP server puts a copy of each message into `sent`

    def known(self, box: ImapMailbox) -> Folders:
        """The same with every name filled in. A missing folder is an error, except for the outbox, which is made."""
        present = box.folders()
        marked = next((name for name, flags in sorted(present.items()) if "\\Sent" in flags), "")
        sent = self.sent or marked or ("Sent" if "Sent" in present else "")
        if not sent:
            raise PreconditionFailed('The server marks no folder for sent mail. Name it in keep.toml: sent = "…".')
        has_inbox = any(name.upper() == "INBOX" for name in present)
        wanted = [folder for folder in (self.inbox, sent, self.all_mail) if folder]
        missing = [
            folder for folder in wanted
            if folder not in present and not (has_inbox and folder.upper() == "INBOX")
        ]
        if missing:
            known = ", ".join(sorted(present))[:300]
            raise PreconditionFailed(f"There is no folder {missing[0]!r}. There are: {known}.")
        if self.outbox not in present:
            self._make_outbox(box)
        return replace(self, sent=sent)

    def _make_outbox(self, box: ImapMailbox) -> None:
        try:
            box.create(self.outbox)
        except PreconditionFailed:
            if self.outbox not in box.folders():  # otherwise another call has made it in the meantime
                raise

    @property
    def readable(self) -> list[str]:
        """The folders in which a message that a script names may be."""
        return list(dict.fromkeys(folder for folder in (self.inbox, self.all_mail, self.sent) if folder))


@contextmanager
def reaching(open_box: Open, folders: Folders, message: str) -> Iterator[tuple[ImapMailbox, Folders]]:
    """An open mailbox and its folders, for steps that have no effect when they fail."""
    with nothing_happened(message):
        box = open_box()
        try:
            yield box, folders.known(box)
        except BaseException:
            box.drop()
            raise
        box.close()
