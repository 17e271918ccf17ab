"""Breadth-first over everything that can happen: the engine's states first, then those times the truth outside.

What the engine does next depends on its own state and on what it is told, never on the truth; so its steps are taken
once per engine state (with the real code) and reused for every truth that is possible there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from keepai.model.errors import Conflict
from keepai.model.ids import text_of
from keepai.model.states import IllegalMove, Status
from tests.explore.machine import (
    APPROVAL_ACTS,
    LATE,
    MUTATION_ACTS,
    NOT_NOW,
    RUN_ACTS,
    VERDICTS,
    WF,
    Machine,
    Moment,
    Nothing,
    Setting,
)
from tests.explore.rules import RULES, Look, canonical, look
from tests.rules import broken

Label = tuple[str, ...]

#: What a call may come back with; the last means that it goes on, which one call at a time may do.
ANSWERS = ("ok", "transient", "permission", "rejected", "unknown", "odd", "hangs")


#: What `explain` says of a host → the commits that may follow.
SAID = {
    "sends the approved call": ("send",), "asks again": ("ask_afresh",), "It goes on as soon as": ("carry_on",),
    "looks ends it": ("abandon",), "is asked what became of it": ("confirm_applied", "confirm_absent", "still_doubt"),
    "Then it is tried again": ("carry_on",),
}


class Broken(AssertionError):
    """A rule does not hold; says which, where, and how one gets there."""

    def __init__(self, rule: str, what: str, path: list[Label], state: object) -> None:
        steps = " → ".join(" ".join(label) for label in path)
        super().__init__(f"{rule}: {what}\n  after: {steps}\n  state: {state}")
        self.rule, self.what, self.path = rule, what, path


class Facts(NamedTuple):
    """What the outside half must know of an engine state."""

    at: str
    alive: bool
    live: bool
    refused: bool  # the newest mutation failed by the word of the outside system: the next gets another key
    proven: bool  # the newest mutation failed without a person's word
    denied: bool  # the newest mutation failed by a person's word
    ended: bool  # nothing is left to do


class Edge(NamedTuple):
    label: Label
    target: int


@dataclass
class Graph:
    """The engine's states and steps."""

    setting: Setting
    facts: list[Facts] = field(default_factory=list)
    edges: list[list[Edge]] = field(default_factory=list)
    came: list[tuple[int, Label] | None] = field(default_factory=list)
    names: list[tuple[Any, ...]] = field(default_factory=list)
    empty_offers: dict[tuple[str, str], list[Label]] = field(default_factory=dict)
    overtaken: list[list[Label]] = field(default_factory=list)  # ways to a run that failed because somebody was quicker

    def path(self, index: int) -> list[Label]:
        found: list[Label] = []
        while (step := self.came[index]) is not None:
            found.append(step[1])
            index = step[0]
        return found[::-1]


# -- the engine ------------------------------------------------------------------------------------------------


