"""The contract: names, marks, the surface, and what a spec tells the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from keepai.connectors.base import Call, Connector, OperationSpec, Page, Verdict, mutation, read, surface
from keepai.model.errors import ConfigError, ConnectorBroke, RuleBroken
from keepai.model.operations import Kind


class Inner(TypedDict):
    street: str


class Append(TypedDict):
    spreadsheetId: str
    values: list[str | int | None]
    sheet: NotRequired[str]
    address: NotRequired[Inner]


class Appended(BaseModel):
    rowId: str
    row: int = 1


class Strict(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    to_whom: str = Field(alias="to")
    level: Literal["low", "high"] = "low"
    count: Annotated[int, Field(ge=1)] = 1

    @field_validator("to_whom")
    @classmethod
    def small(cls, value: str) -> str:
        return value.lower()


class Free(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int


@dataclass(frozen=True)
class Point:
    x: int
    label: str | None = None


class Sheets(Connector):
    input_types = ("row",)
    answer: Any = None

    @read
    async def search(self, params, call):  # type: ignore[no-untyped-def]
        return self.answer

    @read(by_id=True)
    async def get_row(self, params: dict[str, Any], call: Call) -> Appended | None:
        """One row."""
        return self.answer  # type: ignore[no-any-return]

    @read
    async def list_rows(self, params: Free, call: Call) -> Page[Inner]:
        return self.answer  # type: ignore[no-any-return]

    @mutation(identity=("spreadsheetId",), target="spreadsheetId", settle=5, key_window=60)
    async def append_row(self, params: Append, call: Call) -> Appended:
        return self.answer or Appended(rowId=f"{params['spreadsheetId']}/1")

    @append_row.reconcile
    async def find_row(self, params: Append, call: Call) -> Verdict:
        return self.answer  # type: ignore[no-any-return]

    @append_row.compare_payload
    def same_row(self, old: Any, new: Any) -> Any:
        return self.answer or "minor"

    @append_row.preview
    def describe(self, params: Append) -> str:
        return f"add to {params['spreadsheetId']}"

    @mutation
    async def notify(self, params: Strict, call: Call) -> None:
        self.answer = params

    @mutation
    async def draw(self, params: Point, call: Call) -> Point:
        return params

    async def helper(self, params: Any, call: Call) -> None:
        """Not an operation."""


def spec(operation: str, answer: Any = None) -> OperationSpec:
    connector = Sheets()
    connector.answer = answer
    return connector.operations[operation]


class TestNames:
    def test_the_default_name_is_the_class_name_with_a_small_letter(self) -> None:
        assert (Sheets().name, Sheets(name="work").name) == ("sheets", "work")

    def test_a_class_may_name_itself_and_its_subclasses(self) -> None:
        class Base(Connector):
            name = "mail"

        class Derived(Base):
            pass

        class Other(Sheets):
            pass

        assert (Base().name, Derived().name, Other().name) == ("mail", "mail", "other")

    def test_a_class_with_its_own_init_needs_no_call_to_the_base(self) -> None:
        class Custom(Connector):
            def __init__(self, world: object) -> None:
                self.world = world

        assert Custom(1).name == "custom"
        assert surface([Custom(1)]).operations == {"custom": {}}

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "a b",
            "1a",
            "a-b",
            "ä",
            "peek",
            "publish",
            "withItem",
            "log",
            "state",
            "item",
            "system",
            "workflow",
            "then",
            "__proto__",
            "constructor",
            "x" * 65,
            "a.b",
            5,
            "a\n",
        ],
    )
    def test_a_name_that_a_script_cannot_say_is_refused(self, name: Any) -> None:
        with pytest.raises(ConfigError):
            Sheets(name=name)

    def test_two_connectors_of_one_name_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="'sheets'"):
            surface([Sheets(), Sheets()])

    def test_the_surface_holds_operations_and_inputs(self) -> None:
        found = surface([Sheets(name="work")])
        assert found.kind("work.appendRow") is Kind.MUTATION
        assert found.kind("work.getRow") is Kind.READ_BY_ID
        assert found.kind("work.search") is Kind.READ
        assert found.kind("work.helper") is None
        assert found.input_types == {"work": ("row",), "system": ("schedule", "random")}


class TestDefinition:
    def test_a_method_that_is_not_async_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="async def"):
            read(lambda self, params, call: None)

    def test_a_method_without_params_and_call_is_refused(self) -> None:
        async def lonely(self: object) -> None: ...

        with pytest.raises(ConfigError, match="params, call"):
            mutation(lonely)

    def test_a_preview_must_not_be_async(self) -> None:
        async def act(self: object, params: object, call: object) -> None: ...
        async def tell(self: object, params: object) -> str:
            return ""

        with pytest.raises(ConfigError, match="plain"):
            mutation(act).preview(tell)

    def test_an_override_without_a_mark_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="must be marked"):

            class Sub(Sheets):
                async def append_row(self, params: Any, call: Call) -> Any: ...

    def test_two_methods_with_one_script_name_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="both called 'getRow'"):

            class Sub(Sheets):
                @read
                async def getRow(self, params: Any, call: Call) -> Any: ...

    def test_a_subclass_cannot_add_a_method_to_its_bases_mutation(self) -> None:
        with pytest.raises(ConfigError, match="declare the mutation again"):

            class Sub(Sheets):
                @Sheets.notify.reconcile
                async def look(self, params: Any, call: Call) -> Verdict: ...

    async def test_a_subclass_may_override_a_reconcile_method(self) -> None:
        class Sub(Sheets):
            async def find_row(self, params: Any, call: Call) -> Verdict:
                return Verdict.retry(7)

        verdict = await Sub().operations["appendRow"].reconcile({"spreadsheetId": "a", "values": []}, Call())
        assert (verdict.status, verdict.after) == ("retry", 7)

    def test_an_unresolvable_annotation_says_what_to_do(self) -> None:
        class Lost(Connector):
            @read
            async def get(self, params: Nowhere, call: Call) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(ConfigError, match="module level"):
            _ = Lost().operations

    def test_an_identity_that_the_params_lack_is_refused(self) -> None:
        class Wrong(Connector):
            @mutation(identity=("spreadsheet",))
            async def add(self, params: Append, call: Call) -> None: ...

        with pytest.raises(ConfigError, match="'spreadsheet'"):
            _ = Wrong().operations

    async def test_a_marked_method_can_still_be_called_from_python(self) -> None:
        assert (await Sheets().append_row({"spreadsheetId": "a", "values": []}, Call())).rowId == "a/1"


class TestSpec:
    def test_a_spec_tells_what_was_declared(self) -> None:
        found = spec("appendRow")
        assert (found.full_name, found.kind, found.can_reconcile) == ("sheets.appendRow", Kind.MUTATION, True)
        assert (found.settle_s, found.key_window_s) == (5, 60)
        assert (spec("notify").settle_s, spec("notify").can_reconcile) == (None, False)
        assert spec("getRow").doc == "One row."
        assert (spec("listRows").returns_page, spec("search").returns_page) == (True, False)

    def test_schemas_are_there_for_typed_operations_only(self) -> None:
        found = spec("appendRow").params_schema
        assert found is not None
        assert found["required"] == ["spreadsheetId", "values"]
        assert spec("search").params_schema is None
        assert (spec("listRows").result_schema or {})["type"] == "array"

    def test_identity_target_and_payload_divide_the_params(self) -> None:
        params: Any = {"spreadsheetId": "a", "values": [1]}
        found = spec("appendRow")
        assert found.target(params) == "a"
        assert found.identity(params) == {"spreadsheetId": "a"}
        assert found.payload(params) == {"values": [1]}

    def test_without_a_declaration_all_params_are_identity(self) -> None:
        params: Any = {"to": "a", "count": 2}
        assert spec("notify").identity(params) == params
        assert spec("notify").payload(params) == {}
        assert spec("notify").target(params) == ""

    def test_the_preview_is_the_connectors_or_names_every_param(self) -> None:
        assert spec("appendRow").preview({"spreadsheetId": "a\u202e", "values": []}) == "add to a‹U+202E›"
        assert spec("notify").preview({"to": "a\nb", "count": 2}) == 'sheets.notify: count=2, to="a\\nb"'

    def test_payloads_compare_by_the_method_or_by_equality(self) -> None:
        assert spec("appendRow").compare({}, {"a": 1}) == "minor"
        assert spec("notify").compare({"a": 1, "b": 2}, {"b": 2, "a": 1.0}) == "equivalent"
        assert spec("notify").compare({}, {"a": 1}) == "significant"
        with pytest.raises(ConnectorBroke):
            spec("appendRow", "maybe").compare({}, {})


class TestParams:
    def test_all_problems_are_listed_with_place_and_expected_type(self) -> None:
        wrong: Any = {
            "spredsheetId": 1,
            "values": ["a", {}],
            "sheet": None,
            "address": {"street": 4, "town": 1},
        }
        with pytest.raises(RuleBroken) as caught:
            spec("appendRow").parse(wrong)
        for part in (
            "params.spreadsheetId is missing: it must be string",
            "params.values[1] must be string or integer or null, not an object",
            "params.sheet must be string, not null",
            "params.address.street must be string, not 4",
            "params.address.town is unknown",
            'params.spredsheetId is unknown: did you mean "spreadsheetId"?',
        ):
            assert part in caught.value.message

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            ({"to": "a", "level": "mid"}, 'params.level must be one of "low", "high", not "mid"'),
            ({"to": "a", "count": 0}, "params.count: Input should be greater than or equal to 1"),
            ({"to": "a", "count": "1"}, 'params.count must be integer, not "1"'),
        ],
    )
    def test_values_are_not_bent_to_fit(self, wrong: Any, told: str) -> None:
        with pytest.raises(RuleBroken) as caught:
            spec("notify").parse(wrong)
        assert told in caught.value.message

    def test_params_are_normalised_without_adding_defaults(self) -> None:
        assert spec("notify").parse({"to": "BOB"}) == {"to": "bob"}
        assert spec("draw").parse({"x": 1.0}) == {"x": 1}
        assert spec("draw").parse({"x": 1, "label": None}) == {"x": 1, "label": None}

    def test_a_model_that_allows_more_keeps_more(self) -> None:
        assert spec("listRows").parse({"known": 1, "more": [2]}) == {"known": 1, "more": [2]}

    def test_no_params_are_an_empty_object(self) -> None:
        assert spec("search").parse(None) == {}

    @pytest.mark.parametrize("wrong", [[], "x", 5, True])
    def test_params_must_be_an_object(self, wrong: Any) -> None:
        with pytest.raises(RuleBroken, match="one object"):
            spec("search").parse(wrong)

    def test_a_validator_that_breaks_is_the_connectors_fault(self) -> None:
        with pytest.raises(ConnectorBroke):
            Breaking().operations["act"].parse({"x": 1})

    async def test_a_method_gets_its_own_copy_in_its_own_type(self) -> None:
        connector = Sheets()
        await connector.operations["notify"].invoke({"to": "bob"}, Call())
        assert connector.answer == Strict(to="bob")
        params: Any = {"deep": {"list": [1]}}
        seen: list[Any] = []

        class Spy(Connector):
            @read
            async def look(self, params, call):  # type: ignore[no-untyped-def]
                params["deep"]["list"].append(2)
                seen.append(params)

        await Spy().operations["look"].invoke(params, Call())
        assert params == {"deep": {"list": [1]}}
        assert seen == [{"deep": {"list": [1, 2]}}]


class Exploding(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def explode(cls, value: int) -> int:
        raise RuntimeError("boom")


class Breaking(Connector):
    @mutation
    async def act(self, params: Exploding, call: Call) -> None: ...


class TestResults:
    async def test_typed_results_become_json(self) -> None:
        assert await spec("appendRow").invoke({"spreadsheetId": "a", "values": []}, Call()) == {
            "rowId": "a/1",
            "row": 1,
        }
        assert await spec("draw").invoke({"x": 1}, Call()) == {"x": 1, "label": None}
        assert await spec("getRow").invoke({}, Call()) is None
        assert await spec("search", [Point(1)]).invoke({}, Call()) == [{"x": 1, "label": None}]

    async def test_a_page_keeps_its_fields(self) -> None:
        page = await spec("listRows", Page([{"street": "x"}], lastCursor="c", n=Point(1))).invoke(
            {"known": 1}, Call()
        )
        assert isinstance(page, Page)
        assert (list(page), page.fields) == (
            [{"street": "x"}],
            {"lastCursor": "c", "n": {"x": 1, "label": None}},
        )

    @pytest.mark.parametrize(
        ("operation", "answer"),
        [
            ("search", object()),
            ("search", {"when": float("nan")}),
            ("search", {1: 2}),
            ("search", {"a": {1, 2}}),
            ("search", 2**60),
            ("search", Page([object()])),
            ("search", Page([], field=object())),
            ("getRow", {"row": 1}),
            ("getRow", "text"),
            ("listRows", Page([{"street": 5}])),
            ("listRows", "text"),
        ],
    )
    async def test_a_result_out_of_shape_is_the_connectors_fault(self, operation: str, answer: Any) -> None:
        with pytest.raises(ConnectorBroke, match=f"sheets.{operation} returned a result that it did not declare"):
            await spec(operation, answer).invoke({"known": 1}, Call())

    async def test_exceptions_of_the_method_pass_through(self) -> None:
        class Bad(Connector):
            @read
            async def look(self, params: Any, call: Call) -> None:
                raise KeyError("x")

        with pytest.raises(KeyError):
            await Bad().operations["look"].invoke({}, Call())

    async def test_a_found_result_counts_even_when_its_shape_is_incomplete(self) -> None:
        params: Any = {"spreadsheetId": "a", "values": []}
        whole = await spec("appendRow", Verdict.applied({"rowId": "x"})).reconcile(params, Call())
        part = await spec("appendRow", Verdict.applied({"found": True})).reconcile(params, Call())
        assert (whole.result, part.result) == ({"rowId": "x", "row": 1}, {"found": True})

    async def test_a_reconcile_that_returns_no_verdict_is_the_connectors_fault(self) -> None:
        with pytest.raises(ConnectorBroke, match="no Verdict"):
            await spec("appendRow", True).reconcile({"spreadsheetId": "a", "values": []}, Call())

    async def test_without_a_reconcile_method_nobody_can_tell(self) -> None:
        assert (await spec("notify").reconcile({"to": "a"}, Call())).status == "unknown"


def test_a_page_refuses_fields_that_every_array_has() -> None:
    with pytest.raises(ConfigError, match="length"):
        Page([], length=3)


def test_a_call_knows_how_much_time_is_left() -> None:
    assert Call().remaining_s == float("inf")
    assert Call(deadline=0).remaining_s == 0
