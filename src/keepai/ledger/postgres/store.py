"""A ledger in PostgreSQL: opened by one of its hosts, from here to `close`.

Verbs have one connection, and questions another. Both are asked in the thread of the loop, which goes on while the
server works. Every transaction first locks the one row of `ledger` and looks whether this host still has its place: so
all hosts write one after the other, the account is one chain, and who has lost its place changes nothing.

After any error of a connection, and after a commit that failed, what the server has is unknown: this host writes and
sends nothing more until it has taken another place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...model.clock import Clock, Ids, SystemClock
from ...model.errors import LedgerOlder, LedgerStopped
from ..base import Reader, Row, Share
from . import lease
from .mark_file import MarkFile
from .place import Place

T = TypeVar("T")
P = ParamSpec("P")


class PostgresLedger:
    """One host's hold on one database. With `works` it runs workflows; otherwise it only looks, and does what people
    say."""

    def __init__(
        self, url: str, clock: Clock | None = None, *, accept_older: bool = False, works: bool = True,
    ) -> None:
        self._url, self._works = url, works
        self._clock = clock or SystemClock()
        self.ids = Ids(self._clock)
        self._stopped: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stirring = asyncio.Event()
        self._before: list[Place] = []  # places that this process had, of which calls may still be under way
        self._had: set[int] = set()  # the epochs of all of them
        self._mark = MarkFile(url)
        self._place = self._new_place(accept_older)
        self.accepted, self.behind = self._place.opening.accepted, self._place.opening.behind

    def _new_place(self, accept_older: bool) -> Place:
        return Place(
            self._url, self._clock, self.ids, self._mark, accept_older=accept_older, works=self._works, stir=self._stir)

    @property
    def sharing(self) -> PostgresLedger:
        """Several hosts may work on it."""
        return self

    @property
    def host(self) -> str:
        """Who this host is, until it has another place."""
        return self._place.host

    @property
    def epoch(self) -> int:
        """The number of its place."""
        return self._place.epoch

    @property
    def lock_fd(self) -> int | None:
        """The lock that says that this process lives."""
        return self._place.lock.fd

    # -- writing -----------------------------------------------------------------------------------

    async def write(self, verb: Callable[..., T], *args: Any, barrier: bool = False, **kwargs: Any) -> T:
        """Run `verb(tx, …)` in one transaction, with others that wait by then. Each is on disk when it has returned,
        with a barrier or without."""
        self._watch_loop()
        return await self._place.verbs.write(verb, args, kwargs)

    async def barrier(self) -> None:
        """Wait until everything committed so far is on disk."""
        self._watch_loop()
        await self._place.verbs.in_order(self.check)

    def _watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._place.watch(loop)

    # -- looking -----------------------------------------------------------------------------------

    async def look(self, question: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer to `question(read, …)`: everything that it reads is committed, and of one moment."""
        self._watch_loop()
        return await self._place.questions.ask(lambda read: question(read, *args, **kwargs))

    async def one(self, query: str, **params: object) -> Row | None:
        """The first row of one statement, if any."""
        self._watch_loop()
        return await self._place.questions.ask(lambda read: read.one(query, **params))

    async def all(self, query: str, **params: object) -> list[Row]:
        """Every row of one statement."""
        self._watch_loop()
        return await self._place.questions.ask(lambda read: read.all(query, **params))

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """For as long as a run is under way. Each verb has a commit of its own here."""
        yield

    async def kept_bytes(self, workflow_id: str) -> int:
        """How much was kept for a workflow when this host last counted in it, or is now."""
        kept = self._place.kept(workflow_id)
        if kept is None:
            row = await self.one("workflow_bytes", workflow_id=workflow_id)
            kept = row["event_bytes"] + row["run_bytes"] + row["input_bytes"] if row else 0
        return int(kept)

    # -- sharing it with other hosts ---------------------------------------------------------------

    def check(self) -> None:
        """Raise `LedgerStopped` if this host has lost its place, or was not heard there for too long."""
        if self._stopped is not None:
            raise LedgerStopped(self._stopped)
        self._place.check()

    def stopped(self) -> str | None:
        """Why nothing can be written any more, even from another place."""
        return self._stopped

    def lost(self) -> str | None:
        """Why this host has lost its place, if it has."""
        return self._place.lost

    def was(self, epoch: int) -> bool:
        """Whether an epoch is one that this process had before."""
        return epoch in self._had

    async def share(self, spare: Collection[str]) -> Share:
        """Take this host's part of the workflows, and give away of the `spare` ones what is more than that."""
        self._watch_loop()
        place = self._place
        return await place.verbs.in_order(lambda: place.share(list(spare)))

    async def own(self) -> set[str]:
        """The workflows that this host runs, by the ledger."""
        return {str(row["workflow_id"]) for row in await self.all("owner_of", epoch=self._place.epoch)}

    async def stirred(self) -> None:
        """Wait until another host has done something, or it is time to `share` again."""
        self._watch_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout(lease.SHARE_S):
                await self._stirring.wait()
        self._stirring.clear()

    def _stir(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed, and nobody waits
                self._loop.call_soon_threadsafe(self._stirring.set)

    async def end_host(self, host: str, actor: str, *, dead: bool) -> None:
        """A person says of another host that it is dead, or (not `dead`) that it shall hand over its work and end."""
        await self.write(lease.bury if dead else lease.drain, host, actor)

    async def rejoin(self, under_way: Collection[str]) -> None:
        """Take another place. Of the calls that were made from earlier ones, only these mutations' still go on."""
        lost = self._place
        if lost.epoch not in self._had:
            self._had.add(lost.epoch)
            self._before.append(lost)
            await lost.close()
        try:
            self._place = await asyncio.to_thread(self._new_place, False)
        except LedgerOlder as error:
            self._stopped = error.message
            raise
        self._loop = None  # the new place has yet to know it
        await self._leave(frozenset(under_way))

    async def _leave(self, under_way: Collection[str]) -> None:
        """Say which calls of earlier places have ended."""
        place = self._place
        for each in list(self._before):
            if await place.verbs.write(lease.leave, (each.epoch, under_way), {}):
                each.lock.release(told=True)
                self._before.remove(each)

    async def close(self, *, keep_lock: bool = False) -> None:
        """Finish and let go; with `keep_lock`, nobody takes this host for dead while its process lives."""
        await self._place.finished()
        if not keep_lock:  # nor do calls of earlier places
            with suppress(LedgerStopped):
                await self._leave(())
        told = self._place.end(calls_go_on=keep_lock)
        if self._place.epoch not in self._had:
            await self._place.close()
        if not keep_lock:
            for each in {*self._before, self._place}:
                each.lock.release(told=told and each is self._place)
