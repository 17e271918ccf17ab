"""What a verb sees whatever the database: who is writing, when, and changes that must hit a row.

The databases' own classes add how a statement is executed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..model.clock import Ids
from ..model.errors import Conflict
from .account import Draft
from .base import Row


class SharedTransaction(ABC):
    """The part of a transaction that both databases share."""

    def __init__(self, ids: Ids, host: str, epoch: int) -> None:
        self.ids, self.host, self.epoch, self.now = ids, host, epoch, 0
        self.kept: dict[str, int] = {}  # by workflow, the bytes that were kept for it when it was last counted in
        self.parked: dict[str, int] = {}  # by workflow, how many of its runs were parked then
        self.shown: int | None = None
        self.draft, self.entry = Draft(), 0
        self.tell, self.new_id = self.draft.tell, ids.new

    @abstractmethod
    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""

    @abstractmethod
    def hits(self, query: str, **params: object) -> int:
        """Execute a change, and say how many rows it hit."""

    def expect(self, query: str, why: str, **params: object) -> None:
        """Execute a guarded change that must hit a row."""
        if not self.hits(query, **params):
            raise Conflict(f"Nothing was changed: {why}.")

    def row(self, query: str, why: str, **params: object) -> Row:
        """The first row of a statement that must give one."""
        rows = self.all(query, **params)
        if not rows:
            raise Conflict(f"Nothing was changed: {why}.")
        return rows[0]

    def count(self, workflow_id: str, count: int, *, events: int = 0, runs: int = 0, inputs: int = 0) -> Row:
        """Take the next numbers of a workflow's own sequence, and count bytes: the workflow with the last of them."""
        row = self.row(
            "workflow_tick", f"there is no workflow {workflow_id}", workflow_id=workflow_id, count=count,
            events=events, runs=runs, inputs=inputs,
        )
        self.kept[workflow_id], self.parked[workflow_id] = row["bytes"], row["parked"]
        return row

    def tick(self, workflow_id: str, count: int = 1, *, events: int = 0, runs: int = 0, inputs: int = 0) -> int:
        """The next number of a workflow's own sequence, or the last of the next `count`."""
        return int(self.count(workflow_id, count, events=events, runs=runs, inputs=inputs)["sequence"])
