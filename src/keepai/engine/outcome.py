"""The mutationResult that `next` is given, as the text that is stored with the run."""

from __future__ import annotations

from ..model.codec import encode
from ..model.errors import ConnectorBroke
from ..model.records import Run
from ..model.states import Phase

#: Nothing was reserved, or mutate called nothing.
NONE = encode({"status": "none"})

#: A person chose to go on without the mutation.
SKIPPED = encode({"status": "skipped"})


def outcome_of(run: Run, result: str) -> str | None:
    """What `next` is told of an applied mutation, with the result as it is stored; a routine's run has no `next`."""
    return None if run.phase is Phase.EXECUTING else f'{{"result":{result},"status":"applied"}}'


def check_fits(result: str, name: str, bytes_max: int) -> None:
    """Refuse to hand a script a result that is too large for it. No script can mend that."""
    size = len(result.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise ConnectorBroke(
            f"{name} happened, but its result has {size:,} bytes; a script can be given {bytes_max:,} (policy "
            "message_bytes_max). The result is kept. The connector must return less."
        )
