"""The mutations of Gmail, Sheets and Calendar as subjects of the contract."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from keepai import Connector, OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.connectors import make
from keepai.connectors.google.access import OF, TOKEN, _digest
from keepai.testing.contract import CANARY, HttpSubject
from keepai.testing.contract.http import RETRY_AFTER_S
from keepai.testing.loopback import HttpReply, Request
from tests.connectors.services.google import SECRETS, CalendarService, GmailService, Service, SheetsService, error

SIGNED_IN = {TOKEN: f"{CANARY}-access", OF: _digest(SECRETS["refresh_token"])}
SETTINGS = {"account": "ann@example.com", "client_id": "client-1", "networks": ["127.0.0.1"]}


def connect(type_name: str, name: str, url: str, path: str, **vault: str) -> Connector:
    """A connector to a service on loopback."""
    places = {"api": f"{url}{path}", "token_url": f"{url}/token", "auth_url": f"{url}/auth"}
    made = make(type_name, name, {**SETTINGS, **places})
    made.entrust({**SECRETS, **vault})
    return made


class GoogleSubject(HttpSubject):
    """One mutation; refusals are named by status and reason, such as `403 rateLimitExceeded`."""

    kind = "http"
    type_name: ClassVar[str]
    path: ClassVar[str]
    write: ClassVar[str]  # how the path of the mutation's own request ends
    crash_lines_max = 6
    oddities = ("409", "503", "200 nothing", "200 a list")
    patience_s = 2.0  # a call asks for a token and where things are before it sends
    refusals = MappingProxyType({
        "400 invalidArgument": Rejected, "401 authError": PermissionDenied,
        "403 insufficientPermissions": PermissionDenied, "403 rateLimitExceeded": Transient,
        "403 userRateLimitExceeded": Transient, "404 notFound": PreconditionFailed, "429 rateLimitExceeded": Transient,
        "429": Transient, "500 backendError": OutcomeUnknown, "503 rateLimitExceeded": OutcomeUnknown,
        "409 duplicate": OutcomeUnknown, "302": OutcomeUnknown,
    })
    retry_after = MappingProxyType({"429 rateLimitExceeded": RETRY_AFTER_S, "403 rateLimitExceeded": RETRY_AFTER_S})

    def __init__(self, folder: Path) -> None:
        self.service = self.serve()
        self.service.valid.add(SIGNED_IN[TOKEN])
        super().__init__(folder)

    def serve(self) -> Any:
        raise NotImplementedError

    def connector(self) -> Connector:
        made = connect(self.type_name, "under_test", self.server.url, self.path)
        made._vault.update(SIGNED_IN)  # renewing has tests of its own
        return made

    def handle(self, request: Request) -> HttpReply:
        service: Service = self.service
        return service.handle(request)

    def is_write(self, request: Request) -> bool:
        return request.method != "GET" and request.path.endswith(self.write)

    def refused(self, name: str) -> HttpReply:
        status, _, reason = name.partition(" ")
        return error(int(status), reason, {"Retry-After": f"{RETRY_AFTER_S:g}"} if name in self.retry_after else {})


class GmailSend(GoogleSubject):
    type_name, path, write = "google.gmail", "/gmail/v1/", "/messages/send"
    operation = "send"
    params = MappingProxyType({"to": ["bob@example.com"], "subject": "Grüße", "body": "Hallo\n"})

    def serve(self) -> GmailService:
        service = GmailService()
        service.receive("bob@example.com", "Before", "text")
        return service

    def effects(self) -> int:
        return len(self.service.sent)


class GmailSendWhenIdsAreRewritten(GmailSend):
    how = "when ids are rewritten"
    crash_lines_max = 0
    oddities = ()
    refusals = MappingProxyType({})

    def serve(self) -> GmailService:
        service = super().serve()
        service.rewrites_ids = True
        return service


class GmailReply(GmailSend):
    operation = "reply"
    params = MappingProxyType({"id": "19a0000000000000", "to": "bob@example.com", "body": "Yes."})
    refusals = MappingProxyType({"403 rateLimitExceeded": Transient, "500 backendError": OutcomeUnknown})


class GmailLabel(GmailSend):
    operation, write = "label", "/modify"
    params = MappingProxyType({"id": "19a0000000000000", "add": ["Invoices"], "remove": ["UNREAD"]})
    by_state = True
    refusals = MappingProxyType({"403 rateLimitExceeded": Transient, "500 backendError": OutcomeUnknown})

    def effects(self) -> int:
        return int("Label_1" in self.service.messages[0]["labelIds"])


class SheetsAppend(GoogleSubject):
    type_name, path, write = "google.sheets", "/v4/", ":batchUpdate"
    operation = "appendRow"
    params = MappingProxyType({"spreadsheetId": "book-1", "values": ["fresh", 2, None, True]})
    refusals = MappingProxyType({
        "400 badRequest": Rejected, "403 forbidden": PermissionDenied, "429": Transient, "503": OutcomeUnknown,
    })

    def serve(self) -> SheetsService:
        service = SheetsService()
        service.write("before", "x")
        return service

    def effects(self) -> int:
        return sum("fresh" in row for row in self.service.rows())


class SheetsUpdate(SheetsAppend):
    operation, same_key_once = "updateRow", True
    params = MappingProxyType({"spreadsheetId": "book-1", "rowId": "a" * 20, "values": ["fresh", "multi\nline"]})

    def serve(self) -> SheetsService:
        service = super().serve()
        service.write("old", "1")
        service.sheets["book-1"]["First"]["rows"][1][0]["note"] = f"By me.\nkeep:{'a' * 20}"
        return service


class CalendarCreate(GoogleSubject):
    type_name, path, write = "google.calendar", "/calendar/v3/", "/events"
    operation = "create"
    params = MappingProxyType({
        "title": "Grüße", "start": "2026-01-06T09:00:00Z", "end": "2026-01-06T10:00:00Z",
        "attendees": ["b@example.com"],
    })
    refusals = MappingProxyType({
        "400 invalid": Rejected, "403 quotaExceeded": Transient, "403 forbiddenForNonOrganizer": PermissionDenied,
        "404 notFound": PreconditionFailed, "409 duplicate": OutcomeUnknown, "503": OutcomeUnknown,
    })

    def serve(self) -> CalendarService:
        service = CalendarService()
        times = {"start": {"date": "2026-01-06"}, "end": {"date": "2026-01-07"}}
        service.put({"id": "before", "summary": "Before", **times})
        return service

    def effects(self) -> int:
        return sum(each["summary"] == "Grüße" for each in self.service.events.values())


class CalendarUpdate(CalendarCreate):
    operation, same_key_once, write = "update", True, "/before"
    params = MappingProxyType({"id": "before", "title": "Grüße"})
    refusals = MappingProxyType({"412 conditionNotMet": Transient, "503": OutcomeUnknown})


GOOGLE = [
    GmailSend, GmailSendWhenIdsAreRewritten, GmailReply, GmailLabel, SheetsAppend, SheetsUpdate, CalendarCreate,
    CalendarUpdate,
]
