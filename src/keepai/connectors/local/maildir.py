"""A Maildir on disk, and the order in which Keep first saw its messages.

A cursor cannot rely on times: a file has the time at which its delivery began, two files may share a time, a clock may
be set back, and a slow delivery appears late with an old time. So the folder gets an index, `keep-index`, as IMAP
servers have one: each new message is added as a line at its end, under a lock. A cursor is the number of a line and a
hash over all lines up to it. If the index no longer matches (it was deleted, or restored from a backup), the cursor
counts as the beginning: messages are then seen again, and none is lost.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...model.errors import Rejected
from ..kit.disk import locked, write_all

START = "0"
_PLAIN = re.compile(r"[!-+\--9;-~]{1,200}")  # printable ASCII without "," ":" and spaces
_CURSOR = re.compile(r"0|([1-9][0-9]{0,11})-([0-9a-f]{16})")


@dataclass(frozen=True)
class MaildirFile:
    """One message file."""

    id: str
    path: Path
    mtime_ns: int


def message_id(name: str) -> str:
    """The id of a message file: its name without flags. An unusual name is spelled in hex."""
    unique = name.partition(":")[0]
    plain = _PLAIN.fullmatch(unique.replace(",", ""))
    return unique if plain and not unique.startswith("x-") else "x-" + os.fsencode(unique).hex()


def entries(folder: Path) -> dict[str, MaildirFile]:
    """The messages in `new` and `cur` by id. Everything else there is ignored."""
    messages: dict[str, MaildirFile] = {}
    for part in ("new", "cur"):  # in this order, because mail programs move messages from `new` to `cur`
        for entry in _files(folder / part):
            messages[entry.id] = entry
    return messages


def find(folder: Path, id: str) -> MaildirFile | None:
    """The message of that id. The id is compared, never used as a path."""
    return entries(folder).get(id)


def cursor(ids: Sequence[str]) -> str:
    """The cursor after the last of `ids`, which are the index from its first line on."""
    return f"{len(ids)}-{_chain(ids)}" if ids else START


def position(after: str | None, ids: Sequence[str]) -> int:
    """How many lines of the index a cursor has passed; 0 if it belongs to another index."""
    match = _CURSOR.fullmatch(after or START)
    if match is None:
        raise Rejected(f"after must be a lastCursor that search returned, not {str(after)[:60]!r}.")
    count = int(match[1] or 0)
    return count if count <= len(ids) and (count == 0 or _chain(ids[:count]) == match[2]) else 0


def index(folder: Path, present: dict[str, MaildirFile]) -> list[str]:
    """All ids in the order in which they were first seen. Adds the new ones of `present`."""
    with locked(folder / "keep-index") as descriptor:
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        whole = data[: data.rfind(b"\n") + 1]  # a last line that was cut off was never returned
        ids = whole.decode("utf-8", "replace").split("\n")[:-1]
        known = set(ids)
        unknown = [entry for id, entry in present.items() if id not in known]
        fresh = [entry.id for entry in sorted(unknown, key=lambda entry: (entry.mtime_ns, entry.id))]
        if fresh:
            os.ftruncate(descriptor, len(whole))
            os.lseek(descriptor, 0, os.SEEK_END)
            write_all(descriptor, "".join(f"{message_id}\n" for message_id in fresh).encode())
            os.fsync(descriptor)
        return ids + fresh


def _chain(ids: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]


def _files(folder: Path) -> Iterator[MaildirFile]:
    with os.scandir(folder) as listing:
        for item in listing:
            if item.name.startswith("."):
                continue
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # moved in the meantime; the next search finds it
            if stat.S_ISREG(status.st_mode):
                yield MaildirFile(message_id(item.name), folder / item.name, status.st_mtime_ns)
