"""A routine's run: its handler works through items and is replayed from the top until it returns.

Nothing of it is held in memory while it waits: whatever stops it ends the script, and the next replay finds what
was done in the ledger. A mutation that was applied gives its kept result; only what is missing is sent.

A run that was parked in an item carries on that item alone, and other runs pass it by: docs/internals/parking.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from ..ledger.base import Reader, Row
from ..ledger.transitions import items, runs
from ..model.codec import Json, check_id, encode, shown, size
from ..model.errors import OutcomeUnknown, RuleBroken
from ..model.operations import Step
from ..model.records import Run
from ..model.states import UNFINISHED, Status
from ..runtime.base import Ended, Fixed, Operation, Reply
from . import approval, mutation
from .gate import Gate, check_spent, check_title
from .mutation import Unit
from .outcome import check_fits
from .producer_run import grows, kept_state, next_run_at
from .recording import made_of
from .relaunch import in_flight
from .run_context import RunContext


class Suspended(Exception):
    """The script ends here; why its run waits is on record already."""


class Carried(Exception):
    """The script ends here: the one item that its run carries on is done."""


async def execute(context: RunContext) -> Run | None:
    """Send what a person approved, if that is due; then replay, and commit if the handler returns.

    Gives the run that begins in the same commit, if one does."""
    ledger = context.parts.ledger
    approved = await ledger.look(approval.of_run, context.run) if context.run.state is Status.PAUSED else None
    if approved is not None and await mutation.perform_approved(context, approved) is None:
        return None
    fixed = await ledger.look(fixed_by_lineage, context.run)
    try:
        replayed = await _replay(context, fixed)
    except Suspended:
        return None
    if replayed is None or context.run.item_id is not None:
        await ledger.write(runs.commit_item, context.run, context.trace.take())
        return None
    ended, gate = replayed
    state, due_at = kept_state(context.parts, ended.value, context.handler.name), await next_run_at(context)
    follows = await context.follows({"next_run_at": due_at}, ())
    return await ledger.write(
        runs.commit_routine, context.run, state, due_at, context.trace.take(), follows, grows(context, state),
        recorded=context.recorded(gate, made_of((), (), state), idle=state in (None, context.state)),
    )


async def _replay(context: RunContext, fixed: Fixed) -> tuple[Ended, Gate] | None:
    """How the handler ended, with its gate; None if the run carries on one item, and that needs no more of it."""
    own = context.run.item_id
    if own is not None and not _unfinished(await context.parts.ledger.one("item_by_id", item_id=own)):
        return None  # a person has skipped it, or the host died before it wrote that the run has ended
    try:
        return await context.step(Step.ROUTINE, (context.state,), items=Items(context), fixed=fixed)
    except Carried:
        return None


class Items:
    """The item at work in one replay, and what the script does with it."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.current: Row | None = None  # the item at work
        self._suspended = False  # the run waits, and why is on record
        self._bytes = 0  # of the items that it has begun and that are new

    async def with_item(self, args: tuple[Json, ...]) -> Reply:
        """`ctx.withItem` begins or ends an item."""
        external_id, title, border = (*args, None, None, None)[:3]
        if border == "end":
            await self._end(external_id)
            return Reply("null")
        name = check_id(external_id, "withItem: id")
        if self.current is not None:
            at_work = self.current["external_id"]
            nested = "in itself" if at_work == name else f"while {shown(at_work)} is at work"
            raise RuleBroken(
                f"ctx.withItem: {shown(name)} was begun {nested}. Items are worked on one after the other: "
                "write `await ctx.withItem(…)` in a plain loop, and never inside another item."
            )
        named = check_title(title, "withItem", self._context.trace, Step.ROUTINE)
        item = self.current = await self.begin(name, named)
        self._context.item_id = item["id"]
        if _unfinished(item) and self._context.gate is not None and self._context.gate.recorder is not None:
            self._context.gate.recorder.open_item(name)
        is_done = Reply.of({"isDone": not _unfinished(item)})
        fixed = await self._context.parts.ledger.look(_fixed_by_item, self._context.run, item)
        return replace(is_done, fixed=fixed)

    async def begin(self, name: str, title: str) -> Row:
        """Find an item, or make it one of the workflow's."""
        ledger, run = self._context.parts.ledger, self._context.run
        known = await ledger.one("item_find", workflow_id=run.workflow_id, external_id=name)
        if known is not None and not _unfinished(known):
            return known
        if await ledger.look(_passes_by, run, known):
            return {**(known or {"id": None, "external_id": name, "attempt": 1}), "status": "parked"}
        if known is None:
            self._bytes += 2 * (size(name) + size(title))  # the item, and the input that stands for it
            check_spent(self._bytes, self._context.parts.policy)
        return await ledger.write(items.begin_item, run, name, title)

    async def _end(self, external_id: Json) -> None:
        current, self.current = self.current, None
        self._context.item_id = None
        if current is None or current["external_id"] != external_id:
            raise RuleBroken(f"ctx.withItem: {shown(external_id)} is not the item at work.")
        if not _unfinished(current):
            return
        await self.finish(current)
        if self._context.run.item_id is not None:
            raise Carried(f"Run {self._context.run.id} has carried on its item to its end.")

    async def finish(self, item: Row) -> None:
        """The script's function for an item has returned."""
        await self._context.parts.ledger.write(items.end_item, self._context.run, item["id"])

    async def mutate(self, operation: Operation) -> Reply:
        """A side effect of the item at work: its result, from the outside system or from the ledger."""
        item = self.current
        if item is None:
            raise RuleBroken(
                f"ctx.{operation.name} is a mutation outside of an item. "
                "Wrap it: await ctx.withItem(id, title, async (ctx) => { … })."
            )
        if not _unfinished(item):
            raise RuleBroken(
                f"ctx.{operation.name}: the item {shown(item['external_id'])} is {item['status']}; a mutation on it "
                "would do its work again. Begin its function with `if (ctx.item.isDone) return;`."
            )
        unit = Unit(Step.ROUTINE, encode(["item", item["external_id"], item["attempt"]]), item["title"], item["id"])
        result = await _to_its_end(self.perform(operation, unit))
        check_fits(result, operation.name, self._context.parts.policy.message_bytes_max)
        return Reply(result)

    async def perform(self, operation: Operation, unit: Unit) -> str:
        """Make a mutation, or find what came of it; its result as it is kept."""
        result = await mutation.perform(self._context, operation, unit)
        if result is None:
            self._suspended = True
            raise Suspended(f"Run {self._context.run.id} waits.")
        return result

    async def begin_again(self) -> None:
        """The script's worker died: what it began stands in the ledger, and a replay finds it there."""
        run, self.current = self._context.run, None
        if self._suspended:
            raise Suspended(f"Run {run.id} waits.")
        if await self._context.parts.ledger.look(in_flight, run) is not None:
            raise OutcomeUnknown("The script's worker died during the call; it may or may not have happened.")


