"""What goes on while runs of a workflow wait, and what parked runs hold, in words."""

from __future__ import annotations

from ..ledger.base import Reader, Row
from ..ledger.transitions.parking import ANYTHING, CONNECTOR, TARGET
from ..model.policy import Policy
from ..model.records import ParkedRun
from ..model.states import Waiting, shown
from .wording import count

#: While a run waits for a person, what else of its workflow does.
GOES_ON = {
    Waiting.STOP: "nothing else of it runs",
    Waiting.INTAKE: "its producers go on",
    Waiting.OTHERS: "whatever does not depend on that run goes on",
}


def parked_runs(read: Reader, workflow_id: str) -> tuple[ParkedRun, ...]:
    """The parked runs of a workflow, in the order in which they may write."""
    return tuple(
        ParkedRun(
            row["run_id"], row["stopped_in"], shown(row["status"], row["reason"]), row["parked_at"], _holds(row),
        )
        for row in read.all("parked_all", workflow_id=workflow_id)
    )


def _holds(row: Row) -> tuple[str, ...]:
    writes = {
        TARGET: f"{row['connector']}: {row['target']}" if row["target"] else str(row["connector"]),
        CONNECTOR: f"everything of {row['connector']}", ANYTHING: "every target",
    }.get(row["writes"])
    events = [count(int(row["reserved"]), "reserved event")] if row["reserved"] else []
    events += [f"the item “{row['item']}”"] if row["item"] is not None else []
    events += [f"{count(int(row['events']), 'event')} of the same inputs"] if row["events"] else []
    return (*events, *([writes] if writes else []), *([f"the handler {row['handler']}"] if row["handler"] else []))


def full(workflow: Row, policy: Policy) -> str | None:
    """Why nothing begins though runs could be parked: there are as many as may be."""
    if workflow["parked"] < policy.parked_max:
        return None
    return (
        f"{workflow['parked']:,} runs of it are parked, the most that policy parked_max allows: nothing else begins "
        "until one of them is answered."
    )


def summary(workflow: Row, policy: Policy) -> str:
    """That runs of a workflow are parked, and what that means for the others; nothing if none is."""
    if not workflow["parked"]:
        return ""
    one = workflow["parked"] == 1
    others = {
        Waiting.STOP: "nothing else of it begins", Waiting.INTAKE: "its producers go on",
        Waiting.OTHERS: f"what does not depend on {'it' if one else 'them'} goes on",
    }[Waiting(workflow["waiting"])]
    parked = f"{count(workflow['parked'], 'run')} of it {'is' if one else 'are'} parked; {others}."
    return f" {full(workflow, policy) or parked}"
