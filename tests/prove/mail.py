"""Kills hosts between sending a mail and hearing the answer, and counts on the mail server's side what was sent.

`python -m tests.prove.mail --kills 200` runs the reconciliation example of the seeds (13.6.3) against dovecot and an
SMTP server. Every life of the host ends by SIGKILL: while the server holds back its answer (it took the message, takes
it later, or never does), or at a named step of the sending. Then one life is left alone until all is answered. Each
mail must have been answered once. With `--sent-copy keep` the server keeps no copies: a person is asked more often.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from typing import Any

from keepai.connectors.mail.delivery import message_id
from tests.connectors.mail_servers import Dovecot, Orders, Post, running, settings

ROOT = Path(__file__).parents[2]
LIFE_S_MAX = 90.0
#: How a life ends → how often.
ENDS = {"taken": 6, "late": 2, "lost": 1, "mail.offered": 1, "mail.recorded": 1, "mail.accepted": 1, "mail.filed": 1}


@dataclass
class Outcome:
    """What was counted."""

    kills: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)  # of a person
    mails: int = 0
    effects: int = 0
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    false_failed: list[str] = field(default_factory=list)
    false_applied: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        return [*self.doubled, *self.lost, *self.false_failed, *self.false_applied]

    def __str__(self) -> str:
        return (
            f"{self.kills.total()} kills {dict(self.kills)}; {self.mails} mails, {self.effects} answers taken; "
            f"duplicates {len(self.doubled)}, lost {len(self.lost)}, false failed {len(self.false_failed)}, "
            f"false applied {len(self.false_applied)}; asked a person {self.answers.total()} times {dict(self.answers)}"
        )


class Killing:
    """One ledger, one mailbox, and hosts that die."""

    def __init__(self, imap: Dovecot, post: Post, folder: Path, *, sent_copy: str, seed: int) -> None:
        imap.fresh()
        post.reset()
        self.imap, self.post, self.folder, self.sent_copy = imap, post, folder, sent_copy
        self.chance = random.Random(seed)
        self.outcome = Outcome()

    def run(self, kills: int) -> Outcome:
        """So many kills, then peace."""
        while self.outcome.kills.total() < kills:
            self._more_mail()
            self._one(self.chance.choices(list(ENDS), list(ENDS.values()))[0])
        self._orders("")
        host = self._host("")
        code = host.wait(LIFE_S_MAX)
        assert code == 0, (self.folder / "host.log").read_text()[-3000:]
        self._judge()
        return self.outcome

    def _more_mail(self) -> None:
        """One more than what is under way, so that every life has something to send."""
        self.outcome.mails += 1
        number = self.outcome.mails
        mail = f"From: ann@example.com\r\nMessage-ID: <{number}@x>\r\nSubject: mail {number}\r\n\r\nHi\r\n"
        self.imap.put(mail.encode())

    def _one(self, how: str) -> None:
        self._orders(how)
        host = self._host(how if how.startswith("mail.") else "")
        event = {"taken": self.post.accepted, "late": self.post.offered, "lost": self.post.offered}.get(how)
        until = time.monotonic() + LIFE_S_MAX
        while host.poll() is None and not (event is not None and event.is_set()):
            assert time.monotonic() < until, "the host sends nothing"
            time.sleep(0.002)
        time.sleep(self.chance.choice([0, 0, 0.003, 0.02]))
        host.kill()
        if host.wait() == -9:
            self.outcome.kills[how] += 1
        elif host.returncode != 0:
            raise AssertionError((self.folder / "host.log").read_text()[-3000:])
        if how == "late":
            self.post.land()
        self.post.forget_late()
        self._tell()

    def _orders(self, how: str) -> None:
        self.post.offered.clear()
        self.post.accepted.clear()
        self.post.orders = Orders(
            copies=self.sent_copy == "server", late=how in ("late", "lost"), answer_s=60.0 if how == "taken" else 0.0,
        )
        self._tell()

    def _tell(self) -> None:
        """What the person sees who looks at the server."""
        fresh = self.folder / "taken.new"
        fresh.write_text(json.dumps([taken.message_id for taken in self.post.taken]))
        fresh.rename(self.folder / "taken.json")

    def _host(self, point: str) -> subprocess.Popen[bytes]:
        order = {
            "folder": str(self.folder), "password": self.imap.password, "mails": self.outcome.mails,
            "settings": settings(self.imap, self.post, sent_copy=self.sent_copy),
        }
        with (self.folder / "host.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.prove.mail_host", json.dumps(order)], cwd=ROOT, stdout=log, stderr=log,
                env={**os.environ, "KEEP_CRASH_AT": point},
            )

    def _judge(self) -> None:
        result, taken = self.outcome, self.post.taken
        times = Counter(str(message_from_bytes(each.data)["Subject"]) for each in taken)
        wanted = [f"mail {n}" for n in range(1, result.mails + 1)]
        result.effects = len(taken)
        result.doubled = [f"{each} was answered {times[each]} times" for each in wanted if times[each] > 1]
        result.lost = [f"{each} was never answered" for each in wanted if times[each] == 0]
        rows: list[list[Any]] = json.loads((self.folder / "ledger.json").read_text())
        applied = Counter(message_id(key, self.imap.user) for key, status in rows if status == "applied")
        by_id = Counter(each.message_id for each in taken)
        result.false_failed = [f"{id}: taken more often than it says" for id in by_id if by_id[id] > applied[id]]
        result.false_applied = [f"{id}: applied and never taken" for id in applied if not by_id[id]]
        said = self.folder / "answers"
        result.answers = Counter(said.read_text().split()) if said.exists() else Counter()


def run(kills: int, *, sent_copy: str = "server", seed: int = 1) -> Outcome:
    """Kill so many hosts, with servers of its own."""
    with running() as (imap, post), tempfile.TemporaryDirectory(prefix="keep-mail-") as folder:
        return Killing(imap, post, Path(folder), sent_copy=sent_copy, seed=seed).run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prove.mail", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--sent-copy", choices=("server", "keep"), default="server")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    outcome = run(given.kills, sent_copy=given.sent_copy, seed=given.seed)
    print(outcome)
    for each in outcome.broken:
        print(f"  {each}")
    return int(bool(outcome.broken))


if __name__ == "__main__":
    sys.exit(main())
