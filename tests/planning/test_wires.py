"""The three wires: what is sent, what is read, and what becomes of a service that is busy, breaks off or refuses."""

from __future__ import annotations

from typing import Any

import pytest

from keepai.config import WIRES, ModelSettings
from keepai.model.errors import ConfigError
from keepai.planning.budget import PlanBudget
from keepai.planning.wires import ModelConnection, ModelReply, ModelTurn, ModelUnusable
from keepai.testing import ManualClock
from keepai.testing.loopback import HttpReply
from tests.planning.model_server import KEY, Cut, ModelServer

TURNS = [ModelTurn("user", "write it"), ModelTurn("assistant", "there"), ModelTurn("user", "again")]
LATE = HttpReply(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


class Asked:
    """A connection to a server, with waits that only move a clock."""

    def __init__(self, server: ModelServer, **more: Any) -> None:
        self.model = ModelConnection(server.settings(**more))
        self.model.entrust({"key": KEY})
        self.waits: list[float] = []
        self.told: list[str] = []
        self.left = 600.0

    async def ask(self) -> ModelReply:
        return await self.model.ask("system", TURNS, 500, lambda: self.left, self._wait, self.told.append)

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.left -= seconds


@pytest.mark.parametrize("wire", WIRES)
async def test_a_wire_sends_what_its_service_documents_and_reads_its_answer(wire: str) -> None:
    with ModelServer(wire, "hello", Cut("hel")) as server:
        asked = Asked(server)
        assert await asked.ask() == ModelReply("hello", False, 1_000, 100)
        assert (await asked.ask()).cut
        body, headers = server.asked[0], server.headers[0]
    sent = [{"role": turn.role, "content": turn.text} for turn in TURNS]
    assert body == {
        "anthropic": {"model": "small-1", "max_tokens": 500, "system": "system", "messages": sent},
        "responses": {"model": "small-1", "max_output_tokens": 500, "instructions": "system", "input": sent,
                      "store": False},
        "chat": {"model": "small-1", "max_tokens": 500, "stream": False,
                 "messages": [{"role": "system", "content": "system"}, *sent]},
    }[wire]
    key = {"anthropic": ("x-api-key", KEY)}.get(wire, ("authorization", f"Bearer {KEY}"))
    assert headers[key[0]] == key[1]
    assert wire != "anthropic" or headers["anthropic-version"] == "2023-06-01"


async def test_a_busy_service_is_asked_again_after_the_time_that_it_names() -> None:
    with ModelServer("chat", HttpReply(429, {}, {"Retry-After": "7"}), LATE, None, "at last") as server:
        asked = Asked(server)
        assert (await asked.ask()).text == "at last"
    assert asked.waits == [7, 4, 8]
    assert "status 429" in asked.told[0]
    assert "asked again in 7 s" in asked.told[0]


async def test_a_wait_that_the_budget_has_no_time_for_ends_it() -> None:
    with ModelServer("chat", HttpReply(429, {}, {"Retry-After": "3600"})) as server:
        asked = Asked(server)
        with pytest.raises(ModelUnusable, match="To wait 3600 s is more than the budget has left"):
            await asked.ask()
    assert (asked.waits, len(server.asked)) == ([], 1)


async def test_a_service_that_stays_busy_is_given_up() -> None:
    with ModelServer("chat", LATE) as server:
        asked = Asked(server)
        with pytest.raises(ModelUnusable, match=r"status 529.*Try again later"):
            await asked.ask()
    assert len(server.asked) == 5


@pytest.mark.parametrize(("answer", "told"), [
    (HttpReply(401, {"error": {"message": f"bad key {KEY}"}}),
     r"status 401\): bad key \[secret model.key\]. Is.*keep secrets set model key"),
    (HttpReply(404, {"error": "model 'small-1' not found"}), "not found. Are url, wire and name"),
    (HttpReply(400, content=b"<html>"), "status 400\\). Are wire and name"),
    (HttpReply(302, {}, {"Location": "http://evil.test/"}), "status 302"),
    (HttpReply(200, {"choices": []}), "not one of the wire 'chat': it has no choices"),
    (HttpReply(200, {"choices": [{"message": {"content": 7}}]}), "its content is no text"),
    (HttpReply(200, {"unlike": "a chat"}), "it has no list 'choices'"),
    (HttpReply(200, {"choices": [{"message": {}, "finish_reason": "content_filter"}]}), "withheld the answer"),
])
async def test_a_refusal_says_what_to_look_at(answer: HttpReply, told: str) -> None:
    with ModelServer("chat", answer) as server:
        with pytest.raises(ModelUnusable, match=told):
            await Asked(server).ask()
        assert len(server.asked) == 1


async def test_an_answer_that_is_no_json_is_asked_for_again() -> None:
    with ModelServer("responses", HttpReply(200, content=b'{"output": [{"ty'), "whole") as server:
        assert (await Asked(server).ask()).text == "whole"


async def test_a_key_that_is_not_stored_is_asked_for_before_anything_is_sent() -> None:
    with ModelServer("chat", "hello") as server:
        model = ModelConnection(server.settings())
        with pytest.raises(ModelUnusable, match="keep secrets set model key"):
            await model.ask("system", TURNS, 500, lambda: 60.0)
        assert server.asked == []


async def test_a_service_in_a_private_network_is_not_asked_unless_the_owner_named_it() -> None:
    with ModelServer("chat", "hello") as server:
        asked = Asked(server, networks=())
        with pytest.raises(ModelUnusable, match="was not asked"):
            await asked.ask()
        assert server.asked == []


# -- the budget ---------------------------------------------------------------------------------------


def settings(**more: Any) -> ModelSettings:
    return ModelSettings("chat", "small-1", "http://127.0.0.1/v1", **more)


def test_what_a_service_does_not_count_is_estimated() -> None:
    budget = PlanBudget(settings(), ManualClock())
    budget.add(ModelReply("x" * 300, False, 0, 0), asked=3_000)
    assert (budget.tokens_in, budget.tokens_out) == (1_000, 100)


@pytest.mark.parametrize(("limits", "why"), [
    ({"attempts_max": 1}, "had its 1 attempts"),
    ({"minutes_max": 1}, "1 minutes are over"),
    ({"tokens_max": 2_000}, "exceed 2,000 tokens"),
    ({"money_max": 0.05, "price_in": 10, "price_out": 50}, "or 0.05 in money"),
    ({"money_max": 0.015, "price_in": 10}, "or 0.015 in money"),
])
def test_each_limit_of_the_budget_ends_it(limits: dict[str, Any], why: str) -> None:
    clock = ManualClock()
    budget = PlanBudget(settings(**limits), clock)
    assert budget.used_up(300) is None
    budget.attempts += 1
    budget.add(ModelReply("", False, 1_000, 500), asked=300)
    clock.advance(minutes=2)
    assert why in str(budget.used_up(3_000))


def test_a_reply_gets_no_more_tokens_than_the_budget_has() -> None:
    budget = PlanBudget(settings(tokens_max=10_000, money_max=1, price_in=10, price_out=1_000), ManualClock())
    assert budget.reply_tokens(3_000) == 990  # 1 less 0.01 for what is read, by a price of 0.001
    assert PlanBudget(settings(tokens_max=3_000), ManualClock()).reply_tokens(3_000) == 2_000


@pytest.mark.parametrize(("table", "told"), [
    ('wire = "gopher"\nname = "x"', "wire must be one of anthropic, responses, chat"),
    ('wire = "chat"\nname = "x"', "url is missing"),
    ('wire = "anthropic"', "name is missing"),
    ('wire = "anthropic"\nname = "x"\nmoney_max = 3', "money_max needs price_in and price_out"),
    ('wire = "anthropic"\nname = "x"\nattempts_max = 0', "attempts_max must be a whole number above zero"),
    ('wire = "anthropic"\nname = "x"\ntemperature = 0', "temperature is unknown"),
    ('wire = "anthropic"\nname = "x"\n[connectors.model]\ntype = "local.mail"', "Name the connector otherwise"),
])
def test_a_mistake_in_the_table_is_told_with_its_fix(table: str, told: str, tmp_path: Any) -> None:
    from keepai.config import load

    (tmp_path / "keep.toml").write_text(f"[model]\n{table}\n", "utf-8")
    with pytest.raises(ConfigError, match=told):
        load(tmp_path / "keep.toml")
