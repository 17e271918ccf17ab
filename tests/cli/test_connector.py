"""`keep init --connector` and `keep test-connector`: a connector of one's own, and whether it tells the truth."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Place

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/connectors.md"


@pytest.fixture(autouse=True)
def fresh_modules(place: Place) -> Iterator[None]:
    """Each test has its own tickets.py; none may see another's."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in ("tickets", "tickets_contract", "orders", "orders_contract", "other_contract"):
        sys.modules.pop(name, None)


@pytest.fixture
def tickets(place: Place) -> Place:
    place.type("init", "--connector", "tickets")
    return place


def change(place: Place, old: str, new: str) -> None:
    file = place.folder / "tickets.py"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def test_a_new_connector_keeps_the_contract(tickets: Place) -> None:
    [found] = tickets.json("test-connector", "tickets.py")
    assert (found["operation"], found["class"], found["broken"]) == ("tickets.create", "B", 0)
    names = [trial["trial"] for trial in found["trials"]]
    assert {"applied", "answer lost", "request lost", "another key", "refused: locked"} <= set(names)
    assert sum(name.startswith("killed") for name in names) >= 5
    assert all(trial["effects"] <= 1 for trial in found["trials"] if trial["trial"] != "another key")


def test_what_a_look_up_gets_wrong_is_told_in_words(tickets: Place) -> None:
    change(tickets, "where key = ?", "where key = ? || 'x'")
    result = tickets.type("test-connector", "tickets:Tickets", code=3)
    assert "BROKEN  answer lost" in result.stdout
    assert "its look-up: it said that it did not happen, and it did" in result.stdout
    assert "broke a rule" in result.stderr


def test_an_error_that_claims_too_much_is_told(tickets: Place) -> None:
    change(tickets, "except sqlite3.OperationalError as error:", "except Exception as error:")
    change(tickets, "raise  # whatever else it is, the row may have been written", 'raise Transient("No.")')
    [found] = tickets.json("test-connector", "tickets_contract.py", code=3)
    [broken] = [trial for trial in found["trials"] if trial["broken"]]
    assert broken["trial"] == "answer lost"
    assert "it said that it did not happen, and it did" in broken["broken"]
    assert broken["said"][0] == "Transient: No."


def test_a_name_of_ones_own_is_used_throughout(place: Place) -> None:
    made = place.json("init", "--connector", "orders")
    assert made["files"] == ["orders.py", "orders_contract.py"]
    assert "class Orders(Connector)" in (place.folder / "orders.py").read_text("utf-8")
    assert "from orders import Orders" in (place.folder / "orders_contract.py").read_text("utf-8")
    assert "orders.py, orders_contract.py already" in place.type("init", "--connector", "orders", code=1).stderr
    for name in ("Orders", "inputs", "a-b", "../x", "ärger"):
        place.type("init", "--connector", name, code=2)


def test_a_script_can_use_it_after_keep_toml_names_it(tickets: Place) -> None:
    with (tickets.folder / "keep.toml").open("a") as file:
        file.write('\n[connectors.desk]\ntype = "tickets:Tickets"\npath = "tickets.db"\n')
    assert "create(params: { title: string; text: string }): Promise<{ id: number }>" in tickets.type("types").stdout


HTTP = """
from keepai import Connector, OutcomeUnknown, Rejected, Verdict, mutation
from keepai.connectors.egress import Client, Rules

class Orders(Connector):
    def __init__(self, url, *, name=None):
        super().__init__(name=name)
        self.url, self.client = url, Client(Rules.under([url], ["127.0.0.1"]))

    @mutation(settle=0)
    async def create(self, params, call):
        answer = await self.client.send("PUT", f"{self.url}/{call.idempotency_key}", call, json=params)
        if answer.status == 422:
            raise Rejected("The shop does not take this order.")
        if answer.status != 201:
            raise OutcomeUnknown(f"The shop said {answer.status}.")
        return {"made": True}

    @create.reconcile
    async def find(self, params, call):
        answer = await self.client.get(f"{self.url}/{call.idempotency_key}", call)
        return {200: Verdict.applied({"made": True}), 404: Verdict.failed()}.get(answer.status, Verdict.retry())
"""
HTTP_CONTRACT = """
from keepai import Rejected
from keepai.testing.contract import HttpSubject
from keepai.testing.loopback import HttpReply
from orders import Orders

class Create(HttpSubject):
    operation, params, same_key_once = "create", {"item": "book"}, True
    refusals = {"422": Rejected}

    def __init__(self, folder):
        self.made = {}
        super().__init__(folder)

    def connector(self):
        return Orders(self.server.url)

    def effects(self):
        return len(self.made)

    def handle(self, request):
        if request.method == "PUT":
            self.made[request.path] = request.json()
            return HttpReply(201)
        return HttpReply(200 if request.path in self.made else 404)
"""


