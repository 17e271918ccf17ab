"""Everything that people are shown of a ledger, piece by piece. A move of a ledger compares it at both places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..ledger.base import Reader
from ..model.codec import Json
from ..model.policy import Policy
from ..model.records import Rows
from .views import Views

_PAGE_ROWS = 1_000
_EXPLAINED_MAX = 50  #: of the newest inputs and runs of a workflow; explaining one takes far longer than listing it


def everything_shown(read: Reader, policy: Policy, now_ms: int) -> Iterator[tuple[str, Json]]:
    """The name of each piece, and the piece, as at one moment; never more than a page of it in memory."""
    views = Views(read, policy)
    for workflow in views.workflows(now_ms):
        yield f"workflow {workflow.name}", workflow.to_json()
        for what in ("inputs", "outputs", "events", "runs", "mutations", "items"):
            yield from _pages(f"{what} of {workflow.name}", getattr(views, what), workflow.id)
        newest = [run.id for run in views.newest_runs(workflow.id, _EXPLAINED_MAX)]
        newest += [str(row["id"]) for row in read.all("look_inputs", workflow_id=workflow.id, limit=_EXPLAINED_MAX)]
        for id in (workflow.id, *newest):
            yield f"the story of {id}", views.explain(id, now_ms).to_json()
        yield f"logs of {workflow.name}", repr(views.newest_logs(workflow.id, _PAGE_ROWS))
    yield "proposals", [each.to_json() for each in views.proposals()]
    yield "questions", [each.to_json() for each in views.needs_you(now_ms)]


def _pages(name: str, listed: Callable[..., Rows[Any]], workflow_id: str) -> Iterator[tuple[str, Json]]:
    after = None
    while True:
        page = listed(workflow_id, limit=_PAGE_ROWS, after=after)
        for entry in page:
            yield name, entry.to_json()
        if page.cursor is None:
            return
        after = page.cursor
