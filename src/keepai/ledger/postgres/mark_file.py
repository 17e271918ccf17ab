"""How far a ledger in PostgreSQL has come, kept outside of it: in memory, and in a file of this user on this machine.

All hosts of the user on the machine share the file. It is written after every commit that wrote to the account, and not
synced: a process that is killed loses nothing of it; a machine that fails may lose what was written last, and then less
is noticed. It is named by the place in the address. Which user connects, with which password and settings, makes no
difference.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...model.clock import iso
from ...model.errors import LedgerOlder, LedgerUnusable
from .. import mark
from ..account import Head
from ..base import Reader
from ..mark import Mark, Opening
from .connection import shown

_PUT_BACK = "Bring the newer state of the database back"

_PLACE = ("service", "host", "hostaddr", "port", "dbname")


class MarkFile:
    """What a host has acknowledged, and other hosts of its user here: it must be there on every new connection."""

    def __init__(self, url: str) -> None:
        self.path, self._name = _folder() / f"{_place(url)}.mark", shown(url)
        self._newest: Mark | None = None  # that this host told
        self._accepted = False  # a person goes on with less than the file says
        self._turn = threading.Lock()

    def left(self) -> Mark | None:
        """The newest mark; None if there is none that can be read."""
        if self._accepted:
            return self._newest
        try:
            there = mark.parse(self.path.read_bytes()[:mark.BYTES])
        except OSError:
            there = None
        return there if self._newest is None or (there and _is_further(there, self._newest)) else self._newest

    def refusal(self, read: Reader | None) -> LedgerOlder | None:
        """Why no host goes on with what is at the address (None: no ledger is there), if so."""
        return mark.refusal(self._name, self.left(), read, _PUT_BACK)

    def check(self, read: Reader | None) -> None:
        """Refuse what is at the other end of a connection, if it lacks anything that was acknowledged."""
        refused = self.refusal(read)
        if refused is not None:
            raise refused

    def begin(self, read: Reader, now: int, *, accept_older: bool) -> Opening:
        """A host begins, unless the ledger is older than it was, and no person has accepted that."""
        self._write(None)
        opening = mark.begin(self._name, self.left(), read, _PUT_BACK, now=now, accept_older=accept_older)
        self._accepted = opening.accepted
        return opening

    def tell(self, ledger: str, host: str, epoch: int, head: Head, now: int) -> None:
        """The database has acknowledged what this host wrote, up to this entry of the account."""
        told = Mark(ledger, host, epoch, head.seq, head.chain.hex(), iso(now))
        with self._turn:
            if self._newest is None or not _is_further(self._newest, told):
                self._newest = told
                self._write(told)

    def _write(self, told: Mark | None) -> None:
        """Write it, unless another host has come further. None: only see that it can be written."""
        try:
            if told is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if told is not None:
                    self._overwrite(file, told)
            finally:
                os.close(file)
        except OSError as error:
            raise LedgerUnusable(
                f"{self.path} cannot be written ({error.strerror}). It says how far {self._name} has come, so that one "
                "that is older is noticed. Make room there, or set XDG_STATE_HOME to a folder that Keep may write to."
            ) from None

    def _overwrite(self, file: int, told: Mark) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another host is writing, or was stopped while it did: the next commit is told again
        there = mark.parse(os.pread(file, mark.BYTES, 0))
        if self._accepted or there is None or not _is_further(there, told):
            os.pwrite(file, json.dumps({"mark": vars(told)}).encode().ljust(mark.BYTES), 0)
            self._accepted = False


def _is_further(one: Mark, other: Mark) -> bool:
    return one.ledger == other.ledger and one.entries > other.entries


def _place(url: str) -> str:
    """A name for the database at an address, with what libpq takes from the environment."""
    defaults = {each.keyword.decode(): (each.val or b"").decode() for each in psycopg.pq.Conninfo.get_defaults()}
    given = defaults | {name: str(value) for name, value in conninfo_to_dict(url).items() if value}
    given["dbname"] = given["dbname"] or given["user"]
    return hashlib.sha256(json.dumps([given[name] for name in _PLACE]).encode()).hexdigest()[:32]


def _folder() -> Path:
    """Where a user's programs keep what must outlive them."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        return (Path(given) if given.startswith("/") else Path.home() / ".local" / "state") / "keep"
    except RuntimeError:
        raise LedgerUnusable(
            "This user has no home folder, in which Keep writes how far a ledger has come. Set XDG_STATE_HOME to a "
            "folder that lasts."
        ) from None
