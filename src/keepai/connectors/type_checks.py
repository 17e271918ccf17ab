"""Checks params and results against the types that a connector's methods declare.

A shape is a pydantic model, a dataclass, a TypedDict, or anything else that pydantic can check. A missing annotation,
`dict`, `object` and `Any` mean any JSON. All problems are reported at once and in the words of JSON, because the reader
wrote the script, not the connector.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, reduce
from operator import or_
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..model.codec import Json, clean, encode, is_exact, stored
from ..model.errors import ConfigError
from .problems import problems

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_JSON = None | bool | int | float | str | list[Any] | dict[str, Any]  # `Json` with its inner names resolved
_ANYTHING: tuple[object, ...] = (
    None, object, Any, _JSON, dict, dict[str, Any], dict[str, object], dict[str, _JSON], Mapping,
    list, list[Any], list[_JSON], list[dict[str, Any]], list[dict[str, _JSON]],
)
_PLAIN = frozenset({str, int, float, bool, type(None)})
_WIDENING = frozenset({"function-before", "function-wrap", "function-plain", "is-instance", "call"})
_BY_NAME = ("populate_by_name", "validate_by_name")
_SEVERAL_TYPES = (typing.Union, types.UnionType)


class Misfit(Exception):
    """A value does not fit its shape. Carries every problem as a sentence."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@lru_cache(256)
def _adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """The checker of a type. It is cached, because many connectors have the same types."""
    from pydantic import TypeAdapter

    return TypeAdapter(modern(annotation))


@lru_cache(256)
def _schema_of(annotation: Any) -> dict[str, Any]:
    schema: dict[str, Any] = _once(_adapter_of, annotation).json_schema()
    return schema


def _is_widened(core: Any) -> bool:
    """Whether a type accepts values that its JSON schema does not mention; `core` is pydantic's own schema."""
    stack = [core]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            kind = node.get("type")  # in a mapping of fields, "type" may be a field, and then it is not a string
            if (isinstance(kind, str) and kind in _WIDENING) or any(node.get(name) for name in _BY_NAME):
                return True
            if not isinstance(node.get("validation_alias", ""), str):
                return True
            stack.extend(node.values())
        elif isinstance(node, list | tuple):
            stack.extend(node)
    return False


def _once(make: Any, annotation: object) -> Any:
    """Call a cached function, or the plain one for a type that cannot be a key of the cache."""
    try:
        hash(annotation)
    except TypeError:
        return make.__wrapped__(annotation)
    return make(annotation)


class Shape:
    """One declared type. `given` is False if any value fits."""

    def __init__(self, annotation: object, label: str) -> None:
        self.given = not any(annotation is anything or annotation == anything for anything in _ANYTHING)
        self._annotation = annotation
        self._label = label

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            adapter: TypeAdapter[Any] = _once(_adapter_of, self._annotation)
            return adapter
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"The type of {self._label} cannot be used: {reason}") from error

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema; None if any value fits."""
        return _once(_schema_of, self._annotation) if self.given and self._adapter else None

    @cached_property
    def schema_is_complete(self) -> bool:
        """Whether the schema says everything that fits: neither validators nor other field names widen it."""
        return not self.given or not _is_widened(self._adapter.core_schema)

    @cached_property
    def open(self) -> bool:
        """Whether members that the type does not name fit."""
        if not self.given:
            return True
        schemas = [self.schema or {}, *(self.schema or {}).get("$defs", {}).values()]
        return any(schema.get("additionalProperties") is True for schema in schemas)

    def build(self, value: Json) -> Any:
        """The typed value, or a `Misfit`. Values are not converted: "5" is not a number."""
        text = encode(value)
        if not self.given:
            return stored(text)
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text, strict=True, extra=None if self.open else "forbid")
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False)
            raise Misfit(problems(errors, self.schema or {})) from None

    def normal(self, value: Json) -> Json:
        """The value as JSON after validation. A default that was not given is not added.

        Otherwise a later version of the connector with another default, or with one more optional field, would not
        recognise what it did under the same identity.
        """
        if not self.given:
            return clean(value)
        built = self.build(value)
        dumped = self._adapter.dump_python(built, mode="json", by_alias=True, exclude_unset=True)
        if dataclasses.is_dataclass(built) and isinstance(dumped, dict) and isinstance(value, dict):
            defaults = {f.name for f in dataclasses.fields(built)} - value.keys()
            dumped = {key: member for key, member in dumped.items() if key not in defaults}
        return clean(_in_order_of(value, dumped))

    def dump(self, value: object) -> Json:
        """What a method returned, as JSON; `Misfit` or `BadValue` if it is not what the method declared."""
        if not self.given:
            return value if is_exact(value) else clean(plain(value), what="result")  # type: ignore[return-value]
        from pydantic import ValidationError

        try:
            checked = self._adapter.validate_python(value)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False)
            raise Misfit(problems(errors, self.schema or {}, "result")) from None
        dumped = self._adapter.dump_python(checked, mode="json", by_alias=True)
        return clean(_in_order_of(value, dumped), what="result")


def hint(function: Callable[..., object], parameter: str) -> object:
    """The evaluated annotation of one parameter or of `return`; None if there is none."""
    text = function.__annotations__.get(parameter)
    holder = SimpleNamespace(__annotations__={parameter: text})
    if text is None:
        return None
    try:
        space = {**getattr(function, "__globals__", {}), "Json": Any}  # the alias refers to itself
        return typing.get_type_hints(holder, globalns=space, include_extras=True)[parameter]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ConfigError(
            f"The annotation {text!r} of {function.__qualname__} cannot be resolved: {error}. "
            "Define the type at module level, or leave the annotation out."
        ) from error


def modern(annotation: object) -> Any:
    """The annotation with every `typing.TypedDict` rebuilt, because pydantic refuses those before Python 3.12."""
    if typing.is_typeddict(annotation):
        return _rebuilt(annotation)
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if not arguments or origin in (None, typing.Literal, typing.Annotated):
        return annotation
    fresh = tuple(modern(argument) for argument in arguments)
    if fresh == arguments:
        return annotation
    return reduce(or_, fresh) if origin in _SEVERAL_TYPES else typing.cast(Any, origin)[fresh]


def _rebuilt(annotation: Any) -> Any:
    import typing_extensions

    fields: dict[str, Any] = {}
    for key, member in typing_extensions.get_type_hints(annotation, include_extras=True).items():
        mark: object = typing.get_origin(member)
        inner = modern(typing.get_args(member)[0] if mark in (typing.Required, typing.NotRequired) else member)
        # The class's own list of required keys misses marks in annotations that are strings.
        needed = mark is not typing.NotRequired and (
            mark is typing.Required or key in annotation.__required_keys__
        )
        fields[key] = inner if needed else typing_extensions.NotRequired[inner]
    return typing_extensions.TypedDict(annotation.__name__, fields)  # type: ignore[operator]


def _in_order_of(given: object, built: Any) -> Any:
    """The validated value, with the keys of its objects in the order in which they were given."""
    if type(built) is list and isinstance(given, list | tuple) and len(given) == len(built):
        return [_in_order_of(old, new) for old, new in zip(given, built, strict=True)]
    if type(built) is not dict or not isinstance(given, Mapping):
        return built
    return {
        key: _in_order_of(given.get(key), built[key])
        for key in (*(key for key in given if key in built), *(key for key in built if key not in given))
    }


def plain(value: object) -> object:
    """The value with pydantic models and dataclasses at any depth as plain dicts."""
    if type(value) in _PLAIN:
        return value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
