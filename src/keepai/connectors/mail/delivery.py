"""Sends one message so that Keep can find out afterwards whether it was sent.

SMTP has no memory: a server that has accepted a message says so once. If that answer is lost, Keep cannot ask again.
So Keep records the message in the mailbox itself, where the record survives a crash and people can see it:

1. the whole message except its end goes to the SMTP server, which must not deliver it yet
2. a record of it is put into the folder `outbox`, and the IMAP server must confirm that
3. the end of the message is sent; from here on the server may have accepted it
4. accepted: the message is put into the sent folder (or the server does that), then the record is deleted.
   Refused: the record is deleted

The Message-ID is made from the idempotency key. The record's Message-ID is too, with another beginning, so that a copy
that a server shows in two places cannot be mistaken for the other. What is found proves this:

    the message in the sent folder or in `all_mail`    it was accepted                                → applied
    else the record, with the mark TAKEN               it was accepted, the server's copy is late     → applied
    else the record                                    step 3 was reached, the answer is not known. If the server
                                                       keeps copies, one may still appear             → retry
                                                       otherwise it can never be known                → unknown
    nothing                                            step 3 was not reached: nothing to deliver     → failed

An answer 4xx or 5xx to any step, including the end, proves that the message was not accepted
(`server_errors.SMTP_REFUSED`). A connection lost after step 3 proves nothing; one lost before proves that nothing was
sent. If the server refuses a recipient, Keep stops within step 1: either all recipients get a message or none. Once the
message was accepted, a later failure cannot undo that: the result is "sent", wherever the copies are.

What people do in between counts. Deleting a record says that the message was not sent. A copy that is moved out of the
sent folder before the look-up is found only in `all_mail`.

Rejected: to search only the sent folder, and to answer "failed" if nothing is there. A process can die between the
server's answer and the copy in the sent folder, and then the same mail would be sent twice.

This gives class B if the server keeps copies. If it does not, it is class B too, except for an answer that was lost
between steps 3 and 4: then Keep asks a person. No mail server honours a key (class A). `SETTLE_S` is how long a server
may take until it finds what it has confirmed: replicas and indexes of large providers are seconds behind. A late
arrival of the message itself needs no time, because "failed" means that its end was never sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from email import policy
from email.parser import BytesHeaderParser

from ...model import crash_points
from ...model.errors import ConnectorError, OutcomeUnknown, PreconditionFailed, Transient
from ..kit.blocking import in_thread
from ..values import Call, Verdict
from .folders import Folders, Open
from .imap import FetchedMail, ImapMailbox
from .server_errors import ConnectionLost, nothing_happened
from .smtp import SmtpSubmission

SETTLE_S = 60.0
ANSWER_S_MAX = 600.0  # RFC 5321, 4.5.3.2.6: the longest time that the answer to the end may take
RECORDS_MAX = 200
SWEPT_MAX = 20
HEAD_BYTES = 65_536
TAKEN = "\\Answered"
_SENT, _RECORD = "<keep.", "<keep-record."


@dataclass(frozen=True)
class PreparedMail:
    """A message that is ready to be sent."""

    message_id: str
    sender: str
    recipients: list[str]
    data: bytes

    @property
    def record(self) -> bytes:
        """The record in the outbox: the same message under another Message-ID."""
        own = f"Message-ID: {self.message_id}\r\n".encode()
        assert self.data.count(own) >= 1
        return self.data.replace(own, f"Message-ID: {_record_id(self.message_id)}\r\n".encode(), 1)


def message_id(key: str, address: str) -> str:
    """The Message-ID of the message that is sent with this idempotency key."""
    return f"{_SENT}{hashlib.sha256(key.encode()).hexdigest()[:40]}@{address.rpartition('@')[2]}>"


async def deliver(
    draft: PreparedMail, open_box: Open, folders: Folders, submission: SmtpSubmission, call: Call,
) -> None:
    """Send the message in the order above. If it was sent before, do nothing."""
    opened = await in_thread(lambda: _ready(open_box, folders, draft))
    if opened is None:
        return
    box, known = opened
    try:
        await submission.begin()
        await submission.offer(draft.sender, draft.recipients, draft.data)
        crash_points.reach("mail.offered")
        await _hand_over(draft, box, known, submission, call)
        crash_points.reach("mail.accepted")
        await in_thread(lambda: _file(box, known, draft, call))
        crash_points.reach("mail.filed")
    finally:
        submission.drop()
        await in_thread(box.close)


async def _hand_over(
    draft: PreparedMail, box: ImapMailbox, folders: Folders, submission: SmtpSubmission, call: Call,
) -> None:
    """Steps 2 and 3. If they stop before the end of the message is sent, the record is deleted."""
    def record() -> None:
        with nothing_happened("The mailbox failed before the message was complete, so it was not sent"):
            box.append(folders.outbox, draft.record, ["\\Seen", "\\Draft"])

    sent_end = False
    try:
        await in_thread(record)
        crash_points.reach("mail.recorded")
        if call.remaining_s <= 0:
            raise Transient("The call's deadline passed before the message was complete; it was not sent.")
        submission.require()
        sent_end = True
        await submission.finish(min(call.remaining_s, ANSWER_S_MAX))
    except BaseException as error:
        refused = isinstance(error, ConnectorError) and not isinstance(error, OutcomeUnknown)
        if refused or not sent_end:
            submission.drop()  # before the record is deleted, so that the end can no longer be sent
            await in_thread(lambda: _unrecord(box, folders, draft, call))
        raise


def look(open_box: Open, folders: Folders, id: str) -> Verdict:
    """What happened to the message with this Message-ID. An error means that the mailbox could not be read."""
    with nothing_happened("The mailbox cannot be read"):
        box = open_box()
        try:
            return _verdict(box, folders.known(box), id)
        finally:
            box.close()


def _verdict(box: ImapMailbox, folders: Folders, id: str) -> Verdict:
    # The record first: it is deleted only after the message is in the sent folder, so one of the two is found.
    records = [raw for raw in _records(box, folders, readonly=True) if _id_of(raw) == _record_id(id)]
    if _was_sent(box, folders, id) or any(TAKEN in raw.flags for raw in records):
        return Verdict.applied({"id": id})
    if not records:
        return Verdict.failed()
    if folders.server_copies:
        return Verdict.retry()
    return Verdict.unknown(
        f"The message was handed to the mail server, whose answer was lost. Its record is in the folder "
        f"{folders.outbox!r}. Ask a recipient, or look for {id} in the server's log."
    )


def _ready(open_box: Open, folders: Folders, draft: PreparedMail) -> tuple[ImapMailbox, Folders] | None:
    """An open mailbox without an older record of this message; None if the message was sent before."""
    with nothing_happened("The mailbox cannot be used, so nothing was sent"):
        box = open_box()
        try:
            known = folders.known(box)
            if not _was_sent(box, known, draft.message_id):
                _sweep(box, known, draft)
                return box, known
        except BaseException:
            box.drop()
            raise
        box.close()
        return None


def _sweep(box: ImapMailbox, folders: Folders, draft: PreparedMail) -> None:
    """Delete obsolete records: of messages that are in the sent folder, and of an earlier attempt at this message.

    That attempt was not sent: Keep found that out or a person decided it, otherwise there would be no new attempt.
    """
    for number, raw in enumerate(_records(box, folders, readonly=False)):
        id = _id_of(raw)
        own = id == _record_id(draft.message_id)
        if own or (number < SWEPT_MAX and _was_sent(box, folders, id.replace(_RECORD, _SENT, 1))):
            box.open(folders.outbox, readonly=False)
            box.remove(raw.uid)


def _unrecord(box: ImapMailbox, folders: Folders, draft: PreparedMail, call: Call) -> None:
    try:
        for raw in _records(box, folders, readonly=False):
            if _id_of(raw) == _record_id(draft.message_id):
                box.remove(raw.uid)
    except (ConnectorError, ConnectionLost) as error:
        call.log(f"The record of a message that was not sent remains in {folders.outbox!r}: {error}")


def _file(box: ImapMailbox, folders: Folders, draft: PreparedMail, call: Call) -> None:
    """Step 4, after the message was accepted. A failure here does not change that."""
    try:
        if not folders.server_copies:
            box.append(folders.sent, draft.data, ["\\Seen"])
        seen = not folders.server_copies or _was_sent(box, folders, draft.message_id)
        for raw in _records(box, folders, readonly=False):
            if _id_of(raw) != _record_id(draft.message_id):
                continue
            if seen:
                box.remove(raw.uid)
            else:
                box.mark(raw.uid, [TAKEN], on=True)
    except (ConnectorError, ConnectionLost) as error:
        call.log(f"The message was sent, but its copy could not be filed: {error}")


def _was_sent(box: ImapMailbox, folders: Folders, id: str) -> bool:
    for folder in filter(None, (folders.sent, folders.all_mail)):
        box.open(folder)
        candidates = box.fetch_heads(box.find(f'HEADER Message-ID "{id}"')[:10], HEAD_BYTES)
        if any(_id_of(raw) == id for raw in candidates):
            return True
    return False


def _records(box: ImapMailbox, folders: Folders, *, readonly: bool) -> list[FetchedMail]:
    """All records. They are few, so they are read and not searched for: an index may be behind."""
    box.open(folders.outbox, readonly=readonly)
    uids = box.find("ALL")
    if len(uids) > RECORDS_MAX:
        raise PreconditionFailed(
            f"The folder {folders.outbox!r} holds {len(uids)} messages whose sending is unknown. "
            "Look at them, then delete them."
        )
    return box.fetch_heads(uids, HEAD_BYTES)


def _id_of(raw: FetchedMail) -> str:
    return str(BytesHeaderParser(policy=policy.compat32).parsebytes(raw.data).get("Message-ID", "")).strip()


def _record_id(id: str) -> str:
    return id.replace(_SENT, _RECORD, 1)
