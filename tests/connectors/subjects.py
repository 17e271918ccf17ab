"""The subjects of the contract: one per mutation, each with the means to count and to break its outside."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keepai import Connector, OutcomeUnknown, PermissionDenied, PreconditionFailed, Transient, Verdict, mutation
from keepai.connectors import make
from keepai.connectors.base import Call
from keepai.connectors.files import file_changes, journal
from keepai.connectors.http.statuses import REFUSED
from keepai.testing.contract import CANARY, HttpSubject, Subject
from keepai.testing.loopback import HttpReply, Request
from tests.connectors import file_cases, sql_subjects
from tests.connectors.cases import CASES, Case
from tests.connectors.mcp_subjects import MCP

SUBJECTS: list[type[Subject]] = []


# -- the local connectors --------------------------------------------------------------------------


def local(case: Case, **more: Any) -> type[Subject]:
    """A case of the local connectors, as a subject."""

    class Local(Subject):
        kind = "local"
        operation, params, same_key_once = case.operation, case.params, True
        crash_lines_max = 16

        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.place = folder / "place"
            case.setup(self.place)

        def connector(self) -> Connector:
            return case.connector(self.place)

        def effects(self) -> int:
            return case.effects(self.place)

    return type(f"{case.id} {case.params}"[:80], (Local,), more)


def _which(case: Case) -> str:
    path = case.params.get("path")
    return "if it is absent" if "ifAbsent" in case.params else f"to `{path}`" if path else ""


SUBJECTS += [local(case) for case in CASES]
SUBJECTS += [
    local(case, crash_in=(file_changes, journal), crash_lines_max=8, how=_which(case)) for case in file_cases.CASES
]
SUBJECTS += sql_subjects.SUBJECTS


# -- http and webhook --------------------------------------------------------------------------------


class Orders(HttpSubject):
    """A shop that keeps the idempotency key with every order, and takes no notice of it otherwise."""

    kind = "http"
    method, path = "POST", "/v1/orders"
    operation, same_result = "post", False
    params = MappingProxyType({"url": "", "body": {"item": "book"}})
    crash_lines_max = 8
    looked_up, honours_keys = True, False
    refusals = MappingProxyType(
        {f"{status}": kind for status, kind in REFUSED.items()}
        | {f"{status}": OutcomeUnknown for status in (301, 303, 307, 406, 408, 409, 412, 500, 502, 503, 504)}
    )
    retry_after = MappingProxyType({"429": 7.0, "425": 7.0})

    def __init__(self, folder: Path) -> None:
        self.made: list[dict[str, Any]] = []
        super().__init__(folder)
        self.params = {**self.params, "url": f"{self.server.url}{self.path}"}

    def connector(self) -> Connector:
        rule = {
            "on": f"{self.method} {self.server.url}{self.path}", "url": f"{self.server.url}/v1/orders?key={{key}}",
            "items": "data", "match": "key",
        }
        settings: dict[str, Any] = {"allow": [f"{self.server.url}/v1/"], "networks": ["127.0.0.1"], "auth": "bearer"}
        settings |= {"lookup": [rule]} if self.looked_up else {}
        made = make("http", "shop", settings | ({"key_window_s": 3600} if self.honours_keys else {}))
        made.entrust({"token": CANARY})
        return made

    def handle(self, request: Request) -> HttpReply:
        if request.headers.get("authorization") != f"Bearer {CANARY}":
            return HttpReply(401, {})
        earlier = [each for each in self.made if each["key"] == request.headers.get("idempotency-key")]
        if request.method == self.method and self.honours_keys and earlier:
            return HttpReply(201, earlier[0], {"Content-Type": "application/json"})
        if request.method == self.method:
            self.made.append({"id": len(self.made) + 1, "key": request.headers["idempotency-key"]})
            return HttpReply(201, self.made[-1], {"Content-Type": "application/json"})
        return HttpReply(200, {"data": [each for each in self.made if each["key"] == request.query["key"]]})

    def effects(self) -> int:
        return len(self.made)


def orders(name: str, **changes: Any) -> type[Subject]:
    """A shop with something else about it."""
    return type(name, (Orders,), changes)


_FEW = MappingProxyType({"401": PermissionDenied, "503": OutcomeUnknown})
_DELETE = MappingProxyType({"404": OutcomeUnknown, "410": OutcomeUnknown, "403": PermissionDenied})


class Told(HttpSubject):
    """A receiver of webhooks."""

    kind = "blind"
    operation, params = "send", MappingProxyType({"event": "invoice.paid", "data": {"id": 7}})
    crash_lines_max = 8
    refusals = MappingProxyType({"429": Transient, "404": PreconditionFailed, "500": OutcomeUnknown})
    retry_after = MappingProxyType({"429": 7.0})

    def __init__(self, folder: Path) -> None:
        self.got: list[Request] = []
        super().__init__(folder)

    def connector(self) -> Connector:
        made = make("webhook", "tell", {"url": f"{self.server.url}/in", "networks": ["127.0.0.1"]})
        made.entrust({"secret": CANARY})
        return made

    def handle(self, request: Request) -> HttpReply:
        self.got.append(request)
        return HttpReply(204, content=b"")

    def effects(self) -> int:
        return len(self.got)


SUBJECTS += [
    orders("http.post"),
    orders("http.post without a rule", how="without a rule", looked_up=False, kind="blind", refusals=_FEW),
    orders("http.post with keys", how="with keys", honours_keys=True, same_key_once=True, kind="honest", refusals=_FEW),
    orders("http.put", method="PUT", operation="put", path="/v1/orders/7", refusals=_FEW),
    orders("http.patch", method="PATCH", operation="patch", path="/v1/orders/7", refusals=_FEW),
    orders("http.delete", method="DELETE", operation="delete", path="/v1/orders/7", refusals=_DELETE),
    Told,
    *MCP,
]


# -- connectors that are wrong on purpose, so that it shows whether the contract notices -------------


class Notes(Connector):
    """Adds lines to a service by HTTP, in an honest way; each wrong one below changes one thing."""

    secrets = MappingProxyType({"token": "The token"})

    def __init__(self, url: str) -> None:
        super().__init__(name="notes")
        self.url = url
        self.entrust({"token": CANARY})

    @mutation(settle=0)
    async def add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        """Add a line."""
        return await self._add(params, call)

    @add.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        return await self._find(call)

    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        answer = await self._client.send(
            "POST", f"{self.url}/lines", call, json=params, headers={"X-Key": call.idempotency_key},
            credentials={"Authorization": self.secret("token")},
        )
        if answer.status == 429:
            raise Transient("Too many.", retry_after=answer.retry_after())
        if answer.status == 401:
            raise PermissionDenied("The token is no longer valid.")
        if answer.status != 201:
            raise OutcomeUnknown(f"The service said {answer.status}.")
        made: Any = answer.json()
        return {"line": made["line"]}

    async def _find(self, call: Call) -> Verdict:
        answer = await self._client.get(f"{self.url}/lines?key={call.idempotency_key}", call)
        if answer.status != 200:
            return Verdict.retry()
        found: Any = answer.json()
        return Verdict.applied({"line": found[0]}) if found else Verdict.failed()

    @property
    def _client(self) -> Any:
        from keepai.connectors.egress import Client, Rules

        return Client(Rules.under([self.url], ["127.0.0.0/8"]))


class Adding(HttpSubject):
    """The honest one."""

    kind = "http"
    type: Any = Notes
    operation, params = "add", {"text": "a line"}
    refusals = MappingProxyType({"429": Transient, "401": PermissionDenied, "503": OutcomeUnknown})
    retry_after = MappingProxyType({"429": 7.0})
    crash_lines_max = 8

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        super().__init__(folder)

    def connector(self) -> Connector:
        made: Connector = self.type(self.server.url)
        return made

    def handle(self, request: Request) -> HttpReply:
        if request.method == "POST":
            self.lines.append(request.headers["x-key"])
            return HttpReply(201, {"line": len(self.lines)})
        return HttpReply(200, [n for n, key in enumerate(self.lines, 1) if key == request.query["key"]])

    def effects(self) -> int:
        return len(self.lines)


SUBJECTS.append(Adding)


class SaysFailedWhenTheAnswerIsLost(Notes):
    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            return await super()._add(params, call)
        except OutcomeUnknown:
            raise Transient("It did not work.") from None


class SendsAgainByItself(Notes):
    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            return await super()._add(params, call)
        except OutcomeUnknown:
            return await super()._add(params, call)


class TakesAnyAnswerForSuccess(Notes):
    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            return await super()._add(params, call)
        except OutcomeUnknown:
            return {"line": 0}


class LooksByNothing(Notes):
    async def _find(self, call: Call) -> Verdict:
        return Verdict.failed()


class TakesAllForItsOwn(Notes):
    async def _find(self, call: Call) -> Verdict:
        return Verdict.applied({"line": 1})


class TakesARefusedQuestionForAnEmptyAnswer(Notes):
    async def _find(self, call: Call) -> Verdict:
        verdict = await super()._find(call)
        return Verdict.failed() if verdict.status == "retry" else verdict


class Chatters(Notes):
    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        call.log(f"sending with {self.secret('token')}")
        return await super()._add(params, call)


class ForgetsToWait(Notes):
    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            return await super()._add(params, call)
        except Transient as error:
            raise Transient(error.message) from None


class FindsSomethingElse(Notes):
    async def _find(self, call: Call) -> Verdict:
        verdict = await super()._find(call)
        return Verdict.applied({"row": 1}) if verdict.status == "applied" else verdict


class TakesEveryErrorForARefusal(Notes):
    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            return await super()._add(params, call)
        except OutcomeUnknown as error:
            raise (Transient(error.message) if "said 5" in error.message else error) from None


class RemembersInItsOwnMemory(Notes):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.sent: set[str] = set()

    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        self.sent.add(call.idempotency_key)
        return await super()._add(params, call)

    async def _find(self, call: Call) -> Verdict:
        return await super()._find(call) if call.idempotency_key in self.sent else Verdict.failed()


class DoesNotEnd(Notes):
    over: threading.Event

    async def _add(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            return await super()._add(params, call)
        except OutcomeUnknown:
            while call.remaining_s <= 0 and not self.over.is_set():
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue
            raise


def wrong(connector: type[Notes]) -> type[Subject]:
    """The subject of a wrong connector."""
    return type(connector.__name__, (Adding,), {"type": connector, "crash_lines_max": 0})


class NeverEnding(Adding):
    """The subject of a call that goes on after it was cancelled."""

    type, crash_lines_max = DoesNotEnd, 0

    def __init__(self, folder: Path) -> None:
        self.over = threading.Event()
        super().__init__(folder)

    def connector(self) -> Connector:
        made = super().connector()
        made.over = self.over  # type: ignore[attr-defined]
        return made

    def close(self) -> None:
        self.over.set()
        super().close()


WRONG: dict[type[Subject], dict[str, str]] = {
    wrong(SaysFailedWhenTheAnswerIsLost): {
        "answer lost": "it said that it did not happen, and it did",
        "late": "it said that it did not happen, and it did",
    },
    wrong(SendsAgainByItself): {"answer lost": "more than once"},
    wrong(TakesAnyAnswerForSuccess): {"request lost": "it said that it happened, and it did not"},
    wrong(LooksByNothing): {
        "answer lost": "its look-up: it said that it did not happen, and it did",
        "killed": "its look-up: it said that it did not happen, and it did",
    },
    wrong(TakesAllForItsOwn): {
        "never sent": "its look-up: it said that it happened", "another key": "took what another call did",
    },
    wrong(TakesARefusedQuestionForAnEmptyAnswer): {"lookup denied": "its look-up: it said that it did not happen"},
    wrong(TakesEveryErrorForARefusal): {"it happens, and the answer is 503": "it said that it did not happen"},
    wrong(RemembersInItsOwnMemory): {"answer lost": "its look-up: it said that it did not happen, and it did"},
    NeverEnding: {"held": "a call did not end"},
    wrong(Chatters): {"applied": "its secret"},
    wrong(ForgetsToWait): {"refused: 429": "shall wait 7 s"},
    wrong(FindsSomethingElse): {"applied": "another result"},
}
