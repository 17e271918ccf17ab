"""Errors of syntax: one finding for each mistake, at the place where it can be seen.

A bracket that is not closed confuses the parser everywhere. So brackets are matched first, and a mismatch is reported
alone.
"""

from __future__ import annotations

import re
from bisect import bisect
from typing import TYPE_CHECKING

from .findings import At, FindingReport, quote
from .tree import Node, enclosing_function, place, raw_nodes, walk

if TYPE_CHECKING:
    import tree_sitter

_CLOSERS = {")": "(", "]": "[", "}": "{"}
_OPENERS = {"(": "(", "[": "[", "{": "{", "${": "{"}

_FOREIGN = {
    "jsx_element": "JSX", "jsx_self_closing_element": "JSX", "decorator": "A decorator",
}


def check_syntax(tree: tree_sitter.Tree, source: bytes, report: FindingReport) -> None:
    """Report what the parser could not parse."""
    if not tree.root_node.has_error:
        return
    if _unbalanced(tree, source, report):
        return
    skip_below: int | None = None
    lines: set[int] = set()
    line_ends = [match.start() for match in re.finditer(rb"\n", source)]
    for cursor, depth in raw_nodes(tree):
        if skip_below is not None and depth > skip_below:
            continue
        skip_below = None
        node = cursor.node
        if node is not None and (node.is_error or node.is_missing):
            skip_below = depth
            # Not `node.start_point.row`: in tree-sitter 0.26 that frees an integer which is still in use, and a script
            # with an error after its line 256 crashes the process.
            line = bisect(line_ends, node.start_byte)
            if line not in lines:  # a second error in the line nearly always follows from the first
                lines.add(line)
                _unexpected(node, source, report)


def check_dialect(root: Node, report: FindingReport) -> None:
    """Report what the parser accepts as JavaScript and the sandbox does not."""
    for node in walk(root):
        if node.kind in _FOREIGN:
            report.add("syntax", node, f"{_FOREIGN[node.kind]} is not part of the language.",
                       "Write plain JavaScript.")
        elif node.kind == "await_expression":
            _check_await(node, report)


def _check_await(node: Node, report: FindingReport) -> None:
    function = enclosing_function(node)
    if function is not None and "async" not in function.tokens:
        report.add("await-outside-async", node, "`await` stands in a function that is not async.",
                   "Write `async` before that function.")


def _unbalanced(tree: tree_sitter.Tree, source: bytes, report: FindingReport) -> bool:
    """Report the first bracket that does not match, or the innermost one that is never closed."""
    open_brackets: list[tuple[str, tree_sitter.Node]] = []
    for cursor, _ in raw_nodes(tree):
        node = cursor.node
        if node is None or node.child_count or node.is_missing or node.is_named:
            continue
        bracket = node.type
        if bracket in _OPENERS:
            open_brackets.append((_OPENERS[bracket], node))
        elif bracket in _CLOSERS:
            if not open_brackets:
                report.add("syntax", _at(node, source), f"This `{bracket}` closes nothing.", "Remove it.")
                return True
            opener, opened = open_brackets.pop()
            if opener != _CLOSERS[bracket]:
                at = _at(opened, source)
                report.add("syntax", _at(node, source),
                           f"This `{bracket}` does not close the `{opener}` of {at.line}:{at.column}.",
                           f"Close the `{opener}` first.")
                return True
    if open_brackets:
        opener, opened = open_brackets[-1]
        report.add("syntax", _at(opened, source), f"This `{opener}` is never closed.",
                   "Add the closing bracket.")
    return bool(open_brackets)


def _unexpected(node: tree_sitter.Node, source: bytes, report: FindingReport) -> None:
    if node.is_missing:
        report.add("syntax", _at(node, source), f"`{node.type}` is missing here.", f"Write `{node.type}`.")
        return
    lines = source[node.start_byte:node.end_byte].decode("utf-8", "replace").strip().splitlines()
    near = f" near {quote(lines[0][:40])}" if lines and lines[0] else ""
    report.add("syntax", _at(node, source), f"This is not JavaScript{near}.",
               "Look for a missing comma, quote or bracket, or for a type annotation.")


def _at(node: tree_sitter.Node, source: bytes) -> At:
    return At(*place(source, node.start_byte))


