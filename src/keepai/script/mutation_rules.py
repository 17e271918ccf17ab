"""Rules for mutations in `mutate`: at most one per run, and nothing after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .calls import FollowedStep
from .findings import FindingReport
from .flow import ONE_PER_RUN, Flow
from .tree import FUNCTIONS, Node, callee_taking, enclosing_function, method_name

_ROUNDS_MAX = 8  # how deep helpers may call helpers that mutate

#: Methods that call their function once per element.
_EACH = frozenset({
    "map", "forEach", "filter", "flatMap", "reduce", "reduceRight", "some", "every", "find", "findIndex",
})

#: Where the value of an expression is not used.
_UNUSED = frozenset({"expression_statement", "return_statement", "statement_block"})
_PASSED_ON = frozenset({"await_expression", "parenthesized_expression", "array"})
_COMBINED = frozenset({"Promise.all", "Promise.allSettled", "Promise.race", "Promise.any"})


def check_mutations(followed: FollowedStep, mutations: Sequence[Node], report: FindingReport) -> None:
    """Report code after or around the mutations of one step."""
    known = set(mutations)
    for _ in range(_ROUNDS_MAX):
        scratch = FindingReport()
        ending = {function for function in _functions(known) if Flow(function, known, scratch).ends}
        calls = {call for call, helper in followed.helpers if helper in ending}
        if calls <= known:
            break
        known |= calls
    for function in _functions(known):
        Flow(function, known, report)
    for call in known:
        _check_use(call, report)
        _check_callback(call, report)


def _functions(calls: Iterable[Node]) -> list[Node]:
    functions = {enclosing_function(call) for call in calls}
    return sorted((f for f in functions if f is not None), key=lambda f: f.start)


def _check_use(call: Node, report: FindingReport) -> None:
    """Report a mutation whose result is used."""
    node = call
    parent = node.parent
    while parent is not None and _passes_on(node, parent):
        node, parent = parent, parent.parent
    if parent is None or parent.kind in _UNUSED or (parent.kind in FUNCTIONS and node.field == "body"):
        return
    reason = "`.then`, `.catch` and `.finally` on it never run" if parent.kind == "member_expression" else \
        "its result never arrives here"
    report.add("mutation-result-used", call, f"A mutation never returns to the script, so {reason}.",
               "Call it alone with `await`, and use `mutationResult` in `next`.")


def _passes_on(node: Node, parent: Node) -> bool:
    if parent.kind == "binary_expression":
        return node.field == "right" and bool({"&&", "||", "??"} & set(parent.tokens))
    if parent.kind == "unary_expression":
        return parent.tokens == ["void"]
    if parent.kind == "call_expression":
        function = parent.get("function")
        return node.field == "arguments" and function is not None and function.text in _COMBINED
    if parent.kind == "ternary_expression":
        return node.field != "condition"
    if parent.kind == "arguments" and parent.parent is not None:
        return _passes_on(parent, parent.parent)
    return parent.kind in _PASSED_ON


def _check_callback(call: Node, report: FindingReport) -> None:
    """Report a mutation in a function that is called for several elements."""
    method = method_name(callee_taking(enclosing_function(call)))
    if method in _EACH:
        report.add("mutation-in-loop", call,
                   f"A run makes at most one mutation; `{method}` never gets past this call.",
                   ONE_PER_RUN)
