"""Several hosts on one database that want to make one mutation: every order in which things can happen.

A pure model, no database and no process: a state is a tuple, `steps` says what can happen next, and `explore` goes
breadth-first through all of it, so the way to a broken rule is a shortest one. `docs/internals/ownership.md` explains
the protocol. `Ownership.tla` is the same model for TLC, step by step under the same names; both count the same states.

A host that takes no step for any number of ticks is a frozen host; a message that is never written or answered is a
cut in that direction. So neither needs a step of its own. Every count of time is what is left of it: time has no end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Host(NamedTuple):
    """One slot for a process; after a crash and a restart it holds another process."""

    alive: bool = True
    owns: str = "no"  # current: its epoch is the workflow's; stale: it believes so, and another host has claimed
    lease: int = 0  # what is left of its lease by its own count
    beat: str = ""  # asked: under way to the database; written: the answer is under way
    beat_age: int = 0  # since it asked
    ask: int = -1  # a COMMIT that begins an attempt is under way, with this much left of its deadline; -1: none is


class Call(NamedTuple):
    """One attempt: its row in the ledger, the call in the sender's process, the request and its effect outside."""

    status: str = "none"
    sender: int = -1
    current: bool = False  # the row's epoch is the workflow's
    at: str = "none"  # where the sender is: to_send, checked, waiting; answered, refused, unknown; ended, dead
    deadline: int = 0
    net: str = "none"  # flying, landed, lost
    hidden: int = 0  # how long a look-up may still not see the effect that took place
    mark: str = ""  # the closure mark: what the sender recorded, or dead
    settle: int = 0  # how long a look-up that finds nothing still proves nothing, once there is a mark
    wrong: bool = False  # a person said something untrue about this attempt


class World(NamedTuple):
    """Everything. `lease` is what is left of the owner's lease by the database's clock."""

    hosts: tuple[Host, ...]
    calls: tuple[Call, ...]
    lease: int = 0
    stray: bool = False  # a host that is not the owner has changed the workflow


@dataclass(frozen=True)
class Setting:
    """How many of everything, who may err, and at most one planted fault."""

    hosts: int = 2
    attempts: int = 2
    lease: int = 2
    margin: int = 1
    deadline: int = 1
    settle: int = 1
    person_errs: bool = False
    clock_jumps: bool = False  # the database's clock jumps ahead: the owner's lease ends at once
    fault: str = ""


OPEN = ("to_send", "checked", "waiting")  # the call may still send, or its request is on the way
TOLD = {"answered": "applied", "refused": "failed", "unknown": "needs_reconcile"}  # how a call ended → its row
OVER = (*TOLD, "ended", "dead")
DOUBT = ("needs_reconcile", "question")

Step = tuple[str, World]


def first(setting: Setting) -> World:
    return World((Host(),) * setting.hosts, (Call(),) * setting.attempts)


def steps(world: World, setting: Setting) -> Iterator[Step]:
    """Everything that can happen next, with its name."""
    if finished(world, setting):
        return
    yield from _time_steps(world, setting)
    for h in range(setting.hosts):
        yield from _lease_steps(world, setting, h)
        yield from _begin_steps(world, setting, h)
        yield from _reconcile_steps(world, setting, h)
    for a, call in enumerate(world.calls):
        if call.at in OPEN:
            yield from _send_steps(world, setting, a)
        if call.net == "flying":
            yield f"land({a + 1})", _call(world, a, net="landed", hidden=setting.settle)
            yield f"lose({a + 1})", _call(world, a, net="lost")
        yield from _end_steps(world, setting, a)
        yield from _person_steps(world, setting, a)


# -- hosts: leases and ownership ---------------------------------------------------------------------------


