"""Labels and moves existing messages. Doing it twice has the same result as doing it once.

Both operations describe the wanted state, and look before they act. If a server answers NO, it has done nothing. If the
connection is lost after a command, the outcome is unknown, and one look resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict

from ...model import crash_points
from ...model.errors import ConnectorError, OutcomeUnknown, PreconditionFailed, Rejected
from ..kit.mailbox import LabelledMail
from ..values import Verdict
from .imap import FetchedMail, ImapMailbox
from .messages import HEAD_BYTES, locate
from .server_errors import ConnectionLost

#: An IMAP server that still reads a command from a closed connection does so at once, or not at all.
SETTLE_S = 10.0
LABELS_MAX = 20
_SYSTEM = {"seen": "\\Seen", "flagged": "\\Flagged", "answered": "\\Answered"}
_KEYWORD = re.compile(r"[A-Za-z0-9$_.-]{1,60}")


class MovedMail(TypedDict):
    """Where the message is now."""

    id: str
    folder: str


def flags(labels: Sequence[str] | None) -> list[str]:
    """Labels as the server knows them: `seen`, `flagged`, `answered`, or a custom keyword."""
    for label in labels or []:
        if label not in _SYSTEM and (not _KEYWORD.fullmatch(label) or label.lower() in ("deleted", "draft", "recent")):
            raise Rejected(f"{label[:60]!r} cannot be a label: letters, digits and $ _ . - are allowed.")
    if len(labels or []) > LABELS_MAX:
        raise Rejected(f"At most {LABELS_MAX} labels are allowed.")
    return [_SYSTEM.get(label, label) for label in labels or []]


def label(box: ImapMailbox, folder: str, id: str, add: list[str], remove: list[str]) -> LabelledMail:
    """Add labels to one message and remove others."""
    kept = box.open(folder, readonly=False).flags
    if "\\*" not in kept and not set(add) <= kept:
        raise PreconditionFailed(f"The server allows no custom labels in {folder!r}.")
    uid = _one(box, folder, id).uid
    with _doubt("The labels may have been set") as done:
        crash_points.reach("mail.before_label")
        for labels, on in ((add, True), (remove, False)):
            if labels:
                box.mark(uid, labels, on=on)
                done.append(labels)
        crash_points.reach("mail.labelled")
        return _labelled(box.fetch_heads([uid], HEAD_BYTES), id)


def labelled(box: ImapMailbox, folder: str, id: str, add: list[str], remove: list[str]) -> Verdict:
    """Whether the labels are as wanted."""
    box.open(folder)
    matching = box.fetch_heads(locate(box, id)[:1], HEAD_BYTES)
    if not matching:
        return Verdict.unknown(f"The message is no longer in {folder!r}, so its labels cannot be seen.")
    has = {flag.lower() for flag in matching[0].flags}
    right = {label.lower() for label in add} <= has and not {label.lower() for label in remove} & has
    return Verdict.applied(_labelled(matching, id)) if right else Verdict.failed()


def move(box: ImapMailbox, source: str, target: str, id: str) -> MovedMail:
    """Move one message from `source` to `target`."""
    box.open(target)
    there = locate(box, id)
    box.open(source, readonly=False)
    here = locate(box, id)
    if not here and not there:
        raise PreconditionFailed(f"The message is neither in {source!r} nor in {target!r}.")
    with _doubt("The message may have been moved") as done:
        crash_points.reach("mail.before_move")
        for number, uid in enumerate(here):
            if there or number:
                box.remove(uid)
            else:
                box.move(uid, target)
            done.append(uid)
        crash_points.reach("mail.moved")
    return {"id": id, "folder": target}


def moved(box: ImapMailbox, source: str, target: str, id: str) -> Verdict:
    """Whether the message is where it should be."""
    box.open(source)
    if locate(box, id):
        return Verdict.failed()
    box.open(target)
    if locate(box, id):
        return Verdict.applied({"id": id, "folder": target})
    return Verdict.unknown(f"The message is neither in {source!r} nor in {target!r}.")


@contextmanager
def _doubt(message: str) -> Iterator[list[object]]:
    """Use around commands that change something: a lost answer, or a refusal after the first one, proves nothing."""
    done: list[object] = []
    try:
        yield done
    except ConnectionLost as error:
        raise OutcomeUnknown(f"{message}, but then the connection was lost: {error}.") from None
    except ConnectorError as error:
        if not done:
            raise
        raise OutcomeUnknown(f"{message}, but then: {error}") from None


def _one(box: ImapMailbox, folder: str, id: str) -> FetchedMail:
    matching = box.fetch_heads(locate(box, id), HEAD_BYTES)
    if len(matching) != 1 and not (matching and id[:1] != "<"):
        many = f"{len(matching)} messages with that Message-ID are" if matching else "The message is not"
        raise PreconditionFailed(f"{many} in {folder!r}.")
    return matching[0]


def _labelled(mails: Sequence[FetchedMail], id: str) -> LabelledMail:
    names = {flag: name for name, flag in _SYSTEM.items()}
    return {"id": id, "labels": sorted(names.get(f, f) for raw in mails[:1] for f in raw.flags if f != "\\Recent")}
