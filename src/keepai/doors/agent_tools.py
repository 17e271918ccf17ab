"""What an agent can use: one table of tools, the same over every door that agents have.

A tool looks, tries something, or offers something that a person decides. What a person decides is no tool, and what an
agent's role does not have is not there for it. Text that may come from outside or from a script stands in fields that
begin with `untrusted_`, with every hidden character made visible: it is data, and never an instruction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from ..app import Keep
from ..config import Settings
from ..connectors.base import surface
from ..connectors.typescript import declare
from ..model.acts import REQUESTS
from ..model.codec import Json
from ..model.errors import NotFound, Refused
from ..model.principals import Principal
from ..model.visible_text import visible
from ..reading.whole_thing import THINGS, whole_thing
from ..script.check import check as check_script
from ..script.findings import CODES
from .script_process import ScriptProcess

ROWS_MAX = 100  #: of a list that a tool gives
_TEMPLATE = files("keepai.doors.cli").joinpath("template")
#: Page → the file of it, and what is in it.
_PAGES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "guide": ("AGENTS.md", "how to write a workflow: phases, rules, cases"),
    "example-script": ("invoices.js", "a whole workflow"),
    "example-cases": ("invoices.test.toml", "its cases"),
})


@dataclass(frozen=True)
class AgentDesk:
    """What the tools work on: a host, acting as the agent, and its settings."""

    keep: Keep
    settings: Settings

    async def answer(self, asked: Mapping[str, Any]) -> Any:
        """What a request gives: the result of the tool that it names, or without a name the list of all."""
        if "name" in asked:
            params = asked.get("params") or {}
            if not isinstance(params, dict):
                raise Refused("The params of a tool must be an object.")
            return await self.use(str(asked["name"]), params)
        return [{"name": name, "help": tool.help, "schema": tool.schema()}
                for name, tool in tools_of(self.keep.principal).items()]

    async def use(self, name: str, params: Mapping[str, Any]) -> Json:
        """Use a tool; what it gives is marked."""
        tool = tools_of(self.keep.principal).get(name)
        if tool is None:
            raise NotFound(f"There is no tool {visible(name[:40])!r}.")
        _check(name, tool, params)
        return marked(await tool.does(self, **params))

    @property
    def trials(self) -> ScriptProcess:
        """Where scripts are tried."""
        process = ScriptProcess.of(self.settings)
        if process is None:
            raise Refused("This host has no keep.toml, so it cannot try scripts. A person runs `keep init FOLDER`.")
        return process


@dataclass(frozen=True)
class AgentTool:
    """One tool: what a model is told of it, its parameters as JSON Schema, and what it does."""

    help: str
    does: Callable[..., Awaitable[Json]]
    params: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    act: str | None = None  # who has this act has the tool; without one every agent has it

    def schema(self) -> dict[str, Json]:
        """Its parameters, for a client."""
        return {"type": "object", "properties": {name: dict(each) for name, each in self.params.items()},
                "required": list(self.needed), "additionalProperties": False}


def tools_of(principal: Principal) -> dict[str, AgentTool]:
    """The tools that a principal has."""
    return {name: tool for name, tool in TOOLS.items()
            if tool.act is None or principal.role in REQUESTS[tool.act].roles}


def _check(name: str, tool: AgentTool, params: Mapping[str, Any]) -> None:
    missing = [each for each in tool.needed if each not in params]
    unknown = [visible(each[:40]) for each in params if each not in tool.params]
    wrong = [each for each, value in params.items()
             if each in tool.params and not isinstance(value, _TYPES[str(tool.params[each]["type"])])]
    if missing or unknown or wrong:
        raise Refused(f"The parameters of {name} do not fit: missing {missing}, unknown {unknown}, of a wrong type "
                      f"{wrong}.")


# -- what comes from outside ------------------------------------------------------------------------

#: Fields whose text the host itself has written or checked. The text of every other field may be somebody else's.
_OF_THE_HOST = frozenset({
    "act", "actions", "actor", "attempt", "author", "base_version", "before", "blocked_by", "blocked_status",
    "capabilities", "capability", "caused_by", "code", "connector", "created_by", "cursor", "digest", "from", "guide",
    "held_by", "host", "id", "idempotency_key", "kind", "lineage", "machine", "mode", "must_ask", "mutation_key",
    "new_capabilities", "not_granted", "operation", "page", "phase", "proposer", "resolution", "retry_of", "says",
    "sender", "severity", "state", "status", "step", "to", "trigger", "type", "version", "waiting", "what",
})
#: Fields that hold a whole value from outside, whatever the names in it are.
_WHOLE = frozenset({
    "answer", "args", "body", "data", "detail", "evidence", "facts", "identity", "outcome", "params", "payload",
    "prepare_result", "result", "wanted", "found",
})


def marked(value: Json, name: str = "", *, outside: bool = False) -> Json:
    """The same value with every text of others in a field named `untrusted_…`, and nothing hidden in any text."""
    if isinstance(value, dict):
        return {visible(key) if outside else _field(key, each): marked(each, key, outside=outside or key in _WHOLE)
                for key, each in value.items()}
    if isinstance(value, list):
        return [marked(each, name, outside=outside) for each in value]
    return visible(value) if isinstance(value, str) else value


def _field(name: str, value: Json) -> str:
    if name in _WHOLE and value not in (None, [], {}):
        return f"untrusted_{name}"
    texts = value if isinstance(value, list) else [value]
    known = name in _OF_THE_HOST or name.endswith(("_at", "_id"))
    return name if known or not any(isinstance(each, str) for each in texts) else f"untrusted_{name}"


# -- the tools ---------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.to_json() if hasattr(value, "to_json") else value


async def _status(desk: AgentDesk) -> Json:
    return {"workflows": _plain(await desk.keep.workflows())}


async def _todo(desk: AgentDesk, workflow: str | None = None) -> Json:
    return {"questions": _plain(await desk.keep.needs_you(await _workflow_id(desk, workflow) if workflow else None))}


async def _show(desk: AgentDesk, id: str) -> Json:
    keep = desk.keep
    if id[:4] in THINGS:
        found = await keep.parts.ledger.look(lambda read: whole_thing(read, keep.views(read), id))
        return {**found}
    workflow = await _workflow_id(desk, id)
    return {"what": "workflow", **next(_plain(w) for w in await keep.workflows() if w.id == workflow),
            "source": await _source(desk, workflow)}


async def _why(desk: AgentDesk, id: str) -> Json:
    return dict(_plain(await desk.keep.explain(id)))


async def _runs(desk: AgentDesk, workflow: str, limit: int = 20, after: str | None = None) -> Json:
    found = await desk.keep.runs(await _workflow_id(desk, workflow), limit=_rows(limit), after=after)
    return {"runs": _plain(found), "cursor": found.cursor}


async def _outputs(desk: AgentDesk, workflow: str, limit: int = 20, after: str | None = None) -> Json:
    found = await desk.keep.outputs(await _workflow_id(desk, workflow), limit=_rows(limit), after=after)
    return {"outputs": _plain(found), "cursor": found.cursor}


async def _types(desk: AgentDesk) -> Json:
    return {"declarations": declare(desk.settings.connectors, mutate_reads=_by_id(desk))}


async def _docs(desk: AgentDesk, page: str | None = None) -> Json:
    if page is None:
        return {"pages": [{"page": name, "says": about} for name, (_, about) in _PAGES.items()]}
    if page not in _PAGES:
        raise NotFound(f"There is no page {visible(page[:40])!r}. There are: {', '.join(_PAGES)}.")
    return {"page": page, "guide": _TEMPLATE.joinpath(_PAGES[page][0]).read_text("utf-8")}


async def _findings(desk: AgentDesk, code: str | None = None) -> Json:
    if code is not None and code not in CODES:
        raise NotFound(f"There is no finding {visible(code[:40])!r}. Without a code, all of them are listed.")
    return {"findings": {name: {"says": each.sentence} for name, each in CODES.items() if code in (None, name)}}


async def _check_tool(desk: AgentDesk, source: str) -> Json:
    known = surface(desk.settings.connectors)
    checked = await asyncio.to_thread(check_script, source, known, mutate_reads=_by_id(desk))
    return {"passed": not checked.errors, "findings": [vars(each) for each in checked.findings]}


async def _test(desk: AgentDesk, source: str, cases: str) -> Json:
    results = await desk.trials.test(source, cases)
    return {"passed": all(each["passed"] for each in results), "cases": results}


async def _certify(desk: AgentDesk, source: str, cases: str | None = None) -> Json:
    return dict(_plain(await desk.keep.certify(source, cases=cases)))


async def _dry_run(desk: AgentDesk, source: str) -> Json:
    return await desk.trials.rehearse(source)


async def _shadow(desk: AgentDesk, workflow: str, source: str, last: int = 100) -> Json:
    return dict(_plain(await desk.keep.shadow(await _workflow_id(desk, workflow), source, last=last)))


async def _propose(
    desk: AgentDesk, source: str, why: str, cases: str | None = None, grants: dict[str, Any] | None = None,
) -> Json:
    return dict(_plain(await desk.keep.propose(source, cases=cases, grants=grants, why=why)))


async def _propose_repair(desk: AgentDesk, workflow: str, source: str, why: str) -> Json:
    return {"id": await desk.keep.fix(await _workflow_id(desk, workflow), source, note=why)}


async def _propose_grant(desk: AgentDesk, workflow: str, capability: str, mode: str, why: str) -> Json:
    workflow_id = await _workflow_id(desk, workflow)
    source = await _source(desk, workflow_id)
    return dict(_plain(await desk.keep.propose(
        source, cases=None, grants={capability: mode}, why=why, workflow_id=workflow_id)))


async def _withdraw(desk: AgentDesk, id: str) -> Json:
    await desk.keep.withdraw(id)
    return {"id": id, "status": "withdrawn"}


async def _pause(desk: AgentDesk, workflow: str) -> Json:
    await desk.keep.pause(await _workflow_id(desk, workflow))
    return {"status": "paused"}


async def _workflow_id(desk: AgentDesk, typed: str) -> str:
    keep = desk.keep
    return await keep.parts.ledger.look(lambda read: str(keep.views(read).workflow_row(typed)["id"]))


async def _source(desk: AgentDesk, workflow_id: str) -> str:
    parts = desk.keep.parts
    row = await parts.ledger.one("workflow_by_id", workflow_id=workflow_id)
    assert row is not None, "it was just found"
    return (await parts.ledger.look(parts.script, workflow_id, (row["major"], row["minor"]))).source


def _by_id(desk: AgentDesk) -> bool:
    return desk.settings.policy.mutate_reads == "by_id"


def _rows(limit: int) -> int:
    return max(1, min(limit, ROWS_MAX))


_TYPES: Mapping[str, type] = {"string": str, "integer": int, "object": dict}
_TEXT: Mapping[str, Json] = {"type": "string"}
_SOURCE: Mapping[str, Json] = {"type": "string", "description": "The whole script, one ES module."}
_CASES: Mapping[str, Json] = {"type": "string", "description": "Its cases: the text of NAME.test.toml."}
_WORKFLOW: Mapping[str, Json] = {"type": "string", "description": "The name or the id of a workflow."}
_WHY: Mapping[str, Json] = {"type": "string", "description": "What it is for, for the person who decides."}
_PAGE: Mapping[str, Mapping[str, Json]] = {
    "limit": {"type": "integer", "description": f"How many, at most {ROWS_MAX}."},
    "after": {"type": "string", "description": "The cursor of the page before."},
}

#: Name → what an agent can use.
TOOLS: Mapping[str, AgentTool] = MappingProxyType({
    "status": AgentTool("Every workflow and how it stands.", _status),
    "todo": AgentTool("The questions that only a person can answer.", _todo, {"workflow": _WORKFLOW}),
    "show": AgentTool(
        "Everything about one thing by its id, with its history; about a workflow, also its active script.", _show,
        {"id": _TEXT}, ("id",)),
    "why": AgentTool("Why a thing stands as it does, and who or what can move it.", _why, {"id": _TEXT}, ("id",)),
    "runs": AgentTool("The runs of a workflow.", _runs, {"workflow": _WORKFLOW, **_PAGE}, ("workflow",)),
    "outputs": AgentTool(
        "What a workflow has sent, each with the inputs behind it.", _outputs, {"workflow": _WORKFLOW, **_PAGE},
        ("workflow",)),
    "types": AgentTool("The exact types of `ctx` here, as TypeScript. Read them before you write a call.", _types),
    "docs": AgentTool("How to write a workflow. Without a page: which pages there are.", _docs, {"page": _TEXT}),
    "findings": AgentTool("What the findings of `check` mean.", _findings, {"code": _TEXT}),
    "check": AgentTool(
        "Find mistakes in a script without running anything.", _check_tool, {"source": _SOURCE}, ("source",)),
    "test": AgentTool(
        "Run the cases of a script. Nothing outside is called.", _test, {"source": _SOURCE, "cases": _CASES},
        ("source", "cases"), act="certify"),
    "certify": AgentTool(
        "Run the cases with everything that can go wrong: deaths, lost answers, changed lists. It may take minutes.",
        _certify, {"source": _SOURCE, "cases": _CASES}, ("source",), act="certify"),
    "dry_run": AgentTool(
        "What a script would send if it were deployed now. It reads only what a person has granted its workflow, and "
        "sends nothing.", _dry_run, {"source": _SOURCE}, ("source",), act="certify"),
    "shadow": AgentTool(
        "Run a new script over recorded runs of a workflow, and compare what it would have sent.", _shadow,
        {"workflow": _WORKFLOW, "source": _SOURCE, "last": {"type": "integer"}}, ("workflow", "source"), act="certify"),
    "propose": AgentTool(
        "Offer a script, as a new workflow or as a new version. A person sees it with what the host found, and accepts "
        "it or not.", _propose,
        {"source": _SOURCE, "why": _WHY, "cases": _CASES,
         "grants": {"type": "object", "description": "Capability → allow, ask or deny, as you would like it."}},
        ("source", "why"), act="propose"),
    "propose_repair": AgentTool(
        "Offer a mended script for the run of a workflow that failed. It keeps topics, message ids and handlers.",
        _propose_repair, {"workflow": _WORKFLOW, "source": _SOURCE, "why": _WHY}, ("workflow", "source", "why"),
        act="fix"),
    "propose_grant": AgentTool(
        "Ask a person to grant a workflow a capability.", _propose_grant,
        {"workflow": _WORKFLOW, "capability": _TEXT, "mode": {"type": "string", "enum": ["allow", "ask", "deny"]},
         "why": _WHY}, ("workflow", "capability", "mode", "why"), act="propose"),
    "withdraw": AgentTool("Take back a proposal of yours.", _withdraw, {"id": _TEXT}, ("id",), act="withdraw"),
    "pause": AgentTool(
        "Start nothing more of a workflow. Only a person lets it run again.", _pause, {"workflow": _WORKFLOW},
        ("workflow",), act="pause"),
})
