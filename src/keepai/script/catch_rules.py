"""Rules for `try` and `catch` around calls on `ctx`: a script never sees a call fail.

A failed call ends the step, and the host decides what to try again. A `catch` still catches errors of other code in the
same `try`. So only two things are reported: a `try` without other code, and a loop that tries a call again.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.operations import Step, Surface
from .call_rules import makes_mutation
from .calls import CallSite, FollowedStep
from .script_reading import ScriptReading
from .tree import FUNCTIONS, Node, arguments

_LOOPS = frozenset({"for_statement", "while_statement", "do_statement"})
_LEAVES = frozenset({"break_statement", "return_statement", "throw_statement"})
_FIX = "Remove it: the host tries again what may be tried again, and asks a person about the rest."


def check_catches(
    reading: ScriptReading, steps: Iterable[FollowedStep], surface: Surface | None, *, mutate_reads: bool,
) -> None:
    """Warn of `catch` and of retries around calls."""
    calls = [call for followed in steps for call in followed.calls]
    only = _OnlyCalls({call.node for call in calls})
    for call in calls:
        ends = call.step is Step.MUTATE and makes_mutation(call, surface, mutate_reads=mutate_reads)
        if not ends and call.path[:1] not in (("log",), ("registerInput",)):  # other rules report these in `mutate`
            _check(reading, call, only)


def _check(reading: ScriptReading, call: CallSite, only: _OnlyCalls) -> None:
    around = _try_around(call.node)
    clause = around.get("handler") if around is not None else None
    method = _catching_method(call.node)
    if around is not None and clause is not None and _tries_again(around, clause):
        reading.add("retry-loop", call.node,
                    f"This loop never tries `ctx.{call.name}` again: a failed call ends the step.", _FIX)
    elif method or (around is not None and clause is not None and only.holds(around)):
        reading.add("call-caught", call.node,
                    f"`{method or 'catch'}` never sees `ctx.{call.name}` fail: a failed call ends the step.", _FIX)


def _catching_method(call: Node) -> str | None:
    """The method of the call's promise that gets a function for its failure."""
    member = call.parent
    key = member.get("property") if member is not None and member.kind == "member_expression" else None
    outer = member.parent if member is not None else None
    if key is None or outer is None or outer.kind != "call_expression" or outer.get("function") is not member:
        return None
    return f".{key.text}" if key.text == "catch" or (key.text == "then" and len(arguments(outer)) > 1) else None


def _try_around(node: Node) -> Node | None:
    """The innermost `try` of the same function around `node`."""
    parent = node.parent
    while parent is not None and node.kind not in FUNCTIONS:
        if parent.kind == "try_statement" and node.field == "body":
            return parent
        node, parent = parent, parent.parent
    return None


def _tries_again(around: Node, clause: Node) -> bool:
    """Whether a loop continues after the `catch` with the same call."""
    body = clause.get("body")
    last = body.children[-1] if body is not None and body.children else None
    if last is not None and last.kind in _LEAVES:
        return False
    parent = around.parent
    while parent is not None and parent.kind not in FUNCTIONS:
        if parent.kind == "for_in_statement":
            return False
        if parent.kind in _LOOPS:
            return True
        parent = parent.parent
    return False


class _OnlyCalls:
    """Whether a `try` contains only calls on `ctx`, so that nothing else in it can throw; cached."""

    def __init__(self, calls: set[Node]) -> None:
        self._calls = calls
        self._known: dict[Node, bool] = {}

    def holds(self, around: Node) -> bool:
        if around not in self._known:
            body = around.get("body")
            statements = body.children if body is not None else []
            self._known[around] = all(_call_of(statement) in self._calls for statement in statements)
        return self._known[around]


def _call_of(statement: Node) -> Node | None:
    """The call that a whole statement is: `await f()`, `const x = await f()`, `x = await f()`, `return f()`."""
    node: Node | None = statement
    while node is not None and node.kind != "call_expression":
        if node.kind in ("lexical_declaration", "variable_declaration", "expression_statement", "return_statement",
                         "await_expression", "parenthesized_expression"):
            node = node.children[0] if len(node.children) == 1 else None
        elif node.kind == "variable_declarator":
            name = node.get("name")
            node = node.get("value") if name is not None and name.kind == "identifier" else None
        elif node.kind == "assignment_expression":
            node = node.get("right")
        else:
            return None
    return node
