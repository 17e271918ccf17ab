"""One script while it is analysed: its tree, its variables, its literals and the findings so far."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .findings import FindingReport, HasPlace, listed, quote, suggest
from .literals import Literals, ObjectMember
from .scope import Scopes
from .tree import Node

NAME_MAX = 200

_NO_FIXES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class ScriptReading:
    """What every rule gets."""

    root: Node
    scopes: Scopes
    literals: Literals
    report: FindingReport

    def add(self, code: str, at: HasPlace, message: str, fix: str) -> None:
        """Note a finding."""
        self.report.add(code, at, message, fix)

    def expect(self, node: Node, wanted: str, subject: str, fix: str) -> Node | None:
        """The value of `node` if its type is `wanted` ("an object"); otherwise reports it."""
        resolved = self.literals.resolve(node)
        kind = self.literals.type_of(resolved)
        if kind == wanted:
            return resolved
        if kind is None:
            self.not_literal(node, subject)
        else:
            self.add("wrong-type", node, f"{subject} must be {wanted}, not {kind}.", fix)
        return None

    def not_literal(self, node: Node, subject: str) -> None:
        """Report a part of the declaration that cannot be read."""
        self.add("not-literal", node, f"{subject} cannot be read without running the script.",
                 "Write it out, or as a module-level `const` that is written out.")

    def string(self, node: Node, subject: str, fix: str) -> str | None:
        """The string value of `node`; otherwise reports it."""
        text = self.literals.text(node)
        if text is not None:
            return text
        if self.expect(node, "a string", subject, fix) is not None:
            self.not_literal(node, subject)  # a template with parts that are not constant
        return None

    def name(self, text: str, at: Node, subject: str) -> bool:
        """Whether `text` can be a name; otherwise reports it."""
        plain = bool(text.strip()) and len(text) <= NAME_MAX and text != "__proto__"
        if plain and all(c.isprintable() for c in text):
            return True
        self.add("bad-name", at, f"{subject} cannot be called {quote(text)}.",
                 f"Write a name of 1 to {NAME_MAX} printable characters.")
        return False

    def members(self, node: Node, subject: str) -> list[ObjectMember]:
        """The readable members of an object, the last of each key. Reports the others."""
        last: dict[str, ObjectMember] = {}
        for entry in self.literals.entries(node):
            if entry.key is None:
                self.not_literal(entry.at, f"A key of {subject}")
                continue
            earlier = last.get(entry.key)
            if earlier is not None and not entry.spread and not earlier.spread:
                self.add("duplicate-key", entry.at, f"{subject} has {quote(entry.key)} twice.",
                         "Remove one of the two.")
            last[entry.key] = entry
        return list(last.values())

    def keyed(
        self, node: Node, subject: str, known: Collection[str], fixes: Mapping[str, str] = _NO_FIXES,
    ) -> dict[str, ObjectMember]:
        """The members of an object with fixed keys. Reports every other key, with its fix in `fixes`."""
        members: dict[str, ObjectMember] = {}
        for entry in self.members(node, subject):
            assert entry.key is not None
            if entry.key in known:
                members[entry.key] = entry
            else:
                fix = fixes.get(entry.key) or suggest(
                    entry.key, known, f"Remove it; the keys are {listed(known)}.")
                self.add("unknown-key", entry.at, f"{subject} has no key {quote(entry.key)}.", fix)
        return members

    def strings(self, node: Node, subject: str, example: str) -> list[tuple[str, Node]] | None:
        """The elements of an array of strings, without repeats; None if it cannot be read."""
        array = self.expect(node, "an array", subject, f"Write {example}.")
        if array is None:
            return None
        texts: dict[str, Node] = {}
        failed = False
        for text, element in self.literals.texts(array):
            if text is None:
                failed = True
                self.string(element, f"An element of {subject}", f"Write {example}.")
            else:
                texts.setdefault(text, element)
        return None if failed else list(texts.items())


def call_of(reading: ScriptReading, node: Node, member: str) -> Sequence[Node] | None:
    """The arguments if `node` is a call of `Keep.<member>`; otherwise None."""
    function = node.get("function") if node.kind == "call_expression" else None
    if function is None or function.kind != "member_expression":
        return None
    target, name = function.get("object"), function.get("property")
    if target is None or name is None or target.text != "Keep" or name.text != member:
        return None
    given = node.get("arguments")
    if reading.scopes.binding(target) is not None or given is None:
        return None
    return given.children
