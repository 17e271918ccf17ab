"""The account: every move and every act in one sequence; each commit seals its rows with a hash.

The triggers of a file append to it, so that a row is in the same transaction as what it tells; whoever commits puts
a seal behind what the transaction appended, over these rows and the seal before. Here is how they are hashed, and how a
whole account is verified. It proves that no row was changed, taken out, put in or moved after it was sealed. It cannot
prove that the newest seals are still there with their rows, nor that nobody who has this code wrote the whole of it
anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]

from ..model.light import light
from .base import Reader, Row, Tx

#: What is hashed of a row, in this order.
COLUMNS = ("seq", "workflow_id", "machine", "subject", "source", "target", "at", "why", "actor")

#: A longer text stands in the account as its hash.
BRIEF_MAX = 1_000

_PAGE_ROWS = 5_000
_SEQ_LEAST = -(1 << 63)
_NONE = ""  # the hash before the first seal


def chain(*parts: object) -> str:
    """The hash of a seal: the hash before it, then every row since, as one JSON list."""
    return hashlib.sha256("".join(_told(parts, 0)).encode()).hexdigest()


@light
@dataclass(frozen=True)
class Seal:
    """Vouches for every row up to `last`."""

    last: int
    chain: str


def newest(read: Reader) -> Seal:
    """The seal behind all that is committed."""
    row = read.one("seal_last")
    return Seal(row["last"], row["chain"]) if row else Seal(0, _NONE)


def seal(tx: Tx, before: Seal) -> Seal:
    """Put the seal behind what this transaction has appended, and give the newest; `before` was it until now."""
    rows = tx.values("seal_rows", last=before.last)
    if not rows:
        return before
    made = Seal(rows[-1][0], chain(before.chain, *rows))
    tx.run("seal_insert", last=made.last, chain=made.chain)
    return made


def brief(text: str | None) -> str | None:
    """A text that is short enough, or the hash of it."""
    if text is None or len(text) <= BRIEF_MAX:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _odd(value: bytes) -> dict[str, str]:
    """What Keep never writes into the account, so that it has a hash too."""
    return {"bytes": value.hex()}


#: What `json.JSONEncoder(separators=(",", ":"), default=_odd)` would make anew for every text.
_told = c_make_encoder(None, _odd, encode_basestring_ascii, None, ":", ",", False, False, True)


@dataclass(frozen=True)
class Verified:
    """How far an account holds."""

    rows: int
    first_broken: int | None = None  # the first row that nothing vouches for
    why: str | None = None


def verify(read: Reader) -> Verified:
    """Walk the account from its first row to its last, or to the first that does not fit."""
    walk = _Walk(read)
    try:
        for row in _pages(read, "account_page", "seq", _SEQ_LEAST):
            why = walk.wrong(row)
            if why:
                return walk.broken(row["seq"], why)
    except UnicodeDecodeError:
        return walk.broken(walk.seq + 1, f"What follows row {walk.seq} is no text: Keep did not write that.")
    why = walk.unfinished()
    return walk.broken(walk.seq + 1, why) if why else Verified(walk.rows)


class _Walk:
    """Goes from row to row, and from seal to seal."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._next = self._ask(_SEQ_LEAST)
        self._before = _NONE  # the hash of the last seal
        self._open: list[Sequence[object]] = []  # rows that no seal was met for yet
        self.rows = self.seq = 0

    def wrong(self, row: Row) -> str | None:
        """Why a row cannot follow those before it, if so."""
        seq = row["seq"]
        if seq != self.seq + 1:
            return f"Row {self.seq + 1} is missing, the next is {seq}: rows were taken out, put in or renumbered."
        self._open.append(tuple(row[name] for name in COLUMNS))
        self.seq = seq
        self._next = self._next or self._ask(seq)  # a host at work may have put further ones there
        if self._next is not None and self._next["last"] == seq:
            return self._close(self._next)
        return None

    def _ask(self, first: int) -> Row | None:
        self._seals = _pages(self._read, "seal_page", "last", first)
        return next(self._seals, None)

    def _close(self, seal: Row) -> str | None:
        """A seal stands behind the last row: whether it fits what it closes."""
        if seal["chain"] != chain(self._before, *self._open):
            return (
                f"Rows {self.rows + 1} to {self.seq} do not fit their seal: one of them, or the seal before, was "
                "changed after they were written, or rows were taken out or put in."
            )
        self.rows += len(self._open)
        self._open.clear()
        self._before, self._next = seal["chain"], next(self._seals, None)
        return None

    def unfinished(self) -> str | None:
        """Why the account cannot end here, if so."""
        if self._next is not None:
            return f"There is a seal behind row {self._next['last']}, and no such row: rows were taken out."
        if self._open:
            return f"Rows {self.rows + 1} to {self.seq} have no seal: they were put in, or their seal was taken away."
        return None

    def broken(self, seq: int, why: str) -> Verified:
        """What is known when it does not hold from there on, or from the first row that no seal vouches for."""
        return Verified(self.rows, min(seq, self.rows + 1), why)


def _pages(read: Reader, query: str, key: str, first: int) -> Iterator[Row]:
    limit = _PAGE_ROWS
    while True:
        try:
            page = read.all(query, first=first, limit=limit)
        except UnicodeDecodeError:
            if limit == 1:
                raise
            limit = 1  # up to the very row
            continue
        if not page:
            return
        yield from page
        first = page[-1][key] + 1
