"""`keep inputs`, `outputs`, `items` and `runs`: what came in, what went out, what was worked on, and tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import click

from ...ledger.base import Row
from ...model.records import Input, Item, Mutation, Output, Rows, Run
from ...reading import lists
from ...reading.inputs_and_events import takers_of, waits_for
from ...reading.lists import ListFilter, ListPage
from ...reading.look import Look
from ...reading.wording import ago, count
from . import names
from .command_session import CommandSession, with_json, with_session, with_watch
from .completion import WORKFLOW
from .text import cells, cut, echo, echo_json, line, paint, say, short, table, width

T = TypeVar("T")

LAST = 50  #: entries that are shown if nothing is said


@dataclass(frozen=True)
class ListPart:
    """Which part of a list is wanted."""

    last: int  # the newest, unless there is a limit
    limit: int | None
    after: str | None

    def of(
        self, look: Look, workflows: Sequence[Row], kind: str, page: Callable[[str, int, str | None], Rows[T]],
        newest: Callable[[str, ListFilter, int], ListPage[Any]], name: str, **wanted: Any,
    ) -> tuple[list[T], str]:
        """The entries of these workflows, oldest first, and a remark on what else there is.

        `name` finds them in the rows of `newest`."""
        if self.limit is not None:
            if len(workflows) > 1:
                raise click.UsageError("--limit and --after go through the list of one workflow. Say which.")
            after = names.thing(look, self.after, (kind,))[1] if self.after else None
            found = page(workflows[0]["id"], self.limit, after)
            return found, f"There is more: --after {found.cursor} goes on." if found.cursor else ""
        entries, more = list[Any](), False
        for workflow in workflows:
            rows, earlier = self._newest(workflow["id"], newest, wanted)
            entries += [getattr(row, name) for row in reversed(rows)]
            more = more or earlier
        if len(workflows) > 1:
            entries.sort(key=lambda entry: entry.created_at)
        cut_off, entries = len(entries) > self.last, entries[-self.last:]
        told = f"… and earlier ones: --last {2 * self.last} shows more, --limit {LAST} begins with the oldest."
        return entries, told if more or cut_off else ""

    def _newest(
        self, workflow_id: str, newest: Callable[[str, ListFilter, int], ListPage[Any]], wanted: dict[str, Any],
    ) -> tuple[list[Any], bool]:
        rows, before, more = list[Any](), None, True
        while more and len(rows) < self.last:  # one page searches only so far
            listed = newest(workflow_id, ListFilter(before=before, **wanted), self.last - len(rows))
            rows += listed.rows
            before, more = listed.older, listed.older is not None
        return rows, more


ListOption: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def list_command(*options: ListOption) -> Callable[..., click.Command]:
    """Make the command of a list, with these options beside those of all lists.

    Its function gets a look, the workflows, and the part of the list that `--last`, `--limit` and `--after` mean."""
    def made(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def looking(session: CommandSession, /, workflow: str | None, **kwargs: Any) -> None:
            with session.look() as look:
                function(look, names.workflows(look, workflow), **kwargs)

        shown = with_json(with_watch(with_session(looking)))

        @wraps(shown)
        def command(*args: Any, last: int | None, limit: int | None, after: str | None, **kwargs: Any) -> None:
            if last is not None and (limit is not None or after is not None):
                raise click.UsageError("--last shows the newest, --limit and --after begin with the oldest. Give one.")
            shown(*args, part=ListPart(last or LAST, limit or (LAST if after else None), after), **kwargs)

        whole: Callable[..., None] = command
        for option in reversed((_WORKFLOW, *options, *_OPTIONS)):
            whole = option(whole)
        return click.command()(whole)

    return made


_WORKFLOW: ListOption = click.argument("workflow", metavar="[WORKFLOW]", type=WORKFLOW, required=False)
_OPTIONS: tuple[ListOption, ...] = (
    click.option("--last", metavar="N", type=click.IntRange(min=1),
                 help=f"Show at most so many, the newest.  [default: {LAST}]"),
    click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Show at most so many, oldest first."),
    click.option("--after", metavar="ID", help="Go on behind the entry with this id, oldest first."),
)


def remark(found: Sequence[object], more: str, none: str, as_json: bool) -> None:
    """Say that a list has more entries, or none; a program sees the latter by itself."""
    if more or not (found or as_json):
        say(more or none)


# -- the lists ---------------------------------------------------------------------------------------


@list_command(
    click.option("--status", type=click.Choice(["pending", "done", "late", "skipped"]), help="Only these."),
    click.option("--search", metavar="TEXT", help="Only those with this in their title."),
)
def inputs(
    look: Look, workflows: Sequence[Row], status: str | None, search: str | None, part: ListPart, as_json: bool,
) -> None:
    """What came in, and what came of each."""
    found, more = part.of(
        look, workflows, "input", lambda wf, limit, after: look.views.inputs(wf, status, search, limit, after),
        lambda wf, wanted, rows: lists.inputs(look.read, wf, wanted, rows), "input", status=status, text=search,
    )
    whole = [look.views.input(each.id) for each in found]
    if as_json:
        echo_json([each.to_json() for each in whole])
    else:
        _print_inputs(look, workflows, whole)
    remark(found, more, "Nothing has come in yet." if not (status or search) else "None.", as_json)


def _print_inputs(look: Look, workflows: Sequence[Row], found: Sequence[Input]) -> None:
    shown = short([each.id for each in found] + [m.id for each in found for m in each.outputs or ()])
    takers, lead = {row["id"]: takers_of(look.read, row) for row in workflows}, _leads(workflows)
    for each in found:
        when = ago(each.created_at, look.now_ms)
        block(each.status, when, lead[each.workflow_id] + each.title, shown[each.id], each.needs_you)
        for told, id in _what_came(look, each, takers[each.workflow_id]):
            leaf("→", told, shown.get(id, id))


@list_command()
def outputs(look: Look, workflows: Sequence[Row], part: ListPart, as_json: bool) -> None:
    """What went out, and which inputs caused it."""
    sent, more = part.of(
        look, workflows, "mutation", look.views.mutations,
        lambda wf, wanted, rows: lists.outputs(look.read, wf, wanted, rows), "output",
    )
    found = list(look.views.with_inputs(sent))
    if as_json:
        echo_json([each.to_json() for each in found])
    else:
        _print_outputs(look, workflows, found)
    remark(found, more, "Nothing has gone out yet.", as_json)


def _print_outputs(look: Look, workflows: Sequence[Row], found: list[Output]) -> None:
    lead = _leads(workflows)
    shown = short([each.mutation.id for each in found] + [i.id for each in found for i in each.inputs])
    for each in found:
        mutation = each.mutation
        when, doubt = ago(mutation.created_at, look.now_ms), mutation.status.value == "indeterminate"
        block(mutation.status, when, lead[mutation.workflow_id] + named(mutation), shown[mutation.id], doubt)
        for cause in each.inputs:
            leaf("←", cause.title, shown[cause.id])


@list_command(
    click.option("--status", type=click.Choice(["processing", "done", "failed", "needs_attention", "skipped"]),
                 help="Only these."),
)
def items(look: Look, workflows: Sequence[Row], status: str | None, part: ListPart, as_json: bool) -> None:
    """What the routines worked on, and how far each has come."""
    found, more = part.of(
        look, workflows, "item", lambda wf, limit, after: look.views.items(wf, limit, after, status),
        lambda wf, wanted, rows: lists.items(look.read, wf, wanted, rows), "item", status=status,
    )
    if as_json:
        echo_json([{**each.to_json(), "applied": _applied(look, each), "needs_you": _needs_you(look, each)}
                   for each in found])
    else:
        print_items(look, found, _leads(workflows))
    remark(found, more, "None." if status else "No routine has worked on anything yet.", as_json)


def print_items(look: Look, found: Sequence[Item], lead: Mapping[str, str] = MappingProxyType({})) -> None:
    """Items, each with when it last changed, its attempt and how much of it is applied."""
    shown = short(each.id for each in found)
    for each in found:
        needs_you, applied = _needs_you(look, each), count(_applied(look, each), "mutation")
        title = lead.get(each.workflow_id, "") + each.title
        block(each.status, ago(each.updated_at, look.now_ms), title, shown[each.id], needs_you)
        state = f"{each.status}, " if needs_you else ""
        in_all = " in all of them" if each.attempt > 1 else ""
        leaf("→", f"{state}attempt {each.attempt}, {applied} applied{in_all}", each.external_id)


def _applied(look: Look, item: Item) -> int:
    """How many mutations of an item are applied, in all its attempts."""
    return sum(row["status"] == "applied" for row in look.read.all("look_mutations_of_item", item_id=item.id))


def _needs_you(look: Look, item: Item) -> bool:
    row = look.read.one("look_input", input_id=item.input_id)
    assert row is not None, f"{item.input_id} is never deleted"
    return bool(row["needs_you"])


@list_command()
def runs(look: Look, workflows: Sequence[Row], part: ListPart, as_json: bool) -> None:
    """Every attempt at every handler, oldest first."""
    found, more = part.of(
        look, workflows, "run", look.views.runs,
        lambda wf, wanted, rows: lists.runs(look.read, wf, wanted, rows=rows), "run",
    )
    worked = {each.id: _worked_on(look, each) for each in found}
    if as_json:
        echo_json([{**each.to_json(), "items": [i["id"] for i in worked[each.id]]} for each in found])
    elif found:
        _print_runs(look, workflows, found, worked)
    remark(found, more, "Nothing has run yet.", as_json)


def _print_runs(
    look: Look, workflows: Sequence[Row], found: Sequence[Run], worked: Mapping[str, list[Row]],
) -> None:
    lead = _leads(workflows)
    shown = short(each.id for each in found)
    header = ("RUN", "STARTED", "HANDLER", "TRIGGER", "STATUS", "WHAT")
    rows = [
        (shown[r.id], ago(r.created_at, look.now_ms), lead[r.workflow_id] + r.handler, r.trigger, r.status,
         _what(r, shown, worked[r.id]))
        for r in found
    ]
    echo(*table(header, rows, 5))


def _worked_on(look: Look, run: Run) -> list[Row]:
    """The items that a routine's run worked on."""
    if run.kind != "routine":
        return []
    return look.read.all("look_items_of_run", workflow_id=run.workflow_id, run_id=run.id)


