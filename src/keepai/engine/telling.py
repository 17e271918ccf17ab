"""Decides which questions a person is told, by which channel and when; a digest of what was done is told likewise.

Each channel is told each question once, and reminded by policy. What was told is in the ledger, so that a new host
tells nothing again. A message is noted before it leaves: if the host dies before it knows that the message was taken,
it is sent once more, but not sooner than after a failure: rather twice than never, and not in a loop. Nothing that
runs waits for a channel, and nothing that a channel raises reaches a run. What a message says is made by `letters`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..ledger import shown_version
from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..ledger.transitions import notices as verbs
from ..model.errors import Conflict, KeepError, LedgerStopped
from ..model.states import RepairStatus
from ..model.visible_text import visible
from ..notices.base import Channel, Message
from . import repair_budget
from .digest_times import next_digest
from .host_parts import Parts

BURST = 5  #: more questions than these at once are told in one message
MESSAGES_MAX = BURST + 2  #: that a channel is sent in one round
PAUSE_S = 1.0  #: between two rounds, however much happens
LONGEST_S = 60.0  #: between two rounds, however little does
ENDING_S = 5.0  #: that a message under way has when the host ends
FAULT_S = 60.0
ERROR_MAX = 300  #: characters that are kept of what is wrong with a channel


@dataclass(frozen=True)
class Asked:
    """A question that is open; its mark is another one whenever a person has to look again."""

    id: str
    mark: str
    kind: str
    run_id: str


class Letters(Protocol):
    """Knows the open questions and writes what is told."""

    def asked(self, read: Reader, now_ms: int) -> list[Asked]:
        """Every question that only a person can answer, the oldest first."""
        ...

    def letter(self, read: Reader, asked: Sequence[Asked], now_ms: int, *, again: bool) -> Message:
        """One question, or several in short; `again` if it was told before."""
        ...

    async def digest(self, since_ms: int, until_ms: int) -> Message:
        """What was done."""
        ...


@dataclass(frozen=True)
class _Batch:
    """What one message tells."""

    message: Message
    asked: tuple[Asked, ...] = ()
    digest_until: int | None = None


@dataclass(frozen=True)
class _Standing:
    """What a channel has to be told at one moment."""

    row: Row
    new: list[Asked]
    again: list[Asked]  # told before, and unanswered for long
    digest_at: int | None  # when the next digest is due
    later_at: int | None  # when the next reminder is due

    def waits(self, now_ms: int) -> bool:
        """Whether there is something to be told now."""
        return bool(self.new or self.again) or (self.digest_at is not None and self.digest_at <= now_ms)

    def due_at(self, now_ms: int) -> int | None:
        """When the channel can have something to do."""
        moments = [at for at in (self.digest_at, self.later_at) if at is not None]
        at = now_ms if self.waits(now_ms) else min(moments, default=None)
        return at if at is None else max(at, self.row["retry_at"] or at)


class Teller:
    """Tells the people of one host."""

    def __init__(self, parts: Parts, channels: Sequence[Channel], letters: Letters) -> None:
        self._parts, self._channels, self._letters = parts, channels, letters
        self._stirred = asyncio.Event()
        self._known = False  # whether the ledger knows these channels
        self._seen: int | None = None  # the version of everything when questions were last looked at
        self._asked: list[Asked] = []
        self._due_at: int | None = None  # when something must be told though nothing has changed
        self._took_s = 0.0

    def stir(self) -> None:
        """Something may have changed."""
        self._stirred.set()

    async def tend(self) -> None:
        """Look whenever something changed or is due, for as long as a host serves."""
        while self._channels:
            self._stirred.clear()
            looking = asyncio.ensure_future(self.look())
            try:
                await asyncio.shield(looking)
            except asyncio.CancelledError:
                await asyncio.wait({looking}, timeout=ENDING_S)
                looking.cancel()
                raise
            except LedgerStopped:
                return  # whoever looks is told; nothing can be kept until the ledger is opened again
            except Exception as error:
                told = "The host failed while it looked whom to tell; it looks again in a minute."
                asyncio.get_running_loop().call_exception_handler({"message": told, "exception": error})
                await asyncio.sleep(FAULT_S)
            await asyncio.sleep(max(PAUSE_S, 20 * self._took_s))
            await self._rest()

    async def _rest(self) -> None:
        """Until something changed or is due."""
        left = LONGEST_S if self._due_at is None else (self._due_at - self._parts.clock.now_ms()) / 1000
        try:
            async with asyncio.timeout(min(max(left, 0), LONGEST_S)):
                await self._stirred.wait()
        except TimeoutError:
            return

    async def look(self) -> None:
        """Tell what is to be told now. Costs one small read if nothing has changed and nothing is due."""
        ledger, now = self._parts.ledger, self._parts.clock.now_ms()
        if not self._channels or ledger.stopped() is not None:
            return
        if not self._known:
            await ledger.write(verbs.know_channels, {each.name: each.digest is not None for each in self._channels})
            self._known = True
        is_due = self._due_at is not None and self._due_at <= now
        if await ledger.look(shown_version.newest) == self._seen and not is_due:
            return
        is_open = {each.id for each in await self._open()}
        answered = {str(row["question"]) for row in await ledger.all("notice_all")} - is_open
        if answered:
            await ledger.write(verbs.forget_notices, sorted(answered))
        await asyncio.gather(*(self._serve(each) for each in self._channels))
        moments = [(await self._standing(each)).due_at(now) for each in self._channels]
        self._due_at = min((at for at in moments if at is not None), default=None)

    async def _open(self) -> list[Asked]:
        """The open questions as they are now."""
        newest = await self._parts.ledger.look(shown_version.newest)
        if newest != self._seen:
            began = self._parts.clock.steady_ms()
            self._asked = await self._parts.ledger.look(self._unmended)
            self._seen = newest
            self._took_s = (self._parts.clock.steady_ms() - began) / 1000
        return self._asked

    def _unmended(self, read: Reader) -> list[Asked]:
        found = self._letters.asked(read, self._parts.clock.now_ms())
        return [each for each in found if not self._is_being_mended(read, each)]

    def _is_being_mended(self, read: Reader, asked: Asked) -> bool:
        """Whether the repair hook may still make the question go away."""
        if asked.kind != "logic" or self._parts.repair is None:
            return False
        run, tried = read.one("run_by_id", run_id=asked.run_id), read.one("repair_of_run", run_id=asked.run_id)
        under_way = tried is not None and tried["status"] == RepairStatus.ASKED
        return under_way or (run is not None and repair_budget.wanted(read, self._parts, run_record(run)))

    # -- one channel -------------------------------------------------------------------------------

    async def _serve(self, channel: Channel) -> None:
        """Send what waits, one message after the other, each by how things stand when it leaves."""
        for _ in range(MESSAGES_MAX):
            now = self._parts.clock.now_ms()
            standing = await self._standing(channel)
            if not standing.waits(now) or now < (standing.row["retry_at"] or 0):
                return
            batch = await self._batch(standing, now)
            if not await self._send(channel, batch, standing.row):
                return

    async def _standing(self, channel: Channel) -> _Standing:
        ledger, now, open_ = self._parts.ledger, self._parts.clock.now_ms(), await self._open()
        row = await ledger.one("channel_get", name=channel.name)
        assert row is not None, f"the channel {channel.name} was made known"
        told = {str(each["question"]): each for each in await ledger.all("notice_of_channel", channel=channel.name)}
        new = [each for each in open_ if each.id not in told or told[each.id]["mark"] != each.mark]
        remind_ms = int(self._parts.policy.notify_remind_s * 1000)
        rest = {each: int(told[each.id]["told_at"]) + remind_ms for each in open_ if each not in new}
        again = [each for each, at in rest.items() if at <= now]
        digest_at = next_digest(channel.digest, row["digest_at"])
        return _Standing(row, new, again, digest_at, min((at for at in rest.values() if at > now), default=None))

    async def _batch(self, standing: _Standing, now: int) -> _Batch:
        """What the next message tells: a single question, many in short, reminders, or a digest."""
        new, again, look = standing.new, standing.again, self._parts.ledger.look
        if new:
            # What was not taken is told in short: a text that a channel refuses must not hold up the others.
            together = len(new) > BURST or standing.row["attempts"]
            chosen = new if together else new[:1]
            return _Batch(await look(self._letters.letter, chosen, now, again=False), tuple(chosen))
        if again:
            return _Batch(await look(self._letters.letter, again, now, again=True), tuple(again))
        return _Batch(await self._letters.digest(standing.row["digest_at"], now), digest_until=now)

    async def _send(self, channel: Channel, batch: _Batch, seen: Row) -> bool:
        """Note it, send it, note what came of it; gives whether it was taken."""
        write, policy, failures = self._parts.ledger.write, self._parts.policy, int(seen["attempts"])
        wait_s = min(policy.notify_retry_first_s * 2 ** min(failures, 30), policy.notify_retry_longest_s)
        retry_at = self._parts.clock.now_ms() + int(1000 * wait_s)
        try:
            await write(verbs.begin_notice, seen, retry_at)
        except Conflict:
            return False  # another host of the ledger tells it
        wrong, remark = await self._tried(channel, batch.message)
        if wrong is not None:
            await write(verbs.fail_notice, channel.name, wrong, retry_at)
            return False
        told = [(each.id, each.mark) for each in batch.asked]
        await write(verbs.end_notice, channel.name, told, batch.digest_until, remark)
        return True

    async def _tried(self, channel: Channel, message: Message) -> tuple[str | None, str | None]:
        """Why a message was not taken, and what is to be said though it was."""
        seconds = self._parts.policy.notify_s
        try:
            async with asyncio.timeout(seconds):
                remark = await channel.send(message)
        except TimeoutError:
            return f"It did not take a message within {seconds:g} s.", None
        except KeepError as error:
            return visible(error.message)[:ERROR_MAX], None
        except Exception as error:  # its words may hold what the channel was entrusted with
            return f"It failed with {type(error).__name__}.", None
        return None, remark and visible(remark)[:ERROR_MAX]
