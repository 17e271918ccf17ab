"""Where a search at Google continues: a time, and what was seen since shortly before it.

Gmail lists the newest messages first, and a message may appear in its index after later ones. So the last minutes are
requested again, and what was seen in them is left out. A cursor never skips what was not seen.
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
    """Everything before `from_ms` was seen; after it, only what is in `seen` (id → when it came)."""

    from_ms: int
    seen: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, cursor: str) -> GoogleCursor:
        """A cursor from the text of a `lastCursor`."""
        try:
            fields = json.loads(cursor)
            return cls(int(fields["from"]), {str(id): int(ms) for id, ms in fields["seen"].items()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Rejected("after must be a lastCursor of an earlier search.") from None

    @property
    def cursor(self) -> str:
        """The cursor as text, for scripts."""
        return json.dumps({"from": self.from_ms, "seen": dict(self.seen)}, separators=(",", ":"))

    def has(self, id: str, came_ms: int) -> bool:
        """Whether a message was seen."""
        return id in self.seen or came_ms < self.from_ms

    def with_(self, fresh: Mapping[str, int]) -> GoogleCursor:
        """The cursor after these as well, which were the oldest unseen ones."""
        seen = {**self.seen, **fresh}
        newest = max(seen.values(), default=self.from_ms)
        start = max(self.from_ms, newest - AGAIN_MS)
        kept = sorted((ms, id) for id, ms in seen.items() if ms >= start)
        if len(kept) > SEEN_MAX:
            kept = kept[-SEEN_MAX:]
            start = max(start, kept[0][0])
        return GoogleCursor(start, {id: ms for ms, id in kept})
