"""Wraps a connector so that nothing it raises, logs, returns or describes contains a secret.

The host wraps all connectors when one of them has a secret. Everything that a connector says reaches the ledger,
traces, logs, questions and pages only through here. This module does not decide whether a call is right or wrong.

A result, which the script gets, loses only the connector's own secrets. If it lost the secrets of other connectors too,
a script could let any connector return thousands of guesses and see which of them was replaced. Errors and logs, which
only people see, lose all secrets. Params that contain a secret in any spelling are refused before they are stored or
sent, because a script has no secret to send. This ends the run with an error that the script cannot catch, and asks a
person. So a right guess costs a run, and the error does not say whose secret it was.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import cast

from ..model.codec import Json
from ..model.errors import RuleBroken
from ..model.redaction import Redactor
from .base import Connector
from .operation import Comparison, OperationSpec
from .sign_in import Attempt, SignIn
from .values import Call, Page, Verdict


def redactor_of(connectors: Iterable[Connector]) -> Redactor | None:
    """A redactor for the secrets of these connectors; None if none of them has any."""
    known = tuple(connectors)
    return Redactor(known) if any(connector.secrets or connector.entrusted() for connector in known) else None


def redacted(connector: Connector, redactor: Redactor | None) -> Connector:
    """The wrapped connector; the connector itself if there is nothing to hide."""
    return connector if redactor is None else Redacted(connector, redactor)


class Redacted(Connector):
    """Wraps another connector, with the same name, account and operations."""

    def __init__(self, real: Connector, redactor: Redactor) -> None:
        super().__init__(name=real.name)
        self._real, self._redactor, self._own = real, redactor, Redactor([real])
        self.input_types, self.secrets = real.input_types, real.secrets  # type: ignore[misc]
        self.tells_all_hosts = real.tells_all_hosts

    @property
    def account(self) -> str:  # type: ignore[override]
        """Whose data it acts on."""
        return self._redactor.text(self._real.account)

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """The same operations, wrapped."""
        return MappingProxyType({
            name: RedactedOperation(
                **{field.name: getattr(spec, field.name) for field in fields(OperationSpec)},
                real=spec, redactor=self._redactor, own=self._own,
            ) for name, spec in self._real.operations.items()
        })

    def fingerprint(self) -> str:
        return self._real.fingerprint()

    def entrust(self, vault: MutableMapping[str, str]) -> None:
        self._real.entrust(vault)

    def entrusted(self) -> Mapping[str, str]:
        return self._real.entrusted()

    def sign_in(self) -> SignIn | None:
        real = self._real.sign_in()
        return None if real is None else RedactedSignIn(real, self._redactor)

    async def arrivals(self) -> AsyncGenerator[None]:
        async with aclosing(self._real.arrivals()) as arrivals:
            while True:
                with self._redactor.guard():
                    try:
                        await anext(arrivals)
                    except StopAsyncIteration:
                        return
                yield

    async def check(self) -> str | None:
        with self._redactor.guard():
            text = await self._real.check()
        return self._redactor.text(text) if text else None

    async def shut_down(self) -> None:
        with self._redactor.guard():
            await self._real.shut_down()


class RedactedSignIn(SignIn):
    """A sign-in whose errors contain no secrets. The secrets that it obtains go to the vault unchanged."""

    def __init__(self, real: SignIn, redactor: Redactor) -> None:
        self._real, self._redactor = real, redactor
        self.secret, self.needs = real.secret, real.needs

    def address(self, attempt: Attempt) -> str:
        with self._redactor.guard():
            return self._redactor.text(self._real.address(attempt))

    async def redeem(self, code: str, attempt: Attempt) -> Mapping[str, str]:
        with self._redactor.guard():
            return await self._real.redeem(code, attempt)


@dataclass(frozen=True, kw_only=True)
class RedactedOperation(OperationSpec):
    """An operation whose results, errors and descriptions contain no secrets."""

    real: OperationSpec
    redactor: Redactor  # of all connectors: for what people see
    own: Redactor  # of this connector alone: for what the script gets

    def parse(self, params: Json) -> dict[str, Json]:
        with self.redactor.guard():
            normal = self.real.parse(params)
        if self.redactor.spelled_in(normal):
            raise RuleBroken(
                f"The params of {self.full_name} contain a secret of this host, so nothing was sent. Connectors add "
                "their secrets themselves: remove it from the script. If the script cannot know the secret, it is "
                "guessing: look at what it does, and change the secret at the service that issued it."
            )
        return normal

    async def invoke(self, params: Json, call: Call) -> Json | Page[Json]:
        with self.redactor.guard():
            answer = await self.real.invoke(params, self._quiet(call))
        if not isinstance(answer, Page):
            return self.own.value(answer)
        items, extra = self.own.value(list(answer)), self.own.value(cast("Json", dict(answer.fields)))
        return Page(cast("list[Json]", items), **cast("dict[str, Json]", extra))

    async def reconcile(self, params: Json, call: Call) -> Verdict:
        with self.redactor.guard():
            verdict = await self.real.reconcile(params, self._quiet(call))
        result = self.own.value(cast("Json", verdict.result))
        return replace(verdict, result=result, why=self.redactor.text(verdict.why))

    def preview(self, params: Json) -> str:
        with self.redactor.guard():
            return self.redactor.text(self.real.preview(params))

    def compare(self, old: Json, new: Json) -> Comparison:
        with self.redactor.guard():
            return self.real.compare(old, new)

    def _quiet(self, call: Call) -> Call:
        text = self.redactor.text
        return replace(call, log=lambda line: call.log(text(str(line))), skip=lambda name: call.skip(text(str(name))))