def test_a_connector_that_speaks_http_is_tried_on_the_wire(place: Place) -> None:
    (place.folder / "orders.py").write_text(HTTP)
    (place.folder / "orders_contract.py").write_text(HTTP_CONTRACT)
    [found] = place.json("test-connector", "orders.py")
    told = {trial["trial"]: trial["broken"] for trial in found["trials"] if trial["broken"]}
    assert told == {}, told
    assert found["untried"] == []


def test_the_guides_http_connector_keeps_the_contract(place: Place) -> None:
    shown = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [connector] = [text for text in shown if "class Orders(Connector)" in text]
    [contract] = [text for text in shown if "class Create(HttpSubject)" in text]
    (place.folder / "orders.py").write_text(connector)
    (place.folder / "orders_contract.py").write_text(contract)
    [found] = place.json("test-connector", "orders.py")
    assert {trial["trial"]: trial["broken"] for trial in found["trials"] if trial["broken"]} == {}
    assert found["untried"] == []
    assert {"refused: 429", "lookup denied", "late"} <= {trial["trial"] for trial in found["trials"]}


def test_a_trial_in_which_nothing_was_sent_is_not_ok(place: Place) -> None:
    """A connector that was not given its secret sends nothing: no trial that lives by a send can be passed."""
    shown = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [connector] = [text for text in shown if "class Orders(Connector)" in text]
    [contract] = [text for text in shown if "class Create(HttpSubject)" in text]
    (place.folder / "orders.py").write_text(connector)
    without = contract.replace('        orders.entrust({"token": CANARY})\n', "")
    (place.folder / "orders_contract.py").write_text(without + """
    def fault(self, fault):
        return super().fault(fault) if fault not in ("late", "held") else None  # these wait for an effect
""")
    [found] = place.json("test-connector", "orders.py", code=3)
    fine = {trial["trial"] for trial in found["trials"] if not trial["broken"]}
    assert {name for name in fine if not name.startswith("killed")} == {"never sent"}, "there nothing is to be sent"
    told = {trial["trial"]: trial["broken"] for trial in found["trials"]}
    assert told["another key"] == told["lookup broken"] == ["it did not happen at all, so this trial shows nothing"]
    [untried] = [each for each in found["untried"] if "CANARY" in each]
    assert untried.startswith("whether its secret stands in what it says")


@pytest.mark.parametrize(("text", "told"), [
    ("", "has no subject"),
    ("import nothing_of_that_name\n", "cannot be imported: ModuleNotFoundError"),
    ("from keepai.testing.contract import Subject\nclass S(Subject):\n    operation, params = 'x', {}\n",
     "could not be tried: NotImplementedError"),
    ("from keepai.testing.contract import Subject\nfrom tickets import Tickets\nclass S(Subject):\n"
     "    operation, params = 'x', {}\n    def connector(self): return Tickets('x')\n", "is no mutation of it"),
])
def test_a_file_that_cannot_be_used_is_told(tickets: Place, text: str, told: str) -> None:
    (tickets.folder / "other_contract.py").write_text(text)
    result = tickets.type("test-connector", "other_contract.py", code=2)
    assert told in result.stderr


def test_a_connector_without_its_file_is_told_what_is_missing(place: Place) -> None:
    assert "keep init --connector NAME" in place.type("test-connector", code=2).stderr
    assert "There is no gone_contract.py" in place.type("test-connector", "gone.py", code=2).stderr


def test_the_guide_shows_exactly_what_is_made(tickets: Place) -> None:
    text = GUIDE.read_text("utf-8")
    shown = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for name in ("tickets.py", "tickets_contract.py"):
        assert (tickets.folder / name).read_text("utf-8") in shown, name
    printed = tickets.type("test-connector", "tickets.py")
    [told] = re.findall(r"^\$ keep test-connector tickets\.py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert numberless(told) == numberless(printed.stdout + printed.stderr)


def numberless(text: str) -> str:
    """How many lines a call runs differs between versions of Python."""
    return re.sub(r"\d+", "N", text)
