"""The mutationResult that `next` is given, as the text that is stored with the run."""

from __future__ import annotations

from ..model.codec import encode
from ..model.records import Run
from ..model.states import Phase

#: Nothing was reserved, or mutate called nothing.
NONE = encode({"status": "none"})

#: A person chose to go on without the mutation.
SKIPPED = encode({"status": "skipped"})


def outcome_of(run: Run, result: str) -> str | None:
    """What `next` is told of an applied mutation; a routine's run has no `next`."""
    return None if run.phase is Phase.EXECUTING else applied(result)


def applied(result: str) -> str:
    """It happened; the stored bytes of the result stand in it unchanged."""
    return '{"result":' + result + ',"status":"applied"}'
