"""An act of a person, judged by what the person was shown, in the very transaction of the act.

An act that names the version it was shown is refused if anything that it is about has moved since, even if it has
moved back. The same act, sent once more by the same person for the same version, is done once and gives what it gave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from ...model.clock import iso
from ...model.codec import stored
from ...model.errors import Refused
from .. import shown_version
from ..base import Reader, Row, Tx

T = TypeVar("T")

#: Act → the part of its kept detail that it gives back.
_GIVES = {"retry": "run", "skip_input": "events", "run_now": "queued"}


@dataclass(frozen=True)
class ShownAct:
    """What a person does, as it will be kept, and what they were looking at."""

    name: str
    workflow_id: str
    subject: str
    actor: str
    shown: int | None = None  # None: whatever there is now
    about: tuple[str, ...] = ()  # ids of what was shown, if that is not the subject
    detail: str | None = None  # what else two acts must share to be the same


class Repeated(Exception):
    """This very act was done before; `result` is what it gave."""

    def __init__(self, result: Any) -> None:
        super().__init__("this act was done before")
        self.result = result


def judge(read: Reader, act: ShownAct) -> None:
    """Raise `Refused` if what was shown has moved since, and `Repeated` if it moved by this very act."""
    if act.shown is None:
        return
    done = _done_before(read, act)
    if done is not None:
        detail = stored(done["detail"])
        raise Repeated(detail.get(_GIVES.get(act.name, "")) if isinstance(detail, dict) else None)
    if not 0 <= act.shown <= shown_version.newest(read):
        raise Refused(f"Nothing was changed: there is no version {act.shown} that could have been shown.")
    ids = tuple(dict.fromkeys(each for id in act.about or (act.subject,) for each in shown_version.things(read, id)))
    moved = shown_version.last_row(read, act.workflow_id, ids)
    if moved is not None and int(moved["seq"]) > act.shown:
        raise Refused(_sentence(read, act, ids, moved))


def as_shown(verb: Callable[..., T]) -> Callable[..., T]:
    """A verb that is done only if its act still fits what was shown; its name, and so its crash points, stay."""

    @wraps(verb)
    def judged(tx: Tx, act: ShownAct, *args: Any) -> T:
        judge(tx, act)
        tx.shown = act.shown
        try:
            return verb(tx, *args)
        finally:
            tx.shown = None

    return judged


def _done_before(read: Reader, act: ShownAct) -> Row | None:
    found = read.all(
        "action_same", workflow_id=act.workflow_id, act=act.name, subject=act.subject, actor=act.actor,
        shown=act.shown,
    )
    return next((row for row in found if act.detail in (None, row["detail"])), None)


def _sentence(read: Reader, act: ShownAct, ids: tuple[str, ...], moved: Row) -> str:
    other = shown_version.last_act(read, act.workflow_id, (*ids, moved["subject"]))
    person = other is not None and act.shown is not None and int(other["seq"]) > act.shown
    by = f"after {other['target']} by {other['actor']}" if other and person else "by Keep itself"
    became = f"{moved['source']} → {moved['target']}" if moved["source"] else moved["target"]
    standing = [f"{id} is {state}" for id in ids if (state := shown_version.standing(read, id))]
    return (
        f"Nothing was changed: {moved['subject']} has moved since version {act.shown} was shown ({moved['machine']} "
        f"{became}, {by}, at {iso(moved['at'])}). Now {', '.join(standing)}; that is version {moved['seq']}."
    )
