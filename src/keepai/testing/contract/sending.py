"""Sends and asks as the engine does, and keeps what was said: for the report, and to look for secrets in it."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...connectors.base import OperationSpec, Verdict
from ...connectors.values import Call
from ...engine import outside
from ...engine.outside import Answer
from ...model.clock import SystemClock
from .subject import CANARY, Subject

CALM_S = 10.0  # what a call may take while nothing hangs
GRACE_S = 0.3  # so much longer than the call's own deadline the engine waits, for one that ends by itself
KEY, OTHER_KEY = "contract-key-1", "contract-key-2"


@dataclass
class Heard:
    """Every text that came out of a connector."""

    texts: list[str] = field(default_factory=list)

    def add(self, what: object) -> None:
        """Keep a text, or an error with all that it carries."""
        if isinstance(what, BaseException):
            self.texts += [*traceback.format_exception(what), repr(what)]
        else:
            self.texts.append(what if isinstance(what, str) else repr(what))

    @property
    def leaks(self) -> bool:
        """Whether the secret is in any of them."""
        return any(CANARY in text for text in self.texts)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Also hear everything that is logged meanwhile."""
        root, handler = logging.getLogger(), _Listener(self)
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.setLevel(level)
            root.removeHandler(handler)


class _Listener(logging.Handler):
    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.add(record.getMessage())


@dataclass
class Sender:
    """One subject's connector, made anew for every use, as after a restart."""

    subject: Subject
    heard: Heard
    left: list[Any] = field(default_factory=list)  # calls that did not end

    def spec(self) -> OperationSpec:
        """The operation of a fresh connector."""
        return self.subject.connector().operations[self.subject.operation]

    @asynccontextmanager
    async def _using(self) -> AsyncIterator[OperationSpec]:
        """The operation of a connector that is made for this, and ends with it."""
        connector = self.subject.connector()
        try:
            yield connector.operations[self.subject.operation]
        finally:
            await connector.shut_down()

    async def send(self, key: str = KEY, *, seconds: float = CALM_S, remaining_s: float | None = None) -> Answer:
        """Make the call, as the engine would."""
        call = self.call(key, seconds if remaining_s is None else remaining_s)
        async with self._using() as spec:
            params = spec.parse(dict(self.subject.params))
            answer = await outside.mutate(spec, spec.full_name, params, call, seconds + GRACE_S, self.left.append)
        for each in (answer.result, answer.refused, answer.unknown, spec.preview(params)):
            self.heard.add(each)
        return answer

    async def ask(self, key: str = KEY) -> Verdict:
        """Ask what became of it, as the engine would."""
        async with self._using() as spec:
            params = spec.parse(dict(self.subject.params))
            verdict = await outside.reconcile(spec, spec.full_name, params, self.call(key), CALM_S, self.left.append)
        self.heard.add(f"{verdict.why} {verdict.result!r}")
        return verdict

    def call(self, key: str = KEY, seconds: float = CALM_S) -> Call:
        """The circumstances of a call."""
        return Call(
            idempotency_key=key, deadline=SystemClock().steady_ms() + seconds * 1000, workflow_id="wf_contract",
            run_id="run_contract", log=self.heard.add,
        )


def in_words(answer: Answer) -> str:
    """What a call came to."""
    if answer.refused is not None:
        return f"{type(answer.refused).__name__}: {answer.refused.message}"
    return f"unknown: {answer.unknown.message}" if answer.unknown else f"applied: {answer.result}"


def said(verdict: Verdict) -> str:
    """What a look-up came to."""
    more = json.dumps(verdict.result, default=repr) if verdict.status == "applied" else verdict.why
    return f"looked up: {verdict.status}" + (f" ({more})" if more else "")


def keys_of(result: object) -> object:
    """The form of a result, for comparing two."""
    return sorted(result) if isinstance(result, dict) else type(result).__name__
