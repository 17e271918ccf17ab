"""Questions about items that their routine began and left unfinished, so that a person learns of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..ledger.base import Reader, Row
from ..ledger.rows import mutation_record, run_record
from ..model.codec import Json
from ..model.records import Escalation
from ..model.states import MutationStatus

#: What a person can do about an item that was left behind.
LEFT_ACTIONS = ("reprocess", "skip_input")


def left_behind(read: Reader, workflow_id: str | None) -> list[Escalation]:
    """One question for each item that was begun and not finished, and on which no run works now."""
    return [_question(read, row) for row in read.all("look_items_left", workflow_id=workflow_id)]


def left_actions(read: Reader, row: Row) -> tuple[str, ...]:
    """The acts that would be accepted: an item whose routine is gone cannot be worked on."""
    handler = read.one("handler_get", workflow_id=row["workflow_id"], handler=row["handler"])
    gone = handler is None or not handler["present"]
    return tuple(act for act in LEFT_ACTIONS if not (gone and act == "reprocess"))


def why_left(row: Row, last_run: str) -> str:
    """The sentence for an item that its routine did not come back to."""
    return (
        f"The routine {row['handler']!r} began “{row['title']}” and ended without finishing it: "
        f"after run {last_run} it did not come back to it. It is worked on again if the routine offers it again."
    )


def applied_of(read: Reader, row: Row) -> list[Json]:
    """What was applied for an item, in the host's words."""
    sent = [mutation_record(m) for m in read.all("look_mutations_of_item", item_id=row["id"])]
    return [m.preview for m in sent if m.status is MutationStatus.APPLIED]


def sent_again(applied: Sequence[object]) -> str:
    """What a new attempt does with what was applied: it is sent again, because each attempt is work of its own."""
    if not applied:
        return ""
    many = "1 mutation that was applied for it is" if len(applied) == 1 else (
        f"{len(applied)} mutations that were applied for it are")
    return f" {many} sent again if the script still makes {'it' if len(applied) == 1 else 'them'}."


def _question(read: Reader, row: Row) -> Escalation:
    runs = read.all("look_runs_of_item", workflow_id=row["workflow_id"], item_id=row["id"])
    last = run_record(runs[-1])
    return Escalation(
        id=f"ask_{row['id']}", kind="attention", workflow_id=row["workflow_id"], run_id=last.id, mutation_id=None,
        title=row["title"], actions=left_actions(read, row),
        facts={
            "why": why_left(row, last.id), "handler": row["handler"], "item_id": row["id"],
            "input_id": row["input_id"], "inputs": [row["title"]], "attempt": row["attempt"],
            "title_by_script": row["title"], "already_applied": applied_of(read, row),
        },
    )
