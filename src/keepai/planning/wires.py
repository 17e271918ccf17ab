"""Speaks with a model: one request, one reply, no streaming, no tools, so that small local models can answer as well.

A wire is how a service wants to be asked: Anthropic Messages, OpenAI Responses, or Chat Completions, which Ollama, vLLM
and many others understand. The request goes through the same client and rules as those of connectors. A busy service
is asked again after the time that it names. No error contains the key or the prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..config import MODEL, ModelSettings
from ..connectors.egress import Client, Response, Rules
from ..connectors.values import Call
from ..model.clock import SystemClock
from ..model.codec import Json
from ..model.errors import ConnectorError, KeepError, OutcomeUnknown, Transient
from ..model.redaction import Redactor
from ..model.visible_text import visible

SENDS_MAX = 5  #: of one request, if the service is busy or breaks off
WAIT_FIRST_S = 2.0  #: before it is sent again, where the service does not say; doubled each time
REQUEST_S_MAX = 900.0  #: a large reply without streaming takes minutes
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  #: 529: overloaded
SAID_MAX = 300  #: characters of what the service says of an error


class ModelUnusable(KeepError):
    """The model could not be asked, or did not answer."""


@dataclass(frozen=True)
class ModelTurn:
    """One message of the conversation."""

    role: str  # "user" or "assistant"
    text: str


@dataclass(frozen=True)
class ModelReply:
    """What the model answered."""

    text: str = field(repr=False)
    cut: bool  # whether it ended because it was too long
    tokens_in: int
    tokens_out: int


class _Unreadable(Exception):
    """An answer that is not as its wire documents it; says what is wrong."""


Body = Mapping[str, Any]


def _messages(name: str, system: str, turns: Sequence[ModelTurn], tokens_max: int) -> Body:
    return {"model": name, "max_tokens": tokens_max, "system": system,
            "messages": [{"role": turn.role, "content": turn.text} for turn in turns]}


def _read_messages(answer: Body) -> ModelReply:
    text = "".join(_text(part) for part in _list(answer, "content") if part.get("type") == "text")
    usage, stop = _object(answer, "usage"), answer.get("stop_reason")
    cached = _number(usage, "cache_creation_input_tokens") + _number(usage, "cache_read_input_tokens")
    if stop == "refusal":
        raise ModelUnusable("The model refused to answer (stop_reason refusal). Say it in other words.")
    return ModelReply(text, stop in ("max_tokens", "model_context_window_exceeded"),
                      _number(usage, "input_tokens") + cached, _number(usage, "output_tokens"))


def _responses(name: str, system: str, turns: Sequence[ModelTurn], tokens_max: int) -> Body:
    return {"model": name, "max_output_tokens": tokens_max, "instructions": system, "store": False,
            "input": [{"role": turn.role, "content": turn.text} for turn in turns]}


def _read_responses(answer: Body) -> ModelReply:
    if answer.get("status") == "failed":
        raise ModelUnusable(f"The model's service failed: {_said(_object(answer, 'error'))}")
    parts = [part for item in _list(answer, "output") if item.get("type") == "message"
             for part in _list(item, "content")]
    if any(part.get("type") == "refusal" for part in parts):
        raise ModelUnusable("The model refused to answer. Say it in other words.")
    text = "".join(_text(part) for part in parts if part.get("type") == "output_text")
    usage = _object(answer, "usage")
    return ModelReply(text, answer.get("status") == "incomplete", _number(usage, "input_tokens"),
                      _number(usage, "output_tokens"))


def _chat(name: str, system: str, turns: Sequence[ModelTurn], tokens_max: int) -> Body:
    said = [{"role": "system", "content": system}, *({"role": turn.role, "content": turn.text} for turn in turns)]
    return {"model": name, "max_tokens": tokens_max, "messages": said, "stream": False}


def _read_chat(answer: Body) -> ModelReply:
    choices, usage = _list(answer, "choices"), _object(answer, "usage")
    if not choices:
        raise _Unreadable("it has no choices")
    ended = choices[0].get("finish_reason")
    if ended == "content_filter":
        raise ModelUnusable("The model's service withheld the answer (content_filter). Say it in other words.")
    text = _object(choices[0], "message").get("content") or ""
    if not isinstance(text, str):
        raise _Unreadable("its content is no text")
    return ModelReply(text, ended == "length", _number(usage, "prompt_tokens"), _number(usage, "completion_tokens"))


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _x_api_key(key: str) -> dict[str, str]:
    return {"x-api-key": key}


@dataclass(frozen=True)
class ModelWire:
    """How one kind of service is asked, and how its answer is read."""

    path: str
    credentials: Callable[[str], dict[str, str]]
    body: Callable[[str, str, Sequence[ModelTurn], int], Body]
    read: Callable[[Body], ModelReply]
    headers: Mapping[str, str] = field(default_factory=dict)


#: The value of [model] wire → the wire.
BY_NAME: Mapping[str, ModelWire] = MappingProxyType({
    "anthropic": ModelWire("/messages", _x_api_key, _messages, _read_messages, {"anthropic-version": "2023-06-01"}),
    "responses": ModelWire("/responses", _bearer, _responses, _read_responses),
    "chat": ModelWire("/chat/completions", _bearer, _chat, _read_chat),
})


class ModelConnection:
    """The model of keep.toml, with its key. For the vault and for redaction it is a connection like any other."""

    def __init__(self, settings: ModelSettings) -> None:
        self.name, self.settings = MODEL, settings
        self._vault: Mapping[str, str] = {}
        self._given: Mapping[str, str] = {}
        self._redactor = Redactor([self])
        self._wire = BY_NAME[settings.wire]
        self._url = settings.url.rstrip("/") + self._wire.path
        self._client = Client(Rules.under(
            [self._url], settings.networks, certificates=settings.certificates, seconds_max=REQUEST_S_MAX))

    def entrust(self, vault: MutableMapping[str, str]) -> None:
        """Give it its key, which it reads when it uses it."""
        self._vault = vault

    def entrusted(self) -> Mapping[str, str]:
        """The value of its key → its name, for redaction. The same mapping until the key changes."""
        found = {self._vault[key]: key for key in self.settings.secrets if key in self._vault}
        if found != self._given:
            self._given = found
        return self._given

    async def ask(
        self, system: str, turns: Sequence[ModelTurn], tokens_max: int, seconds_left: Callable[[], float],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep, tell: Callable[[str], None] = lambda text: None,
    ) -> ModelReply:
        """One reply. A service that is busy, or breaks off, is asked again while there is time."""
        body = self._wire.body(self.settings.name, system, turns, tokens_max)
        pause = WAIT_FIRST_S
        for left in reversed(range(SENDS_MAX)):
            try:
                return await self._once(body, min(REQUEST_S_MAX, seconds_left()))
            except _Busy as busy:
                waits, pause = busy.after_s if busy.after_s is not None else pause, pause * 2
                if not left or waits >= seconds_left():
                    asks = f" To wait {waits:.0f} s is more than the budget has left." if left else ""
                    raise ModelUnusable(f"{busy}{asks} Try again later.") from None
                tell(f"{busy} It is asked again in {waits:.0f} s.")
                await wait(waits)
        raise AssertionError("the last send returns or raises")

    async def _once(self, body: Body, seconds: float) -> ModelReply:
        try:
            answer = await self._client.send(
                "POST", self._url, Call(deadline=SystemClock().steady_ms() + seconds * 1000), json=body,
                headers=self._wire.headers, credentials=self._credentials())
        except (Transient, OutcomeUnknown) as error:
            raise _Busy(f"The model's service broke off: {error.message}") from None
        except ConnectorError as error:
            raise ModelUnusable(f"The model was not asked: {error.message} Look at [model] in keep.toml.") from None
        if answer.status in AGAIN:
            raise _Busy(f"The model's service is busy or failed (status {answer.status}).", answer.retry_after())
        if not answer.ok:
            raise ModelUnusable(self._redactor.text(_refusal(answer, self.settings)))
        found = answer.json_object()
        if found is None:
            raise _Busy("The model's service answered with something that is not a JSON object.")
        try:
            return self._wire.read(found)
        except _Unreadable as error:
            raise ModelUnusable(f"The answer is not one of the wire {self.settings.wire!r}: {error}. "
                                "Look at wire and url of [model] in keep.toml.") from None

    def _credentials(self) -> dict[str, str]:
        key = self.settings.key
        if key is None:
            return {}
        if key not in self._vault:
            raise ModelUnusable(f"The key of the model is missing. Run `keep secrets set {MODEL} {key}`.")
        return self._wire.credentials(self._vault[key])


class _Busy(Exception):
    """It may be asked again, after so many seconds if the service said so."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


