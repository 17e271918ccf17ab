"""Passes on what Python's logging says while a host runs: of lines that repeat, the first, and then how many came.

What strangers do to a port can make a library log thousands of lines in a second, and fill the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WINDOW_S = 10.0
KINDS_MAX = 100  #: kinds of lines told apart at one time
LINE_MAX = 4_000  #: characters of one, with its traceback
REMINDER_MAX = 200  #: characters of it that stand beside the count
_OTHERS = "lines of other kinds"


class RepeatCounter(logging.Handler):
    """Gives `tell` each kind of line once per window, and at its end how many more there were."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell, self._loop = tell, asyncio.get_running_loop()
        self._more: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One line; what it was made with, such as an address, makes it no other kind."""
        kind = f"{record.name}: {str(record.msg).partition(chr(10))[0]}"
        if kind not in self._more and len(self._more) >= KINDS_MAX:
            kind = _OTHERS
        self._more[kind] += 1
        if self._more.total() == 1:
            self._loop.call_soon_threadsafe(self._loop.call_later, WINDOW_S, self.sum_up)
        if self._more[kind] == 1:
            self._first[kind] = kind[:REMINDER_MAX]
            try:
                said = self.format(record)[:LINE_MAX]
                self._tell(said)
            except (OSError, TypeError, ValueError, KeyError):  # not to be written, or made of what does not fit
                self.handleError(record)
                return
            if kind != _OTHERS:
                self._first[kind] = said.partition("\n")[0][:REMINDER_MAX]

    def sum_up(self) -> None:
        """Report how many more lines came of each kind, and start counting again."""
        self.acquire()
        ended, self._more = self._more, Counter()
        first, self._first = self._first, {}
        self.release()
        for kind, number in ended.items():
            if number > 1:
                self._tell(f"… and {number - 1:,} more like this in {WINDOW_S:g} s: {first[kind]}")


@contextmanager
def repeats_counted(tell: Callable[[str], None]) -> Iterator[None]:
    """While a host runs."""
    root, handler = logging.getLogger(), RepeatCounter(tell)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.sum_up()