def _lease_steps(world: World, setting: Setting, h: int) -> Iterator[Step]:
    host, name = world.hosts[h], f"({'ABC'[h]})"
    if not host.alive:
        if host.ask < 0 and not (host.owns == "current" and world.lease):
            yield f"restart{name}", _host(world, h, alive=True, owns="no")
        return
    yield f"crash{name}", _crashed(world, h)
    if host.owns == "current" and not host.beat and host.lease < setting.lease:
        yield f"ask_beat{name}", _host(world, h, beat="asked", beat_age=0)
    if host.beat == "asked" and host.owns == "current" and world.lease:
        yield f"beat_written{name}", _host(world._replace(lease=setting.lease), h, beat="written")
    if host.beat == "written":
        age = 0 if setting.fault == "lease_from_answer" else host.beat_age
        yield f"beat_answered{name}", _host(world, h, lease=max(host.lease, setting.lease - age), beat="", beat_age=0)
    if host.beat:
        yield f"beat_lost{name}", _host(world, h, beat="", beat_age=0)
    if host.owns == "no" and not (world.lease and any(each.owns == "current" for each in world.hosts)):
        yield f"claim{name}", _claimed(world, setting, h)
    if host.ask < 0 and (host.owns == "stale" or (host.owns == "current" and not world.lease)):
        yield f"learn_lost{name}", _host(world, h, owns="no", lease=0, beat="", beat_age=0)
    busy = any(call.current and call.at in (*OPEN, *TOLD) for call in world.calls)
    if host.owns == "current" and host.ask < 0 and not busy:
        yield f"hand_over{name}", _host(world._replace(lease=0), h, owns="no", lease=0, beat="", beat_age=0)


def _crashed(world: World, h: int) -> World:
    """The process is gone, and with it what it knew; a COMMIT that it sent may still be written."""
    calls = tuple(_canonical(call._replace(at="dead")) if call.sender == h and call.at in (*OPEN, *TOLD) else call
                  for call in world.calls)
    return _host(world._replace(calls=calls), h, alive=False, lease=0, beat="", beat_age=0)


def _claimed(world: World, setting: Setting, h: int) -> World:
    """Owner and epoch + 1, the open run adopted, `in_flight` to `needs_reconcile`: one transaction."""
    hosts = tuple(each._replace(owns="stale", beat="", beat_age=0) if each.owns == "current" else each
                  for each in world.hosts)
    left = setting.fault == "claim_leaves_in_flight"
    calls = tuple(call._replace(current=False, status="needs_reconcile" if call.status == "in_flight" and not left
                                else call.status) for call in world.calls)
    return _host(World(hosts, calls, setting.lease, world.stray), h, owns="current", lease=setting.lease)


# -- hosts: beginning an attempt, sending ------------------------------------------------------------------


def _begin_steps(world: World, setting: Setting, h: int) -> Iterator[Step]:
    host, name, a = world.hosts[h], f"({'ABC'[h]})", _next(world, setting)
    if host.ask < 0:
        if host.alive and host.owns == "current" and host.lease > setting.margin and a is not None:
            inside = min(setting.deadline, host.lease - setting.margin)
            outside = setting.lease + 1
            yield f"ask_begin{name}", _host(world, h, ask=outside if setting.fault == "deadline_outside" else inside)
        return
    # the COMMIT is refused, or lost: the host reads again under the workflow's lock, and then it can never be written
    yield f"begin_gone{name}", _host(world, h, ask=-1)
    if a is None:
        return
    begun = Call("in_flight", h, host.owns == "current", "to_send" if host.alive else "dead", host.ask,
                 settle=setting.settle)
    if host.owns == "current" or setting.fault == "no_fence":
        stray = world.stray or host.owns != "current"
        yield f"begin_written{name}", _host(_put(world, a, begun)._replace(stray=stray), h, ask=-1)
    if setting.fault == "commit_taken_for_done" and host.alive:
        yield f"begin_believed{name}", _host(_put(world, a, begun._replace(status="none")), h, ask=-1)


