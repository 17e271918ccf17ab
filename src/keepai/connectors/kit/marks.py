"""Marks that a connector writes on its objects, so that it can find them again by the idempotency key.

The mark of a row is `keep:<row id>`; after updates it is `keep:<row id>:<update>:<update>…`, oldest update first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

UPDATES_MAX = 16  #: how many updates a mark remembers
ROW_MARK = re.compile(r"keep:(p?[0-9a-f]{20})((?::[0-9a-f]{20})*)")


def key_digest(key: str) -> str:
    """The digest of an idempotency key that a mark holds."""
    return hashlib.sha256(key.encode()).hexdigest()[:20]


def row_mark(row_id: str, updates: Sequence[str] = ()) -> str:
    """The mark of a row."""
    return ":".join(["keep", row_id, *updates])


def updates_in(mark: re.Match[str]) -> tuple[str, ...]:
    """The updates that a row's mark remembers, oldest first."""
    return tuple(mark[2].split(":")[1:])
