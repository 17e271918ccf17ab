"""Google's APIs on loopback, as their documentation has them: tokens that expire, and errors with their bodies."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from email import message_from_bytes, policy
from email.utils import getaddresses
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlencode

from keepai.model.clock import iso
from keepai.testing.contract import CANARY
from keepai.testing.loopback import HttpReply, Request

JSON = {"Content-Type": "application/json; charset=UTF-8"}
SECRETS = {"client_secret": f"{CANARY}-client", "refresh_token": f"{CANARY}-refresh"}
OF_TOKENS = {"expires_in": 3599, "token_type": "Bearer"}
STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
          409: "ALREADY_EXISTS", 410: "FAILED_PRECONDITION", 412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED",
          500: "INTERNAL", 503: "UNAVAILABLE"}


def error(status: int, reason: str = "", headers: dict[str, str] | None = None) -> HttpReply:
    """An error as Google words it; its words would be told to people if anybody passed them on."""
    domain = "usageLimits" if "imit" in reason else "global"
    said: dict[str, Any] = {"code": status, "message": f"Google's own words {CANARY}"}
    said["errors"] = [{"message": "words", "domain": domain, "reason": reason}] if reason else []
    said["status"] = STATUS.get(status, "UNKNOWN")
    return HttpReply(status, {"error": said}, {**JSON, **(headers or {})})


class Service:
    """What all of them share."""

    def __init__(self) -> None:
        self.renewals = 0
        self.valid: set[str] = set()
        self.revoked = False
        self.refresh_tokens = {SECRETS["refresh_token"]}
        self.person = "ann@example.com"  # who signs in
        self.denies = ""  # what the person is said to have done instead of allowing it
        self.withholds: set[str] = set()  # what an answer to a sign-in leaves out
        self.allowed: str | None = None  # scopes that the person ticks; None: all
        self.codes: dict[str, dict[str, str]] = {}  # code → what it was asked for with
        self.routes: list[tuple[str, re.Pattern[str], Callable[..., HttpReply]]] = []

    def expire(self) -> None:
        """No token counts any more that was given so far."""
        self.valid.clear()

    def handle(self, request: Request) -> HttpReply:
        if request.path == "/auth":
            return self._auth(request)
        if request.path == "/token":
            return self._token(request)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            return error(401, "authError")
        for method, pattern, answer in self.routes:
            found = pattern.fullmatch(request.path)
            if found and method == request.method:
                return answer(request, *(unquote(each) for each in found.groups()))
        return error(404, "notFound")

    def route(self, method: str, path: str, answer: Callable[..., HttpReply]) -> None:
        self.routes.append((method, re.compile(path), answer))

    def _auth(self, request: Request) -> HttpReply:
        """The page on which a person signs in; this one does it at once."""
        asked = dict(request.query)
        fixed = {"client_id": "client-1", "response_type": "code", "access_type": "offline", "prompt": "consent",
                 "code_challenge_method": "S256", "login_hint": "ann@example.com"}
        assert {key: asked.get(key) for key in fixed} == fixed
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", asked["redirect_uri"])
        said = {"error": self.denies, "state": asked["state"]}
        if not self.denies:
            code = f"4/{CANARY}-code-{len(self.codes)}"
            self.codes[code] = asked
            said = {"state": asked["state"], "code": code, "scope": asked["scope"]}
        return HttpReply(302, {}, {"Location": f"{asked['redirect_uri']}?{urlencode(said)}"})

    def _token(self, request: Request) -> HttpReply:
        form = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        client = {"client_id": form.pop("client_id", ""), "client_secret": form.pop("client_secret", "")}
        if self.revoked and "code" not in form:
            return HttpReply(400, {"error": "invalid_grant", "error_description": "Token has been revoked."}, JSON)
        if client != {"client_id": "client-1", "client_secret": SECRETS["client_secret"]}:
            return HttpReply(401, {"error": "invalid_client", "error_description": "Unauthorized"}, JSON)
        if form.get("grant_type") == "authorization_code":
            return self._redeemed(form)
        refresh_token = form.get("refresh_token")
        if form != {"grant_type": "refresh_token", "refresh_token": refresh_token} or (
                refresh_token not in self.refresh_tokens):
            return HttpReply(401, {"error": "invalid_client", "error_description": "Unauthorized"}, JSON)
        self.renewals += 1
        return HttpReply(200, {"access_token": self._valid(f"{CANARY}-access-{self.renewals}"), **OF_TOKENS}, JSON)

    def _redeemed(self, form: dict[str, str]) -> HttpReply:
        asked = self.codes.pop(form["code"], None)  # it works once
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or (asked["code_challenge"], asked["redirect_uri"]) != (challenge, form["redirect_uri"]):
            return HttpReply(400, {"error": "invalid_grant", "error_description": f"Bad Request {CANARY}"}, JSON)
        self.revoked = False
        fresh = f"1//{CANARY}-refresh-{len(self.refresh_tokens)}"
        self.refresh_tokens.add(fresh)
        claims = base64.urlsafe_b64encode(json.dumps({"email": self.person}).encode()).decode().rstrip("=")
        said = {
            "access_token": self._valid(f"{CANARY}-access-of-{fresh}"), "refresh_token": fresh, **OF_TOKENS,
            "scope": asked["scope"] if self.allowed is None else self.allowed, "id_token": f"e30.{claims}.{CANARY}",
        }
        return HttpReply(200, {key: value for key, value in said.items() if key not in self.withholds}, JSON)

    def _valid(self, token: str) -> str:
        self.valid.add(token)
        return token


class GmailService(Service):
    """A mailbox."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []  # oldest first
        self.labels = {"INBOX": "INBOX", "SENT": "SENT", "UNREAD": "UNREAD", "Label_1": "Invoices", "Label_2": "Done"}
        self.rewrites_ids = False  # as Gmail has been seen to do with what comes by its API
        self.index_lags = False  # a search does not find what is there
        self.now_ms = 1_767_600_000_000
        self.page_max = 500
        base = "/gmail/v1/users/me"
        self.route("GET", f"{base}/profile", lambda request: HttpReply(200, {"emailAddress": "ann@example.com"}, JSON))
        self.route("GET", f"{base}/labels", self._labels)
        self.route("GET", f"{base}/messages", self._list)
        self.route("POST", f"{base}/messages/send", self._send)
        self.route("GET", f"{base}/messages/([^/]+)", self._get)
        self.route("POST", f"{base}/messages/([^/]+)/modify", self._modify)
        self.route("GET", f"{base}/threads/([^/]+)", self._thread)

    def receive(self, sender: str, subject: str, body: str, *, ms: int | None = None, **more: Any) -> dict[str, Any]:
        """A message comes in."""
        self.now_ms += 1000
        headers = [("From", sender), ("To", "ann@example.com"), ("Subject", subject),
                   ("Message-ID", f"<{len(self.messages)}@elsewhere>"), *more.get("headers", ())]
        return self.add(headers, body, ["INBOX", "UNREAD"], None, self.now_ms if ms is None else ms)

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [each for each in self.messages if "SENT" in each["labelIds"]]

    def add(self, headers: list[tuple[str, str]], body: str, labels: list[str], thread: str | None, ms: int) -> Any:
        """Put a message into the mailbox."""
        id = f"19a{len(self.messages):013x}"
        self.messages.append({
            "id": id, "threadId": thread or id, "labelIds": labels, "snippet": body[:100], "internalDate": str(ms),
            "headers": [{"name": name, "value": value} for name, value in headers], "text": body,
        })
        return self.messages[-1]

    def _labels(self, request: Request) -> HttpReply:
        return HttpReply(200, {"labels": [{"id": id, "name": name} for id, name in self.labels.items()]}, JSON)

    def _list(self, request: Request) -> HttpReply:
        found = [each for each in reversed(self.messages) if self._fits(each, request.query)]
        start, size = int(request.query.get("pageToken", "0")), min(int(request.query["maxResults"]), self.page_max)
        page = [{"id": each["id"], "threadId": each["threadId"]} for each in found[start : start + size]]
        said: dict[str, Any] = {"messages": page} if page else {}
        said |= {"nextPageToken": str(start + size)} if start + size < len(found) else {}
        return HttpReply(200, {**said, "resultSizeEstimate": len(found)}, JSON)

    def _fits(self, message: dict[str, Any], query: Any) -> bool:
        if "labelIds" in query and query["labelIds"] not in message["labelIds"]:
            return False
        for word in query.get("q", "").split():
            key, _, value = word.partition(":")
            if self.index_lags:
                return False
            if key == "rfc822msgid":
                fits = f"<{value}>" in [each["value"] for each in message["headers"] if each["name"] == "Message-ID"]
            elif key == "after":
                fits = int(message["internalDate"]) > int(value) * 1000
            elif key == "label":
                fits = value in message["labelIds"]
            else:
                fits = (value or word).lower() in str(message["headers"]).lower()
            if not fits:
                return False
        return True

    def _get(self, request: Request, id: str) -> HttpReply:
        message = next((each for each in self.messages if each["id"] == id), None)
        if message is None:
            return error(404, "notFound")
        shown = {key: message[key] for key in ("id", "threadId", "labelIds", "snippet", "internalDate")}
        if request.query["format"] == "metadata":
            wanted = {value.lower() for name, value in request.pairs if name == "metadataHeaders"}
            shown["payload"] = {"headers": [each for each in message["headers"] if each["name"].lower() in wanted]}
        elif request.query["format"] == "full":
            shown["payload"] = self._payload(message)
        return HttpReply(200, shown, JSON)

    def _payload(self, message: dict[str, Any]) -> dict[str, Any]:
        data = base64.urlsafe_b64encode(message["text"].encode()).decode()
        parts = [{"mimeType": "text/plain", "filename": "", "body": {"size": len(data), "data": data}},
                 {"mimeType": "text/plain", "filename": "a.txt", "body": {"attachmentId": "x", "size": 9}}]
        return {"mimeType": "multipart/mixed", "headers": message["headers"], "parts": parts}

    def _thread(self, request: Request, id: str) -> HttpReply:
        found = [each for each in self.messages if each["threadId"] == id]
        shown = [{**each, "payload": self._payload(each)} for each in found]
        return HttpReply(200, {"id": id, "messages": shown}, JSON) if found else error(404, "notFound")

    def _send(self, request: Request) -> HttpReply:
        raw = base64.urlsafe_b64decode(request.json()["raw"])
        mail = message_from_bytes(raw, policy=policy.default)
        if not getaddresses([str(mail["To"] or "")])[0][1]:
            return error(400, "invalidArgument")
        headers = [(name, str(value)) for name, value in mail.items()]
        if self.rewrites_ids:
            other = f"<CA{len(self.messages)}@mail.gmail.com>"
            headers = [(name, other if name == "Message-ID" else value) for name, value in headers]
        self.now_ms += 1000
        made = self.add(headers, mail.get_content(), ["SENT"], request.json().get("threadId"), self.now_ms)
        return HttpReply(200, {"id": made["id"], "threadId": made["threadId"], "labelIds": ["SENT"]}, JSON)

    def _modify(self, request: Request, id: str) -> HttpReply:
        message = next((each for each in self.messages if each["id"] == id), None)
        change = request.json()
        if message is None:
            return error(404, "notFound")
        if not set(change["addLabelIds"]) | set(change["removeLabelIds"]) <= set(self.labels):
            return error(400, "invalidArgument")
        kept = [each for each in message["labelIds"] if each not in change["removeLabelIds"]]
        message["labelIds"] = [*kept, *(each for each in change["addLabelIds"] if each not in kept)]
        return HttpReply(200, {key: message[key] for key in ("id", "threadId", "labelIds")}, JSON)


