"""One operation of one connector instance, as the engine uses it.

The engine passes JSON in and gets JSON back. Types, names and the connector's optional methods are known here only.
Exceptions of the connector's method pass through unchanged; the engine decides what they lead to.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from ..model.codec import Json, canonical, shown
from ..model.errors import BadValue, ConfigError, ConnectorBroke, KeepError, RuleBroken
from ..model.operations import Kind, Params
from ..model.permissions import ParamKind
from ..model.visible_text import described, visible
from .kit.params import kinds_in
from .type_checks import Misfit, Shape
from .values import Call, Page, Verdict

Comparison = Literal["equivalent", "minor", "significant"]
_COMPARISONS = typing.get_args(Comparison)
_EVIDENCE_MAX = 4_000  #: characters of an unusable result that a person is shown
Method = Callable[[Any, Call], Awaitable[object]]


@dataclass(frozen=True)
class OperationSpec:
    """What the engine knows about an operation, and how it calls it."""

    connector: str
    name: str  # as scripts write it: `appendRow`
    kind: Kind
    method: Method
    params: Shape
    result: Shape
    doc: str = ""
    returns_page: bool = False
    identity_names: tuple[str, ...] = ()
    target_name: str | None = None
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # param → the values that keep.toml allows
    settle_s: float | None = None  # None: policy decides
    key_window_s: float | None = None  # for how long the outside system honours a key; None: it does not
    reconciler: Method | None = None
    comparer: Callable[[Json, Json], object] | None = None
    describer: Callable[[Any], object] | None = None
    asks: bool = False  # granting "all" means that a person is asked: what it does is only known from its server

    @property
    def full_name(self) -> str:
        """The capability: `sheets.appendRow`."""
        return f"{self.connector}.{self.name}"

    @property
    def can_reconcile(self) -> bool:
        """Whether the connector can look up what an earlier send did."""
        return self.reconciler is not None

    @property
    def safety(self) -> Literal["A", "B", "C"]:
        """A: the outside system honours keys. B: the effect can be looked up. C: neither."""
        return "A" if self.key_window_s else "B" if self.can_reconcile else "C"

    @cached_property
    def params_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the params, with the values that keep.toml allows; None: any object."""
        schema = self.params.schema
        if schema is None or not self.choices:
            return schema
        limited = {name: {**schema["properties"][name], "enum": list(values)} for name, values in self.choices.items()}
        return {**schema, "properties": {**schema["properties"], **limited}}

    @cached_property
    def declared_params(self) -> Params:
        """What `check` may judge of the params. A type with its own validators may accept more than its schema says."""
        judged = self.params_schema if self.params.schema_is_complete else None
        return Params(judged or {}, self.params.open, tuple(sorted(self._identity_names)))

    @cached_property
    def result_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the result (of a page: its array); None: any JSON."""
        return self.result.schema

    def parse(self, params: Json) -> dict[str, Json]:
        """Check and normalise the params. A `RuleBroken` lists everything that is wrong with them."""
        given: Json = {} if params is None else params
        if not isinstance(given, dict):
            raise RuleBroken(f"{self.full_name} takes one object, not {shown(given)}.")
        try:
            normal = self.params.normal(given)
        except Misfit as misfit:
            raise RuleBroken(f"{self.full_name} was called with wrong params: {misfit}.") from None
        except KeepError:
            raise
        except Exception as error:  # raised by a validator of the connector
            raise ConnectorBroke(f"{self.full_name} could not check its params: {error!r}") from error
        if not isinstance(normal, dict):
            raise ConnectorBroke(f"{self.full_name} normalised its params to something that is not an object.")
        return normal

    async def invoke(self, params: Json, call: Call) -> Json | Page[Json]:
        """Make the call. Raises what the method raises, or `ConnectorBroke` if the result has the wrong type.

        A `ConnectorBroke` after a mutation says nothing about whether the effect happened.
        """
        answer = await self.method(self._typed(params), call)
        try:
            return self._page(answer) if isinstance(answer, Page) else self.result.dump(answer)
        except (Misfit, BadValue) as error:
            raise ConnectorBroke(f"{self.full_name} returned a result that it did not declare: {error}") from error

    async def reconcile(self, params: Json, call: Call) -> Verdict:
        """Ask what an earlier send with the same params and idempotency key did."""
        if self.reconciler is None:
            return Verdict.unknown(f"{self.full_name} has no way to look up what it did.")
        verdict = await self.reconciler(self._typed(params), call)
        if not isinstance(verdict, Verdict):
            raise ConnectorBroke(f"The reconcile method of {self.full_name} returned no Verdict.")
        if verdict.status != "applied":
            return verdict
        try:
            return Verdict.applied(self.result.dump(verdict.result))
        except (Misfit, BadValue) as error:
            why = f"it is there, but the look-up of {self.full_name} returned a result that it did not declare: {error}"
            return Verdict("retry", result=_evidence(verdict.result), why=why, found=True)

    def preview(self, params: Json) -> str:
        """The call in words, made from the params that will be sent; never shortened."""
        if self.describer is None:
            return described(self.full_name, _object(params))
        text = self.describer(self._typed(params))
        if not isinstance(text, str):
            raise ConnectorBroke(f"The preview of {self.full_name} is not a string.")
        return visible(text)

    def target(self, params: Json) -> str:
        """What the call acts on, in the connector's terms; empty if the connector declared no target."""
        value = _object(params).get(self.target_name) if self.target_name else None
        if value is None:
            return ""
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return ", ".join(map(str, value))
        return value if isinstance(value, str) else canonical(value)

    def identity(self, params: Json) -> dict[str, Json]:
        """The params that identify the object; all params if the connector declared none."""
        given = _object(params)
        names = self._identity_names
        return {key: value for key, value in given.items() if key in names} if names else dict(given)

    def payload(self, params: Json) -> dict[str, Json]:
        """The params that are not part of the identity."""
        identity = self.identity(params)
        return {key: value for key, value in _object(params).items() if key not in identity}

    def compare(self, old: Json, new: Json) -> Comparison:
        """How much two payloads of one identity differ. Without a compare method every difference is significant."""
        if self.comparer is None:
            return "equivalent" if canonical(old) == canonical(new) else "significant"
        verdict = self.comparer(old, new)
        if verdict not in _COMPARISONS:
            raise ConnectorBroke(f"compare_payload of {self.full_name} returned {verdict!r}.")
        return cast(Comparison, verdict)

    @cached_property
    def kinds(self) -> Mapping[str, ParamKind]:
        """Param → its kind, for the rules that judge it. Plain text params are left out."""
        return kinds_in(_object_schema(self.params_schema)) if self.params_schema else {}

    def check_declaration(self) -> None:
        """Refuse types that cannot be used, and identity names that the params do not have."""
        known = self.param_names
        _ = self.result_schema
        wrong = [name for name in sorted(self._identity_names) if known is not None and name not in known]
        if wrong:
            raise ConfigError(f"{self.full_name} declares {wrong[0]!r} as identity; its params have no such member.")

    @property
    def param_names(self) -> frozenset[str] | None:
        """The names that params may have; None: any name."""
        schema = _object_schema(self.params_schema) if self.params_schema else {}
        return frozenset(schema["properties"]) if "properties" in schema else None

    @cached_property
    def _identity_names(self) -> frozenset[str]:
        names = set(self.identity_names)
        return frozenset(names | {self.target_name} if names and self.target_name else names)

    def _typed(self, params: Json) -> Any:
        try:
            return self.params.build(params)
        except Misfit as misfit:
            raise RuleBroken(f"{self.full_name} cannot use the params that were stored for it: {misfit}.") from None

    def _page(self, page: Page[Any]) -> Page[Json]:
        items = self.result.dump(list(page))
        fields = Shape(None, "").dump(dict(page.fields))
        assert isinstance(items, list)
        assert isinstance(fields, dict)
        return Page(items, **fields)


def _evidence(result: object) -> Json:
    """A result that cannot be used, as it is shown to a person."""
    try:
        return Shape(None, "").dump(result)
    except BadValue:
        return repr(result)[:_EVIDENCE_MAX]


def _object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of the params themselves, which may stand in `$defs`."""
    here: dict[str, Any] = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return here


def _object(params: Json) -> dict[str, Json]:
    return params if isinstance(params, dict) else {}
