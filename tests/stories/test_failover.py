"""A standby takes over that lacks what the primary had acknowledged: whoever was told of it goes on only with a person.

The servers are real: a primary, an asynchronous standby that is cut off from it and promoted, and a proxy that leads to
the one and then to the other. The hosts have a machine each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from urllib.parse import quote

import pytest

from keepai import Keep
from keepai.engine import host
from keepai.ledger.checks import check
from keepai.ledger.opening import open_reader
from keepai.ledger.postgres import lease
from keepai.model.errors import LedgerOlder
from tests.harness import Story
from tests.postgres import PASSWORD, Postgres, Proxy, binaries, server
from tests.stories.test_several_hosts import appends, rows, until

pytestmark = pytest.mark.skipif(binaries() is None, reason="there is no PostgreSQL server")

NAMES = ("a", "b", "c")  #: of workflows; there is a host for each


class Failover:
    """A primary, a standby that follows it, and an address that leads to the primary."""

    def __init__(self, primary: Postgres, way: Proxy) -> None:
        self.primary, self.way = primary, way
        self.standby = primary.standby(synchronous=False)
        self.address = f"postgresql://postgres:{quote(PASSWORD)}@127.0.0.1:{way.port}/postgres"

    def take_over(self) -> None:
        """The primary is gone, and the standby is what the address leads to."""
        self.primary.stop()
        self.standby.promote()
        self.way.lead_to(self.standby.port)


@pytest.fixture
def servers() -> Iterator[Failover]:
    with server() as primary, Proxy(primary.port) as way:
        found = Failover(primary, way)
        try:
            yield found
        finally:
            found.standby.stop()


class Machines:
    """A host on each of several machines, all before the same world."""

    def __init__(self, story: Story, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.story, self._patch, self._folder = story, patch, folder
        self.hosts: dict[str, Keep] = {}
        self._ends = AsyncExitStack()

    async def start(self, name: str, *, accept_older: bool = False) -> Keep:
        """A host begins there, and serves."""
        self._patch.setenv("XDG_STATE_HOME", str(self._folder / name))
        keep = Keep(self.story.path, connectors=[*self.story.world.connectors(), self.story.feed],
                    clock=self.story.clock, accept_older=accept_older)
        self.hosts[name] = await self._ends.enter_async_context(keep)
        self._ends.push_async_callback(self._end, keep, asyncio.ensure_future(keep.serve()))
        return keep

    async def _end(self, keep: Keep, serving: asyncio.Future[None]) -> None:
        await keep.host.close(1)
        await serving

    async def end(self) -> None:
        """They all end."""
        await self._ends.aclose()
        self.hosts.clear()

    def wake(self) -> None:
        """Time has passed, and they look."""
        self.story.clock.advance(minutes=10)
        for keep in self.hosts.values():
            keep.host.wake()


@pytest.fixture
async def machines(
    servers: Failover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Machines]:
    monkeypatch.setattr(lease, "BEAT_S", 0.05)
    monkeypatch.setattr(lease, "SHARE_S", 0.1)
    monkeypatch.setattr(host, "WATCH_S", 0.02)
    monkeypatch.setattr(host, "_REJOIN_S", 0.05)
    story = Story(tmp_path)
    story.path = servers.address
    found = Machines(story, monkeypatch, tmp_path)
    yield found
    await found.end()


async def test_what_a_failover_lost_is_noticed_by_every_host_that_was_told_of_it_and_happens_only_once(
    servers: Failover, machines: Machines,
) -> None:
    story, hosts = machines.story, machines.hosts
    for name in NAMES:
        await machines.start(name)
    for name in NAMES:
        await hosts["a"].deploy(appends(name), grants="all")
    await until(lambda: all(len(keep.host._own) == 1 for keep in hosts.values()))
    servers.standby.fall_behind()
    story.feed.put("lost")
    machines.wake()
    await until(lambda: [rows(story, name) for name in NAMES] == [["lost"]] * 3)
    await until(lambda: all(not keep.host._lanes for keep in hosts.values()))  # each was told of what became of it

    servers.take_over()
    await until(lambda: all(keep.parts.ledger.stopped() for keep in hosts.values()))
    for keep in hosts.values():
        assert "older than it was" in str(keep.parts.ledger.stopped())
        assert "keep db accept-older" in str(keep.parts.ledger.stopped())
    story.feed.put("new")
    machines.wake()
    await asyncio.sleep(0.3)  # several looks of each host
    assert [rows(story, name) for name in NAMES] == [["lost"]] * 3, "nothing starts"
    with closing(open_reader(servers.address)) as read:
        assert "keep db accept-older" in str(read.refused), "every look asks the person"
    await machines.end()
    for name in NAMES:
        with pytest.raises(LedgerOlder):
            await machines.start(name)

    for name in NAMES:  # a person goes on with it, on every machine
        await machines.start(name, accept_older=True)
    async with asyncio.timeout(30):
        while any(sorted(rows(story, name)) != ["lost", "new"] for name in NAMES):
            machines.wake()
            await asyncio.sleep(0.1)
    assert await hosts["a"].needs_you() == []
    with closing(open_reader(servers.address)) as read:
        assert [each.said for each in check(read) if not each.sound] == []


async def test_a_host_that_was_told_of_nothing_that_a_failover_lost_goes_on_by_itself(
    servers: Failover, machines: Machines,
) -> None:
    story = machines.story
    keep = await machines.start("a")
    await keep.deploy(appends("a"), grants="all")
    story.feed.put("kept")
    machines.wake()
    await until(lambda: rows(story, "a") == ["kept"] and not keep.host._lanes)
    servers.primary.wait_until(lambda: servers.primary.run(
        "select 1 from pg_stat_replication where replay_lsn = pg_current_wal_lsn()"))
    before = keep.parts.ledger.host
    servers.take_over()
    await until(lambda: keep.parts.ledger.host != before)
    story.feed.put("new")
    machines.wake()
    await until(lambda: rows(story, "a") == ["kept", "new"])
    assert keep.parts.ledger.stopped() is None