def _next(world: World, setting: Setting) -> int | None:
    """The attempt that may begin now: every earlier one failed, none is open, and there is one left."""
    for a, call in enumerate(world.calls):
        if call.status == "none":
            return a if call.at == "none" else None
        if call.status != "failed":
            return None
    return None


def _right(world: World, setting: Setting, call: Call) -> bool:
    """What the sender checks immediately before its first byte."""
    return world.hosts[call.sender].lease > setting.margin and call.deadline > 0


def _send_steps(world: World, setting: Setting, a: int) -> Iterator[Step]:
    call, name = world.calls[a], f"({a + 1})"
    if call.at == "to_send" and _right(world, setting, call):
        yield f"check{name}", _call(world, a, at="checked")
    elif call.at == "to_send":
        yield f"not_sent{name}", _call(world, a, at="refused")
    elif call.at == "checked":
        yield f"send{name}", _call(world, a, at="waiting", net="flying")
    else:
        yield f"give_up{name}", _call(world, a, at="unknown")
        if call.net == "landed":
            yield f"answer{name}", _call(world, a, at="answered")
        if call.net == "flying":
            yield f"refuse{name}", _call(world, a, at="refused", net="lost")


def _end_steps(world: World, setting: Setting, a: int) -> Iterator[Step]:
    """The sender records how its call ended; proof that the sender is dead."""
    call, name = world.calls[a], f"({a + 1})"
    if call.at in TOLD and world.hosts[call.sender].alive:
        ended = call._replace(at="ended", mark=call.mark or call.at)
        writes = call.status == "in_flight" and (call.current or setting.fault == "no_fence")
        if writes:
            yield f"record{name}", _put(world, a, ended._replace(status=TOLD[call.at]), stray=not call.current)
        else:  # fenced: only the mark
            yield f"late_mark{name}", _put(world, a, ended)
    if call.at == "dead" and not call.mark and call.status in DOUBT:
        yield f"proof_of_death{name}", _call(world, a, mark="dead")


# -- after doubt -------------------------------------------------------------------------------------------


def _closed(world: World, setting: Setting, call: Call) -> bool:
    """Whether a look-up that finds nothing proves that nothing can come any more."""
    if setting.fault == "no_settle":
        return bool(call.mark)
    closed = bool(call.mark) or (setting.fault == "lease_closes" and not call.current)
    return closed and call.settle == 0


def _absent(call: Call) -> bool:
    """Whether a look-up may find nothing."""
    return call.net != "landed" or call.hidden > 0


def _reconcile_steps(world: World, setting: Setting, h: int) -> Iterator[Step]:
    """The owner asks the outside system what became of an attempt."""
    if not (world.hosts[h].alive and world.hosts[h].owns == "current"):
        return
    for a, call in enumerate(world.calls):
        if call.status != "needs_reconcile":
            continue
        name = f"({'ABC'[h]},{a + 1})"
        if call.net == "landed" or call.mark == "answered":
            yield f"found{name}", _call(world, a, status="applied")
        if call.mark == "refused" or (_absent(call) and _closed(world, setting, call)):
            yield f"absent{name}", _call(world, a, status="failed")
        if setting.fault == "marks_others" and not call.mark and _absent(call):
            yield f"mark_of_another{name}", _call(world, a, mark="unknown")
        yield f"ask_person{name}", _call(world, a, status="question")


def _person_steps(world: World, setting: Setting, a: int) -> Iterator[Step]:
    call, name = world.calls[a], f"({a + 1})"
    if call.status == "question":
        yield f"try_again{name}", _call(world, a, status="needs_reconcile")
        yield f"skip{name}", _call(world, a, status="skipped")
        if call.net != "landed" and (_closed(world, setting, call) or setting.fault == "offered_early"):
            yield f"did_not_happen{name}", _call(world, a, status="failed")
        if setting.person_errs and call.net == "landed" and _closed(world, setting, call):
            yield f"did_not_happen_wrongly{name}", _call(world, a, status="failed", wrong=True)
    if setting.person_errs and call.status in DOUBT and not call.mark and call.at in OPEN:
        yield f"host_dead_wrongly{name}", _call(world, a, mark="dead", wrong=True)


