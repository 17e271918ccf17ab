"""Where in the script something happened, read from QuickJS's stack traces.

QuickJS locates a call at the last thing evaluated in its arguments, which may be lines away. So `bootstrap.js`
also notes where the called member was read, and this module looks up the call there in the source.
"""

from __future__ import annotations

import re

from ...model.errors import Location

#: The file name of the script in stack traces.
SCRIPT_NAME = "script.js"

_FRAME = re.compile(rf"\b{re.escape(SCRIPT_NAME)}:(\d{{1,7}}):(\d{{1,7}})\b")
_KNOWN_MAX = 200  # places of calls in one script that are remembered
_LINES_MAX = 4  # over which the chain `ctx.gmail.search(` may be spread


class Places:
    """Finds places in one script."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._split: list[str] | None = None
        self._known: dict[str, Location | None] = {}

    def find(self, trace: str) -> Location | None:
        """The innermost place that the trace names."""
        match = _FRAME.search(trace)
        if match is None or int(match[1]) > len(self._lines):
            return None
        line, column = int(match[1]), int(match[2])
        before = self._lines[line - 1].encode("utf-8", "replace")[: column - 1]  # QuickJS counts bytes
        return Location(line, len(before.decode("utf-8", "replace")) + 1)

    def find_call(self, read: str) -> Location | None:
        """Where a member is called that was read there: its name on the first line, then the trace of the read."""
        if read in self._known:
            return self._known[read]
        member, _, trace = read.partition("\n")
        place = self.find(trace)
        found = place and self._call_of(member, place)
        if len(self._known) < _KNOWN_MAX:
            self._known[read] = found
        return found

    def _call_of(self, member: str, read: Location) -> Location | None:
        """Where `member` is called, if a chain of names from the read leads straight to its call."""
        text = "\n".join(self._lines[read.line - 1 : read.line - 1 + _LINES_MAX])
        chain = re.compile(rf"(?:\.\s*)?(?:[\w$]+\s*(?:\?\.|\.)\s*)*?({re.escape(member)})\s*(?:\?\.\s*)?\(")
        match = chain.match(text, read.column - 1)
        if match is None:
            return None
        before = text[: match.start(1)].split("\n")
        return Location(read.line + len(before) - 1, len(before[-1]) + 1)

    @property
    def _lines(self) -> list[str]:
        if self._split is None:
            self._split = self._source.split("\n")
        return self._split
