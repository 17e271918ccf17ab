"""`type = "openapi"`: chosen operations with the document's types, sent as `http` does; suggestions are proved."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepai import OutcomeUnknown, Rejected
from keepai.connectors import make
from keepai.connectors.base import Call
from keepai.connectors.openapi.lookup_guesses import guesses
from keepai.connectors.typescript import declare
from keepai.model.errors import ConfigError, RuleBroken
from keepai.model.operations import Kind
from keepai.testing import loopback
from keepai.testing.contract.api_twin import prove
from keepai.testing.loopback import Loopback
from tests.connectors.shop_api import DOCUMENT, Shop

CHOSEN = ["createOrder", "listOrders", "getOrder", "deleteOrder"]


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(Shop()) as server:
        yield server


def shop(folder: Path, document: Any = DOCUMENT, **more: Any) -> Any:
    (folder / "shop.json").write_text(json.dumps(document))
    return make("openapi", "shop", {"document": str(folder / "shop.json"), "operations": CHOSEN, **more})


def at(server: Loopback) -> dict[str, Any]:
    return {"base": server.url, "networks": ["127.0.0.1"]}


async def ask(connector: Any, operation: str, params: Any) -> Any:
    spec = connector.operations[operation]
    return await spec.invoke(spec.parse(params), Call(idempotency_key="key-1"))


def test_a_get_is_a_read_and_everything_else_a_mutation(tmp_path: Path) -> None:
    kinds = {name: spec.kind for name, spec in shop(tmp_path).operations.items()}
    assert kinds == {"createOrder": Kind.MUTATION, "listOrders": Kind.READ, "getOrder": Kind.READ_BY_ID,
                     "deleteOrder": Kind.MUTATION}


async def test_params_become_the_request_that_the_document_describes(tmp_path: Path, server: Loopback) -> None:
    connector = shop(tmp_path, **at(server))
    assert await ask(connector, "createOrder", {"body": {"item": "book"}}) == {"status": 201, "body": {"item": "book"}}
    await ask(connector, "listOrders", {"external_id": "a&b", "state": ["open", "paid"]})
    await ask(connector, "getOrder", {"id": "7/a?b"})
    with pytest.raises(Rejected, match=r"of 127\.0\.0\.1 has"):
        await ask(connector, "getOrder", {"id": "7/../8"})
    post, listed, got = server.seen
    assert (post.method, post.path, post.headers["idempotency-key"]) == ("POST", "/orders", "key-1")
    assert list(listed.pairs) == [("external_id", "a&b"), ("state", "open"), ("state", "paid")]
    assert got.path == "/orders/7%2Fa%3Fb"


@pytest.mark.parametrize(("params", "told"), [
    ({"body": {"item": 5}}, r"params\.body\.item must be string, not 5"),
    ({"body": {}}, r"params\.body\.item is missing"),
    ({"body": {"item": ""}}, "at least 1 characters"),
    ({"body": {"item": "x", "count": 1.5}}, r"params\.body\.count must be integer"),
    ({"body": {"item": "x", "parent": {"item": None}}}, r"params\.body\.parent\.item must be string"),
    ({}, r"params\.body is missing"), ({"body": {"item": "x"}, "url": "https://x.example"}, r"params\.url is unknown"),
])
def test_what_does_not_fit_the_document_is_refused_before_it_is_sent(
    tmp_path: Path, params: dict[str, Any], told: str,
) -> None:
    with pytest.raises(RuleBroken, match=told):
        shop(tmp_path).operations["createOrder"].parse(params)


def test_what_the_document_allows_is_taken(tmp_path: Path) -> None:
    body = {"item": "x", "count": 1.0, "note": None, "parent": {"item": "y"}, "colour": "red"}
    assert shop(tmp_path).operations["createOrder"].parse({"body": body})["body"] == {**body, "count": 1}


def test_types_are_declared_for_editors(tmp_path: Path) -> None:
    text = declare([shop(tmp_path)])
    assert "createOrder(params: { body: { item: string; count?: number; note?: string | null" in text
    assert "getOrder(params: { id: string }): Promise<{ status: number; body: Json } | null>;" in text


async def test_a_result_that_the_document_does_not_describe_is_a_result(tmp_path: Path, server: Loopback) -> None:
    document = copy.deepcopy(DOCUMENT)
    answers = document["paths"]["/orders"]["post"]["responses"]["201"]["content"]
    answers["application/json"]["schema"] = {"type": "object", "required": ["price"]}
    made = await ask(shop(tmp_path, document, **at(server)), "createOrder", {"body": {"item": "x"}})
    assert made == {"status": 201, "body": {"item": "x"}}


async def test_a_lost_answer_is_looked_up_by_the_owners_rule(tmp_path: Path, server: Loopback) -> None:
    rule = {"on": f"POST {server.url}/orders", "url": f"{server.url}/orders?external_id={{body.external_id}}",
            "items": "data"}
    connector = shop(tmp_path, lookup=[rule], **at(server))
    params = {"body": {"item": "book", "external_id": "7"}}
    spec = connector.operations["createOrder"]
    assert (await spec.reconcile(params, Call())).status == "failed"
    with server.misbehaving(loopback.drop_after), pytest.raises(OutcomeUnknown):
        await ask(connector, "createOrder", params)
    assert (await spec.reconcile(params, Call())).status == "applied"
    assert connector.operations["deleteOrder"].can_reconcile is False


@pytest.mark.parametrize(("chosen", "told"), [
    ("createOrders", r"no operation 'createOrders'.*createOrder \(POST /orders\)"),
    ("fileOrder", "its body is no JSON"), ("report", "needs the header or cookie X-Tenant"),
])
def test_an_operation_that_cannot_be_called_says_why(tmp_path: Path, chosen: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        shop(tmp_path, operations=[chosen])


@pytest.mark.parametrize("document", [{"swagger": "2.0"}, {"openapi": "4.0.0"}, [], "openapi: 3.0.0"])
def test_another_document_is_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(ConfigError, match=r"no OpenAPI document of version 3\.0 or 3\.1"):
        shop(tmp_path, document)


async def test_a_rule_is_suggested_where_a_list_can_be_asked_for_a_mark_and_holds_on_a_twin(tmp_path: Path) -> None:
    connector = shop(tmp_path)
    [guess] = guesses(connector)
    assert guess.rule(connector.base) == {
        "on": "POST https://shop.example.com/v1/orders", "items": "data",
        "url": "https://shop.example.com/v1/orders?external_id={body.external_id}"}
    report = await prove(guess, DOCUMENT)
    assert len(report.trials) > 10
    assert not report.broken, str(report)


def test_types_that_refer_to_each_other_without_end_take_no_time(tmp_path: Path) -> None:
    document, schemas = copy.deepcopy(DOCUMENT), {}
    for name in "ABCDEFGHIJ":
        parts: list[Any] = [{"$ref": f"#/components/schemas/{each}"} for each in "ABCDEFGHIJ"]
        schemas[name] = {"anyOf": parts, "properties": {each["$ref"][-1]: each for each in parts}}
    document["components"]["schemas"] = {**schemas, "Order": parts[0]}
    connector = shop(tmp_path, document)
    assert len(declare([connector])) < 200_000
    connector.operations["createOrder"].parse({"body": {"A": {"B": [1, {"C": "x"}]}}})


def test_nothing_but_plain_words_of_a_document_is_suggested(tmp_path: Path) -> None:
    wild = json.loads(json.dumps(DOCUMENT).replace("external_id", 'external_id\\n[keep]\\npath = 1'))
    assert guesses(shop(tmp_path, wild)) == []
