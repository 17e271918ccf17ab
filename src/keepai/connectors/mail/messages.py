"""Finds and reads messages: ids that do not depend on the server's numbers, and cursors that miss nothing.

IMAP numbers the messages of a folder upwards (UIDs). So a cursor is the last number that was read, with the folder's
UIDVALIDITY: `1700000000.42`. If a server assigns new numbers, that value changes, and the cursor counts as the
beginning. The same holds for a cursor that is ahead of the folder, as after a restored backup. Then all messages are
read again and none is missed. They do not count as new, because the id of a message does not depend on the numbers: it
is a hash over its headers, which never change and differ for every delivery, followed by what finds it again: its
Message-ID, or the day on which it came.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import policy
from email.message import Message as Parsed
from email.parser import BytesHeaderParser

from ...model.errors import Rejected
from ..kit import mail_parser, mail_query, mail_writer
from ..kit.mailbox import FoundMail, FullMail, SearchMail
from ..kit.pages import PAGE_BYTES, checked_limit, readable, size_of
from ..kit.parser_process import ParserProcess
from ..kit.texts import clean
from ..values import Call, Page
from .imap import FetchedMail, FolderStatus, ImapMailbox

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 5_000
BATCH = 20
LOOK_BYTES = 1 << 18  #: of each message in a search
HEAD_BYTES = 1 << 16  #: of the headers, for the id
SCANNED_MAX = 2_000  #: messages that one search reads
THREAD_MAX = 100
_CURSOR = re.compile(r"(\d{1,10})\.(\d{1,10})")
_FINDABLE = re.compile(r"[!#-;=?A-\[\]-~][!#-;=?-\[\]-~]{0,199}")  # printable ASCII without " \ < >, and no @ first
_ID = re.compile(r"([0-9a-f]{24})-(?:@(\d{4}-\d\d-\d\d)|(.+))")
_BARE = re.compile(r"<([^<>]+)>")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class FoundImapMail(FoundMail):
    """A message as a search shows it."""

    messageId: str
    automatic: bool


class FullImapMail(FullMail):
    """A message with its text."""

    messageId: str
    automatic: bool
    cc: str
    replyTo: str
    labels: list[str]


@dataclass(frozen=True)
class UidCursor:
    """Where a search continues in the numbers of a folder."""

    validity: int
    uid: int

    def __str__(self) -> str:
        return f"{self.validity}.{self.uid}"


def search(box: ImapMailbox, folder: str, params: SearchMail, now_ms: int, call: Call) -> Page[FoundImapMail]:
    """The messages of a folder that came after a cursor, in the order of arrival."""
    fits = mail_query.matcher(params.get("query"), now_ms)
    limit = checked_limit(params.get("limit"), LIMIT_DEFAULT, LIMIT_MAX)
    status = box.open(folder)
    start = _start(params.get("after"), status)
    uids = _fresh(box, start, status, mail_query.since_ms(params.get("query"), now_ms))
    page_items: list[FoundImapMail] = []
    size, last_uid = 0, start
    with mail_parser.reader() as parser:
        def show(raw: FetchedMail) -> FoundImapMail | None:
            mail = _mail(raw, parser, call)
            return _found(mail, raw) if fits(mail) else None

        for batch in (uids[n:n + BATCH] for n in range(0, min(len(uids), SCANNED_MAX), BATCH)):
            raws = {raw.uid: raw for raw in box.fetch(batch, LOOK_BYTES)}
            for uid in batch:
                out_of_time = last_uid > start and call.remaining_s < 2
                if len(page_items) >= limit or size >= PAGE_BYTES or out_of_time:
                    return Page(page_items, lastCursor=str(UidCursor(status.validity, last_uid)), more=True)
                present = [raws[uid]] if uid in raws else []  # otherwise it was deleted since the search
                for entry in readable(present, show, call, "the message with UID"):
                    if entry is not None:
                        page_items.append(entry)
                        size += size_of(entry)
                last_uid = uid
    more = bool(uids) and last_uid < uids[-1]
    end = last_uid if more else max(last_uid, status.next_uid - 1)
    return Page(page_items, lastCursor=str(UidCursor(status.validity, end)), more=more)


def get(box: ImapMailbox, folders: Sequence[str], id: str, call: Call) -> FullImapMail | None:
    """One message, in whichever folder it is."""
    for folder in folders:
        box.open(folder)
        uids = locate(box, id)
        if uids:
            mails = box.fetch(uids[:1], mail_parser.READ_MAX + 1)
            with mail_parser.reader() as parser:
                return _whole(mails[0], parser, call) if mails else None
    return None


def thread(box: ImapMailbox, folders: Sequence[str], id: str, call: Call) -> Page[FullImapMail]:
    """The conversation that a message belongs to, oldest first, each message once."""
    first = headers_of(box, folders, id)
    root = next(iter(references(first)), "") or _message_id(first)
    if not _BARE.fullmatch(root) or not _FINDABLE.fullmatch(root[1:-1]):
        mail = get(box, folders, id, call)
        return Page([mail] if mail else [], more=False)
    parts: dict[str, FullImapMail] = {}
    with mail_parser.reader() as parser:
        for folder in folders:
            box.open(folder)
            uids = box.find(f'OR HEADER Message-ID "{root}" HEADER References "{root}"')[:THREAD_MAX]
            raws = box.fetch(uids, LOOK_BYTES)
            for mail in readable(raws, lambda raw: _whole(raw, parser, call), call, "the message with UID"):
                parts.setdefault(mail["id"], mail)
    return _cut(sorted(parts.values(), key=lambda mail: mail["date"]))


def headers_of(box: ImapMailbox, folders: Sequence[str], id: str) -> Parsed | None:
    """The headers of one message; None if it is in no folder."""
    for folder in folders:
        box.open(folder)
        mails = box.fetch_heads(locate(box, id)[:1], HEAD_BYTES)
        if mails:
            return _headers(mails[0].data)
    return None


def locate(box: ImapMailbox, id: str) -> list[int]:
    """The UIDs in the open folder of the message with this id, or of all messages with a Message-ID `<…>`."""
    bare = _BARE.fullmatch(id)
    if bare and _FINDABLE.fullmatch(bare[1]):
        heads = box.fetch_heads(box.find(f'HEADER Message-ID "{id}"')[:THREAD_MAX], HEAD_BYTES)
        return [raw.uid for raw in heads if _message_id(_headers(raw.data)) == id]
    match = _ID.fullmatch(id)
    if match is None or (match[3] and not _FINDABLE.fullmatch(match[3])):
        return []
    criteria = _around(match[2]) if match[2] else f'HEADER Message-ID "{match[3]}"'
    heads = box.fetch_heads(box.find(criteria), HEAD_BYTES) if criteria else []
    return [raw.uid for raw in heads if id_of(raw) == id]


def id_of(raw: FetchedMail) -> str:
    """The id of a message, made from its headers, never from its number."""
    head = re.split(rb"\r?\n\r?\n", raw.data[:HEAD_BYTES], maxsplit=1)[0]
    digest = hashlib.sha256(head.replace(b"\r\n", b"\n").strip(b"\r\n")).hexdigest()[:24]
    bare = _BARE.fullmatch(_message_id(_headers(raw.data)))
    if bare and _FINDABLE.fullmatch(bare[1]):
        return f"{digest}-{bare[1]}"
    return f"{digest}-@{_day(raw.received)}"


def references(headers: Parsed | None) -> list[str]:
    """The Message-IDs of the earlier messages that a message names, oldest first."""
    if headers is None:
        return []
    text = _header(headers, "References") or _header(headers, "In-Reply-To")
    return [f"<{past_id}>" for past_id in _BARE.findall(text) if _FINDABLE.fullmatch(past_id)][-20:]


def answered(id: str) -> str:
    """The Message-ID that a reply names: `<…>` as it is, or that of an id of `search`; empty if there is none."""
    match = _ID.fullmatch(id)
    bare = match[3] if match else id[1:-1] if _BARE.fullmatch(id) else None
    if not _FINDABLE.fullmatch(bare) if bare is not None else match is None:
        raise Rejected(f"inReplyTo must be the id of a message, or its Message-ID <…>, not {id[:80]!r}.")
    return f"<{bare}>" if bare else ""


def reply_headers(headers: Parsed) -> tuple[str, list[str]]:
    """The subject of a reply, and the Message-IDs that it names: those of the message's past, and its own."""
    past, own = references(headers), _message_id(headers)
    bare = _BARE.fullmatch(own)
    if bare and _FINDABLE.fullmatch(bare[1]):
        past.append(own)
    return mail_writer.reply_subject(_header(headers, "Subject")), past


