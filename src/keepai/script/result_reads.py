"""Finds where a script reads the result of a mutation: there it gets null if a person only says that it happened.

Names are followed from the third parameter of `next`, or from the call in a routine, as far as possible. A result that
is passed on as a whole counts as read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..model.operations import Step
from .calls import follow
from .check import read_script
from .declaration import Declared, find_workflow, read_workflow
from .findings import FindingReport
from .handlers import read_handlers
from .scope import bound_names
from .script_reading import ScriptReading
from .tree import Node, parameters

_OUTCOME_AT = 2  #: in the parameters of `next`: ctx, prepared, mutationResult

#: Around a value that is only awaited, or not used.
_WRAPPED = frozenset({"await_expression", "parenthesized_expression"})
_UNREAD = frozenset({"expression_statement", "unary_expression", "binary_expression", "if_statement"})


@lru_cache(maxsize=64)
def result_reads(source: str, handler: str, operation: str) -> tuple[str, ...]:
    """Each line in which a handler reads the result of its mutation, or of this operation, as "line 7: …"."""
    reading = read_script(source, FindingReport())
    workflow = find_workflow(reading) if reading is not None else None
    if reading is None or workflow is None:
        return ()
    declaration, members = read_workflow(reading, workflow)
    read_handlers(reading, declaration, members)
    named = [declared for declared in declaration.handlers if declared.name == handler]
    lines = sorted({node.place[0] for declared in named for node in _of_handler(reading, declared, operation)})
    text = source.split("\n")
    return tuple(f"line {line}: {text[line - 1].strip()}" for line in lines)


def _of_handler(reading: ScriptReading, handler: Declared, operation: str) -> Iterator[Node]:
    for step, function in handler.steps.items():
        if step is Step.NEXT:
            for pattern in parameters(function)[_OUTCOME_AT:][:1]:
                yield from _of_outcome(reading, pattern)
        elif step is Step.ROUTINE:
            for call in follow(reading, handler, step, function).calls:
                if call.name == operation:
                    yield from _of_value(reading, call.node)


def _of_outcome(reading: ScriptReading, pattern: Node) -> Iterator[Node]:
    """Reads of `.result` through a pattern: a name for the whole outcome, or for its parts."""
    for name, pattern_ in _members(pattern):
        if name == "result":
            yield from _of_names(reading, pattern_)
    if pattern.kind in ("assignment_pattern", "rest_pattern"):
        for child in pattern.children[:1]:
            yield from _of_outcome(reading, child)
    binding = reading.scopes.binding(pattern) if pattern.kind == "identifier" else None
    for mention in binding.references if binding is not None else ():
        yield from _of_mention(reading, mention)


def _of_mention(reading: ScriptReading, mention: Node) -> Iterator[Node]:
    """What one use of the whole outcome reads of it."""
    parent = mention.parent
    assert parent is not None
    if parent.kind == "member_expression" and mention.field == "object":
        member = parent.get("property")
        if member is not None and member.text == "result":
            yield from _of_value(reading, parent)
    elif parent.kind == "variable_declarator" and mention.field == "value":
        name = parent.get("name")
        if name is not None:
            yield from _of_outcome(reading, name)
    elif parent.kind not in _UNREAD | _WRAPPED:
        yield mention


def _of_value(reading: ScriptReading, node: Node) -> Iterator[Node]:
    """Where a result is read: through the names that it gets, or in place."""
    while node.parent is not None and node.parent.kind in _WRAPPED:
        node = node.parent
    parent = node.parent
    if parent is not None and parent.kind == "variable_declarator" and node.field == "value":
        name = parent.get("name")
        if name is not None:
            yield from _of_names(reading, name)
    elif parent is not None and parent.kind not in _UNREAD:
        yield node


def _of_names(reading: ScriptReading, pattern: Node) -> Iterator[Node]:
    for name in bound_names(pattern):
        binding = reading.scopes.binding(name)
        yield from binding.references if binding is not None else ()


def _members(pattern: Node) -> Iterator[tuple[str, Node]]:
    """The members of an object pattern: their names, and the pattern for each."""
    for child in pattern.children if pattern.kind == "object_pattern" else ():
        if child.kind == "pair_pattern":
            key, value = child.get("key"), child.get("value")
            if key is not None and value is not None:
                yield key.text, value
        elif child.kind == "object_assignment_pattern":
            for left in child.children[:1]:
                yield left.text, left
        elif child.kind == "shorthand_property_identifier_pattern":
            yield child.text, child
