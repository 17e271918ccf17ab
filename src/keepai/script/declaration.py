"""The workflow as the script declares it, with the position of each part. The manifest is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.operations import Step
from .findings import START
from .literals import ObjectMember
from .manifest import Handler, HandlerKind, Manifest, Schedule
from .script_reading import ScriptReading, call_of
from .tree import Node, walk

#: Topic name → its position.
Topics = Mapping[str, Node]

WORKFLOW_KEYS = ("name", "topics", "producers", "consumers", "routines")

_WORKFLOW = 'export default Keep.workflow({ name: "…", topics: { … }, producers: { … }, consumers: { … } });'
_NAME = 'name: "invoices-to-sheet"'
_TOPICS = 'topics: { "email.received": {} }'


@dataclass
class Declared:
    """A producer, consumer or routine. None means: left out, or unreadable and not judged."""

    name: str
    kind: HandlerKind
    at: Node
    publishes: Topics | None = None
    subscribe: Topics | None = None
    schedule: Schedule | None = None
    steps: dict[Step, Node] = field(default_factory=dict)
    bare: bool = False  # a producer or routine that is just a function
    without_publishes: bool = False

    def to_handler(self) -> Handler:
        """The part of the manifest."""
        return Handler(
            self.name, self.kind, None if self.publishes is None else tuple(self.publishes),
            tuple(self.subscribe or ()), self.schedule,
            Step.MUTATE in self.steps, Step.NEXT in self.steps, self._uses_state(),
        )

    def _uses_state(self) -> bool:
        """Whether the step whose result is kept as the handler's state may return anything."""
        last = self.steps.get(Step.NEXT if self.kind is HandlerKind.CONSUMER else Step(self.kind))
        if last is None:
            return self.kind is not HandlerKind.CONSUMER
        body = last.get("body")
        if body is None or body.kind != "statement_block":
            return True
        return any(node.kind == "return_statement" and node.children for node in walk(body, into_functions=False))


@dataclass
class Declaration:
    """A workflow."""

    name: str | None
    topics: Topics | None
    handlers: list[Declared] = field(default_factory=list)
    kinds: dict[str, HandlerKind] = field(default_factory=dict)  # of the handlers, by name

    def to_manifest(self, capabilities: tuple[str, ...]) -> Manifest | None:
        """The manifest, if there is enough for one."""
        if self.name is None or self.topics is None:
            return None
        handlers = tuple(handler.to_handler() for handler in self.handlers)
        return Manifest(self.name, tuple(self.topics), handlers, capabilities)


def find_workflow(reading: ScriptReading) -> Node | None:
    """The object that the default export passes to `Keep.workflow`; reports other exports."""
    default: Node | None = None
    for statement in reading.root.children:
        if statement.kind == "export_statement":
            if "default" in statement.tokens and default is None:
                default = statement
            else:
                reading.add("extra-export", statement, "A script exports only its workflow.",
                            "Remove `export`; a script is never imported.")
    if default is None:
        reading.add("no-workflow", START, "The script has no default export.", f"Write `{_WORKFLOW}`")
        return None
    return _argument(reading, default)


def _argument(reading: ScriptReading, export: Node) -> Node | None:
    value = export.get("value") or export.get("declaration")
    given = None if value is None else call_of(reading, reading.literals.resolve(value), "workflow")
    if given is None:
        reading.add("no-workflow", value or export, "The default export is not a workflow.",
                    f"Write `{_WORKFLOW}`")
        return None
    if len(given) != 1:
        reading.add("wrong-type", value or export, "Keep.workflow takes one object.", f"Write `{_WORKFLOW}`")
        return None
    return reading.expect(given[0], "an object", "The workflow", f"Write `{_WORKFLOW}`")


def read_workflow(reading: ScriptReading, node: Node) -> tuple[Declaration, dict[str, ObjectMember]]:
    """Name and topics, and the members of the workflow, from which the handlers are read."""
    members = reading.keyed(node, "The workflow", WORKFLOW_KEYS)
    needs_topics = bool({"producers", "consumers"} & set(members))  # routines have none
    for key, example, needed in (("name", _NAME, True), ("topics", _TOPICS, needs_topics)):
        if needed and key not in members:
            reading.add("missing-key", node, f"The workflow has no `{key}`.", f"Add `{example}`.")
    if not {"producers", "consumers", "routines"} & set(members):
        reading.add("no-handlers", node, "The workflow has no handlers, so nothing ever runs.",
                    "Add `producers` and `consumers`, or `routines`.")
    name = reading.string(members["name"].value, "`name`", f"Write `{_NAME}`.") if "name" in members else None
    if name is not None and not reading.name(name, members["name"].value, "A workflow"):
        name = None
    topics: Topics | None = None if needs_topics else {}
    if "topics" in members:
        topics = _topics(reading, members["topics"].value)
    return Declaration(name, topics), members


def _topics(reading: ScriptReading, node: Node) -> Topics | None:
    fix = f"Write `{_TOPICS}`."
    resolved = reading.literals.resolve(node)
    if resolved.kind == "array":  # a common mistake; its names still help to check the rest
        reading.add("wrong-type", node, "`topics` must be an object, not an array.", fix)
        return {text: at for text, at in reading.literals.texts(resolved) if text is not None}
    if reading.expect(node, "an object", "`topics`", fix) is None:
        return None
    topics: dict[str, Node] = {}
    readable = all(entry.key is not None for entry in reading.literals.entries(resolved))
    for entry in reading.members(resolved, "`topics`"):
        assert entry.key is not None
        reading.name(entry.key, entry.at, "A topic")
        reading.expect(entry.value, "an object", "A topic", "Write `{}`.")
        topics[entry.key] = entry.at
    return topics if readable else None