def _what(run: Run, shown: dict[str, str], worked: list[Row]) -> str:
    """What is worth knowing of a run at a glance."""
    if run.error and run.state.value in ("paused", "failed"):
        return run.error.message
    told = [f"carries on {shown.get(run.retry_of, run.retry_of)}"] if run.retry_of else []
    if worked:
        told.append(f"{count(len(worked), 'item')}: {', '.join(str(row['title']) for row in worked)}")
    elif not told and run.state.value == "active":
        told.append(f"in {run.phase}")
    return "; ".join(told)


def _leads(workflows: Sequence[Row]) -> Mapping[str, str]:
    """What stands before an entry: the name of its workflow, if there are several."""
    return {row["id"]: f"{row['name']} · " if len(workflows) > 1 else "" for row in workflows}


def block(status: str, when: str, title: str, id: str, needs_you: bool) -> None:
    """The first line of an entry: what it is, with its state before and its id after it."""
    word = "needs you" if needs_you else str(status)
    lead = f"{paint(f'{word:<10}') if not needs_you else click.style(f'{word:<10}', fg='red')} {when:<11} "
    _with_id(lead, 23, title, id)


def leaf(arrow: str, text: str, id: str) -> None:
    """What belongs to an entry, below it."""
    _with_id(" " * 11 + f"{arrow} ", 13, text, id)


