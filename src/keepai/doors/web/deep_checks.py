"""The thorough check that a person starts on Health: the sandbox, each connector, and every row of the ledger.

The ledger is checked in a process of its own: it may take minutes, and neither the host nor its end must wait for it.
`python -m keepai.doors.web.deep_checks` is that process. It reads the place of the ledger from stdin, because an
address may contain a password, and prints a line of JSON after each check.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from ...ledger.checks import CHECKS
from ...model.policy import Policy
from ...reading.look import open_look
from ..health_checks import FAIL, OK, HealthLine, check_connector, check_sandbox

if TYPE_CHECKING:
    from ...app import Keep

LINE_BYTES_MAX = 1 << 20


@dataclass
class DeepChecks:
    """The findings of the last thorough check, or the progress of the one that runs; one at a time."""

    found: list[HealthLine] = field(default_factory=list)
    began_at: int | None = None
    ended_at: int | None = None
    doing: str = ""
    done: int = 0
    steps: int = 0
    _task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is not finished yet."""
        return self._task is not None and not self._task.done()

    def begin(self, keep: Keep, ledger: str) -> None:
        """Start a check, unless one is running."""
        if self.is_running:
            return
        clock = keep.parts.clock
        self.found, self.began_at, self.ended_at = [], clock.now_ms(), None
        self.done, self.steps = 0, 1 + len(keep.parts.connectors) + len(CHECKS)
        self._task = asyncio.ensure_future(self._run(keep, ledger))

    async def _run(self, keep: Keep, ledger: str) -> None:
        async with aclosing(_look(keep, ledger)) as steps:
            async for doing, found in steps:
                self.doing = doing
                self.found += found
                self.done += bool(found)
        self.ended_at = keep.parts.clock.now_ms()


async def _look(keep: Keep, ledger: str) -> AsyncGenerator[tuple[str, list[HealthLine]], None]:
    """What is checked next, with nothing found yet; then the same with what was found."""
    yield "the sandbox", []
    yield "the sandbox", await check_sandbox()
    for connector in keep.parts.connectors.values():
        yield connector.name, []
        yield connector.name, [await check_connector(connector)]
    yield "the ledger", []
    async with aclosing(_checked(ledger)) as checks:
        async for found in checks:
            yield "the ledger", [found]


async def _checked(ledger: str) -> AsyncGenerator[HealthLine, None]:
    """The checks of `keep db check`, each as soon as it is done."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, limit=LINE_BYTES_MAX,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(ledger.encode())
        process.stdin.close()
        async for line in process.stdout:
            yield HealthLine(**json.loads(line))
        told = (await process.stderr.read()).decode("utf-8", "replace").strip()
        if await process.wait():
            last = told.rpartition("\n")[2] or f"it ended with {process.returncode}"
            yield HealthLine("ledger", FAIL, f"The check broke off: {last}", "Try `keep db check` in a terminal.")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def main(ledger: str) -> None:
    """Check a ledger, and print a line after each check."""
    with open_look(ledger, Policy()) as look:
        for name, check in CHECKS.items():
            sound, said, _ = check(look.read)
            do = "" if sound else "Keep a copy of the ledger; `keep db check` lists everything."
            click.echo(json.dumps(vars(HealthLine(f"ledger: {name}", OK if sound else FAIL, said, do))))


if __name__ == "__main__":
    main(sys.stdin.read())
