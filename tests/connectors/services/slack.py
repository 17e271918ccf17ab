"""Slack's Web API on loopback, as its documentation has it: 200 with `ok`, cursors, metadata, threads."""

from __future__ import annotations

from typing import Any

from keepai.testing.contract import CANARY
from keepai.testing.loopback import HttpReply, Request

TOKEN = f"xoxb-{CANARY}"
JSON = {"Content-Type": "application/json; charset=utf-8"}


def no(error: str) -> HttpReply:
    """A refusal as Slack words it."""
    return HttpReply(200, {"ok": False, "error": error, "needed": CANARY}, JSON)


class SlackService:
    """One workspace with the channel C0GENERAL."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []  # oldest first
        self.seconds = 1_767_600_000
        self.page_max = 200

    def say(self, text: str, user: str = "U1", **more: Any) -> dict[str, Any]:
        """Somebody writes."""
        self.seconds += 1
        message = {"type": "message", "ts": f"{self.seconds}.000100", "user": user, "text": text, **more}
        self.messages.append(message)
        return message

    def handle(self, request: Request) -> HttpReply:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return no("invalid_auth")
        method = request.path.removeprefix("/api/")
        if request.method == "POST":
            assert request.headers["content-type"].startswith("application/json")
            body = request.json()
            return self._post(body) if method == "chat.postMessage" else self._update(body)
        if method == "auth.test":
            return HttpReply(200, {"ok": True, "team": "T"}, JSON)
        return self._history(method, request)

    def _post(self, body: dict[str, Any]) -> HttpReply:
        if body["channel"] != "C0GENERAL":
            return no("channel_not_found")
        more = {"thread_ts": body["thread_ts"]} if "thread_ts" in body else {}
        made = self.say(body["text"], bot_id="B1", metadata=body["metadata"], **more)
        return HttpReply(200, {"ok": True, "channel": "C0GENERAL", "ts": made["ts"], "message": made}, JSON)

    def _update(self, body: dict[str, Any]) -> HttpReply:
        message = next((each for each in self.messages if each["ts"] == body["ts"]), None)
        if message is None:
            return no("message_not_found")
        if "bot_id" not in message:
            return no("cant_update_message")
        message["text"] = body["text"]
        message["metadata"] = body.get("metadata", message["metadata"])
        return HttpReply(200, {"ok": True, "channel": "C0GENERAL", "ts": body["ts"], "text": body["text"]}, JSON)

    def _history(self, method: str, request: Request) -> HttpReply:
        query = request.query
        if query["channel"] != "C0GENERAL":
            return no("channel_not_found")
        thread = query.get("ts")
        found = [each for each in self.messages if self._shown(each, thread, query)]
        if method == "conversations.history":
            found.reverse()
        start, size = int(query.get("cursor") or 0), min(int(query["limit"]), self.page_max)
        page = [self._public(each, query) for each in found[start : start + size]]
        more = start + size < len(found)
        said = {"ok": True, "messages": page, "has_more": more}
        said |= {"response_metadata": {"next_cursor": str(start + size) if more else ""}}
        return HttpReply(200, said, JSON)

    @staticmethod
    def _shown(message: dict[str, Any], thread: str | None, query: Any) -> bool:
        if thread and message["ts"] == thread:
            return True  # the first message of a thread comes always
        if message.get("thread_ts") != thread:
            return False
        ts, oldest, latest = float(message["ts"]), float(query.get("oldest") or 0), float(query.get("latest") or 1e12)
        return oldest <= ts <= latest if query.get("inclusive") == "true" else oldest < ts < latest

    @staticmethod
    def _public(message: dict[str, Any], query: Any) -> dict[str, Any]:
        hidden = () if query.get("include_all_metadata") == "true" else ("metadata",)
        return {key: value for key, value in message.items() if key not in hidden}
