"""What the contract is held against: one mutation of one connector, in an outside world of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar

from ...connectors.base import Connector
from ...model.errors import ConnectorError

#: Give it to the connector as its secret: it may stand nowhere in what the connector says.
CANARY = "canary-Zk7-do-not-show"


class Fault(StrEnum):
    """A way in which the outside misbehaves."""

    ANSWER_LOST = "answer_lost"  #: it happens, and the answer never comes
    REQUEST_LOST = "request_lost"  #: it does not happen, and no answer comes
    LATE = "late"  #: no answer comes; it happens at `land()`, after the call has ended
    HELD = "held"  #: it happens; the answer is held back until the call is given up
    WRONG_ANSWER = "wrong_answer"  #: it happens, and the answer makes no sense
    LOOKUP_BROKEN = "lookup_broken"  #: questions about what happened get no answer, or a senseless one
    LOOKUP_DENIED = "lookup_denied"  #: questions about what happened are refused


class Subject:
    """One mutation; made anew, in an empty folder, for every trial."""

    operation: str  #: as scripts say it
    params: Mapping[str, Any]
    #: Name → the error that the connector must raise, for each refusal that `refusal` can bring about.
    refusals: ClassVar[Mapping[str, type[ConnectorError]]] = MappingProxyType({})
    #: Name → seconds that the connector must pass on as `retry_after`.
    retry_after: ClassVar[Mapping[str, float]] = MappingProxyType({})
    #: Names of answers that `oddity` can have given though it happened: each must not be told as "it did not happen".
    oddities: ClassVar[tuple[str, ...]] = ()
    same_key_once: ClassVar[bool] = False  #: a second send with one key has no second effect; `key_window` says so, too
    by_state: ClassVar[bool] = False  #: its look-up sees how things stand, not who made them so
    same_result: ClassVar[bool] = True  #: a look-up finds the very result that the send returned
    patience_s: float = 1.0  #: how long a call may take when the outside hangs
    crash_lines_max: ClassVar[int] = 24  #: at how many lines of the connector's module a process is killed
    crash_in: ClassVar[tuple[ModuleType, ...]] = ()  #: further modules whose lines count, if it has several

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def connector(self) -> Connector:
        """The connector as a new process would make it; entrust it with `CANARY`."""
        raise NotImplementedError

    def effects(self) -> int:
        """How often it happened, counted from outside and never by the connector."""
        raise NotImplementedError

    def fault(self, fault: Fault) -> AbstractContextManager[object] | None:
        """Within it the outside misbehaves so; None if this outside cannot."""
        return None

    def refusal(self, name: str) -> AbstractContextManager[object]:
        """Within it the outside refuses as `refusals` names it."""
        raise NotImplementedError

    def oddity(self, name: str) -> AbstractContextManager[object]:
        """Within it, it happens and is answered as `oddities` names it."""
        raise NotImplementedError

    def land(self) -> None:
        """Let happen what is late."""

    def close(self) -> None:
        """The trial is over."""
