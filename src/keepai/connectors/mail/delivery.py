"""Sends one message so that afterwards it can be told whether it was sent.

SMTP has no memory: a server that has taken a message says so once, and if that answer is lost, nothing can be asked.
So a record is kept where it survives us and people can see it, in the mailbox itself:

1. the message goes to the SMTP server, all but its end; the server must not deliver it yet
2. a record of it is put into the folder `outbox`; only when the IMAP server has confirmed that
3. the end of the message is sent, and from here on it may have been taken
4. taken: the message is put into the sent folder (or the server does that), then the record is deleted.
   Refused: the record is deleted

The Message-ID is made from the idempotency key, and that of the record, too, with another beginning: no copy that a
server shows in two places can pass for the other. What is found proves this:

    the message in the sent folder, or in `all_mail`   it was taken                                   → applied
    else the record, with the mark TAKEN               it was taken, the server's copy is late        → applied
    else the record                                    step 3 was reached, the answer is not known. If the server
                                                       keeps copies, one may still appear             → retry
                                                       if it does not, nobody can ever tell           → unknown
    nothing                                            step 3 was not reached: nothing to deliver     → failed

An answer 4xx or 5xx to any step, the end too, proves that nothing was taken (`answers.SMTP_REFUSED`); a connection lost
after step 3 proves nothing, one lost before proves that nothing was sent. A recipient who is refused ends it before
step 1 is done: nobody gets a message that not all get. Once it was taken, nothing that fails later makes it undone:
the result is that it was sent, wherever its copies are.

What people do in between counts: who deletes a record says that the message was not sent, and a copy that is moved out
of the sent folder before it was looked for is found in `all_mail` only.

Rejected: to look into the sent folder alone, and call it failed when nothing is there. Between the answer and the copy
in the sent folder a process can die, and then the same mail would go out twice.

This makes a connector of class B where the server keeps copies. Where it does not it is B as well, but for an answer
that was lost between steps 3 and 4: that is a question to a person. No server here honours a key (class A).
`SETTLE_S` is how long a server may take until it finds what it has confirmed: replicas and indexes of large providers
lag by seconds. That the message itself arrives late needs no time, for "failed" means that its end was never sent.
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
ANSWER_S_MAX = 600.0  # RFC 5321, 4.5.3.2.6: so long may the answer to the end take
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
        """What lies in the outbox: the same under another Message-ID."""
        ours = f"Message-ID: {self.message_id}\r\n".encode()
        assert self.data.count(ours) >= 1
        return self.data.replace(ours, f"Message-ID: {_record_id(self.message_id)}\r\n".encode(), 1)


def message_id(key: str, address: str) -> str:
    """The Message-ID of whatever is sent with this idempotency key."""
    return f"{_SENT}{hashlib.sha256(key.encode()).hexdigest()[:40]}@{address.rpartition('@')[2]}>"


async def deliver(
    draft: PreparedMail, open_box: Open, folders: Folders, submission: SmtpSubmission, call: Call,
) -> None:
    """Send it, in the order that this module tells; if it was sent before, do nothing."""
    ready = await in_thread(lambda: _ready(open_box, folders, draft))
    if ready is None:
        return
    box, known = ready
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
    """Steps 2 and 3. Whatever ends them before the end of the message is sent takes the record along."""
    sent_end = False
    try:
        await in_thread(lambda: _record(box, folders, draft))
        crash_points.reach("mail.recorded")
        if call.remaining_s <= 0:
            raise Transient("The call's time was over before the message was complete; it was not sent.")
        submission.require()
        sent_end = True
        await submission.finish(min(call.remaining_s, ANSWER_S_MAX))
    except BaseException as error:
        refused = isinstance(error, ConnectorError) and not isinstance(error, OutcomeUnknown)
        if refused or not sent_end:
            submission.drop()  # before the record goes: the end can no longer be sent
            await in_thread(lambda: _unrecord(box, folders, draft, call))
        raise


def look(open_box: Open, folders: Folders, id: str) -> Verdict:
    """What became of the message with this Message-ID; an error means that it could not be asked."""
    with nothing_happened("The mailbox cannot be read"):
        box = open_box()
        try:
            return _verdict(box, folders.known(box), id)
        finally:
            box.close()


def _verdict(box: ImapMailbox, folders: Folders, id: str) -> Verdict:
    # The record first: it goes away only after the message is in the sent folder, so one of the two is seen.
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
    """Delete records that say nothing any more: of what is in the sent folder, and of an older try of this message.

    Whoever asks for that try again has learnt, or decided, that the older one was not sent.
    """
    for number, raw in enumerate(_records(box, folders, readonly=False)):
        id = _id_of(raw)
        ours = id == _record_id(draft.message_id)
        if ours or (number < SWEPT_MAX and _was_sent(box, folders, id.replace(_RECORD, _SENT, 1))):
            box.open(folders.outbox, readonly=False)
            box.remove(raw.uid)


def _record(box: ImapMailbox, folders: Folders, draft: PreparedMail) -> None:
    with nothing_happened("The mailbox failed before the message was complete, so it was not sent"):
        box.append(folders.outbox, draft.record, ["\\Seen", "\\Draft"])


def _unrecord(box: ImapMailbox, folders: Folders, draft: PreparedMail, call: Call) -> None:
    try:
        for raw in _records(box, folders, readonly=False):
            if _id_of(raw) == _record_id(draft.message_id):
                box.remove(raw.uid)
    except (ConnectorError, ConnectionLost) as error:
        call.log(f"The record of a message that was not sent is left in {folders.outbox!r}: {error}")


def _file(box: ImapMailbox, folders: Folders, draft: PreparedMail, call: Call) -> None:
    """Step 4, after the message was taken: nothing that fails here changes that."""
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
    for folder in folders.of_sent:
        box.open(folder)
        candidates = box.fetch_heads(box.find(f'HEADER Message-ID "{id}"')[:10], HEAD_BYTES)
        if any(_id_of(raw) == id for raw in candidates):
            return True
    return False


def _records(box: ImapMailbox, folders: Folders, *, readonly: bool) -> list[FetchedMail]:
    """Every record; they are few, so they are read instead of searched: an index may lag."""
    box.open(folders.outbox, readonly=readonly)
    uids = box.find("ALL")
    if len(uids) > RECORDS_MAX:
        raise PreconditionFailed(
            f"The folder {folders.outbox!r} holds {len(uids)} messages that may or may not have been sent. "
            "Look at them, then delete them."
        )
    return box.fetch_heads(uids, HEAD_BYTES)


def _id_of(raw: FetchedMail) -> str:
    return str(BytesHeaderParser(policy=policy.compat32).parsebytes(raw.data).get("Message-ID", "")).strip()


def _record_id(id: str) -> str:
    return id.replace(_SENT, _RECORD, 1)
