"""Faulty scripts, made by rule from those that are right. A rule that changes nothing in a script makes none of it.

Each is a fault that this engine lets do harm. What it makes harmless is not here: time and chance in what a routine
sends are the same when it runs again, and a refused call cannot be caught.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .bases import Base

_ITEM = re.compile(r"(ctx\.withItem\()(`[^`]*`|[^,]+)(,)")
_MESSAGE = re.compile(r"(messageId: )(e\.id|entry\.id|mail\.id|delivery\.id|id)(?=[, ])")
_INPUT = re.compile(r"(\bid: )(e\.id|entry\.id|mail\.id|delivery\.id)(?=[, ])")
_LOOP = re.compile(r"for \(const (\{[^)]*\}|\w+) of (await [^{]+|\w+)\) \{\n")
_RETURN = re.compile(r"(return \{ cursor: )(\w+\.lastCursor)( \})")
_GUARD = re.compile(r"\n\s*if \(ctx\.item\.isDone\) return;")
_BEGIN = re.compile(r"(handler: async \(ctx[^)]*\) => \{\n)")
_MUTATION = re.compile(r"(ctx\.(?:mail\.send|gmail\.send|sheets\.appendRow|slack\.post|books\.post|gmail\.reply)\(\{)")


@dataclass(frozen=True)
class Rule:
    """One kind of fault."""

    kind: str
    apply: Callable[[str], str]


@dataclass(frozen=True)
class FaultyScript:
    """A script with one fault."""

    kind: str
    base: Base
    source: str


def faulty_scripts(every: Sequence[Base]) -> Iterator[FaultyScript]:
    """Every rule on every script in which it changes something."""
    for rule in RULES:
        for base in every:
            source = rule.apply(base.source)
            if source != base.source:
                yield FaultyScript(rule.kind, base, source)


def _by(pattern: re.Pattern[str], made: Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    return lambda source: pattern.sub(made, source, count=1)


def _id(pattern: re.Pattern[str], value: str) -> Callable[[str], str]:
    """The id replaced; `{}` is what it was made from."""
    def made(found: re.Match[str]) -> str:
        return found[1] + value.replace("{}", found[2]) + (found[3] if pattern is _ITEM else "")
    return _by(pattern, made)


def _counted(pattern: re.Pattern[str], value: str) -> Callable[[str], str]:
    """The id replaced by one that counts the entries of a list."""
    def apply(source: str) -> str:
        if not _LOOP.search(source) or not pattern.search(source):
            return source
        numbered = _LOOP.sub(lambda found: f"{found[0]}number++;\n", source, count=1)
        return _id(pattern, value)(_BEGIN.sub(lambda found: f"{found[1]}let number = 0;\n", numbered, count=1))
    return apply


def _first_only(source: str) -> str:
    """The cursor passes over what was not worked on: it is saved too early."""
    if not _RETURN.search(source):
        return source
    begun = _BEGIN.sub(lambda found: f"{found[1]}let first = true;\n", source, count=1)
    return _LOOP.sub(lambda found: f"{found[0]}if (!first) break;\nfirst = false;\n", begun, count=1)


def _counts_in_content(source: str) -> str:
    """What is sent counts what this run has done: a run that begins again counts less."""
    if not _ITEM.search(source) or not _MUTATION.search(source):
        return source
    begun = _BEGIN.sub(lambda found: f"{found[1]}let sent = 0;\n", source, count=1)
    guarded = _GUARD.sub(lambda found: f"{found[0]}\nsent++;", begun, count=1)
    for name in ("body: ", "text: ", "values: [", "subject: "):
        if name in guarded:
            extra = "`${sent}`, " if name.endswith("[") else "`${sent} ` + "
            return guarded if guarded.count(name) == 0 else guarded[::-1].replace(
                name[::-1], (name + extra)[::-1], 1)[::-1]
    return guarded


#: In a consumer chance follows from what was prepared, so that a random subkey does no harm there.
_random_subkey = _by(_MUTATION, lambda found: f"{found[1]} subkey: String(Math.random()),")

RULES: Sequence[Rule] = (
    Rule("no guard", _by(_GUARD, lambda found: "")),
    Rule("item id from time", _id(_ITEM, "`${{}}-${Date.now()}`")),
    Rule("item id from chance", _id(_ITEM, "`${{}}-${Math.random()}`")),
    Rule("item id from the place in a list", _counted(_ITEM, "`item-${number}`")),
    Rule("messageId from time", _id(_MESSAGE, "`${{}}-${Date.now()}`")),
    Rule("messageId from chance", _id(_MESSAGE, "`${{}}-${Math.random()}`")),
    Rule("messageId from the place in a list", _counted(_MESSAGE, "`message-${number}`")),
    Rule("the same messageId for everything", _id(_MESSAGE, '"new"')),
    Rule("input id from time", _id(_INPUT, "`${{}}-${Date.now()}`")),
    Rule("input id from chance", _id(_INPUT, "`${{}}-${Math.random()}`")),
    Rule("cursor lost", _by(_RETURN, lambda found: f"{found[1]}`${{{found[2]}}}0`{found[3]}")),
    Rule("cursor saved too early", _first_only),
    Rule("random subkey", lambda source: _random_subkey(source) if "routines:" in source else source),
    Rule("subkey from time", _by(_MUTATION, lambda found: f"{found[1]} subkey: String(Date.now()),")),
    Rule("state counted again", _counts_in_content),
)
