"""A script that guesses: it does not see by what is hidden whether another connector's secret is the one it guessed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

from keepai import Call, Connector, Page, Verdict, mutation, read
from tests.harness import Story, consumer, producer, workflow

GUESSED = "hunter2-rosebud"  # somebody's password
GUESSES = [f"guess-{n:05}" for n in range(50)]
OWN = "own-5ecret-8f14e45f"


class Bank(Connector):
    """Has a secret that can be guessed, and says it to nobody."""

    name = "bank"
    secrets: ClassVar[Mapping[str, str]] = {"password": "the password"}

    @read
    async def balance(self, params: dict[str, Any], call: Call) -> Any:
        """How much there is."""
        return {"balance": 5}


class Board(Connector):
    """Returns what strangers wrote on it, and its own secret."""

    name = "board"
    secrets: ClassVar[Mapping[str, str]] = {"token": "the token"}

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []
        self.sent: list[Any] = []

    @read
    async def look(self, params: dict[str, Any], call: Call) -> Any:
        """What stands there."""
        self.asked.append(params)
        return {"lines": [*GUESSES, GUESSED], "echo": f"Bearer {OWN}"}

    @read
    async def pages(self, params: dict[str, Any], call: Call) -> Page[Any]:
        """The same in pages."""
        return Page([GUESSED, OWN], cursor=GUESSED, next=OWN)

    @mutation(identity=("text",), target="text", settle=0)
    async def write(self, params: dict[str, Any], call: Call) -> Any:
        """Write a line."""
        self.sent.append(params)
        return {"line": GUESSED, "by": OWN}

    @write.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Look for it."""
        return Verdict.applied({"line": GUESSED, "by": OWN})


def connectors() -> tuple[Bank, Board]:
    bank, board = Bank(), Board()
    bank.entrust({"password": GUESSED})
    board.entrust({"token": OWN})
    return bank, board


LOOK = """
  const seen = [await ctx.board.look({}), await ctx.board.pages({})];
  return { seen, extra: [seen[1].cursor, seen[1].next] };
"""


async def test_a_result_does_not_tell_which_guess_is_the_secret_of_another_connector(tmp_path: Path) -> None:
    bank, board = connectors()
    async with Story(tmp_path, connectors=[bank, board]) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(LOOK)}))
        state = json.dumps(await story.keep.state(wf, "poll"))
        assert GUESSED in state, "it comes as it stands outside, like the guesses beside it"
        assert "bank.password" not in state
        assert OWN not in state
        assert state.count("[secret board.token]") == 3


async def test_the_result_of_a_mutation_tells_no_more(tmp_path: Path) -> None:
    bank, board = connectors()
    source = workflow(producers={"poll": producer()}, consumers={"act": consumer(
        mutate="await ctx.board.write({ text: 'hello' });", next="return mutationResult;")})
    async with Story(tmp_path, connectors=[bank, board]) as story:
        wf = await story.deploy_and_run(source, "a")
        assert await story.keep.state(wf, "act") == {
            "status": "applied", "result": {"line": GUESSED, "by": "[secret board.token]"}}


SPELLINGS = {
    "as it is": GUESSED,
    "hex": GUESSED.encode().hex(),
    "hex in capitals": GUESSED.encode().hex().upper(),
    "hex in both": "".join(c.upper() if n % 2 else c for n, c in enumerate(GUESSED.encode().hex())),
    "base64": base64.b64encode(GUESSED.encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(GUESSED.encode()).decode(),
    "base64 of more": base64.b64encode(f"ann:{GUESSED}!".encode()).decode(),
    "percent": "".join(f"%{byte:02X}" for byte in GUESSED.encode()),
    "percent in small letters": "".join(f"%{byte:02x}" for byte in GUESSED.encode()),
    "percent here and there": quote(GUESSED).replace("h", "%68", 1).replace("r", "%72"),
    "inside of something": f"https://x.test/?q=[{GUESSED}]",
}


@pytest.mark.parametrize("call", ["look({ q: Q })", "look({ deep: [{ q: ['x', Q] }] })", "look({ [Q]: 1 })"])
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
async def test_any_secret_in_any_spelling_is_refused_in_the_params_of_any_call(
    tmp_path: Path, spelling: str, call: str,
) -> None:
    bank, board = connectors()
    built = " + ".join(json.dumps(spelling[n:n + 3]) for n in range(0, len(spelling), 3))  # a script may not hold it
    body = f"const Q = {built}; try {{ await ctx.board.{call}; }} catch (e) {{ return {{ caught: 1 }}; }}"
    async with Story(tmp_path, connectors=[bank, board]) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(body)}))
        run = await story.last(wf)
        assert run.status == "failed:logic"
        assert run.error is not None
        assert "a secret of this host" in run.error.message
        assert "bank" not in run.error.message
        assert board.asked == []
        [asked] = await story.keep.needs_you(wf)
        assert asked.kind == "logic"
        assert await story.keep.state(wf, "poll") is None


async def test_a_guess_costs_a_run_and_the_next_one_a_person(tmp_path: Path) -> None:
    bank, board = connectors()
    body = f"""
      const guesses = [{", ".join(json.dumps(g) for g in GUESSES[:3])}, "hunter2" + "-rosebud", "another"];
      for (const q of guesses) {{ try {{ await ctx.board.look({{ q }}); }} catch (e) {{ }} }}
    """
    async with Story(tmp_path, connectors=[bank, board]) as story:
        wf = await story.deploy(workflow(producers={"poll": producer(body)}))
        for _ in range(5):
            await story.run(minutes=30)
        assert len(await story.runs(wf)) == 1, "nothing of it runs until a person has looked"
        assert len(board.asked) == 3, "the script ended with the right guess"


async def test_a_mutation_with_a_secret_is_refused_before_it_is_on_record(tmp_path: Path) -> None:
    bank, board = connectors()
    source = workflow(producers={"poll": producer()}, consumers={"act": consumer(
        mutate="await ctx.board.write({ text: 'hunter2' + '-rosebud' });")})
    async with Story(tmp_path, connectors=[bank, board]) as story:
        wf = await story.deploy_and_run(source, "a")
        assert (await story.last(wf, "act")).status == "failed:logic"
        assert (board.sent, await story.keep.mutations(wf)) == ([], [])
