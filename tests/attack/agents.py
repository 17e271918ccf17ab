# ruff: noqa: E501 (an attack is read best on one line)
"""The socket for agents and the API: without a token, with a removed one, and for what the role does not have."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from keepai import Keep
from keepai.config import Settings
from keepai.doors import agents, control, presence
from keepai.doors.api.api_port import ApiPort
from keepai.doors.api.openapi import PREFIX
from keepai.engine import tokens_and_pins
from keepai.ledger import queries
from keepai.model.acts import REQUESTS, requests_of
from keepai.model.errors import KeepError
from keepai.model.principals import Role
from tests.attack.base import Area, Attack, Broken, Planted, must
from tests.harness import consumer, producer, workflow

SCRIPT = workflow("controlled", producers={"poll": producer("return 1;", publishes=())}, consumers={"act": consumer("return { reservations: [], data: {} };")})
PIN = "correct horse"
_VALUES: tuple[Any, ...] = (None, True, 0, "", "x", "wf_", PIN, [], {}, "agent", "person", "\u0000", "a" * 3000)


@dataclass
class Door:
    """A host with both sockets and the API, an agent and a user of each role, and one that was removed."""

    ledger: Path
    keep: Keep
    wf: str
    tokens: dict[str, str]
    api: str

    async def nothing(self, ask: Callable[[], Any]) -> None:
        """What is asked must be refused, and change nothing."""
        before = await self.keep.version()
        try:
            found = await asyncio.to_thread(ask)
        except KeepError as error:
            must(error.message and PIN not in error.message, f"it was told {error.message}")
        else:
            raise Broken(f"it was answered with {str(found)[:200]}")
        must(await self.keep.version() == before, "something was done")

    def asks(self, token: str, act: str, params: dict[str, Any]) -> Callable[[], Any]:
        """A request on the agents' socket."""
        return lambda: agents.ask(self.ledger, token, act, params)

    def over_api(self, token: str, act: str, params: dict[str, Any]) -> Callable[[], Any]:
        """The same act over the API."""
        request = urllib.request.Request(f"{self.api}{PREFIX}/acts/{act}", json.dumps(params).encode(), {"Authorization": f"Bearer {token}"})

        def ask() -> Any:
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                raise KeepError(json.load(error)["error"]["message"]) from None

        return ask


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Door]:
    ledger = folder / "keep.db"
    async with Keep(ledger) as keep, control.ControlSocket(keep, ledger), agents.AgentSocket(keep, Settings(ledger=ledger)), ApiPort(keep, Settings(ledger=ledger), ("127.0.0.1", 0)) as api:
        wf = (await keep.deploy(SCRIPT)).workflow_id
        await keep.set_pin(PIN)
        tokens = {name: await keep.agent_add(name, role) for name, role in (("look", "look"), ("propose", "propose"), ("gone", "propose"))}
        await keep.agent_remove("gone")
        tokens |= {name: await keep.user_add(name, role) for name, role in (("viewer", "viewer"), ("operator", "operator"), ("left", "owner"))}
        await keep.user_remove("left")
        yield Door(ledger, keep, wf, tokens, api.origin)


def attacks(door: Door) -> Iterator[Attack]:
    for role in (Role.LOOK, Role.PROPOSE, Role.VIEWER, Role.OPERATOR):
        for name in sorted(set(REQUESTS) - set(requests_of(role))):
            yield Attack(f"{role} has the act {name} over the API", lambda name=name, role=role: door.nothing(door.over_api(door.tokens[role], name, _params(door, name))))
            yield Attack(f"{role} has the act {name} over the socket for agents", lambda name=name, role=role: door.nothing(door.asks(door.tokens[role], name, _params(door, name))))
    for what in ("gone", "left"):
        yield Attack(f"a token that was removed pauses over the API: {what}", lambda what=what: door.nothing(door.over_api(door.tokens[what], "pause", {"wf": door.wf})))
    for what, token in (("no token", ""), ("a token that was removed", door.tokens["gone"]), ("the PIN as its token", PIN), ("a hash as its token", tokens_and_pins.token_hash(door.tokens["look"]))):
        for asked in ("needs_you", "pause", "all"):
            yield Attack(f"{asked} with {what}", lambda asked=asked, token=token: door.nothing(door.asks(token, asked, {"statement": "workflow_all"} if asked == "all" else {"wf": door.wf} if asked == "pause" else {})))
    for name in sorted(each for each in queries.load() if each.startswith("principal")):
        yield Attack(f"an agent reads of tokens by {name}", lambda name=name: door.nothing(door.asks(door.tokens["propose"], "all", {"statement": name, "kind": "agent", "name": "look", "secret": "x"})))
    for name in ("workflow_status_set", "action_insert", "certificate_put"):
        yield Attack(f"an agent writes by {name}", lambda name=name: door.nothing(door.asks(door.tokens["propose"], "all", {"statement": name})))
    for act, params in (("resume", {"wf": door.wf}), ("set_pin", {"pin": "654321"}), ("agent_add", {"name": "mine", "role": "propose"}), ("deploy", {"source": SCRIPT + "// x"})):
        for typed in (None, "654321"):
            yield Attack(f"a person's act {act} without presence, PIN {typed}", lambda act=act, params=params, typed=typed: door.nothing(lambda: control.ask(door.ledger, act, params, 20.0, typed)))


def _params(door: Door, name: str) -> dict[str, Any]:
    return {key: door.wf if key == "wf" else "x" for key, param in REQUESTS[name].params.items() if param.required}


def drawn(door: Door, chance: Random) -> Attack:
    """Anything that an agent to look may ask for with any token; it changes nothing, whatever it is."""
    asked = chance.choice([*REQUESTS, *agents.READS, "__init__", "acting_as", "parts", "statement"])
    params = {chance.choice(["statement", "wf", "id", "name", "kind", "secret", "workflow_id"]): chance.choice([*_VALUES, *queries.load()]) for _ in range(3)}
    token = chance.choice([door.tokens["look"], door.tokens["gone"], "x"])

    async def attack() -> None:
        before = await door.keep.version()
        try:
            found = await asyncio.to_thread(agents.ask, door.ledger, token, asked, params)
        except KeepError:
            found = None
        must(await door.keep.version() == before, "something was done")
        must("sha256:" not in str(found) and "scrypt:" not in str(found), "it read a hash")

    return Attack(f"{asked} with {params!r:.100}", attack)


AREA = Area(
    "agents", "the socket for agents, the API, and the PIN that people then need", place, attacks, drawn,
    (
        Planted("an agent has every act", lambda: patch.object(Keep, "acting_as", lambda keep, principal: keep), "has the act"),
        Planted("every statement may be executed", lambda: patch.object(agents, "readable", queries.reading), "reads of tokens"),
        Planted("nobody has to be there", lambda: patch.object(presence.Presence, "judge", lambda *_: asyncio.sleep(0)), "without presence"),
    ),
)
