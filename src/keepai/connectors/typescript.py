"""Declares what scripts may call, as TypeScript, for editors and language models.

The declarations are made from the params and results that connectors declare, and from the table of phases. So they say
what the host will check. `script.d.ts` holds the part that does not depend on the connectors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from ..model.operations import Kind, Step, Surface, allowed
from .base import Connector, OperationSpec, surface

HEAD = "// What a script may call here. Made by `keep types`: run it again when the connectors change.\n"

_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_DEPTH_MAX = 12  #: of one type; what is nested deeper, or contains itself, is any JSON

_PARTS_MAX = 2_000  #: of one type; a service may describe types that refer to each other without end

#: A built-in operation → its declaration.
_BUILT_IN: Mapping[Kind, str] = {
    Kind.PEEK: "/** A page of pending events of a subscribed topic, oldest first: 100 by default, at most 1,000, and "
               "1 MiB in all (a larger event comes alone). If more wait it has a `cursor`; `after` goes on there. */\n"
               "peek(topic: string, options?: { limit?: number; after?: string }): Promise<TopicPage>;",
    Kind.GET_BY_IDS: "/** Pending events of a subscribed topic by their messageId. */\n"
                     "getByIds(topic: string, ids: string[]): Promise<TopicEvent[]>;",
    Kind.REGISTER_INPUT: "/** Register what came in, with a title for people; returns the inputId at once. */\n"
                         "registerInput(input: ExternalInput): string;",
    Kind.WITH_ITEM: "/** One unit of work. The id is the same each time; the function begins with "
                    "`if (ctx.item.isDone) return;`. */\n"
                    "withItem<T>(id: string, title: string, work: (ctx: ItemContext) => Promise<T>): Promise<T>;",
    Kind.LOG: "/** Add a line to the run's log. */\nlog(...values: any[]): void;",
}
_PUBLISH = "publish(topic: string | string[], event: {{ messageId: string{}; payload?: any }}): Promise<void>;"
_CONTEXTS = {
    Step.PRODUCER: "ProducerContext", Step.PREPARE: "PrepareContext", Step.MUTATE: "MutateContext",
    Step.NEXT: "NextContext", Step.ROUTINE: "RoutineContext",
}


def declare(connectors: Iterable[Connector], *, mutate_reads: bool = False) -> str:
    """The whole of `keep.d.ts`."""
    known = list(connectors)
    offered = surface(known)
    fixed = files("keepai.connectors").joinpath("script.d.ts").read_text("utf-8")
    parts = [HEAD, fixed, _inputs(offered)]
    parts += [text for connector in known for text in _connector(connector)]
    parts += [_context(step, known, mutate_reads) for step in Step]
    return "\n".join([*parts, _item_context(known)])


# -- types -----------------------------------------------------------------------------------------


def type_of(
    schema: Mapping[str, Any] | None, defs: Mapping[str, Any] | None = None, depth: int = 0,
    left: Iterator[int] | None = None,
) -> str:
    """A JSON schema as a type. What the schema does not say is any JSON. `defs`: the schemas that it refers to."""
    left = iter(range(_PARTS_MAX)) if left is None else left
    if not schema or depth > _DEPTH_MAX or next(left, None) is None:
        return "Json"
    if defs is None:
        defs = schema.get("$defs", {})
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        outer = {key: member for key, member in defs.items() if key != name}  # a type that contains itself is cut there
        return type_of(defs.get(name), outer, depth + 1, left)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _joined((type_of(branch, defs, depth + 1, left) for branch in schema[word]), " | ")
    if "allOf" in schema:
        return _joined((type_of(branch, defs, depth + 1, left) for branch in schema["allOf"]), " & ")
    if "enum" in schema or "const" in schema:
        return _joined((json.dumps(value) for value in schema.get("enum", [schema.get("const")])), " | ")
    return _of_kind(schema, defs, depth, left)


def _of_kind(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int, left: Iterator[int]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return _joined((type_of({**schema, "type": one_kind}, defs, depth + 1, left) for one_kind in kind), " | ")
    if kind == "array":
        several = [type_of(item, defs, depth + 1, left) for item in schema.get("prefixItems", ())]
        if several:
            return f"[{', '.join(several)}]"
        return f"{_closed(type_of(schema.get('items'), defs, depth + 1, left))}[]"
    if kind == "object":
        return _object(schema, defs, depth, left)
    return _PLAIN.get(str(kind), "Json")


def _object(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int, left: Iterator[int]) -> str:
    needed = schema.get("required", ())
    members = [
        f"{name if _NAME.fullmatch(name) else json.dumps(name)}{'' if name in needed else '?'}: "
        f"{type_of(member, defs, depth + 1, left)}" for name, member in schema.get("properties", {}).items()
    ]
    more = schema.get("additionalProperties")
    if more or (not members and more is None):
        # Members of other types must fit the index signature too, so beside such members it can only be any.
        other = "any" if members or not isinstance(more, dict) else type_of(more, defs, depth + 1, left)
        members.append(f"[key: string]: {other}")
    return f"{{ {'; '.join(members)} }}" if members else "{}"


def _joined(types: Iterator[str], by: str) -> str:
    distinct = list(dict.fromkeys(types))
    return distinct[0] if len(distinct) == 1 else by.join(_closed(t) if by == " & " else t for t in distinct)


def _closed(text: str) -> str:
    return f"({text})" if " | " in text or " & " in text else text


# -- connectors and contexts -----------------------------------------------------------------------


def _inputs(offered: Surface) -> str:
    kinds = [(source, " | ".join(json.dumps(type_name) for type_name in types))
             for source, types in offered.input_types.items() if types]
    members = [f"\n  | {{ source: {json.dumps(s)}; type: {kind}; id: string; title: string }}" for s, kind in kinds]
    return f"/** What can come in here. */\ntype ExternalInput ={''.join(members)};\n"


def _connector(connector: Connector) -> Iterator[str]:
    for kinds, word in _PARTS:
        specs = [spec for spec in connector.operations.values() if spec.kind in kinds]
        if specs:
            yield _interface(_part(connector, word), [_operation(spec) for spec in specs])


_PARTS: tuple[tuple[frozenset[Kind], str], ...] = (
    (frozenset({Kind.READ}), "Reads"), (frozenset({Kind.READ_BY_ID}), "ReadsById"),
    (frozenset({Kind.MUTATION}), "Mutations"),
)


def _part(connector: Connector, word: str) -> str:
    return f"{connector.name[:1].upper()}{connector.name[1:]}{word}"


def _operation(spec: OperationSpec) -> str:
    params, result = type_of(spec.params_schema), type_of(spec.result_schema)
    if spec.params_schema is None:
        params = "{ [key: string]: Json }"
    if spec.returns_page:
        schema = spec.result_schema or {}
        items = schema.get("items")
        result = f"Page<{type_of(items, schema.get('$defs', {})) if items else 'any'}>"
    elif spec.result_schema is None:
        result = "any"
    needed = (spec.params_schema or {}).get("required") or "$ref" in (spec.params_schema or {})
    first = f"params{'' if needed or spec.kind is Kind.MUTATION else '?'}"
    return f"{_comment(spec.doc)}{spec.name}({first}: {params}): Promise<{result}>;"


def _comment(doc: str) -> str:
    lines = doc.replace("*/", "* /").strip().splitlines()
    if len(lines) < 2:
        return f"/** {lines[0]} */\n" if lines else ""
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def _context(step: Step, connectors: list[Connector], mutate_reads: bool) -> str:
    def may(kind: Kind) -> bool:
        return allowed(step, kind, mutate_reads=mutate_reads)

    members = [text for kind, text in _BUILT_IN.items() if may(kind)]
    if may(Kind.PUBLISH):
        members.append(_PUBLISH.format("; inputId: string" if step is Step.PRODUCER else ""))
    if step is Step.NEXT:
        members.append("/** The state as it was; what `next` returns takes its place. */\nstate: any;")
    words = [word for kinds, word in _PARTS if any(may(kind) for kind in kinds)]
    if step is Step.ROUTINE:
        words.remove("Mutations")  # only an item has them
    members += _members(connectors, {word: f"{'Terminal<{}>' if word == 'Mutations' else '{}'}" for word in words})
    return _interface(_CONTEXTS[step], members)


def _item_context(connectors: list[Connector]) -> str:
    item = "/** Whether this item is done or skipped: then no mutation is allowed in it. */\n"
    members = [_BUILT_IN[Kind.LOG], f"{item}item: {{ isDone: boolean }};"]
    forms = {"Reads": "{}", "ReadsById": "{}", "Mutations": "InItem<{}>"}
    return _interface("ItemContext", members + _members(connectors, forms))


def _members(connectors: list[Connector], forms: Mapping[str, str]) -> list[str]:
    """One member for each connector that has operations of these parts."""
    members = []
    for connector in connectors:
        kinds = {spec.kind for spec in connector.operations.values()}
        parts = [forms[word].format(_part(connector, word)) for of, word in _PARTS if word in forms and of & kinds]
        if parts:
            members.append(f"{connector.name}: {' & '.join(parts)};")
    return members


def _interface(name: str, members: list[str]) -> str:
    body = "\n".join(f"  {line}" if line else "" for member in members for line in member.split("\n"))
    return f"interface {name} {{\n{body}\n}}\n"
