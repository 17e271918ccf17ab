"""The connector `files`: a folder that scripts list, read and change, and that other programs may use too.

Every change runs in a thread, holds the lock of the folder's journal and writes its idempotency key into that journal;
`file_changes` has the steps. Conditions (`ifHash`, `ifAbsent`) hold against other Keep processes. A program that writes
the same file at the same moment does not respect the lock.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import os
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from ...model.clock import iso
from ...model.codec import Json
from ...model.errors import ConnectorError, PreconditionFailed, Rejected
from ...model.visible_text import described
from ..base import Call, Comparison, Page, Verdict, mutation, read
from ..kit.blocking import check_deadline, in_thread
from ..kit.disk import nothing_happened
from ..kit.folder import FolderConnector
from ..kit.folder_watch import appearing, folders_below
from ..kit.pages import checked_limit
from ..kit.params import FilePath
from . import paths
from .file_changes import ChangeProgress, FolderChange, earlier_result, translated_disk_errors
from .journal import Busy, journal

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 5_000
READ_MAX = 2 << 20
#: For how long after a change of its own nobody is told that the same file changed.
OWN_CHANGE_S = 5.0
#: For how long the journal knows a key. Keep never deletes from it.
FOR_EVER_S = 10 * 365 * 86_400.0
Encoding = Literal["text", "base64"]


class ListFiles(TypedDict):
    """Which folder; without one, the top level."""

    folder: NotRequired[str | None]
    limit: NotRequired[int | None]
    after: NotRequired[str | None]  # a `lastCursor`


class FileEntry(TypedDict):
    """A file or a folder."""

    path: str
    type: Literal["file", "folder"]
    size: int
    modified: str


class ReadFile(TypedDict):
    """Which file, and the encoding in which its bytes are wanted."""

    path: FilePath
    encoding: NotRequired[Encoding | None]


class FileContent(TypedDict):
    """A file with its whole content."""

    path: str
    content: str
    encoding: Encoding
    size: int
    hash: str


class WriteFile(TypedDict):
    """The content that a file must have; `ifAbsent` and `ifHash` say what must be true before."""

    path: FilePath
    content: str
    encoding: NotRequired[Encoding | None]
    ifAbsent: NotRequired[bool | None]
    ifHash: NotRequired[str | None]


class AppendFile(TypedDict):
    """What to add to the end of a file."""

    path: FilePath
    content: str
    encoding: NotRequired[Encoding | None]
    ifHash: NotRequired[str | None]


MoveFile = TypedDict("MoveFile", {"from": FilePath, "to": FilePath, "ifHash": NotRequired[str | None]})


class ChangedFile(TypedDict):
    """The file as it is after the change."""

    path: str
    size: int
    hash: str


class Files(FolderConnector):
    """A folder that other programs may use too: `type = "files"`.

    path: the folder; nothing outside it is touched
    create: make the folder if it does not exist
    """

    name = "files"
    input_types = ("file",)

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False, name: str | None = None) -> None:
        super().__init__(path, create=create, name=name)
        self._own_changes: dict[Path, float] = {}  # what it changes itself, until when nobody is told of it

    def _alone(self) -> AbstractContextManager[object]:
        return journal(self.path)

    async def arrivals(self) -> AsyncGenerator[None]:
        """Yield when something appears that it did not write: a routine that writes must not wake itself."""
        async with aclosing(appearing(lambda: folders_below(self.path, paths.is_own))) as batches:
            async for appeared in batches:
                now = asyncio.get_running_loop().time()
                others = (each for each in appeared if not paths.is_own(each.name))
                if not appeared or any(self._own_changes.get(each, 0.0) < now for each in others):
                    yield

    @read
    async def list(self, params: ListFiles, call: Call) -> Page[FileEntry]:
        """Files and folders by name, without links and devices; `more` says whether some follow.

        `unreadable` counts names that are not text.
        """
        return await in_thread(lambda: self._list(params))

    @read(by_id=True)
    async def read(self, params: ReadFile, call: Call) -> FileContent | None:
        """One file, or null if it does not exist."""
        return await in_thread(lambda: self._read(params))

    @mutation(identity=("path",), target="path", settle=0, key_window=FOR_EVER_S)
    async def write(self, params: WriteFile, call: Call) -> ChangedFile:
        """Give a file its content, completely or not at all. Missing folders are made."""
        data, absent, hash = _bytes(params), bool(params.get("ifAbsent")), params.get("ifHash")
        return await self._once(
            params["path"], call, b"", lambda work: work.write(params["path"], data, absent=absent, hash=hash))

    @write.preview
    def say_write(self, params: WriteFile) -> str:
        """The whole content."""
        conditions = ", only if it is not there" if params.get("ifAbsent") else ""
        conditions += f", only if it is {params['ifHash']}" if params.get("ifHash") else ""
        return f"Write {_sized(params)} to {params['path']}{conditions}:\n{params['content']}"

    @mutation(identity=("path",), target="path", settle=0, key_window=FOR_EVER_S)
    async def append(self, params: AppendFile, call: Call) -> ChangedFile:
        """Add to the end of a file. If it does not exist, it is made."""
        data, hash = _bytes(params), params.get("ifHash")
        if not data:
            raise Rejected("content is empty: there is nothing to append.")
        return await self._once(
            params["path"], call, data, lambda work: work.append(params["path"], data, hash=hash))

    @append.reconcile
    async def find_appended(self, params: AppendFile, call: Call) -> Verdict:
        """Ask the journal and the folder."""
        return await self._look_up(call, _bytes(params))

    @append.preview
    def say_append(self, params: AppendFile) -> str:
        """The whole addition."""
        condition = f", only if it is {params['ifHash']}" if params.get("ifHash") else ""
        return f"Append {_sized(params)} to {params['path']}{condition}:\n{params['content']}"

    @write.compare_payload
    @append.compare_payload
    def compare_content(self, old: Json, new: Json) -> Comparison:
        """Whether both write the same bytes."""
        try:
            return "equivalent" if _bytes(old) == _bytes(new) else "significant"
        except (Rejected, TypeError, KeyError):
            return "significant"

    @mutation(identity=("from", "to"), target="to", settle=0, key_window=FOR_EVER_S)
    async def move(self, params: MoveFile, call: Call) -> ChangedFile:
        """Give a file another name, which must be free."""
        paths.parts_of(params["from"])
        return await self._once(
            params["to"], call, b"",
            lambda work: work.move(params["from"], params["to"], hash=params.get("ifHash")))

    @write.reconcile
    @move.reconcile
    async def find_change(self, params: WriteFile | MoveFile, call: Call) -> Verdict:
        """Ask the journal and the folder."""
        return await self._look_up(call, b"")

    @move.preview
    def say_move(self, params: MoveFile) -> str:
        """From where to where."""
        return described("Move a file", cast("dict[str, Json]", dict(params)))

    # -- parts -------------------------------------------------------------------------------------

    async def _once(
        self, path: str, call: Call, addition: bytes, change: Callable[[FolderChange], Json],
    ) -> ChangedFile:
        """Make a change, unless the journal says that it was made."""
        parts, loop = paths.parts_of(path), asyncio.get_running_loop()
        places = [self.path.joinpath(*parts[:number]) for number in range(len(parts) + 1)]

        def make() -> Json:
            progress = ChangeProgress()
            with translated_disk_errors(progress), journal(self.path) as locked:
                work = FolderChange(self.path, locked, call, progress)
                earlier = earlier_result(work, addition)
                if earlier is not None:
                    return earlier
                check_deadline(call)
                return change(work)
        self._own_changes = {each: until for each, until in self._own_changes.items() if until > loop.time()}
        self._own_changes |= dict.fromkeys(places, math.inf)
        try:
            return cast(ChangedFile, await in_thread(make))
        finally:
            self._own_changes |= dict.fromkeys(places, loop.time() + OWN_CHANGE_S)

    async def _look_up(self, call: Call, addition: bytes) -> Verdict:
        def look() -> Verdict:
            try:
                os.scandir(self.path).close()  # a missing folder proves nothing
                with journal(self.path, wait=False) as locked:
                    return FolderChange(self.path, locked, call).verdict(addition)
            except (OSError, ConnectorError, Busy):
                return Verdict.retry(after=1)
        return await in_thread(look)

    def _list(self, params: ListFiles) -> Page[FileEntry]:
        limit = checked_limit(params.get("limit") or None, LIMIT_DEFAULT, LIMIT_MAX)
        after, inside = params.get("after") or "", params.get("folder")
        parts = paths.parts_of(inside) if inside else ()
        with nothing_happened("The folder cannot be read"), paths.opened(self.path, parts) as folder:
            names = os.listdir(folder)
            usable = sorted(name for name in names if _is_text(name) and not paths.is_own(name) and name > after)
            entries: list[FileEntry] = []
            last = after
            for name in usable:
                if len(entries) == limit:
                    break
                last = name
                entries += _entry(folder, "/".join([*parts, name]), name)
        return Page(
            entries, lastCursor=last, more=bool(usable) and last != usable[-1],
            unreadable=sum(not _is_text(name) for name in names))

    def _read(self, params: ReadFile) -> FileContent | None:
        path, encoding = params["path"], params.get("encoding") or "text"
        *above, name = paths.parts_of(path)
        with nothing_happened("The file cannot be read"):
            try:
                with paths.opened(self.path, tuple(above)) as folder:
                    file = paths.contents(folder, name, READ_MAX)
            except FileNotFoundError:
                os.scandir(self.path).close()  # a missing folder is an error, not a missing file
                return None
        if file is None:
            return None
        data = file[1]
        return {"path": path, "content": _content(path, data, encoding), "encoding": encoding,
                "size": len(data), "hash": paths.digest(data)}


def _entry(folder: int, path: str, name: str) -> list[FileEntry]:
    """The entry of a name; nothing if it is gone by now, or is neither a file nor a folder."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return []
    kinds: dict[bool, Literal["file", "folder"]] = {True: "file", False: "folder"}
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        return []
    plain = stat.S_ISREG(status.st_mode)
    moment = iso(status.st_mtime_ns // 1_000_000)
    return [{"path": path, "type": kinds[plain], "size": status.st_size if plain else 0, "modified": moment}]


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _content(path: str, data: bytes, encoding: Encoding) -> str:
    if encoding == "base64":
        return base64.b64encode(data).decode()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise PreconditionFailed(f'{path} is not UTF-8 text. Read it with encoding: "base64".') from None


def _bytes(params: Any) -> bytes:
    """The bytes of a content."""
    content: str = params["content"]
    if (params.get("encoding") or "text") == "text":
        return content.encode("utf-8")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise Rejected("content is not base64, although its encoding says so.") from None


def _sized(params: Any) -> str:
    how = " (base64)" if params.get("encoding") == "base64" else ""
    return f"{len(_bytes(params)):,} bytes{how}"