def fixed_by_lineage(read: Reader, run: Run) -> Fixed:
    """Time and chance outside of items: the same in all runs of a lineage, whose beginning is the time."""
    first = read.one("run_by_id", run_id=run.lineage)
    assert first is not None, run
    return Fixed.by(encode(["routine", first["id"]]), first["created_at"])


def _fixed_by_item(read: Reader, run: Run, item: Row) -> Fixed:
    """Time and chance in an item: those of the lineage that began its attempt, also if a later one finishes it."""
    first = read.one(
        "item_attempt_begun", workflow_id=run.workflow_id, item_id=item["id"], attempt=item["attempt"],
    ) or read.one("run_by_id", run_id=run.lineage)  # skipped by a person before it was begun
    assert first is not None, run
    return Fixed.by(encode(["item", first["id"], item["id"], item["attempt"]]), first["created_at"])


async def _to_its_end(performing: Coroutine[Any, Any, str]) -> str:
    """A mutation that has begun is recorded to its end, also if the script's worker dies meanwhile."""
    task = asyncio.ensure_future(performing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        task.cancelled() or task.exception()  # whoever cancelled has an error of its own to tell
        raise


def _passes_by(read: Reader, run: Run, item: Row | None) -> bool:
    """Whether an item that has not ended, or is new, is another run's to carry on."""
    if run.item_id is not None:
        return item is None or item["id"] != run.item_id
    return item is not None and items.with_parked_run(read, run, item["id"])


def _unfinished(item: Row | None) -> bool:
    return item is not None and item["status"] in UNFINISHED
