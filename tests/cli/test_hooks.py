"""Webhooks at a real host: where it listens, and what it says when it cannot."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import tomllib
import urllib.error
import urllib.request

import pytest

from keepai.config import load
from keepai.connectors.webhook.senders import SigningRule, rule_of
from keepai.connectors.webhook.signature import ID, SIGNATURE, TIME, sign
from keepai.model.clock import SystemClock
from keepai.model.errors import ConfigError

from .conftest import Place

INBOX = """
[keep]
hooks = "127.0.0.1:0"

[connectors.payments]
type = "webhook.inbox"
path = "payments"
create = true
"""


def status_of(url: str, headers: dict[str, str] | None = None) -> int:
    try:
        request = urllib.request.Request(url, b"{}", headers or {}, method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def signed(id: str) -> dict[str, str]:
    seconds = SystemClock().now_ms() // 1000
    return {ID: id, TIME: str(seconds), SIGNATURE: sign("the shared secret", id, seconds, b"{}")}


def address_of(host: subprocess.Popen[str]) -> str:
    """Where a host says that webhooks come in."""
    assert host.stderr
    while line := host.stderr.readline():
        found = re.search(r"takes webhooks at (http://127\.0\.0\.1:\d+/hooks/)\{payments\}", line)
        if found:
            return found[1]
    raise AssertionError("the host ended")


def test_a_host_takes_webhooks_where_it_says_and_loses_none_when_it_is_killed(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("KEEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "keep.key"))
    with (place.folder / "keep.toml").open("a") as file:
        file.write(INBOX)
    place.type("secrets", "set", "payments", "secret", stdin="the shared secret\n")
    for end, statuses in ((signal.SIGKILL, [202, 202]), (signal.SIGTERM, [200, 202])):
        host = place.spawn("serve")
        try:
            hooks = address_of(host)
            assert [status_of(f"{hooks}payments", signed(id)) for id in ("d1", f"d-{end}")] == statuses
            assert status_of(f"{hooks}payments") == 400
            assert status_of(f"{hooks}payments", {**signed("d9"), ID: "d8"}) == 401
            assert status_of(f"{hooks}gmail") == 404
        finally:
            host.send_signal(end)
            host.communicate(timeout=30)
    kept = [json.loads(path.read_text())["id"] for path in sorted((place.folder / "payments").glob("*.json"))]
    assert kept == ["d1", f"d-{signal.SIGKILL}", f"d-{signal.SIGTERM}"]


@pytest.mark.parametrize("hooks", ['"7788"', '"localhost:"', '"127.0.0.1:99999"', "7788", '":80"'])
def test_an_address_that_is_none_is_told(place: Place, hooks: str) -> None:
    (place.folder / "keep.toml").write_text(f"[keep]\nhooks = {hooks}\n")
    with pytest.raises(ConfigError, match="must be an address and a port"):
        load(place.folder / "keep.toml")


def test_addresses_of_both_kinds_are_understood(place: Place) -> None:
    for text, wanted in (("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:81", ("::1", 81))):
        (place.folder / "keep.toml").write_text(f'[keep]\nhooks = "{text}"\n')
        assert load(place.folder / "keep.toml").hooks == wanted


TAKE = """
export default Keep.workflow({
  name: "payments", topics: { "paid": {} },
  producers: { takeIn: {
    publishes: ["paid"], schedule: { interval: "24h" },
    async handler(ctx, state) {
      const found = await ctx.payments.list({ after: state?.cursor });
      for (const each of found) {
        const inputId = ctx.registerInput({ source: "payments", type: "delivery", id: each.id, title: each.id });
        await ctx.publish("paid", { messageId: each.id, inputId, payload: {} });
      }
      return { cursor: found.lastCursor };
    },
  } },
});
"""


def test_a_delivery_is_read_at_once_also_if_the_host_is_killed_right_after_it_came(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("KEEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "keep.key"))
    with (place.folder / "keep.toml").open("a") as file:
        file.write(INBOX)
    place.type("secrets", "set", "payments", "secret", stdin="the shared secret\n")
    (place.folder / "take.js").write_text(TAKE)
    place.type("deploy", "take.js", "--grant", "all")
    wanted: set[str] = set()
    for turn in range(3):
        host = place.spawn("serve")
        try:
            hooks = address_of(host)
            until_read(place, wanted)  # what the host before took in and may not have read
            assert status_of(f"{hooks}payments", signed(f"read {turn}")) == 202
            until_read(place, wanted := wanted | {f"read {turn}"})
            assert status_of(f"{hooks}payments", signed(f"left {turn}")) == 202
            wanted.add(f"left {turn}")
        finally:
            host.kill()
            host.communicate(timeout=30)
    runs = place.json("runs", "payments")
    assert [run["trigger"] for run in runs].count("schedule") == 1, "a day has not gone by"
    assert {run["trigger"] for run in runs} <= {"schedule", "arrival", "recovery"}


def until_read(place: Place, wanted: set[str]) -> None:
    """Wait until a host has read these deliveries."""
    until = time.monotonic() + 60
    while not wanted <= {each["external_id"] for each in place.json("inputs", "payments")}:
        assert time.monotonic() < until, f"{wanted} were not read"
        time.sleep(0.05)


def test_an_inbox_for_a_service_is_connected_and_doctor_says_where_its_deliveries_come_in(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("KEEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "keep.key"))
    (place.folder / "secret").write_text("It's a Secret to Everybody")
    given = ("--set", "sender=github", "--set", "path=repo", "--set", "create=true", "--secret", "secret=file:secret")
    told = place.type("connect", "repo", "webhook.inbox", *given).stdout
    assert "it takes what is signed as by github" in " ".join(told.split())
    rule = 'hmac={ header = "X-Sig", prefix = "sha256=" }'
    place.type("connect", "erp", "webhook.inbox", "--set", "sender=hmac", "--set", rule, *given[2:])
    assert [each.header for each in inboxes_of(place).values()] == ["x-hub-signature-256", "x-sig"]
    lines = {each["name"]: each for each in place.json("doctor")}
    assert "http://127.0.0.1:7788/hooks/repo, http://127.0.0.1:7788/hooks/erp" in lines["webhooks"]["said"]
    refused = place.type("connect", "bad", "webhook.inbox", "--set", "sender=gitlab", *given[2:], code=None)
    assert "sender must be one of standard, github, stripe, slack, shopify, hmac" in refused.stderr


def inboxes_of(place: Place) -> dict[str, SigningRule]:
    """How the senders of each inbox sign, as keep.toml says."""
    kept = tomllib.loads((place.folder / "keep.toml").read_text())["connectors"]
    return {name: rule_of(name, table["sender"], table.get("hmac")) for name, table in kept.items()
            if table["type"] == "webhook.inbox"}
