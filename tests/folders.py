"""Where tests put their files: in memory if there is room, and where another user can enter if a server needs that.

Root starts servers as another user, to whom root's own folders are often closed: a home, `mktemp -d`, a clone made with
`umask 077`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

PLACES = ("/tmp", "/var/tmp", "/dev/shm")
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
    places = [place] if place else [Path(tempfile.gettempdir()), *map(Path, PLACES)]
    if in_memory and (memory := memory_folder()) is not None:
        places.insert(0, memory)
    place = next((each for each in places if is_open(each)), None)
    assert place is not None, f"none of {', '.join(map(str, places))} can be entered by another user"
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    made.chmod(0o755)
    return made


def open_to_all(folder: Path) -> None:
    """Let every user read what is in a folder, and run what its owner can run."""
    for each in [folder, *folder.rglob("*")]:
        if not each.is_symlink():
            runs = each.is_dir() or each.stat().st_mode & stat.S_IXUSR
            each.chmod(0o755 if runs else 0o644)


def is_open(place: Path) -> bool:
    """Whether any user can enter a folder and run programs in it."""
    real = place.resolve()
    if not real.is_dir() or os.statvfs(real).f_flag & os.ST_NOEXEC:
        return False
    return all(each.stat().st_mode & stat.S_IXOTH for each in [real, *real.parents])
