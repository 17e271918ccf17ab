"""The blast radius: what runs of one script version, or of one span of time, have touched. Reads only.

It says what a fault may have reached; a person must judge whether it did harm. It contains only what the ledger ties to
those runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..ledger.base import Reader, Row
from ..ledger.rows import item_record, mutation_record
from ..model.clock import parse_iso
from ..model.errors import NotFound, Refused
from ..model.records import Input, Item, Mutation, Record
from .inputs_and_events import input_record, kept_row

#: At most this many inputs, items and mutations are listed, the oldest; all of them are counted.
ROWS_MAX = 100_000

Moment = int | str  # milliseconds since 1970 UTC, or ISO-8601


@dataclass(frozen=True)
class Blast(Record):
    """What some runs touched, oldest first."""

    workflow_id: str
    version: str | None  # None: of every version
    since_at: int | None  # runs that began then or later
    until_at: int | None  # and before this
    runs: int
    inputs: tuple[Input, ...]  # each with its outputs, also those that other versions sent
    items: tuple[Item, ...]
    mutations: tuple[Mutation, ...]
    inputs_count: int
    items_count: int
    mutations_count: int


def blast(
    read: Reader, workflow: Row, version: str | None = None, since: Moment | None = None, until: Moment | None = None,
    most: int = ROWS_MAX,
) -> Blast:
    """What the runs of a version touched, or those that began in a span of time; without either, the active version."""
    since_at, until_at = moment(since, "since"), moment(until, "until")
    if since_at is not None and until_at is not None and since_at >= until_at:
        raise Refused(f"There is no time between since ({since}) and until ({until}): until must be later.")
    if version is None and since is None and until is None:
        version = f"{workflow['major']}.{workflow['minor']}"
    major, minor = (None, None) if version is None else _number(read, workflow, version)
    rows = read.all(
        "blast_touched", workflow_id=workflow["id"], major=major, minor=minor, since_at=since_at, until_at=until_at,
        limit=most,
    )
    ids: dict[str, list[str]] = {kind: [str(r["id"]) for r in rows if r["kind"] == kind] for kind in _KINDS}
    total = {str(r["kind"]): int(r["total"]) for r in rows}
    return Blast(
        workflow["id"], version, since_at, until_at, total.get("run", 0),
        inputs=tuple(_input(read, workflow["id"], each) for each in ids["input"]),
        items=tuple(item_record(kept_row(read, "item_by_id", item_id=each)) for each in ids["item"]),
        mutations=tuple(
            mutation_record(kept_row(read, "mutation_by_id", mutation_id=each)) for each in ids["mutation"]),
        inputs_count=total.get("input", 0), items_count=total.get("item", 0), mutations_count=total.get("mutation", 0),
    )


_KINDS = ("input", "item", "mutation")


def moment(given: Moment | None, name: str) -> int | None:
    """A border of a span of time, in milliseconds."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    try:
        return parse_iso(str(given))
    except ValueError:
        raise Refused(f"{name} must be a time such as 2026-01-05T09:00:00Z, not {given!r}.") from None


def _number(read: Reader, workflow: Row, version: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", version, re.ASCII)
    number = (int(found[1]), int(found[2])) if found else None
    known = [(int(r["major"]), int(r["minor"])) for r in read.all("script_all", workflow_id=workflow["id"])]
    if number is None or number not in known:
        there_are = ", ".join(f"{major}.{minor}" for major, minor in known)
        raise NotFound(f"The workflow {workflow['name']!r} has no version {version!r}. There are: {there_are}.")
    return number


def _input(read: Reader, workflow_id: str, input_id: str) -> Input:
    outputs = read.all("look_mutations_of_input", workflow_id=workflow_id, input_id=input_id)
    row = kept_row(read, "look_input", input_id=input_id)
    return input_record(row, tuple(mutation_record(each) for each in outputs))
