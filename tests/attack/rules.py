# ruff: noqa: E501 (an attack is read best on one line)
"""Spellings that mean another recipient, URL or file than a rule allows: what left the host is looked at, not the rule.

The rule is the one of the documentation: mail to *@example.com, URLs below /v1/public/, files in out/.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import policy
from email.parser import BytesParser
from email.utils import getaddresses
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

from keepai.connectors.base import Call, Connector
from keepai.connectors.files.files_connector import Files
from keepai.connectors.http.http_connector import Http
from keepai.connectors.local.mail import LocalMail
from keepai.model import permissions
from keepai.model.errors import ConfigError, ConnectorError, NotGranted, RuleBroken
from keepai.model.permissions import Mode, Use, check_params, grant_of, judge
from keepai.testing.loopback import HttpReply, Loopback
from tests.attack.base import Area, Attack, Planted, must, refused
from tests.harness import Story, consumer, producer, workflow

LETTER = {"subject": "Hi", "body": "Hello"}
TO = {"mode": "allow", "match": {"to": "*@example.com"}}
RECIPIENTS = {"mode": "allow", "match": {"recipients": "*@example.com"}}
OUT = {"mode": "allow", "match": {"path": "out/*"}}

OTHER_PEOPLE: list[dict[str, Any]] = [
    {"to": "evil@attacker.test, ann@example.com"}, {"to": ["evil@attacker.test", "ann@example.com"]},
    {"to": "ann@example.com, evil@attacker.test"}, {"to": "ann@example.com <evil@attacker.test>"},
    {"to": '"ann@example.com" <evil@attacker.test>'}, {"to": "evil@attacker.test, x@example.com, y@example.com"},
    {"to": "ann@example.com", "cc": "evil@attacker.test"}, {"to": "ann@example.com.attacker.test"}, {"to": []},
    {"to": "x@example.com\u0000@attacker.test"}, {"to": "evil@attacker.test(@example.com"},
    {"to": "evil@attacker.test;ann@example.com"}, {"to": "group: evil@attacker.test;, ann@example.com"},
    {"to": "=?utf-8?q?evil=40attacker.test=2C?= ann@example.com"}, {"to": "evil@attacker.test\r\nBcc: x@example.com"},
    {"to": "ann@example.com\r\nBcc: evil@attacker.test"}, {"to": "evil@attacker.test\uff0cann@example.com"},
    {"to": "evil@attacker.test%example.com"}, {"to": "ann@example.com\u3002attacker.test"},
    {"to": "ann@example.com>, <evil@attacker.test"}, {"to": "@attacker.test:ann@example.com"},
]
OTHER_PLACES = [
    "/v1/public/../admin/delete", "/v1/public/%2e%2e/admin", "/v1/public/..%2fadmin", "/v1/public\\..\\admin",
    "/v1/PUBLIC/x", "/v1/public/%252e%252e/admin", "/v1/public/./../admin", "/v1/public/..;/admin", "/v1/public",
    "//attacker.test/v1/public/x", "/v1/public/%2e%2e%2fadmin", "/v1/public/..%5cadmin", "/v1/public/\t../admin",
    "/v1/publicx/../public/../admin", "/v1/public%2f..%2fadmin", "/v1/public/..%c0%afadmin",
]
OTHER_HOSTS = [
    "http://127.0.0.1@attacker.test/v1/public/x", "http://attacker.test/?{url}/v1/public/", "{url}.attacker.test/v1/public/x",
    "http://127.0.0.1:1/v1/public/x", "{url}@attacker.test/v1/public/x", "http://localhost/v1/public/x",
]
OTHER_FILES = ["OUT/x", "out/../secret", "out//../x", "./out/x", "/out/x", "out", "out/./x", "out\\..\\x", "out/..", ".keep/x",
               "Out/x", "out/../../x", "\u2025/x", "out/\u0000/../x"]


@dataclass
class Office:
    """Three connectors, and what came out of them."""

    story: Story
    server: Loopback
    folder: Path
    deployed: dict[str, str] = field(default_factory=dict)
    count: int = 0

    @property
    def connectors(self) -> Mapping[str, Connector]:
        """By name, as the host has them."""
        return self.story.keep.parts.connectors

    @property
    def public(self) -> dict[str, Any]:
        """The rule on URLs."""
        return {"mode": "allow", "match": {"url": f"{self.server.url}/v1/public/*"}}

    async def deploy(self, capability: str, rule: Any) -> str:
        """A workflow that makes this call, with the params that the feed brings, under this rule."""
        source = workflow(f"w{len(self.deployed)}", producers={"poll": producer()}, consumers={
            "act": consumer(mutate=f"await ctx.{capability}(prepared.data.payload);")})
        return await self.story.deploy(source, grants={"feed.list": "allow", capability: rule})

    async def perform(self, capability: str, rule: Any, params: Mapping[str, Any]) -> None:
        """Let a script make this call under this rule."""
        key = f"{capability} {rule}"
        if key not in self.deployed:
            self.story.feed.items.clear()
            self.deployed[key] = await self.deploy(capability, rule)
            await self.story.run()
        wf, self.count = self.deployed[key], self.count + 1
        self.story.feed.items = [{"id": f"call {self.count}", "payload": dict(params)}]
        await self.story.keep.run_now(wf)
        await self.story.run()
        for question in await self.story.keep.needs_you(wf):
            await self.story.keep.skip_run(question.run_id)
        await self.story.run()

    def judged(self, capability: str, rule: Any, params: Mapping[str, Any]) -> dict[str, Any]:
        """The call as it would be sent; raises if it is refused."""
        connector, _, operation = capability.partition(".")
        spec = self.connectors[connector].operations[operation]
        grant = grant_of(rule, capability)
        check_params(grant, capability, spec.param_names, spec.kinds)
        normal = spec.parse(dict(params))
        mode, _ = judge(grant, capability, normal, Use(), may_ask=True, kinds=spec.kinds)
        must(mode is Mode.ALLOW, f"the rule says {mode}")
        return normal

    def look(self) -> None:
        """Nothing went to anybody else, anywhere else, or into another file."""
        for file in self.folder.glob("mail/.Sent/cur/*"):
            data = file.read_bytes()
            file.unlink()
            _only_to_example(data)
        seen, self.server.seen[:] = list(self.server.seen), []
        for request in seen:
            must(_is_public(request.path), f"{request.method} {request.path} was sent")
        written = {each.name for each in (self.folder / "drive").iterdir()} - {"out", ".keep"}
        written |= {each.name for each in self.folder.iterdir() if not each.name.startswith(("mail", "drive", "keep.db"))}
        must(not written, f"{written} was written")


def _only_to_example(data: bytes) -> None:
    """By two readers of mail that are not ours."""
    for how in (policy.compat32, policy.default):
        read = BytesParser(policy=how).parsebytes(data, headersonly=True)
        lines = [str(value) for name in ("To", "Cc", "Bcc") for value in read.get_all(name, [])]
        odd = [box for _, box in getaddresses(lines) if not box.lower().endswith("@example.com")]
        must(lines and not odd, f"a letter went to {odd or 'nobody'}: {lines}")


def _is_public(path: str) -> bool:
    """Whether a server would find this below /v1/public/, however often it decodes; some drop what follows a `;`."""
    for _ in range(3):
        path = re.sub(";[^/]*", "", path)
        if not f"{posixpath.normpath(path.replace(chr(92), '/'))}/".startswith("/v1/public/"):
            return False
        path = unquote(path)
    return True


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Office]:
    with Loopback(lambda _request: HttpReply(200, {})) as server:
        connectors = [
            LocalMail(folder / "mail", create=True, name="post"), Files(folder / "drive", create=True, name="drive"),
            Http([f"{server.url}/"], networks=["127.0.0.0/8"], name="api"),
        ]
        async with Story(folder, connectors=connectors) as story:
            yield Office(story, server, folder)


def attacks(office: Office) -> Iterator[Attack]:
    for params in OTHER_PEOPLE:
        for name, rule in (("to", TO), ("recipients", RECIPIENTS)):
            yield Attack(f"a script writes to {params} under a rule on {name}",
                         lambda params=params, rule=rule: _through(office, "post.send", rule, {**LETTER, **params}))
    urls = [office.server.url + each for each in OTHER_PLACES] + [each.format(url=office.server.url) for each in OTHER_HOSTS]
    for url in urls:
        yield Attack(f"a script posts to {re.sub(r'127.0.0.1:[0-9]{2,}', 'HOST', url)!r} under a rule on url",
                     lambda url=url: _through(office, "api.post", office.public, {"url": url}))
    for path in OTHER_FILES:
        yield Attack(f"a script writes {path!r} under a rule on path",
                     lambda path=path: _through(office, "drive.write", OUT, {"path": path, "content": "x"}))
    yield Attack("a rule looks at a param that the operation does not have", lambda: _odd_rule(office))
    yield Attack("a limit per day is set on a read, which is not counted", lambda: _per_day(office))
    yield Attack("the rules refuse everything, so that nothing is shown by a refusal", lambda: _allows(office))


async def _through(office: Office, capability: str, rule: Any, params: dict[str, Any]) -> None:
    await office.perform(capability, rule, params)
    office.look()


async def _odd_rule(office: Office) -> None:
    for rule in ({"match": {"subjekt": "x"}}, {"deny_when": "bcc = x"}, {"ask_when": "amount > 3"}):
        with refused(f"{rule} was taken", ConfigError):
            await office.deploy("post.send", {"mode": "allow", **rule})


async def _per_day(office: Office) -> None:
    with refused("it was taken", ConfigError):
        await office.story.deploy(workflow("reads", producers={"poll": producer()}),
                                  grants={"feed.list": {"mode": "allow", "per_day": 1}})


async def _allows(office: Office) -> None:
    """The control: honest calls go through, so that `look` sees what is sent."""
    await office.perform("post.send", RECIPIENTS, {**LETTER, "to": "Ann <ann@EXAMPLE.com>", "cc": ["bob@example.com"]})
    await office.perform("api.post", office.public, {"url": f"{office.server.url}/v1/%70ublic/x"})
    await office.perform("drive.write", OUT, {"path": "out/x", "content": "x"})
    sent = len(list(office.folder.glob("mail/.Sent/cur/*"))), len(office.server.seen)
    must(sent == (1, 1) and (office.folder / "drive/out/x").exists(), f"honest calls did not go through: {sent}")
    office.look()


_PIECES = {
    "post.send": ["ann@example.com", "evil@attacker.test", "<", ">", ",", ";", ":", '"', "(", ")", "@", "\\", " ", "=?utf-8?q?",
                  "=2C", "=40", "?=", "\t", "\r\n", "\u0000", "\uff20", "\uff0c", "%", "example.com", "attacker.test", ".", "Ann",
                  "[", "]", "\u202e", "\u3002", "Bcc:", "x", "\u00df", "xn--", "!"],
    "api.post": ["/", "..", ".", "%2e", "%2E", "%2f", "%5c", "\\", "%252e", "v1", "public", "admin", "?", "#", ";", "@", ":", "x",
                 "%00", "%c0%ae", "//", "attacker.test", "PUBLIC", "%70", "\uff0e", "&", "=", " ", "\t", "%"],
    "drive.write": ["/", "..", ".", "out", "OUT", "x", "\\", "\u0000", "~", "%2e", ".keep", "\u2025", " ", "\uff0e", "secret", "-", "\n"],
}


def drawn(office: Office, chance: Random) -> Attack:
    """Pieces of addresses, URLs and paths in any order; what the rule lets through is sent, and looked at."""
    capability = chance.choice(list(_PIECES))
    text = "".join(chance.choice(_PIECES[capability]) for _ in range(chance.randint(1, 9)))
    if chance.random() < 0.5:  # near enough to a good one that some are allowed
        text = {"post.send": f"{text}ann@example.com", "drive.write": f"out/{text}", "api.post": f"/v1/public/{text}"}[capability]
    params: dict[str, Any] = {
        "post.send": {**LETTER, "to": [text, "bob@example.com"] if chance.random() < 0.2 else text},
        "api.post": {"url": f"{office.server.url}{text}"},
        "drive.write": {"path": text, "content": "x"},
    }[capability]
    if capability == "post.send" and chance.random() < 0.2:
        params["cc"] = chance.choice(["evil@attacker.test", "bob@example.com"])
    rule = {"post.send": chance.choice([TO, RECIPIENTS]), "api.post": office.public, "drive.write": OUT}[capability]

    async def attack() -> None:
        try:
            normal = office.judged(capability, rule, params)
            connector, _, operation = capability.partition(".")
            key = f"key-{chance.random()}"
            await office.connectors[connector].operations[operation].invoke(normal, Call(idempotency_key=key))
        except (NotGranted, RuleBroken, ConnectorError):
            pass
        office.look()

    return Attack(f"{capability} with {text!r}", attack)


def _as_text(params: Any, path: str, _kinds: Any) -> list[Any]:
    value = params.get(path) if isinstance(params, dict) else None
    return [", ".join(value) if isinstance(value, list) else value]


AREA = Area(
    "rules", "what a match rule allows, by other spellings of addresses, URLs and paths", place, attacks, drawn,
    (
        Planted("a rule judges the text of a param", lambda: patch.object(permissions, "_values", _as_text), "a script writes to"),
        Planted("a URL is judged as it is spelled", lambda: patch.object(
            permissions, "like", lambda text, pattern: fnmatch(text.lower(), pattern.lower())), "PUBLIC"),
        Planted("other fields of addresses are not looked at", lambda: patch.object(permissions, "_uncovered", lambda *_: ()),
                "'cc': 'evil"),
    ),
)
