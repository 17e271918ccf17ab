"""The shape of what each command prints with `--json`: one table, from which the reference is made and tests judge.

A shape is a word (`text`, `number`, `yes or no`, `time`, `anything`; with `?` it may be null), a list with the one
shape of its entries, or a dict of names. The name `*` stands for any others. Shapes of records are read off them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.certificate import Certification
from ...engine.deploy import Deployment
from ...engine.remedies import Remedy
from ...engine.retention import Pruned
from ...engine.shadow import ShadowReport
from ...engine.verdict import DeployVerdict
from ...ledger.base import SeenHost
from ...ledger.checks import Check
from ...ledger.moving import Moved
from ...model import records
from ...model.acts import ACTS
from ...model.errors import Finding
from ...reading.activity import Activity
from ...reading.blast import Blast
from ...reading.digest import Digest
from ...reading.explain import Explanation
from ...reading.overview import WorkflowGlance
from ...reading.proposal_card import Touch
from ...reading.record_shapes import ANY, NUMBER, TEXT, TIME, YES, Shape, of
from ...testing.cases import Result
from ...testing.rehearsal import Rehearsal
from .narrator import NewsLine

_FINDING: Shape = {"file": TEXT, **of(Finding)}
_ACT: Shape = {"act": TEXT, "subject": TEXT, "result": ANY}
_DEPLOYED: dict[str, Shape] = of(Deployment)
_BLOCKED: Shape = {"?": {
    "run_id": TEXT, "handler": TEXT, "status": TEXT, "kind": "text?", "mutation_id": "text?", "needs_you": YES,
    "why": TEXT, "line": "number?", "retry_at": "time?", "commands": [TEXT],
}}
_MOVE: Shape = {"machine": TEXT, "from": "text?", "to": TEXT, "at": TIME, "why": ANY, "actor": "text?"}
_DONE: Shape = {"act": TEXT, "subject": TEXT, "actor": TEXT, "at": TIME, "detail": ANY}
_LET_IN: Shape = {
    "name": TEXT, "role": TEXT, "added_by": TEXT, "added_at": TIME, "removed_by": "text?", "removed_at": "time?"}
_TOLD: Shape = {**of(NewsLine), "at": TIME}
_NOTE: Shape = {"at": TIME, "kind": TEXT, "text": TEXT, "*": ANY}

#: Command → what it prints, in each of its cases.
_PLANNED: dict[str, Shape] = {
    "id": "text?", "ended": TEXT, "draft": "text?",
    "fault": {"?": {"failed": TEXT, "because": TEXT, "details": ANY}},
    "used": {"attempts": NUMBER, "tokens_in": NUMBER, "tokens_out": NUMBER, "money": NUMBER},
}
_UNIT: dict[str, Shape] = {"name": TEXT, "file": TEXT, "installed": YES, "unit": TEXT}
SHAPES: Mapping[str, Mapping[str, Shape]] = {
    "demo": {"": {"ok": YES, "*": ANY}},
    "init": {"": {"folder": TEXT, "files": [TEXT]},
             "with --templates": [{"name": TEXT, "does": TEXT, "connectors": [TEXT]}]},
    "plan": {"": _PLANNED, "with --write-prompts": {"files": [TEXT]}},
    "repair": {"": _PLANNED},
    "check": {"": [_FINDING]},
    "types": {"": {"file": "text?", "connectors": [TEXT], "text": TEXT}},
    "test": {"": [{"file": TEXT, **of(Result)}]},
    "certify": {"": [{"file": TEXT, **of(Certification), "passed": YES, "kept": YES, "made_case": YES}]},
    "test-connector": {"": [{
        "file": TEXT, "operation": TEXT, "class": TEXT, "subject": TEXT, "broken": NUMBER, "untried": [TEXT],
        "trials": [{"trial": TEXT, "said": [TEXT], "effects": NUMBER, "broken": [TEXT], "notes": [TEXT]}],
    }]},
    "deploy": {
        "": _DEPLOYED, "if the script has errors": {"findings": [_FINDING]},
        "with --dry-run": {"dry_run": YES, **of(Rehearsal), "deployment": _DEPLOYED},
        "with --verdict": of(DeployVerdict),
    },
    "fix": {"": {"repair": TEXT, "workflow_id": TEXT}},
    "shadow": {"": {**of(ShadowReport), "all_same": YES}},
    "propose": {"": of(records.Proposal), "if the script has errors": {"findings": [_FINDING]}},
    "proposals": {"": [{**of(records.Proposal), "does": [TEXT], "touches": [of(Touch)], "cases_in_words": [TEXT],
                        "proof": [TEXT], "warnings": [TEXT]}]},
    "rollback": {
        "": {**_DEPLOYED, "rolled_back_to": TEXT},
        "with --list": [{"version": TEXT, "active": YES, "author": TEXT, "hash": TEXT, "activated_at": TIME}],
    },
    "graph": {"": {
        "workflow": TEXT,
        "handlers": [{"name": TEXT, "kind": TEXT, "subscribe": [TEXT], "publishes": ANY, "schedule": "text?",
                      "parked": NUMBER}],
        "topics": [{"name": TEXT, "subscriber": "text?", "waiting": NUMBER}],
    }},
    "connect": {"": {
        "name": TEXT, "type": TEXT, "file": TEXT, "added": YES, "settings": {"*": ANY}, "secrets": [TEXT],
        "checked": YES,
    }, "an MCP server": {
        "name": TEXT, "type": TEXT, "file": TEXT, "added": YES, "settings": {"*": ANY}, "secrets": [TEXT],
        "checked": YES, "tools": {"*": TEXT}, "unconfirmed": [TEXT], "gone": [TEXT],
    }},
    "secrets list": {"": [{"connection": TEXT, "secret": TEXT, "state": TEXT, "set_at": "time?"}]},
    "secrets set": {"": {"connection": TEXT, "secret": TEXT}},
    "secrets rotate": {"": {"path": TEXT, "key": TEXT, "secrets": NUMBER}},
    "secrets delete": {"": {"connection": TEXT, "deleted": [TEXT]}},
    "dev": {"a line for each happening": _TOLD},
    "serve": {"a line for each happening, on stderr": _NOTE},
    "status": {"": {"host": YES, "refused": "text?", "shown": NUMBER, "workflows": [
        {**of(records.Workflow), "blocked": _BLOCKED, "needs_you": [TEXT]}]}},
    "watch": {"": {
        "workflows": [{**of(WorkflowGlance), "lately": of(Activity)}], "questions": [of(records.Escalation)],
        "runs": [of(records.Run)],
    }},
    "open": {"": {"address": TEXT}},
    "todo": {"": [{**of(records.Escalation), "commands": [TEXT]}]},
    "digest": {"": of(Digest)},
    "inputs": {"": [of(records.Input)]},
    "outputs": {"": [of(records.Output)]},
    "items": {"": [{**of(records.Item), "applied": NUMBER, "needs_you": YES}]},
    "runs": {"": [{**of(records.Run), "items": [TEXT]}]},
    "deliveries": {"": [of(records.InboxEntry)]},
    "replay": {"": _ACT},
    "show": {"": {"what": TEXT, "id": TEXT, "shown": NUMBER, "history": [_MOVE], "acts": [_DONE], "*": ANY}},
    "why": {"": {**of(Explanation), "tried": {"?": [of(Remedy)]}}},
    "blast": {"": of(Blast)},
    "logs": {"; with -f a line for each": [{**of(records.Traced), "handler": TEXT, "at": TIME}]},
    **{act.command: {"": _ACT} for act in ACTS.values() if "shown" in act.params},
    **{name: {"": _ACT, "with --where, --workflow or --all": {
        "act": TEXT, "chosen": [{"id": TEXT, "workflow": TEXT, "version": NUMBER, "what": TEXT}], "done": [TEXT],
        "refused": [{"id": TEXT, "message": TEXT}]}} for name in ("approve", "reject")},
    "notify test": {"": [{"channel": TEXT, "sent": YES, "said": TEXT}]},
    "agent add": {"": {"agent": TEXT, "role": TEXT, "token": TEXT}},
    "agent list": {"": [_LET_IN]},
    "agent remove": {"": _ACT},
    "mcp install": {"": {"agent": TEXT, "target": TEXT, "files": [TEXT]}},
    "agent pin": {"": _ACT},
    "service show": {"": _UNIT},
    "service install": {"": _UNIT},
    "service uninstall": {"": _UNIT},
    "user add": {"": {"user": TEXT, "role": TEXT, "token": TEXT}},
    "user list": {"": [_LET_IN]},
    "user remove": {"": _ACT},
    "hosts": {"": [{**of(SeenHost), "state": TEXT}]},
    "host dead": {"": _ACT},
    "host drain": {"": _ACT},
    "db check": {"": {"path": TEXT, "sound": YES, "checks": [of(Check)]}},
    "db backup": {"": {"path": TEXT, "file": TEXT, "bytes": NUMBER, "checks": [of(Check)]}},
    "db move": {"": {**of(Moved), "rows": NUMBER}},
    "db accept-older": {"": {"path": TEXT, "was_older": YES}},
    "db vacuum": {"": {"path": TEXT, "bytes_before": NUMBER, "bytes": NUMBER}},
    "db prune": {"": {"dry_run": YES, **of(Pruned)}},
    "doctor": {"": [{"name": TEXT, "state": TEXT, "said": TEXT, "do": TEXT}]},
    "help": {"": {"*": {"*": TEXT}}},
    "version": {"": {"version": TEXT}},
    "completion": {"": {"shell": TEXT, "script": TEXT}},
}


def shown(shape: Shape, depth: int = 0) -> str:
    """A shape as people read it."""
    lead = "  " * (depth + 1)
    if isinstance(shape, str):
        return shape
    if isinstance(shape, list):
        return f"[{shown(shape[0], depth)}, …]"
    if set(shape) == {"?"}:
        return f"null or {shown(shape['?'], depth)}"
    if set(shape) == {"*"}:
        return f"{{ any name: {shown(shape['*'], depth)} }}"
    entries = [f"{lead}{'…' if name == '*' else name}: {shown(each, depth + 1)}" for name, each in shape.items()]
    return "{\n" + "\n".join(entries) + "\n" + "  " * depth + "}"