# -- time --------------------------------------------------------------------------------------------------


def _time_steps(world: World, setting: Setting) -> Iterator[Step]:
    if setting.clock_jumps and world.lease:
        yield "clock_jumps", world._replace(lease=0)
    # once its call is over, a request lands or is lost before the settle time can pass
    if any(call.net == "flying" and call.at in OVER for call in world.calls):
        return
    passed = World(
        tuple(host._replace(lease=_less(host.lease), beat_age=min(host.beat_age + 1, setting.lease) if host.beat else 0,
                            ask=-1 if host.ask < 0 else _less(host.ask)) for host in world.hosts),
        tuple(_canonical(_older(call, setting)) for call in world.calls),
        _less(world.lease), world.stray,
    )
    if passed != world:
        yield "tick", passed


def _older(call: Call, setting: Setting) -> Call:
    counts = call.mark or (setting.fault == "lease_closes" and not call.current and call.status in DOUBT)
    return call._replace(deadline=_less(call.deadline), hidden=_less(call.hidden),
                         settle=_less(call.settle) if counts else call.settle)


def _less(left: int) -> int:
    return max(left - 1, 0)


def finished(world: World, setting: Setting) -> bool:
    """Nothing is left to do, and nothing can come any more."""
    return any(call.status in ("applied", "skipped") for call in world.calls) and not any(
        _can_come(world, setting, call) for call in world.calls)


# -- rules -------------------------------------------------------------------------------------------------


def _can_come(world: World, setting: Setting, call: Call) -> bool:
    """Whether an effect of this attempt may still take place."""
    return call.net == "flying" or call.at == "checked" or (call.at == "to_send" and _right(world, setting, call))


def _lease_of(world: World, current: bool) -> int:
    return world.lease if current else 0


#: The name of each rule → whether it holds in a state.
RULES: dict[str, Callable[[World, Setting], bool]] = {
    "AtMostOneEffect": lambda w, s: sum(c.net == "landed" for c in w.calls) <= 1 + sum(c.wrong for c in w.calls),
    "FailedIsProof": lambda w, s: all(c.wrong or (c.net != "landed" and not _can_come(w, s, c))
                                      for c in w.calls if c.status == "failed"),
    "AppliedIsTrue": lambda w, s: all(c.net == "landed" for c in w.calls if c.status == "applied"),
    "IntentFirst": lambda w, s: all(c.status != "none" for c in w.calls if c.net != "none"),
    "ClosedMeansOver": lambda w, s: all(c.wrong or c.at in OVER for c in w.calls if c.mark),
    "OwnerWrites": lambda w, s: not w.stray,
    "InFlightIsTheOwners": lambda w, s: all(c.current for c in w.calls if c.status == "in_flight"),
    "OwnCountIsShorter": lambda w, s: all(h.lease <= _lease_of(w, h.owns == "current") for h in w.hosts),
    "DeadlineInsideLease": lambda w, s: all(c.deadline <= _lease_of(w, c.current) for c in w.calls),
}
#: What holds whatever the database's clock does.
BY_NO_CLOCK = tuple(rule for rule in RULES if rule not in ("OwnCountIsShorter", "DeadlineInsideLease"))

#: What is explored, from the smallest.
SETTINGS = {
    "two hosts": Setting(),
    "the database's clock jumps": Setting(clock_jumps=True),
    "a longer lease": Setting(lease=3, deadline=2),
    "three hosts": Setting(hosts=3),
    "a person errs": Setting(person_errs=True),
}
#: Each planted fault → the rule that it breaks first.
FAULTS = {
    "lease_closes": "FailedIsProof",  # "the lease is over and the settle time has passed, so it did not happen"
    "no_settle": "FailedIsProof",
    "offered_early": "FailedIsProof",  # a person may say "it did not happen" before the call is closed
    "marks_others": "ClosedMeansOver",  # the closure mark does not ask who writes it
    "lease_from_answer": "OwnCountIsShorter",  # the host counts from the database's answer, not from before it asked
    "deadline_outside": "DeadlineInsideLease",
    "commit_taken_for_done": "IntentFirst",  # a COMMIT without an answer
    "no_fence": "OwnerWrites",
    "claim_leaves_in_flight": "InFlightIsTheOwners",
}


