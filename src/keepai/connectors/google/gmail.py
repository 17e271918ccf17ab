"""`ctx.gmail`: a mailbox at Gmail, with the operations of the local mailbox.

A sent message has two marks of its idempotency key (see `gmail_messages`). The look-up uses both: it searches for the
Message-ID, and it looks for the header in the newest sent messages. It says "not sent" only if one of the two would
certainly have found the message. For a label it looks at the present labels: adding one twice is adding it once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired, TypedDict

from ...model.clock import Clock, SystemClock
from ...model.errors import PermissionDenied, PreconditionFailed, Rejected
from ..base import Call, Comparison, Page, Verdict, mutation, read
from ..kit import addresses
from ..kit.mail_writer import Letter, is_message_id, letter_of, previewed, reply_subject
from ..kit.mailbox import GetMail, LabelledMail, OutgoingMail, SearchMail, SendMail, SentMail
from ..kit.pages import checked_limit, readable
from ..kit.params import AddressList
from ..kit.texts import compare_texts
from .api import RENEWED_AT, Google, part
from .gmail_messages import (
    KEY_HEADER,
    SHOWN,
    FoundGmail,
    FullGmail,
    date_ms,
    found_mail,
    full_mail,
    header,
    marker,
    message_id,
    write,
)
from .google_cursor import AGAIN_MS, GoogleCursor
from .google_sign_in import SIGNED_IN_AT

LIMIT_DEFAULT = 50
LIMIT_MAX = 500
LISTED_MAX = 10_000
AT_ONCE = 8
PAST_MAX = 20  #: messages of a conversation that a reply names
SENT_MAX = 100  #: sent messages that a look-up reads
EARLY_MS = 86_400_000  #: how much the clocks here and at Google may differ without a message being missed
#: Seconds until a sent message can be found. Gmail promises nothing; its index is usually seconds behind.
SETTLE_S = 120
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class GmailThread(TypedDict):
    """A conversation, oldest message first."""

    id: str
    messages: list[FullGmail]


class GmailSend(SendMail):
    """A message to send."""

    bcc: NotRequired[AddressList | None]


class GmailReply(GetMail, OutgoingMail):
    """A reply to a message. The script names `to`, so that the person who approves sees it."""

    subject: NotRequired[str | None]


class GmailLabel(TypedDict):
    """Labels to add to a message and labels to remove from it, by their names."""

    id: str
    add: NotRequired[list[str] | None]
    remove: NotRequired[list[str] | None]


class GmailSent(SentMail):
    """The message that was sent, and its thread."""

    threadId: str


class Gmail(Google):
    """A mailbox at Gmail: `type = "google.gmail"`.

    account: the address of the mailbox
    client_id: the OAuth client's id
    api: another address of the API, such as your own proxy
    token_url: another address at which access is renewed
    auth_url: another address at which a person signs in
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    """

    name = "gmail"
    title = "Gmail"
    scope = "https://www.googleapis.com/auth/gmail.modify"
    api = "https://gmail.googleapis.com/gmail/v1/"
    input_types = ("email", "thread")

    def __init__(
        self, account: str, client_id: str, *, api: str = "", token_url: str = RENEWED_AT,
        auth_url: str = SIGNED_IN_AT, networks: list[str] | None = None, name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            account, client_id, api=api, token_url=token_url, auth_url=auth_url, networks=networks, name=name,
        )
        self._clock = clock or SystemClock()
        self._sender = addresses.own_address(f"connectors.{self.name}", account)
        self._domain = self._sender.mailbox.rpartition("@")[2]

    async def check(self) -> None:
        """Check that the access works and is for this account."""
        await self._access.check()
        profile = await self._get("users/me/profile", Call())
        if str(profile.get("emailAddress", "")).lower() != self.account.lower():
            raise PermissionDenied(f"The access is not for {self.account}. Sign in as {self.account}.")

    @read
    async def search(self, params: SearchMail, call: Call) -> Page[FoundGmail]:
        """Messages in the order of arrival: after a cursor, or without one the newest.

        `query` is what Gmail's search box takes. `lastCursor` is never null; searching after it continues without a
        gap. `more` says whether `limit` left out newer ones.
        """
        limit = checked_limit(params.get("limit"), LIMIT_DEFAULT, LIMIT_MAX)
        query, after = params.get("query") or "", params.get("after")
        cursor = GoogleCursor.read(after) if after else None
        if cursor is None:
            ids, cut = await self._ids({"q": query or None}, limit, call)
        else:
            with_time = f"{query} after:{cursor.from_ms // 1000 - 1}".strip()
            ids, cut = await self._ids({"q": with_time}, LISTED_MAX, call)
            if cut:
                raise PreconditionFailed(f"More than {LISTED_MAX:,} messages came since then. Search without `after`.")
        return await self._page(ids, limit, cut, cursor, call)

    @read(by_id=True)
    async def get(self, params: GetMail, call: Call) -> FullGmail | None:
        """One message with its text, or null if it is gone."""
        message = await self._find(f"users/me/messages/{_id(params)}", call, {"format": "full"})
        return await asyncio.to_thread(full_mail, message, call.skip) if message is not None else None

    @read(by_id=True)
    async def thread(self, params: GetMail, call: Call) -> GmailThread | None:
        """A conversation with the texts of its messages, or null if it is gone."""
        thread = await self._find(f"users/me/threads/{_id(params)}", call, {"format": "full"})
        if thread is None:
            return None
        messages = await asyncio.to_thread(
            readable, thread.get("messages") or (), lambda message: full_mail(message, call.skip), call, "the message",
        )
        return {"id": str(thread["id"]), "messages": messages}

    @mutation(identity=("to",), target="to", settle=SETTLE_S)
    async def send(self, params: GmailSend, call: Call) -> GmailSent:
        """Send a message."""
        answered = params.get("inReplyTo") or ""
        past = [answered] if answered else []
        return await self._post(letter_of(self._sender, params, params["subject"], past), None, call)

    @mutation(identity=("id",), target="id", settle=SETTLE_S)
    async def reply(self, params: GmailReply, call: Call) -> GmailSent:
        """Reply to a message, in its conversation."""
        original = await self._metadata(_id(params), call, (*SHOWN, "References"))
        if original is None:
            raise PreconditionFailed(f"The message {params['id']} no longer exists.")
        past = f"{header(original, 'References')} {header(original, 'Message-ID')}".split()
        subject = params.get("subject") or reply_subject(header(original, "Subject"))
        past_ids = [word for word in past if is_message_id(word)][-PAST_MAX:]
        letter = letter_of(self._sender, params, subject, past_ids)
        return await self._post(replace(letter, automatic="auto-replied"), str(original["threadId"]), call)

    @mutation(identity=("id", "add", "remove"), target="id", settle=5)
    async def label(self, params: GmailLabel, call: Call) -> LabelledMail:
        """Add labels to a message and remove others."""
        id, known = _id(params), await self._labels(call)
        add, remove = _named(params.get("add"), known), _named(params.get("remove"), known)
        change = {"addLabelIds": add, "removeLabelIds": remove}
        if not any(change.values()):
            raise Rejected("Name at least one label in add or remove.")
        answer = await self._send("POST", f"users/me/messages/{id}/modify", call, change)
        return {"id": id, "labels": _names(answer.get("labelIds"), known)}

    @send.reconcile
    @reply.reconcile
    async def find_sent(self, params: GmailSend | GmailReply, call: Call) -> Verdict:
        """Look for the message by its marks."""
        own = message_id(call.idempotency_key, self._domain)
        answer = await self._get(
            "users/me/messages", call, {"q": f"rfc822msgid:{own[1:-1]}", "includeSpamTrash": True, "maxResults": 10},
        )
        for message in answer.get("messages") or ():
            return Verdict.applied({"id": str(message["id"]), "threadId": str(message["threadId"])})
        return await self._look_through(marker(call.idempotency_key), call)

    @label.reconcile
    async def see_labels(self, params: GmailLabel, call: Call) -> Verdict:
        """Look at the labels of the message."""
        known = await self._labels(call)
        message = await self._find(f"users/me/messages/{_id(params)}", call, {"format": "minimal"})
        if message is None:
            return Verdict.unknown("The message is gone.")
        has = {str(label_id) for label_id in message.get("labelIds") or ()}
        add, remove = _named(params.get("add"), known), _named(params.get("remove"), known)
        if has.issuperset(add) and has.isdisjoint(remove):
            return Verdict.applied({"id": params["id"], "labels": _names(message.get("labelIds"), known)})
        return Verdict.failed()

    @send.compare_payload
    @reply.compare_payload
    def compare_messages(self, old: Any, new: Any) -> Comparison:
        """A difference in line ends and spaces alone is minor."""
        return compare_texts(old, new)

    @send.preview
    def say_send(self, params: GmailSend) -> str:
        """The whole message."""
        return previewed(f"{self.name}.send as {self.account}", params)

    @reply.preview
    def say_reply(self, params: GmailReply) -> str:
        """The whole reply, and the message that it replies to."""
        return previewed(f"{self.name}.reply as {self.account}", params, answers=params["id"])

    # -- sending and looking up --

    async def _post(self, letter: Letter, thread: str | None, call: Call) -> GmailSent:
        raw = write(letter, call.idempotency_key, self._domain, self._clock.now_ms() / 1000)
        answer = await self._send(
            "POST", "users/me/messages/send", call, {"raw": raw, **({"threadId": thread} if thread else {})},
        )
        return {"id": str(answer["id"]), "threadId": str(answer["threadId"])}

    async def _look_through(self, mark: str, call: Call) -> Verdict:
        """Look for the header in the newest sent messages."""
        ids, cut = await self._ids({"labelIds": "SENT", "includeSpamTrash": True}, SENT_MAX, call)
        keeps_ids = False
        for start in range(0, len(ids), AT_ONCE):
            for message in await self._several(ids[start : start + AT_ONCE], call, ("Message-ID", KEY_HEADER)):
                sent_mark = header(message, KEY_HEADER)
                if sent_mark == mark:
                    return Verdict.applied({"id": str(message["id"]), "threadId": str(message["threadId"])})
                is_kept = header(message, "Message-ID").startswith(f"<keep.{sent_mark}@")
                keeps_ids = keeps_ids or (bool(sent_mark) and is_kept)
                if call.since_ms is not None and date_ms(message) < call.since_ms - EARLY_MS:
                    return Verdict.failed()
        if cut and not keeps_ids:
            return Verdict.unknown(f"It is not among the last {SENT_MAX} sent messages, and may be older.")
        return Verdict.failed()

    # -- reading --

    async def _page(
        self, ids: list[str], limit: int, cut: bool, cursor: GoogleCursor | None, call: Call,
    ) -> Page[FoundGmail]:
        seen = cursor.seen if cursor else {}
        fresh = [id for id in reversed(ids) if id not in seen]
        messages = await self._several(fresh[:limit], call)
        read = sorted(
            readable(messages, lambda message: (date_ms(message), found_mail(message)), call, "the message"),
            key=lambda entry: (entry[0], entry[1]["id"]),
        )
        came = {mail["id"]: ms for ms, mail in read}
        before = cursor or GoogleCursor(min(came.values(), default=0) if cut else 0)
        # An unreadable message counts as seen; otherwise a page of such messages would come again and again.
        unread = {id: before.from_ms for message in messages if (id := str(message.get("id"))) not in came}
        now = before.with_({**unread, **came}) if cursor or came else GoogleCursor(self._clock.now_ms() - AGAIN_MS)
        shown = [mail for ms, mail in read if cursor is None or not cursor.has(mail["id"], ms)]
        return Page(shown, lastCursor=now.cursor, more=len(fresh) > limit)

    async def _ids(self, query: Mapping[str, str | bool | None], most: int, call: Call) -> tuple[list[str], bool]:
        """Ids of messages, newest first, at most `most`; and whether there are more."""
        ids: list[str] = []
        page: str | None = None
        while True:
            size = min(500, most - len(ids))
            answer = await self._get("users/me/messages", call, {**query, "maxResults": size, "pageToken": page})
            ids += [str(message["id"]) for message in answer.get("messages") or ()]
            page = answer.get("nextPageToken")
            if not page or len(ids) >= most:
                return ids[:most], bool(page) or len(ids) > most

    async def _several(self, ids: Sequence[str], call: Call, headers: Sequence[str] = SHOWN) -> list[dict[str, Any]]:
        """Messages without their texts. Those that are gone are left out."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(id: str) -> Any:
            async with slots:
                return await self._metadata(id, call, headers)

        answers = await asyncio.gather(*(one(id) for id in ids), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if isinstance(answer, dict)]

    async def _metadata(self, id: str, call: Call, headers: Sequence[str]) -> Any | None:
        return await self._find(
            f"users/me/messages/{part(id)}", call, {"format": "metadata", "metadataHeaders": list(headers)},
        )

    async def _labels(self, call: Call) -> dict[str, str]:
        """Names of labels → their ids."""
        answer = await self._get("users/me/labels", call)
        return {str(label["name"]): str(label["id"]) for label in answer.get("labels") or ()}


def _named(labels: list[str] | None, known: Mapping[str, str]) -> list[str]:
    missing = [label for label in labels or () if label not in known]
    if missing:
        raise PreconditionFailed(f"Gmail has no label {missing[0][:60]!r}. Create it there, then try again.")
    return [known[label] for label in labels or ()]


def _names(ids: object, known: Mapping[str, str]) -> list[str]:
    names = {id: name for name, id in known.items()}
    return sorted(names.get(str(label_id), str(label_id)) for label_id in (ids if isinstance(ids, list) else ()))


def _id(params: Any) -> str:
    if not _ID.fullmatch(params["id"]):
        raise Rejected("id must be an id that search returned.")
    return str(params["id"])
