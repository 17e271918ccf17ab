"""Where tests put their files: in memory if there is room, and where another user can enter if a server needs that.

Root starts servers as another user, to whom root's own folders are often closed: a home, `mktemp -d`, a clone made with
`umask 077`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from keepai.doors.demo_postgres import open_place

MEMORY = Path("/dev/shm")
MEMORY_FREE_BYTES_MIN = 2 << 30


def memory_folder() -> Path | None:
    """A folder in memory, if there is one that has room and lets programs run: syncing costs nothing there."""
    if not os.access(MEMORY, os.W_OK):
        return None
    there = os.statvfs(MEMORY)
    has_room = there.f_bavail * there.f_frsize >= MEMORY_FREE_BYTES_MIN
    return MEMORY if has_room and not there.f_flag & os.ST_NOEXEC else None


def open_folder(prefix: str, *, in_memory: bool = False, place: Path | None = None) -> Path:
    """A new folder that any user can enter and run programs in, at a place or, without one, in memory if there is room;
    the caller removes it."""
    memory = memory_folder() if in_memory else None
    places = [each for each in (place, memory) if each is not None]
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=open_place(places)))
    made.chmod(0o755)
    return made