def _start(after: str | None, status: FolderStatus) -> int:
    if not after:
        return 0
    match = _CURSOR.fullmatch(after)
    if match is None:
        raise Rejected(f"after must be a lastCursor that search returned, not {after[:60]!r}.")
    cursor = UidCursor(int(match[1]), int(match[2]))
    known = cursor.validity == status.validity and cursor.uid < max(status.next_uid, 1)
    return cursor.uid if known else 0


def _fresh(box: ImapMailbox, start: int, status: FolderStatus, since_ms: int | None) -> list[int]:
    """The numbers after `start`. `n:*` always includes the last number; messages that came since then wait."""
    criteria = f"UID {start + 1}:*"
    if since_ms is not None:
        day = _imap_day(datetime.fromtimestamp(since_ms / 1000, UTC) - timedelta(days=2))  # time zones
        criteria += f" OR SENTSINCE {day} SINCE {day}"
    return [uid for uid in box.find(criteria) if start < uid < status.next_uid]


def _around(day: str) -> str:
    """Messages that came on that day in any time zone."""
    try:
        middle = datetime.fromisoformat(day)
    except ValueError:
        return ""
    return f"SINCE {_imap_day(middle - timedelta(days=1))} BEFORE {_imap_day(middle + timedelta(days=2))}"


