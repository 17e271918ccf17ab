"""Where a search in Gmail has come to: a moment, and what was seen since a little before it.

Gmail lists what it has newest first, and a message may show up in its index after others that came later. So the last
minutes are asked for again, and what was seen of them is left out. A cursor never steps over what was not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.errors import Rejected

AGAIN_MS = 10 * 60_000
SEEN_MAX = 200


@dataclass(frozen=True)
class GoogleCursor:
    """All before `from_ms` was passed; of the rest, what is in `seen` (id → when it came)."""

    from_ms: int
    seen: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, cursor: str) -> GoogleCursor:
        """A cursor, as `lastCursor` gave it."""
        try:
            fields = json.loads(cursor)
            return cls(int(fields["from"]), {str(id): int(ms) for id, ms in fields["seen"].items()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Rejected("after must be a lastCursor of an earlier search.") from None

    @property
    def cursor(self) -> str:
        """The text for scripts to keep."""
        return json.dumps({"from": self.from_ms, "seen": dict(self.seen)}, separators=(",", ":"))

    def has(self, id: str, came_ms: int) -> bool:
        """Whether a message was passed."""
        return id in self.seen or came_ms < self.from_ms

    def with_(self, fresh: Mapping[str, int]) -> GoogleCursor:
        """After these, too; they were the oldest that were left."""
        every = {**self.seen, **fresh}
        newest = max(every.values(), default=self.from_ms)
        start = max(self.from_ms, newest - AGAIN_MS)
        kept = sorted((ms, id) for id, ms in every.items() if ms >= start)
        if len(kept) > SEEN_MAX:
            kept = kept[-SEEN_MAX:]
            start = max(start, kept[0][0])
        return GoogleCursor(start, {id: ms for ms, id in kept})
