"""The account: every commit appends one entry that tells all that it moved, decided and was asked to do.

An entry is a JSON list: the host that wrote it, then a list for each workflow: its id, then a list for each subject:
what it is, and its moves. A move is `[machine, source, target, why, actor]`, without the last ones that are null: a
move of a state machine, a decision that moves none (`reason`, `host`, `reconcile`, `sign`, `revision`, `grant`), or the
act of a person (`act`, whose actor is that person; of everything else it is the host). Verbs tell their moves with
`Tx.tell`, the writer packs them here, and everybody who reads them unpacks them here.

Each entry has a hash over itself and the hash before it. `verify` proves that no entry was changed, taken out, put in
or moved. It cannot prove that the newest entries are still there, nor that nobody who has this code wrote all of it
anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from json.encoder import encode_basestring as quote
from typing import Any

import orjson

from ..model.fast_record import fast_record
from .base import Reader, Row, Tx

#: A longer value that a row keeps stands in the account as its hash.
BRIEF_MAX = 100

_PAGE_ENTRIES = 1_000
_SEQ_LEAST = -(1 << 63)


@fast_record
@dataclass(frozen=True)
class Head:
    """The newest entry of an account."""

    seq: int
    chain: bytes


class Draft:
    """What one transaction has told so far, before it is an entry."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, str, str]] = []  # the workflow, the subject, and the move as JSON

    def tell(
        self, workflow_id: str, machine: str, subject: str, source: str | None, target: str, why: str | None = None,
        *, facts: str | None = None, actor: str | None = None,
    ) -> None:
        """Tell a move: why in words, or as the text of a JSON value (`facts`)."""
        told = f'["{machine}",null,"{target}"' if source is None else f'["{machine}","{source}","{target}"'
        if facts is not None:
            told += "," + facts
        elif why is not None:
            told += "," + quote(why)
        elif actor is not None:
            told += ",null"
        self.moves.append((workflow_id, subject, told + (f",{quote(actor)}]" if actor is not None else "]")))


def as_facts(members: Mapping[str, object]) -> str:
    """What a move is about, as the text of a JSON object: names, ids and other values that were checked before."""
    return orjson.dumps(members).decode()


def brief(facts: str) -> str:
    """The text of a JSON value if it is short, or its hash (as such a text too): a row has the value itself."""
    return facts if len(facts) <= BRIEF_MAX else f'"sha256:{hashlib.sha256(facts.encode()).hexdigest()}"'


def head(read: Reader) -> Head:
    """The newest entry of all that is committed."""
    row = read.one("account_last")
    return Head(row["seq"], row["chain"]) if row else Head(0, b"")


def append(tx: Tx, told: Draft, before: Head) -> Head:
    """Write the entry that tells what this transaction did, behind `before`; gives the newest entry."""
    if not told.moves:
        return before
    text, seq = entry_of(tx.host, told), before.seq + 1
    made = Head(seq, chain(before.chain, seq, tx.now, text))
    tx.run("account_insert", seq=seq, at=tx.now, told=text, chain=made.chain)
    tx.many("account_subject_insert", [{"subject_id": subject, "entry": seq} for subject in subjects_of(told)])
    return made


def entry_of(host: str, told: Draft) -> str:
    """The text of an entry."""
    parts, before_workflow, before_subject = [f'["{host}"'], None, None
    for workflow_id, subject, move in told.moves:
        if workflow_id != before_workflow:
            parts.append(f'{"]]" if before_workflow is not None else ""},["{workflow_id}",[{quote(subject)}')
        elif subject != before_subject:
            parts.append(f"],[{quote(subject)}")
        parts.append(f",{move}")
        before_workflow, before_subject = workflow_id, subject
    return "".join(parts) + "]]]"


def subjects_of(told: Draft) -> list[str]:
    """What an entry tells of."""
    return list(dict.fromkeys(subject for _, subject, _ in told.moves))


def chain(before: bytes, seq: int, at: int, told: str) -> bytes:
    """The hash of an entry."""
    return hashlib.sha256(b"%b %d %d %b" % (before, seq, at, told.encode())).digest()