class Explorer:
    """Finds every state of one setting."""

    def __init__(self, setting: Setting, store: str = "sqlite", states_max: int = 100_000) -> None:
        self.machine, self.graph = Machine(setting, store), Graph(setting)
        self.setting, self._max = setting, states_max
        self._index: dict[tuple[Any, ...], int] = {}
        self._moments: dict[int, Moment] = {}
        self._todo: deque[int] = deque()
        self._here: tuple[int, Moment] = (0, None)  # type: ignore[assignment]

    async def run(self) -> Graph:
        self._arrive(None, await self.machine.first())
        count = 0
        while self._todo:
            index = self._todo.popleft()
            moment = self._moments.pop(index)
            self._here = index, moment
            self.machine.load(moment)
            await self._expand(index, moment)
            count += 1
            if count % 500 == 0:
                await asyncio.sleep(0)  # lets the loop drop the timers that were cancelled
        return self.graph

    def _arrive(self, label: Label | None, moment: Moment | None = None) -> int:
        seen = look(self.machine)
        name = canonical(self.machine, seen)
        index = self._index.get(name)
        if index is not None:
            return index
        index = self._index[name] = len(self.graph.facts)
        assert index < self._max, f"more than {self._max} states: the abstraction is not finite"
        self.graph.came.append((self._here[0], label) if label else None)
        self.graph.names.append(name)
        self.graph.facts.append(_facts(seen))
        self.graph.edges.append([])
        self._moments[index] = moment or self.machine.save()
        self._todo.append(index)
        self._judge(index, seen)
        return index

    def _judge(self, index: int, seen: Look) -> None:
        own = ((rule, wrong) for rule, holds in RULES.items() if (wrong := holds(seen)))
        for rule, wrong in chain(broken(seen.rows), own):
            raise Broken(rule, wrong, self.graph.path(index), self.graph.names[index])
        error = json.loads(seen.open["error"]) if seen.open and seen.open["error"] else {}
        if error.get("code") == "conflict":
            self.graph.overtaken.append(self.graph.path(index))

    def _fail(self, rule: str, what: str, label: Label) -> Broken:
        index = self._here[0]
        return Broken(rule, what, [*self.graph.path(index), label], self.graph.names[index])

    async def _try(self, label: Label, step: Callable[[], Awaitable[None]]) -> bool:
        """Take a step from here; True if it led anywhere."""
        index, moment = self._here
        with self.machine.attempt(moment):
            try:
                await step()
            except (*NOT_NOW, Conflict, Nothing):
                return False
            except IllegalMove as error:
                raise self._fail("I8", f"only a trigger stopped it: {error}", label) from error
            target = self._arrive(label)
        self.graph.edges[index].append(Edge(label, target))
        return True

    async def _expand(self, index: int, moment: Moment) -> None:
        machine = self.machine
        await self._try(("time",), machine.time)
        if not moment.alive:
            await self._start()
            return
        await self._try(("crash",), machine.crash)
        if moment.at == "call":
            for kind in ANSWERS if not moment.live else ANSWERS[:-1]:
                await self._try(("answer", kind), lambda kind=kind: machine.answered(kind))
        else:
            await self._host(moment)
        if moment.live:
            for kind in LATE:
                await self._try(("call ends", kind), lambda kind=kind: machine.call_ends(kind))
        elif moment.at == "idle" and self.setting.ends:
            await self._try(("end",), machine.end)
        acts = await self._acts()
        if self.setting.races:
            await self._races(acts, moment)
        await self._stale(moment)
        await self._waker(acts)

    async def _start(self) -> None:
        await self._try(("start",), self.machine.start)
        for commits in (1, 2, 3):
            if not await self._try(("start", f"dies after {commits}"), lambda n=commits: self.machine.start(n)):
                break

    async def _host(self, moment: Moment) -> None:
        """The host's next commit, with everything that the script or the outside system may say to it."""
        machine, script, connector = self.machine, self.machine.script, self.machine.connector
        said = await self._said() if moment.at == "idle" else None
        if moment.at == "idle" and not await machine.host._is_due(WF):
            if said:
                raise self._fail("explained", f"the host is said to {said}, and does nothing", ("host",))
            return
        script.ran = connector.asked = False
        connector.verdict = VERDICTS["retry"]
        went = await self._try(("host",), machine.go_on)
        if not went:
            raise self._fail("waker", "the host finds something due and then does nothing: it would spin", ("host",))
        if said is not None and machine.ledger.commits[0] not in said:
            raise self._fail("explained", f"it is said to {said}, and does {machine.ledger.commits[0]}", ("host",))
        if connector.asked:
            self.graph.edges[self._here[0]].pop()
            for name, verdict in VERDICTS.items():
                connector.verdict = verdict
                await self._try(("verdict", name), machine.go_on)
        if script.ran and self.setting.throws:
            script.throw = True
            await self._try(("host", "throws"), machine.go_on)
            script.throw = False

    async def _said(self) -> frozenset[str] | None:
        """What `explain` says that the host does next with a run that stopped; None if there is no such run."""
        run = self.machine.open_run()
        if run is None or run.state is Status.ACTIVE:
            return None
        told, now = (await self.machine.keep.explain(run.id)).moved_by, self.machine.clock.now_ms()
        if any("resume" in mover.acts for mover in told):
            return frozenset()  # a person holds the workflow
        due = [mover for mover in told if mover.due_at is None or mover.due_at <= now]
        return frozenset(verb for mover in due for words, verbs in SAID.items() if words in mover.what
                         for verb in verbs)

    async def _acts(self) -> list[str]:
        """Everything a person might do; gives what was accepted."""
        names = [*APPROVAL_ACTS, *MUTATION_ACTS, *RUN_ACTS]
        row = self.graph.names[self._here[0]]
        if self.setting.pauses:
            names += ["pause", "resume"]
        if self.setting.grants:
            names += [mode for mode in ("ask", "deny") if mode != row[4]]
        done = [name for name in names if await self._try(("act", name), lambda name=name: self.machine.act(name))]
        if self.setting.versions and row[3] == 0:
            await self._try(("deploy",), lambda: self.machine.deploy(False))
            await self._try(("deploy", "gone"), lambda: self.machine.deploy(True))
        return done

    async def _races(self, acts: list[str], moment: Moment) -> None:
        """Between a decision and its commit somebody else's commit comes first."""
        machine = self.machine
        due = moment.at == "run" or (moment.at == "idle" and await machine.host._is_due(WF))
        pairs = [(slow, quick) for slow in acts for quick in acts]
        pairs += [(name, "host") for name in acts if due] + [("host", name) for name in acts if due]
        for pair in pairs:
            machine.connector.asked, machine.connector.verdict = False, VERDICTS["retry"]
            await self._try(("race", *pair), lambda pair=pair: self._overtaken(*pair))
            if machine.connector.asked:
                machine.connector.verdict = VERDICTS["applied"]
                await self._try(("race", *pair, "found"), lambda pair=pair: self._overtaken(*pair))

    async def _overtaken(self, slow: str, quick: str) -> None:
        machine = self.machine

        async def first() -> None:
            pause, machine.ledger.pause_at = machine.ledger.pause_at, 0
            commits = machine.ledger.commits
            try:
                await (machine.go_on() if quick == "host" else machine.act(quick))
            except Nothing as error:
                raise Conflict("it did nothing") from error
            finally:
                machine.ledger.pause_at, machine.ledger.commits = pause, commits

        machine.ledger.overtake = first
        try:
            await (machine.go_on() if slow == "host" else machine.act(slow))
        except (*NOT_NOW, Conflict):
            pass  # too late: what the quick one did stands

    async def _stale(self, moment: Moment) -> None:
        """Acts on what is no longer the newest are refused and change nothing."""
        machine = self.machine
        for table, acts in (("run", RUN_ACTS), ("mutation", MUTATION_ACTS), ("approval", APPROVAL_ACTS)):
            old = machine.connection.execute(f"select id from {table} order by seq desc limit 1 offset 1").fetchone()
            for act in acts if old else ():
                with machine.attempt(moment):
                    try:
                        await machine.act(act, text_of(old[0]))
                    except NOT_NOW:
                        continue
                raise self._fail("I31", f"{act} on an old {table} was accepted", ("act", act, "stale"))

    async def _waker(self, acts: list[str]) -> None:
        """Whatever waits is woken by time, by the host itself, or by an act that is offered and accepted."""
        machine, (_, moment) = self.machine, self._here
        seen = look(machine)
        run = seen.open
        paused = seen.workflow["status"] != "active" and "resume" in acts
        if run is None or run["status"] == "active" or moment.at != "idle" or moment.live or paused:
            return
        [asked] = [q for q in await machine.keep.needs_you() if "seen" not in q.actions] or [None]
        offered = [a for a in asked.actions if a in acts] if asked else []
        if seen.workflow["status"] == "active" and (await machine.host._is_due(WF) or run["retry_at"] is not None):
            return
        if not offered:
            raise self._fail("waker", f"it waits for ever: {asked and asked.actions} of {acts}", ("wait",))
        self._note_empty_offers(asked.kind, [a for a in asked.actions if a not in acts])

    def _note_empty_offers(self, kind: str, refused: list[str]) -> None:
        """What is offered here and refused; "it did not happen" is refused with the time from which it is not."""
        for act in refused:
            if act not in ("deploy", "grant", "did_not_happen"):
                self.graph.empty_offers.setdefault((kind, act), self.graph.path(self._here[0]))


