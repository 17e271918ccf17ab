"""The OpenAPI document of a small shop, and the shop itself, on loopback."""

from __future__ import annotations

from typing import Any

from keepai.testing.loopback import HttpReply, Request

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://shop.example.com/v1"}],
    "paths": {
        "/orders": {
            "get": {
                "operationId": "list_orders", "summary": "All orders.",
                "parameters": [
                    {"name": "external_id", "in": "query", "schema": {"type": "string"}},
                    {"name": "state", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                ],
                "responses": {"200": {"content": {"application/json": {"schema": {
                    "type": "object", "properties": {"data": {"type": "array", "items": {
                        "$ref": "#/components/schemas/Order"}}}}}}}},
            },
            "post": {
                "operationId": "create_order", "summary": "Order something.",
                "requestBody": {"required": True, "content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Order"}}}},
                "responses": {"201": {"content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Order"}}}}},
            },
        },
        "/orders/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"operationId": "get_order", "responses": {"200": {}}},
            "delete": {"operationId": "delete_order", "responses": {"204": {}}},
            "put": {"operationId": "file_order", "requestBody": {
                "required": True, "content": {"text/csv": {}}}, "responses": {}},
        },
        "/reports": {"get": {"operationId": "report", "parameters": [
            {"name": "X-Tenant", "in": "header", "required": True, "schema": {"type": "string"}}], "responses": {}}},
    },
    "components": {"schemas": {"Order": {
        "type": "object", "required": ["item"], "properties": {
            "item": {"type": "string", "minLength": 1}, "count": {"type": "integer", "minimum": 1},
            "note": {"type": "string", "nullable": True}, "external_id": {"type": "string"},
            "parent": {"$ref": "#/components/schemas/Order"},
        },
    }}},
}


class Shop:
    """The shop: it keeps orders in a list."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []

    def __call__(self, request: Request) -> HttpReply:
        kind = {"Content-Type": "application/json"}
        if request.path == "/openapi.json":
            return HttpReply(200, DOCUMENT, kind)
        if request.method == "POST":
            self.orders.append(request.json())
            return HttpReply(201, request.json(), kind)
        if request.path.startswith("/orders/"):
            return HttpReply(200, {"asked": request.path}, kind)
        wanted = request.query.get("external_id")
        return HttpReply(200, {"data": [each for each in self.orders if each.get("external_id") == wanted]}, kind)
