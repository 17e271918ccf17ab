"""Whether a call's turn has come under the limits that it has. A slot is taken by recording the mutation itself, in the
same commit as its intent: what was sent is counted from the mutations, so it holds over kills, restarts and hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...model.clock import iso
from ...model.errors import Conflict
from ...model.fast_record import fast_record
from ...model.flow_limits import RateWindow, Rule
from ...model.records import Mutation
from ..base import Reader, Tx

_LOOK_AGAIN_MS = 1_000  # whether a call has ended that another host makes
_LOOK_AGAIN_LONGEST_MS = 60_000
#: Clocks of hosts may differ by so much. What was sent later than that from now was sent before the clock was set back.
_CLOCKS_DIFFER_MS = 60_000


@fast_record
@dataclass(frozen=True)
class Turn:
    """A call's turn that has not come yet."""

    at: int  # when it can come, as far as it is known now
    rule: str  # that holds it back, as keep.toml has it
    until: str  # what it waits for by that rule, in words
    in_line: bool  # only other calls of the connection are before it

    @property
    def why(self) -> str:
        """The rule, and what it waits for."""
        return f"{self.rule}: {self.until}"


def turn(
    read: Reader, limits: Sequence[Rule], workflow_id: str, connector: str, now: int, ahead: int = 0,
) -> Turn | None:
    """When a call may be sent, `ahead` others of its connection first; None: now."""
    found = [each for rule in limits for each in _turns(read, rule, workflow_id, connector, now, ahead)]
    latest = max(found, key=lambda each: each.at, default=None)
    if latest is None:
        return None
    return Turn(latest.at, latest.rule, latest.until, all(each.in_line for each in found))


def _turns(read: Reader, rule: Rule, workflow_id: str, connector: str, now: int, ahead: int) -> list[Turn]:
    """What each limit of a rule says; nothing if it lets the call through."""
    found, limit = list[Turn](), rule.limit
    before = 0 if rule.is_of_workflow else ahead
    times = [_free_at(read, rule, each, workflow_id, connector, now, before) for each in limit.windows]
    if (free_at := max(times, default=now)) > now:
        its_turn = f"its turn comes at {iso(free_at)}."
        found.append(Turn(free_at, f"[{rule.place}] {limit.rate_in_words}", its_turn, not rule.is_of_workflow))
    if limit.concurrency is not None:
        row = read.one("limit_under_way", connector=connector)
        under_way, first = (int(row["number"]), row["mutation_id"]) if row else (0, None)
        if (behind := under_way + before + 1 - limit.concurrency) > 0:
            busy = f"{first} is under way." if first is not None else "other calls are before it."
            at = now + min(_LOOK_AGAIN_MS * behind, _LOOK_AGAIN_LONGEST_MS)
            found.append(Turn(at, f"[{rule.place}] concurrency = {limit.concurrency}", busy, in_line=True))
    opens_at = limit.opens_at(now)
    if opens_at > now:
        closed = f"nothing is sent before {iso(opens_at)}."
        found.append(Turn(opens_at, f"[{rule.place}] {limit.hours_in_words}", closed, not rule.is_of_workflow))
    return found


def _free_at(
    read: Reader, rule: Rule, window: RateWindow, workflow_id: str, connector: str, now: int, ahead: int,
) -> int:
    """When a window has room for one more, after `ahead` others."""
    laps, more = divmod(ahead, window.most)
    sent_at = _sent_at(read, rule, window, workflow_id, connector, now, window.most - 1 - more)
    return max(now, now if sent_at is None else sent_at + window.ms) + laps * window.ms


def _sent_at(
    read: Reader, rule: Rule, window: RateWindow, workflow_id: str, connector: str, now: int, newer: int,
) -> int | None:
    """When the mutation was sent that this many newer ones follow in a window that ends now."""
    stretch = {"since": now - window.ms, "until": now + max(window.ms, _CLOCKS_DIFFER_MS), "newer": newer}
    if rule.is_of_workflow:
        row = read.one("limit_sent_by_workflow", workflow_id=workflow_id, **stretch)
    else:
        row = read.one("limit_sent_by_connector", connector=connector, **stretch)
    return int(row["first_sent_at"]) if row else None


def expect_turn(tx: Tx, limits: Sequence[Rule], sent: Mutation) -> None:
    """A mutation that was just recorded must be within its limits. It is counted after it was recorded, because verbs
    of one transaction may run side by side: the later of two then sees the earlier."""
    for rule in limits:
        full = any(
            _sent_at(tx, rule, each, sent.workflow_id, sent.connector, tx.now, each.most) is not None
            for each in rule.limit.windows
        )
        most = rule.limit.concurrency
        if not full and most is not None:
            full = int(tx.row("limit_under_way", "a count is always there", connector=sent.connector)["number"]) > most
        if full or rule.limit.opens_at(tx.now) > tx.now:
            raise Conflict(f"Nothing was sent: others were quicker under [{rule.place}].")
