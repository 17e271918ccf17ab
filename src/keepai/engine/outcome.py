"""The mutationResult that `next` is given, as the text that is stored with the run."""

from __future__ import annotations

from ..model.codec import encode

#: Nothing was reserved, or mutate called nothing.
NONE = encode({"status": "none"})

#: A person chose to go on without the mutation.
SKIPPED = encode({"status": "skipped"})


def applied(result: str) -> str:
    """It happened; the stored bytes of the result stand in it unchanged."""
    return '{"result":' + result + ',"status":"applied"}'
