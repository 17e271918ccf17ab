"""What appears in a watched folder is told: when it is whole, in inner folders too, and not if Keep itself did it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keepai import Transient
from keepai.connectors.base import Call, Connector
from keepai.connectors.files.files_connector import Files
from keepai.connectors.kit import folder_watch
from keepai.connectors.local.mail import LocalMail

FOREVER_S = 30
#: That nothing is told is seen by what is told next, so the pauses between two are left out.
pytestmark = pytest.mark.usefixtures("without_pauses")


@pytest.fixture(params=["told", "polled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Told by the system, or by looking, as on a machine without inotify."""
    if request.param == "polled":
        def none(*_arguments: object) -> None:
            raise OSError("there is no inotify")
        monkeypatch.setattr(folder_watch.InotifyWatcher, "__init__", none)
    return str(request.param)


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_watch, "PAUSE_S", 0)
    monkeypatch.setattr(folder_watch, "POLL_S", 0.01)


@asynccontextmanager
async def listening(connector: Connector) -> AsyncIterator[AsyncGenerator[None]]:
    """After the first signal, with which it begins."""
    async with aclosing(connector.arrivals()) as arrivals, asyncio.timeout(FOREVER_S):
        await anext(arrivals)
        yield arrivals


async def made(connector: Connector, operation: str, params: dict[str, Any], key: str) -> None:
    spec = connector.operations[operation]
    await spec.invoke(spec.parse(params), Call(idempotency_key=key))


async def test_a_file_that_appears_in_the_folder_is_told(tmp_path: Path, way: str) -> None:
    async with listening(Files(tmp_path)) as arrivals:
        (tmp_path / "a.txt").write_text("a")
        await anext(arrivals)
        (tmp_path / "inner").mkdir()
        await anext(arrivals)
        (tmp_path / "inner" / "b.txt").write_text("b")
        await anext(arrivals)
        (tmp_path.parent / "c.txt").write_text("c")
        (tmp_path.parent / "c.txt").rename(tmp_path / "inner" / "c.txt")
        await anext(arrivals)


async def test_a_file_is_told_when_it_is_whole_and_not_when_it_is_begun(tmp_path: Path) -> None:
    """Otherwise a producer would read half of it, and publish that."""
    async with aclosing(folder_watch.appearing(lambda: [tmp_path])) as appearing, asyncio.timeout(FOREVER_S):
        assert await anext(appearing) == set()
        with (tmp_path / "long.txt").open("w") as file:
            file.write("half")
            file.flush()
            (tmp_path / "other.txt").write_text("whole")
            assert await anext(appearing) == {tmp_path / "other.txt"}
        assert await anext(appearing) == {tmp_path / "long.txt"}


async def test_what_the_connector_writes_itself_is_not_told(tmp_path: Path, way: str) -> None:
    """A routine that reads a folder and writes into it would wake itself for ever."""
    files = Files(tmp_path)
    async with listening(files) as arrivals:
        told = asyncio.ensure_future(anext(arrivals))
        await made(files, "write", {"path": "reports/may.txt", "content": "1"}, "k1")
        await made(files, "append", {"path": "log.txt", "content": "1"}, "k2")
        await made(files, "move", {"from": "log.txt", "to": "reports/log.txt"}, "k3")
        for _ in range(10):
            await asyncio.sleep(0.01)  # what would be told is told by now
        assert not told.done()
        files._own_changes.clear()  # as when some seconds have gone by
        (tmp_path / "from a person.txt").write_text("2")
        await told


@pytest.mark.parametrize("by", ["rename", "link"])
async def test_mail_that_is_delivered_is_told(tmp_path: Path, way: str, by: str) -> None:
    mail = LocalMail(tmp_path, create=True)
    async with listening(mail) as arrivals:
        (tmp_path / "tmp" / "1.a").write_text("Subject: a\n\nb")
        getattr(os, by)(tmp_path / "tmp" / "1.a", tmp_path / "new" / "1.a")
        await anext(arrivals)


async def test_sent_mail_is_not_told(tmp_path: Path) -> None:
    mail = LocalMail(tmp_path, create=True)
    async with listening(mail) as arrivals:
        told = asyncio.ensure_future(anext(arrivals))
        await made(mail, "send", {"to": "a@example.com", "subject": "a", "body": "b"}, "k1")
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert not told.done()
        (tmp_path / "new" / "1.a").write_text("Subject: a\n\nb")
        await told


async def test_a_folder_that_is_gone_is_an_error_that_names_it(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "inbox"
    async with listening(Files(folder, create=True)) as arrivals:
        (folder).rename(tmp_path / "elsewhere")
        with pytest.raises(Transient, match="inbox"):
            await anext(arrivals)
    with pytest.raises(Transient, match=r"inbox cannot be watched: No such file"):
        await anext(Files(folder).arrivals())


async def test_more_than_can_be_remembered_is_told_as_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folder_watch, "_NAMES_MAX", 3)
    async with aclosing(folder_watch.appearing(lambda: [tmp_path])) as appearing, asyncio.timeout(FOREVER_S):
        await anext(appearing)
        for number in range(10):
            (tmp_path / f"{number}.txt").write_text("")
        seen = await anext(appearing)
        assert tmp_path in seen
        assert len(seen) <= 4


def test_folders_are_found_without_links_and_at_most_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "a/c", ".keep"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = folder_watch.folders_below(tmp_path, lambda name: name.startswith(".keep"))
    assert found == [tmp_path, tmp_path / "a", tmp_path / "b", tmp_path / "a" / "c"]
    monkeypatch.setattr(folder_watch, "FOLDERS_MAX", 2)
    assert folder_watch.folders_below(tmp_path, lambda name: False) == [tmp_path, tmp_path / ".keep"]
