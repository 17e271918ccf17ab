"""`--last`, `--limit` and `--after`: which part of a long list a command shows, and how it says that there is more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from ...model.records import Rows
from ...reading.lists import ListFilter, ListPage
from ...reading.look import Look
from . import names
from .text import say

T = TypeVar("T")

LAST = 50  #: entries that are shown if nothing is said


@dataclass(frozen=True)
class ListPart:
    """Which part of a list is wanted."""

    last: int  # the newest, unless there is a limit
    limit: int | None
    after: str | None

    def of(
        self, look: Look, kind: str, page: Callable[[int, str | None], Rows[T]],
        newest: Callable[[ListFilter, int], ListPage[Any]], name: str, **wanted: Any,
    ) -> tuple[list[T], str]:
        """The entries, oldest first, and a remark on what else there is; `name` finds them in the rows of `newest`."""
        if self.limit is not None:
            after = names.thing(look, self.after, (kind,))[1] if self.after else None
            found = page(self.limit, after)
            return found, f"There is more: --after {found.cursor} goes on." if found.cursor else ""
        rows, more = self._newest(newest, wanted)
        earlier = f"… and earlier ones: --last {2 * self.last} shows more, --limit {LAST} begins with the oldest."
        return [getattr(row, name) for row in reversed(rows)], earlier if more else ""

    def _newest(
        self, newest: Callable[[ListFilter, int], ListPage[Any]], wanted: dict[str, Any],
    ) -> tuple[list[Any], bool]:
        rows, before, more = list[Any](), None, True
        while more and len(rows) < self.last:  # one page searches only so far
            listed = newest(ListFilter(before=before, **wanted), self.last - len(rows))
            rows += listed.rows
            before, more = listed.older, listed.older is not None
        return rows, more


def with_paging(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a list; the command is given the `part` that they mean."""
    @wraps(command)
    def paged(*args: Any, last: int | None, limit: int | None, after: str | None, **kwargs: Any) -> None:
        if last is not None and (limit is not None or after is not None):
            raise click.UsageError("--last shows the newest, --limit and --after begin with the oldest. Give one.")
        command(*args, part=ListPart(last or LAST, limit or (LAST if after else None), after), **kwargs)

    for option in (
        click.option("--after", metavar="ID", help="Go on behind the entry with this id, oldest first."),
        click.option("--limit", metavar="N", type=click.IntRange(min=1),
                     help="Show at most so many, oldest first."),
        click.option("--last", metavar="N", type=click.IntRange(min=1),
                     help=f"Show at most so many, the newest.  [default: {LAST}]"),
    ):
        paged = option(paged)
    return paged


def remark(found: Sequence[object], more: str, none: str, as_json: bool) -> None:
    """Say that a list has more entries, or none; a program sees the latter by itself."""
    if more or not (found or as_json):
        say(more or none)
