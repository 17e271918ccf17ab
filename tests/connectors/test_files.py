"""The connector `files` beyond the common contract: no way out of the folder, conditions, torn writes, bad disks."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepai.connectors import make
from keepai.connectors.base import OperationSpec
from keepai.connectors.files import file_changes, journal
from keepai.connectors.files.paths import digest
from keepai.model import crash_points
from keepai.model.errors import OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, RuleBroken, Transient
from keepai.testing import CrashAt, Crashed
from tests.connectors.cases import Case, call, held_up, run_child, strangers
from tests.connectors.file_cases import CASES

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.operation} {case.params}")


@pytest.fixture
def place(case: Case, tmp_path: Path) -> Path:
    case.setup(tmp_path / "place")
    return tmp_path / "place"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old.txt").write_text("before\n")
    (tmp_path / "secret.txt").write_text("secret")
    return root


def spec(folder: Path, operation: str) -> OperationSpec:
    return make("files", "drive", {"path": str(folder)}).operations[operation]


async def do(root: Path, operation: str, key: str = "key-1", **params: Any) -> Any:
    wanted = spec(root, operation)
    return await wanted.invoke(wanted.parse(params), call(key))


async def ask(root: Path, operation: str, key: str = "key-1", **params: Any) -> Any:
    wanted = spec(root, operation)
    return await wanted.reconcile(wanted.parse(params), call(key))


def texts(folder: Path) -> dict[str, str]:
    """What people see in a folder."""
    return {path.name: path.read_text() for path in folder.rglob("*.txt")}


# Killed


def test_a_new_process_that_dies_is_the_same_as_a_fork(tmp_path: Path) -> None:
    CASES[0].setup(tmp_path / "place")
    assert run_child(CASES[0], tmp_path / "place", crash_at="files.visible").returncode == -9
    assert asyncio.run(CASES[0].spec(tmp_path / "place").reconcile(CASES[0].params, call())).status == "applied"


@each_case
async def test_a_look_up_while_the_call_is_under_way_means_ask_again(case: Case, place: Path) -> None:
    async with held_up(case, place) as task:
        assert (await case.spec(place).reconcile(case.params, call())).status == "retry"
    await task
    assert case.effects(place) == 1


# A disk that fails


@each_case
async def test_an_error_after_the_plan_is_never_called_a_failure(
    case: Case, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, planned = os.fsync, False

    def at(name: str) -> None:
        nonlocal planned
        planned = planned or name == "files.planned"

    def broken(descriptor: int) -> None:
        if planned:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", broken)
    crash_points.listen(at)
    try:
        with pytest.raises(OutcomeUnknown):
            await case.spec(place).invoke(case.params, call())
    finally:
        crash_points.listen(None)
    monkeypatch.undo()
    happened = case.effects(place)
    assert (await case.spec(place).reconcile(case.params, call())).status == ("applied" if happened else "failed")


@each_case
async def test_a_full_disk_never_leaves_half_an_effect(
    case: Case, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    before = texts(place)
    monkeypatch.setattr(file_changes, "write_all", full)
    if case.operation == "move":
        monkeypatch.setattr(journal, "write_all", full)
    with pytest.raises((OutcomeUnknown, Transient)):
        await case.spec(place).invoke(case.params, call())
    monkeypatch.undo()
    assert (await case.spec(place).reconcile(case.params, call())).status == "failed"
    assert texts(place) == before  # the half was taken back
    assert strangers(place) == []


@each_case
async def test_a_refused_permission_is_told_as_such(case: Case, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object, flags: int, *_mode: object, **_more: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionDenied):
        await case.spec(place).invoke(case.params, call())


# Somebody else


async def test_after_a_crash_a_file_that_somebody_changed_is_a_question_to_a_person(folder: Path) -> None:
    for operation, params, path in (
        ("write", {"path": "new.txt", "content": "ours"}, "new.txt"),
        ("append", {"path": "old.txt", "content": "ours"}, "old.txt"),
        ("move", {"from": "third.txt", "to": "moved.txt"}, "moved.txt"),
    ):
        (folder / "third.txt").write_text("third")
        with CrashAt("files.visible"), pytest.raises(Crashed):
            await do(folder, operation, operation, **params)
        (folder / path).write_text("somebody else's")
        verdict = await ask(folder, operation, operation, **params)
        assert (verdict.status, path in verdict.why) == ("unknown", True)
        with pytest.raises(OutcomeUnknown):
            await do(folder, operation, operation, **params)
        assert (folder / path).read_text() == "somebody else's"


async def test_an_append_is_found_again_although_others_appended_after_it(folder: Path) -> None:
    with CrashAt("files.visible"), pytest.raises(Crashed):
        await do(folder, "append", path="old.txt", content="ours\n")
    with (folder / "old.txt").open("a") as file:
        file.write("theirs\n")
    verdict = await ask(folder, "append", path="old.txt", content="ours\n")
    assert verdict.status == "applied"
    assert (await do(folder, "append", path="old.txt", content="ours\n")) == verdict.result
    assert (folder / "old.txt").read_text() == "before\nours\ntheirs\n"


async def test_an_append_that_was_torn_is_taken_back_and_made_whole_by_the_next(folder: Path) -> None:
    with CrashAt("files.planned"), pytest.raises(Crashed):
        await do(folder, "append", path="old.txt", content="ours\n")
    with (folder / "old.txt").open("a") as file:
        file.write("ou")
    assert (await ask(folder, "append", path="old.txt", content="ours\n")).status == "failed"
    assert (folder / "old.txt").read_text() == "before\n"
    await do(folder, "append", path="old.txt", content="ours\n")
    assert (folder / "old.txt").read_text() == "before\nours\n"


async def test_equal_content_written_twice_under_two_keys_is_two_writes(folder: Path) -> None:
    with CrashAt("files.planned"), pytest.raises(Crashed):
        await do(folder, "write", "key-2", path="old.txt", content="before\n")
    assert (await ask(folder, "write", "key-2", path="old.txt", content="before\n")).status == "failed"


async def test_a_receipt_outlives_every_later_change(folder: Path) -> None:
    first = await do(folder, "write", path="a.txt", content="one")
    await do(folder, "write", "key-2", path="a.txt", content="two")
    assert await do(folder, "write", path="a.txt", content="one") == first
    assert (folder / "a.txt").read_text() == "two"


# Conditions


async def test_conditions_hold(folder: Path) -> None:
    before = digest(b"before\n")
    refused: list[tuple[str, dict[str, Any]]] = [
        ("write", {"path": "old.txt", "content": "x", "ifAbsent": True}),
        ("write", {"path": "old.txt", "content": "x", "ifHash": digest(b"else")}),
        ("write", {"path": "none.txt", "content": "x", "ifHash": before}),
        ("append", {"path": "old.txt", "content": "x", "ifHash": digest(b"else")}),
        ("move", {"from": "old.txt", "to": "b.txt", "ifHash": digest(b"else")}),
        ("move", {"from": "none.txt", "to": "b.txt"}),
    ]
    for operation, params in refused:
        with pytest.raises(PreconditionFailed):
            await do(folder, operation, **params)
    assert texts(folder) == {"old.txt": "before\n"}
    await do(folder, "append", path="old.txt", content="more", ifHash=before)
    await do(folder, "write", "key-2", path="old.txt", content="new", ifHash=digest(b"before\nmore"))
    await do(folder, "move", "key-3", **{"from": "old.txt", "to": "b.txt", "ifHash": digest(b"new")})
    assert (folder / "b.txt").read_text() == "new"


@pytest.mark.parametrize("operation", ["write", "move", "append"])
async def test_a_name_that_is_taken_in_the_last_moment_is_not_overwritten(folder: Path, operation: str) -> None:
    params: dict[str, dict[str, Any]] = {
        "write": {"path": "b.txt", "content": "ours", "ifAbsent": True},
        "append": {"path": "b.txt", "content": "ours"},
        "move": {"from": "old.txt", "to": "b.txt"},
    }
    crash_points.listen(lambda name: (folder / "b.txt").write_text("theirs") if name == "files.planned" else None)
    try:
        with pytest.raises(PreconditionFailed):
            await do(folder, operation, **params[operation])
    finally:
        crash_points.listen(None)
    assert (folder / "b.txt").read_text() == "theirs"
    assert (folder / "old.txt").read_text() == "before\n"
    assert strangers(folder) == []
    assert (await ask(folder, operation, **params[operation])).status == "failed"


async def test_an_overwritten_file_keeps_its_mode(folder: Path) -> None:
    (folder / "old.txt").chmod(0o640)
    await do(folder, "write", path="old.txt", content="new")
    assert (folder / "old.txt").stat().st_mode & 0o777 == 0o640


# No way out


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../secret.txt",
        "/etc/passwd",
        "a//b",
        "a/./b",
        "a/../../secret.txt",
        "a\0b",
        "x" * 300,
        "/".join("a" * 40),
        ".keep/x",
        ".keep",
        ".KEEP/x",
        "a/.keep-x",
        "a/",
    ],
)
async def test_a_path_that_could_lead_out_is_refused(folder: Path, path: str) -> None:
    for operation, params in (
        ("read", {"path": path}),
        ("write", {"path": path, "content": "x"}),
        ("append", {"path": path, "content": "x"}),
        ("move", {"from": path, "to": "b.txt"}),
        ("move", {"from": "old.txt", "to": path}),
    ):
        with pytest.raises((Rejected, RuleBroken)):
            await do(folder, operation, **params)
    assert (folder.parent / "secret.txt").read_text() == "secret"


def _link(folder: Path) -> None:
    (folder / "way").symlink_to(folder.parent / "secret.txt")


def _hard_link(folder: Path) -> None:
    os.link(folder.parent / "secret.txt", folder / "way")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "way")


def _socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "way"))


def _folder(folder: Path) -> None:
    (folder / "way").mkdir()


@pytest.mark.parametrize("make_it", [_link, _hard_link, _pipe, _socket, _folder])
async def test_only_plain_files_with_one_name_are_touched(folder: Path, make_it: Callable[[Path], None]) -> None:
    make_it(folder)
    for operation, params in (
        ("read", {"path": "way"}),
        ("write", {"path": "way", "content": "x"}),
        ("append", {"path": "way", "content": "x"}),
        ("move", {"from": "way", "to": "b.txt"}),
        ("move", {"from": "old.txt", "to": "way"}),
    ):
        with pytest.raises(PreconditionFailed):
            await asyncio.wait_for(do(folder, operation, **params), 5)
    assert (folder.parent / "secret.txt").read_text() == "secret"
    assert (folder / "old.txt").read_text() == "before\n"


async def test_a_link_to_a_folder_is_not_followed(folder: Path) -> None:
    (folder / "up").symlink_to(folder.parent)
    for operation, params in (
        ("read", {"path": "up/secret.txt"}),
        ("list", {"folder": "up"}),
        ("write", {"path": "up/x", "content": "x"}),
        ("append", {"path": "up/secret.txt", "content": "x"}),
        ("move", {"from": "up/secret.txt", "to": "b.txt"}),
    ):
        with pytest.raises(PreconditionFailed):
            await do(folder, operation, **params)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["root", "secret.txt"]


async def test_a_journal_that_is_a_link_is_not_followed(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / ".keep").symlink_to(folder.parent / "elsewhere")
    with pytest.raises(PreconditionFailed):
        await do(folder, "write", path="a.txt", content="x")
    assert list((folder.parent / "elsewhere").iterdir()) == []


# Reading


async def test_a_folder_is_listed_in_pages_without_links_and_keeps_own(folder: Path) -> None:
    await do(folder, "write", path="sub/a.txt", content="x")
    _link(folder)
    os.mkfifo(folder / "pipe")
    page = await do(folder, "list", limit=1)
    assert [(each["path"], each["type"], each["size"]) for each in page] == [("old.txt", "file", 7)]
    assert page.fields["more"] is True
    rest = await do(folder, "list", after=page.fields["lastCursor"])
    assert [(each["path"], each["type"]) for each in rest] == [("sub", "folder")]
    assert rest.fields["more"] is False
    inner = await do(folder, "list", folder="sub")
    assert [each["path"] for each in inner] == ["sub/a.txt"]


async def test_a_name_that_is_no_text_is_counted_and_not_lost_in_silence(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff.txt")).write_text("x")
    page = await do(folder, "list")
    assert [each["path"] for each in page] == ["old.txt"]
    assert page.fields["unreadable"] == 1


async def test_bytes_come_and_go_as_text_or_base64(folder: Path) -> None:
    data = bytes(range(256))
    done = await do(folder, "write", path="raw", content=base64.b64encode(data).decode(), encoding="base64")
    assert done == {"path": "raw", "size": 256, "hash": digest(data)}
    assert (folder / "raw").read_bytes() == data
    found = await do(folder, "read", path="raw", encoding="base64")
    assert base64.b64decode(found["content"]) == data
    with pytest.raises(PreconditionFailed, match="not UTF-8"):
        await do(folder, "read", path="raw")
    with pytest.raises(Rejected, match="base64"):
        await do(folder, "write", path="raw", content="no!", encoding="base64")
    await do(folder, "append", "key-2", path="ü/ß.txt", content="Grüße\r\n")
    assert (await do(folder, "read", path="ü/ß.txt"))["content"] == "Grüße\r\n"


async def test_what_is_not_there_is_null_and_what_is_too_large_is_refused(folder: Path) -> None:
    assert await do(folder, "read", path="none.txt") is None
    assert await do(folder, "read", path="no/such/folder.txt") is None
    (folder / "big").write_bytes(b"x" * ((2 << 20) + 1))
    with pytest.raises(PreconditionFailed, match="larger than"):
        await do(folder, "read", path="big")
    shutil.rmtree(folder)
    with pytest.raises(PreconditionFailed):
        await do(folder, "read", path="none.txt")


# Words


def test_people_see_what_will_be_written(folder: Path) -> None:
    assert (
        spec(folder, "write").preview({"path": "a.txt", "content": "hi\n", "ifAbsent": True})
        == "Write 3 bytes to a.txt, only if it is not there:\nhi\n"
    )
    assert (
        spec(folder, "append").preview({"path": "a.txt", "content": "aGk=", "encoding": "base64"})
        == "Append 2 bytes (base64) to a.txt:\naGk="
    )
    assert spec(folder, "move").preview({"from": "a", "to": "b"}) == 'Move a file: from="a", to="b"'


def test_the_same_bytes_are_the_same_payload(folder: Path) -> None:
    write = spec(folder, "write")
    assert write.compare({"content": "hi"}, {"content": "aGk=", "encoding": "base64"}) == "equivalent"
    assert write.compare({"content": "hi"}, {"content": "ho"}) == "significant"


async def test_each_key_appends_once(folder: Path) -> None:
    for key in ("a", "b", "a"):
        await do(folder, "append", key, path="old.txt", content="x")
    assert (folder / "old.txt").read_text() == "before\nxx"
