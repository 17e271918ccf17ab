"""A process that opens a ledger: `python child.py <path> <act>`; says on stdout what became of it."""

from __future__ import annotations

import os
import subprocess
import sys

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import LedgerUnusable

NOBODY = 65534


def main() -> None:
    path, act = sys.argv[1:3]
    if act == "as-nobody" and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        ledger = SqliteLedger(path)
    except LedgerUnusable as error:
        print(error.message, flush=True)
        sys.exit(3)
    print(f"open {ledger.host}", flush=True)
    if act == "with-child":
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
        print(sleeper.pid, flush=True)
    if act != "as-nobody":
        sys.stdin.read()  # until the parent ends, or kills


if __name__ == "__main__":
    main()
