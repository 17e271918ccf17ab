"""Whether a connector tells payloads apart: Keep asks it before it takes something for done already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...connectors.base import OperationSpec
from ...model.codec import Json
from ...model.errors import KeepError, in_words
from .judge import Breach
from .life import Seen


def compared(calm: Seen, specs: Mapping[str, OperationSpec]) -> Iterator[tuple[str, list[Breach]]]:
    """For each mutation that was made and can compare: what is wrong with that."""
    for call, payload in {effect.call: effect.payload for effect in calm.effects if effect.payload}.items():
        spec = specs[call]
        if spec.comparer is not None:
            yield call, list(_wrong(spec, payload))


def _wrong(spec: OperationSpec, payload: dict[str, Json]) -> Iterator[Breach]:
    other = {name: _other(value) for name, value in payload.items()}
    try:
        same, differs = spec.compare(payload, payload), spec.compare(payload, other)
    except (KeepError, TypeError, ValueError, AttributeError, LookupError) as error:
        yield Breach("question", f"compare_payload of {spec.full_name} fails: {in_words(error)}", spec.full_name)
        return
    if same != "equivalent":
        yield Breach("question", f"compare_payload of {spec.full_name} says that the same is {same}", spec.full_name)
    if other != payload and differs == "equivalent":
        yield Breach("content", f"compare_payload of {spec.full_name} says that another content is equivalent",
                    spec.full_name)


def _other(value: Json) -> Json:
    """Another value of the same type."""
    if isinstance(value, str):
        return f"something else than {value}"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1_001
    if isinstance(value, list):
        return [_other(each) for each in value]
    return {name: _other(each) for name, each in value.items()} if isinstance(value, dict) else value
