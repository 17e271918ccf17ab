"""A host with an outside world in files, made to be killed.

`Hosts` is one process that has loaded everything. For each crash that it is asked for, it forks a host that opens Keep
on the folder's ledger, deploys the example and runs until there is nothing left to do. `-` is a life without a crash,
`name:nth` one that SIGKILL ends at the nth arrival at that point. The answer says how each life ended, which points it
reached, and which invariants the file broke then. Script servers come from the tests' nursery.

The judge is `effects.log`: one line per row that was really added, synced before anybody is told. The folder's `ledger`
is the file or the address of the ledger, its `kind` says what the world is like: "reconciles" (it loses answers, and
can be asked), "asks" (it loses answers, cannot be asked, and a person answers truthfully), "blind" (it works, cannot be
asked, and nobody answers), "hangs" (its first call never ends, it can be asked), "approves" (it works, can be asked,
and a person approves every call). Its `way` says which of `SCRIPTS` is deployed, and so how a consumer's run comes to
its call.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from keepai import Call, Connector, Keep, OutcomeUnknown, Page, Policy, Transient, Verdict, mutation, read
from keepai.model import crash_points
from keepai.model.clock import iso
from keepai.runtime.javascript import fork_client, linux
from keepai.testing import ManualClock, kill_self_at
from tests import nursery
from tests.crashes.invariants import violations

MAILS = 3
ROUNDS_MAX = 40
EXAMPLE = Path(__file__).parents[2] / "examples" / "email-to-sheets.js"


def scripts() -> dict[str, str]:
    """The example as it is, and with more in `mutate` than its one call, so that its call is not known beforehand."""
    text, call = EXAMPLE.read_text(), "await ctx.sheets.appendRow("
    assert text.count(call) == 1, "`mutate` makes one call"
    return {"straight": text, "apart": text.replace(call, f'ctx.log("A row is added.");\n        {call}')}


#: Way → script. "straight": PrepareResult and call are one commit; "apart": `prepare` is one, and `send` another.
SCRIPTS = scripts()


class World:
    """Files that outlive every host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kind = (folder / "kind").read_text()
        self.way = (folder / "way").read_text()

    def append(self, name: str, entry: object) -> int:
        """Add a line for good; says how many there are."""
        fd = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, json.dumps(entry).encode() + b"\n")
        os.fsync(fd)
        os.close(fd)
        return len(self.lines(name))

    def lines(self, name: str) -> list[Any]:
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def effect(self, key: str) -> Any:
        return next((line for line in self.lines("effects.log") if line["key"] == key), None)


class Gmail(Connector):
    """The mailbox: its first search of all finds nobody at home."""

    input_types = ("email",)

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    @read
    async def search(self, params: dict[str, Any], call: Call) -> Page[dict[str, Any]]:
        if self._world.append("searches.log", params) == 1 and self._world.kind in ("reconciles", "asks"):
            raise Transient("The mailbox is busy.")
        mails = json.loads((self._world.folder / "mails.json").read_text())
        return Page(mails[int(params.get("after") or 0) :], lastCursor=str(len(mails)))


class Sheets(Connector):
    """The sheet: its first call is refused, the second loses its answer, the third loses its request."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    @mutation(identity=("spreadsheetId",), target="spreadsheetId", settle=0)
    async def append_row(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        if self._world.kind == "hangs" and not self._world.lines("calls.log"):
            self._world.append("calls.log", {})
            await hang()
        return append(self._world, params, call)

    @append_row.reconcile
    async def find_row(self, params: dict[str, Any], call: Call) -> Verdict:
        found = self._world.effect(call.idempotency_key)
        return Verdict.applied(found["result"]) if found else Verdict.failed()


class BlindSheets(Connector):
    """The same sheet, which nobody can ask."""

    name = "sheets"

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    @mutation(identity=("spreadsheetId",), target="spreadsheetId", settle=0)
    async def append_row(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        return append(self._world, params, call)


async def hang() -> None:
    """Never end, not even when told to."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def append(world: World, params: dict[str, Any], call: Call) -> dict[str, Any]:
    number = world.append("calls.log", {"key": call.idempotency_key, "attempt": call.attempt})
    rough = world.kind in ("reconciles", "asks")
    if rough and number == 1:
        raise Transient("The sheet is busy.")
    if rough and number == 3:
        raise OutcomeUnknown("The request was lost.")
    result = {"rowId": f"row-{len(world.lines('effects.log')) + 1}"}
    world.append("effects.log", {"key": call.idempotency_key, "values": params["values"], "result": result})
    if rough and number == 2:
        raise OutcomeUnknown("The answer was lost.")
    return result


