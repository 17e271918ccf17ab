"""Who is at the other end of a host's socket: the owner of its folder and of itself, and the user of the process.

Another user who can put a socket in the host's place would be sent scripts and decisions. So a command looks at the
place first, then at the process, and sends nothing before.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
import struct
from pathlib import Path

_ELSEWHERE = "Use the account that runs the host, or move the ledger into a folder of your own."


def misplaced(path: Path, *, shared: bool = False) -> str | None:
    """Why a socket at `path` is not trusted, or one that is not there yet would not be; None if it is.

    A `shared` socket is for agents, which may run as other users: it must be of the user whose folder it lies in."""
    try:
        owner = path.parent.lstat().st_uid if shared else os.geteuid()
    except OSError:
        return None  # then there is no socket in it
    return _misplaced_folder(path.parent, owner) or _misplaced_socket(path, owner, shared)


def _misplaced_folder(folder: Path, owner: int) -> str | None:
    try:
        found = folder.lstat()
    except OSError:
        return None  # then there is no socket in it
    if found.st_uid not in (owner, 0):
        return f"The folder {folder} of the host's socket belongs to {user(found.st_uid)}, not to you. {_ELSEWHERE}"
    if found.st_mode & stat.S_ISVTX or not _others_write(found, owner):  # in a sticky folder nobody can replace it
        return None
    return (f"Other users may write to {folder}, the folder of the host's socket: they could put another one there. "
            f"Say: chmod go-w {folder}")


def _misplaced_socket(path: Path, owner: int, shared: bool) -> str | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    if found.st_uid not in (owner, os.geteuid(), 0):
        return f"The socket {path} belongs to {user(found.st_uid)}, not to {_whom(owner)}. {_ELSEWHERE}"
    if not shared and stat.S_ISSOCK(found.st_mode) and found.st_mode & 0o022:
        return f"Other users may use the socket {path}. Say: chmod 600 {path}"
    return None


def _whom(owner: int) -> str:
    return "you" if owner == os.geteuid() else user(owner)


def _others_write(found: os.stat_result, owner: int) -> bool:
    """Whether other users may write; many systems give each user a group of the same name, with nobody else in it."""
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    try:
        group, me = grp.getgrgid(found.st_gid), pwd.getpwuid(owner).pw_name
    except KeyError:
        return True
    return group.gr_name != me or any(member != me for member in group.gr_mem)


def peer_uid(connected: socket.socket) -> int | None:
    """The user of the process at the other end; None where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", told)[1])


def user(uid: int) -> str:
    """For a sentence."""
    return f"the user {user_name(uid)}"


def user_name(uid: int) -> str:
    """The name of a user of this machine, or their number if they have none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
