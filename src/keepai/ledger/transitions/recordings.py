"""What each step of a run was given, kept in the commit that ends the step, of the newest runs only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.fast_record import fast_record
from ...model.records import Run
from ..base import Tx


@fast_record
@dataclass(frozen=True)
class Recorded:
    """What one step was given, as the text that is kept."""

    step: str
    given: str
    texts: Mapping[str, str] = field(default_factory=dict)  # by their hashes; `given` names them
    keep: int = 0  # of so many runs recordings are kept, and older ones are thrown away now; 0: none are now


def keep(tx: Tx, run: Run, recorded: Recorded | None) -> None:
    """Keep it beside its run."""
    if recorded is None:
        return
    where = {"workflow_id": run.workflow_id}
    if recorded.texts:
        tx.many("recorded_text_insert", [
            {**where, "hash": hash, "newest": run.seq, "text": text} for hash, text in recorded.texts.items()])
    tx.run("recording_insert", **where, seq=run.seq, step=recorded.step, given=recorded.given)
    if recorded.keep:
        oldest = tx.one("recording_oldest_kept", **where, most=recorded.keep)
        if oldest is not None:
            forget(tx, run.workflow_id, int(oldest["seq"]))


def forget(tx: Tx, workflow_id: str, seq: int) -> None:
    """Throw away what a run and all before it were given."""
    tx.run("recording_trim", workflow_id=workflow_id, seq=seq)
    tx.run("recorded_text_trim", workflow_id=workflow_id, seq=seq)
