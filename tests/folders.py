"""Folders for servers that tests start as another user, which they do when root runs the tests.

Root's own folders are often closed to others: a home, `mktemp -d`, a clone made with `umask 077`.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

PLACES = ("/tmp", "/var/tmp", "/dev/shm")
MEMORY, ROOM = Path("/dev/shm"), 2 << 30


def open_folder(prefix: str, *, in_memory: bool = False) -> Path:
    """A new folder that any user can enter and run programs in, in memory if there is room; the caller removes it."""
    places = [Path(tempfile.gettempdir()), *map(Path, PLACES)]
    if in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        places.insert(0, MEMORY)
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
