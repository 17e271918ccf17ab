"""Stops at a named point of `model/crash_points.py`: in this process by an exception, or for good by SIGKILL."""

from __future__ import annotations

import os
import signal
import sys
from types import TracebackType

from ..model import crash_points

VARIABLE = "KEEP_CRASH_AT"  #: `name` or `name:nth`


class Crashed(BaseException):
    """The process is taken to be dead; nothing but a test may catch it."""


class CrashAt:
    """Within it, the nth arrival at the point `name` raises `Crashed`, and so does every later point.

    Later points raise too because a dead process does not go on: clean-up code must not do work that a
    real crash would have prevented. `reached` lists all points in order.
    """

    def __init__(self, name: str | None, *, nth: int = 1) -> None:
        self.name = name  # None: only list the points
        self.nth = nth
        self.crashed = False
        self.reached: list[str] = []

    def __enter__(self) -> CrashAt:
        crash_points.listen(self._at)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        crash_points.listen(None)

    def _at(self, name: str) -> None:
        if not self.crashed:
            self.reached.append(name)
            self.crashed = name == self.name and self.reached.count(name) == self.nth
        if self.crashed:
            raise Crashed(f"{self.name} ({self.nth})")


def kill_self_at(name: str, nth: int = 1) -> None:
    """From now on the nth arrival at the point `name` kills this process with SIGKILL."""
    left = nth

    def at(point: str) -> None:
        nonlocal left
        left -= point == name
        if left == 0:
            sys.stdout.flush()  # what was said before the end is evidence
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.listen(at)


def install_from_env() -> None:
    """Do what the variable KEEP_CRASH_AT says; without it, nothing."""
    wish = os.environ.get(VARIABLE)
    if not wish:
        return
    name, colon, nth = wish.rpartition(":")
    if colon and nth.isdecimal():
        kill_self_at(name, int(nth))
    else:
        kill_self_at(wish)
