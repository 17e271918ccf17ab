"""A mailbox on any server that speaks IMAP and SMTP: `type = "mail"`.

This module has what scripts call. `messages` finds messages, `delivery` sends them and finds out afterwards whether
they were sent, `filing` labels and moves them. Every call has its own connections and ends them. The password is read
for one login at a time, and never appears in an error, a log or a result.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from email.utils import formatdate
from types import MappingProxyType
from typing import ClassVar, NotRequired, TypedDict, TypeVar

from ...model.clock import Clock, SystemClock
from ...model.codec import Json
from ...model.errors import ConfigError, ConnectorError, PreconditionFailed, Rejected
from ..base import Call, Comparison, Connector, Page, Verdict, mutation, read
from ..kit import addresses, mail_writer
from ..kit.blocking import check_deadline, in_thread
from ..kit.mail_writer import Attachment, Letter
from ..kit.mailbox import GetMail, LabelledMail, OutgoingMail, SearchMail, SentMail
from ..kit.params import AddressList
from . import delivery, filing, messages
from .delivery import PreparedMail
from .filing import MovedMail
from .folders import Folders, reaching
from .idle import STEP_S, arriving
from .imap import ImapMailbox
from .messages import FoundImapMail, FullImapMail
from .servers import MailServer, step_s
from .smtp import SmtpSubmission

T = TypeVar("T")
SENT_COPY = ("keep", "server")


class ImapSend(OutgoingMail):
    """A message to send."""

    subject: NotRequired[str]
    bcc: NotRequired[AddressList | None]
    html: NotRequired[str | None]
    inReplyTo: NotRequired[str | None]
    attachments: NotRequired[list[Attachment]]


class ImapReply(GetMail, OutgoingMail):
    """A reply to a message. The script names `to`, so that the person who approves sees it."""

    subject: NotRequired[str]
    html: NotRequired[str | None]
    attachments: NotRequired[list[Attachment]]


class ImapLabel(TypedDict):
    """Labels that a message in the inbox must have afterwards, and labels that it must not have."""

    id: str
    add: NotRequired[list[str]]
    remove: NotRequired[list[str]]


class MoveMail(TypedDict):
    """The folder that a message should be in; `source` is where it is now, by default the inbox."""

    id: str
    to: str
    source: NotRequired[str]


class Mail(Connector):
    """A mailbox behind an IMAP and an SMTP server: `type = "mail"`.

    address: the address of the mailbox, from which its mail is sent
    imap_host: the IMAP server
    smtp_host: the SMTP server
    user: the name for the login, if it is not the address
    from_name: the name shown beside the address
    imap_port: 993 for tls, usually 143 for starttls
    imap_security: the encryption: tls, starttls, or none, which is allowed only for a server on this machine
    smtp_port: 465 for tls, usually 587 for starttls
    smtp_security: the encryption: tls, starttls, or none, which is allowed only for a server on this machine
    certificates: a file of authorities to trust besides those of the system
    inbox: the folder that is searched
    sent: the folder for sent mail, if the server does not mark it
    all_mail: a folder in which sent and received mail may be as well
    outbox: a folder in which Keep records a message while it sends it; Keep creates it
    sent_copy: who puts a copy into the sent folder: keep, or the server
    """

    input_types = ("email", "thread")
    secrets: ClassVar[Mapping[str, str]] = MappingProxyType({
        "password": "The password of the mailbox (many providers give one for programs: an app password)",
    })

    def __init__(
        self, address: str, imap_host: str, smtp_host: str, *, user: str = "", from_name: str = "",
        imap_port: int = 993, imap_security: str = "tls", smtp_port: int = 465, smtp_security: str = "tls",
        certificates: str = "", inbox: str = "INBOX", sent: str = "", all_mail: str = "", outbox: str = "Keep Outbox",
        sent_copy: str = "keep", name: str | None = None, clock: Clock | None = None,
    ) -> None:
        super().__init__(name=name)
        self._imap = MailServer("imap", imap_host, imap_port, imap_security, certificates)
        self._smtp = MailServer("smtp", smtp_host, smtp_port, smtp_security, certificates)
        self._folders = Folders(inbox, sent, all_mail, outbox, sent_copy == "server")
        wrong = [*self._imap.problems(), *self._smtp.problems(), *_folder_problems(self._folders)]
        if sent_copy not in SENT_COPY:
            wrong.append(f"sent_copy must be keep or server, not {sent_copy!r}")
        if wrong:
            raise ConfigError(f"[connectors.{self.name}]: {'; '.join(wrong)}.")
        self._sender = addresses.own_address(f"connectors.{self.name}", address, from_name)
        self._user = user or address
        self.account = self._sender.mailbox
        self._clock = clock or SystemClock()

    async def check(self) -> None:
        """Log in to both servers, check that the folders exist, and make the outbox if it does not."""
        await self._reading(lambda box, folders: None, Call(), "The mailbox cannot be used")
        submission = self._submission(Call())
        try:
            await submission.begin()
        finally:
            submission.drop()

    async def arrivals(self) -> AsyncGenerator[None]:
        """Yield when a message comes into the inbox, if the server can say so (IDLE)."""
        def listening() -> ImapMailbox:
            return ImapMailbox(self._imap, self._user, self.secret("password"), STEP_S)

        async with aclosing(arriving(listening, self._folders.inbox)) as arrived:
            async for _ in arrived:
                yield

    # -- reading -----------------------------------------------------------------------------------

    @read
    async def search(self, params: SearchMail, call: Call) -> Page[FoundImapMail]:
        """Messages of the inbox in the order of arrival; with `after`, those that came after that cursor.

        `lastCursor` is never null. A page that was cut short has `more: true`; searching after its
        `lastCursor` continues without a gap.
        """
        return await self._reading(
            lambda box, folders: messages.search(box, folders.inbox, params, self._clock.now_ms(), call),
            call, "The mailbox cannot be read")

    @read(by_id=True)
    async def get(self, params: GetMail, call: Call) -> FullImapMail | None:
        """One message with its text, or null if it is gone."""
        return await self._reading(
            lambda box, folders: messages.get(box, folders.readable, params["id"], call),
            call, "The message cannot be read")

    @read(by_id=True)
    async def thread(self, params: GetMail, call: Call) -> Page[FullImapMail]:
        """The conversation that a message belongs to, received and sent, oldest first."""
        return await self._reading(
            lambda box, folders: messages.thread(box, folders.readable, params["id"], call),
            call, "The conversation cannot be read")

    # -- sending -----------------------------------------------------------------------------------

    @mutation(identity=("to",), target="to", settle=delivery.SETTLE_S)
    async def send(self, params: ImapSend, call: Call) -> SentMail:
        """Send a message."""
        given = params.get("inReplyTo") or ""
        past = [past_id for past_id in [messages.answered(given) if given else ""] if past_id]
        return await self._deliver(mail_writer.letter_of(self._sender, params, params.get("subject", ""), past), call)

    @send.preview
    def describe_send(self, params: ImapSend) -> str:
        """The whole message, with every address as the server sees it."""
        return mail_writer.previewed(f"{self.name}.send", params)

    @mutation(identity=("id",), target="id", settle=delivery.SETTLE_S)
    async def reply(self, params: ImapReply, call: Call) -> SentMail:
        """Reply to a message, in the same conversation."""
        def look(box: ImapMailbox, folders: Folders) -> tuple[str, list[str]]:
            headers = messages.headers_of(box, folders.readable, params["id"])
            if headers is None:
                raise PreconditionFailed("The message to reply to is gone.")
            return messages.reply_headers(headers)
        subject, past = await self._reading(look, call, "The message cannot be read, so it was not answered")
        letter = mail_writer.letter_of(self._sender, params, params.get("subject") or subject, past)
        return await self._deliver(replace(letter, automatic="auto-replied"), call)

    @send.reconcile
    @reply.reconcile
    async def find_sent(self, params: ImapSend | ImapReply, call: Call) -> Verdict:
        """Look for what was sent with this key."""
        id = delivery.message_id(call.idempotency_key, self._sender.mailbox)
        try:
            return await in_thread(lambda: delivery.look(lambda: self._box(call), self._folders, id))
        except ConnectorError:
            return Verdict.retry()

    @reply.preview
    def describe_reply(self, params: ImapReply) -> str:
        """The whole reply."""
        return mail_writer.previewed(f"{self.name}.reply", params, answers=params["id"])

    @send.compare_payload
    @reply.compare_payload
    def compare_messages(self, old: Json, new: Json) -> Comparison:
        """A difference in spaces at the ends of lines alone is minor."""
        if old == new:
            return "equivalent"
        return "minor" if _trimmed(old) == _trimmed(new) else "significant"

    # -- filing ------------------------------------------------------------------------------------

    @mutation(identity=("id", "add", "remove"), target="id", settle=filing.SETTLE_S)
    async def label(self, params: ImapLabel, call: Call) -> LabelledMail:
        """Add labels to a message in the inbox and remove others: `seen`, `flagged`, `answered` or custom words."""
        add, remove = _labels(params)
        return await self._acting(lambda box, f: filing.label(box, f.inbox, params["id"], add, remove), call)

    @label.reconcile
    async def find_labels(self, params: ImapLabel, call: Call) -> Verdict:
        """Check whether the labels are as wanted."""
        add, remove = _labels(params)
        return await self._seeing(lambda box, f: filing.labelled(box, f.inbox, params["id"], add, remove), call)

    @mutation(identity=("id", "to"), target="id", settle=filing.SETTLE_S)
    async def move(self, params: MoveMail, call: Call) -> MovedMail:
        """Move a message out of the inbox, or out of `source`, into another folder."""
        source = params.get("source") or self._folders.inbox
        if params["to"] == source or self._folders.outbox in (params["to"], source):
            raise Rejected(f"A message cannot be moved from {source[:60]!r} to {params['to'][:60]!r}.")
        return await self._acting(lambda box, f: filing.move(box, source, params["to"], params["id"]), call)

    @move.reconcile
    async def find_moved(self, params: MoveMail, call: Call) -> Verdict:
        """Look where the message is."""
        source = params.get("source") or self._folders.inbox
        return await self._seeing(lambda box, f: filing.moved(box, source, params["to"], params["id"]), call)

    # -- connections ---------------------------------------------------------------------------

    def _box(self, call: Call) -> ImapMailbox:
        return ImapMailbox(self._imap, self._user, self.secret("password"), step_s(call.remaining_s))

    def _submission(self, call: Call) -> SmtpSubmission:
        return SmtpSubmission(self._smtp, self._user, self.secret("password"), step_s(call.remaining_s))

    async def _reading(self, look: Callable[[ImapMailbox, Folders], T], call: Call, message: str) -> T:
        def work() -> T:
            with reaching(lambda: self._box(call), self._folders, message) as (box, folders):
                return look(box, folders)
        return await in_thread(work)

    async def _acting(self, work: Callable[[ImapMailbox, Folders], T], call: Call) -> T:
        check_deadline(call)
        return await self._reading(work, call, "The mailbox cannot be used, so nothing was changed")

    async def _seeing(self, look: Callable[[ImapMailbox, Folders], Verdict], call: Call) -> Verdict:
        try:
            return await self._reading(look, call, "The mailbox cannot be read")
        except ConnectorError:
            return Verdict.retry()

    async def _deliver(self, letter: Letter, call: Call) -> SentMail:
        check_deadline(call)
        id = delivery.message_id(call.idempotency_key, self._sender.mailbox)
        data = mail_writer.written(letter, id, formatdate(self._clock.now_ms() / 1000))
        draft = PreparedMail(id, self._sender.mailbox, letter.recipients, data)
        await delivery.deliver(draft, lambda: self._box(call), self._folders, self._submission(call), call)
        return {"id": id}


def _folder_problems(folders: Folders) -> list[str]:
    named = [folders.inbox, folders.sent, folders.all_mail, folders.outbox]
    wrong = [] if folders.inbox and folders.outbox else ["inbox and outbox must be named"]
    if folders.outbox in named[:3]:
        wrong.append("outbox must be a folder of its own")
    return wrong + [f"{folder!r} cannot name a folder" for folder in named if not folder.isprintable()]


def _labels(params: ImapLabel) -> tuple[list[str], list[str]]:
    add, remove = filing.flags(params.get("add")), filing.flags(params.get("remove"))
    if (not add and not remove) or set(add) & set(remove):
        raise Rejected("Name labels to add, labels to remove, or both, and none of them twice.")
    return add, remove


def _trimmed(payload: Json) -> Json:
    """The payload without spaces at the ends of its lines."""
    if not isinstance(payload, dict):
        return payload
    trimmed: dict[str, Json] = {key: value for key, value in payload.items() if value}
    for key in ("subject", "body", "html"):
        text = trimmed.get(key)
        if isinstance(text, str):
            trimmed[key] = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return trimmed
