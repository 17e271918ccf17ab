"""The contract of a connector: a Python class whose marked methods are what scripts may call.

    class Sheets(Connector):
        input_types = ("row",)

        @mutation(identity=("spreadsheetId",), target="spreadsheetId", settle=5)
        async def append_row(self, params: AppendRow, call: Call) -> Appended: ...

        @append_row.reconcile
        async def find_row(self, params: AppendRow, call: Call) -> Verdict: ...

`Sheets()` is `ctx.sheets` and `append_row` is `ctx.sheets.appendRow`. Scripts cannot call a method without a mark.
A connector never sees a script. The error that it raises says what is known: `Transient`, `PermissionDenied`,
`PreconditionFailed` and `Rejected` mean that nothing happened and that this call can no longer have an effect. Every
other error means that the effect may have happened.

The coroutine of a mutation must not end before every thread and child process that it started has ended, even if it is
cancelled. Only then is its call over.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from ..model.codec import canonical, digest, sound
from ..model.errors import ConfigError, KeepError, PermissionDenied
from ..model.operations import BUILT_IN, SYSTEM_INPUTS, Kind, Surface
from .operation import Comparison, OperationSpec
from .own_code import own_code
from .sign_in import SignIn
from .type_checks import Shape, hint
from .values import Call, Page, Verdict

__all__ = [
    "Call", "Comparison", "Connector", "OperationSpec", "Page", "Verdict", "mutation", "read", "surface",
]

F = TypeVar("F", bound=Callable[..., Any])
G = TypeVar("G", bound=Callable[..., Any])
Function = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,63}")
_OBJECT_MEMBERS = frozenset({
    "then", "constructor", "prototype", "__proto__", "toJSON", "toString", "toLocaleString", "valueOf",
    "hasOwnProperty",
})
#: Names that scripts use for something else: members of `ctx`, the host's own input sources, and `inputs`.
TAKEN = frozenset({
    *BUILT_IN, *SYSTEM_INPUTS, "workflow", "manual", "log", "state", "item", "inputs"}) | _OBJECT_MEMBERS


GIVEN_MAX = 64  #: former values of its secrets that a connector remembers, so that these are redacted too


class MarkedMethod(Generic[F]):
    """A method marked with `read` or `mutation`. On an instance it is the method itself."""

    def __init__(self, function: F, kind: Kind) -> None:
        _check_method(function)
        self.function = function
        self.kind = kind
        self.owner: type | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner

    @overload
    def __get__(self, instance: None, owner: type) -> MarkedMethod[F]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> F: ...
    def __get__(self, instance: object | None, owner: type) -> MarkedMethod[F] | F:
        return self if instance is None else cast(F, self.function.__get__(instance, owner))

    def spec(self, connector: Connector, name: str) -> OperationSpec:
        """The operation of one instance."""
        function = self.function
        first = list(inspect.signature(function).parameters)[1]
        returned = hint(function, "return")
        returns_page = returned is Page or typing.get_origin(returned) is Page
        if returns_page:  # the result that is checked is the list of items
            items = typing.get_args(returned)
            returned = list[items[0]] if items else list  # type: ignore[valid-type]
        return OperationSpec(
            connector.name, name, self.kind, function.__get__(connector),
            Shape(hint(function, first), f"the params of {function.__qualname__}"),
            Shape(returned, f"the result of {function.__qualname__}"),
            doc=inspect.getdoc(function) or "", returns_page=returns_page, **self._extras(connector),
        )

    def _extras(self, connector: Connector) -> dict[str, Any]:
        return {}


class MarkedMutation(MarkedMethod[F]):
    """A marked method with a side effect, and what the connector declares about it."""

    def __init__(
        self, function: F, identity: tuple[str, ...], target: str | None,
        settle: float | None, key_window: float | None,
    ) -> None:
        super().__init__(function, Kind.MUTATION)
        self._declared = {
            "identity_names": identity, "target_name": target, "settle_s": settle, "key_window_s": key_window,
        }
        self._extra: dict[str, Function] = {}

    def reconcile(self, function: G) -> G:
        """Mark the method that looks up what an earlier send did: `async (self, params, call) -> Verdict`."""
        _check_method(function)
        return self._add("reconciler", function)

    def compare_payload(self, function: G) -> G:
        """Mark the method that compares two payloads (JSON): `(self, old, new) -> Comparison`."""
        return self._add("comparer", _check_sync(function))

    def preview(self, function: G) -> G:
        """Mark the method that describes the call to people: `(self, params) -> str`."""
        return self._add("describer", _check_sync(function))

    def _add(self, role: str, function: G) -> G:
        if self.owner is not None or role in self._extra:
            raise ConfigError(
                f"{function.__qualname__} cannot be added to {self.function.__qualname__}, which is complete. "
                "In a subclass, declare the mutation again."
            )
        self._extra[role] = function
        return function

    def _extras(self, connector: Connector) -> dict[str, Any]:
        bound = {role: _bound(connector, function) for role, function in self._extra.items()}
        return {**self._declared, **bound}


@overload
def read(function: F) -> MarkedMethod[F]: ...
@overload
def read(*, by_id: bool = False) -> Callable[[F], MarkedMethod[F]]: ...
def read(function: F | None = None, *, by_id: bool = False) -> MarkedMethod[F] | Callable[[F], MarkedMethod[F]]:
    """Mark a method that changes nothing. `by_id`: its params name the one object that it returns."""
    kind = Kind.READ_BY_ID if by_id else Kind.READ
    return MarkedMethod(function, kind) if function is not None else lambda marked: MarkedMethod(marked, kind)


@overload
def mutation(function: F) -> MarkedMutation[F]: ...
@overload
def mutation(
    *, identity: Iterable[str] = (), target: str | None = None,
    settle: float | None = None, key_window: float | None = None,
) -> Callable[[F], MarkedMutation[F]]: ...
def mutation(
    function: F | None = None, *, identity: Iterable[str] = (), target: str | None = None,
    settle: float | None = None, key_window: float | None = None,
) -> MarkedMutation[F] | Callable[[F], MarkedMutation[F]]:
    """Mark a method with a side effect.

    `identity` names the params that identify the object; `target` names the one that people know it by.
    `settle` is how many seconds after the end of a call its effect may still appear. `key_window` is
    for how many seconds the outside system refuses a second effect with the same idempotency key.
    """
    names = (identity,) if isinstance(identity, str) else tuple(identity)
    if function is not None:
        return MarkedMutation(function, names, target, settle, key_window)
    return lambda marked: MarkedMutation(marked, names, target, settle, key_window)


class Connector:
    """An outside system. Subclass it, mark methods with `read` and `mutation`, and give it to `Keep`."""

    name: str = ""  #: what scripts call it; by default the class name with a small first letter
    input_types: ClassVar[tuple[str, ...]] = ()  #: the types of inputs that it can be the source of
    account: str = ""  #: whose data it acts on, for people and approvals; never a secret
    secrets: ClassVar[Mapping[str, str]] = MappingProxyType({})  #: the secrets that it needs: name → what to ask for
    tells_all_hosts: bool = False  #: what `arrivals` tells one host can be read on every host of the same ledger
    _named: ClassVar[bool] = False
    _marked: ClassVar[Mapping[str, MarkedMethod[Any]]] = MappingProxyType({})

    def __init__(self, *, name: str | None = None) -> None:
        if name is not None:
            self.name = name
        check_name(self.name)
        self._vault: MutableMapping[str, str] = {}
        self._given: Mapping[str, str] = MappingProxyType({})  # present and former values of secrets → their names

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            cls._named = True
        elif not cls._named:
            cls.name = cls.__name__[:1].lower() + cls.__name__[1:]
        cls._marked = _operations(cls)

    def entrust(self, vault: MutableMapping[str, str]) -> None:
        """Give the connector its secrets. It reads them when it uses them, and writes back those that it renews."""
        self._vault = vault

    def secret(self, name: str) -> str:
        """One of its secrets, for immediate use: never keep it, log it or put it into an error."""
        try:
            value = self._vault[name]
        except KeyError:
            raise PermissionDenied(
                f"{self.name} has no secret {name}. Run `keep secrets set {self.name} {name}`.",
            ) from None
        self._learn({name: value})
        return value

    def entrusted(self) -> Mapping[str, str]:
        """Present and former values of its secrets → their names. These values must never be shown.

        Returns the same mapping until there is a new value, and then another one.
        """
        with suppress(KeepError):  # a vault that cannot be opened has no new value
            self._learn(self._vault)
        return self._given

    def _learn(self, secrets: Mapping[str, str]) -> None:
        now = {value: name for name, value in secrets.items()}
        if not now.keys() <= self._given.keys():
            former = [entry for entry in self._given.items() if entry[0] not in now]
            self._given = {**dict(former[-GIVEN_MAX:]), **now}  # a token may be renewed every hour for years

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """Script name → operation."""
        specs = {name: marked.spec(self, name) for name, marked in self._marked.items()}
        for spec in specs.values():
            spec.check_declaration()
        return MappingProxyType(specs)

    def fingerprint(self) -> str:
        """What a script relies on: the declarations of its operations, and the code of one that is the owner's own."""
        declared = [
            [name, spec.kind, spec.params_schema, spec.result_schema, sorted(spec._identity_names), spec.target_name,
             spec.settle_s, spec.key_window_s, spec.can_reconcile, spec.comparer is not None]
            for name, spec in sorted(self.operations.items())
        ]
        return digest(canonical(declared), *own_code(type(self)))

    def sign_in(self) -> SignIn | None:
        """How a person can obtain one of its secrets with a browser; None if that is not possible."""
        return None

    async def arrivals(self) -> AsyncGenerator[None]:
        """Yield when something has come in, so that the producers and routines that read it run at once.

        A host listens while it serves. Yield once as soon as nothing can be missed any more, because something may
        have come in before; then whenever something comes. What comes while a yield is not taken up is one signal.
        Raise an error if the outside system can no longer be listened to: the host tries again later. A connector
        that cannot listen ends at once, and its readers keep to their schedule."""
        for _ in ():
            yield

    async def check(self) -> str | None:
        """Ask the outside system something harmless. Raise a `ConnectorError` if the address or the credentials fail.

        A connector that cannot be tried returns a sentence that says why. People read that instead of "answers"."""
        return "this connector has no check()"

    async def shut_down(self) -> None:
        """End what it keeps running between calls. A host asks for it when it ends; the next call starts it again."""


