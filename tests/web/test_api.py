"""The API: what its document says is what it answers, and everybody acts there under their own name and role."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from jsonschema import Draft202012Validator

from keepai import Policy
from keepai.config import Settings
from keepai.connectors.openapi.api_document import operations_in
from keepai.doors.api.api_port import ApiPort
from keepai.doors.api.api_views import VIEWS
from keepai.doors.api.openapi import PREFIX, document
from keepai.doors.live import STREAMS_MAX
from keepai.model.acts import REQUESTS
from tests.harness import Story

from . import questions

DOCUMENT = document()
OPERATIONS = {operation["operationId"]: (method, path, operation)
              for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()}
#: Role → how it is let in.
LET_IN = {"viewer": "user", "operator": "user", "owner": "user", "look": "agent", "propose": "agent"}


@dataclass
class Served:
    """A host with its API, a token of each role, and workflows that have come to questions."""

    story: Story
    api: ApiPort
    client: httpx2.AsyncClient
    tokens: dict[str, str]
    wfs: dict[str, str] = field(default_factory=dict)

    async def ask(self, operation: str, role: str = "owner", body: Any = None, **values: Any) -> httpx2.Response:
        """One request of the document; whatever comes back must be what the document says."""
        method, path, described = OPERATIONS[operation]
        query = {name: str(value) for name, value in values.items() if f"{{{name}}}" not in path}
        for name in values.keys() - query.keys():
            path = path.replace(f"{{{name}}}", quote(str(values[name]), safe=""))
        answer = await self.client.request(
            method, self.api.origin + path, params=query, headers={"authorization": f"Bearer {self.tokens[role]}"},
            content=None if method == "get" else body if isinstance(body, bytes) else json.dumps(body).encode())
        assert str(answer.status_code) in described["responses"], f"{operation}: {answer}: {answer.text[:300]}"
        wrong = [f"{list(error.absolute_path)}: {error.message[:200]}"
                 for error in schema_of_answer(operation, answer.status_code).iter_errors(answer.json())]
        assert not wrong, f"{operation}: {wrong}"
        return answer

    async def act(self, name: str, role: str = "owner", /, **params: Any) -> httpx2.Response:
        """An act."""
        return await self.ask(f"act_{name}", role, params)


@cache
def schema_of_answer(operation: str, status: int) -> Draft202012Validator:
    """What the document says about an answer."""
    said = OPERATIONS[operation][2]["responses"][str(status)]
    said = DOCUMENT["components"]["responses"][str(status)] if "$ref" in said else said
    return Draft202012Validator({**said["content"]["application/json"]["schema"], "components": DOCUMENT["components"]})


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    settings = Settings(ledger=tmp_path / "keep.db")
    async with (Story(tmp_path, policy=Policy(retries_max=1), connectors=questions.connectors()) as story,
                ApiPort(story.keep, settings, ("127.0.0.1", 0)) as api, httpx2.AsyncClient(timeout=30) as client):
        await story.keep.set_pin("123456")
        tokens = {role: await getattr(story.keep, f"{kind}_add")(role, role) for role, kind in LET_IN.items()}
        yield Served(story, api, client, tokens)


async def ask_people(served: Served, *kinds: str) -> None:
    """Have workflows come to questions."""
    for kind in kinds:
        served.wfs[kind] = await questions.ASKS[kind](served.story, kind)


def test_the_document_is_valid_and_tells_every_look_and_act() -> None:
    named = set(re.findall(r'"\$ref": "#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT)))
    assert named <= {(part, name) for part, each in DOCUMENT["components"].items() for name in each}
    for _, path, said in OPERATIONS.values():
        inside = {each["name"] for each in said.get("parameters", ()) if each["in"] == "path"}
        assert (inside, bool(said["responses"])) == (set(re.findall(r"{(\w+)}", path)), True)
    for each in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(each)
    assert set(OPERATIONS) == {*VIEWS, *(f"act_{name}" for name in REQUESTS), "changes"}
    body = OPERATIONS["act_approve"][2]["requestBody"]["content"]["application/json"]["schema"]
    assert (body["required"], set(body["properties"]), body["additionalProperties"]) == (["id"], {"id", "shown"}, False)
    read = operations_in(DOCUMENT)
    assert {each.why_not for each in read.values()} == {""}, "our own connector can call all of it"
    assert read["inputs"].params_schema["properties"]["status"]["enum"]


async def test_everything_that_can_be_looked_at_fits_the_document(served: Served) -> None:
    await ask_people(served, "approval", "unknown_blind", "logic", "left")
    keep = served.story.keep
    await served.act("propose", "propose", source=questions.acting("new"), why="Because.")
    ids: dict[str, list[str]] = {"input": [], "event": [], "run": [], "explain": []}
    seen = set()
    for wf in served.wfs.values():
        for name in (name for name, view in VIEWS.items() if view.pages):
            found = (await served.ask(name, "viewer", wf=wf)).json()
            assert (len(found["result"]), found["cursor"]) == (len(await getattr(keep, name)(wf)), None)
            seen |= {name} if found["result"] else set()
            known = [each["id"] for each in found["result"] if "id" in each]
            ids.get(name[:-1], []).extend(known)
            ids["explain"] += known
    assert seen == {name for name, view in VIEWS.items() if view.pages}
    for name, every in ids.items():
        for each in [*every, *(served.wfs.values() if name == "explain" else ())]:
            assert (await served.ask(name, "look", id=each)).json()["result"]["id"] == each
    assert len((await served.ask("workflows")).json()["result"]) == 4
    asked = (await served.ask("needs_you")).json()["result"]
    assert [each["id"] for each in asked] == [each.id for each in await keep.needs_you()]
    assert (await served.ask("needs_you", wf=served.wfs["logic"])).json()["result"][0]["workflow_id"]
    assert (await served.ask("proposals")).json()["result"][0]["proposer"] == "agent:propose"
    assert (await served.ask("evidence", wf=served.wfs["logic"])).json()["result"]["source"]
    assert (await served.ask("remedies", id=served.wfs["logic"])).status_code == 200
    assert (await served.ask("state", wf="approval", handler="poll")).status_code == 200
    assert (await served.ask("version")).json()["result"] == await keep.version()


async def test_a_long_list_comes_in_pages(served: Served) -> None:
    wf = await served.story.deploy_and_run(questions.acting("many", first="return null;"), *"abcde")
    found, after = [], {}
    for _ in range(3):
        page = (await served.ask("inputs", wf=wf, limit=2, **after)).json()
        found += [each["id"] for each in page["result"]]
        after = {"after": page["cursor"]}
    assert (found, page["cursor"]) == ([each.id for each in await served.story.keep.inputs(wf)], None)
    for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"status": "nice"}, {"sort": "up"}):
        assert (await served.ask("inputs", wf=wf, **wrong)).status_code == 400


@pytest.mark.parametrize("role", LET_IN)
async def test_an_act_that_a_role_does_not_have_is_not_there(served: Served, role: str) -> None:
    before = await served.story.keep.version()
    for name, act in REQUESTS.items():
        answer = await served.act(name, role, nonsense=1)
        assert answer.status_code == (400 if role in act.roles else 404), f"{name} for {role}: {answer.text}"
    assert await served.story.keep.version() == before


async def test_acts_are_kept_under_a_persons_name_and_once_for_what_they_were_shown(served: Served) -> None:
    await ask_people(served, "approval")
    wf, shown = served.wfs["approval"], (await served.ask("version", "operator")).json()["result"]
    [question] = (await served.ask("needs_you", "operator")).json()["result"]
    for _ in range(2):
        assert (await served.act("approve", "operator", id=question["id"], shown=shown)).status_code == 200
    stale = await served.act("reject", "owner", id=question["id"], shown=shown)
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "refused")
    await served.story.run()
    assert len(served.story.world.effects) == 1
    acts = [(each["act"], each["actor"]) for each in await served.story.rows("action_all", workflow_id=wf)]
    assert acts.count(("approve", "person:operator")) == 1
    assert "reject" not in {act for act, _ in acts}


async def test_every_kind_of_act_answers_as_the_document_says(served: Served) -> None:
    await ask_people(served, "approval", "unknown_blind", "logic")
    wf, keep = served.wfs["logic"], served.story.keep
    flow = questions.acting("other")
    [unknown] = await keep.mutations(served.wfs["unknown_blind"])
    [failed] = [each for each in await keep.runs(wf) if each.handler == "answer"]
    proposed = (await served.act("propose", source=flow, why="Because.")).json()["result"]
    done: dict[str, dict[str, Any]] = {
        "pause": {"wf": wf, "shown": float(await keep.version())},  # JSON has one kind of number
        "deploy": {"source": questions.acting("third")}, "resume": {"wf": wf},
        "set": {"wf": wf, "waiting": "others"}, "run_now": {"wf": wf}, "grant": {"wf": wf, "capability": "gmail.send"},
        "accept": {"id": proposed["id"], "shown": proposed["digest"]}, "retry": {"run_id": failed.id},
        "resolve": {"mutation_id": unknown.id, "answer": "happened", "result": {"x": 1}}, "prune": {"days": 30},
        "send": {"to": "logic/in", "data": {"messageId": "m"}, "title": "By hand"}, "stop": {"wf": wf},
        "user_add": {"name": "bob"}, "user_remove": {"name": "bob"},
    }
    for name, params in done.items():
        assert (await served.act(name, **params)).status_code == 200, name
    assert (await served.act("prune", days=False)).status_code == 400
    assert (await served.act("prune", days=-5)).status_code == 409
    broken = await served.act("deploy", source="nonsense(")
    assert (broken.status_code, bool(broken.json()["error"]["findings"])) == (422, True)
    assert (await served.act("pause", wf="nowhere")).status_code == 404
    assert (await served.act("certify", source=flow)).status_code == 409


#: What programs send by mistake, or on purpose.
STRANGE: tuple[Any, ...] = (
    None, True, -1, 10**30, 1.5, "", "x", "\0", "../..", "ä\u202e", "wf_", "x" * 3000, [], [[]], {}, {"x": None},
    {"mode": "allow"}, json.loads("[" * 200 + "]" * 200))


async def test_strange_values_are_answered_as_the_document_says(served: Served) -> None:
    wf = await served.story.deploy(questions.acting("calm"))
    for name in VIEWS:
        _, path, described = OPERATIONS[name]
        for value in (each for each in STRANGE if isinstance(each, str) and each):
            places = {each["name"]: value for each in described["parameters"] if each["in"] == "path"}
            await served.ask(name, **places)
            for each in (each["name"] for each in described["parameters"] if each["in"] == "query"):
                await served.ask(name, **{**places, **({"wf": wf} if "{wf}" in path else {}), each: value})
    for name, act in REQUESTS.items():
        for value in STRANGE:
            for each in act.params:
                others = {key: wf if key == "wf" else "x" for key, param in act.params.items() if param.required}
                await served.act(name, **{**others, each: value})
    for body in STRANGE:
        assert (await served.ask("act_pause", body=body)).status_code == 400
    for body in (b"", b"{", b"\xff", b'{"wf": "\\ud800"}', b"[" * 100_000, b"NaN"):
        assert (await served.ask("act_pause", body=body)).status_code == 400
    assert (await served.ask("act_pause", body=b" " * (9 << 20))).status_code == 413


async def test_without_a_token_of_somebody_here_there_is_nothing_but_the_document(served: Served) -> None:
    await served.story.keep.user_remove("viewer")
    served.tokens |= {"wrong": "x", "pin": "123456"}
    for role in ("viewer", "wrong", "pin"):
        for name in OPERATIONS:
            answer = await served.ask(name, role, {}, wf="x", id="x", handler="x")
            assert answer.status_code == 401
    token = served.tokens["owner"]
    for sent in ({}, {"authorization": token}, {"authorization": f"Basic {token}"}, {"authorization": "Bearer"}):
        answer = await served.client.get(f"{served.api.origin}{PREFIX}/workflows", headers=sent)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    told = await served.client.get(f"{served.api.origin}{PREFIX}/openapi.json")
    assert told.json() == json.loads(json.dumps(DOCUMENT))
    assert (await served.client.get(f"{served.api.origin}/")).status_code == 404


async def test_who_listens_is_told_of_changes_until_their_token_is_taken_back(served: Served) -> None:
    wf = await served.story.deploy(questions.acting("calm"))
    headers = {"authorization": f"Bearer {served.tokens['viewer']}"}
    url = f"{served.api.origin}{PREFIX}/changes"
    async with asyncio.timeout(60), served.client.stream("GET", url, headers=headers) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.aiter_lines()
        data = [line async for line in _until(lines, 1)]
        await served.story.keep.pause(wf)
        data += [line async for line in _until(lines, 1)]
        assert data[0] != data[1]
        await served.story.keep.user_remove("viewer")
        assert [line async for line in _until(lines, 2)] == []
    served.api._live.streams = STREAMS_MAX
    assert (await served.ask("changes")).status_code == 503


async def _until(lines: AsyncIterator[str], count: int) -> AsyncIterator[str]:
    """The next lines with data, or those before the end."""
    async for line in lines:
        if line.startswith("data:"):
            yield line
            count -= 1
            if not count:
                return
