"""What `keep demo` plays: a real host, really killed in the middle of a mutation, and started again.

Everything happens in a folder of its own, with a local mailbox and a local sheet, through the same
commands that anybody types. At the end the sheet's file is counted, not the ledger's word for it.
"""

from __future__ import annotations

import csv
import subprocess
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...config import load
from ...model.clock import SystemClock
from ...model.errors import KeepError
from ...reading.look import Look, open_look
from ...reading.wording import clock, count
from ..demo_folder import KEEP, MAILS, SCRIPT, WORKFLOW, environment, furnish
from .narrator import Narrator
from .text import cut, line, width

WAIT_S = 60
POLL_S = 0.1


class DemoPlay:
    """The play: each act is a method."""

    def __init__(self, folder: Path, *, quiet: bool) -> None:
        self._folder, self._quiet = folder, quiet
        self._number = 0

    def play(self) -> dict[str, Any]:
        """All of it; what came out is counted in the sheet's own file."""
        begun, narrator = SystemClock().steady_ms(), Narrator()
        self._prepare()
        settings = load(self._folder / "keep.toml")
        with open_look(settings.path, settings.policy) as look:
            self._kill_after_the_row(look, narrator)
            self._kill_before_the_row(look, narrator)
            self._finish(look, narrator)
        return self._verify((SystemClock().steady_ms() - begun) / 1000)

    # -- the acts ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._act(f"A mailbox with {count(len(MAILS), 'e-mail')}, an empty sheet, and a workflow that files each "
                  "e-mail as a row.")
        furnish(self._folder)
        self._command("check", SCRIPT)
        self._command("deploy", SCRIPT, "--grant", "all")

    def _kill_after_the_row(self, look: Look, narrator: Narrator) -> None:
        self._act("A host starts, and is killed (SIGKILL) right after it wrote the third row, before it could "
                  "record that.")
        self._killed(look, narrator, "after:call:3")
        self._say(f"The sheet has {count(self._rows(), 'row')}. The ledger is sure of {self._applied(look)}; of the "
                  "third it knows that it was about to be sent:")
        self._say(f"  in flight: {_in_flight(look)}")
        self._say("To send it again would write it twice. To forget it might lose it.")

    def _kill_before_the_row(self, look: Look, narrator: Narrator) -> None:
        self._act("A second host starts. It asks the sheet, finds the row, and goes on without sending it again. "
                  "Then it is killed just before it writes the fourth.")
        asked = _in_flight_ids(look)
        self._killed(look, narrator, "before:call:1")
        self._say(f"The third row's mutation was {_history(look, asked)}.")
        self._say(f"The sheet has {count(self._rows(), 'row')}, the ledger is sure of {self._applied(look)}. "
                  "It looks just like before:")
        self._say(f"  in flight: {_in_flight(look)}")

    def _finish(self, look: Look, narrator: Narrator) -> None:
        self._act("A third host starts. It asks the sheet, which has no such row: now it is safe to send it again.")
        asked = _in_flight_ids(look)
        with self._host() as host:
            _wait(lambda: self._all_done(look), lambda: self._tell(look, narrator), host)
            host.terminate()
            host.wait(WAIT_S)
        self._tell(look, narrator)
        self._say(f"The fourth row's mutation was {_history(look, asked)}; a new one wrote the row.")

    def _verify(self, seconds: float) -> dict[str, Any]:
        self._act("What came in, and what came of it:")
        self._command("inputs", WORKFLOW)
        times = [self._subjects()[subject] for _, subject in MAILS]
        ok = times == [1] * len(MAILS) and self._rows() == len(MAILS)
        self._act(f"Counted in the sheet's own file: {count(len(MAILS), 'e-mail')}, {count(self._rows(), 'row')}, "
                  + (f"each exactly once. It took {seconds:.1f} s." if ok else f"but not each once: {times}."))
        return {"ok": ok, "emails": len(MAILS), "rows": self._rows(), "times": times, "kills": 2,
                "seconds": round(seconds, 1)}

    # -- the host ----------------------------------------------------------------------------------

    def _killed(self, look: Look, narrator: Narrator, point: str) -> None:
        with self._host(point) as host:
            _wait(lambda: host.poll() is not None, lambda: self._tell(look, narrator), host)
        self._tell(look, narrator)
        if host.returncode != -9:
            raise KeepError(f"The host should have been killed, and ended with {host.returncode}:\n{self._log()}")
        self._say(click.style(f"  process {host.pid} was killed by signal 9", fg="red"))

    @contextmanager
    def _host(self, crash_at: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        env = {**environment(), **({"KEEP_CRASH_AT": crash_at} if crash_at else {})}
        with (self._folder / "host.log").open("ab") as log:
            host = subprocess.Popen([*KEEP, "dev"], cwd=self._folder, env=env, stdout=log, stderr=log)
        try:
            yield host
        finally:
            if host.poll() is None:
                host.kill()
                host.wait()

    def _command(self, *args: str) -> None:
        self._say(click.style(f"$ keep {' '.join(args)}", bold=True))
        room = width()
        env = {**environment(), **({"COLUMNS": str(room - 3)} if room else {})}
        done = subprocess.run([*KEEP, *args], cwd=self._folder, env=env, capture_output=True, text=True, check=False)
        for each in (done.stdout + done.stderr).splitlines():
            self._say(each)
        if done.returncode:
            raise KeepError(f"`keep {' '.join(args)}` failed with {done.returncode}.")

    def _log(self) -> str:
        return (self._folder / "host.log").read_text("utf-8", "replace")[-2000:]

    # -- looking -----------------------------------------------------------------------------------

    def _rows(self) -> int:
        return sum(self._subjects().values())

    def _subjects(self) -> Counter[str]:
        """How often each subject stands in the sheet, counted in its file."""
        found: Counter[str] = Counter()
        for path in (self._folder / "sheets").glob("*.csv"):
            with path.open(encoding="utf-8", newline="") as file:
                found.update(row[1] for row in csv.reader(file) if row)
        return found

    def _applied(self, look: Look) -> int:
        return sum(1 for m in look.views.mutations(WORKFLOW) if m.status.value == "applied")

    def _all_done(self, look: Look) -> bool:
        states = [each.status for each in look.views.inputs(WORKFLOW)]
        idle = look.read.one("run_open", workflow_id=look.views.workflow_row(WORKFLOW)["id"]) is None
        return idle and states == ["done"] * len(MAILS)

    # -- telling -----------------------------------------------------------------------------------

    def _act(self, text: str) -> None:
        self._number += 1
        room = min(width() or 100, 100) - 3
        first, *rest = textwrap.wrap(text, room)
        click.echo(click.style(f"\n{self._number}. {first}", bold=True), err=self._quiet)
        for each in rest:
            click.echo(click.style(f"   {each}", bold=True), err=self._quiet)

    def _say(self, text: str) -> None:
        click.echo(f"   {text}", err=self._quiet)

    def _tell(self, look: Look, narrator: Narrator) -> None:
        room = width()
        for told in narrator.news(look):
            text = f"  {clock(told.at)} {told.handler}  {line(told.text)}"
            self._say(click.style(cut(text, room - 3 if room else None), fg=_colour(told.state)))


def _in_flight(look: Look) -> str:
    found = [m for m in look.views.mutations(WORKFLOW) if m.status.value == "in_flight"]
    return line(f"{found[0].title}  ({found[0].id})") if found else "nothing"


def _in_flight_ids(look: Look) -> list[str]:
    return [m.id for m in look.views.mutations(WORKFLOW) if m.status.value == "in_flight"]


def _history(look: Look, ids: list[str]) -> str:
    rows = [row for id in ids for row in look.views.history(look.views.mutation(id).workflow_id, id)]
    return " → ".join(row["target"] for row in rows if row["machine"] == "mutation")


def _wait(done: Any, meanwhile: Any, host: subprocess.Popen[bytes]) -> None:
    for _ in range(int(WAIT_S / POLL_S)):
        meanwhile()
        if done():
            return
        if host.poll() is not None:
            break
        time.sleep(POLL_S)
    if not done():
        raise KeepError("The demo's host did not do what it should in time. Run `keep demo --keep DIR`, see host.log.")


def _colour(state: str) -> str | None:
    return {"applied": "green", "needs_reconcile": "yellow"}.get(state)
