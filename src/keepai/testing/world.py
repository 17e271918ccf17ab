"""An outside world in memory that does what a test tells it, and remembers what really took effect.

`world.effects` is the judge: one entry per effect, whatever the callers were told. Nothing here sleeps
or draws lots; a world outlives the hosts that a test stops and starts again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..connectors.base import Call, Connector, Page, Verdict, mutation, read
from ..model.clock import Clock, iso
from ..model.codec import Json, encode, stored
from ..model.errors import PreconditionFailed
from .faults import HeldCalls, On, OnReconcile, Params, PlannedFaults
from .manual_clock import ManualClock


@dataclass(frozen=True)
class Effect:
    """Something that took place outside."""

    operation: str  # "sheets.appendRow"
    params: Params
    idempotency_key: str
    at: int  # milliseconds, by the world's clock
    result: Json


@dataclass(frozen=True)
class WorldCall:
    """A call that reached the outside world: `kind` is "call" or "reconcile"."""

    operation: str
    kind: str
    params: Params
    call: Call


class World:
    """Mail, sheets and a blind webhook: `world.connectors()` are `gmail`, `sheets` and `webhook`.

    With `honours_keys`, a second send with an idempotency key that took effect returns the first result.
    """

    def __init__(self, clock: Clock | None = None, *, honours_keys: bool = False) -> None:
        self.clock = clock or ManualClock()
        self.honours_keys = honours_keys
        self.effects: list[Effect] = []
        self.asked: list[WorldCall] = []
        self.mails: list[Params] = []
        self.rows: dict[str, list[Params]] = {}
        self.gate = HeldCalls()
        self._plans: dict[tuple[str, str], PlannedFaults] = {}

    def connectors(self) -> list[Connector]:
        """Fresh connectors to this world, as a host that starts would make them."""
        return [WorldMail(self), WorldSheets(self), WorldWebhook(self)]

    def deliver(
        self, *, from_: str = "ann@example.com", subject: str = "Hello", body: str = "",
        to: str = "me@example.com", id: str | None = None,
    ) -> str:
        """Put a mail into the inbox; returns its id."""
        number = len(self.mails) + 1
        mail: Params = {
            "id": id or f"mail-{number}", "from": from_, "to": to, "subject": subject, "body": body,
            "snippet": body[:200], "date": iso(self.clock.now_ms()),
        }
        self.mails.append(mail)
        return str(mail["id"])

    def on(self, operation: str) -> On:
        """Script the next calls of an operation, such as "sheets.appendRow"."""
        return On(self._plan(operation, "call"))

    def on_reconcile(self, operation: str) -> OnReconcile:
        """Script the next reconcile calls of an operation."""
        return OnReconcile(self._plan(operation, "reconcile"))

    def takes_once(self, operation: str) -> bool:
        """Whether the outside of this operation takes each idempotency key once."""
        return self.honours_keys

    def land(self) -> int:
        """Let the late requests of `apply_late` take effect; returns how many there were."""
        return self.gate.land()

    def release(self) -> None:
        """End every hang that is under way."""
        self.gate.release()

    def count(self, operation: str, kind: str = "call") -> int:
        """How often an operation was called (or reconciled)."""
        return sum(1 for each in self.asked if (each.operation, each.kind) == (operation, kind))

    def effects_of(self, operation: str) -> list[Effect]:
        """The effects of one operation, oldest first."""
        return [effect for effect in self.effects if effect.operation == operation]

    async def look(self, operation: str, params: Params, call: Call, answer: Any) -> Any:
        """A read: `answer` is called to give the true answer."""
        self.asked.append(WorldCall(operation, "call", params, call))
        return await self._plan(operation, "call").carry_out(params, call, answer, self.gate)

    async def act(self, operation: str, params: Params, call: Call, take_effect: Any) -> Any:
        """A mutation: `take_effect` changes the world and gives the result."""
        def apply() -> Json:
            earlier = self._earlier(operation, call.idempotency_key)
            if earlier is not None and self.takes_once(operation):
                return earlier.result
            result: Json = take_effect()
            now = self.clock.now_ms()
            self.effects.append(Effect(operation, _copy(params), call.idempotency_key, now, result))
            return result
        self.asked.append(WorldCall(operation, "call", params, call))
        return await self._plan(operation, "call").carry_out(params, call, apply, self.gate)

    async def judge(self, operation: str, params: Params, call: Call) -> Verdict:
        """A reconcile: by default, the truth."""
        def truth() -> Any:
            earlier = self._earlier(operation, call.idempotency_key)
            return Verdict.applied(earlier.result) if earlier else Verdict.failed()
        self.asked.append(WorldCall(operation, "reconcile", params, call))
        verdict = await self._plan(operation, "reconcile").carry_out(params, call, truth, self.gate)
        assert isinstance(verdict, Verdict)
        return verdict

    def _earlier(self, operation: str, key: str) -> Effect | None:
        return next((e for e in self.effects if (e.operation, e.idempotency_key) == (operation, key)), None)

    def _plan(self, operation: str, kind: str) -> PlannedFaults:
        return self._plans.setdefault((operation, kind), PlannedFaults())


class _WorldConnector(Connector):
    def __init__(self, world: World, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self._world = world


class WorldMail(_WorldConnector):
    """`gmail`: search, get, send."""

    name = "gmail"
    input_types = ("email", "thread")

    @read
    async def search(self, params: Params, call: Call) -> Page[Params]:
        """Mails after the cursor, oldest first."""
        def answer() -> Page[Params]:
            first = int(str(params.get("after") or 0))
            limit = int(str(params.get("limit") or 1_000))
            found = self._world.mails[first : first + limit]
            return Page([_copy(each) for each in found], lastCursor=str(first + len(found)))
        result: Page[Params] = await self._world.look(f"{self.name}.search", params, call, answer)
        return result

    @read(by_id=True)
    async def get(self, params: Params, call: Call) -> Params | None:
        """One mail."""
        result: Params | None = await self._world.look(f"{self.name}.get", params, call, lambda: next(
            (_copy(mail) for mail in self._world.mails if mail["id"] == params.get("id")), None))
        return result

    @mutation(identity=("to",), target="to", settle=0)
    async def send(self, params: Params, call: Call) -> Json:
        """Send a mail."""
        result: Json = await self._world.act(
            f"{self.name}.send", params, call, lambda: {"id": f"sent-{len(self._world.effects) + 1}"})
        return result

    @send.reconcile
    async def find_sent(self, params: Params, call: Call) -> Verdict:
        """Look for the mail by its key."""
        return await self._world.judge(f"{self.name}.send", params, call)


class WorldSheets(_WorldConnector):
    """`sheets`: appendRow, updateRow, getRows, getRow."""

    name = "sheets"
    input_types = ("row",)

    @read
    async def get_rows(self, params: Params, call: Call) -> Page[Params]:
        """All rows of a spreadsheet."""
        result: Page[Params] = await self._world.look(f"{self.name}.getRows", params, call, lambda: Page(
            [_copy(row) for row in self._rows(params)], total=len(self._rows(params))))
        return result

    @read(by_id=True)
    async def get_row(self, params: Params, call: Call) -> Params | None:
        """One row."""
        result: Params | None = await self._world.look(f"{self.name}.getRow", params, call, lambda: next(
            (_copy(row) for row in self._rows(params) if row["rowId"] == params.get("rowId")), None))
        return result

    @mutation(identity=("spreadsheetId",), target="spreadsheetId", settle=0)
    async def append_row(self, params: Params, call: Call) -> Json:
        """Add a row."""
        def take_effect() -> Json:
            rows = self._rows(params)
            rows.append({"rowId": f"row-{len(rows) + 1}", "values": params.get("values")})
            return {"rowId": rows[-1]["rowId"], "row": len(rows)}
        result: Json = await self._world.act(f"{self.name}.appendRow", params, call, take_effect)
        return result

    @append_row.reconcile
    async def find_row(self, params: Params, call: Call) -> Verdict:
        """Look for the row by its key."""
        return await self._world.judge(f"{self.name}.appendRow", params, call)

    @mutation(identity=("spreadsheetId", "rowId"), target="rowId", settle=0)
    async def update_row(self, params: Params, call: Call) -> Json:
        """Change a row."""
        def take_effect() -> Json:
            for number, row in enumerate(self._rows(params), 1):
                if row["rowId"] == params.get("rowId"):
                    row["values"] = params.get("values")
                    return {"rowId": row["rowId"], "row": number}
            raise PreconditionFailed(f"There is no row {params.get('rowId')!r}.")
        result: Json = await self._world.act(f"{self.name}.updateRow", params, call, take_effect)
        return result

    @update_row.reconcile
    async def find_update(self, params: Params, call: Call) -> Verdict:
        """Look for the update by its key."""
        return await self._world.judge(f"{self.name}.updateRow", params, call)

    def _rows(self, params: Params) -> list[Params]:
        return self._world.rows.setdefault(str(params.get("spreadsheetId")), [])


class WorldWebhook(_WorldConnector):
    """`webhook`: fire, which nobody can look up afterwards."""

    name = "webhook"

    @mutation(settle=0)
    async def fire(self, params: Params, call: Call) -> Json:
        """Send and forget."""
        result: Json = await self._world.act(f"{self.name}.fire", params, call, lambda: {"ok": True})
        return result


def _copy(params: Params) -> Params:
    copy = stored(encode(params))
    assert isinstance(copy, dict)
    return copy
