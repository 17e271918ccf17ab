"""Evidence that came after an outcome was recorded, and contradicts it, as a question to a person.

It changes no state and holds nothing up. The question stands until a person says that the evidence was seen.
"""

from __future__ import annotations

from ..ledger.base import Reader
from ..ledger.rows import mutation_record
from ..model.clock import iso
from ..model.codec import Json
from ..model.records import Escalation, Mutation
from ..model.states import DOUBTFUL, MutationStatus
from . import reasons
from .questions import sent_facts
from .unknown_outcome import by_hand, late_evidence

#: Outcome on record → what later evidence says against it.
MEANINGS = {
    MutationStatus.FAILED: "It is on record as not done, and later evidence says that it happened.",
    MutationStatus.SKIPPED: "It was skipped without knowing, and later evidence says that it happened.",
    MutationStatus.APPLIED: "It is on record as done, and later evidence says that it did not happen.",
}


def contradictions(read: Reader, workflow_id: str | None = None) -> list[tuple[int, Escalation]]:
    """Every such question, of one workflow or of all, with the moment since which it is asked."""
    found = [mutation_record(row) for row in read.all("look_contradicted")]
    return [(m.contradicted_at or 0, _question(read, m)) for m in found if workflow_id in (None, m.workflow_id)]


def _question(read: Reader, mutation: Mutation) -> Escalation:
    return Escalation(
        id=f"ask_{mutation.id}", kind="attention", workflow_id=mutation.workflow_id, run_id=mutation.run_id,
        mutation_id=mutation.id, title=mutation.title or mutation.preview, facts=_facts(read, mutation),
        actions=("seen",),
    )


def _facts(read: Reader, mutation: Mutation) -> dict[str, Json]:
    inputs = read.all("look_inputs_of_run", workflow_id=mutation.workflow_id, run_id=mutation.run_id)
    again = _sent_again(read, mutation)
    assert mutation.contradicted_at is not None, mutation
    return {
        "why": MEANINGS[mutation.status], "recorded": reasons.of_mutation(mutation),
        "recorded_by": mutation.resolution, "late_evidence": late_evidence(mutation),
        "noticed_at": iso(mutation.contradicted_at), "inputs": [str(row["title"]) for row in inputs],
        "check_by_hand": f"{by_hand(mutation)} {_if_so(mutation, again)}",
        "sent_again": [each.id for each in again], **sent_facts(mutation),
    }


def _sent_again(read: Reader, mutation: Mutation) -> list[Mutation]:
    """What was sent after it for the same inputs, which may be the same effect a second time."""
    where = {"workflow_id": mutation.workflow_id, "lineage": mutation.lineage}
    sent = [mutation_record(row) for row in read.all("look_mutations_of_lineage", **where)]
    place = [each.id for each in sent].index(mutation.id)
    return [each for each in sent[place + 1 :] if each.mutation_key == mutation.mutation_key]


def _if_so(mutation: Mutation, again: list[Mutation]) -> str:
    """What follows if the later evidence is right."""
    if mutation.status is MutationStatus.APPLIED:
        return "If it is not there, do it by hand, or have its event processed again."
    twice = [each for each in again if each.status in DOUBTFUL | {MutationStatus.APPLIED}]
    if twice:
        named = ", ".join(f"{each.id} ({each.status})" for each in twice)
        return f"It was sent again as {named}: it may have happened twice."
    return "If it is there, what follows it has not been done, and it may be sent again."
