"""Sending with a ledger that was put back: what its lost part may have sent is looked up before it is sent.

A person accepted a ledger that is older than it was. Its producers bring the lost work again, and each thing that
follows from it has the key that it had: the outside system is asked for that key first. This goes on until the workflow
has caught up: each of its producers and routines has run until it brought nothing new, or for as long again as was
lost. What came in after that cannot have been sent before.
"""

from __future__ import annotations

from ..connectors.base import OperationSpec
from ..ledger.base import Reader
from ..model.clock import iso
from ..model.codec import encode
from ..model.errors import KeepError, OutcomeUnknown
from ..model.records import Mutation, Run
from ..script.manifest import HandlerKind
from . import reconcile
from .host_parts import Parts
from .outside import Answer

#: A producer that always brings something new has caught up after as much time as was lost, and not before this.
_LEAST_MS = 3_600_000


async def note_put_back(parts: Parts) -> None:
    """See which workflows were put back: where hosts share a ledger, a person may have accepted it at another one."""
    parts.put_back = {row["workflow_id"]: row for row in await parts.ledger.all("put_back_all")}


async def look_up(parts: Parts, run: Run, spec: OperationSpec, mutation: Mutation) -> Answer | None:
    """What is known of a thing that may have been sent before; None: it was not, and may be sent."""
    if not await parts.ledger.look(_may_repeat, parts, run, mutation):
        return None
    name, back = f"{mutation.connector}.{mutation.operation}", parts.put_back[run.workflow_id]
    put_back = f"The ledger was put back on {iso(back['accepted_at'])}, and may have sent “{mutation.preview}” before"
    if not spec.can_reconcile:
        return _unknown(f"{put_back}; {name} cannot be asked. Nothing was sent now.")
    settles = parts.call_ends.started_ms + int(reconcile.settle_s(parts, spec) * 1000)  # nothing of it was sent later
    proves = parts.clock.steady_ms() >= settles
    verdict = await reconcile.ask(parts, run, spec, mutation, proves=proves)
    if verdict.status == "failed" and proves:
        return None
    if verdict.status == "applied":
        try:
            return Answer(result=encode(verdict.result, what=f"the result of {name}"))
        except KeepError as error:
            return _unknown(f"{put_back}; what {name} found cannot be kept: {error.message}")
    return _unknown(f"{put_back}; {name} could not tell yet. Nothing was sent now.")


def _unknown(why: str) -> Answer:
    return Answer(unknown=OutcomeUnknown(why))


def _may_repeat(read: Reader, parts: Parts, run: Run, mutation: Mutation) -> bool:
    """Whether a thing that is about to be sent may have been sent in the part of the account that was lost."""
    back, workflow_id = parts.put_back[run.workflow_id], run.workflow_id
    key = {"workflow_id": workflow_id, "mutation_key": mutation.mutation_key, "seq": back["seq"]}
    if read.one("put_back_known", **key):
        return False
    number = _caught_up(read, parts, workflow_id)
    return number is None or read.one(
        "put_back_work", workflow_id=workflow_id, run_id=run.id, lineage=run.lineage, number=number) is not None


def _caught_up(read: Reader, parts: Parts, workflow_id: str) -> int | None:
    """The number of the workflow's sequence at which it had caught up; None: it has not yet."""
    back = parts.put_back[workflow_id]
    number = int(back["seq"])
    row = read.one("workflow_by_id", workflow_id=workflow_id)
    assert row is not None
    later = back["accepted_at"] + max(_LEAST_MS, back["until_at"] - back["since_at"])
    for handler in parts.script(read, workflow_id, (row["major"], row["minor"])).manifest.handlers:
        if handler.kind is HandlerKind.CONSUMER:
            continue
        passed = read.one(
            "put_back_passed", workflow_id=workflow_id, handler=handler.name, seq=back["seq"], later=later)
        if passed is None:
            return None
        number = max(number, int(passed["seq"]))
    return number
