"""A subject that is reached by HTTP: a service on loopback, and every fault of the contract done on the wire."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from .. import loopback
from ..loopback import HttpReply, Loopback, Request
from .subject import Fault, Subject

RETRY_AFTER_S = 7.0


class HttpSubject(Subject):
    """Give it `handle`, the service; refusals and oddities are named by their status, such as `404`."""

    oddities = ("408", "409", "500", "502", "503", "504", "200 nothing", "200 a list", "200 a page")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = Loopback(self.handle)

    def handle(self, request: Request) -> HttpReply:
        """What the service does with a request that nothing happens to."""
        raise NotImplementedError

    def is_write(self, request: Request) -> bool:
        """Whether this request is the mutation's."""
        return loopback.is_write(request)

    def refused(self, name: str) -> HttpReply:
        """What the service answers when it refuses so."""
        status = int(name.split()[0])
        waits = {"Retry-After": f"{RETRY_AFTER_S:g}"} if name in self.retry_after else {}
        return HttpReply(status, {"error": "refused"}, waits)

    def odd(self, name: str) -> HttpReply:
        """What the service answers though it did it."""
        bodies = {"nothing": b"", "list": b"[]", "page": b"<html>Welcome</html>"}
        kind = "text/html" if name.endswith("page") else "application/json"
        status, body = int(name.split()[0]), bodies.get(name.split()[-1], b"{}")
        return HttpReply(status, headers={"Content-Type": kind}, content=body)

    def fault(self, fault: Fault) -> AbstractContextManager[object] | None:
        writes = {
            Fault.ANSWER_LOST: loopback.drop_after, Fault.REQUEST_LOST: loopback.drop_before,
            Fault.LATE: loopback.late, Fault.HELD: loopback.held, Fault.WRONG_ANSWER: loopback.garbled,
        }
        looks = {
            Fault.LOOKUP_BROKEN: loopback.instead(HttpReply(content=b'{"ok": tru')),
            Fault.LOOKUP_DENIED: loopback.instead(HttpReply(403, {"error": "no"})),
        }
        if fault in writes:
            return self.server.misbehaving(writes[fault], self.is_write)
        return self.server.misbehaving(looks[fault], lambda request: not self.is_write(request))

    def refusal(self, name: str) -> AbstractContextManager[object]:
        return self.server.misbehaving(loopback.instead(self.refused(name)), self.is_write)

    def oddity(self, name: str) -> AbstractContextManager[object]:
        return self.server.misbehaving(loopback.but(self.odd(name)), self.is_write)

    def land(self) -> None:
        self.server.land()

    def close(self) -> None:
        self.server.close()