class SheetsService(Service):
    """Spreadsheets: sheets of cells with values and notes. A batch is carried out as a whole or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.sheets: dict[str, dict[str, Any]] = {"book-1": {"First": self._sheet(0), "It's": self._sheet(7)}}
        self.before_write: Callable[[], None] = lambda: None  # what somebody else does just then
        self.route("GET", "/v4/spreadsheets/([^/:]+)", self._get)
        self.route("POST", "/v4/spreadsheets/([^/:]+):batchUpdate", self._batch)

    @staticmethod
    def _sheet(id: int) -> dict[str, Any]:
        return {"id": id, "columns": 5, "rows": []}

    def rows(self, title: str = "First") -> list[list[Any]]:
        """What people see."""
        return [[next(iter(cell.get("userEnteredValue", {"": ""}).values())) for cell in row]
                for row in self.sheets["book-1"][title]["rows"]]

    def write(self, *values: Any, title: str = "First") -> None:
        """Somebody writes a row."""
        row = [{"userEnteredValue": {"stringValue": each}} if each else {} for each in values]
        self.sheets["book-1"][title]["rows"].append(row)

    def _get(self, request: Request, id: str) -> HttpReply:
        if id not in self.sheets:
            return error(404, "notFound")
        fields = request.query["fields"]
        if "properties" in fields:
            every = [{"properties": {"sheetId": sheet["id"], "title": title,
                                     "gridProperties": {"columnCount": sheet["columns"]}}}
                     for title, sheet in self.sheets[id].items()]
            return HttpReply(200, {"sheets": every}, JSON)
        return HttpReply(200, {"sheets": [self._grid(self.sheets[id], request.query["ranges"], fields)]}, JSON)

    def _grid(self, book: dict[str, Any], place: str, fields: str) -> dict[str, Any]:
        quoted, _, columns = place.rpartition("!") if place.endswith("!A:A") else (place, "", "")
        title = quoted[1:-1].replace("''", "'")
        data = []
        for row in book[title]["rows"]:
            shown = [self._shown(cell, fields) for cell in (row[:1] if columns else row)]
            data.append({"values": shown} if any(shown) or shown else {})
        while data and not any(data[-1].get("values", ())):
            data.pop()  # what is empty at the end is left out
        return {"data": [{"rowData": data} if data else {}]}

    @staticmethod
    def _shown(cell: dict[str, Any], fields: str) -> dict[str, Any]:
        found = {"note": cell["note"]} if cell.get("note") and "note" in fields else {}
        if "userEnteredValue" in cell and "formattedValue" in fields:
            value = next(iter(cell["userEnteredValue"].values()))
            found["formattedValue"] = str(value).upper() if isinstance(value, bool) else str(value)
        return found

    def _batch(self, request: Request, id: str) -> HttpReply:
        if id not in self.sheets:
            return error(404, "notFound")
        self.before_write()
        body = request.json()
        by_id = {sheet["id"]: sheet for sheet in self.sheets[id].values()}
        for each in body["requests"]:  # checked first: all or nothing
            [(kind, what)] = each.items()
            place = what.get("range", what)
            sheet = by_id.get(place["sheetId"])
            widened = sum(e["appendDimension"]["length"] for e in body["requests"] if "appendDimension" in e)
            width = max((len(row["values"]) for row in what.get("rows", ())), default=0)
            if sheet is None or width > sheet["columns"] + widened or kind not in self.CHANGES:
                return error(400, "badRequest")
        for each in body["requests"]:
            [(kind, what)] = each.items()
            self.CHANGES[kind](by_id[what.get("range", what)["sheetId"]], what)
        assert (body["includeSpreadsheetInResponse"], body["responseIncludeGridData"]) == (True, True)
        grid = self._grid(self.sheets[id], body["responseRanges"][0], request.query["fields"])
        return HttpReply(200, {"updatedSpreadsheet": {"sheets": [grid]}}, JSON)

    @staticmethod
    def _append(sheet: dict[str, Any], what: dict[str, Any]) -> None:
        while sheet["rows"] and not any("userEnteredValue" in cell for cell in sheet["rows"][-1]):
            sheet["rows"].pop()
        sheet["rows"] += [row["values"] for row in what["rows"]]

    @staticmethod
    def _update(sheet: dict[str, Any], what: dict[str, Any]) -> None:
        row = sheet["rows"][what["range"]["startRowIndex"]]
        for number, cell in enumerate(what["rows"][0]["values"], what["range"]["startColumnIndex"]):
            row += [{} for _ in range(number + 1 - len(row))]
            for field in what["fields"].split(","):
                row[number].pop(field, None)
                row[number] |= {field: cell[field]} if field in cell else {}

    @staticmethod
    def _widen(sheet: dict[str, Any], what: dict[str, Any]) -> None:
        sheet["columns"] += what["length"]

    CHANGES: ClassVar[Any] = {"appendCells": _append, "updateCells": _update, "appendDimension": _widen}


class CalendarService(Service):
    """One calendar, `primary`: ids are taken for ever, and writes may carry a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, dict[str, Any]] = {}
        self.invitations: list[str] = []
        self.ms = 1_767_600_000_000
        self.page_max = 2_500
        self.before_write: Callable[[], None] = lambda: None  # what somebody else does just then
        base = "/calendar/v3/calendars/primary/events"
        self.route("GET", base, self._list)
        self.route("POST", base, self._insert)
        self.route("GET", f"{base}/([^/]+)", self._get)
        self.route("PATCH", f"{base}/([^/]+)", self._patch)

    def put(self, event: dict[str, Any]) -> dict[str, Any]:
        """Somebody writes an event."""
        self.ms += 1000
        kept = {"status": "confirmed", **event, "updated": iso(self.ms), "etag": f'"{self.ms}"'}
        self.events[event["id"]] = {**kept, "htmlLink": f"https://calendar.example/{event['id']}"}
        return self.events[event["id"]]

    def _list(self, request: Request) -> HttpReply:
        query = request.query
        found = [each for each in self.events.values() if each["status"] != "cancelled" or "showDeleted" in query]
        if "updatedMin" in query:
            found = [each for each in found if each["updated"] >= query["updatedMin"]]
        if "timeMin" in query:
            found = [each for each in found if each["end"].get("dateTime", each["end"].get("date")) > query["timeMin"]]
        key = "updated" if query.get("orderBy") == "updated" else "start"
        found.sort(key=lambda each: str(each[key]))
        start, size = int(query.get("pageToken", "0")), min(int(query["maxResults"]), self.page_max)
        said: dict[str, Any] = {"updated": iso(self.ms), "items": found[start : start + size]}
        said |= {"nextPageToken": str(start + size)} if start + size < len(found) else {}
        return HttpReply(200, said, JSON)

    def _insert(self, request: Request) -> HttpReply:
        event = request.json()
        if not re.fullmatch(r"[a-v0-9]{5,1024}", event["id"]):
            return error(400, "invalid")
        if event["id"] in self.events:
            return error(409, "duplicate")
        if request.query["sendUpdates"] == "all":
            self.invitations += [each["email"] for each in event.get("attendees", ())]
        return HttpReply(200, self.put(event), JSON)

    def _get(self, request: Request, id: str) -> HttpReply:
        return HttpReply(200, self.events[id], JSON) if id in self.events else error(404, "notFound")

    def _patch(self, request: Request, id: str) -> HttpReply:
        self.before_write()
        event = self.events.get(id)
        if event is None:
            return error(404, "notFound")
        if request.headers.get("if-match", event["etag"]) != event["etag"]:
            return error(412, "conditionNotMet")
        change = request.json()
        old = event.get("extendedProperties", {}).get("private", {})
        own = {**old, **change.get("extendedProperties", {}).get("private", {})}
        return HttpReply(200, self.put({**event, **change, "extendedProperties": {"private": own}}), JSON)
