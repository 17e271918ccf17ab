"""Folders for servers that tests start as another user, which they do when root runs the tests.

Root's own folders are often closed to others: a home, `mktemp -d`, a clone made with `umask 077`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

PLACES = ("/tmp", "/var/tmp", "/dev/shm")


def open_folder(prefix: str) -> Path:
    """A new folder that any user can enter and run programs in; the caller removes it."""
    places = [Path(tempfile.gettempdir()), *map(Path, PLACES)]
    place = next((each for each in places if _is_open(each)), None)
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


def _is_open(place: Path) -> bool:
    real = place.resolve()
    if not real.is_dir() or os.statvfs(real).f_flag & os.ST_NOEXEC:
        return False
    return all(each.stat().st_mode & stat.S_IXOTH for each in [real, *real.parents])
