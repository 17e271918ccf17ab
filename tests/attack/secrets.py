# ruff: noqa: E501 (an attack is read best on one line)
"""The values of secrets, by connectors that repeat them, scripts that guess them, and whoever reads the ledger or a backup."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from unittest.mock import patch
from urllib.parse import quote

from keepai import Call, Connector, OutcomeUnknown, Rejected, Transient, Verdict, mutation, read
from keepai.connectors import redacted
from keepai.ledger.sqlite.backups import backup
from keepai.model.redaction import Redactor
from keepai.vault.strength import BITS_LEAST, bits
from tests.attack.base import Area, Attack, Planted, must
from tests.harness import Story, consumer, producer, workflow
from tests.stories.test_guesses import SPELLINGS
from tests.unit.model.test_redaction import CANARY, FORMS

GUESSED = "hunter2-rosebud"
#: What a piece of the secret looks like in each spelling.
TELLS = ("5ecret", "NWVjcmV0", base64.b64encode(CANARY.encode()).decode()[4:12], "35656372", "%35%65%63")
ERRORS = {"rejected": Rejected, "transient": Transient, "unknown": OutcomeUnknown, "a bug": ValueError, "a key": KeyError}


class Bank(Connector):
    """Repeats what the attack wants in what it returns, raises, logs and finds; it has a secret, and so has another."""

    name = "bank"
    secrets: ClassVar[Mapping[str, str]] = {"password": "the password"}

    def __init__(self) -> None:
        super().__init__()
        self.says: Any = ""
        self.error: type[BaseException] | None = None
        self.asked: list[Any] = []

    def _say(self, params: Any, call: Call) -> Any:
        self.asked.append(params)
        call.log(f"asked with {self.says}")
        logging.getLogger("some.library").warning("GET %s", self.says)
        if self.error is not None:
            raise self.error(f"it failed with {self.says}")
        return {"said": self.says, "deep": [{str(self.says): 1}]}

    @read
    async def look(self, params: dict[str, Any], call: Call) -> Any:
        """What is there."""
        return self._say(params, call)

    @mutation(identity=("n",), target="n", settle=0)
    async def put(self, params: dict[str, Any], call: Call) -> Any:
        """Put something."""
        return self._say(params, call)

    @put.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Look for it."""
        return Verdict.unknown(f"nobody knows {self.says}")


class Other(Connector):
    """Has a secret that can be guessed."""

    name = "other"
    secrets: ClassVar[Mapping[str, str]] = {"pin": "the pin"}


@dataclass
class House:
    """A host with both connectors, and everything that it wrote."""

    story: Story
    bank: Bank
    folder: Path
    reads: str = ""
    puts: str = ""
    lines: list[str] = field(default_factory=list)
    count: int = 0

    async def use(self, says: Any, error: type[BaseException] | None = None) -> None:
        """Let a script read and send, while the connector says this."""
        self.bank.says, self.bank.error, self.count = says, error, self.count + 1
        self.story.feed.items = [{"id": f"e{self.count}", "payload": self.count}]
        await self.story.keep.run_now(self.puts)
        await self.story.run()
        await self.story.keep.run_now(self.reads)
        await self.story.run()
        for wf in (self.reads, self.puts):
            for question in await self.story.keep.needs_you(wf):
                self.lines.append(json.dumps(question.to_json(), ensure_ascii=False))
                await self._skip(question)
        self.bank.error = None
        await self.story.run(hours=1)  # what was put off is over before the next attack

    async def _skip(self, question: Any) -> None:
        if question.kind == "unknown_outcome":
            await self.story.keep.resolve(question.mutation_id, "skip")
        else:
            await self.story.keep.skip_run(question.run_id)

    def look(self) -> None:
        """Nothing that was kept, asked or logged has the secret."""
        for path in self.folder.glob("keep.db*"):
            if path.is_file():
                data = path.read_bytes()
                seen = [tell for tell in TELLS if tell.encode() in data]
                must(not seen, f"{path.name} has {seen}")
        for line in self.lines:
            must(not [tell for tell in TELLS if tell in line], f"it was said: {line[:200]}")
        self.lines.clear()


