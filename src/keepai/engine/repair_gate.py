"""Decides whether a repair may go live by itself: by what recorded runs show, never by what its author says.

It may if the new script does the same in every recorded run that passed, and with the input that failed it makes its
call to a target to which this workflow's mutations have gone before. Whatever is not known keeps it waiting. What it
says there for the input that failed, nobody can compare with anything: that is what this gate does not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ledger.base import Reader
from ..model.errors import KeepError, LedgerStopped
from ..model.records import Record, Run
from ..script.manifest import Handler, HandlerKind, Manifest
from .host_parts import Loaded, Parts
from .recorded_run import Made, NotedCall, NotRecorded, RecordedRun, load, perform, sent_by
from .shadow import ShadowReport, shadow


@dataclass(frozen=True)
class RepairTrial(Record):
    """A repair, tried on recorded runs and on the input that failed."""

    report: ShadowReport
    sends: tuple[str, ...]  # what it would send for the input that failed, in the connector's words
    waits: str | None  # why a person must decide; None: it may go live by itself


async def try_repair(parts: Parts, run: Run, before: Manifest, new: Loaded) -> RepairTrial:
    """Try a repair of the version that failed in `run`."""
    report = await shadow(parts, run.workflow_id, new.source, last=parts.policy.recordings_max)
    recorded = await parts.ledger.look(load, run)
    try:
        made = await perform(parts, recorded, new)
    except LedgerStopped:
        raise
    except NotRecorded as missing:
        return RepairTrial(report, (), _unfit(parts, report, before, new) or f"With the input that failed, {missing}.")
    except KeepError as error:
        fails = f"With the input that failed, it fails as well: {error.message}"
        return RepairTrial(report, (), _unfit(parts, report, before, new) or fails)
    waits = _unfit(parts, report, before, new) or _takes_more(recorded, made) or _leads_on(recorded, new, made)
    waits = waits or await parts.ledger.look(_new_target, parts, run, made.calls)
    return RepairTrial(report, tuple(call.preview for call in made.calls), waits)


def _unfit(parts: Parts, report: ShadowReport, before: Manifest, new: Loaded) -> str | None:
    """Why recorded runs do not speak for a repair."""
    if parts.policy.repairs == "person":
        return "A person lets every repair in (policy repairs)."
    if not report.runs:
        return "No run of this version was recorded, so nothing shows what else it changes."
    if report.changed:
        return "It does something else in recorded runs."
    if not report.all_same:
        return "Some recorded runs cannot be compared."
    if _declared(before) != _declared(new.manifest):
        return "It declares other handlers, topics or schedules than the version that failed."
    silent = [h.name for h in before.handlers if h.name not in report.handlers]
    if silent:
        return f"No recorded run shows what it does in {', '.join(silent)}."
    return None


def _declared(manifest: Manifest) -> object:
    return manifest.topics, [
        (h.name, h.kind, h.subscribe, h.publishes, h.schedule, h.has_mutate, h.has_next) for h in manifest.handlers]


def _takes_more(recorded: RecordedRun, made: Made) -> str | None:
    """An event that is taken and not worked on would be lost."""
    pinned = [(row["topic"], row["message_id"]) for row in recorded.reserved]
    if len(made.taken) > 1 and made.taken != pinned:
        return f"With the input that failed, it takes {len(made.taken)} events at once."
    return None


def _leads_on(recorded: RecordedRun, new: Loaded, made: Made) -> str | None:
    """Why it is not known where all of it ends that the repair does with the input that failed."""
    handler = new.manifest.handler(recorded.run.handler)
    assert handler is not None, "a repair keeps the handler that failed"
    if handler.kind is not HandlerKind.CONSUMER and made.calls and made.stops:
        return f"With the input that failed, it sends “{made.calls[-1].preview}”, and {made.stops}."
    if not made.calls:
        return "With the input that failed, it sends nothing, so nothing shows that its work is done."
    if sent_by(recorded):
        return "For the input that failed, something was sent already."
    acting = _acted_on(handler, new.manifest)
    if acting:
        return f"What it publishes for the input that failed is worked on by {', '.join(acting)}, and no run shows how."
    return None


def _acted_on(handler: Handler, manifest: Manifest) -> Sequence[str]:
    """The handlers that may send something because of what a handler publishes."""
    topics = manifest.topics if handler.publishes is None else handler.publishes
    found = (manifest.subscriber(topic) for topic in topics) if handler.has_next else ()
    return [each.name for each in found if each is not None]


def _new_target(read: Reader, parts: Parts, run: Run, calls: Sequence[NotedCall]) -> str | None:
    """Why the repair may not send what it wants to: nothing of this workflow has gone there before."""
    for call in calls:
        connector, _, operation = call.capability.partition(".")
        if not call.target:
            return f"Its connector does not say where “{call.preview}” goes to."
        known = read.one(
            "target_applied", workflow_id=run.workflow_id, connector=connector, operation=operation,
            account=parts.account(connector), target=call.target)
        if known is None:
            return f"With the input that failed, it sends “{call.preview}”: nothing of this workflow went there before."
    return None
