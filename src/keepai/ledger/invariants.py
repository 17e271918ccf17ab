"""What must hold of every ledger at every moment, read off the file alone.

Each rule is a statement of queries/invariants.sql that must find nothing, named with the invariant that it guards.
The history is checked as well: every row came to its state by moves that its table lists, and no move is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.states import MACHINES
from .account import walk
from .base import Reader

#: Statement, without `never_` → (invariant, what it would find).
RULES: Mapping[str, tuple[str, str]] = {
    "event_unaccounted": ("I17", "an event that ended without exactly one committed run, or a person who skipped it"),
    "event_taken_twice": ("I15", "an attempt at an event that two runs committed"),
    "event_held_by_none": ("I14", "an event reserved by a run that is not open, or that has no reservation of it"),
    "reservation_not_held": ("I14", "an open run whose reservation is not held"),
    "event_of_no_commit": ("I15", "an event or input of a run that did not commit"),
    "item_without_input": ("I20", "an item whose input was not made with it"),
    "mutation_outside_item": ("I9", "a mutation of a routine outside of the items that its run worked on"),
    "item_in_no_hand": ("I17", "an item in hand of a lineage that has ended"),
    "applied_twice": ("I8", "a thing applied twice in one attempt"),
    "sent_on_a_guess": ("I2", "a thing sent again before the last send was known to have failed"),
    "event_without_cause": ("I20", "a producer's event without a cause"),
    "cause_missing": ("I20", "a consumer's event that lacks a cause of what its run reserved"),
    "cause_made_up": ("I20", "a consumer's event with a cause, from its beginning, of which its run reserved nothing"),
    "cause_ahead": ("I20", "a cause of an event with a payload that the event does not have"),
    "cause_came_later": ("I20", "an input behind what a run reserved that came in after it"),
    "run_not_pinned": ("I12", "a run past prepare without its PrepareResult"),
    "reserved_too_early": ("I12", "a run that reserved before it was prepared"),
    "outcome_missing": ("I16", "a run after its mutation without its outcome"),
    "committed_unresolved": ("I16", "a committed run with a mutation that is neither applied nor skipped"),
    "applied_behind": ("I8", "a run that is still to send what was applied already"),
    "applied_and_skipped": ("I32", "a run that ended as skipped though its mutation happened"),
    "sent_once_more": ("I9", "an applied mutation whose lineage was sent once more"),
    "doubt_of_no_run": ("I6", "a mutation in flight or in doubt whose run is not open"),
    "carried_on_twice": ("I14", "a run that others carry on from twice"),
    "run_left": ("I28", "a run that was left and that nobody carries on"),
    "lineage_committed_twice": ("I15", "two committed runs of one lineage"),
    "reservation_changed": ("I13", "a reservation that changed on its way to the run that carries on"),
    "answer_without_act": ("I34", "a person's word about a mutation without the act that it came by"),
    "approval_used_twice": ("I29", "an approval that was used and whose call is not on record"),
    "done_in_doubt": ("I16", "an item that ended while a mutation of it was not known to have happened or not"),
    "pruned_unfinished": ("I17", "an event that waits and whose payload was pruned"),
    "two_hosts_at_once": ("I23", "a run of a host that worked on after a later one had begun: two hosts had the file"),
    "open_run_of_no_host": ("I23", "an active run of a host that the ledger does not know"),
}


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold, and of what."""

    invariant: str
    rule: str
    found: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.rule}: {self.found}"


def check_invariants(read: Reader) -> list[Broken]:
    """Everything that is broken; nothing is changed."""
    return [*check_rules(read), *_history(read)]


def check_rules(read: Reader) -> list[Broken]:
    """What must not stand in the ledger now; how it came about is not looked at."""
    return [
        Broken(invariant, rule, ", ".join(str(value) for value in row.values()))
        for name, (invariant, rule) in RULES.items() for row in read.all(f"never_{name}")
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
            yield Broken("I34", f"a {name} that moved unseen", became)
        if target not in (machine.initial if source is None else machine.moves[machine.states(source)]):
            yield Broken("I11", f"a {name} that moved as its table does not allow", f"{subject}: {source} → {target}")
        last[name, subject] = target
    for row in read.all("history_ends"):
        if last.get((row["machine"], row["subject"])) != row["state"]:
            yield Broken("I34", f"a {row['machine']} whose history ends elsewhere", f"{row['subject']}: {row['state']}")