def surface(connectors: Iterable[Connector]) -> Surface:
    """What scripts may call and name as sources. Refuses two connectors with one name."""
    known: dict[str, Connector] = {}
    for connector in connectors:
        check_name(connector.name)
        if connector.name in known:
            raise ConfigError(f"Two connectors are called {connector.name!r}. Give one of them another name: name=….")
        if connector.account != sound(str(connector.account)):
            raise ConfigError(
                f"The account of the connector {connector.name!r} is {connector.account!r}. Make it a text for people.")
        known[connector.name] = connector
    kinds = {n: {o: spec.kind for o, spec in c.operations.items()} for n, c in known.items()}
    params = {spec.full_name: spec.declared_params for c in known.values() for spec in c.operations.values()}
    return Surface(kinds, {**{n: tuple(c.input_types) for n, c in known.items()}, **SYSTEM_INPUTS}, params)


def check_name(name: object) -> str:
    """Check that scripts can write a connector's name after `ctx.`; otherwise raise `ConfigError`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot name a connector, because scripts must be able to write ctx.<name>.")
    if name in TAKEN:
        raise ConfigError(f"{name!r} cannot name a connector, because ctx.{name} already means something else.")
    return name


def is_operation_name(name: str) -> bool:
    """Whether scripts can call an operation by this name."""
    return bool(_NAME.fullmatch(name)) and name not in _OBJECT_MEMBERS


def script_name(foreign: str) -> str:
    """What scripts call what another program has named: `create_note` is `createNote`; empty if they cannot."""
    first, *rest = [part for part in re.split(r"[^A-Za-z0-9$]+", foreign) if part] or [""]
    name = first + "".join(part[:1].upper() + part[1:] for part in rest)
    return name if is_operation_name(name) else ""


def _operations(cls: type) -> Mapping[str, MarkedMethod[Any]]:
    """Script name → marked method, over all bases. Refuses an override without a mark."""
    operations: dict[str, MarkedMethod[Any]] = {}
    for attribute in dict.fromkeys(a for base in cls.__mro__ for a in base.__dict__):
        marked = inspect.getattr_static(cls, attribute)
        if isinstance(marked, MarkedMethod):
            name = _script_name(attribute, cls)
            if name in operations:
                function = marked.function.__qualname__
                raise ConfigError(f"{function} and another method are both called {name!r} in scripts.")
            operations[name] = marked
        elif any(isinstance(base.__dict__.get(attribute), MarkedMethod) for base in cls.__mro__):
            raise ConfigError(f"{cls.__name__}.{attribute} replaces an operation, so it must be marked as one too.")
    return operations


def _script_name(attribute: str, cls: type) -> str:
    first, *rest = attribute.split("_")
    name = first + "".join(part[:1].upper() + part[1:] for part in rest)
    if not first or not is_operation_name(name):
        raise ConfigError(f"{cls.__name__}.{attribute} cannot be an operation: scripts could not call it by that name.")
    return name


def _check_method(function: Function) -> None:
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"{_named(function)} must be an `async def` method (self, params, call).")
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        raise ConfigError(f"{_named(function)} must take (self, params, call).") from None


def _check_sync(function: G) -> G:
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"{_named(function)} must be a plain `def` method: it may only look at its arguments.")
    return function


def _named(function: object) -> str:
    return str(getattr(function, "__qualname__", function))


def _bound(connector: Connector, function: Function) -> Function:
    """The method on the instance. If a subclass overrides the name, its method is used."""
    name = function.__name__
    if any(base.__dict__.get(name) is function for base in type(connector).__mro__):
        return cast(Function, getattr(connector, name))
    return cast(Function, function.__get__(connector))
