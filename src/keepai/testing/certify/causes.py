"""The line of a script that brings a fault about, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...model.errors import Finding
from .judge import Breach

_FROM_INPUT = "Make it from the id of what came in, such as mail.id: that is the same whenever it is read."
_ID_CALL = re.compile(r"\b(?:withItem|registerInput|publish)\s*\(|\bmessageId\s*:|\bsubkey\s*:")
_VOLATILE = re.compile(r"Date\.now\(\)|new Date\(\)|Math\.random\(\)|crypto\.randomUUID\(\)|performance\.now\(\)")
_INDEX = re.compile(
    r"\.entries\(\)|\.forEach\(\s*\(?\s*\(?[\w{}, ]+,\s*\w+\s*\)?\s*=>|\+\+|\.indexOf\(|\.length\b"
    r"|\.map\(\s*(?:async\s*)?\(\s*[^)]*,\s*\w+\s*\)")
_CURSOR = re.compile(
    r"\breturn\b.*(?:[cC]ursor|after|since|last|seen)|\blastCursor\b|^\s*(?:cursor|after|last)\w*\s*[:=]")


@dataclass(frozen=True)
class Cause:
    """Where a fault comes from, as well as reading the script can tell."""

    line: int | None
    code: str  # what stands there
    words: str
    instead: str


def cause_of(fault: Breach, source: str, findings: Sequence[Finding]) -> Cause:
    """The most likely cause of a fault."""
    lines = source.splitlines()
    if fault.kind == "question":
        return _of_question(fault, lines)
    if fault.kind == "identity":
        return _of_identity(fault, lines, findings)
    if fault.kind == "content":
        return _at_call(fault, lines, "what it sends is not the same when it is tried again",
                        "Make what is sent from the input alone, not from what was counted or noted while running: a "
                        "run that begins again counts again.")
    if fault.kind in ("second", "missing"):
        return _of_count(fault, lines, findings)
    if fault.kind == "case":
        found = _volatile_id(lines, findings)
        return Cause(*found, "an id differs on replay", _FROM_INPUT) if found else Cause(
            None, "", "", "`keep test` shows what differs: correct the script or the case.")
    return Cause(None, "", "", "A script must come to an end: look for what it does because of what it did itself.")


def _of_identity(fault: Breach, lines: Sequence[str], findings: Sequence[Finding]) -> Cause:
    named = {"item": "the item's id", "input": "the input's id", "message": "the messageId", "subkey": "the subkey"}
    found = _volatile(lines, findings)
    words = f"{named[fault.named]} differs on replay"
    if found is None:
        return Cause(_line(lines, _ID_CALL), "", words, _FROM_INPUT)
    return Cause(found[0], found[1], words, _FROM_INPUT)


def _of_count(fault: Breach, lines: Sequence[str], findings: Sequence[Finding]) -> Cause:
    found = _volatile_id(lines, findings)
    if found is not None:
        return Cause(*found, "an id differs on replay", _FROM_INPUT)
    index = _line(lines, _INDEX)
    if index is not None:
        return Cause(index, _code(lines, index, _INDEX), "an id depends on where something stands in a list",
                     "Lists grow, shrink and change their order. " + _FROM_INPUT)
    cursor = _line(lines, _CURSOR, last=True)
    if fault.kind == "missing" and cursor is not None:
        return Cause(cursor, lines[cursor - 1].strip(), "the cursor that is kept passes over something",
                     "Return the cursor that the read gave, as it is: `return { cursor: mails.lastCursor }`.")
    if fault.kind == "second":
        return _at_call(fault, lines, "nothing tells it that this was done before",
                        "Do it for an event or an item whose id is that of what came in.")
    return _at_call(fault, lines, "it is not done for everything that came in",
                    "Work on every entry that was read, and keep a cursor only of those that were passed on.")


def _of_question(fault: Breach, lines: Sequence[str]) -> Cause:
    number = re.search(r"\d+", fault.place or "")
    line = int(number[0]) if number else None
    if "done" in fault.words:
        advice = "Write `if (ctx.item.isDone) return;` as the first line of the item."
    else:
        advice = "What the script decides must follow from the input: it must be the same when it is tried again."
    if line is None and fault.call:
        return _at_call(fault, lines, "", advice)
    return Cause(line, lines[line - 1].strip() if line and line <= len(lines) else "", "", advice)


def _at_call(fault: Breach, lines: Sequence[str], words: str, instead: str) -> Cause:
    call = re.compile(rf"\.{re.escape(fault.call)}\s*\(") if fault.call else _ID_CALL
    line = _line(lines, call)
    return Cause(line, f"ctx.{fault.call}" if line and fault.call else "", words, instead)


def _volatile_id(lines: Sequence[str], findings: Sequence[Finding]) -> tuple[int, str] | None:
    """Time or chance in an id: `check` follows values; what it cannot follow may stand in the same line."""
    for each in findings:
        if each.code == "volatile-id":
            source = re.search(r"`([^`]+\))`,", each.message)
            return each.line, source[1] if source else lines[each.line - 1].strip()
    for number, line in enumerate(lines, 1):
        found = _VOLATILE.search(line)
        if found and _ID_CALL.search(line):
            return number, found[0]
    return None


def _volatile(lines: Sequence[str], findings: Sequence[Finding]) -> tuple[int, str] | None:
    found = _volatile_id(lines, findings)
    if found is not None:
        return found
    line = _line(lines, _VOLATILE)
    return None if line is None else (line, _code(lines, line, _VOLATILE))


def _line(lines: Sequence[str], pattern: re.Pattern[str], *, last: bool = False) -> int | None:
    found = [number for number, line in enumerate(lines, 1)
             if pattern.search(line) and not line.lstrip().startswith("//")]
    return (found[-1] if last else found[0]) if found else None


def _code(lines: Sequence[str], line: int, pattern: re.Pattern[str]) -> str:
    found = pattern.search(lines[line - 1])
    return found[0].strip() if found else ""
