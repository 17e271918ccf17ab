"""Runs every trial against a subject, and reports what was said, what had happened, and which rules that breaks.

Each trial begins with a fresh outside and ends with a count made from there.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...connectors.base import OperationSpec
from ...connectors.user_module import load_user_module
from ...engine.outside import Answer
from ...model.errors import ConfigError, ConnectorError, Transient
from ...model.operations import Kind
from . import killing
from .sending import CALM_S, OTHER_KEY, Heard, Sender, in_words, keys_of, said
from .subject import CANARY, Fault, Subject

Make = Callable[[Path], Subject]
Run = Callable[["Trial", Subject, Sender], Awaitable[object]]

FALSE_FAILED = "it said that it did not happen, and it did"
FALSE_APPLIED = "it said that it happened, and it did not"
TWICE = "it happened more than once"
NOT_SENT = "it did not happen at all, so this trial shows nothing"
UNSEEN = "whether its secret stands in what it says (its `connector()` does not entrust it with CANARY)"
SENDING = (Fault.ANSWER_LOST, Fault.REQUEST_LOST, Fault.LATE, Fault.HELD, Fault.WRONG_ANSWER)
LOOKING = (Fault.LOOKUP_BROKEN, Fault.LOOKUP_DENIED)


@dataclass
class Trial:
    """One fault, one subject."""

    name: str
    said: list[str] = field(default_factory=list)  # by the call, then by each look-up and resend, in order
    effects: int = 0
    broken: list[str] = field(default_factory=list)  # the rules, in words
    notes: list[str] = field(default_factory=list)  # safe, but it could say more

    def must(self, holds: bool, rule: str) -> None:
        """Remember a rule that does not hold."""
        if not holds and rule not in self.broken:
            self.broken.append(rule)

    def as_json(self) -> dict[str, Any]:
        return {"trial": self.name, "said": self.said, "effects": self.effects, "broken": self.broken,
                "notes": self.notes}


@dataclass(frozen=True)
class Report:
    """All trials of one subject."""

    subject: str
    trials: Sequence[Trial]
    untried: Sequence[str]  # faults that the subject cannot bring about

    @property
    def broken(self) -> list[Trial]:
        """The trials in which a rule was broken."""
        return [trial for trial in self.trials if trial.broken]

    def __str__(self) -> str:
        lines = [f"{self.subject}: {len(self.trials)} trials, {len(self.broken)} broken"]
        for trial in self.broken:
            lines.append(f"  {trial.name}: said {' → '.join(trial.said) or 'nothing'}; effects: {trial.effects}")
            lines += [f"    {rule}" for rule in trial.broken]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {"subject": self.subject, "trials": [trial.as_json() for trial in self.trials],
                "untried": list(self.untried), "broken": len(self.broken)}


async def examine(make: Make, *, kill: bool = True) -> Report:
    """Hold one subject against the contract; without `kill` no process is killed."""
    trials: list[Trial] = []
    untried: list[str] = []
    with tempfile.TemporaryDirectory(prefix="keep-contract-") as folder:
        for name, run in await _plan(make, Path(folder), kill):
            trial = await _tried(name, run, make, Path(folder))
            if trial is None:
                untried.append(name)
            else:
                trials.append(trial)
        if not _has_canary(make, Path(folder)):
            untried.append(UNSEEN)
    return Report(getattr(make, "__name__", type(make).__name__), trials, untried)


def _has_canary(make: Make, folder: Path) -> bool:
    """Whether a leak could be seen: a connector with secrets holds the one that the contract looks for."""
    subject = make(_fresh(folder))
    try:
        connector = subject.connector()
        return not connector.secrets or any(CANARY in value for value in connector.entrusted())
    finally:
        subject.close()


def subjects_in(path: Path) -> list[type[Subject]]:
    """The subjects of a file that says how to test a connector."""
    module = load_user_module(path.name.removesuffix(".py"), path.parent)
    classes = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__]
    return [each for each in classes if issubclass(each, Subject) and hasattr(each, "operation")]


def operation_of(make: Make) -> OperationSpec:
    """The operation that a subject is about."""
    with tempfile.TemporaryDirectory(prefix="keep-contract-") as folder:
        subject = make(Path(folder))
        try:
            operations = subject.connector().operations
        finally:
            subject.close()
    if subject.operation not in operations or operations[subject.operation].kind is not Kind.MUTATION:
        raise ConfigError(f"{subject.operation!r} is no mutation of it. It has {', '.join(operations)}.")
    return operations[subject.operation]


async def _plan(make: Make, folder: Path, kill: bool) -> list[tuple[str, Run]]:
    subject = make(_fresh(folder))
    try:
        plan: list[tuple[str, Run]] = [
            ("applied", _plainly), ("never sent", _look), ("another key", _another_key),
            ("the same key twice", _twice), ("no time left", _no_time),
        ]
        plan += [(fault.value.replace("_", " "), made(fault))
                 for made, faults in ((_with, SENDING), (_looking, LOOKING)) for fault in faults]
        plan += [(f"it happens, and the answer is {name}", _odd(name)) for name in subject.oddities]
        plan += [(f"refused: {name}", _refused(name)) for name in subject.refusals]
        if kill:
            plan += [(f"killed: {each}", _killed(each)) for each in await asyncio.to_thread(killing.moments, subject)]
        return plan
    finally:
        subject.close()


class _Untried(Exception):
    """The subject cannot do this."""


async def _tried(name: str, run: Run, make: Make, folder: Path) -> Trial | None:
    subject = make(_fresh(folder))
    trial, heard = Trial(name), Heard()
    sender = Sender(subject, heard)
    try:
        trial.must(subject.effects() == 0, "the subject counts an effect before anything was sent")
        with heard.listening():
            await run(trial, subject, sender)
        trial.effects = subject.effects()
        trial.must(trial.effects <= 1, TWICE)
        trial.must(not heard.leaks, "its secret stands in what it said, or in the log")
        trial.must(all(each.done() for each in sender.left), "a call did not end, not even when it was cancelled")
        return trial
    except _Untried:
        return None
    finally:
        subject.close()


# -- trials ----------------------------------------------------------------------------------------


async def _plainly(trial: Trial, subject: Subject, sender: Sender) -> None:
    answer = await _send(trial, subject, sender)
    trial.must(answer.refused is None and answer.unknown is None, "nothing was wrong outside, and it did not succeed")
    await _found(trial, subject, sender, answer)


async def _another_key(trial: Trial, subject: Subject, sender: Sender) -> None:
    await _send(trial, subject, sender)
    trial.must(subject.effects() > 0, NOT_SENT)
    verdict = await sender.ask(OTHER_KEY)
    trial.said.append(said(verdict))
    if not subject.by_state:
        trial.must(verdict.status != "applied", "it took what another call did for its own")


async def _twice(trial: Trial, subject: Subject, sender: Sender) -> None:
    spec = sender.spec()
    if not subject.same_key_once and spec.key_window_s is None:
        raise _Untried
    first, second = await _send(trial, subject, sender), await _send(trial, subject, sender)
    trial.must(subject.effects() > 0, NOT_SENT)
    same = first.result == second.result or not subject.same_result
    trial.must(same, "the second send with the same key had another result")


async def _no_time(trial: Trial, subject: Subject, sender: Sender) -> None:
    answer = await sender.send(remaining_s=0)
    trial.said.append(in_words(answer))
    _judge(trial, subject, answer)
    await _after(trial, subject, sender, answer)


def _with(fault: Fault) -> Run:
    async def run(trial: Trial, subject: Subject, sender: Sender) -> None:
        broken = subject.fault(fault)
        if broken is None:
            raise _Untried
        with broken:
            hangs = fault in (Fault.LATE, Fault.HELD)
            answer = await sender.send(seconds=subject.patience_s if hangs else CALM_S)
        trial.said.append(in_words(answer))
        if fault is Fault.LATE:
            subject.land()
        _judge(trial, subject, answer)
        happens = fault is not Fault.REQUEST_LOST
        trial.must(subject.effects() == int(happens), f"the subject's {fault} left {subject.effects()} effects")
        await _after(trial, subject, sender, answer)
    return run


def _looking(fault: Fault) -> Run:
    async def run(trial: Trial, subject: Subject, sender: Sender) -> None:
        broken = subject.fault(fault)
        if broken is None or not sender.spec().can_reconcile:
            raise _Untried
        await _send(trial, subject, sender)
        trial.must(subject.effects() > 0, NOT_SENT)
        with broken:
            await _look(trial, subject, sender)
    return run


def _refused(name: str) -> Run:
    async def run(trial: Trial, subject: Subject, sender: Sender) -> None:
        answer = await _send(trial, subject, sender, subject.refusal(name))
        _check_refusal(trial, answer, subject.refusals[name], subject.retry_after.get(name))
        await _after(trial, subject, sender, answer)
    return run


def _odd(name: str) -> Run:
    async def run(trial: Trial, subject: Subject, sender: Sender) -> None:
        answer = await _send(trial, subject, sender, subject.oddity(name))
        trial.must(subject.effects() > 0, NOT_SENT)
        if answer.unknown is not None:
            await _look(trial, subject, sender)
    return run


def _check_refusal(
    trial: Trial, answer: Answer, wanted: type[ConnectorError], retry_after: float | None,
) -> None:
    told = answer.refused or answer.unknown
    trial.must(type(told) is wanted, f"it should have said {wanted.__name__}")
    if isinstance(told, Transient) and retry_after is not None:
        trial.must(told.retry_after == retry_after, f"it lost that it shall wait {retry_after:g} s")


def _killed(moment: killing.Moment) -> Run:
    async def run(trial: Trial, subject: Subject, sender: Sender) -> None:
        if not await killing.send_and_die(subject, moment):
            raise _Untried
        trial.said.append("nothing: its process was killed")
        await _after(trial, subject, sender, None)
    return run


# -- what every trial does -------------------------------------------------------------------------


async def _send(
    trial: Trial, subject: Subject, sender: Sender, outside: AbstractContextManager[object] | None = None,
) -> Answer:
    """Make the call, with the outside in the given state, and compare the answer with what can be counted."""
    with outside or nullcontext():
        answer = await sender.send()
    trial.said.append(in_words(answer))
    _judge(trial, subject, answer)
    return answer


def _judge(trial: Trial, subject: Subject, answer: Answer) -> None:
    if answer.refused is not None:
        trial.must(subject.effects() == 0, FALSE_FAILED)
    elif answer.unknown is None:
        trial.must(subject.effects() > 0, FALSE_APPLIED)


async def _after(trial: Trial, subject: Subject, sender: Sender, answer: Answer | None) -> None:
    """Go on as the engine does: what is not known is looked up, and what did not happen is sent again."""
    if answer is not None and answer.refused is None and answer.unknown is None:
        return await _found(trial, subject, sender, answer)
    in_doubt = answer is None or answer.refused is None
    if in_doubt and await _look(trial, subject, sender) != "failed":
        return None
    again = await _send(trial, subject, sender)
    trial.must(again.refused is None and again.unknown is None, "the outside was well again, and it did not succeed")
    return None


async def _look(trial: Trial, subject: Subject, sender: Sender) -> str:
    """Ask what became of it, and compare the answer with what can be counted."""
    verdict = await sender.ask()
    trial.said.append(said(verdict))
    if verdict.status == "failed":
        trial.must(subject.effects() == 0, f"its look-up: {FALSE_FAILED}")
    elif verdict.status == "applied":
        trial.must(subject.effects() > 0, f"its look-up: {FALSE_APPLIED}")
    elif sender.spec().can_reconcile:
        trial.notes.append("its look-up could not tell")
    return verdict.status


async def _found(trial: Trial, subject: Subject, sender: Sender, answer: Answer) -> None:
    """What happened and was answered must be found, with its result."""
    if not sender.spec().can_reconcile:
        trial.notes.append("it has no look-up: an outcome that is not known is a question to a person")
        return
    verdict = await sender.ask()
    trial.said.append(said(verdict))
    trial.must(verdict.status != "failed" or subject.effects() == 0, f"its look-up: {FALSE_FAILED}")
    if verdict.status == "applied" and answer.result is not None:
        result = json.loads(answer.result)
        same = verdict.result == result if subject.same_result else keys_of(verdict.result) == keys_of(result)
        trial.must(same, "its look-up found it with another result")


def _fresh(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))
