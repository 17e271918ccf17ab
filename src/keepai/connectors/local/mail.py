"""A mailbox in a local Maildir folder, which mail programs can share.

Received mail is in `new` and `cur`. Sending writes into the subfolder `.Sent`. A sent message is named after its
idempotency key and appears by one `link`, which the system makes completely or not at all. So a second send of the same
thing finds the first.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

from ...model import crash_points
from ...model.clock import Clock, SystemClock
from ..base import Call, Connector, Page, Verdict, mutation, read
from ..kit import addresses, mail_parser, mail_query, mail_writer
from ..kit.blocking import check_deadline, in_thread
from ..kit.disk import may_have_happened, nothing_happened, sync_folder, write_new
from ..kit.folder_watch import appearing
from ..kit.mailbox import FoundMail, FullMail, GetMail, SearchMail, SendMail, SentMail
from ..kit.pages import PAGE_BYTES, checked_limit, size_of
from ..kit.parser_process import ParserProcess
from . import maildir

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 5_000
KEY_HEADER = "X-Keep-Key"


class LocalMail(Connector):
    """A Maildir folder: `type = "local.mail"`.

    path: the folder, a Maildir that mail programs may share
    address: the sender of its mail
    create: make the folder if it does not exist
    """

    name = "mail"
    input_types = ("email", "thread")

    def __init__(
        self, path: str | os.PathLike[str], *, address: str = "keep@localhost", create: bool = False,
        name: str | None = None, clock: Clock | None = None,
    ) -> None:
        super().__init__(name=name)
        self.path = Path(path).expanduser().absolute()
        self._sender = addresses.own_address(f"connectors.{self.name}", address)
        self.account = str(self.path)
        self._clock = clock or SystemClock()
        if create:
            _make(self.path)

    async def arrivals(self) -> AsyncGenerator[None]:
        """Yield when a message appears."""
        parts = [self.path / "new", self.path / "cur"]
        async with aclosing(appearing(lambda: parts)) as batches:
            async for _ in batches:
                yield

    async def check(self) -> None:
        """Check that the folder is a Maildir that can be read and written."""
        def look() -> None:
            with nothing_happened("The mailbox cannot be used"):
                maildir.index(self.path, maildir.entries(self.path))
        await asyncio.to_thread(look)

    @read
    async def search(self, params: SearchMail, call: Call) -> Page[FoundMail]:
        """Messages in the order of arrival; with `after`, those that came after that cursor.

        `lastCursor` is never null. If `limit` or the size cut the page short, it has `more: true`; searching
        after its `lastCursor` continues without a gap.
        """
        return await asyncio.to_thread(self._search, params, call)

    @read(by_id=True)
    async def get(self, params: GetMail, call: Call) -> FullMail | None:
        """One message with its text, or null if it is gone."""
        def look() -> FullMail | None:
            with nothing_happened("The message cannot be read"):
                entry = maildir.find(self.path, params["id"])
                if entry is None:
                    return None
                with mail_parser.reader() as parser:
                    mail = _read(entry, parser, call)
                return {**_found(mail), "body": mail.body, "truncated": mail.truncated}
        return await asyncio.to_thread(look)

    @mutation(identity=("to",), target="to", settle=0)
    async def send(self, params: SendMail, call: Call) -> SentMail:
        """Write a message into the sent folder."""
        data = self._composed(params, call.idempotency_key)
        return await in_thread(lambda: self._send(data, call))

    @send.reconcile
    async def find_sent(self, params: SendMail, call: Call) -> Verdict:
        """Look for the message that has the key."""
        def look() -> Verdict:
            try:
                sent_id = self._sent(call.idempotency_key)
            except FileNotFoundError as error:
                # Without a sent folder nothing was sent. Without the mailbox itself nothing is known.
                never_sent = (self.path / "cur").is_dir() and ".Sent" in str(error.filename)
                return Verdict.failed() if never_sent else Verdict.retry()
            except OSError:
                return Verdict.retry()
            return Verdict.applied({"id": sent_id}) if sent_id else Verdict.failed()
        return await asyncio.to_thread(look)

    @send.preview
    def describe(self, params: SendMail) -> str:
        """The whole message."""
        return mail_writer.previewed(f"{self.name}.send", params)

    def _search(self, params: SearchMail, call: Call) -> Page[FoundMail]:
        limit = checked_limit(params.get("limit"), LIMIT_DEFAULT, LIMIT_MAX)
        fits = mail_query.matcher(params.get("query"), self._clock.now_ms())
        with nothing_happened("The mailbox cannot be read"), mail_parser.reader() as parser:
            present = maildir.entries(self.path)
            ids = maildir.index(self.path, present)
            start = position = maildir.position(params.get("after"), ids)
            page_items: list[FoundMail] = []
            size = 0
            while position < len(ids) and len(page_items) < limit and size < PAGE_BYTES:
                if position > start and call.remaining_s < 2:
                    break
                mail = _readable(present.get(ids[position]), parser, call)
                if mail is not None and fits(mail):
                    page_items.append(_found(mail))
                    size += size_of(page_items[-1])
                position += 1
        return Page(page_items, lastCursor=maildir.cursor(ids[:position]), more=position < len(ids))

    def _composed(self, params: SendMail, key: str) -> bytes:
        answered = params.get("inReplyTo") or ""
        letter = mail_writer.letter_of(self._sender, params, params["subject"], [answered] if answered else [])
        letter = replace(letter, marks={KEY_HEADER: _marker(key)})
        return mail_writer.written(letter, f"<{_unique(key)}@keep.localhost>", formatdate(self._clock.now_ms() / 1000))

    def _send(self, data: bytes, call: Call) -> SentMail:
        folder, name = self.path / ".Sent", _unique(call.idempotency_key)
        with nothing_happened("The message was not sent"):
            os.scandir(self.path / "cur").close()  # a mailbox that is gone is an error: it is never made again
            _make(folder)
            if name in maildir.entries(folder):
                return {"id": name}
            draft = folder / "tmp" / f"{name}.{os.getpid()}.{os.urandom(6).hex()}"
            crash_points.reach("local.mail.before_write")
            write_new(draft, data)
        crash_points.reach("local.mail.written")
        try:
            check_deadline(call)
            self._publish(draft, folder / "cur" / f"{name}:2,S")
        finally:
            _discard(draft)
        return {"id": name}

    def _publish(self, draft: Path, final: Path) -> None:
        with may_have_happened("The message may have been sent"):
            try:
                os.link(draft, final)
            except FileExistsError:
                pass  # another send of the same thing was first
            crash_points.reach("local.mail.linked")
            sync_folder(final.parent)
        crash_points.reach("local.mail.synced")

    def _sent(self, key: str) -> str | None:
        """The id of the sent message with that key: by its file name, or by its header if it was renamed."""
        present = maildir.entries(self.path / ".Sent")
        if _unique(key) in present:
            return _unique(key)
        wanted = f"{KEY_HEADER}: {_marker(key)}".encode()
        return next((id for id, entry in present.items() if wanted in _head(entry)), None)


def _make(folder: Path) -> None:
    """Make the missing parts of a Maildir, and sync their names to disk."""
    if all((folder / part).is_dir() for part in ("tmp", "new", "cur")):
        return
    for part in ("tmp", "new", "cur"):
        (folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_folder(folder)
    sync_folder(folder.parent)


def _discard(draft: Path) -> None:
    try:
        draft.unlink(missing_ok=True)
    except OSError:
        pass  # mail programs delete what is left in `tmp`


def _unique(key: str) -> str:
    return "keep." + hashlib.sha256(key.encode()).hexdigest()[:32]


def _marker(key: str) -> str:
    return key if re.fullmatch(r"[!-~]{1,60}", key) else _unique(key)


def _head(entry: maildir.MaildirFile) -> bytes:
    try:
        with entry.path.open("rb") as file:
            return file.read(16_384).replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    except FileNotFoundError:
        return b""


def _readable(entry: maildir.MaildirFile | None, parser: ParserProcess, call: Call) -> mail_parser.ParsedMail | None:
    """The message, or None if it is gone. If it may not be read, the search stops, so that it is not lost."""
    if entry is None:
        return None
    try:
        return _read(entry, parser, call)
    except FileNotFoundError:  # a mail program renamed or deleted it during the search
        moved = maildir.find(entry.path.parent.parent, entry.id)
        return _read(moved, parser, call) if moved else None


def _read(entry: maildir.MaildirFile, parser: ParserProcess, call: Call) -> mail_parser.ParsedMail:
    """The message in a file. Only opening and reading the file can fail, with an `OSError`."""
    with entry.path.open("rb") as file:
        data = file.read(mail_parser.READ_MAX + 1)
    return mail_parser.read(data, entry.id, entry.mtime_ns // 1_000_000, parser, call.skip)


def _found(mail: mail_parser.ParsedMail) -> FoundMail:
    return {
        "id": mail.id, "from": mail.sender, "to": mail.to, "subject": mail.subject,
        "date": mail.date, "snippet": mail.snippet,
    }
