"""How control leaves a function after a call of a mutation: what can still run, and what never does.

A mutation ends the script, so it ends every path as `return` does. Facts are collected from the leaves up, once per
node. Branches are distinguished; values are not evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .findings import FindingReport
from .tree import FUNCTIONS, Node, from_below, walk

_LOOPS = frozenset({"for_statement", "for_in_statement", "while_statement", "do_statement"})
_LOGICAL = frozenset({"&&", "||", "??"})
_IDLE = frozenset({"empty_statement", "break_statement", "continue_statement", "function_declaration"})

_LAST = "Make the mutation the last thing on its path, and go on in `next`."
ONE_PER_RUN = "Reserve one event per run in `prepare`; the consumer runs again for the next one."


@dataclass(frozen=True)
class Fact:
    """What is known about a piece of code."""

    has: bool = False  # it contains a mutation
    ends: bool = False  # no path leads out of it: it mutates, returns or throws
    leaks: bool = False  # a path with a mutation would lead to the code after it, if it could continue
    repeats: bool = False  # a path with a mutation would lead to the next turn of the loop, if it could continue


_NOTHING = Fact()


class Flow:
    """The facts of one function. Reports code after a mutation."""

    def __init__(self, function: Node, mutations: Collection[Node], report: FindingReport) -> None:
        self._mutations = mutations
        self._report = report
        self._facts: dict[Node, Fact] = {}
        for node in from_below(function):
            fact = self._fact(node, inner=node is not function)
            if fact != _NOTHING:
                self._facts[node] = fact
        body = function.get("body")
        self.ends = body is not None and self._of(body).ends and self._of(body).has

    def _of(self, node: Node | None) -> Fact:
        return self._facts.get(node, _NOTHING) if node is not None else _NOTHING

    def _fact(self, node: Node, *, inner: bool) -> Fact:
        if node.kind in FUNCTIONS:
            return _NOTHING
        if node in self._mutations:
            return Fact(True, True, True, True)
        if node.kind in ("return_statement", "throw_statement"):
            return Fact(any(self._of(c).has for c in node.children), True)
        if node.kind == "statement_block":
            return self._sequence(node.children)
        if node.kind in ("switch_case", "switch_default"):
            return self._sequence([c for c in node.children if c.field == "body"])
        return self._branching(node)

    def _branching(self, node: Node) -> Fact:
        if node.kind in ("if_statement", "ternary_expression"):
            first, second = self._of(node.get("consequence")), self._of(node.get("alternative"))
            both_end = first.ends and second.ends
            return self._merged(node, ends=both_end or self._of(node.get("condition")).ends)
        if node.kind == "binary_expression" and _LOGICAL & set(node.tokens):
            return self._merged(node, ends=self._of(node.get("left")).ends)
        if node.kind == "switch_body":
            return self._merged(node, ends=self._cases_end(node))
        if node.kind in _LOOPS:
            return self._loop(node)
        if node.kind == "try_statement":
            return self._attempt(node)
        return self._merged(node, ends=self._one_after_another(node))

    def _merged(self, node: Node, *, ends: bool) -> Fact:
        facts = [self._of(child) for child in node.children]
        leaks, repeats = any(f.leaks for f in facts), any(f.repeats for f in facts)
        return Fact(any(f.has for f in facts), ends, leaks, repeats)

    def _cases_end(self, body: Node) -> bool:
        """Whether every case ends, or falls through to one that does."""
        ends, has_default = False, False
        for case in reversed(body.children):
            has_default = has_default or case.kind == "switch_default"
            leaves = any(c.kind == "break_statement" for c in case.children)
            ends_here = self._of(case).ends or (ends and not leaves)
            if not ends_here:
                return False
            ends = ends_here
        return ends and has_default

    def _loop(self, node: Node) -> Fact:
        body = node.get("body")
        if body is not None and self._of(body).repeats:
            self._report.add("mutation-in-loop", self._first_mutation(body),
                             "A run makes at most one mutation; the loop never gets past this call.",
                             ONE_PER_RUN)
        ends = self._of(body).ends if node.kind == "do_statement" else False
        fact = self._merged(node, ends=ends)
        return Fact(fact.has, fact.ends, fact.leaks)

    def _attempt(self, node: Node) -> Fact:
        body, handler, finalizer = (node.get(f) for f in ("body", "handler", "finalizer"))
        if body is not None and self._of(body).has and (handler is not None or finalizer is not None):
            self._report.add("mutation-caught", self._first_mutation(body),
                             "A mutation ends the script: `catch` and `finally` do not see how it ends.",
                             "Take the mutation out of `try`; the host deals with its failures.")
        ends = self._of(body).ends and (handler is None or self._of(handler).ends)
        return self._merged(node, ends=ends or self._of(finalizer).ends)

    def _one_after_another(self, node: Node) -> bool:
        """Whether an expression ends. Reports a second mutation in it."""
        ended = False
        for child in node.children:
            fact = self._of(child)
            if ended and fact.has:
                self._second(child)
                break
            ended = ended or (fact.ends and fact.has)
        return any(self._of(child).ends for child in node.children)

    def _sequence(self, statements: Sequence[Node]) -> Fact:
        has = ends = leaks = repeats = reported = False
        for statement in statements:
            fact = self._of(statement)
            if (leaks or (ends and has)) and not reported and not _is_idle(statement):
                reported = True
                self._after(statement, certain=ends)
            if statement.kind in ("return_statement", "throw_statement"):
                leaks = repeats = False
            if statement.kind == "break_statement":
                repeats = False
            has, ends = has or fact.has, ends or fact.ends
            leaks, repeats = leaks or fact.leaks, repeats or fact.repeats
        return Fact(has, ends, leaks, repeats)

    def _after(self, statement: Node, *, certain: bool) -> None:
        if not certain:
            self._report.add("after-conditional-mutation", statement,
                             "This runs only when the mutation above it was not called.",
                             "If you mean that, write `return;` after the mutation; if not, use `next`.")
        elif self._of(statement).has:
            self._second(statement)
        else:
            self._report.add("after-mutation", statement, "This never runs: a mutation ends the script.",
                             _LAST)

    def _second(self, node: Node) -> None:
        self._report.add("second-mutation", self._first_mutation(node),
                         "This mutation never happens: the one before it ends the script.",
                         "Make it in another consumer, fed by what `next` publishes.")

    def _first_mutation(self, node: Node) -> Node:
        return next((n for n in walk(node, into_functions=False) if n in self._mutations), node)


def _is_idle(statement: Node) -> bool:
    """Whether a statement does nothing, so that it may follow a mutation."""
    return statement.kind in _IDLE or (statement.kind == "return_statement" and not statement.children)
