"""Inputs, outputs, runs, events and items a page at a time, newest first; as fast at the end of a long list.

One page searches at most `SPAN` rows. If these do not fill it, the page says how far it has searched, and the next one
goes on from there: a rare text in a long list costs several pages, never a long wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..ledger.base import Reader, Row
from ..ledger.rows import item_record, mutation_record, run_record
from ..model.codec import stored
from ..model.ids import KIND_BITS, KINDS, number_of, text_of
from ..model.records import Event, Input, Item, Mutation, Record, Run
from .inputs_and_events import event_record, input_record, kept_row, takers_of, waits_for
from .overview import COUNTED_MAX
from .views import EVENT_STATUSES as EVENT_STATUSES

T = TypeVar("T")

ROWS = 50
SPAN = 50_000
SPAN_OF_ALL = 20_000  #: of the lists of all workflows, several of which make one page of a search
FAN_MAX = 1_000  #: inputs of one output are counted so far
_END = 1 << 62  #: behind every place

ALL = None  #: instead of a workflow's id: the list goes through all of them, by the time of their ids

#: How inputs can be asked for; "needs you" are those of the pending ones that wait for a person.
INPUT_STATUSES = ("pending", "needs you", "done", "late", "skipped")


@dataclass(frozen=True)
class ListFilter:
    """Which entries a list shows, and after which place."""

    status: str | None = None
    since_ms: int | None = None
    text: str | None = None
    before: int | None = None

    def params(self) -> dict[str, object]:
        """For the statements; SQLite's `lower` knows only ASCII, so other letters are given both ways."""
        text = self.text or None
        return {
            "since": self.since_ms, "text": text, "upper": text and text.upper(), "lower": text and text.lower(),
            "text_id": text,
            "before": _END if self.before is None else self.before, "status": self.status,
        }


@dataclass(frozen=True)
class ListPage(Generic[T]):
    """One page of a list."""

    rows: tuple[T, ...]
    older: int | None  # from where the next page goes on
    searched_to_at: int | None = None  # if it ended because it had searched enough


@dataclass(frozen=True)
class InputRow(Record):
    """An input, what went out because of it, and what it still waits for: in words, with the id of what to look at."""

    input: Input
    outputs: tuple[Mutation, ...]
    waits: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class OutputRow(Record):
    """An output, and how many inputs led to it."""

    output: Mutation
    inputs: int
    more: bool  # there are more than were counted
    first: Input | None


@dataclass(frozen=True)
class ItemRow(Record):
    """An item, and what went out for it."""

    item: Item
    outputs: tuple[Mutation, ...]


@dataclass(frozen=True)
class RunRow(Record):
    """A run, the script's word for what it works on, and what it sent."""

    run: Run
    title: str | None
    outputs: tuple[Mutation, ...]
    items: int


def inputs(read: Reader, workflow_id: str | None, wanted: ListFilter, rows: int = ROWS) -> ListPage[InputRow]:
    """What came in, each with what went out because of it, and with what it still waits for."""
    if workflow_id is ALL:
        listed, floor = _newest(read, "newest_inputs", "inp", wanted, rows)
        takers_by = {row["id"]: takers_of(read, row) for row in read.all("workflow_all")}
        return _cut([(_place_of(r), _came(read, r, takers_by[r["workflow_id"]])) for r in listed], rows, floor)
    takers = takers_of(read, kept_row(read, "workflow_by_id", workflow_id=workflow_id))
    if wanted.status in ("pending", "needs you"):
        waiting = read.all("look_inputs_waiting", workflow_id=workflow_id, limit=COUNTED_MAX)
        if len(waiting) < COUNTED_MAX:
            return _cut([(int(r["seq"]), _came(read, r, takers)) for r in _few(read, waiting, wanted, rows + 1)], rows)
    found, floor = _searched(read, "list_inputs", "list_inputs_floor", workflow_id, wanted, rows)
    return _cut([(int(r["seq"]), _came(read, r, takers)) for r in found], rows, floor)


def outputs(read: Reader, workflow_id: str | None, wanted: ListFilter, rows: int = ROWS) -> ListPage[OutputRow]:
    """What went out, each with how many inputs led to it."""
    if workflow_id is ALL:
        listed, floor = _newest(read, "newest_mutations", "mut", wanted, rows)
        return _cut([(_place_of(row), _went(read, row)) for row in listed], rows, floor)
    found, floor = _searched(read, "list_mutations", "list_mutations_floor", workflow_id, wanted, rows)
    return _cut([(int(row["seq"]), _went(read, row)) for row in found], rows, floor)


def events(read: Reader, workflow_id: str, topic: str | None, wanted: ListFilter, rows: int = ROWS) -> ListPage[Event]:
    """Events of one topic or of all. Those that wait are found at once, even far back in a long list."""
    if wanted.status in ("pending", "reserved"):
        where = {"workflow_id": workflow_id, "topic": topic, **wanted.params()}
        found = read.all("list_events_pending", **where, limit=rows + 1)
        return _cut([(int(row["seq"]), event_record(row)) for row in found], rows)
    found, floor = _searched(read, "list_events", "list_events_floor", workflow_id, wanted, rows, topic=topic)
    return _cut([(int(row["seq"]), event_record(row)) for row in found], rows, floor)


def items(read: Reader, workflow_id: str, wanted: ListFilter, rows: int = ROWS) -> ListPage[ItemRow]:
    """The units of routines' work, each with what was sent for it."""
    found, floor = _searched(read, "list_items", "list_items_floor", workflow_id, wanted, rows)
    return _cut([(int(row["seq"]), worked(read, item_record(row))) for row in found], rows, floor)


