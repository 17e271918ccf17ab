"""Webhooks: outgoing ones are signed; incoming ones are checked, stored before the answer, and read with a cursor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from keepai import Rejected
from keepai.config import Settings
from keepai.connectors import make
from keepai.connectors.base import Call, Page
from keepai.connectors.egress import Client, Response, Rules
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.outgoing import Webhook
from keepai.connectors.webhook.signature import ID, SIGNATURE, TIME, sign
from keepai.doors.webhooks import WebhookPort
from keepai.model.errors import ConfigError, PermissionDenied
from keepai.reading.inbox_entries import inbox_entries
from keepai.testing import ManualClock
from keepai.testing.loopback import HttpReply, Loopback

SECRET = "shared secret"
NOW = "2026-01-05T09:00:00Z"


def inbox(folder: Path, clock: ManualClock | None = None, **settings: Any) -> Inbox:
    made = Inbox(folder, create=True, name="shop", clock=clock or ManualClock(NOW), **settings)
    made.entrust({"secret": SECRET})
    return made


def signed(id: str, body: bytes, clock: ManualClock, secret: str = SECRET) -> dict[str, str]:
    seconds = clock.now_ms() // 1000
    return {ID: id, TIME: str(seconds), SIGNATURE: sign(secret, id, seconds, body), "content-type": "application/json"}


async def listed(box: Inbox, **params: Any) -> Page[Any]:
    spec = box.operations["list"]
    found: Any = await spec.invoke(spec.parse(params), Call())
    return found


async def test_what_is_sent_is_signed_and_carries_its_key() -> None:
    clock = ManualClock(NOW)
    with Loopback(lambda _request: HttpReply(204, content=b"")) as server:
        hook = Webhook(f"{server.url}/in", networks=["127.0.0.1"], name="tell", clock=clock)
        hook.entrust({"secret": SECRET})
        spec = hook.operations["send"]
        await spec.invoke({"event": "paid", "data": {"id": 7}}, Call(idempotency_key="key-1"))
    [request] = server.seen
    told = request.json()
    assert (told["type"], told["data"]) == ("paid", {"id": 7})
    assert request.headers[ID] == "key-1"
    assert request.headers[SIGNATURE] == sign(SECRET, "key-1", clock.now_ms() // 1000, request.body)
    assert not spec.can_reconcile


async def test_what_shall_not_be_signed_needs_no_secret() -> None:
    with Loopback(lambda _request: HttpReply(204, content=b"")) as server:
        hook = Webhook(f"{server.url}/in", networks=["127.0.0.1"], signed=False, name="tell")
        assert hook.secrets == {}
        await hook.check()
        await hook.operations["send"].invoke({"event": "paid"}, Call(idempotency_key="key-1"))
    assert SIGNATURE not in server.seen[0].headers


def test_signatures_are_those_of_standard_webhooks() -> None:
    secret, id, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}'
    assert sign(secret, id, 1614265330, body) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_delivery_is_kept_before_it_is_acknowledged_and_survives_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    receipt = await inbox(tmp_path, clock).accept(signed("d1", b'{"a": 1}', clock), b'{"a": 1}')
    assert receipt.status == 202
    [delivery] = await listed(inbox(tmp_path, clock))
    assert delivery["id"] == "d1"
    assert delivery["body"] == {"a": 1}
    assert delivery["receivedAt"] == "2026-01-05T09:00:00.000Z"


async def test_a_delivery_that_cannot_be_kept_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert (await box.accept(signed("d1", b"{}", clock), b"{}")).status == 503
    monkeypatch.undo()
    assert (await box.accept(signed("d1", b"{}", clock), b"{}")).status == 202
    assert len(await listed(box)) == 1


async def test_the_same_delivery_is_kept_once_also_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    for attempt in range(4):
        receipt = await inbox(tmp_path, clock).accept(signed("d1", b"{}", clock), b"{}")
        assert receipt.status == (202 if attempt == 0 else 200)
        clock.advance(minutes=1)
    assert len(await listed(inbox(tmp_path, clock))) == 1


async def test_many_at_once_are_each_kept_once_and_in_one_order(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock)
    ids = [f"d{number % 20}" for number in range(60)]
    receipts = await asyncio.gather(*(box.accept(signed(id, b"{}", clock), b"{}") for id in ids))
    assert sorted(receipt.status for receipt in receipts) == [200] * 40 + [202] * 20
    found = await listed(box)
    assert {each["id"] for each in found} == set(ids)
    assert [each["cursor"] for each in found] == sorted({each["cursor"] for each in found})


@pytest.mark.parametrize(("change", "status"), [
    ({SIGNATURE: "v1,AAAA"}, 401), ({SIGNATURE: ""}, 401), ({TIME: "1"}, 401), ({TIME: ""}, 400), ({TIME: "-5"}, 400),
    ({ID: ""}, 400), ({ID: "x" * 500}, 400), ({ID: "other"}, 401), ({ID: "a\nb"}, 400),
])
async def test_a_delivery_that_is_not_genuine_is_not_kept(tmp_path: Path, change: dict[str, str], status: int) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock)
    assert (await box.accept({**signed("d1", b"{}", clock), **change}, b"{}")).status == status
    assert (await box.accept(signed("d1", b"{}", clock, "another secret"), b"{}")).status == 401
    assert (await box.accept(signed("d1", b"{}", clock), b"{ }")).status == 401
    assert await listed(box) == []


async def test_while_a_secret_is_changed_either_is_taken_and_it_is_told_which(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock, signed_with=["secret", "new"])
    assert (await box.accept(signed("d1", b"{}", clock), b"{}")).status == 202, "the new one is not stored yet"
    assert (await box.accept(signed("d2", b"{}", clock, "next"), b"{}")).status == 401
    with pytest.raises(PermissionDenied, match="keep secrets set shop new"):
        await box.check()
    box.entrust({"secret": SECRET, "new": "next"})
    assert (await box.accept(signed("d2", b"{}", clock, "next"), b"{}")).status == 202
    assert (await box.accept(signed("d3", b"{}", clock), b"{}")).status == 202
    assert (await box.accept(signed("d4", b"{}", clock, "neither"), b"{}")).status == 401
    assert [(each.id, each.signed_with) for each in inbox_entries({"shop": box}, None, 9)] == [
        ("d1", "secret"), ("d2", "new"), ("d3", "secret")]
    assert "its secrets (secret, new)" in await box.check()
    box.entrust({"new": "next"})  # the old one was removed
    assert (await box.accept(signed("d5", b"{}", clock), b"{}")).status == 401
    box.entrust({})
    assert (await box.accept(signed("d5", b"{}", clock), b"{}")).status == 503


@pytest.mark.parametrize("names", [[], ["a", "a"], list("abcdef")])
def test_an_inbox_has_one_secret_to_five(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ConfigError, match="each once"):
        inbox(tmp_path, signed_with=names)


async def test_an_old_delivery_and_one_from_the_future_are_refused(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box, headers = inbox(tmp_path, clock), signed("d1", b"{}", clock)
    clock.advance(seconds=301)
    assert (await box.accept(headers, b"{}")).status == 401
    ahead = ManualClock("2026-01-05T10:00:00Z")
    assert (await box.accept(signed("d2", b"{}", ahead), b"{}")).status == 401
    assert await listed(box) == []


async def test_size_rate_and_number_are_limited(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock, bytes_max=10, per_minute=2, most=3)
    assert (await box.accept(signed("d0", b"x" * 11, clock), b"x" * 11)).status == 413
    said = [(await box.accept(signed(f"d{n}", b"{}", clock), b"{}")).status for n in range(3)]
    assert said == [202, 202, 429]
    clock.advance(seconds=61)
    said = [(await box.accept(signed(f"e{n}", b"{}", clock), b"{}")).status for n in range(2)]
    assert said == [202, 503]


async def test_following_the_cursor_sees_each_delivery_once_and_misses_none(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock)
    seen: list[str] = []
    cursor = None
    for number in range(7):
        await box.accept(signed(f"d{number}", b"{}", clock), b"{}")
        if number % 3 == 2:
            page = await listed(inbox(tmp_path, clock), after=cursor, limit=2)
            cursor = page.fields["lastCursor"]
            seen += [each["id"] for each in page]
    while page := await listed(box, after=cursor, limit=2):
        cursor = page.fields["lastCursor"]
        seen += [each["id"] for each in page]
    assert seen == [f"d{number}" for number in range(7)]
    assert page.fields["lastCursor"] == cursor


async def test_a_folder_that_was_emptied_goes_on_behind_the_cursor(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock)
    await box.accept(signed("d1", b"{}", clock), b"{}")
    cursor = (await listed(box)).fields["lastCursor"]
    for entry in os.scandir(tmp_path):
        os.unlink(entry.path)
    clock.advance(seconds=1)
    await box.accept(signed("d2", b"{}", clock), b"{}")
    assert [each["id"] for each in await listed(box, after=cursor)] == ["d2"]


async def test_a_cursor_that_is_none_is_refused_and_one_delivery_can_be_asked_for(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock)
    with pytest.raises(Rejected):
        await listed(box, after="tomorrow")
    await box.accept(signed("d1", b"no json", clock), b"no json")
    [delivery] = await listed(box)
    assert delivery["body"] == "no json"
    spec = box.operations["get"]
    assert await spec.invoke({"cursor": delivery["cursor"]}, Call()) == delivery
    assert await spec.invoke({"cursor": "1"}, Call()) is None


# -- the door ----------------------------------------------------------------------------------------


async def post(hooks: WebhookPort, path: str, headers: dict[str, str], body: bytes, method: str = "POST") -> Response:
    assert hooks.origin
    client = Client(Rules.under([hooks.origin.removesuffix("hooks/")], ["127.0.0.1"]))
    return await client.send(method, hooks.origin.removesuffix("/hooks/") + path, Call(), headers=headers, content=body)


async def test_the_door_takes_signed_deliveries_and_nothing_else(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    box = inbox(tmp_path, clock, bytes_max=1000)
    good = signed("d1", b'{"a": 1}', clock)
    async with WebhookPort(Settings(connectors=(box,), hooks=("127.0.0.1", 0))) as hooks:
        assert (await post(hooks, "/hooks/shop", good, b'{"a": 1}')).status == 202
        assert (await post(hooks, "/hooks/shop", good, b'{"a": 1}')).status == 200
        assert (await post(hooks, "/hooks/shop", {}, b"{}")).status == 400
        assert (await post(hooks, "/hooks/shop", {**good, ID: "d2"}, b'{"a": 1}')).status == 401
        assert (await post(hooks, "/hooks/shop", good, b"x" * 2000)).status == 413
        assert (await post(hooks, "/hooks/other", good, b"{}")).status == 404
        assert (await post(hooks, "/", good, b"{}")).status == 404
        assert (await post(hooks, "/hooks/shop", {}, b"", "PUT")).status == 405
    assert [each["id"] for each in await listed(box)] == ["d1"]


async def test_keeps_own_webhooks_fit_its_own_inbox(tmp_path: Path) -> None:
    box = inbox(tmp_path)
    async with WebhookPort(Settings(connectors=(box,), hooks=("127.0.0.1", 0))) as hooks:
        hook = Webhook(f"{hooks.origin}shop", networks=["127.0.0.1"], name="tell", clock=ManualClock(NOW))
        hook.entrust({"secret": SECRET})
        spec = hook.operations["send"]
        for _ in range(2):
            await spec.invoke({"event": "paid"}, Call(idempotency_key="key-1"))
    [delivery] = await listed(box)
    assert delivery["body"]["type"] == "paid"


async def test_without_a_connector_that_wants_webhooks_nothing_listens(tmp_path: Path) -> None:
    sheets = make("local.sheets", "sheets", {"path": str(tmp_path)})
    async with WebhookPort(Settings(connectors=(sheets,), hooks=("127.0.0.1", 0))) as hooks:
        assert hooks.origin is None


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    one, two = inbox(tmp_path / "a"), inbox(tmp_path / "b")
    async with WebhookPort(Settings(connectors=(one,), hooks=("127.0.0.1", 0))) as hooks:
        with pytest.raises(ConfigError, match="Name another in"):
            await WebhookPort(Settings(connectors=(two,), hooks=("127.0.0.1", hooks.port or 0))).__aenter__()


def test_what_is_on_disk_is_plain(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    asyncio.run(inbox(tmp_path, clock).accept(signed("d1", b'{"a": 1}', clock), b'{"a": 1}'))
    [file] = tmp_path.glob("*.json")
    kept = json.loads(file.read_text())
    assert (kept["id"], kept["body"]) == ("d1", '{"a": 1}')
    assert file.stat().st_mode & 0o077 == 0


def killed_at(line: int, box: Inbox, headers: dict[str, str], body: bytes) -> bool:
    """Take a delivery in, in a process that is killed at the nth line of the spool; whether it came to that."""
    child = os.fork()
    if child == 0:
        left = line

        def trace(frame: Any, event: str, _argument: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith("spool.py"):
                return None
            left -= event == "line"
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        threading.settrace(trace)
        try:
            asyncio.run(box.accept(headers, body))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_host_killed_at_any_line_keeps_a_delivery_once_when_it_comes_again(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    headers = signed("d1", b"{}", clock)
    moments = 0
    for line in range(1, 60):
        folder = tmp_path / str(line)
        if not killed_at(line, inbox(folder, clock), headers, b"{}"):
            break
        moments += 1
        assert asyncio.run(inbox(folder, clock).accept(headers, b"{}")).status in (200, 202)
        assert [each["id"] for each in asyncio.run(listed(inbox(folder, clock)))] == ["d1"]
    assert moments > 10
