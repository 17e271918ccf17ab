"""Connectors that answer what a case says: the same names, operations and types as the real ones, nothing outside.

Params are checked by the real connector's types, and so is every answer that a case writes. A case that does not fit
them fails and says so; it does not pass by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..connectors.base import Call, Connector, OperationSpec, Page, Verdict
from ..connectors.muted import made_up
from ..connectors.type_checks import Misfit
from ..model.codec import Json
from ..model.errors import (
    BadValue,
    ConnectorBroke,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    Transient,
)
from ..model.operations import Kind
from .crash import Crashed
from .fixtures import Case
from .world import World


class _Killed(Exception):
    """The host is killed during this call; nobody gets to see it."""


@dataclass
class Scripted:
    """The world of one case: its answers, and the faults that are left."""

    case: Case
    world: World
    problems: list[str] = field(default_factory=list)  # what the case does not say, but should
    dead: bool = False  # whether the case has killed the host that runs now
    _given: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for fault in self.case.get("fault", ()):
            on = self.world.on(fault["call"])
            if fault["what"] == "answer_lost":
                on.lose_answer(times=fault.get("times", 1))
            elif fault["what"] == "crash_after":
                on.lose_answer(_Killed("after the call"), times=fault.get("times", 1))
            else:
                on.fail(_error(fault["what"], fault["call"]), times=fault.get("times", 1))

    def reach(self, point: str) -> None:
        """At every point of the host's way: one that the case has killed does not go on."""
        if self.dead:
            raise Crashed(point)

    def answer(self, spec: OperationSpec, params: Mapping[str, Json]) -> Any:
        """What the case says that a call answers: the entries that fit in their order, then the last of them."""
        fitting = [(number, each) for number, each in enumerate(self.case.get("answer", ()))
                   if each["call"] == spec.full_name and fits(each.get("params", {}), dict(params))]
        unused = [entry for entry in fitting if not self._given.get(entry[0])]
        if fitting:
            number, chosen = (unused or fitting[-1:])[0]
            self._given[number] = self._given.get(number, 0) + 1
            given = chosen.get("answer")
            return Page(given, **chosen["page"]) if isinstance(given, list) and "page" in chosen else given
        if spec.kind is Kind.MUTATION:
            return made_up(spec.result_schema)
        told = f"{spec.full_name} was called and the case has no [[case.answer]] that fits its params {dict(params)!r}."
        self.problems.append(told)
        raise ConnectorBroke(told)


def _error(what: str, call: str) -> BaseException:
    told = f"The case says that {call} is {what.replace('_', ' ')}."
    kinds: Mapping[str, type[BaseException]] = {
        "rate_limited": Transient, "denied": PermissionDenied, "missing": PreconditionFailed, "rejected": Rejected,
        "request_lost": OutcomeUnknown, "crash_before": _Killed,
    }
    return kinds[what](told)


class StandIn(Connector):
    """Takes the place of a connector."""

    def __init__(self, real: Connector, scripted: Scripted) -> None:
        super().__init__(name=real.name)
        self.account = real.account
        self.input_types = real.input_types  # type: ignore[misc]
        self._real, self._scripted = real, scripted

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """The real operations, each with its call led to the scripted world."""
        return MappingProxyType({
            name: _Operation(**{f.name: getattr(spec, f.name) for f in fields(OperationSpec)}, scripted=self._scripted)
            for name, spec in self._real.operations.items()
        })


@dataclass(frozen=True)
class _Operation(OperationSpec):
    """A real operation whose call ends in the scripted world."""

    scripted: Scripted = field(kw_only=True)

    async def invoke(self, params: Json, call: Call) -> Json | Page[Json]:
        given = params if isinstance(params, dict) else {}
        world = self.scripted.world
        ask = world.act if self.kind is Kind.MUTATION else world.look
        try:
            answer = await ask(self.full_name, given, call, lambda: self.scripted.answer(self, given))
            return self._page(answer) if isinstance(answer, Page) else self.result.dump(answer)
        except _Killed:
            self.scripted.dead = True
            raise
        except (Misfit, BadValue) as error:
            self.scripted.problems.append(f"The case's answer of {self.full_name} does not fit its type: {error}.")
            raise

    async def reconcile(self, params: Json, call: Call) -> Verdict:
        if not self.can_reconcile:
            return await super().reconcile(params, call)
        return await self.scripted.world.judge(self.full_name, params if isinstance(params, dict) else {}, call)


def fits(wanted: object, found: object) -> bool:
    """Whether `found` is as `wanted`; of objects, only the members that are wanted count."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and fits(each, found[name]) for name, each in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(fits(a, b) for a, b in zip(wanted, found, strict=True))
    return type(wanted) is type(found) and wanted == found
