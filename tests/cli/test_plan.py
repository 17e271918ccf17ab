"""`keep plan` and `keep repair` on a real host, with a model on loopback that is wrong at first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from keepai.testing.loopback import HttpReply, Loopback
from tests.cli.conftest import SETTINGS, Place
from tests.planning import conversation
from tests.planning.conversation import answer
from tests.planning.model_server import KEY, Cut, ModelServer

VAULT = '\n[keep]\nkey_file = "key"\n'
REPAIR = VAULT + 'repair = "model"\n'


def set_up(place: Place, server: ModelServer, more: str = "", own: str = VAULT, **model: Any) -> None:
    (place.folder / "keep.toml").write_text(SETTINGS + server.toml(key="key", **model) + more + own, "utf-8")
    place.type("secrets", "set", "model", "key", stdin=KEY)


def kept(place: Place) -> Any:
    [file] = (place.folder / "drafts").glob("*.json")
    return json.loads(file.read_text("utf-8"))


def test_words_become_an_automation_that_runs_once_a_person_accepts_it(place: Place) -> None:
    with ModelServer("anthropic", *conversation.PLAN) as server:
        set_up(place, server)
        place.deliver("receipt 7")
        done = place.json("plan", "file receipts")
        assert (done["used"]["attempts"], len(server.asked)) == (3, 3)
        [made] = place.json("proposals")
        assert (made["id"], made["status"], made["proposer"]) == (done["id"], "waiting", "planner")
        assert made["wanted"] == {"gmail.search": {"mode": "allow"}, "sheets.appendRow": {"mode": "ask"}}
        assert made["facts"]["certificate"]["valid"]
        assert made["why"] == conversation.WHY
        found = [each["found"] for each in made["work"]["attempts"]]
        assert [each and each["failed"] for each in found] == ["check", "test", None]
        assert place.json("status", code=4)["workflows"] == []
        server.script = ["I cannot."]
        place.type("plan", "--continue", done["id"], "also by night", code=1)
        assert '| export default Keep.workflow({\n|   name: "receipts",' in server.said(3)
    place.type("accept", done["id"], "--shown", made["digest"], "--grant", "sheets.appendRow=allow")
    place.type("run-now", "receipts")
    place.type("dev", "--once", "--no-ui")
    assert [row[:10] for row in place.rows() if "receipt" in row] == ["receipt 7,"]


def test_a_draft_that_never_passes_is_kept_as_a_file_and_never_proposed(place: Place) -> None:
    with ModelServer("chat", answer(conversation.WRONG_VALUE), answer(conversation.WRONG_CALL)) as server:
        set_up(place, server, attempts_max=2)
        done = place.json("plan", "file receipts", code=3)
    assert (done["id"], done["draft"]) == (None, "drafts/receipts.js")
    assert done["ended"] == "the model has had its 2 attempts ([model] attempts_max)"
    assert "what came of it differs" in done["fault"]["because"]  # the draft that came further, not the last one
    assert (place.folder / "drafts/receipts.js").read_text("utf-8") == conversation.WRONG_VALUE
    assert (place.folder / "drafts/receipts.test.toml").read_text("utf-8") == conversation.CASES
    assert [each["found"]["failed"] for each in kept(place)["attempts"]] == ["test", "check"]
    assert not (place.folder / "keep.db").exists()


def test_each_fault_goes_back_to_the_model_as_data(place: Place) -> None:
    bad = ["no block at all", Cut(answer(conversation.SCRIPT)), answer(conversation.SCRIPT, "[[case]\n"),
           answer(conversation.SCRIPT, "[[case]]\nname = \"x\"\n[[case.answer]]\ncall = \"nothing.here\"\n")]
    with ModelServer("responses", *bad) as server:
        set_up(place, server, attempts_max=4)
        place.type("plan", "file", "receipts", code=3)
        told = [server.said(number) for number in (1, 2, 3)]
    assert '|  "failed": "reply",\n|  "because": "the answer has 0 blocks that begin with ```js' in told[0]
    assert "the answer was cut off after 100 tokens" in told[1]
    assert "is not TOML" in told[2]
    assert "| reply: the answer has 0 blocks" in told[2]  # what was wrong earlier
    assert "names 'nothing.here'" in kept(place)["found"]["because"]


def test_the_person_sees_what_is_going_on_and_what_it_costs(place: Place) -> None:
    with ModelServer("anthropic", answer(conversation.WRONG_CALL)) as server:
        set_up(place, server, attempts_max=2, price_in=100, price_out=500)
        said = place.type("plan", "file receipts", code=3).stderr
    assert "attempt 1 of 2: asking small-1" in said
    assert "attempt 1 of 2: check: line 8: The connector \"sheets\" has no operation \"insertRow\"." in said
    assert "(2,200 tokens, 0.30 in money)" in said


def test_the_key_is_sent_to_the_service_and_nowhere_else(place: Place) -> None:
    with ModelServer("chat", answer(conversation.WRONG_CALL, why=f"I was given {KEY}."), "and again " + KEY) as server:
        set_up(place, server, attempts_max=2)
        printed = place.type("plan", f"file receipts with {KEY}", "--json", code=3)
        sent = json.dumps(server.asked)
    assert KEY not in sent + printed.stdout + printed.stderr
    assert "[secret model.key]" in sent
    files = [each for each in place.folder.rglob("*") if each.is_file()]
    assert files
    assert [each for each in files if KEY.encode() in each.read_bytes()] == []


def test_a_prompt_of_the_owner_counts_instead_of_keeps(place: Place) -> None:
    with ModelServer("chat", "no") as server:
        set_up(place, server, attempts_max=1)
        place.type("plan", "--write-prompts")
        (place.folder / "prompts/plan.txt").write_text("Please: {{words}}!", "utf-8")
        place.type("plan", "file receipts", code=1)
        assert "Please: file receipts!" in server.said(0)
        (place.folder / "prompts/plan.txt").write_text("{{wrods}}", "utf-8")
        refused = place.type("plan", "file receipts", code=2)
    assert "there is no {{wrods}} to fill in. There are: {{before}}, {{taken}}, {{words}}" in refused.stderr


def test_a_kept_draft_is_gone_on_from(place: Place) -> None:
    with ModelServer("chat", answer(conversation.WRONG_CALL)) as server:
        set_up(place, server, attempts_max=1)
        place.type("plan", "file receipts", code=3)
        place.type("plan", "--continue", "drafts/receipts.js", "also the sender", code=3)
        said = server.said(1)
    assert "also the sender" in said
    assert '| export default Keep.workflow({\n|   name: "receipts",' in said
    assert '| name = "a receipt becomes a row"' in said


def test_without_a_model_the_command_says_how_to_name_one(place: Place) -> None:
    (place.folder / "keep.toml").write_text(SETTINGS, "utf-8")
    assert "keep.toml has no [model]. Add one, such as:" in place.type("plan", "anything", code=2).stderr
    (place.folder / "keep.toml").write_text(SETTINGS + '\n[keep]\nrepair = "model"\n', "utf-8")
    assert 'repair = "model" needs a table [model]' in place.type("check", code=2).stderr


# -- repairs ------------------------------------------------------------------------------------------


class Shop:
    """A service that a workflow reads, which was changed after the script was written."""

    def __init__(self) -> None:
        orders = {"orders": [{"id": "7", "customerName": "Ann"}]}
        self.loopback = Loopback(lambda _: HttpReply(json=orders, headers={"Content-Type": "application/json"}))

    def toml(self) -> str:
        url = self.loopback.url
        return f'\n[connectors.shop]\ntype = "http"\nallow = ["{url}/"]\nnetworks = ["127.0.0.0/8"]\n'

    def placed(self, text: str) -> str:
        return text.replace("URL", self.loopback.url)


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    """The script has failed on it."""
    made = Shop()
    with made.loopback:
        yield made


def broken(place: Place, shop: Shop) -> None:
    (place.folder / "shop.js").write_text(shop.placed(conversation.SHOP), "utf-8")
    (place.folder / "shop.test.toml").write_text(conversation.SHOP_CASES, "utf-8")
    place.type("deploy", "shop.js", "--grant", "all")
    place.type("run-now", "shop")


def test_a_script_that_a_changed_service_broke_is_mended_and_goes_on_once_a_person_approves(
    place: Place, shop: Shop,
) -> None:
    wrong = answer(shop.placed(conversation.MENDED).replace("order.customerName", "order.name"), None)
    right = answer(shop.placed(conversation.MENDED), conversation.MENDED_CASES, "The name is in customerName now.")
    with ModelServer("chat", wrong, right) as server:
        set_up(place, server, shop.toml())
        broken(place, shop)
        place.type("dev", "--once", "--no-ui", code=4)
        assert place.rows() == []
        done = place.json("repair", "shop")
        said = server.said(0)
    assert "cannot read property 'name' of undefined" in said
    assert 'customerName\\":\\"Ann' in said  # what the service answers now
    assert "| " + "    const answer = await ctx.shop.get" in said
    assert place.rows() == []
    place.type("approve", done["id"])
    place.type("dev", "--once", "--no-ui")
    assert [row[:6] for row in place.rows() if "Ann" in row] == ["7,Ann,"]


def test_a_rehearsed_repair_reads_only_where_its_workflow_may(place: Place, shop: Shop) -> None:
    elsewhere = shop.placed(conversation.MENDED).replace("const answer", """await ctx.shop.get({ url: "URL/told" });
    const answer""").replace("URL", shop.loopback.url)
    renamed = elsewhere.replace('name: "shop"', 'name: "mine"')
    with ModelServer("chat", *(answer(each, conversation.MENDED_CASES) for each in (elsewhere, renamed))) as server:
        set_up(place, server, shop.toml(), attempts_max=2)
        broken(place, shop)
        place.type("grant", "shop", "shop.get", "--match", f"url={shop.loopback.url}/orders")
        place.type("dev", "--once", "--no-ui", code=4)
        place.json("repair", "shop", "--read", "shop.get", code=3)
        faults = [each["found"] for each in kept(place)["attempts"]]
    assert [each["failed"] for each in faults] == ["rehearse", "check"]
    assert "shop.get" in faults[0]["because"]
    assert "'shop'" in faults[1]["because"]
    assert {each.path for each in shop.loopback.seen} == {"/orders"}


def test_a_host_asks_the_model_by_itself_when_a_run_fails(place: Place, shop: Shop) -> None:
    right = answer(shop.placed(conversation.MENDED), conversation.MENDED_CASES, "The name is in customerName now.")
    with ModelServer("anthropic", right) as server:
        set_up(place, server, shop.toml(), REPAIR)
        broken(place, shop)
        place.type("dev", "--once", "--no-ui", code=4)
        [asked] = place.json("todo", code=4)
    assert asked["id"].startswith("fix_")
    assert asked["facts"]["note"] == "The name is in customerName now."
    assert place.rows() == []


def test_a_model_that_finds_no_repair_leaves_the_failure_to_a_person(place: Place, shop: Shop) -> None:
    with ModelServer("anthropic", "I do not know.") as server:
        set_up(place, server, shop.toml(), REPAIR, attempts_max=1)
        broken(place, shop)
        place.type("dev", "--once", "--no-ui", code=4)
        [asked] = place.json("todo", code=4)
    assert (asked["kind"], len(server.asked)) == ("logic", 1)
    assert asked["facts"]["repairs"][0]["note"].startswith("the model found no repair")
