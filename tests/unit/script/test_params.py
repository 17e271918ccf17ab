"""What `check` says of literal params, against what the connector says of the same params when it is called."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from keepai.connectors.base import Call, Connector, mutation, read, surface
from keepai.model.errors import RuleBroken
from keepai.script.check import check

PARAM_CODES = {"param-missing", "param-unknown", "param-wrong"}


class Inner(TypedDict):
    """A nested object."""

    first: str
    second: NotRequired[int | None]


class Find(TypedDict):
    """Much of what params are made of."""

    table: Literal["people", "firms"]
    limit: NotRequired[int | None]
    ratio: NotRequired[float]
    exact: NotRequired[bool]
    names: NotRequired[list[str]]
    inner: NotRequired[Inner]
    either: NotRequired[str | list[int]]
    where: NotRequired[dict[str, Any]]


@dataclass
class Paper:
    """A dataclass."""

    drawer: str
    pages: list[int]
    copies: int = 1


class Note(BaseModel):
    """A model with an alias."""

    text: str = Field(alias="body")
    tag: str | None = None


class Loose(BaseModel):
    """A model that takes more than it names."""

    model_config = ConfigDict(extra="allow")
    text: str


def number_of(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


class Bent(TypedDict):
    """A validator of its own takes what the type does not say."""

    number: Annotated[int, BeforeValidator(number_of)]


class Crm(Connector):
    """One operation for each way to declare params."""

    @read
    async def find(self, params: Find, call: Call) -> None:
        """Params as a TypedDict."""

    @mutation
    async def paper(self, params: Paper, call: Call) -> None:
        """Params as a dataclass."""

    @mutation
    async def note(self, params: Note, call: Call) -> None:
        """Params as a model."""

    @mutation
    async def loose(self, params: Loose, call: Call) -> None:
        """Params as a model that takes more."""

    @mutation
    async def bent(self, params: Bent, call: Call) -> None:
        """Params with a validator."""

    @mutation
    async def any(self, params: dict[str, Any], call: Call) -> None:
        """Any params."""


CRM = Crm()
OFFERED = surface([CRM])

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, -1.25, "", "a", "people", "firms", "5"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["first", "second", "a"]), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["table", "limit", "ratio", "exact", "names", "inner", "either", "where", "drawer", "pages", "copies", "body",
        "text", "tag", "number", "more"]  # fmt: skip
PARAMS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)
LIKELY: dict[str, Any] = {
    "find": {"table": "people"}, "paper": {"drawer": "d", "pages": [1]}, "note": {"body": "b"}, "loose": {"text": "t"},
    "bent": {"number": "5"}, "any": {},
}  # fmt: skip


def found(operation: str, literal: str) -> set[str]:
    """What `check` says about a call, with everything else in order."""
    call = f"await ctx.crm.{operation}({literal});"
    in_item = f'await ctx.withItem("1", "t", async (ctx) => {{ if (ctx.item.isDone) return; {call} }});'
    source = (
        'export default Keep.workflow({ name: "w", routines: { r: { schedule: { interval: "1h" }, '
        f"handler: async (ctx, state) => {{ {in_item} }} }} }} }});"
    )
    return {each.code for each in check(source, OFFERED).findings}


def refused(operation: str, params: Any) -> bool:
    try:
        CRM.operations[operation].parse(params)
    except RuleBroken:
        return True
    return False


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(LIKELY)), PARAMS, st.booleans())
def test_check_and_connector_say_the_same_of_literal_params(operation: str, params: Any, likely: bool) -> None:
    given_params = {**LIKELY[operation], **params} if likely else params
    codes = found(operation, json.dumps(given_params))
    if codes:
        assert codes <= PARAM_CODES
        assert refused(operation, given_params), "a false alarm"
    elif refused(operation, given_params):
        # A union whose branches share a type is not judged, nor is a type with a validator of its own.
        assert operation == "bent" or "either" in given_params


@pytest.mark.parametrize("literal", ["", "null", "undefined", "7", '"text"', "[]", "true"])
@pytest.mark.parametrize("operation", ["find", "any"])
def test_params_that_are_no_object_are_judged_as_the_connector_judges_them(operation: str, literal: str) -> None:
    value = json.loads(literal) if literal not in ("", "undefined") else None
    assert (found(operation, literal) != set()) == refused(operation, value)


@pytest.mark.parametrize(
    "literal",
    [
        "state", "{ ...state }", "{ table: state.table, limit: state.limit }", "{ table: `${state.table}` }",
        '{ table: "people", limit: undefined }', '{ table: "people", ratio: -0.5, names: [...state, `a`] }',
        '{ limit: "no", table: "people", ...state }', '{ table: "people", where: { a: { b: [null] } }, either: state }',
        '{ table: "people", [state.key]: 1 }', '{ table: "people", limit: 1e3, names: state.map((x) => x.id) }',
    ],
)  # fmt: skip
def test_what_is_not_written_out_is_not_judged(literal: str) -> None:
    assert found("find", literal) == set()
