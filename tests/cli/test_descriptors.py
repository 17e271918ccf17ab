"""A host that strangers flood with connections keeps descriptors for its own work, and a short log."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepai.doors.connections import shortage
from tests import doors

from .conftest import COMMAND, Place, until
from .test_hooks import INBOX, address_of, signed, status_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")

LIMIT = 160  #: descriptors of the host; half of them are kept for its own work
Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def flooded(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a host that takes webhooks and may have few descriptors."""
    monkeypatch.setenv("KEEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "keep.key"))
    with (place.folder / "keep.toml").open("a") as file:
        file.write(INBOX)
    place.type("secrets", "set", "payments", "secret", stdin="the shared secret\n")
    place.deliver("Invoice 1")
    place.type("deploy", "flow.js", "--grant", "all")
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *COMMAND, "serve"]
        started.append(subprocess.Popen(limited, cwd=place.folder, text=True, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for host in started:
        host.kill()
        host.communicate()


def used(host: subprocess.Popen[str]) -> int:
    """How many descriptors a process has."""
    return len(list(Path(f"/proc/{host.pid}/fd").iterdir()))


def flood(address: doors.Address, number: int) -> list[object]:
    """Idle connections, of several addresses so that no limit of one address is in the way."""
    return [each for last in range(number // 20)
            for each in doors.hold(address, 20, b"" if last % 2 else doors.HALF_HEAD, f"127.0.0.{last + 2}")]


def test_a_flood_of_idle_connections_leaves_a_host_its_descriptors_and_its_work(place: Place, flooded: Start) -> None:
    host = flooded()
    hooks = address_of(host)
    port = int(re.findall(r":(\d+)/", hooks)[0])
    until(lambda: len(place.rows()) == 1)
    before = used(host)
    idle = flood(("127.0.0.1", port), 3 * LIMIT)
    until(lambda: used(host) >= min(LIMIT // 2, before + 10))
    assert used(host) <= LIMIT // 2 + 2

    assert place.json("status")["host"] is True
    assert status_of(f"{hooks}payments", signed("d1")) == 202
    place.deliver("Invoice 2")
    name = place.json("status")["workflows"][0]["name"]
    place.type("run-now", name)
    until(lambda: len(place.rows()) == 2)  # a mailbox was read, a worker ran and a sheet was written meanwhile

    host.send_signal(signal.SIGTERM)
    _, log = host.communicate(timeout=30)
    doors.let_go(idle)  # type: ignore[arg-type]
    assert len(log) < 20_000
    assert "few descriptors left" in log
    assert re.search(r"… and \d[\d,]* more like this in 10 s", log)
    assert "Traceback" not in log


def test_a_process_with_few_descriptors_is_told_so(place: Place) -> None:
    limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *COMMAND, "doctor"]
    told = subprocess.run(limited, cwd=place.folder, text=True, capture_output=True, check=False).stdout
    assert "may open 160 files and connections" in " ".join(told.split())
    assert "LimitNOFILE=" in told
    assert shortage() is None or "may open" in str(shortage())