def _imap_day(day: datetime) -> str:
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year:04d}"


def _day(received: str) -> str:
    match = re.fullmatch(r"\s*(\d{1,2})-([A-Za-z]{3})-(\d{4}) .*", received)
    if match is None or match[2] not in _MONTHS:
        return "1970-01-01"
    return f"{match[3]}-{_MONTHS.index(match[2]) + 1:02d}-{int(match[1]):02d}"


def _received_ms(raw: FetchedMail) -> int:
    try:
        return int(datetime.strptime(raw.received.strip(), "%d-%b-%Y %H:%M:%S %z").timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def _headers(data: bytes) -> Parsed:
    return BytesHeaderParser(policy=policy.compat32).parsebytes(data[:HEAD_BYTES])


def _header(headers: Parsed | None, name: str) -> str:
    return mail_parser.header(headers, name) if headers is not None else ""


def _message_id(headers: Parsed | None) -> str:
    """The Message-ID as it is, not decoded, because the server searches for it in this form."""
    return str(headers.get("Message-ID", "")).strip() if headers is not None else ""


def _mail(raw: FetchedMail, parser: ParserProcess, call: Call) -> mail_parser.ParsedMail:
    return mail_parser.read(raw.data, id_of(raw), _received_ms(raw), parser, call.skip)


def _found(mail: mail_parser.ParsedMail, raw: FetchedMail) -> FoundImapMail:
    headers = _headers(raw.data)
    return {
        "id": mail.id, "from": mail.sender, "to": mail.to, "subject": mail.subject,
        "date": mail.date, "snippet": mail.snippet,
        "messageId": clean(_message_id(headers))[:300], "automatic": _is_automatic(headers),
    }


def _whole(raw: FetchedMail, parser: ParserProcess, call: Call) -> FullImapMail:
    mail, headers = _mail(raw, parser, call), _headers(raw.data)
    return {
        **_found(mail, raw), "cc": _header(headers, "Cc"), "replyTo": _header(headers, "Reply-To"),
        "labels": sorted(
            flag[1:].lower() if flag.startswith("\\") else flag for flag in raw.flags if flag != "\\Recent"
        ),
        "body": mail.body, "truncated": mail.truncated or raw.size > len(raw.data),
    }


def _is_automatic(headers: Parsed) -> bool:
    """Whether a program sent it, as its headers say. Another program must not answer such mail (RFC 3834)."""
    submitted = _header(headers, "Auto-Submitted").lower()
    bulk = _header(headers, "Precedence").lower() in ("bulk", "list", "junk", "auto_reply")
    return (submitted not in ("", "no")) or bulk or bool(_header(headers, "List-Id"))


def _cut(mails: list[FullImapMail]) -> Page[FullImapMail]:
    """As many messages as a page may hold."""
    kept: list[FullImapMail] = []
    size = 0
    for mail in mails:
        size += size_of(mail)
        if kept and size > PAGE_BYTES:
            break
        kept.append(mail)
    return Page(kept, more=len(kept) < len(mails))
