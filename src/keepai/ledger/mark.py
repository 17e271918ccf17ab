"""How far a ledger had come when it was last on disk, kept outside of it: so one that is older than it was is noticed.

A ledger that was restored from a backup, that lost its newest commits, or that another one stands in for, does not know
what was sent: it would send it again. So a host that opens a ledger looks in it for what the mark names. The entry of
the account and its hash stand for all entries before it. The host's row stands for its number, which no other host may
get.

Each store keeps its mark itself: beside a file (sqlite/lock.py), or in a folder of the user (postgres/mark_file.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..model.clock import parse_iso
from ..model.errors import LedgerOlder
from . import moving
from .base import Behind, Reader

#: A mark is written in so many bytes each time, over the one before: there is nothing to cut, and it needs no new room.
BYTES = 1024


@dataclass(frozen=True)
class Mark:
    """How far a ledger had come at some moment."""

    ledger: str  # the id of its first host
    host: str  # that wrote this
    epoch: int  # its number
    entries: int  # of the account
    chain: str  # the hash of the newest of them
    at: str


def parse(text: bytes) -> Mark | None:
    """The mark in what `BYTES` of a file say; None if they say nothing that can be read."""
    try:
        mark: Any = json.loads(text)["mark"]
        return Mark(str(mark["ledger"]), str(mark["host"]), int(mark["epoch"]), int(mark["entries"]),
                    str(mark["chain"]), str(mark["at"]))
    except (ValueError, KeyError, TypeError):
        return None


def refusal(name: str, left: Mark | None, read: Reader | None, put_back: str) -> LedgerOlder | None:
    """Why no host goes on with what is at this place (None: no ledger is there), after one `left` this mark.

    `put_back` says how the newer one is brought back. Read the mark first: a host at work writes it after what it is
    about."""
    if left is None:
        return None
    reached = read.one("ledger_reached") if read else None
    if read is None or reached is None or reached["ledger"] != left.ledger:
        if not left.entries:
            return None
        what = (f"There is no ledger at {name} any more, and a new one is refused" if read is None else
                f"{name} is refused: it is not the ledger that was here")
        return LedgerOlder(
            f"{what}: on {left.at} that one had come to entry {left.entries:,}. Nothing that it sent is on record now, "
            f"and it would be sent again. {put_back}; or look at the outside systems for what was sent, and say "
            "`keep db accept-older` to go on without it."
        )
    found = read.one("mark_found", epoch=left.epoch, entries=left.entries)
    assert found is not None
    has_entry = (found["chain"] or b"").hex() == left.chain
    if has_entry and found["host"] == left.host:
        return None
    ends = f"It ends with entry {reached['entries']:,} of its account, and on {left.at} it had come to {left.entries:,}"
    if reached["entries"] >= left.entries:
        what = f"the host {left.host}" if has_entry else f"what was entry {left.entries:,} then"
        ends += f"; {what} is not in it"
    return LedgerOlder(
        f"{name} is refused: it is older than it was. {ends}. What was sent since is not on record in it and would be "
        f"sent again. {put_back}; or look at the outside systems for what was sent, and say `keep db accept-older`."
    )


@dataclass(frozen=True)
class Opening:
    """With what a host begins."""

    accepted: bool  # a person accepted a ledger that is older than it was, or another, or that was moved
    behind: Behind | None  # if it is older


def begin(
    name: str, left: Mark | None, read: Reader, put_back: str, *, now: int, accept_older: bool,
) -> Opening:
    """Refuse a ledger that is older than it was, or another, or that was moved, unless a person accepts it."""
    moved, reached = read.one("moved_mark"), read.one("ledger_reached")
    assert reached is not None
    refused = refusal(name, left, read, put_back) or moving.refusal(name, moved)
    if refused is None:
        return Opening(accepted=False, behind=None)
    if not accept_older:
        raise refused
    if moved is None and (left is None or left.ledger != reached["ledger"]):
        return Opening(accepted=True, behind=None)  # another ledger makes other keys: nothing can be looked up by them
    until = now if moved is not None or left is None else parse_iso(left.at)
    # Others may have gone on with it: what they wrote came after what was lost.
    newest = read.one("account_last_until", until=until)
    assert newest is not None
    return Opening(accepted=True, behind=Behind(newest["at"], until) if newest["at"] else None)
