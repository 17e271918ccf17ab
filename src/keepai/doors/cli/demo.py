"""`keep demo`: a real host, really killed in the middle of a mutation, and started again.

It makes a folder with a local mailbox and a local sheet, and removes it at the end; with --keep, the folder stays. It
runs the same commands that a person would type. At the end it counts the rows in the sheet's own file, and does not
take the ledger's word for it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...config import load
from ...model.clock import SystemClock
from ...model.errors import KeepError
from ...model.records import Mutation
from ...reading.look import Look, open_look
from ...reading.wording import clock, count
from ..demo_folder import KEEP, MAILS, SCRIPT, WORKFLOW, environment, furnish, rows_by_subject
from ..demo_host import run_demo_page
from .command_session import with_json
from .narrator import Narrator
from .text import cut, echo, echo_json, line, width


@click.command()
@click.option("--keep", "folder", metavar="DIR", help="Do it in this new folder, and leave it there to look at.")
@click.option("--ui", is_flag=True, help="On a page, with buttons: send an e-mail, pull the plug, lose the answer.")
@click.option("--port", type=click.IntRange(0, 65535), help="The page's port; without it 7777, or the next free one.")
@click.option("--host", "address", type=click.Choice(["127.0.0.1", "::1", "localhost"]), metavar="ADDRESS",
              help="The page's address, such as 127.0.0.1; without it a name of its own.")
@with_json
def demo(folder: str | None, ui: bool, port: int | None, address: str | None, as_json: bool) -> None:
    """Kill a host in mid-mutation, and see nothing lost or doubled.

    In the terminal it plays by itself and ends. With --ui it prints the address of a page, on which you send the
    e-mails and kill the host, until Ctrl-C.
    """
    if ui and as_json:
        raise click.UsageError("--ui and --json do not go together: a page is for people.")
    with _place(folder) as place:
        if ui:
            run_demo_page(place, address, port)
            ok = True
        else:
            result = DemoPlay(place, quiet=as_json).play()
            ok = bool(result["ok"])
            if as_json:
                echo_json(result)
        if folder and not as_json:
            echo(f"\nIt is all in {folder}: cd there and try keep status, keep outputs {WORKFLOW}, keep dev.")
    sys.exit(0 if ok else 1)


@contextmanager
def _place(folder: str | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="keep-demo-") as made:
            yield Path(made)
        return
    try:
        Path(folder).mkdir(parents=True)
    except OSError as error:
        told = "it exists already" if isinstance(error, FileExistsError) else str(error.strerror)
        raise click.BadParameter(f"{folder} cannot be made: {told}.", param_hint="--keep") from None
    yield Path(folder).resolve()


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
        with open_look(settings.ledger, settings.policy) as look:
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
        rows, applied = self._counts(look)
        self._say(f"The sheet has {rows}. The ledger is sure of {applied}; of the third it knows that it was about to "
                  "be sent:")
        self._say_in_flight(look)
        self._say("To send it again would write it twice. To forget it might lose it.")

    def _kill_before_the_row(self, look: Look, narrator: Narrator) -> None:
        self._act("A second host starts. It asks the sheet, finds the row, and goes on without sending it again. "
                  "Then it is killed just before it writes the fourth.")
        asked = [m.id for m in _in_flight(look)]
        self._killed(look, narrator, "before:call:1")
        self._say(f"The third row's mutation was {_history(look, asked)}.")
        rows, applied = self._counts(look)
        self._say(f"The sheet has {rows}, the ledger is sure of {applied}. It looks just like before:")
        self._say_in_flight(look)

    def _finish(self, look: Look, narrator: Narrator) -> None:
        self._act("A third host starts. It asks the sheet, which has no such row: now it is safe to send it again.")
        asked = [m.id for m in _in_flight(look)]
        with self._host() as host:
            _wait(lambda: self._all_done(look), lambda: self._tell(look, narrator), host)
            host.terminate()
            host.wait(WAIT_S)
        self._tell(look, narrator)
        self._say(f"The fourth row's mutation was {_history(look, asked)}; a new one wrote the row.")

    def _verify(self, seconds: float) -> dict[str, Any]:
        self._act("What came in, and what came of it:")
        self._command("inputs", WORKFLOW)
        subjects = rows_by_subject(self._folder / "sheets")
        times, rows = [subjects[subject] for _, subject in MAILS], subjects.total()
        ok = times == [1] * len(MAILS) and rows == len(MAILS)
        self._act(f"Counted in the sheet's own file: {count(len(MAILS), 'e-mail')}, {count(rows, 'row')}, "
                  + (f"each exactly once. It took {seconds:.1f} s." if ok else f"but not each once: {times}."))
        return {"ok": ok, "emails": len(MAILS), "rows": rows, "times": times, "kills": 2,
                "seconds": round(seconds, 1)}

    # -- the host ----------------------------------------------------------------------------------

    def _killed(self, look: Look, narrator: Narrator, point: str) -> None:
        with self._host(point) as host:
            _wait(lambda: host.poll() is not None, lambda: self._tell(look, narrator), host)
        self._tell(look, narrator)
        if host.returncode != -9:
            log = (self._folder / "host.log").read_text("utf-8", "replace")[-2000:]
            raise KeepError(f"The host should have been killed, and ended with {host.returncode}:\n{log}")
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

    # -- looking -----------------------------------------------------------------------------------

    def _counts(self, look: Look) -> tuple[str, int]:
        """The rows of the sheet, in words, and the number of mutations of which the ledger is sure."""
        applied = sum(1 for m in look.views.mutations(WORKFLOW) if m.status.value == "applied")
        return count(rows_by_subject(self._folder / "sheets").total(), "row"), applied

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

    def _say_in_flight(self, look: Look) -> None:
        found = _in_flight(look)
        self._say(f"  in flight: {line(f'{found[0].title}  ({found[0].id})') if found else 'nothing'}")

    def _tell(self, look: Look, narrator: Narrator) -> None:
        room = width()
        for told in narrator.news(look):
            text = f"  {clock(told.at)} {told.handler}  {line(told.text)}"
            colour = {"applied": "green", "needs_reconcile": "yellow"}.get(told.state)
            self._say(click.style(cut(text, room - 3 if room else None), fg=colour))


def _in_flight(look: Look) -> list[Mutation]:
    return [m for m in look.views.mutations(WORKFLOW) if m.status.value == "in_flight"]


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