def worked(read: Reader, item: Item) -> ItemRow:
    """An item, and what was sent for it in all its attempts."""
    return ItemRow(item, tuple(mutation_record(each) for each in read.all("look_mutations_of_item", item_id=item.id)))


def runs(
    read: Reader, workflow_id: str | None, wanted: ListFilter, handler: str | None = None, rows: int = ROWS,
) -> ListPage[RunRow]:
    """What was run, of one handler or of all, each with what it did."""
    if workflow_id is ALL:
        listed, floor = _newest(read, "newest_runs", "run", wanted, rows)
        return _cut([(_place_of(row), _ran(read, row)) for row in listed], rows, floor)
    found, floor = _searched(read, "list_runs", "list_runs_floor", workflow_id, wanted, rows, handler=handler or None)
    return _cut([(int(row["seq"]), _ran(read, row)) for row in found], rows, floor)


def causes(read: Reader, mutation: Mutation, after: int = 0, rows: int = ROWS) -> ListPage[Input]:
    """The inputs that led to an output, oldest first."""
    found = read.all("list_inputs_of_mutation", mutation_id=mutation.id, after=after, limit=rows + 1)
    return _cut([(int(row["seq"]), input_record(row)) for row in found], rows)


def fan_in(read: Reader, mutation_id: str) -> int:
    """How many inputs led to an output, counted up to `FAN_MAX` + 1, which means more than `FAN_MAX`."""
    row = read.one("count_inputs_of_mutation", mutation_id=mutation_id, limit=FAN_MAX + 1)
    assert row is not None, "a count has a row"
    return int(row["number"])


def _searched(
    read: Reader, statement: str, floor_statement: str, workflow_id: str, wanted: ListFilter, rows: int, **more: object,
) -> tuple[list[Row], Row | None]:
    """The rows of one page and one more, and the row at which the search ended if the list goes on behind it."""
    where = {"workflow_id": workflow_id, **wanted.params(), **more}
    floor = read.one(floor_statement, workflow_id=workflow_id, before=where["before"], span=SPAN)
    return read.all(statement, **where, floor=floor["seq"] if floor else 0, limit=rows + 1), floor


def _newest(
    read: Reader, statement: str, prefix: str, wanted: ListFilter, rows: int,
) -> tuple[list[Row], Row | None]:
    """The same over all workflows: a place in this list is an id without the bits of its kind."""
    where = wanted.params()
    before = int(str(where.pop("before")))
    last = _id_at(prefix, before) if before < _END >> KIND_BITS else _id_at(prefix, (_END >> KIND_BITS) - 1)
    floor = read.one(f"{statement}_floor", last_id=last, span=SPAN_OF_ALL)
    found = read.all(
        statement, **where, last_id=last, first_id=floor["id"] if floor else _id_at(prefix, 1), limit=rows + 1)
    return found, {**floor, "seq": _place_of(floor)} if floor else None


def _place_of(row: Row) -> int:
    number = number_of(row["id"])
    assert number is not None, "rows of these lists have ids"
    return number >> KIND_BITS


def _id_at(prefix: str, place: int) -> str:
    return text_of(place << KIND_BITS | KINDS[prefix][0])


def _few(read: Reader, waiting: list[Row], wanted: ListFilter, rows: int) -> Iterator[Row]:
    """The waiting inputs that are wanted. Each is looked up by itself, even far back in a long list."""
    before, left = wanted.params()["before"], rows
    for seq in sorted((int(row["seq"]) for row in waiting if row["seq"] < before), reverse=True):
        where = {**wanted.params(), "workflow_id": waiting[0]["workflow_id"], "before": seq + 1}
        found = read.one("list_inputs", **where, floor=seq - 1, limit=1)
        if found:
            yield found
            left -= 1
            if not left:
                return


def _cut(found: list[tuple[int, T]], rows: int, floor: Row | None = None) -> ListPage[T]:
    """A page, and from where the next one goes on."""
    shown = tuple(row for _, row in found[:rows])
    if len(found) > rows:
        return ListPage(shown, found[rows - 1][0])
    return ListPage(shown, int(floor["seq"]) + 1, int(floor["created_at"])) if floor else ListPage(shown, None)


def _came(read: Reader, row: Row, takers: Mapping[str, str]) -> InputRow:
    where, input = {"workflow_id": row["workflow_id"], "input_id": row["id"]}, input_record(row)
    sent = tuple(mutation_record(each) for each in read.all("look_mutations_of_input", **where))
    if input.status != "pending":
        return InputRow(input, sent, ())
    events = tuple(event_record(each) for each in read.all("look_events_of_input", **where))
    return InputRow(input, sent, tuple(waits_for(read, replace(input, events=events), takers)))


def _went(read: Reader, row: Row) -> OutputRow:
    number = fan_in(read, row["id"])
    first = read.one("list_inputs_of_mutation", mutation_id=row["id"], after=0, limit=1)
    cause = input_record(first) if first else None
    return OutputRow(mutation_record(row), min(number, FAN_MAX), number > FAN_MAX, cause)


def _ran(read: Reader, row: Row) -> RunRow:
    run, where = run_record(row), {"workflow_id": row["workflow_id"], "run_id": row["id"]}
    sent = tuple(mutation_record(each) for each in read.all("look_mutations_of_run", **where))
    items = len(read.all("look_items_of_run", **where)) if run.kind == "routine" else 0
    return RunRow(run, title_of(run), sent, items)


def title_of(run: Run) -> str | None:
    """What the script calls the work that a run selected."""
    selected = stored(run.prepare_result) if run.prepare_result and run.kind == "consumer" else None
    ui = selected.get("ui") if isinstance(selected, dict) else None
    title = ui.get("title") if isinstance(ui, dict) else None
    return str(title) if title else None
