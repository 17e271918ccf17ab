"""Connectors that can send nothing, for whatever only tries a script: a mutation gets a result that is made up from its
type, and reads are made, or are not, as the trial wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..model.codec import Json
from ..model.errors import Transient
from ..model.operations import Kind
from .base import Call, Connector, OperationSpec, Page, Verdict


@dataclass
class Muting:
    """What the muted connectors of one trial share."""

    mutations_max: int
    reads: bool = True  # whether reads are made
    mutations: int = 0  # that were answered
    more: bool = False  # whether there were more than that
    unread: set[str] = field(default_factory=set)  # the reads that were wanted, and not made


class MutedConnector(Connector):
    """Takes the place of a connector in a trial."""

    def __init__(self, real: Connector, muting: Muting) -> None:
        super().__init__(name=real.name)
        self.account = real.account
        self.input_types, self.secrets = real.input_types, real.secrets  # type: ignore[misc]
        self._real, self._muting = real, muting

    def entrusted(self) -> Mapping[str, str]:
        return self._real.entrusted()

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """The real operations with their words and types, each without a way to send anything."""
        return MappingProxyType({
            name: _Muted(**{each.name: getattr(spec, each.name) for each in fields(OperationSpec)},
                         real=spec, muting=self._muting)
            for name, spec in self._real.operations.items()
        })


@dataclass(frozen=True)
class _Muted(OperationSpec):
    """One operation in a trial."""

    real: OperationSpec = field(kw_only=True)
    muting: Muting = field(kw_only=True)

    async def invoke(self, params: Json, call: Call) -> Json | Page[Json]:
        if self.kind is not Kind.MUTATION:
            return await self._read(params, call)
        if self.muting.mutations == self.muting.mutations_max:
            self.muting.more = True
            raise Transient(f"{self.full_name} is one call more than is tried.")
        self.muting.mutations += 1
        return made_up(self.result_schema)

    async def _read(self, params: Json, call: Call) -> Json | Page[Json]:
        if self.muting.reads:
            return await self.real.invoke(params, call)
        self.muting.unread.add(self.full_name)
        raise Transient(f"{self.full_name} is not read in a trial.")

    async def reconcile(self, params: Json, call: Call) -> Verdict:
        return Verdict.retry()  # what was sent for real is not looked up


def made_up(schema: Mapping[str, Any] | None) -> Json:
    """A made-up value of a type."""
    return _value(schema or {}, (schema or {}).get("$defs", {}))


def _value(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Json:
    if "$ref" in schema:
        return _value(defs.get(str(schema["$ref"]).rpartition("/")[2], {}), defs)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return _value(schema[word][0], defs)
    if "enum" in schema or "const" in schema:
        value: Json = schema["const"] if "const" in schema else schema["enum"][0]
        return value
    kind = schema.get("type")
    if kind == "object":
        needed = schema.get("required", ())
        return {name: _value(each, defs) for name, each in schema.get("properties", {}).items() if name in needed}
    samples: Mapping[object, Json] = {"string": "made-up", "integer": 1, "number": 1, "boolean": True, "array": []}
    return samples.get(kind)
