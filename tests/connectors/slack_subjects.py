"""The mutations of Slack as subjects of the contract."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from keepai import Connector, OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.connectors import make
from keepai.testing.contract import HttpSubject
from keepai.testing.contract.http import RETRY_AFTER_S
from keepai.testing.loopback import HttpReply, Request
from tests.connectors.services.slack import TOKEN, SlackService, no


def connect(url: str) -> Connector:
    """A connector to a workspace on loopback."""
    settings = {"account": "Example", "api": f"{url}/api/", "networks": ["127.0.0.1"]}
    made = make("slack", "slack", {**settings, "channels": {"general": "C0GENERAL"}})
    made.entrust({"token": TOKEN})
    return made


class SlackPost(HttpSubject):
    kind = "http"
    operation = "post"
    params = MappingProxyType({"channel": "#general", "text": "Grüße <all> & everybody"})
    crash_lines_max = 6
    oddities = ("409", "503", "200 nothing", "200 a list", "200 a page")
    refusals = MappingProxyType({
        "invalid_auth": PermissionDenied, "missing_scope": PermissionDenied, "channel_not_found": PreconditionFailed,
        "is_archived": PreconditionFailed, "msg_too_long": Rejected, "ratelimited": Transient, "429": Transient,
        "internal_error": OutcomeUnknown, "fatal_error": OutcomeUnknown, "service_unavailable": OutcomeUnknown,
        "request_timeout": OutcomeUnknown, "an_error_that_is_new": OutcomeUnknown, "503": OutcomeUnknown,
        "403": OutcomeUnknown,
    })
    retry_after = MappingProxyType({"429": RETRY_AFTER_S})

    def __init__(self, folder: Path) -> None:
        self.service = SlackService()
        self.service.say("Before")
        super().__init__(folder)

    def connector(self) -> Connector:
        return connect(self.server.url)

    def handle(self, request: Request) -> HttpReply:
        return self.service.handle(request)

    def refused(self, name: str) -> HttpReply:
        return super().refused(name) if name.isdecimal() else no(name)

    def effects(self) -> int:
        return sum("everybody" in each["text"] for each in self.service.messages)


class SlackThread(SlackPost):
    how = "in a thread"
    params = MappingProxyType({"channel": "C0GENERAL", "text": "everybody", "thread": "1767600001.000100"})
    crash_lines_max = 0
    refusals = MappingProxyType({"429": Transient, "503": OutcomeUnknown})


class SlackUpdate(SlackPost):
    operation, same_key_once = "update", True
    params = MappingProxyType({"channel": "C0GENERAL", "id": "1767600002.000100", "text": "everybody"})
    refusals = MappingProxyType({"message_not_found": PreconditionFailed, "update_failed": OutcomeUnknown})

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        mark = {"event_type": "keep_message", "event_payload": {"key": "k", "updates": ""}}
        self.service.say("Mine", bot_id="B1", metadata=mark)


SLACK = [SlackPost, SlackThread, SlackUpdate]
