"""`ctx.<name>.<operation>`: chosen operations of an OpenAPI document, sent by the rules of `http`.

A GET is a read; everything else is a mutation. What an answer proves, the idempotency key and the look-up rules are
those of `http`. The document's types check what scripts send. What comes back is not checked against them, because a
result that the document forgot would turn a request that was carried out into an open question.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import quote

from ...model.codec import Json
from ...model.errors import ConfigError, Rejected
from ...model.operations import Kind
from ..base import Call, Connector, OperationSpec, Verdict
from ..http.http_connector import Http, HttpResult, HttpSend, described_request
from ..http.http_credentials import SECRETS
from ..json_schema import SchemaShape
from .api_document import ApiOperation, base_of, operations_in, read_document

_LISTED_MAX = 40


class OpenApi(Connector):
    """Chosen operations of a service that is described by OpenAPI 3.0 or 3.1: `type = "openapi"`.

    A mutation has class B if a rule in `lookup` covers it, otherwise class C; with `key_window_s` it has class A.

    document: the document, a JSON file; `keep connect` fetches it from a URL
    operations: the operations that scripts may call
    base: the URL before all paths; without it, the first server that the document names
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    auth: how the secret is sent: bearer, basic or header; empty: not at all
    user: the user name for basic
    header: the header for auth header
    headers: further headers of every request; no secrets
    key_header: the header that carries the idempotency key
    key_window_s: for how many seconds the service accepts each idempotency key only once
    identity: operation → the params that identify what it acts on; without it, all of them
    lookup: rules that say where to see whether a request was carried out
    certificates: a file of authorities to trust besides those of the system
    """

    secrets: Mapping[str, str] = SECRETS  # type: ignore[misc]

    def __init__(
        self, document: str | os.PathLike[str], operations: list[str], *, base: str = "",
        networks: list[str] | None = None, auth: str = "", user: str = "", header: str = "Authorization",
        headers: dict[str, str] | None = None, key_header: str = "Idempotency-Key", key_window_s: float | None = None,
        identity: dict[str, Any] | None = None, lookup: list[dict[str, Any]] | None = None,
        certificates: str | os.PathLike[str] | None = None, name: str | None = None,
    ) -> None:
        self.document = read_document(Path(document))
        self.base = base or base_of(self.document)
        if not self.base:
            raise ConfigError(f"{document} names no server with a whole address: set base, such as https://…/v1.")
        super().__init__(name=name)
        self._http = Http(
            [self.base], networks=networks, auth=auth, user=user, header=header, headers=headers,
            key_header=key_header, key_window_s=key_window_s, lookup=lookup, certificates=certificates,
            name=self.name,
        )
        self.account, self.secrets = self._http.account, self._http.secrets
        self._identity, self.chosen = identity or {}, _chosen(operations_in(self.document), operations)

    def entrust(self, vault: MutableMapping[str, str]) -> None:
        super().entrust(vault)
        self._http.entrust(vault)

    async def check(self) -> None:
        """Check that the secrets exist and that the service answers."""
        await self._http.check()

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """The chosen operations."""
        return MappingProxyType({name: self._operation(chosen) for name, chosen in self.chosen.items()})

    def _operation(self, chosen: ApiOperation) -> OperationSpec:
        kind = Kind.MUTATION if chosen.method != "get" else Kind.READ_BY_ID if chosen.by_id else Kind.READ
        spec = OperationSpec(
            self.name, chosen.name, kind, partial(self._ask if chosen.method == "get" else self._change, chosen),
            SchemaShape(chosen.params_schema), SchemaShape(chosen.result_schema, checked=False), doc=chosen.doc,
        )
        if kind is Kind.MUTATION:
            methods = {rule.method.lower() for rule in self._http.lookups}
            spec = replace(
                spec, identity_names=tuple(self._identity.get(chosen.name, ())), key_window_s=self._http.key_window_s,
                describer=partial(self._say, chosen),
                reconciler=partial(self._find, chosen) if chosen.method in methods else None)
        spec.check_declaration()
        return spec

    async def _ask(self, chosen: ApiOperation, params: Mapping[str, Json], call: Call) -> HttpResult | None:
        return await self._http.read_url(self._request(chosen, params), call)

    async def _change(self, chosen: ApiOperation, params: Mapping[str, Json], call: Call) -> HttpResult:
        return await self._http.send_request(chosen.method.upper(), self._request(chosen, params), call)

    async def _find(self, chosen: ApiOperation, params: Mapping[str, Json], call: Call) -> Verdict:
        return await self._http.look_up(chosen.method.upper(), self._request(chosen, params), call)

    def _say(self, chosen: ApiOperation, params: Mapping[str, Json]) -> str:
        return described_request(chosen.method.upper(), self._request(chosen, params))

    def _request(self, chosen: ApiOperation, params: Mapping[str, Json]) -> HttpSend:
        """The request of `http` that these params mean."""
        query = {name: params[name] for name, place in chosen.params.items() if place == "query" and name in params}
        request = {"url": chosen.url(self.base, params, _path_part), "query": query}
        return cast(HttpSend, {**request, "body": params["body"]} if "body" in params else request)


def _path_part(value: Json) -> str:
    if not isinstance(value, str | int | float) or value == "":
        raise Rejected("A part of a path must be a text or a number.")
    return quote(str(value).lower() if isinstance(value, bool) else str(value), safe="")


def _chosen(offered: Mapping[str, ApiOperation], names: list[str]) -> dict[str, ApiOperation]:
    """The operations that the owner named."""
    for name in names or [""]:
        if name not in offered or offered[name].why_not:
            why = f"{name} cannot be called: {offered[name].why_not}." if name in offered else (
                f"The document has no operation {name!r}." if name else "No operation is named.")
            can = [f"{each.name} ({each.method.upper()} {each.path})" for each in offered.values() if not each.why_not]
            more = f", and {len(can) - _LISTED_MAX} more" if len(can) > _LISTED_MAX else ""
            raise ConfigError(f"{why} Name some in operations: {', '.join(can[:_LISTED_MAX])}{more}.")
    return {name: offered[name] for name in names}