def _facts(seen: Look) -> Facts:
    newest = seen.mutations[-1] if seen.mutations else None
    proven = newest is not None and newest["status"] == "failed" and newest["resolution"] is None
    denied = newest is not None and newest["status"] == "failed" and not proven
    stranded = seen.event["status"] == "pending" and not seen.handler["present"]
    ended = seen.open is None and (seen.event["status"] != "pending" or stranded)
    return Facts(seen.at, seen.alive, bool(seen.live), proven and newest["doubted_at"] is None, proven, denied, ended)


# -- the truth outside -----------------------------------------------------------------------------------------


class Truth(NamedTuple):
    """What really happened, which no host knows."""

    request: str = "none"  # of the newest attempt: none, sent, late (it may still arrive), landed
    earlier: str = "none"  # of older attempts: none, late (with the same key), late_other (with another key)
    landed: bool = False  # whether there is an effect with the newest key
    shows: bool = False  # whether who looks for that effect finds it yet
    effects: int = 0
    lies: int = 0  # how often a person said "it did not happen" of what happened


LIES_MAX = 3


class Product:
    """Engine × truth."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.honours = graph, graph.setting.honours_keys
        self.edges = 0
        self.came: dict[tuple[int, Truth], tuple[tuple[int, Truth], Label] | None] = {}

    def run(self) -> int:
        """Visit everything; gives how many states there are."""
        first = (0, Truth())
        self.came[first] = None
        todo = deque([first])
        ways: dict[tuple[int, Truth], list[tuple[int, Truth]]] = {}
        while todo:
            state = todo.popleft()
            self._judge(state)
            for label, target in self._steps(state):
                self.edges += 1
                ways.setdefault(target, []).append(state)
                if target not in self.came:
                    self.came[target] = (state, label)
                    todo.append(target)
        self._no_dead_ends(ways)
        return len(self.came)

    def _steps(self, state: tuple[int, Truth]) -> list[tuple[Label, tuple[int, Truth]]]:
        index, truth = state
        facts = self.graph.facts[index]
        found: list[tuple[Label, tuple[int, Truth]]] = []
        if truth.request == "late":
            found.append((("lands",), (index, self._land(truth))))
        if truth.landed and not truth.shows:
            found.append((("shows",), (index, truth._replace(shows=True))))
        if truth.earlier != "none":
            found.append((("an earlier one lands",), (index, self._land_earlier(truth))))
        for label, target in self.graph.edges[index]:
            found += [(label, (target, after)) for after in self._after(truth, label, facts, self.graph.facts[target])]
        return found

    def _after(self, truth: Truth, label: Label, before: Facts, after: Facts) -> list[Truth]:
        """What may have become of the truth by a step of the engine; empty if the step contradicts it."""
        match label:
            case ("verdict", "applied") if not truth.shows:
                return []
            case ("verdict", "failed") if truth.shows:
                return []
            case ("act", "did_not_happen") if truth.landed:
                return [truth._replace(lies=truth.lies + 1)] if truth.lies < LIES_MAX else []
            case ("answer", "ok"):
                return [self._land(truth)]
            case ("answer", "transient" | "permission" | "rejected"):
                return [truth._replace(request="none")]
            case ("answer", _) | ("crash",) if before.at == "call":
                return [truth._replace(request="none"), truth._replace(request="late"), self._land(truth)]
            case ("call ends", "ok") if truth.request != "landed":
                return [self._land(truth)] if truth.request == "late" else []
            case ("call ends", "transient"):
                return [] if truth.request == "landed" else [truth._replace(request="none")]
            case ("time",) if not before.live:  # settle is one unit after the end of the call
                late = truth.request == "late"
                request = "none" if late else truth.request
                return [truth._replace(request=request, earlier="none", shows=truth.landed)]
        if label[0] == "race" and label[-1] == "found" and not truth.shows:
            return []
        if label[0] == "race" and "did_not_happen" in label and after.denied and truth.landed:
            return [truth._replace(lies=truth.lies + 1)] if truth.lies < LIES_MAX else []
        if after.at == "call" and before.at != "call":
            return [self._sent(truth, same=not before.refused)]
        return [truth]

    def _sent(self, truth: Truth, *, same: bool) -> Truth:
        earlier = truth.earlier
        if truth.request == "late":
            earlier = "late" if same else "late_other"
        elif earlier == "late" and not same:
            earlier = "late_other"
        return truth._replace(request="sent", earlier=earlier, landed=truth.landed and same, shows=truth.shows and same)

    def _land(self, truth: Truth) -> Truth:
        new = not (self.honours and truth.landed)
        return truth._replace(request="landed", landed=True, effects=truth.effects + new)

    def _land_earlier(self, truth: Truth) -> Truth:
        same = truth.earlier == "late"
        new = not (self.honours and same and truth.landed)
        return truth._replace(earlier="none", landed=truth.landed or same, effects=truth.effects + new)

    def _judge(self, state: tuple[int, Truth]) -> None:
        index, truth = state
        facts = self.graph.facts[index]
        if truth.effects > 1 + truth.lies:
            raise self._broken("I2", f"{truth.effects} effects, {truth.lies} lies", state)
        if facts.proven and truth.request in ("late", "landed"):
            raise self._broken("I4", f"failed, but the request {truth.request}", state)
        step = self.came[state]
        if step is not None and step[1] == ("act", "did_not_happen"):
            (source, was), _ = step
            if was.request == "late" or self.graph.facts[source].live:
                raise self._broken("I33", "a person could say that it did not happen while it still could", state)

    def _no_dead_ends(self, ways: dict[tuple[int, Truth], list[tuple[int, Truth]]]) -> None:
        good = {state for state in self.came if self.graph.facts[state[0]].ended}
        todo = list(good)
        while todo:
            for source in ways.get(todo.pop(), ()):
                if source not in good:
                    good.add(source)
                    todo.append(source)
        for state in self.came:
            if state not in good:
                raise self._broken("dead end", "nothing leads from here to an end", state)

    def _broken(self, rule: str, what: str, state: tuple[int, Truth]) -> Broken:
        path: list[Label] = []
        at: tuple[int, Truth] = state
        while (step := self.came[at]) is not None:
            path.append(step[1])
            at = step[0]
        return Broken(rule, what, path[::-1], (state[1], self.graph.names[state[0]]))


@dataclass
class Found:
    """How much there was."""

    engine_states: int
    engine_edges: int
    states: int
    edges: int
    seconds: float
    empty_offers: dict[tuple[str, str], list[Label]]
    overtaken: list[list[Label]]


def explore(setting: Setting) -> Found:
    """Everything that one setting allows; raises `Broken` at the first state that breaks a rule."""
    begun = time.perf_counter()
    graph = asyncio.run(Explorer(setting).run())
    product = Product(graph)
    states = product.run()
    return Found(
        len(graph.facts), sum(map(len, graph.edges)), states, product.edges, time.perf_counter() - begun,
        graph.empty_offers, graph.overtaken,
    )
