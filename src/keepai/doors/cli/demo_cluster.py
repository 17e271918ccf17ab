"""`keep demo --cluster`: two real hosts on one real PostgreSQL; one is killed in the middle of a mutation.

The workflows share a mailbox, and each has a sheet of its own. Whether each e-mail became one row is counted in the
sheets' own files. PostgreSQL, the hosts, and all that they write end with the demo.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...config import load
from ...model.clock import SystemClock
from ...model.records import Mutation
from ...reading.look import Look, open_look
from ...reading.wording import count
from ..demo_folder import MAILS, SETTINGS, WORKFLOW, deliver, furnish, rows_by_subject, script_for
from ..demo_postgres import demo_postgres, demo_programs, open_place
from .demo_stage import WAIT_S, DemoStage, history
from .narrator import Narrator
from .text import table

TEAMS = ("accounting", "archive", "orders", "support")  #: each has a workflow and a sheet of that name
HOSTS_MAX = 100  #: commands among them
#: One run at a time in each host, so that one can follow them; then one call is under way when a host is killed.
ONE_AT_A_TIME = "runs_at_once_max = 1\n"
UNTOLD = ("active", "committed", "in_flight")  #: one line for each row is enough


class ClusterPlay(DemoStage):
    """Two hosts beside each other."""

    def __init__(self, folder: Path, address: str | None, port: int | None, *, quiet: bool) -> None:
        super().__init__(folder, quiet=quiet)
        self._address, self._port = address, port
        self._letters: dict[int, str] = {}  # of the hosts, by their processes

    def play(self) -> dict[str, Any]:
        """All of it; what came out is counted in the sheets' own files."""
        begun, narrator = SystemClock().steady_ms(), Narrator()
        programs = demo_programs()
        self.act("PostgreSQL starts, and two hosts of Keep on it, each with a page.")
        with self._postgres(programs), self._host("A") as a, self._host("B", crash_at="after:call:3") as b:
            for host, letter in ((a, "A"), (b, "B")):
                self._say_page(host, letter)
            self.say("Each address works once, and ends with the demo."
                     + ("" if self._address else " If the browser does not find it, add --host 127.0.0.1."))
            settings = load(self.folder / "keep.toml")
            with open_look(settings.ledger, settings.policy) as look:
                self._share_out(look, a)
                left = self._kill_after_the_row(look, narrator, a, b)
                self._take_over(look, narrator, a, left)
                return self._verify(look, begun)

    # -- the acts ----------------------------------------------------------------------------------

    def _share_out(self, look: Look, a: subprocess.Popen[bytes]) -> None:
        self.act(f"{count(len(TEAMS), 'workflow')} are deployed. Each files every e-mail as a row in a sheet of its "
                 "own. The hosts share them.")
        for team in TEAMS:
            self.command("deploy", f"{team}.js", "--grant", "all")
        half = len(TEAMS) // 2
        self.wait(lambda: [each.workflows for each in look.read.hosts() if each.works] == [half, half],
                  lambda: None, a, log_of("A"))
        self.command("hosts")

    def _kill_after_the_row(
        self, look: Look, narrator: Narrator, a: subprocess.Popen[bytes], b: subprocess.Popen[bytes],
    ) -> Mutation:
        """Gives the mutation that B left."""
        self.act(f"{count(len(MAILS), 'e-mail')} come in, and both hosts work. B is killed (SIGKILL) right after it "
                 "wrote its third row, before it could record that.")
        narrator.catch_up(look)
        deliver(self.folder / "mail", MAILS)
        self.wait(lambda: b.poll() is not None, lambda: self._tell(look, narrator), a, log_of("A"))
        self._tell(look, narrator)
        self.say_killed(b, log_of("B"))
        left = [each for each in self._mutations(look) if self._letter(look, each.sender) == "B"][-1]
        self.say("The row is in the sheet. All that the database knows is that B was about to send it:")
        self.say_in_flight(left, f"{look.views.workflow_row(left.workflow_id)['name']}: ")
        self.say("To send it again would write it twice. To forget it might lose it.")
        return left

    def _take_over(self, look: Look, narrator: Narrator, a: subprocess.Popen[bytes], left: Mutation) -> None:
        self.act("Nobody holds B's lock any more, so A knows that B is dead, and takes over. It asks the sheet, finds "
                 "the row, and goes on without sending it again.")
        self.wait(lambda: self._all_done(look), lambda: self._tell(look, narrator), a, log_of("A"))
        self._tell(look, narrator)
        self.say(f"The row's mutation was {history(look, left)}.")
        self.say("From another machine A could not see the lock: it would have waited for B's lease to end, 15 s.")
        self.command("hosts")
        a.terminate()
        a.wait(WAIT_S)

    def _verify(self, look: Look, begun: int) -> dict[str, Any]:
        sheets = {team: rows_by_subject(self.folder / "sheets", team) for team in TEAMS}
        times = {team: [rows[subject] for _, subject in MAILS] for team, rows in sheets.items()}
        total = sum(rows.total() for rows in sheets.values())
        ok = total == len(MAILS) * len(TEAMS) and all(each == [1] * len(MAILS) for each in times.values())
        seconds = (SystemClock().steady_ms() - begun) / 1000
        self.act(f"Counted in the sheets' own files: {count(total, 'row')} for {count(len(MAILS), 'e-mail')} in "
                 f"{count(len(TEAMS), 'sheet')}, "
                 + (f"each once. It took {seconds:.1f} s." if ok else f"but not each once: {times}."))
        senders: dict[str, Counter[str]] = {team: Counter() for team in TEAMS}
        for each in self._mutations(look):
            if each.status.value == "applied":
                senders[look.views.workflow_row(each.workflow_id)["name"]][self._letter(look, each.sender)] += 1
        rows = [(team, str(len(MAILS)), str(sheets[team].total()), *(str(senders[team][each]) for each in "AB"))
                for team in TEAMS]
        for text in table(("SHEET", "E-MAILS", "ROWS", "WRITTEN BY A", "BY B"), rows, flexible=0):
            self.say(text)
        return {"ok": ok, "emails": len(MAILS), "rows": total, "times": times, "kills": 1,
                "seconds": round(seconds, 1)}

    # -- PostgreSQL and the hosts ------------------------------------------------------------------

    @contextmanager
    def _postgres(self, programs: Path) -> Iterator[None]:
        """A database, and settings by which it is found."""
        # What else hosts leave is in a folder with a short path: their sockets need that.
        with demo_postgres(programs) as (address, password), TemporaryDirectory(
            prefix="keep-demo-", dir=open_place()) as left:
            for name in [each for each in os.environ if each.startswith("PG") or each == "XDG_RUNTIME_DIR"]:
                del os.environ[name]  # the user's own, which would lead somewhere else
            os.environ.update(PGPASSWORD=password, XDG_STATE_HOME=left, TMPDIR=left)
            furnish(self.folder, (), f'[keep]\nledger = "{address}"\n\n{SETTINGS}{ONE_AT_A_TIME}', {
                f"{team}.js": script_for(team).replace(WORKFLOW, team).replace('"5m"', '"1s"') for team in TEAMS})
            self.say(f"The database: {address}")
            yield

    @contextmanager
    def _host(self, letter: str, crash_at: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        words = [*(["--host", self._address] if self._address else []),
                 *([] if self._port is None else ["--port", str(self._port and self._port + len(self._letters))])]
        with self.host(*words, crash_at=crash_at, log=log_of(letter)) as host:
            self._letters[host.pid] = letter
            yield host

    def _say_page(self, host: subprocess.Popen[bytes], letter: str) -> None:
        """Say where a host's page is, as soon as the host has said it."""
        def page() -> re.Match[str] | None:
            return re.search(r"^Open (\S+)", (self.folder / log_of(letter)).read_text("utf-8"), re.MULTILINE)

        self.wait(lambda: page() is not None, lambda: None, host, log_of(letter))
        found = page()
        self.say(f"Host {letter} is process {host.pid}, its page {found[1] if found else 'missing'}")

    # -- looking -----------------------------------------------------------------------------------

    def _tell(self, look: Look, narrator: Narrator) -> None:
        for told in narrator.news(look):
            if told.state not in UNTOLD:
                letter = self._letter(look, look.views.run(told.run_id).host)
                self.tell(told, f"{letter} {told.workflow:<{max(map(len, TEAMS))}}")

    def _letter(self, look: Look, host: str) -> str:
        """A or B: by the process, because a host that loses its place has another id in the next."""
        return next((self._letters.get(row["pid"], "?") for row in look.read.all("look_hosts", limit=HOSTS_MAX)
                     if row["id"] == host), "?")

    def _mutations(self, look: Look) -> list[Mutation]:
        """All of them, oldest first."""
        found = [each for team in TEAMS for each in look.views.mutations(team)]
        return sorted(found, key=lambda each: each.id)

    def _all_done(self, look: Look) -> bool:
        done = ["done"] * len(MAILS)
        return all([each.status for each in look.views.inputs(team)] == done for team in TEAMS)


def log_of(letter: str) -> str:
    """The file that has what a host says."""
    return f"host-{letter}.log"