# Reading


def moves(entry: Row) -> Iterator[Row]:
    """What an entry tells, in its order."""
    told: list[Any] = orjson.loads(entry["told"])
    host = told[0]
    for workflow_id, *subjects in told[1:]:
        for subject, *of_subject in subjects:
            for machine, source, target, *more in of_subject:
                why, actor = (*more, None, None)[:2]
                yield {
                    "seq": entry["seq"], "at": entry["at"], "workflow_id": workflow_id, "machine": machine,
                    "subject": subject, "source": source, "target": target,
                    "why": why if why is None or isinstance(why, str) else _text(why), "actor": actor or host,
                    "host": host,
                }


def _text(value: object) -> str:
    return orjson.dumps(value).decode()


def walk(read: Reader, first: int = 1) -> Iterator[Row]:
    """Every move from an entry on, in the order of the account."""
    for entry in _entries(read, first):
        yield from moves(entry)


def of_subject(read: Reader, workflow_id: str, subject: str) -> list[Row]:
    """Everything that the account tells of one subject in its order, but the acts of people."""
    entries = read.all("account_of_subject", subject_id=subject)
    return [move for entry in entries for move in moves(entry)
            if (move["workflow_id"], move["subject"]) == (workflow_id, subject) and move["machine"] != "act"]


def last_of(
    read: Reader, workflow_id: str, subject: str, *, but: Collection[str] = (), only: str | None = None,
) -> Row | None:
    """The newest that it tells of one subject, acts too: of one machine (`only`), or but for some."""
    with closing(read.iterate("account_of_subject_newest", subject_id=subject)) as entries:
        for entry in entries:
            for move in reversed(list(moves(entry))):
                if (move["workflow_id"], move["subject"]) == (workflow_id, subject) and (
                        move["machine"] not in but and only in (None, move["machine"])):
                    return move
    return None


# Verifying


@dataclass(frozen=True)
class Verified:
    """How far an account holds."""

    entries: int
    first_broken: int | None = None  # the first entry that nothing vouches for
    why: str | None = None


def verify(read: Reader) -> Verified:
    """Walk the account from its first entry to its last, or to the first that does not fit."""
    before, seq, named = b"", 0, 0
    try:
        for entry in _entries(read, _SEQ_LEAST):
            if entry["seq"] != seq + 1:
                return Verified(seq, min(entry["seq"], seq + 1), (
                    f"Entry {seq + 1} is missing, the next is {entry['seq']}: entries were taken out, put in or "
                    "renumbered."
                ))
            told = entry["told"]
            if not isinstance(told, str) or entry["chain"] != chain(before, entry["seq"], entry["at"], told):
                return Verified(seq, seq + 1, (
                    f"Entry {seq + 1} does not fit its hash: it, or the one before, was changed after it was written."
                ))
            try:
                subjects = {move["subject"] for move in moves(entry)}
            except (ValueError, TypeError, IndexError):
                subjects = set()
            if not subjects:
                return Verified(seq, seq + 1, f"Entry {seq + 1} is no entry: Keep did not write that.")
            seq, before, named = seq + 1, entry["chain"], named + len(subjects)
    except UnicodeDecodeError:
        return Verified(seq, seq + 1, f"What follows entry {seq} is no text: Keep did not write that.")
    found = read.one("account_subject_count", until=seq)
    if found is None or found["number"] != named:
        return Verified(seq, None, (
            "Every entry fits, but the index of what they tell of does not: rows of account_subject were taken out or "
            "put in, so that a story may lack something. Restore the newest backup, or report this."
        ))
    return Verified(seq)


def _entries(read: Reader, first: int) -> Iterator[Row]:
    limit = _PAGE_ENTRIES
    while True:
        try:
            page: Sequence[Row] = read.all("account_page", first=first, limit=limit)
        except UnicodeDecodeError:
            if limit == 1:
                raise
            limit = 1  # up to the very entry
            continue
        if not page:
            return
        yield from page
        first = page[-1]["seq"] + 1
