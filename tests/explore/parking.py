"""The same machine with runs that may be parked: three events, two of them to one target, two of one input.

Breadth first over everything that the host, the outside system, people, crashes and time can do, with the real engine.
What must hold is said of the events alone: whatever comes later at a target, or because of the same input, is not begun
before what came first has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from keepai.ledger.invariants import RULES
from keepai.ledger.transitions import events, workflows
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.workflows import Version
from keepai.model.errors import Conflict
from keepai.model.ids import text_of
from keepai.model.operations import Kind, Step
from keepai.model.permissions import grant_of
from keepai.model.states import IllegalMove, Waiting
from keepai.runtime.base import Ended, Job, Operation
from keepai.script.manifest import Manifest
from tests.explore import machine as machines
from tests.explore.machine import NOT_NOW, WF, Machine, Moment, Nothing, Setting
from tests.rules import DOUBT, OPEN, Rows, broken

#: Event → its target and its input. In the order in which they came.
EVENTS = {"a": ("ann", "first"), "b": ("ann", "second"), "c": ("bob", "first")}

#: (later, earlier): the later one is not begun before the earlier one has ended.
AFTER = (("b", "a"), ("c", "a"))


#: Of `keep db check`: what needs no history, which is not kept here.
CHECKED = ("parked_unknown", "parked_cause_free", "event_held_for_none", "event_held_by_none", "reservation_not_held",
           "applied_twice", "sent_on_a_guess", "doubt_of_no_run", "carried_on_twice", "applied_behind")


@dataclass(frozen=True)
class ParkingSetting:
    """What stays the same in one exploration."""

    grant: str = "ask"
    answers: tuple[str, ...] = ("ok", "permission")
    events: str = "abc"  # that wait
    uses_state: bool = False
    waiting: Waiting = Waiting.OTHERS
    changes: bool = False  # a person may change what goes on meanwhile
    deploys: bool = False  # a new version may come
    crashes: bool = True
    throws: bool = False  # `next` may throw


class Broken(AssertionError):
    """A rule does not hold; says which, and how one gets there."""

    def __init__(self, what: str, path: list[str]) -> None:
        super().__init__(f"{what}\n  after: {' → '.join(path)}")
        self.what = what


class Script:
    """Takes the first event that is free, sends it to its target, ends."""

    def __init__(self) -> None:
        self.throw = self.ran_next = False

    async def run(self, job: Job, host: Any) -> Ended:
        if job.step is Step.PREPARE:
            free: Any = (await host.answer(Operation("peek", Kind.PEEK, ("in", {"limit": 1}), None))).value
            ids = [event["messageId"] for event in free]
            taken = [{"topic": "in", "ids": ids}] if ids else []
            data = free[0]["payload"] if free else {}
            return Ended(json.dumps({"reservations": taken, "data": data, "ui": {"title": "t"}}),
                         ahead=_call(data) if free else None)
        if job.step is Step.MUTATE:
            return Ended(mutation=_call(json.loads(str(job.args[0]))["data"]))
        self.ran_next = True
        if self.throw:
            raise machines.ScriptThrew("The script threw.")
        return Ended(None)

    async def load(self, *script: Any) -> None:
        """There is nothing to load."""

    async def close(self) -> None:
        return None


def _call(data: Any) -> Operation:
    return Operation("out.send", Kind.MUTATION, ({"to": data["to"]},), None)


class ParkingMachine(Machine):
    """The machine, with these events."""

    def __init__(self, parking: ParkingSetting) -> None:
        super().__init__(Setting(can_reconcile=False, grant=parking.grant))
        self.parking = parking
        self.script = Script()  # type: ignore[assignment]
        self.parts.runtime = self.script  # type: ignore[assignment]
        self.parts.policy = self.keep._policy = replace(machines.POLICY, approval_s=1e9)

    async def first(self) -> Moment:
        """A workflow with three waiting events."""
        self._new_host()
        self._pass_time()
        self.tx.now = self.clock.now_ms()
        fresh, self.tx.new_id = self.tx.new_id, lambda prefix: WF  # type: ignore[method-assign]
        workflows.deploy(self.tx, None, self._version(), (1, 0))
        self.tx.new_id = fresh  # type: ignore[method-assign]
        workflows.allow(self.tx, WF, {"out.send": grant_of(self.parking.grant, "out.send")})
        inputs = {name: self.tx.new_id("inp") for name in ("first", "second")}
        events.register(self.tx, WF, "run_setup", [
            Registration(id, "feed", "item", name, name) for name, id in inputs.items()])
        events.publish(self.tx, WF, "run_setup", [
            Publication("in", id, json.dumps({"to": to}), (inputs[name],)) for id, (to, name) in EVENTS.items()
            if id in self.parking.events])
        workflows.set_waiting(self.tx, WF, self.parking.waiting, "ann")
        return self.save()

    def _version(self) -> Version:
        handler = replace(machines._handler("act"), uses_state=self.parking.uses_state)
        manifest = Manifest("w", ("in",), (handler,), ("out.send",))
        return Version("w", "", "hash", manifest.to_text(), "person", "safe", {"in": "act"}, {"act": "consumer"})

    async def new_version(self) -> None:
        """A new version with the same handler."""
        row = self.tx.one("workflow_by_id", workflow_id=WF)
        assert row is not None
        await self.ledger.write(workflows.deploy, WF, self._version(), (1, row["minor"] + 1), (1, row["minor"]))

    def waits_for_time(self) -> bool:
        """Whether something is tried again later, or a request may still arrive. Approvals do not expire here."""
        return bool(self.connection.execute(
            "select 1 from run where status = 'paused' and reason = 'transient' union all "
            "select 1 from mutation where status in ('needs_reconcile', 'indeterminate') limit 1").fetchall())

    def subjects(self) -> list[tuple[str, str]]:
        """What a person may do, and to what: each act that fits the kind of thing, whatever its state."""
        found: list[tuple[str, str]] = []
        for (id,) in self.connection.execute("select id from approval where status = 'pending'"):
            found += [(act, text_of(id)) for act in machines.APPROVAL_ACTS]
        for (id,) in self.connection.execute("select id from mutation where status = 'indeterminate'"):
            found += [(act, text_of(id)) for act in ("did_not_happen", "happened", "skip")]
        for (id,) in self.connection.execute("select id from run where status in ('paused', 'failed')"):
            found += [(act, text_of(id)) for act in machines.RUN_ACTS]
        return found


class Explorer:
    """Finds every state of one setting, and judges each."""

    def __init__(self, setting: ParkingSetting, states_max: int = 60_000) -> None:
        self.machine, self.setting, self._max = ParkingMachine(setting), setting, states_max
        self._index: dict[Any, int] = {}
        self._moments: dict[int, Moment] = {}
        self._came: list[tuple[int, str] | None] = []
        self._edges: list[set[int]] = []
        self._ended: list[bool] = []
        self._todo: deque[int] = deque()
        self._here: tuple[int, Moment] = (0, None)  # type: ignore[assignment]
        self.parked_most = 0

    @property
    def states(self) -> int:
        """How many there are."""
        return len(self._edges)

    async def run(self) -> None:
        """Find them all; raises `Broken`."""
        self._arrive(None, await self.machine.first())
        while self._todo:
            index = self._todo.popleft()
            moment = self._moments.pop(index)
            self._here = index, moment
            self.machine.load(moment)
            await self._expand(moment)
            if index % 500 == 0:
                await asyncio.sleep(0)
        self._check_ends()

    # -- steps -------------------------------------------------------------------------------------

    async def _expand(self, moment: Moment) -> None:
        machine, setting = self.machine, self.setting
        if not moment.alive:
            await self._try("start", machine.start)
            return
        if moment.at == "call":
            for kind in setting.answers:
                await self._try(f"answer {kind}", lambda kind=kind: machine.answered(kind))
        elif moment.at == "run" or await machine.host._is_due(WF):
            machine.script.ran_next = False  # type: ignore[attr-defined]
            if not await self._try("host", machine.go_on):
                raise Broken("the host finds something due, and does nothing", [*self._path(self._here[0]), "host"])
            if setting.throws and machine.script.ran_next:  # type: ignore[attr-defined]
                machine.script.throw = True
                await self._try("host, throws", machine.go_on)
                machine.script.throw = False
        if setting.crashes:
            await self._try("crash", machine.crash)
        if moment.at == "idle" and (machine.waits_for_time() or self._left_something()):
            await self._try("time", machine.time)
        for act, subject in machine.subjects():
            await self._try(f"{act} {self._named(subject)}", lambda a=act, s=subject: machine.act(a, s))
        await self._changes()

    def _left_something(self) -> bool:
        """Whether nothing is open: a person gave up a run that had chosen nothing, and its handler looks later."""
        return not self.machine.connection.execute(
            "select 1 from run where status in ('active', 'paused', 'failed')").fetchall()

    async def _changes(self) -> None:
        """What a person does to the whole workflow."""
        row = self.machine.tx.one("workflow_by_id", workflow_id=WF)
        assert row is not None
        if self.setting.changes:
            for waiting in Waiting:
                if waiting != row["waiting"]:
                    await self._try(f"waiting={waiting}", lambda w=waiting: self.machine.commands.set(WF, w, "ann"))
        if self.setting.deploys and row["minor"] == 0:
            await self._try("deploy", self.machine.new_version)

    def _named(self, subject: str) -> str:
        """The event that a thing is about."""
        for table in ("approval", "mutation"):
            row = self.machine.tx.one(f"{table}_by_id", **{f"{table}_id": subject})
            subject = str(row["run_id"]) if row else subject
        rows = self.machine.tx.all("reservation_of_run", workflow_id=WF, run_id=subject)
        return "+".join(str(row["message_id"]) for row in rows) or "nothing"

    async def _try(self, label: str, step: Callable[[], Awaitable[Any]]) -> bool:
        index, moment = self._here
        with self.machine.attempt(moment):
            try:
                await step()
            except (*NOT_NOW, Conflict, Nothing):
                return False
            except IllegalMove as error:
                raise Broken(f"only a trigger stopped it: {error}", [*self._path(index), label]) from error
            if label == "host":
                label = self.machine.ledger.commits[0]
            target = self._arrive(label)
        self._edges[index].add(target)
        return True

    def _arrive(self, label: str | None, moment: Moment | None = None) -> int:
        rows = Rows(self.machine.connection, ("out.send",) if self.setting.grant == "ask" else ())
        name = self._canonical(rows)
        index = self._index.get(name)
        if index is not None:
            return index
        index = self._index[name] = len(self._edges)
        assert index < self._max, f"more than {self._max} states: the abstraction is not finite"
        self._came.append((self._here[0], label) if label else None)
        self._edges.append(set())
        self._ended.append(all(event["status"] != "pending" for event in rows.events))
        self._moments[index] = moment or self.machine.save()
        self._todo.append(index)
        self._judge(index, rows)
        return index

    def _path(self, index: int) -> list[str]:
        found: list[str] = []
        while (step := self._came[index]) is not None:
            found.append(step[1])
            index = step[0]
        return found[::-1]

    # -- states ------------------------------------------------------------------------------------

    def _canonical(self, rows: Rows) -> Any:
        """Everything that decides what can happen from here, and nothing else."""
        machine, now = self.machine, self.machine.clock.now_ms()
        row = machine.tx.one("workflow_by_id", workflow_id=WF)
        handler = machine.tx.one("handler_get", workflow_id=WF, handler="act")
        assert row is not None
        assert handler is not None
        touched = machine.connection.execute("select touched from topic").fetchone()[0]
        looks = (handler["observed"] is None or touched > handler["observed"], handler["progressed"],
                 _left(handler["recheck_at"], now))
        holders = {run["id"]: run for run in rows.runs}
        free = [run for run in rows.runs if run["status"] in OPEN and run["id"] not in {
            event["reserved_by"] for event in rows.events}]
        return (
            machine.alive, machine.at, row["waiting"], row["minor"], looks,
            tuple(
                (event["status"], event["held_by"] is not None, self._run(holders.get(event["reserved_by"]), rows, now))
                for event in rows.events),
            tuple(self._run(run, rows, now) for run in free),
            tuple(m["lineage"] == r["lineage"] for r in free for m in rows.mutations[-1:]),
        )

    def _run(self, run: Any, rows: Rows, now: int) -> Any:
        if run is None:
            return None
        error = json.loads(run["error"]) if run["error"] else {}
        sent = rows.by_lineage.get(run["lineage"], [])
        asked = next((
            a for a in rows.approvals if a["run_id"] == run["id"] and a["status"] in ("pending", "approved")), None)
        crashes = sum(r["status"] == "crashed" and r["lineage"] == run["lineage"] for r in rows.runs)
        own = run["epoch"] == self.machine.ledger.epoch or run["status"] != "active"
        first = next(r for r in rows.runs if r["id"] == run["lineage"])
        return (
            run["phase"], run["status"], run["reason"], run["parked"] != 0, run["minor"], error.get("code"), own,
            crashes,
            run["failures"], run["exhausted"], asked is None and _left(run["retry_at"], now), run["outcome"],
            sent[-1]["status"] if sent else None, sent[-1]["closed_at"] is not None if sent else None,
            sum(r["seq"] < first["seq"] and r["retry_of"] is None and any(
                o["lineage"] == r["id"] and o["status"] in OPEN for o in rows.runs) for r in rows.runs),
            asked and asked["status"],
        )

    def _judge(self, index: int, rows: Rows) -> None:
        parked = sum(run["parked"] != 0 for run in rows.runs)
        self.parked_most = max(self.parked_most, parked)
        found = [f"{rule}: {what}" for rule, what in broken(rows)]
        found += [f"{RULES[name]}: {row}" for name in CHECKED for row in self.machine.tx.all(f"never_{name}")]
        found += _out_of_order(rows, uses_state=self.setting.uses_state)
        if found:
            raise Broken(found[0], self._path(index))

    def _check_ends(self) -> None:
        """From every state a way leads to one in which all events have ended."""
        back: list[list[int]] = [[] for _ in self._edges]
        for source, targets in enumerate(self._edges):
            for target in targets:
                back[target].append(source)
        reached = {index for index, ended in enumerate(self._ended) if ended}
        todo = list(reached)
        while todo:
            new = [each for each in back[todo.pop()] if each not in reached]
            reached.update(new)
            todo += new
        if lost := set(range(len(self._edges))) - reached:
            raise Broken("a dead end: nothing leads on from here", self._path(min(lost)))


def _out_of_order(rows: Rows, *, uses_state: bool) -> list[str]:
    """What is said of the events alone; an event that was given back may be begun anew, in any order."""
    events = {event["message_id"]: event for event in rows.events}
    runs = {run["id"]: run for run in rows.runs}
    found = []
    for later, earlier in AFTER:
        if later not in events:
            continue
        before, after = events[earlier], events[later]
        if before["status"] != "pending" or before["reserved_by"] is None or after["reserved_by"] is None:
            continue
        sent = [m["status"] for m in rows.by_lineage.get(runs[after["reserved_by"]]["lineage"], ())]
        if later == "c":
            found.append("cause not held: c was taken, and a of the same input has not ended")
        elif sent and sent[-1] in (*DOUBT, "applied") and runs[before["reserved_by"]]["phase"] in (
                "prepared", "mutating"):
            found.append("target not held: b was sent, and a to the same target has not ended")
    busy = [run for run in rows.runs if run["status"] in OPEN]
    if uses_state and len(busy) > 1:
        found.append("state not held: two runs of a handler that uses state are open")
    return found


def _left(at: int | None, now: int) -> int | None:
    return None if at is None else max(0, -(-(at - now) // (machines.UNIT_S * 1000)))


def explore(setting: ParkingSetting) -> Explorer:
    """Every state of a setting."""
    explorer = Explorer(setting)
    asyncio.run(explorer.run())
    return explorer


#: In `make prove`; test_parking.py has the first ones.
WIDE = {
    "what waits is approved or given up": ParkingSetting(answers=("ok",), crashes=False),
    "hosts die": ParkingSetting(answers=("ok",), events="ab"),
    "it lacks a permission": ParkingSetting(grant="allow", answers=("ok", "permission"), crashes=False),
    "outcomes stay unknown": ParkingSetting(grant="allow", answers=("ok", "unknown"), events="ab"),
    "calls are refused": ParkingSetting(grant="allow", answers=("ok", "rejected"), crashes=False),
    "it uses state": ParkingSetting(answers=("ok", "rejected"), events="ab", uses_state=True),
    "new versions come": ParkingSetting(deploys=True, answers=("ok",), events="ab", crashes=False),
    "people change what goes on": ParkingSetting(changes=True, answers=("ok",), events="ab", crashes=False),
    "next throws": ParkingSetting(grant="allow", answers=("ok", "transient"), events="ab", throws=True, crashes=False),
}

__all__ = ["WIDE", "Broken", "ParkingSetting", "explore"]