class Clock(ManualClock):
    """A clock whose time is kept in a file, so that it goes on after a crash."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        super().__init__(self._file.read_text() if self._file.exists() else "2026-01-05T09:00:00Z")

    def pass_until(self, ms: int) -> None:
        """Let time pass, at least until a moment."""
        self.advance(ms=max(1, ms - self.now_ms()))
        self._file.write_text(iso(self.now_ms()))


def ledger(folder: Path) -> str:
    """The file or the address of the folder's ledger."""
    return (folder / "ledger").read_text()


async def live(folder: Path) -> None:
    """One life of a host: everything that can be done now or after waiting."""
    world, clock = World(folder), Clock(folder)
    sheets = BlindSheets(world) if world.kind in ("asks", "blind") else Sheets(world)
    grants = {"gmail.search": "allow", "sheets.appendRow": "ask" if world.kind == "approves" else "allow"}
    policy = Policy(call_s=0.2 if world.kind == "hangs" else 30)
    async with Keep(ledger(folder), connectors=[Gmail(world), sheets], clock=clock, policy=policy) as keep:
        deployed = await keep.deploy(SCRIPTS[world.way], grants=grants)
        for _ in range(ROUNDS_MAX):
            await keep.run_until_idle()
            if not await go_on(keep, world, clock, deployed.workflow_id):
                return
    raise AssertionError(f"still not idle after {ROUNDS_MAX} rounds")


async def go_on(keep: Keep, world: World, clock: Clock, workflow_id: str) -> bool:
    """Wait for what will come by itself, answer what a person is asked; False if there is nothing of either."""
    runs = [run for run in await keep.runs(workflow_id) if run.state in ("active", "paused", "failed")]
    if not runs:
        return False
    (run,) = runs
    assert run.state != "active", run
    questions = [entry for entry in await keep.needs_you(workflow_id) if entry.kind == "approval"]
    if questions:
        await keep.approve(questions[0].id)
        return True
    if run.retry_at is not None:
        clock.pass_until(run.retry_at)
        return True
    doubtful = [m for m in await keep.mutations(workflow_id) if m.status == "indeterminate"]
    if world.kind != "asks" or not doubtful:
        return False
    found = world.effect(doubtful[0].idempotency_key)
    await keep.resolve(doubtful[0].id, "happened" if found else "did_not_happen", found and found["result"])
    return True


def run(folder: Path, crash: str) -> tuple[int, list[str]]:
    """A process that lives one life; its exit status (negative: the signal), and the points it reached."""
    trace = folder / "points"
    trace.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        said = os.open(folder / "said", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        listen(trace, crash)
        try:
            asyncio.run(live(folder))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    reached = trace.read_text().split() if trace.exists() else []
    return os.waitstatus_to_exitcode(status), reached


def listen(trace: Path, crash: str) -> None:
    """Note every point, and die at the one that is wished for."""
    name, _, nth = crash.rpartition(":")
    fd = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    kill_self_at(name, int(nth or 1)) if name else crash_points.listen(lambda point: None)
    killer = crash_points._listener
    assert killer

    def at(point: str) -> None:
        os.write(fd, point.encode() + b"\n")
        killer(point)

    crash_points.listen(at)


class Hosts:
    """The process that hosts are forked from; `servers` is the address of a nursery. It ends with the tests."""

    def __init__(self, servers: str | None) -> None:
        self._command = [sys.executable, "-m", "tests.crashes.driver", *([servers] if servers else [])]
        self._process: subprocess.Popen[str] | None = None

    def live(self, folder: Path, crashes: tuple[str, ...]) -> list[dict[str, Any]]:
        """Lives of a host, one after the other."""
        process = self._process = self._process or subprocess.Popen(
            self._command, cwd=EXAMPLE.parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps([str(folder), *crashes]) + "\n")
            process.stdin.flush()
            lives: list[dict[str, Any]] = json.loads(process.stdout.readline())
        except BaseException:
            self.close()  # the next one must not get this answer
            raise
        return lives

    def close(self) -> None:
        """End it."""
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._process = None


def main() -> None:
    """Do what is asked for, until nobody asks any more."""
    if sys.argv[1:]:
        linux.die_with_parent()
        fork_client._spawn = partial(nursery.spawn, sys.argv[1])  # type: ignore[assignment]
    for line in sys.stdin:
        folder, *crashes = json.loads(line)
        lives = []
        for crash in crashes:
            status, reached = run(Path(folder), crash)
            broken = violations(ledger(Path(folder)))
            lives.append({"crash": crash, "killed": status == -signal.SIGKILL, "status": status, "points": reached,
                          "broken": broken})
        print(json.dumps(lives), flush=True)


if __name__ == "__main__":
    main()
