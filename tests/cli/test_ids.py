"""An id that is damaged, unknown or of another kind: every command that takes one says so, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepai.model.ids import KINDS

from .conftest import Place

#: What somebody may paste for the id of a thing.
DAMAGED: dict[str, Callable[[str], str]] = {
    "a damaged end": lambda id: id[:-3] + "!!!",
    "too long": lambda id: id + "0",
    "a letter that no id has": lambda id: id[:-1] + "u",
    "capitals": lambda id: id[:4] + id[4:].upper() + "Z",
    "a number too high": lambda id: id[:4] + "z" * 12,
    "never made": lambda id: id[:4] + "0" * 12,
    "nonsense": lambda id: id[:4] + "nope",
    "a quote": lambda id: id[:4] + "' or 1=1 --",
    "other digits": lambda id: id[:4] + "٣" * 12,
}

#: A command that takes an id, the kinds that it takes, and what else it is given.
COMMANDS = {
    "show": ("run", "inp", "evt", "mut", "itm"), "why": ("run", "inp", "evt", "mut", "itm", "apr"),
    "retry": ("run",), "skip": ("run", "inp", "evt", "itm"), "reprocess": ("evt", "itm"), "approve": ("apr", "fix"),
    "reject": ("apr", "fix"), "resolve": ("mut",), "finish": ("run",),
}
MORE = {"resolve": ("did_not_happen",)}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_or_unknown_id_is_told_and_changes_nothing(worked: Place, command: str) -> None:
    [run, *_] = worked.json("runs", "email-to-sheets")
    before = worked.files()
    for kind in COMMANDS[command]:
        for name, damage in DAMAGED.items():
            typed = damage(f"{kind}_{run['id'][4:]}")
            result = worked.type(command, typed, *MORE.get(command, ()), code=1)
            assert f"There is no {KINDS[kind][1]} {typed}" in result.stderr, (name, result.stderr)
    assert worked.files() == before


@pytest.mark.parametrize("command", ["retry", "skip", "reprocess", "resolve", "finish"])
def test_an_id_of_another_kind_is_told_to_be_of_another_kind(worked: Place, command: str) -> None:
    [run, *_] = worked.json("runs", "email-to-sheets")
    for kind in {"run", "inp", "evt", "mut", "itm", "apr"} - {*COMMANDS[command]}:
        typed = f"{kind}_{run['id'][4:]}"
        result = worked.type(command, typed, *MORE.get(command, ()), code=1)
        assert f"'{typed}' is not the id of a" in result.stderr
