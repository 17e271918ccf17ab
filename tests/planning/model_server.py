"""A model's service on loopback: it speaks the three wires as their makers document them, and answers by a script."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from keepai.config import ModelSettings
from keepai.testing.loopback import HttpReply, Loopback, Request

KEY = "sk-loopback-4711-very-secret"
PATHS = {"anthropic": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}
TOKENS_IN, TOKENS_OUT = 1_000, 100



class Cut(str):
    """A text that ended because it was too long."""


class ModelServer:
    """Answers each request with the next entry of `script`; the last one repeats. `script` may also be a function."""

    def __init__(self, wire: str, *script: Any, think: Callable[[str, str], str] | None = None) -> None:
        self.wire, self.script, self.think = wire, list(script), think
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self._loopback = Loopback(self._answer)

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loopback.close()

    @property
    def url(self) -> str:
        return self._loopback.url + "/v1"

    def settings(self, **more: Any) -> ModelSettings:
        """The [model] that asks this server."""
        return ModelSettings(**{"wire": self.wire, "name": "small-1", "url": self.url, "key": "key",
                                "networks": ("127.0.0.0/8",), **more})

    def toml(self, **more: Any) -> str:
        """The same as it stands in keep.toml."""
        lines = [f"{name} = {value!r}" for name, value in more.items()]
        return "\n".join(["[model]", f'wire = "{self.wire}"', 'name = "small-1"', f'url = "{self.url}"',
                          'networks = ["127.0.0.0/8"]', *lines, ""])

    def said(self, number: int) -> str:
        """All texts of a request, system first."""
        return "\n\n".join(texts(self.asked[number]))


    def _answer(self, request: Request) -> Any:
        if request.path != PATHS[self.wire]:
            return HttpReply(404, {"error": {"type": "not_found_error", "message": f"no {request.path}"}})
        self.asked.append(request.json())
        self.headers.append(request.headers)
        if self.think is not None:
            system, *rest = texts(self.asked[-1])
            return HttpReply(json=shaped(self.wire, self.think(system, "\n\n".join(rest))))
        told = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return HttpReply(json=shaped(self.wire, told)) if isinstance(told, str) else told


def texts(body: dict[str, Any]) -> list[str]:
    """What a request says, system first."""
    system = [body[name] for name in ("system", "instructions") if name in body]
    return system + [each["content"] for each in body.get("messages", body.get("input"))]


def shaped(wire: str, text: str) -> dict[str, Any]:
    """A whole answer of a wire."""
    cut = isinstance(text, Cut)
    if wire == "anthropic":
        return {
            "id": "msg_01", "type": "message", "role": "assistant", "model": "small-1",
            "content": [{"type": "thinking", "thinking": "…", "signature": ""}, {"type": "text", "text": str(text)}],
            "stop_reason": "max_tokens" if cut else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": TOKENS_IN - 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 10,
                      "output_tokens": TOKENS_OUT},
        }
    if wire == "responses":
        return {
            "id": "resp_01", "object": "response", "status": "incomplete" if cut else "completed", "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "model": "small-1",
            "output": [{"type": "reasoning", "id": "rs_01", "summary": []},
                       {"type": "message", "id": "msg_01", "role": "assistant", "status": "completed",
                        "content": [{"type": "output_text", "text": str(text), "annotations": []}]}],
            "usage": {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT},
        }
    return {
        "id": "chatcmpl-01", "object": "chat.completion", "model": "small-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": str(text)},
                     "finish_reason": "length" if cut else "stop"}],
        "usage": {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT},
    }
