"""`keep demo`: a real host, really killed in the middle of a mutation, and started again.

It makes a folder with a local mailbox and a local sheet, and removes it at the end; with --keep, the folder stays. It
runs the same commands that a person would type. At the end it counts the rows in the sheet's own file, and does not
take the ledger's word for it.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...config import load
from ...model.clock import SystemClock
from ...model.records import Mutation
from ...reading.look import Look, open_look
from ...reading.wording import count
from ..demo_folder import MAILS, SCRIPT, WORKFLOW, furnish, rows_by_subject
from ..demo_host import run_demo_page
from .command_session import with_json
from .demo_cluster import ClusterPlay
from .demo_stage import WAIT_S, DemoStage, history
from .narrator import Narrator
from .text import echo, echo_json


@click.command()
@click.option("--keep", "folder", metavar="DIR", help="Do it in this new folder, and leave it there to look at.")
@click.option("--ui", is_flag=True, help="On a page, with buttons: send an e-mail, pull the plug, lose the answer.")
@click.option("--cluster", is_flag=True, help="With two hosts on one PostgreSQL, which it starts and ends by itself.")
@click.option("--port", type=click.IntRange(0, 65535), help="The page's port; without it 7777, or the next free one.")
@click.option("--host", "address", type=click.Choice(["127.0.0.1", "::1", "localhost"]), metavar="ADDRESS",
              help="The page's address, such as 127.0.0.1; without it a name of its own.")
@with_json
def demo(
    folder: str | None, ui: bool, cluster: bool, port: int | None, address: str | None, as_json: bool,
) -> None:
    """Kill a host in mid-mutation, and see nothing lost or doubled.

    In the terminal it plays by itself and ends. With --ui it prints the address of a page, on which you send the
    e-mails and kill the host, until Ctrl-C. With --cluster two hosts share the work, one of them is killed, and the
    other one takes over.
    """
    if ui and as_json:
        raise click.UsageError("--ui and --json do not go together: a page is for people.")
    if cluster and ui:
        raise click.UsageError("--cluster and --ui do not go together: with --cluster it plays by itself.")
    if cluster and folder:
        raise click.UsageError("--cluster and --keep do not go together: its database ends with the demo.")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_once)
    with _place(folder) as place:
        if ui:
            run_demo_page(place, address, port)
            ok = True
        else:
            play = ClusterPlay(place, address, port, quiet=as_json) if cluster else DemoPlay(place, quiet=as_json)
            result = play.play()
            ok = bool(result["ok"])
            if as_json:
                echo_json(result)
        if folder and not as_json:
            echo(f"\nIt is all in {folder}: cd there and try keep status, keep outputs {WORKFLOW}, keep dev.")
    sys.exit(0 if ok else 1)


def _end_once(number: int, frame: object) -> None:
    """Have everything end that was started; nothing interrupts that."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


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


class DemoPlay(DemoStage):
    """One host after the other."""

    def play(self) -> dict[str, Any]:
        """All of it; what came out is counted in the sheet's own file."""
        begun, narrator = SystemClock().steady_ms(), Narrator()
        self._prepare()
        settings = load(self.folder / "keep.toml")
        with open_look(settings.ledger, settings.policy) as look:
            self._kill_after_the_row(look, narrator)
            self._kill_before_the_row(look, narrator)
            self._finish(look, narrator)
        return self._verify((SystemClock().steady_ms() - begun) / 1000)

    # -- the acts ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.act(f"A mailbox with {count(len(MAILS), 'e-mail')}, an empty sheet, and a workflow that files each "
                  "e-mail as a row.")
        furnish(self.folder)
        self.command("check", SCRIPT)
        self.command("deploy", SCRIPT, "--grant", "all")

    def _kill_after_the_row(self, look: Look, narrator: Narrator) -> None:
        self.act("A host starts, and is killed (SIGKILL) right after it wrote the third row, before it could "
                  "record that.")
        self._killed(look, narrator, "after:call:3")
        rows, applied = self._counts(look)
        self.say(f"The sheet has {rows}. The ledger is sure of {applied}; of the third it knows that it was about to "
                  "be sent:")
        self.say_in_flight(_in_flight(look))
        self.say("To send it again would write it twice. To forget it might lose it.")

    def _kill_before_the_row(self, look: Look, narrator: Narrator) -> None:
        self.act("A second host starts. It asks the sheet, finds the row, and goes on without sending it again. "
                  "Then it is killed just before it writes the fourth.")
        asked = _in_flight(look)
        self._killed(look, narrator, "before:call:1")
        self.say(f"The third row's mutation was {history(look, asked)}.")
        rows, applied = self._counts(look)
        self.say(f"The sheet has {rows}, the ledger is sure of {applied}. It looks just like before:")
        self.say_in_flight(_in_flight(look))

    def _finish(self, look: Look, narrator: Narrator) -> None:
        self.act("A third host starts. It asks the sheet, which has no such row: now it is safe to send it again.")
        asked = _in_flight(look)
        with self.host() as host:
            self.wait(lambda: self._all_done(look), lambda: self._tell(look, narrator), host)
            host.terminate()
            host.wait(WAIT_S)
        self._tell(look, narrator)
        self.say(f"The fourth row's mutation was {history(look, asked)}; a new one wrote the row.")

    def _verify(self, seconds: float) -> dict[str, Any]:
        self.act("What came in, and what came of it:")
        self.command("inputs", WORKFLOW)
        subjects = rows_by_subject(self.folder / "sheets")
        times, rows = [subjects[subject] for _, subject in MAILS], subjects.total()
        ok = times == [1] * len(MAILS) and rows == len(MAILS)
        self.act(f"Counted in the sheet's own file: {count(len(MAILS), 'e-mail')}, {count(rows, 'row')}, "
                  + (f"each exactly once. It took {seconds:.1f} s." if ok else f"but not each once: {times}."))
        return {"ok": ok, "emails": len(MAILS), "rows": rows, "times": times, "kills": 2,
                "seconds": round(seconds, 1)}

    # -- looking -----------------------------------------------------------------------------------

    def _killed(self, look: Look, narrator: Narrator, point: str) -> None:
        with self.host(crash_at=point) as host:
            self.wait(lambda: host.poll() is not None, lambda: self._tell(look, narrator), host)
        self._tell(look, narrator)
        self.say_killed(host)

    def _tell(self, look: Look, narrator: Narrator) -> None:
        for told in narrator.news(look):
            self.tell(told, told.handler)

    def _counts(self, look: Look) -> tuple[str, int]:
        """The rows of the sheet, in words, and the number of mutations of which the ledger is sure."""
        applied = sum(1 for m in look.views.mutations(WORKFLOW) if m.status.value == "applied")
        return count(rows_by_subject(self.folder / "sheets").total(), "row"), applied

    def _all_done(self, look: Look) -> bool:
        states = [each.status for each in look.views.inputs(WORKFLOW)]
        idle = look.read.one("run_open", workflow_id=look.views.workflow_row(WORKFLOW)["id"]) is None
        return idle and states == ["done"] * len(MAILS)


def _in_flight(look: Look) -> Mutation | None:
    return next((m for m in look.views.mutations(WORKFLOW) if m.status.value == "in_flight"), None)
