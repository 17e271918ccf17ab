"""`ctx.slack`: reads channels, posts messages and changes its own.

A message has its idempotency key, hashed, in its metadata, which the history of a channel shows. Slack documents no key
that it honours (`client_msg_id` comes without a promise). So an unknown outcome is looked up, and never sent again on a
guess. Text is plain text unless the script sets `markup`, so that words of a stranger cannot mention anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict
from urllib.parse import urlencode

from ...model.clock import iso
from ...model.errors import OutcomeUnknown, PreconditionFailed, Rejected, Transient
from ..base import Call, Comparison, Connector, Page, Verdict, mutation, read
from ..egress import Client, Rules
from ..kit.marks import UPDATES_MAX, key_digest
from ..kit.pages import checked_limit, readable
from ..kit.texts import clean, compare_texts
from .slack_errors import read_result, write_result

API = "https://slack.com/api/"
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
PAGE = 200
PAGES_MAX = 25
EARLY_S = 86_400  #: how much the clocks here and at Slack may differ without a message being missed
#: Seconds after the end of a call in which its message may still appear. Histories lag only a little.
SETTLE_S = 30
TEXT_MAX = 40_000  #: characters; Slack silently cuts longer texts
EVENT = "keep_message"
_CHANNEL = re.compile(r"[CGD][A-Z0-9]{2,30}")
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class ReadChannel(TypedDict):
    """Which messages: of a channel, or of a thread in it."""

    channel: str
    thread: NotRequired[str | None]
    after: NotRequired[str | None]  # a `lastCursor`
    limit: NotRequired[int | None]


class PostMessage(TypedDict):
    """A message to post; with `thread`, a reply to the message with that id."""

    channel: str
    text: str
    thread: NotRequired[str | None]
    markup: NotRequired[bool | None]  # whether the text has links and mentions in Slack's own spelling


class UpdateMessage(TypedDict):
    """A new text for a message that this app posted; in a thread, `thread` is the id of its first message."""

    channel: str
    id: str
    text: str
    thread: NotRequired[str | None]
    markup: NotRequired[bool | None]


class SlackMessage(TypedDict):
    """A message, with its text as Slack spells it."""

    id: str
    channel: str
    user: str
    text: str
    date: str
    thread: str | None
    bot: bool


class PostedMessage(TypedDict):
    """The message. Its id is unique in its channel."""

    id: str
    channel: str


class Slack(Connector):
    """Channels at Slack: `type = "slack"`.

    account: the workspace, for people
    channels: names that scripts may use instead of channel ids
    api: another address of the API, such as your own proxy
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    """

    name = "slack"
    input_types = ("message", "reaction")
    secrets = MappingProxyType({"token": "The bot token of the app (xoxb-…)"})

    def __init__(
        self, account: str, *, channels: dict[str, str] | None = None, api: str = API,
        networks: list[str] | None = None, name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.account = account
        self._channels = {channel.lstrip("#"): id for channel, id in (channels or {}).items()}
        self._root = api.rstrip("/") + "/"
        self._client = Client(Rules.under([self._root], networks or ()))

    async def check(self) -> None:
        """Check that the token is valid."""
        await self._ask("auth.test", Call(), {})

    @read
    async def history(self, params: ReadChannel, call: Call) -> Page[SlackMessage]:
        """Messages, oldest first: after a cursor, or without one the newest.

        `lastCursor` is where to continue; `more` says whether `limit` left out newer ones.
        """
        limit, after = checked_limit(params.get("limit"), LIMIT_DEFAULT, LIMIT_MAX), params.get("after")
        channel, thread = self._channel(params), _ts(params.get("thread"), "thread")
        most = PAGE * PAGES_MAX if after else limit
        messages, cut = await self._messages(channel, thread, _ts(after, "after"), most, call)
        if after and cut:
            raise PreconditionFailed(f"More than {most:,} messages came since then. Ask again without `after`.")
        passed = _moment({"ts": after}) if after else (0, 0)
        read = readable(messages, lambda message: (_moment(message), _shown(message, channel)), call, "the message")
        # Slack always returns the first message of a thread, so it is left out here.
        fresh = sorted((entry for entry in read if entry[0] > passed), key=lambda entry: entry[0])
        shown = [message for _, message in (fresh[:limit] if after else fresh[-limit:])]
        last = shown[-1]["id"] if shown else after or "0.0"
        return Page(shown, lastCursor=last, more=len(fresh) > limit and bool(after))

    @mutation(identity=("channel", "thread"), target="channel", settle=SETTLE_S)
    async def post(self, params: PostMessage, call: Call) -> PostedMessage:
        """Post a message."""
        body = {"channel": self._channel(params), **_text(params), "unfurl_links": False, "unfurl_media": False}
        thread = _ts(params.get("thread"), "thread")
        body |= {"thread_ts": thread} if thread else {}
        body["metadata"] = _metadata(key_digest(call.idempotency_key), ())
        return _posted(await self._send("chat.postMessage", body, call))

    @post.reconcile
    async def find_post(self, params: PostMessage, call: Call) -> Verdict:
        """Look for the key in the metadata of the messages since."""
        channel, mark = self._channel(params), key_digest(call.idempotency_key)
        oldest = f"{max(0, call.since_ms // 1000 - EARLY_S)}.000000" if call.since_ms is not None else None
        thread = _ts(params.get("thread"), "thread")
        messages, cut = await self._messages(channel, thread, oldest, PAGE * PAGES_MAX, call)
        posted = next((message for message in messages if _marks(message)[0] == mark), None)
        if posted is not None:
            return Verdict.applied({"id": posted["ts"], "channel": channel})
        return Verdict.unknown("There are too many messages since then to search.") if cut else Verdict.failed()

    @mutation(identity=("channel", "id"), target="id", settle=SETTLE_S)
    async def update(self, params: UpdateMessage, call: Call) -> PostedMessage:
        """Replace the text of a message that this app posted."""
        channel, mark = self._channel(params), key_digest(call.idempotency_key)
        message = await self._message(channel, params, call)
        if message is None:
            raise PreconditionFailed(f"The message {params['id']} no longer exists.")
        key, updates = _marks(message)
        if mark in updates:
            return {"id": params["id"], "channel": channel}
        body = {"channel": channel, "ts": params["id"], **_text(params)}
        body["metadata"] = _metadata(key, [*updates, mark][-UPDATES_MAX:])
        return _posted(await self._send("chat.update", body, call))

    @update.reconcile
    async def find_update(self, params: UpdateMessage, call: Call) -> Verdict:
        """Look for the key among the updates that the message remembers."""
        channel = self._channel(params)
        message = await self._message(channel, params, call)
        if message is None:
            return Verdict.unknown("The message is gone.")
        updates = _marks(message)[1]
        if key_digest(call.idempotency_key) in updates:
            return Verdict.applied({"id": params["id"], "channel": channel})
        if len(updates) >= UPDATES_MAX:
            return Verdict.unknown("The message was changed too often since then, so Keep cannot tell.")
        return Verdict.failed()

    @post.compare_payload
    @update.compare_payload
    def compare_messages(self, old: Any, new: Any) -> Comparison:
        """A difference in spaces alone is minor."""
        return compare_texts(old, new)

    @post.preview
    def say_post(self, params: PostMessage) -> str:
        """Where, and the whole text."""
        where = f"{params['channel']}, thread {params['thread']}" if params.get("thread") else params["channel"]
        markup = " (with links and mentions)" if params.get("markup") else ""
        return f"{self.name}.post to {where} of {self.account}{markup}\n\n{params['text']}"

    @update.preview
    def say_update(self, params: UpdateMessage) -> str:
        """Which message, and its new text."""
        markup = " (with links and mentions)" if params.get("markup") else ""
        place = f"{params['id']} in {params['channel']} of {self.account}"
        return f"{self.name}.update of {place}{markup}\n\n{params['text']}"

    def _channel(self, params: Any) -> str:
        name = str(params["channel"]).lstrip("#")
        id = self._channels.get(name, name)
        if not _CHANNEL.fullmatch(id):
            raise Rejected(
                f"{name[:60]!r} is neither a channel id, such as C0123456789, nor a name in the setting `channels`.",
            )
        return id

    async def _message(self, channel: str, params: UpdateMessage, call: Call) -> dict[str, Any] | None:
        id, thread = _ts(params["id"], "id"), _ts(params.get("thread"), "thread")
        query = {"channel": channel, "oldest": id, "latest": id, "inclusive": "true", "limit": "1"}
        method = "conversations.replies" if thread else "conversations.history"
        answer = await self._ask(method, call, {**query, "ts": thread})
        messages: list[dict[str, Any]] = answer.get("messages") or []
        return next((message for message in messages if message["ts"] == id), None)

    async def _messages(
        self, channel: str, thread: str | None, oldest: str | None, most: int, call: Call,
    ) -> tuple[list[dict[str, Any]], bool]:
        """Messages since a time, at most `most`; and whether there are more."""
        method = "conversations.replies" if thread else "conversations.history"
        messages: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            answer = await self._ask(method, call, {
                "channel": channel, "ts": thread, "oldest": oldest, "cursor": cursor,
                "limit": str(min(PAGE, most - len(messages))),
            })
            messages += answer.get("messages") or []
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None or len(messages) >= most:
                return messages[:most], cursor is not None or bool(answer.get("has_more"))

    async def _ask(self, method: str, call: Call, query: Mapping[str, str | None]) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value is not None}
        url = f"{self._root}{method}?{urlencode({**given, 'include_all_metadata': 'true'})}"
        try:
            return read_result(await self._client.get(url, call, credentials=self._credentials()))
        except OutcomeUnknown as error:
            raise Transient(f"Slack could not be asked: {error.message}") from None

    async def _send(self, method: str, body: Mapping[str, Any], call: Call) -> dict[str, Any]:
        headers = {"Content-Type": "application/json; charset=utf-8"}
        return write_result(await self._client.send(
            "POST", f"{self._root}{method}", call, headers=headers, json=body, credentials=self._credentials(),
        ))

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret('token')}"}


def _text(params: Any) -> dict[str, Any]:
    """The text as Slack takes it. Without `markup`, every character of it is plain text."""
    text = params["text"]
    if not text.strip() or len(text) > TEXT_MAX:
        raise Rejected(f"text must not be empty and must have at most {TEXT_MAX:,} characters.")
    return {"text": text} if params.get("markup") else {"text": text.translate(_ESCAPED), "parse": "none"}


def _metadata(key: str, updates: Sequence[str]) -> dict[str, Any]:
    return {"event_type": EVENT, "event_payload": {"key": key, "updates": ",".join(updates)}}


def _marks(message: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The key with which a message was posted, and the keys of its updates."""
    metadata = message.get("metadata") or {}
    payload = metadata.get("event_payload") if metadata.get("event_type") == EVENT else None
    payload = payload if isinstance(payload, dict) else {}
    return str(payload.get("key", "")), [update for update in str(payload.get("updates", "")).split(",") if update]


def _posted(answer: Mapping[str, Any]) -> PostedMessage:
    return {"id": str(answer["ts"]), "channel": str(answer["channel"])}


def _shown(message: Mapping[str, Any], channel: str) -> SlackMessage:
    thread, (seconds, parts) = message.get("thread_ts"), _moment(message)
    return {
        "id": str(message["ts"]), "channel": channel, "user": str(message.get("user") or message.get("bot_id") or ""),
        "text": clean(str(message.get("text", ""))), "date": iso(seconds * 1000 + parts // 1000),
        "thread": str(thread) if thread else None, "bot": bool(message.get("bot_id")),
    }


def _moment(message: Mapping[str, Any]) -> tuple[int, int]:
    """When it was posted: seconds and millionths."""
    seconds, _, parts = str(message["ts"]).partition(".")
    return int(seconds), int(parts.ljust(6, "0")[:6] or 0)


def _ts(given: str | None, param: str) -> str | None:
    if given is not None and not _TS.fullmatch(given):
        raise Rejected(f"{param} must be the id of a message, such as 1767600000.000100.")
    return given