class _Noted(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[House]:
    bank, other = Bank(), Other()
    bank.entrust({"password": CANARY})
    other.entrust({"pin": GUESSED})
    async with Story(folder, connectors=[bank, other]) as story:
        house = House(story, bank, folder)
        handler = _Noted(house.lines)
        logging.getLogger().addHandler(handler)
        try:
            look = "try { const seen = await ctx.bank.look({ n: 1 }); console.log(JSON.stringify(seen)); return { seen }; } catch (e) { console.log(String(e)); }"
            house.reads = await story.deploy(workflow("reads", producers={"poll": producer(look)}))
            house.puts = await story.deploy(workflow("puts", producers={"poll": producer()}, consumers={
                "act": consumer(mutate="await ctx.bank.put({ n: prepared.data.payload });", next="console.log(JSON.stringify(mutationResult)); return mutationResult;")}))
            await story.run()
            yield house
        finally:
            logging.getLogger().removeHandler(handler)


def attacks(house: House) -> Iterator[Attack]:
    for name, form in FORMS.items():
        yield Attack(f"a connector returns its secret: {name}", lambda form=form: _says(house, form, None))
    for name, error in ERRORS.items():
        yield Attack(f"a connector raises its secret: {name}", lambda error=error: _says(house, CANARY, error))
    for name, spelling in SPELLINGS.items():
        yield Attack(f"a script sends the secret of another connector: {name}", lambda spelling=spelling: _sends(house, spelling))
    yield Attack("a script sees by what is hidden which guess is another connector's secret", lambda: _oracle(house))
    yield Attack("a backup of the ledger has a secret", lambda: _backup(house))
    yield Attack("a weak secret is stored without a word", _weak)


async def _says(house: House, says: str, error: type[BaseException] | None) -> None:
    await house.use(f"before {says} after", error)
    house.look()


async def _sends(house: House, spelling: str) -> None:
    """The call is refused before anything is sent, and what is said does not name the connector."""
    built = " + ".join(json.dumps(spelling[n:n + 3]) for n in range(0, len(spelling), 3))
    body = f"try {{ await ctx.bank.look({{ q: [{built}] }}); }} catch (e) {{ return {{ caught: String(e) }}; }}"
    house.bank.asked.clear()
    house.count += 1
    wf = await house.story.deploy(workflow(f"guess {house.count}", producers={"poll": producer(body)}))
    await house.story.run()
    must(house.bank.asked == [], "it was sent")
    must(await house.story.keep.state(wf, "poll") is None, "the script saw what became of it")
    for question in await house.story.keep.needs_you(wf):
        must("other" not in str(question.facts.get("why", "")), f"it says whose it is: {question.facts}")
    await house.story.keep.stop(wf)


async def _oracle(house: House) -> None:
    """What a script is given looks the same for the right guess and for wrong ones."""
    await house.use([GUESSED, *(f"guess-{n}" for n in range(20))])
    state: Any = await house.story.keep.state(house.reads, "poll")
    said = state["seen"]["said"]
    must(said[0] == GUESSED and "[secret" not in str(state), f"of all guesses the right one became {said[0]!r}")


async def _backup(house: House) -> None:
    await house.use(CANARY)
    copy = house.folder / "copy.db"
    backup(house.folder / "keep.db", copy)
    data = copy.read_bytes()
    must(not [tell for tell in TELLS if tell.encode() in data], "it has")
    house.look()


def _weak() -> None:
    for secret in ("hunter2", "password123", "Summer2026", "12345678", "aaaaaaaaaaaa", GUESSED[:9]):
        must(bits(secret) < BITS_LEAST, f"{secret!r} counts as strong: {bits(secret)} bits")


_WAYS = (
    lambda text: text, json.dumps, lambda text: base64.b64encode(text.encode()).decode(), lambda text: quote(text, safe=""),
    html.escape, repr, lambda text: text.encode().hex(), lambda text: text.encode().hex().upper(),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()), lambda text: base64.urlsafe_b64encode(f"ann:{text}".encode()).decode(),
    lambda text: json.dumps({"p": text}, ensure_ascii=False),
)


def drawn(house: House, chance: Random) -> Attack:
    """A secret of any characters in one of the spellings, with something around it."""
    letters = 'abcXYZ0189+/=-_ "\'\\&<>%?üñ日\n\t'
    secret = "".join(chance.choice(letters) for _ in range(chance.randint(12, 40)))
    way = chance.randrange(len(_WAYS))
    before, after = ("".join(chance.choice("xyz:&=/ \n") for _ in range(chance.randint(0, 4))) for _ in range(2))

    def attack() -> None:
        bank = Bank()
        bank.entrust({"password": secret})
        spelled = _WAYS[way](secret)
        said = Redactor([bank]).text(f"{before}{spelled}{after}")
        must(spelled not in said or not spelled.strip(), f"spelling {way} of {secret!r} was left as {said!r:.200}")

    return Attack("a secret in one of its spellings", attack)


_init = redacted.Redacted.__init__


def _of_all(self: Any, real: Connector, redactor: Redactor) -> None:
    _init(self, real, redactor)
    self._own = redactor


AREA = Area(
    "secrets", "values of secrets, by connectors that repeat them and scripts that guess", place, attacks, drawn,
    (
        Planted("results are not cleaned", lambda: patch.object(Redactor, "value", lambda self, value: value), "a connector returns"),
        Planted("results are cleaned of everybody's secrets", lambda: patch.object(redacted.Redacted, "__init__", _of_all), "a script sees by"),
        Planted("only the plain spelling is known, seen by drawn secrets", lambda: patch(
            "keepai.model.redaction._spellings", lambda value: {value}), rounds=60),
    ),
)