#: Status of an answer → what is most likely wrong.
_ADVICE = {
    401: "Is the key right? `keep secrets set model {key}` stores another.",
    403: "Is the key right, and may it use this model?",
    404: "Are url, wire and name of [model] in keep.toml right?",
    400: "Are wire and name of [model] in keep.toml right?",
    413: "The request was too large for it.",
    402: "Does the account have credit?",
}


def _refusal(answer: Response, settings: ModelSettings) -> str:
    """Why the service refused, in its own words as far as they are readable."""
    error = (answer.json_object() or {}).get("error")
    said = _said(error) if isinstance(error, dict) else error if isinstance(error, str) else ""
    advice = _ADVICE.get(answer.status, "Look at [model] in keep.toml.").format(key=settings.key or "NAME")
    told = f": {visible(said)[:SAID_MAX]}" if said else "."
    return f"The model's service refused the request (status {answer.status}){told.rstrip('.')}. {advice}"


def _said(error: Mapping[str, Any]) -> str:
    message = error.get("message")
    return visible(message)[:SAID_MAX] if isinstance(message, str) else "it gave no reason"


def _text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise _Unreadable("a part of its text is no text")
    return text


def _list(data: Mapping[str, Json], name: str) -> list[dict[str, Any]]:
    found = data.get(name)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _Unreadable(f"it has no list {name!r}")
    return found  # type: ignore[return-value]


def _object(data: Mapping[str, Json], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _number(usage: Mapping[str, Any], name: str) -> int:
    found = usage.get(name)
    return found if isinstance(found, int) and found > 0 else 0
