"""The account: every move and every act in one sequence, each row chained to the one before by a hash.

The triggers of a file append to it, so that a row is in the same transaction as what it tells. Here is how a row
is hashed, and how a whole account is verified. It proves that no row was changed, taken out, put in or moved after
a later row was written. It cannot prove that the newest rows are still there, nor that nobody who has this code
wrote the whole of it anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]

from .base import Reader, Row

#: What is hashed of a row, in this order, after the hash of the row before.
COLUMNS = ("seq", "workflow_id", "machine", "subject", "source", "target", "at", "why", "actor")

#: A longer text stands in the account as its hash.
BRIEF_MAX = 1_000

_PAGE_ROWS = 5_000
_SEQ_LEAST = -(1 << 63)


def chain(*parts: object) -> str:
    """The hash of a row: over the hash of the row before, then every column, as one JSON list."""
    return hashlib.sha256("".join(_told(parts, 0)).encode()).hexdigest()


def brief(text: str | None) -> str | None:
    """A text that is short enough, or the hash of it."""
    if text is None or len(text) <= BRIEF_MAX:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _odd(value: bytes) -> dict[str, str]:
    """What Keep never writes into the account, so that it has a hash too."""
    return {"bytes": value.hex()}


#: What `json.JSONEncoder(separators=(",", ":"), default=_odd)` would make anew for every row.
_told = c_make_encoder(None, _odd, encode_basestring_ascii, None, ":", ",", False, False, True)


@dataclass(frozen=True)
class Verified:
    """How far an account holds."""

    rows: int
    chained: int  # the others are older than the chain
    first_broken: int | None = None  # the first row that does not fit
    why: str | None = None


def verify(read: Reader) -> Verified:
    """Walk the account from its first row to its last, or to the first that does not fit."""
    rows = chained = seq = 0
    previous: str | None = None
    try:
        for row in _rows(read):
            why = _wrong(row, seq, previous)
            if why:
                return Verified(rows, chained, row["seq"], why)
            rows, seq, previous = rows + 1, row["seq"], row["chain"]
            chained += previous is not None
    except UnicodeDecodeError:
        return Verified(rows, chained, seq + 1, f"What follows row {seq} is no text: Keep did not write that.")
    return Verified(rows, chained)


def _wrong(row: Row, before: int, previous: str | None) -> str | None:
    """Why a row cannot follow the row `before`, whose hash is `previous`."""
    seq = row["seq"]
    if seq != before + 1:
        return f"Row {before + 1} is missing, the next is {seq}: rows were taken out, put in or renumbered."
    if row["chain"] is None:
        return None if previous is None else (
            f"Row {seq} has no hash, though the row before it has one: it was put in, or its hash was taken away.")
    if row["chain"] != chain(previous, *(row[name] for name in COLUMNS)):
        return f"Row {seq} does not fit its hash: it, or the row before it, was changed after it was written."
    return None


def _rows(read: Reader) -> Iterator[Row]:
    first, limit = _SEQ_LEAST, _PAGE_ROWS
    while True:
        try:
            page = read.all("account_page", first=first, limit=limit)
        except UnicodeDecodeError:
            if limit == 1:
                raise
            limit = 1  # up to the very row
            continue
        if not page:
            return
        yield from page
        first = page[-1]["seq"] + 1