# -- exploring ---------------------------------------------------------------------------------------------


class Broken(Exception):
    """A rule does not hold; `way` is a shortest way there."""

    def __init__(self, rule: str, way: list[str]) -> None:
        super().__init__(f"{rule} is broken after {' → '.join(way)}")
        self.rule, self.way = rule, way


@dataclass
class Found:
    """All states, those that differ only in the order of the hosts counted once, and from where each is reached."""

    states: list[World]
    sources: list[list[int]]  # without the steps that are faults


#: Steps that nobody owes: from every state, others must lead to an end or to a question.
FAULT_STEPS = ("crash", "beat_lost", "begin_gone", "lose", "clock_jumps", "did_not_happen_wrongly", "host_dead_wrongly")


def explore(setting: Setting, rules: Sequence[str] = tuple(RULES)) -> Found:
    """Every state that can be reached, breadth-first; raises `Broken` at the first that breaks a rule."""
    start = first(setting)
    number, came, sources, states = {start: 0}, [(-1, "")], [[]], [start]
    checks = [(rule, RULES[rule]) for rule in rules]
    for at, world in enumerate(states):  # it grows meanwhile
        for rule, holds in checks:
            if not holds(world, setting):
                raise Broken(rule, _way(came, at))
        for name, there_is in steps(world, setting):
            # a way to a planted fault names the hosts, so there they are told apart
            target = there_is if setting.fault else _alike(there_is)
            there = number.setdefault(target, len(states))
            if there == len(states):
                states.append(target)
                came.append((at, name))
                sources.append([])
            if not name.startswith(FAULT_STEPS):
                sources[there].append(at)
    return Found(states, sources)


def _way(came: list[tuple[int, str]], at: int) -> list[str]:
    way = []
    while at:
        at, name = came[at]
        way.append(name)
    return way[::-1]


# -- small changes of a state ------------------------------------------------------------------------------


def _host(world: World, h: int, **changes: object) -> World:
    hosts = world.hosts
    return world._replace(hosts=(*hosts[:h], hosts[h]._replace(**changes), *hosts[h + 1 :]))  # type: ignore[arg-type]


def _call(world: World, a: int, **changes: object) -> World:
    return _put(world, a, world.calls[a]._replace(**changes))  # type: ignore[arg-type]


def _put(world: World, a: int, call: Call, stray: bool = False) -> World:
    calls = world.calls
    return world._replace(calls=(*calls[:a], _canonical(call), *calls[a + 1 :]), stray=world.stray or stray)


def _canonical(call: Call) -> Call:
    """Without what no longer matters, so that states which lead to the same are one."""
    if call.at in OVER and call.deadline:
        call = call._replace(deadline=0)
    if call.at in ("ended", "dead"):
        quiet = call.net != "flying" and call.status in ("failed", "applied", "skipped")
        if quiet:
            return Call(call.status, -1, False, "ended", 0, call.net, 0, "unknown", 0, call.wrong)
        call = call._replace(sender=-1)
    return call


def _alike(world: World) -> World:
    """The one of the states that differ only in the order of the hosts."""
    if all(one < other for one, other in pairwise(world.hosts)):
        return world
    order = sorted(range(len(world.hosts)), key=lambda h: (world.hosts[h], [call.sender == h for call in world.calls]))
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    return world._replace(hosts=tuple(world.hosts[h] for h in order),
                          calls=tuple(call._replace(sender=place[call.sender]) for call in world.calls))
