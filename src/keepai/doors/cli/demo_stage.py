"""What the demos in the terminal are played on: a folder with hosts, commands as a person types them, what is said.

With `quiet`, everything that is said goes to stderr.
"""

from __future__ import annotations

import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ...model.errors import KeepError
from ...model.records import Mutation
from ...reading.look import Look
from ...reading.wording import clock
from ..demo_folder import KEEP, environment
from ..demo_postgres import ending_with_parent
from .narrator import NewsLine
from .text import cut, line, width

WAIT_S = 60
POLL_S = 0.1
LOG_SHOWN = 2000


class DemoStage:
    """One play; each act is a method of it."""

    def __init__(self, folder: Path, *, quiet: bool) -> None:
        self.folder, self._quiet = folder, quiet
        self._number = 0

    # -- hosts -------------------------------------------------------------------------------------

    @contextmanager
    def host(
        self, *words: str, crash_at: str | None = None, log: str = "host.log",
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A host, which is ended when it is left."""
        env = {**environment(), **({"KEEP_CRASH_AT": crash_at} if crash_at else {})}
        with (self.folder / log).open("ab") as file:
            host = subprocess.Popen(
                [*KEEP, "dev", *words], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                preexec_fn=ending_with_parent(signal.SIGKILL))  # noqa: PLW1509 (one call to the system)
        try:
            yield host
        finally:
            if host.poll() is None:
                host.kill()
                host.wait()

    def wait(
        self, done: Callable[[], bool], meanwhile: Callable[[], None], host: subprocess.Popen[bytes],
        log: str = "host.log",
    ) -> None:
        """Wait for something that `host` must bring about."""
        for _ in range(int(WAIT_S / POLL_S)):
            meanwhile()
            if done():
                return
            if host.poll() is not None:
                break
            time.sleep(POLL_S)
        if not done():
            raise KeepError(f"The demo's host did not do what it should in time. It said:\n{self._end_of(log)}")

    def say_killed(self, host: subprocess.Popen[bytes], log: str = "host.log") -> None:
        """Say that a host has ended by a signal, and by no other way."""
        if host.returncode != -signal.SIGKILL:
            raise KeepError(
                f"The host should have been killed, and ended with {host.returncode}:\n{self._end_of(log)}")
        self.say(click.style(f"  process {host.pid} was killed by signal 9", fg="red"))

    def _end_of(self, log: str) -> str:
        return (self.folder / log).read_text("utf-8", "replace")[-LOG_SHOWN:]

    # -- telling -----------------------------------------------------------------------------------

    def command(self, *args: str) -> None:
        """Type a command, and show what it says."""
        self.say(click.style(f"$ keep {' '.join(args)}", bold=True))
        room = width()
        env = {**environment(), **({"COLUMNS": str(room - 3)} if room else {})}
        done = subprocess.run([*KEEP, *args], cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        for each in (done.stdout + done.stderr).splitlines():
            self.say(each)
        if done.returncode:
            raise KeepError(f"`keep {' '.join(args)}` failed with {done.returncode}.")

    def act(self, text: str) -> None:
        """Begin an act."""
        self._number += 1
        room = min(width() or 100, 100) - 3
        first, *rest = textwrap.wrap(text, room)
        click.echo(click.style(f"\n{self._number}. {first}", bold=True), err=self._quiet)
        for each in rest:
            click.echo(click.style(f"   {each}", bold=True), err=self._quiet)

    def say(self, text: str) -> None:
        """One line."""
        click.echo(f"   {text}", err=self._quiet)

    def say_in_flight(self, mutation: Mutation | None, who: str = "") -> None:
        """What was about to be sent when its host died."""
        what = f"{who}{mutation.title} ({mutation.id})" if mutation else "nothing"
        self.say(f"  in flight: {line(what)}")

    def tell(self, told: NewsLine, who: str) -> None:
        """What happened."""
        room = width()
        colour = {"applied": "green", "needs_reconcile": "yellow"}.get(told.state)
        text = f"  {clock(told.at)} {who}  {line(told.text)}"
        self.say(click.style(cut(text, room - 3 if room else None), fg=colour))


def history(look: Look, mutation: Mutation | None) -> str:
    """What became of a mutation, state by state."""
    rows = look.views.history(mutation.workflow_id, mutation.id) if mutation else []
    return " → ".join(row["target"] for row in rows if row["machine"] == "mutation")
