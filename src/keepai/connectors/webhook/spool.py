"""Deliveries that came in, each a file in one folder, on disk before the sender gets its answer.

A folder and not a ledger in a file: a delivery is not a fact about a run until a producer reads it, and what strangers
send must not wait for the ledger's writer or make its file grow. A folder and not a SQLite file: a file that is written
under another name, synced and renamed exists completely or not at all, and people can read and delete old ones with any
program.

A file name is a growing number, which is the cursor, and the digest of the delivery's id, by which a repeated delivery
is recognised. Numbers are made from the clock, so that they keep growing in a folder that was emptied.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from bisect import bisect_left
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from ...model.clock import Clock, SystemClock
from ..kit.disk import check_writable, locked, nothing_happened, sync_folder, write_new
from .base import Added, Stored

_FILE = re.compile(r"([0-9]{15})-([0-9a-f]{40})\.json")
_TICK_MS = 100


@dataclass
class Spool:
    """The deliveries of one connector."""

    folder: Path
    clock: Clock
    most: int
    _names: list[tuple[str, str]] = field(default_factory=list)  # number and digest, in order
    _seen: dict[str, str] = field(default_factory=dict)  # digest → number
    _as_of: int = -1
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raise an error of Keep if nothing can be kept here."""
        with nothing_happened("Deliveries cannot be kept"), self._locked():
            check_writable(self.folder)

    def add(self, id: str, delivery: Stored) -> Added:
        """Store a delivery. When it returns, the delivery is on disk."""
        with self._turn, self._locked():
            self._look()
            if _digest(id) in self._seen:
                sync_folder(self.folder)  # the first one may have been refused because this failed
                return "known"
            if len(self._names) >= self.most:
                return "full"
            last = int(self._names[-1][0]) if self._names else 0
            self._write(f"{max(last + 1, self.clock.now_ms()):015d}", id, delivery)
            return "new"

    def put(self, cursor: str, delivery: Stored) -> None:
        """Store a delivery from another store, under the cursor that it had there."""
        with self._turn, self._locked():
            self._look()
            if _digest(delivery["id"]) not in self._seen:
                self._write(cursor, delivery["id"], delivery)

    def _locked(self) -> AbstractContextManager[int]:
        return locked(self.folder / ".keep.lock")

    def _write(self, number: str, id: str, delivery: Stored) -> None:
        draft, final = self.folder / ".keep.tmp", self.folder / f"{number}-{_digest(id)}.json"
        draft.unlink(missing_ok=True)  # left by a process that died
        write_new(draft, json.dumps({**delivery, "cursor": number}, ensure_ascii=False).encode())
        os.rename(draft, final)
        sync_folder(self.folder)

    def after(self, cursor: str, most: int) -> tuple[list[str], bool]:
        """The cursors of the deliveries after a cursor, oldest first, and whether more follow."""
        with self._turn:
            self._look()
            later = [number for number, _ in self._names if number > cursor]
        return later[:most], len(later) > most

    def newest(self, most: int) -> list[str]:
        """The cursors of the newest deliveries, oldest first."""
        with self._turn:
            self._look()
            return [number for number, _ in self._names[-most:]]

    def cursor_of(self, id: str) -> str | None:
        """The cursor of the delivery with an id, if there is one."""
        with self._turn:
            self._look()
            return self._seen.get(_digest(id))

    def one(self, cursor: str) -> Stored | None:
        """One delivery, or None if it is gone; ValueError if its file is damaged."""
        with self._turn:
            self._look()
            place = bisect_left(self._names, (cursor, ""))
            number, digest = self._names[place] if place < len(self._names) else ("", "")
        if number != cursor:
            return None
        try:
            delivery: Stored = json.loads((self.folder / f"{number}-{digest}.json").read_bytes())
        except FileNotFoundError:  # deleted in the meantime
            return None
        return delivery

    def _look(self) -> None:
        """List the folder, if it has changed since the last time."""
        changed = os.stat(self.folder).st_mtime_ns
        if changed == self._as_of:
            return
        names = sorted(match.groups() for entry in os.scandir(self.folder) if (match := _FILE.fullmatch(entry.name)))
        self._names = [(number, digest) for number, digest in names]
        self._seen = {digest: number for number, digest in self._names}
        # A second change in the same tick of the file system's clock would look the same, so such a time is not kept.
        self._as_of = changed if SystemClock().now_ms() - changed // 1_000_000 > _TICK_MS else -1

    def close(self) -> None:
        """Nothing is held between calls."""


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()[:40]