def _with_id(lead: str, taken: int, text: str, id: str) -> None:
    room = width()
    told = line(text)
    if room is not None:
        told = cut(told, max(12, room - taken - 2 - cells(id)))
    echo(f"{lead}{told}" + (f"  {click.style(id, dim=True)}" if id else ""))


def _what_came(look: Look, input: Input, takers: Mapping[str, str]) -> list[tuple[str, str]]:
    """What came of an input, each with the id to look at."""
    told = [(outcome(each), each.id) for each in input.outputs or ()]
    told += waits_for(look.read, input, takers)
    if input.status == "late":
        told += [(f"came too late: revision {each.revision} was not processed", each.event_id)
                 for each in input.held or ()]
    return told or [("nothing went out", "")]


def named(mutation: Mutation) -> str:
    """A mutation in a few words: the script's title, unless it is that of an item with several mutations."""
    return mutation.preview if mutation.item_id else mutation.title or mutation.preview


def outcome(mutation: Mutation) -> str:
    """What became of a mutation, in words."""
    return f"{_WORDS[mutation.status.value]}: {named(mutation)}"


_WORDS = {
    "in_flight": "being sent", "applied": "applied", "failed": "did not happen",
    "needs_reconcile": "unknown, being looked up", "indeterminate": "unknown, needs you", "skipped": "skipped",
}

