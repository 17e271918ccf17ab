"""Small faults that can be put into a file: each is one place in its text, and what stands there instead.

They are what a tired hand does: a comparison that is off by one, `and` for `or`, a condition that is gone, a flag the
wrong way round, a call that is left out, a result that is not returned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A file with one small fault."""

    path: Path  # from the root of the project
    line: int
    start: int  # in characters of the file
    end: int
    new: str
    function: str  # the one around it, as Python names it; "" if there is none

    def put_into(self, text: str) -> str:
        """The file's text with the fault."""
        return text[: self.start] + self.new + text[self.end :]

    def told(self, text: str) -> str:
        """Where it is and what it changes."""
        old = " ".join(text[self.start : self.end].split())
        return f"{self.path}:{self.line}: {old:.60} → {' '.join(self.new.split()) or 'nothing':.60}"


_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}
_BINARY: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*"}
#: Functions that only show something to a developer, and statements that only check what must be true anyway.
_SHOWN = ("__repr__", "__str__")


def of_python(path: Path, text: str) -> Iterator[Mutant]:
    """Every fault that a Python file can have."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    raw = [line.encode() for line in text.splitlines(keepends=True)]

    def at(number: int, column: int) -> int:
        return lines[number - 1] + len(raw[number - 1][:column].decode())

    def span(node: Any) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def source(node: ast.AST) -> str:
        return text[slice(*span(node))]

    def visit(node: ast.AST, function: str, prefix: str) -> Iterator[Mutant]:
        if isinstance(node, ast.ClassDef):
            prefix = f"{prefix}{node.name}."
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in _SHOWN:
                return
            function = f"{prefix}{node.name}"
            prefix = f"{function}.<locals>."
        if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr | ast.AnnAssign) or _is_for_types(node):
            return
        if function:
            yield from (Mutant(path, part.lineno, *span(part), new, function) for part, new in _faults(node, source))
        for child in _inner(node):
            yield from visit(child, function, prefix)

    yield from visit(ast.parse(text), "", "")


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """What stands inside, without annotations, defaults and decorators."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from node.body
    else:
        yield from ast.iter_child_nodes(node)


def _faults(node: ast.AST, of: Callable[[ast.AST], str]) -> Iterator[tuple[Any, str]]:
    """A node to replace, and what by; `of` gives a node's text."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield node, f"{of(left)} {_COMPARE[type(op)]} {of(right)}"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield node, f"({word.join(of(each) for each in values)})"
            yield node, f"({of(values[0])})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({of(operand)})"
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Constant):
            yield test, "False"
            if not isinstance(node, ast.While):
                yield test, "True"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY and not _is_text(left, right):
            yield node, f"({of(left)} {_BINARY[type(op)]} {of(right)})"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, str(value + 1)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield value, "None"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"


def _is_text(*parts: ast.AST) -> bool:
    return any(isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str))
               for part in parts)


_SQL = [
    (re.compile(r" <> "), " = "), (re.compile(r" >= "), " > "), (re.compile(r" <= "), " < "),
    (re.compile(r" < "), " <= "), (re.compile(r" > "), " >= "), (re.compile(r" is not null\b"), " is null"),
    (re.compile(r" is null\b"), " is not null"), (re.compile(r"\bdesc\b"), "asc"),
    (re.compile(r"(?<=\()'\w+', (?=')"), ""), (re.compile(r", '\w+'(?=\))"), ""),
    (re.compile(r"\band [a-z_.]+ (=|<>|<|>=) [:'a-z_0-9.]+"), "and 1"), (re.compile(r" \+ 1\b"), " + 0"),
]


def of_sql(path: Path, text: str) -> Iterator[Mutant]:
    """Every fault that a file of statements can have; comments stay as they are."""
    for pattern, new in _SQL:
        for found in pattern.finditer(text):
            begin = text.rfind("\n", 0, found.start()) + 1
            if not text[begin:].lstrip().startswith("--"):
                yield Mutant(path, text.count("\n", 0, found.start()) + 1, found.start(), found.end(), new, "")
