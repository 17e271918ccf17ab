"""Whether a ledger is what it should be: a list of named checks, each with its result. It only reads.

A check is a function of a reader, so that it works beside a running host and on any database. A further rule is a
further entry of `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..model.codec import Json
from ..model.records import Record
from .account import verify
from .base import Reader
from .invariants import RULES, check_invariants

#: More than this that is wrong in one way is not listed.
_LISTED_MAX = 100


@dataclass(frozen=True)
class Check(Record):
    """What one check found."""

    name: str
    sound: bool
    said: str
    facts: Mapping[str, Json] = field(default_factory=dict)


def check(read: Reader) -> list[Check]:
    """Every check, in order; what the first ones find may be the cause of what the later ones do."""
    return [Check(name, *made(read)) for name, made in CHECKS.items()]


Found = tuple[bool, str, dict[str, Json]]


def _pages(read: Reader) -> Found:
    found: list[Json] = [str(row["found"]) for row in read.all("check_pages")]
    if found == ["ok"]:
        return True, "Every index and constraint holds; of a file, every page too.", {}
    return False, f"The ledger is damaged: {found[0]}. Keep a copy of it and restore the newest backup.", {
        "found": found}


def _references(read: Reader) -> Found:
    rows = read.all("check_references", limit=_LISTED_MAX)
    found: list[Json] = [f"{row['referring']} row {row['row']}: there is no such {row['missing']}" for row in rows]
    if not found:
        return True, "Every row that refers to another finds it.", {}
    return False, f"{len(found)} rows refer to one that is not there, first: {found[0]}.", {"found": found}


def _account(read: Reader) -> Found:
    done = verify(read)
    facts: dict[str, Json] = {"entries": done.entries, "first_broken": done.first_broken}
    if done.why is not None:
        return False, f"{done.why} The {done.entries:,} entries before it were verified.", facts
    return True, f"{done.entries:,} entries were verified: each follows from the one before.", facts


def _invariants(read: Reader) -> Found:
    broken = check_invariants(read)
    found: list[Json] = [str(each) for each in broken[:_LISTED_MAX]]
    if not found:
        return True, f"{len(RULES)} rules hold, and every row came to its state by allowed moves.", {}
    return False, f"{len(broken):,} things are there that must never be, first: {found[0]}.", {"found": found}


#: Name → the check.
CHECKS: Mapping[str, Callable[[Reader], Found]] = {
    "pages": _pages, "references": _references, "account": _account, "invariants": _invariants,
}
