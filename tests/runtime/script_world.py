"""A small outside world for scripts: a surface, a host that remembers what it was asked, and ways to write jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import psutil

from keepai.model.operations import ALLOWED, Kind, Step, Surface
from keepai.runtime.base import Fixed, Job, Limits, LogLine, Operation, Reply
from keepai.runtime.javascript.runtime import JavaScriptRuntime

SURFACE = Surface(
    operations={
        "gmail": {"search": Kind.READ, "get": Kind.READ_BY_ID, "send": Kind.MUTATION},
        "sheets": {"appendRow": Kind.MUTATION, "read": Kind.READ},
    },
    input_types={"gmail": ("email",)},
)
LIMITS = Limits(compute_s=5.0)

Answer = Callable[[Operation], Awaitable[Reply] | Reply]


@dataclass
class FakeHost:
    """Answers every operation with what the test wants, by default with its own arguments."""

    answers: dict[str, Answer] = field(default_factory=dict)
    foreseeing: Callable[[Operation], Reply | None] = lambda _: None
    operations: list[Operation] = field(default_factory=list)
    foreseen: list[Operation] = field(default_factory=list)  # what it was to say beforehand
    uses: list[tuple[Operation, Reply]] = field(default_factory=list)  # and what of it the script has taken
    lines: list[LogLine] = field(default_factory=list)

    async def answer(self, operation: Operation) -> Reply:
        self.operations.append(operation)
        made = self.answers.get(operation.name, echo)(operation)
        return made if isinstance(made, Reply) else await made

    async def foresee(self, operation: Operation) -> Reply | None:
        self.foreseen.append(operation)
        return self.foreseeing(operation)

    def used(self, operation: Operation, reply: Reply) -> None:
        self.uses.append((operation, reply))

    def log(self, line: LogLine) -> None:
        self.lines.append(line)

    @property
    def names(self) -> list[str]:
        return [operation.name for operation in self.operations]

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


class Stalling(FakeHost):
    """Tells when it was asked, and answers only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def answer(self, operation: Operation) -> Reply:
        self.operations.append(operation)
        self.asked.set()
        await self.go_on.wait()
        return Reply.of(1)


def echo(operation: Operation) -> Reply:
    return Reply.of(list(operation.args))


@dataclass
class Gate:
    """Lets answers through only when the expected number of them is under way."""

    expected: int
    inside: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, operation: Operation) -> Reply:
        self.inside += 1
        if self.inside == self.expected:
            self.opened.set()
        await asyncio.wait_for(self.opened.wait(), 5)
        return Reply.of(list(operation.args))


_FORMS = {
    Step.PRODUCER: "producers: {h: {async handler(ctx, one, two) {%s\n}}}",
    Step.PREPARE: "consumers: {h: Keep.consumer({async prepare(ctx, one, two) {%s\n}})}",
    Step.MUTATE: "consumers: {h: Keep.consumer({async prepare() {}, async mutate(ctx, one, two) {%s\n}})}",
    Step.NEXT: "consumers: {h: Keep.consumer({async prepare() {}, async next(ctx, one, two) {%s\n}})}",
    Step.ROUTINE: "routines: {h: {async handler(ctx, one, two) {%s\n}}}",
}


def script(body: str, step: Step = Step.PRODUCER, before: str = "") -> str:
    """A whole script whose handler `h` has this body; the body starts on line 2 if there is nothing before."""
    return f"{before}export default Keep.workflow({{name: 'w', topics: {{}}, {_FORMS[step] % (chr(10) + body)}}});\n"


def job(body: str, step: Step = Step.PRODUCER, *, before: str = "", **changes: object) -> Job:
    """A job that runs this body."""
    made = Job(
        source=script(body, step, before), step=step, handler="h", args=(), state=None, surface=SURFACE,
        allowed=ALLOWED[step], limits=LIMITS,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def fixed(seed: bytes = b"seed") -> Fixed:
    return Fixed(now_ms=1_700_000_000_000, seed=seed)


def value(text: str | None) -> object:
    return None if text is None else json.loads(text)


def children(runtime: JavaScriptRuntime) -> list[int]:
    """The workers that are alive."""
    assert runtime._server is not None
    found = psutil.Process(runtime._server.process.pid).children()
    return [child.pid for child in found if child.status() != psutil.STATUS_ZOMBIE]
