"""The tree of errors: every one has a code, a sentence and a consequence, and the drawing shows them all."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator

import pytest

from keepai.model import errors
from keepai.model.errors import OUTCOMES, Consequence, Finding, KeepError, Location, ScriptInvalid, Transient
from keepai.model.states import REASONS


def tree(kind: type[KeepError] = KeepError) -> Iterator[type[KeepError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


def required(kind: type[KeepError]) -> list[str]:
    """What must be said to make one, beside nothing."""
    parameters = inspect.signature(kind).parameters.values()
    return [each.name for each in parameters if each.default is each.empty]


EVERY = pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)


@EVERY
def test_an_error_has_a_code_of_its_own_a_sentence_and_a_consequence(kind: type[KeepError]) -> None:
    assert re.fullmatch(r"[a-z_]+", kind.code)
    declared = [other for other in tree() if "code" in vars(other) and other.code == kind.code]
    assert len(declared) == 1
    assert issubclass(kind, declared[0]), "a narrower error may share the code of its parent, and of no other"
    assert kind.__doc__
    assert kind.__doc__.strip().splitlines()[0].endswith(".")
    assert kind.consequence in Consequence


@EVERY
def test_the_message_defaults_to_the_docstring(kind: type[KeepError]) -> None:
    if not required(kind):
        assert kind().message == (kind.__doc__ or "").strip().splitlines()[0]
        assert kind("It is so.").message == "It is so." == str(kind("It is so."))


def test_the_drawing_in_the_module_shows_the_whole_tree() -> None:
    drawn = re.findall(r"^[│├└ ]*(\w+) {2,}\S", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(kind.__name__ for kind in tree())


def test_every_consequence_has_an_outcome_that_means_something() -> None:
    assert set(OUTCOMES) == set(Consequence)
    for status, reason in OUTCOMES.values():
        assert reason in REASONS[status]
    assert len(set(OUTCOMES.values())) == len(Consequence)


@pytest.mark.parametrize(("kind", "consequence"), [
    ("ScriptThrew", "repair"), ("PhaseViolation", "repair"), ("LimitExceeded", "repair"), ("BadValue", "repair"),
    ("Rejected", "repair"), ("Transient", "retry"), ("PermissionDenied", "person"), ("PreconditionFailed", "person"),
    ("OutcomeUnknown", "reconcile"), ("ConnectorBroke", "stop"), ("HostFault", "stop"),
])
def test_consequences_are_those_of_the_design(kind: str, consequence: str) -> None:
    assert getattr(errors, kind).consequence == consequence


def test_an_error_carries_its_place_and_its_wait() -> None:
    assert str(KeepError("x", at=Location(3, 7)).at) == "3:7"
    assert Transient("busy", retry_after=4.5).retry_after == 4.5


def test_a_refused_script_names_its_first_errors_and_counts_the_rest() -> None:
    found = [Finding(f"code-{n}", "error", n, 1, f"Wrong {n}.", "Mend it.") for n in range(1, 6)]
    warning = Finding("soft", "warning", 9, 9, "Hm.", "")
    refused = ScriptInvalid([*found, warning])
    assert refused.findings == [*found, warning]
    assert "5 error(s)" in refused.message
    assert "(and 2 more)" in refused.message
    assert "1:1 error code-1: Wrong 1. Mend it." in refused.message
    assert "soft" not in refused.message
    json.dumps(refused.message)
