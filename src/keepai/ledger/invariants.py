"""What must hold of every ledger at every moment, read off the file alone.

Each rule is a statement of queries/invariants.sql that must find nothing. The history is checked as well: every row
came to its state by moves that its table lists, and no move is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.states import MACHINES
from .account import walk
from .base import Reader

#: Statement, without `never_` → what it would find.
RULES: Mapping[str, str] = {
    "event_unaccounted": "an event that ended without exactly one committed run, or a person who skipped it",
    "event_taken_twice": "an attempt at an event that two runs committed",
    "event_held_by_none": "an event reserved by a run that is not open, or that has no reservation of it",
    "reservation_not_held": "an open run whose reservation is not held",
    "event_of_no_commit": "an event or input of a run that did not commit",
    "item_without_input": "an item whose input was not made with it",
    "mutation_outside_item": "a mutation of a routine outside the items that its run worked on",
    "item_in_no_hand": "an item that a run works on whose lineage has ended",
    "applied_twice": "a thing applied twice in one attempt",
    "sent_on_a_guess": "a thing sent again before the last send was known to have failed",
    "event_without_cause": "a producer's event without a cause",
    "cause_missing": "a consumer's event that lacks a cause of what its run reserved",
    "cause_made_up": "a consumer's event with a cause, from its beginning, of which its run reserved nothing",
    "cause_ahead": "a cause of an event with a payload that the event does not have",
    "cause_came_later": "an input behind what a run reserved that came in after it",
    "run_not_pinned": "a run past prepare without its PrepareResult",
    "reserved_too_early": "a run that reserved before it was prepared",
    "outcome_missing": "a run after its mutation without its outcome",
    "committed_unresolved": "a committed run with a mutation that is neither applied nor skipped",
    "applied_behind": "a run that is still to send what was applied already",
    "applied_and_skipped": "a run that ended as skipped though its mutation happened",
    "sent_once_more": "an applied mutation whose lineage was sent once more",
    "doubt_of_no_run": "a mutation in flight or in doubt whose run is not open",
    "carried_on_twice": "a run that others carry on from twice",
    "run_left": "a stopped run that no other run carries on",
    "lineage_committed_twice": "two committed runs of one lineage",
    "reservation_changed": "a reservation that changed on its way to the run that carries on",
    "answer_without_act": "a person's answer about a mutation without the act that gave it",
    "approval_used_twice": "an approval that was used and whose call is not on record",
    "done_in_doubt": "an item that ended while the outcome of one of its mutations was unknown",
    "pruned_unfinished": "an event that waits and whose payload was pruned",
    "two_hosts_at_once": "a run of a host that went on after a later host had begun: two hosts had the file",
    "parked_unknown": "a parked run of which nothing says what it holds",
    "parked_item_taken": "an item that a parked run carries on, and that another run has begun since",
    "parked_cause_free": "an event that anybody may take though a parked run works on an input of it",
    "event_held_for_none": "an event that waits for a run which is not parked, or has nothing to do with it",
    "open_run_of_no_host": "an active run of a host that the ledger does not know",
}


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold, and of what."""

    rule: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.found}"


def check_invariants(read: Reader) -> list[Broken]:
    """Everything that is broken; nothing is changed."""
    return [*check_rules(read), *_history(read)]


def check_rules(read: Reader) -> list[Broken]:
    """What must not stand in the ledger now; how it came about is not looked at."""
    return [
        Broken(rule, ", ".join(str(value) for value in row.values()))
        for name, rule in RULES.items() for row in read.all(f"never_{name}")
    ]


def _history(read: Reader) -> Iterator[Broken]:
    """Every row's history is a chain of legal moves from a first state to its present one."""
    last: dict[tuple[str, str], str] = {}
    for row in walk(read):
        name, subject = str(row["machine"]), str(row["subject"])
        if name not in MACHINES:
            continue  # an act, or a decision without a move
        machine, source, target = MACHINES[name], row["source"], row["target"]
        if source != last.get((name, subject)):
            became = f"{subject}: {last.get((name, subject))} became {source}"
            yield Broken(f"a {name} that moved unseen", became)
        if target not in (machine.initial if source is None else machine.moves[machine.states(source)]):
            yield Broken(f"a {name} that moved as its table does not allow", f"{subject}: {source} → {target}")
        last[name, subject] = target
    for row in read.all("history_ends"):
        if last.get((row["machine"], row["subject"])) != row["state"]:
            yield Broken(f"a {row['machine']} whose history ends elsewhere", f"{row['subject']}: {row['state']}")
