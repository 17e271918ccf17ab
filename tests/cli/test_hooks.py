"""Webhooks at a real host: where it listens, and what it says when it cannot."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request

import pytest

from keepai.config import load
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


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_host_takes_webhooks_where_it_says(place: Place) -> None:
    with (place.folder / "keep.toml").open("a") as file:
        file.write(INBOX)
    host = place.spawn("serve")
    try:
        assert host.stderr
        found = None
        while found is None:
            line = host.stderr.readline()
            assert line, "the host ended"
            found = re.search(r"takes webhooks at (http://127\.0\.0\.1:\d+/hooks/)\{payments\}", line)
        assert status_of(f"{found[1]}payments") == 400
        assert status_of(f"{found[1]}gmail") == 404
    finally:
        host.send_signal(signal.SIGTERM)
        host.communicate(timeout=30)
    assert host.returncode == 0


@pytest.mark.parametrize("hooks", ['"7788"', '"localhost:"', '"127.0.0.1:99999"', "7788", '":80"'])
def test_an_address_that_is_none_is_told(place: Place, hooks: str) -> None:
    (place.folder / "keep.toml").write_text(f"[keep]\nhooks = {hooks}\n")
    with pytest.raises(ConfigError, match="must be an address and a port"):
        load(place.folder / "keep.toml")


def test_addresses_of_both_kinds_are_understood(place: Place) -> None:
    for text, wanted in (("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:81", ("::1", 81))):
        (place.folder / "keep.toml").write_text(f'[keep]\nhooks = "{text}"\n')
        assert load(place.folder / "keep.toml").hooks == wanted
