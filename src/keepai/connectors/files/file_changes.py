"""The steps of `write`, `append` and `move` in a folder, and how to find out afterwards what happened.

New bytes get their name by one `rename` or `link`, which the system makes completely or not at all. A file keeps its
inode through both, so a plan recognises its file by the inode. An append is recognised by its position after a prefix
whose length and hash are in the plan. At the named crash points, tests kill the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...model import crash_points
from ...model.codec import Json
from ...model.errors import OutcomeUnknown, PermissionDenied, PreconditionFailed, Transient
from ..kit.blocking import check_deadline
from ..kit.disk import nothing_happened, os_error_text, write_all
from ..values import Call, Verdict
from . import paths
from .journal import ChangePlan, Journal, draft_name

FILE_MAX = 64 << 20
CHANGED = "{path} is there, but Keep or another program has changed it since. Look at it."


@dataclass
class ChangeProgress:
    """How far a change has come. Once it is planned, no error means that nothing happened."""

    planned: bool = False


@contextmanager
def translated_disk_errors(progress: ChangeProgress) -> Iterator[None]:
    """Use around a whole change: a disk error is a definite failure before the plan, and proves nothing after it."""
    try:
        yield
    except OSError as error:
        if progress.planned:
            raise OutcomeUnknown(f"The folder may have been changed, but then: {os_error_text(error)}.") from error
        with nothing_happened("Nothing was changed"):
            raise


@dataclass(frozen=True)
class FolderChange:
    """One change of one folder, while its journal is locked."""

    root: Path
    journal: Journal
    call: Call
    progress: ChangeProgress = field(default_factory=ChangeProgress)

    # -- changes -----------------------------------------------------------------------------------

    def write(self, path: str, data: bytes, *, absent: bool, hash: str | None) -> Json:
        """Give a new or an existing file these bytes."""
        with self._place(path, make=True) as (folder, name):
            before = paths.contents(folder, name, FILE_MAX)
            _check(path, before, absent=absent, hash=hash)
            draft = self._draft(folder, data, before[0].mode if before else 0o666)
            draft_path = draft_name(self.call.idempotency_key)
            plan = ChangePlan("put", path, draft.inode, len(data), paths.digest(data), draft_path)
            self._begin(plan)
            self._put(folder, name, alone=absent)
        return self._done(plan)

    def append(self, path: str, data: bytes, *, hash: str | None) -> Json:
        """Add bytes to the end of a file. If there is no file, make it."""
        with self._place(path, make=True) as (folder, name):
            before = paths.contents(folder, name, FILE_MAX)
            _check(path, before, absent=False, hash=hash)
            if before is None:
                return self.write(path, data, absent=True, hash=None)
            file, old = before
            if len(old) + len(data) > FILE_MAX:
                raise PreconditionFailed(f"{path} would be larger than {FILE_MAX >> 20} MiB. Start a new file.")
            plan = ChangePlan("append", path, file.inode, len(old) + len(data), paths.digest(old + data),
                        prefix_size=len(old), prefix_hash=paths.digest(old))
            self._begin(plan)
            self._grow(folder, name, plan, data)
        return self._done(plan)

    def move(self, old_path: str, path: str, *, hash: str | None) -> Json:
        """Give a file another name, which must be free."""
        with self._place(old_path) as (source, old_name), self._place(path, make=True) as (folder, name):
            before = paths.contents(source, old_name, FILE_MAX)
            if before is None:
                raise PreconditionFailed(f"There is no file {old_path}.")
            _check(old_path, before, absent=False, hash=hash)
            _check(path, paths.contents(folder, name, FILE_MAX), absent=True, hash=None)
            if os.fstat(source).st_dev != os.fstat(folder).st_dev:
                raise PreconditionFailed(f"{old_path} and {path} are on different disks.")
            file, data = before
            plan = ChangePlan("move", path, file.inode, len(data), paths.digest(data), old_path)
            self._begin(plan)
            self._link(old_name, name, source, folder)
            crash_points.reach("files.visible")
            os.fsync(folder)
            os.unlink(old_name, dir_fd=source)
            os.fsync(source)
            crash_points.reach("files.synced")
        return self._done(plan)

    # -- looking afterwards ------------------------------------------------------------------------

    def verdict(self, addition: bytes) -> Verdict:
        """What a change did. A half-done change is completed or undone."""
        key = self.call.idempotency_key
        receipt = self.journal.receipt(key)
        if receipt is not None:
            return Verdict.applied(receipt)
        plan = self.journal.plan(key)
        verdict = self._judged(plan, addition) if plan else Verdict.failed()
        if plan and verdict.status in ("applied", "failed"):
            self._settle(plan, verdict)
        return verdict

    def _settle(self, plan: ChangePlan, verdict: Verdict) -> None:
        """Put the verdict on disk, and only then delete what it was made from."""
        with self._place(plan.path) as (folder, _):
            if verdict.status == "applied":
                os.fsync(folder)
                self.journal.end(self.call.idempotency_key, _result(plan))
            else:
                self.journal.drop(self.call.idempotency_key)
            if plan.operation == "put":
                self._discard(folder, plan.old_path)

    def _judged(self, plan: ChangePlan, addition: bytes) -> Verdict:
        judge = {"put": self._judge_put, "append": self._judge_append, "move": self._judge_move}[plan.operation]
        try:
            return judge(plan, addition)
        except (FileNotFoundError, PreconditionFailed) as error:
            return Verdict.unknown(f"{CHANGED.format(path=plan.path)} ({error})")

    def _judge_put(self, plan: ChangePlan, addition: bytes) -> Verdict:
        with self._place(plan.path) as (folder, name):
            draft = paths.seen(folder, plan.old_path)
            there = paths.contents(folder, name, FILE_MAX, names_max=2)
            if there and there[0].inode == plan.inode and paths.digest(there[1]) == plan.hash:
                return Verdict.applied(_result(plan))
            if draft and draft.inode == plan.inode and draft.names == 1:  # it never got its final name
                return Verdict.failed()
            if there and paths.digest(there[1]) == plan.hash:
                return Verdict.applied(_result(plan))
        return Verdict.unknown(CHANGED.format(path=plan.path))

    def _judge_append(self, plan: ChangePlan, addition: bytes) -> Verdict:
        with self._place(plan.path) as (folder, name):
            there = paths.contents(folder, name, FILE_MAX + (1 << 20))
            if there is None or paths.digest(there[1][: plan.prefix_size]) != plan.prefix_hash:
                return Verdict.unknown(CHANGED.format(path=plan.path))
            tail = there[1][plan.prefix_size :]
            if tail.startswith(addition):
                return Verdict.applied(_result(plan))
            if not addition.startswith(tail):
                return Verdict.unknown(CHANGED.format(path=plan.path))
            if tail:  # the write was cut off, and nobody has written since
                _cut(folder, name, plan.prefix_size)
            return Verdict.failed()

    def _judge_move(self, plan: ChangePlan, addition: bytes) -> Verdict:
        with self._place(plan.old_path) as (source, old_name):
            old = paths.seen(source, old_name)
            with self._place(plan.path, make=True) as (folder, name):
                there = paths.contents(folder, name, FILE_MAX, names_max=2)
            if there and there[0].inode == plan.inode and paths.digest(there[1]) == plan.hash:
                if old and old.inode == plan.inode:
                    self._discard(source, old_name)
                return Verdict.applied(_result(plan))
            if old and old.inode == plan.inode and not (there and there[0].inode == plan.inode):
                return Verdict.failed()
        return Verdict.unknown(CHANGED.format(path=plan.path))

    # -- steps -------------------------------------------------------------------------------------

    @contextmanager
    def _place(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder of a path, and the name in it."""
        *above, name = paths.parts_of(path)
        with paths.opened(self.root, tuple(above), make=make) as folder:
            yield folder, name

    def _draft(self, folder: int, data: bytes, mode: int) -> paths.File:
        """Write the bytes to disk under a hidden name."""
        name = draft_name(self.call.idempotency_key)
        self._discard(folder, name)  # left by a process that died before it had a plan
        crash_points.reach("files.before_write")
        descriptor = paths.create(folder, name, mode)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            self._discard(folder, name)
            raise
        finally:
            os.close(descriptor)
        crash_points.reach("files.drafted")
        made = paths.seen(folder, name)
        assert made is not None
        return made

    def _begin(self, plan: ChangePlan) -> None:
        check_deadline(self.call)
        self.journal.begin(self.call.idempotency_key, plan)
        self.progress.planned = True
        crash_points.reach("files.planned")

    def _put(self, folder: int, name: str, *, alone: bool) -> None:
        """Give the draft its name; `alone`: only if the name is free."""
        draft = draft_name(self.call.idempotency_key)
        if alone:
            self._link(draft, name, folder, folder)
        else:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        crash_points.reach("files.visible")
        self._discard(folder, draft)
        os.fsync(folder)
        crash_points.reach("files.synced")

    def _link(self, old: str, new: str, source: int, folder: int) -> None:
        try:
            os.link(old, new, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        except (FileExistsError, PermissionError) as error:
            self.journal.drop(self.call.idempotency_key)
            if old == draft_name(self.call.idempotency_key):
                self._discard(source, old)
            kind = PreconditionFailed if isinstance(error, FileExistsError) else PermissionDenied
            raise kind(f"{new} could not get its name, and nothing was changed: {error.strerror}.") from None

    def _grow(self, folder: int, name: str, plan: ChangePlan, data: bytes) -> None:
        descriptor = paths.append_to(folder, name)
        try:
            now = os.fstat(descriptor)
            if (now.st_ino, now.st_size) != (plan.inode, plan.prefix_size):
                self.journal.drop(self.call.idempotency_key)
                raise Transient(f"Another program changed {plan.path} at the same moment; nothing was written.")
            write_all(descriptor, data)
            crash_points.reach("files.visible")
            os.fsync(descriptor)
            crash_points.reach("files.synced")
        finally:
            os.close(descriptor)

    def _done(self, plan: ChangePlan) -> Json:
        """Everything is on disk. Even without its receipt, the plan is enough to recognise the change."""
        self.journal.end(self.call.idempotency_key, _result(plan))
        crash_points.reach("files.receipted")
        return _result(plan)

    def _discard(self, folder: int, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def earlier_result(work: FolderChange, addition: bytes) -> Json:
    """The result of the same change if it was made before; None if it was not made and may be made now."""
    verdict = work.verdict(addition)
    if verdict.status == "unknown":
        raise OutcomeUnknown(verdict.why)
    result: Json = verdict.result  # type: ignore[assignment]
    return result


def _check(path: str, before: tuple[paths.File, bytes] | None, *, absent: bool, hash: str | None) -> None:
    """Check that a file is as the script expects it."""
    if absent and before is not None:
        raise PreconditionFailed(f"{path} already exists.")
    if hash is not None and (before is None or paths.digest(before[1]) != hash):
        raise PreconditionFailed(f"{path} is {'not as expected' if before else 'not there'}: ifHash is {hash[:80]}.")


def _result(plan: ChangePlan) -> Json:
    return {"path": plan.path, "size": plan.size, "hash": plan.hash}


def _cut(folder: int, name: str, size: int) -> None:
    descriptor = paths.append_to(folder, name)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
