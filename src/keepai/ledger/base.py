"""The contract of a ledger: named statements inside short transactions, and reads that block nobody.

What is written is written by the verbs in `transitions/`, each a function of a `Tx`. A ledger runs a
verb in one transaction; with `barrier` the commit is on disk before the caller goes on. A verb's name
is also the name of its two crash points, `before:<verb>` and `after:<verb>`.

What is read for a decision is read by a question, a function of a `Reader`: the ledger answers it over one moment.
Verbs and questions are plain functions: they wait for nothing but the ledger, and may run in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..model.clock import Ids
from ..model.records import Record

T = TypeVar("T")
P = ParamSpec("P")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Behind:
    """How a ledger that a person accepted was behind what it had been: what it sent in between is not in it."""

    since_at: int  # when the newest of its entries was written that is from before
    until_at: int  # when it was last known to be further


class Reader(Protocol):
    """Runs named statements."""

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""
        ...

    def one(self, query: str, **params: object) -> Row | None:
        """The first row, if any."""
        ...

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        """Row by row, as far as the caller reads. It is read to its end, or closed, before anything else goes on."""
        ...


@dataclass(frozen=True)
class SeenHost(Record):
    """A host that has not ended, as a ledger sees it that several may share."""

    id: str
    machine: str
    pid: int
    started_at: int
    workflows: int  # how many it runs
    silent_ms: int  # for how long it has not said that it lives
    works: bool  # otherwise it is a command that looks or acts
    drains: bool  # a person wants it to hand over its work and end
    lives: bool  # otherwise it was silent for too long, and is not known to be dead


class OpenReader(Reader, Protocol):
    """A look at a ledger that lasts until it is closed."""

    name: str  # for people: the file, or the address without its password
    path: Path | None  # the file, if it is one
    refused: str | None  # why no host starts with it, although it can be read

    def bytes(self) -> int:
        """How much room it takes where it lies."""
        ...

    def hosts(self) -> list[SeenHost]:
        """The hosts that have not ended, the oldest first, if the ledger itself knows; a file does not."""
        ...

    def host_of(self, workflow_id: str) -> str | None:
        """The id of the host that was the last to take a workflow and has not given it back, if the ledger itself
        knows; a file does not."""
        ...

    def without_host(self) -> frozenset[str]:
        """The workflows that no host at work runs, if the ledger itself knows; a file does not."""
        ...

    def change(self) -> int:
        """A number that changes whenever somebody commits."""
        ...

    def moment(self) -> AbstractContextManager[None]:
        """Everything that is read inside is of one moment."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Tx(Reader, Protocol):
    """One transaction of one host at one moment."""

    now: int
    host: str
    epoch: int
    shown: int | None  # the version that whoever acts was shown, if a person does and said so
    entry: int  # the number of the account's entry that will tell of this transaction
    parked: dict[str, int]  # by workflow, how many of its runs were parked when it was last counted in

    def tell(
        self, workflow_id: str, machine: str, subject: str, source: str | None, target: str, why: str | None = None,
        *, facts: str | None = None, actor: str | None = None,
    ) -> None:
        """Have the account tell a move of a state, a decision or an act, in the transaction that does it: why in words,
        or as the text of a JSON value (`facts`); who, if it was a person."""
        ...

    def run(self, query: str, **params: object) -> None:
        """Execute a change. A ledger may do so later in the transaction, but before it reads anything."""
        ...

    def hits(self, query: str, **params: object) -> int:
        """Execute a change, and say how many rows it hit."""
        ...

    def many(self, query: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a change once for each of these."""
        ...

    def expect(self, query: str, why: str, **params: object) -> None:
        """Execute a guarded change that must hit a row; otherwise `Conflict` with `why`."""
        ...

    def row(self, query: str, why: str, **params: object) -> Row:
        """The first row of a statement that must give one; otherwise `Conflict` with `why`."""
        ...

    def values(self, query: str, **params: object) -> list[tuple[Any, ...]]:
        """Every row, as its columns in order."""
        ...

    def new_id(self, prefix: str) -> str:
        """A fresh id."""
        ...

    def count(self, workflow_id: str, count: int, *, events: int = 0, runs: int = 0, inputs: int = 0) -> Row:
        """Take the next numbers of a workflow's own sequence, and count bytes that are kept for it from now on: the
        workflow with the last of the numbers, as `sequence`, and all its `bytes`."""
        ...

    def tick(self, workflow_id: str, count: int = 1, *, events: int = 0, runs: int = 0, inputs: int = 0) -> int:
        """The next number of a workflow's own sequence, or the last of the next `count`; bytes as in `count`."""
        ...


@dataclass(frozen=True)
class Share:
    """What changed in which workflows this host runs, since it asked last."""

    claimed: frozenset[str] = frozenset()  # it runs these from now on
    given: frozenset[str] = frozenset()  # others may run these from now on
    touched: frozenset[str] = frozenset()  # it runs these, and another host has changed something in them
    owns: int = 0  # so many it runs now
    drains: bool = False  # a person wants this host to hand over its work and end


class Sharing(Protocol):
    """A ledger on which several hosts work, as one of them sees it: each workflow is run by one of them at a time.

    A host can lose its place, by silence or with its connection. Then it writes nothing until it has `rejoin`ed as
    another host."""

    def lost(self) -> str | None:
        """Why this host has lost its place, if it has."""
        ...

    async def share(self, spare: Collection[str]) -> Share:
        """Take this host's part of the workflows, and give away of the `spare` ones what is more than that."""
        ...

    async def own(self) -> set[str]:
        """The workflows that this host runs, by the ledger."""
        ...

    async def stirred(self) -> None:
        """Wait until another host has done something, or it is time to `share` again."""
        ...

    async def rejoin(self, under_way: Collection[str]) -> None:
        """Take a new place, or raise `LedgerUnusable`. Of the calls of the old one only these mutations' go on."""
        ...

    async def end_host(self, host: str, actor: str, *, dead: bool) -> None:
        """A person says of another host that it is dead, or (not `dead`) that it shall hand over its work and end."""
        ...

    def was(self, epoch: int) -> bool:
        """Whether an epoch is one that this process had before."""
        ...


class Ledger(Protocol):
    """A durable store."""

    ids: Ids  # makes every id that is to stand in it
    accepted: bool  # a person accepted it although it is older than it was, or another
    behind: Behind | None  # if it is older

    @property
    def host(self) -> str:
        """Who this host is."""
        ...

    @property
    def epoch(self) -> int:
        """Its number: every host that begins on a ledger has another."""
        ...

    @property
    def lock_fd(self) -> int | None:
        """Its lock: a child process that inherits it proves that a call goes on."""
        ...

    @property
    def sharing(self) -> Sharing | None:
        """None: this host runs every workflow."""
        ...

    async def write(self, verb: Callable[..., T], *args: Any, barrier: bool = False, **kwargs: Any) -> T:
        """Run `verb(tx, …)` in one transaction."""
        ...

    async def barrier(self) -> None:
        """Wait until everything committed so far is on disk."""
        ...

    async def look(self, question: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer to `question(read, …)`: everything that it reads is committed, and of one moment."""
        ...

    async def one(self, query: str, **params: object) -> Row | None:
        """The first row of one statement, if any."""
        ...

    async def all(self, query: str, **params: object) -> list[Row]:
        """Every row of one statement."""
        ...

    def under_way(self) -> AbstractContextManager[None]:
        """For as long as a run is under way: so many may join one commit."""
        ...

    async def kept_bytes(self, workflow_id: str) -> int:
        """How much was kept for a workflow when this host last counted in it, or is now."""
        ...

    def check(self) -> None:
        """Stop, and raise `LedgerStopped`, if this host has lost the ledger: it is not at its place, or another's."""
        ...

    def stopped(self) -> str | None:
        """Why nothing can be written any more, if so."""
        ...

    async def close(self, *, keep_lock: bool = False) -> None:
        """Finish and let go of the file; with `keep_lock`, nobody else may have it while this process lives."""
        ...
