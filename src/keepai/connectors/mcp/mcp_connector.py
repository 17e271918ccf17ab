"""`ctx.<name>.<tool>`: the tools of an MCP server that a person has confirmed, as reads and mutations.

What is known about a tool comes from its server, and is not believed: annotations are hints, descriptions are text from
outside. A person says which tools are reads. Everything else is a mutation that asks a person, unless one allows it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...model.codec import Json, digest, encode
from ...model.errors import ConfigError, OutcomeUnknown, PreconditionFailed, Transient
from ...model.operations import Kind
from ..base import Call, Connector, OperationSpec, Verdict
from ..egress import Client, Rules
from ..http.http_credentials import SECRETS, Credentials
from ..json_schema import SchemaShape
from ..kit.lenient_json import parse_json
from ..kit.params import normal_url
from .http_wire import HttpWire
from .mcp_client import McpClient, McpWire
from .stdio_wire import SECONDS_MAX, StdioWire
from .tool_lock import FILE, Tool, read_lock, usable
from .tool_lookup import ToolLookup, parse_tool_lookups

#: What a tool returns that does not say what it returns: its text, and all parts of its answer that are none.
TEXT_RESULT: Mapping[str, Any] = MappingProxyType({
    "type": "object", "properties": {"text": {"type": "string"}, "content": {"type": "array"}},
    "required": ["text", "content"],
})


class Mcp(Connector):
    """Any MCP server: `type = "mcp"`.

    `keep connect NAME mcp` lists its tools, and a person says which are reads. A mutation has class B if a rule in
    `lookup` covers it, otherwise class C.

    command: the program that is the server, with its arguments, as one would type it
    folder: where that program runs
    env: its environment, besides PATH, HOME and LANG; no secrets
    env_secrets: the variables of its environment that are secrets; `keep secrets set NAME VARIABLE` gives each
    url: the address of a server that is reached by HTTP instead
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    auth: how the secret is sent: bearer, basic or header; empty: not at all
    user: the user name for basic
    header: the header for auth header
    headers: further headers of every request; no secrets
    certificates: a file of authorities to trust besides those of the system
    identity: tool → the params that identify what it acts on; without it, all of them
    lookup: rules that say how to see whether a tool did its work
    lock: the file of the tools that a person has confirmed
    """

    secrets: Mapping[str, str] = SECRETS  # type: ignore[misc]

    def __init__(
        self, *, command: str = "", folder: str | os.PathLike[str] = ".", env: dict[str, str] | None = None,
        env_secrets: list[str] | None = None, url: str = "", networks: list[str] | None = None, auth: str = "",
        user: str = "", header: str = "Authorization", headers: dict[str, str] | None = None,
        certificates: str | os.PathLike[str] | None = None, identity: dict[str, Any] | None = None,
        lookup: list[dict[str, Any]] | None = None, lock: str | os.PathLike[str] = FILE, name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if bool(command) == bool(url):
            raise ConfigError("mcp needs either `command`, a program that is an MCP server, or `url`, where one is.")
        self.lock, self._identity, self._lookups = Path(lock), identity or {}, parse_tool_lookups(lookup or ())
        self._env, self._env_secrets = env or {}, env_secrets or []
        credentials = Credentials(auth, user, header)
        wire: McpWire
        if url:
            trusted = os.fspath(certificates) if certificates is not None else None
            rules = Rules.under([url], networks or (), certificates=trusted, seconds_max=SECONDS_MAX)
            self.account, self.secrets = normal_url(url), credentials.secrets
            wire = HttpWire(Client(rules), self.account, headers or {}, partial(credentials.headers, self))
        else:
            self.account = command
            self.secrets = {variable: f"The variable {variable} of the server" for variable in self._env_secrets}
            wire = StdioWire(_words(command), os.fspath(folder), self._environment)
        self.client = McpClient(wire)
        self.tools: Mapping[str, Tool] = read_lock(self.lock, self.name)
        self.offered: Mapping[str, Tool] = {}  # by their own names, since somebody last looked

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """The confirmed tools."""
        for setting in (self._identity, self._lookups):
            for name in setting:
                if self.tools and name not in self.tools:
                    raise ConfigError(f"{self.name} has no tool {name!r}. It has {', '.join(self.tools)}.")
        return MappingProxyType({name: self._operation(name, tool) for name, tool in self.tools.items()})

    def _operation(self, name: str, tool: Tool) -> OperationSpec:
        rule, params = self._lookups.get(name), tool.params_schema
        if rule is not None:
            self._check_rule(rule, tool)
            params = _without(params, rule.key)
        # What a look-up finds may have another form than what the tool declares.
        result = SchemaShape(None if rule and tool.result_schema else tool.result_schema or dict(TEXT_RESULT))
        is_read = tool.kind == "read"
        spec = OperationSpec(
            self.name, name, Kind.READ if is_read else Kind.MUTATION, partial(self._call, tool), SchemaShape(params),
            result, doc=tool.doc, identity_names=() if is_read else tuple(self._identity.get(name, ())),
            reconciler=partial(self._look, tool, rule) if rule else None, asks=True,
        )
        spec.check_declaration()
        return spec

    def _check_rule(self, rule: ToolLookup, tool: Tool) -> None:
        looked = self.tools.get(rule.tool)
        if tool.kind == "read" or looked is None or looked.kind != "read":
            raise ConfigError(f"The lookup of {self.name} on {rule.on}: `on` must be a mutation, and {rule.tool} a "
                              "tool that a person has confirmed as a read.")
        if rule.key and rule.key not in tool.params_schema.get("properties", {}):
            raise ConfigError(f"The lookup of {self.name} on {rule.on}: it has no param {rule.key!r}.")

    def fingerprint(self) -> str:
        return digest(super().fingerprint(), *(f"{name} {tool.hash}" for name, tool in sorted(self.tools.items())))

    async def check(self) -> None:
        """Check that the server answers, and that its tools are as a person has confirmed them."""
        self.offered = offered = await self.client.tools(Call())
        differing = [name for name, tool in self.tools.items()
                     if tool.name not in offered or offered[tool.name].hash != tool.hash]
        if differing:
            raise PreconditionFailed(
                f"It answers, but it has changed {', '.join(differing)} since a person confirmed this. Scripts cannot "
                f"call that until somebody has looked at it: keep connect {self.name} mcp")

    def offered_as(self, name: str) -> Tool:
        """The tool that scripts would call by this name."""
        return usable(self.offered.values())[name]

    async def shut_down(self) -> None:
        await self.client.close()

    async def _call(self, tool: Tool, params: Mapping[str, Json], call: Call) -> Json:
        rule = self._lookups.get(tool.script_name)
        filled = {rule.key: call.idempotency_key} if rule and rule.key else {}
        return _value(tool, await self.client.call_tool(tool, {**params, **filled}, call))

    async def _look(self, sent: Tool, rule: ToolLookup, params: Mapping[str, Json], call: Call) -> Verdict:
        tool, key = self.tools[rule.tool], call.idempotency_key
        try:
            arguments = rule.arguments(params, key)
        except LookupError:
            return Verdict.unknown("The look-up rule of this tool needs a param that this call does not have.")
        try:
            found = _value(tool, await self.client.call_tool(tool, arguments, call))
            answer = found if tool.result_schema is not None else _json_in(found)
        except (Transient, OutcomeUnknown) as error:
            return Verdict("retry", why=error.message)
        verdict = rule.verdict(answer, params, key)
        if verdict.status != "applied" or sent.result_schema is not None:
            return verdict
        return Verdict.applied({"text": encode(verdict.result), "content": []})

    def _environment(self) -> dict[str, str]:
        return {**self._env, **{variable: self.secret(variable) for variable in self._env_secrets}}


def _value(tool: Tool, result: Mapping[str, Any]) -> Json:
    """What a script gets: what the tool declares, or its text and whatever else is in the answer."""
    if tool.result_schema is not None:
        if "structuredContent" not in result:
            raise OutcomeUnknown(f"The tool {tool.name} answered, and without the result that it declares.")
        declared: Json = result["structuredContent"]
        return declared
    parts = [part for part in result.get("content") or () if isinstance(part, dict)]
    texts = [part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str)]
    return {"text": "\n".join(texts), "content": [part for part in parts if part.get("type") != "text"]}


def _json_in(value: Json) -> Json:
    """The JSON in the text of an answer; raises `OutcomeUnknown` if it is none."""
    try:
        return parse_json(str(value["text"])) if isinstance(value, dict) else None
    except ValueError:
        raise OutcomeUnknown("the answer of the look-up is text, and no JSON") from None


def _without(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The params that scripts give: all but the one that Keep fills."""
    properties = {key: value for key, value in schema.get("properties", {}).items() if key != name}
    needed = [each for each in schema.get("required", ()) if each != name]
    return {**schema, "properties": properties, "required": needed}


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"command cannot be read: {error}.") from None
