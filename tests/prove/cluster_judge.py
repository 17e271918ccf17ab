"""The judge of the cluster: what the service took down, what was wanted, and what the ledger says must be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from keepai.ledger.base import OpenReader
from keepai.ledger.checks import check
from keepai.ledger.invariants import check_invariants
from keepai.model.records import Escalation, Mutation


def unsound(read: OpenReader) -> list[str]:
    """What `keep db check` finds, each rule that is broken by itself."""
    found = [each.said for each in check(read) if not each.sound and each.name != "invariants"]
    broken: dict[str, list[str]] = {}
    for each in check_invariants(read):
        broken.setdefault(each.rule, []).append(each.found)
    return found + [f"{len(all_)} times {rule}, first: {all_[0]}" for rule, all_ in broken.items()]


UNKNOWN = ("in_flight", "needs_reconcile", "indeterminate")
Wanted = Sequence[tuple[str, str, str]]


def judge(
    effects: Sequence[dict[str, Any]], mutations: Sequence[Mutation], questions: Sequence[Escalation], wanted: Wanted,
) -> list[str]:
    """What the service took down against what was wanted and what the ledger says; empty if all is well."""
    done = {_what(each) for each in effects}
    found = doubled(effects)
    lost = [" ".join(each) for each in wanted if each not in done]
    found += [f"{len(lost)} of {len(wanted)} effects are lost, first: {lost[0]}"] if lost else []
    found += [f"{' '.join(each)} was not wanted" for each in sorted(done - set(wanted))]
    found += [f"a question stays open though all was answered: {each.id} ({each.kind})" for each in questions]
    sent = {(each["run"], each["key"]) for each in effects}
    found += [f"{each.id} is {each.status}, and its effect is there" for each in mutations
              if each.status in ("failed", "skipped") and (each.run_id, each.idempotency_key) in sent]
    found += [f"{each.id} is {each.status} in the end" for each in mutations if each.status in UNKNOWN]
    # what was refused is sent under a further key, of which a ledger that lost commits need not know
    applied = Counter((_first_key(each.idempotency_key), each.result["id"])
                      for each in mutations if each.status == "applied")
    real = Counter((_first_key(each["key"]), each["result"]["id"]) for each in effects)
    found += [f"the ledger says that {entry} happened, the service does not" for entry in applied - real]
    return found + [f"the service says that {entry} happened, the ledger does not" for entry in real - applied]


def doubled(effects: Sequence[dict[str, Any]]) -> list[str]:
    """What happened more than once; this must be empty at any time."""
    times = Counter(_what(each) for each in effects)
    return [f"{' '.join(what)} happened {count} times" for what, count in times.items() if count > 1]


def _first_key(key: str) -> str:
    return key.partition("-")[0]


def _what(effect: dict[str, Any]) -> tuple[str, str, str]:
    return effect["body"]["flow"], effect["body"]["order"], effect["kind"]
