"""Which workflows to look at, and when: so that one of a thousand being busy does not cost a look at all the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

#: However quiet it is, everything is looked at this often.
LONGEST_SLEEP_S = 60.0


class Agenda:
    """Remembers for each workflow when it can be due by itself; a touched one is looked at once."""

    def __init__(self) -> None:
        self._at: dict[str, int | None] = {}  # None: only a touch can make it due
        self._touched: set[str] = set()
        self._all_touched = True
        self._seen_ms = 0
        self._all_ms = 0  # when everything was looked at last

    def touch(self, workflow_id: str | None = None) -> None:
        """Something changed in a workflow, or (None) anywhere."""
        if workflow_id is None:
            self._all_touched = True
        else:
            self._touched.add(workflow_id)

    def plan(self, workflow_id: str, at_ms: int | None) -> None:
        """A workflow was looked at: it is not due before `at_ms`."""
        self._at[workflow_id] = at_ms

    def resting(self) -> set[str]:
        """The workflows that were looked at and in which nothing has changed since."""
        return set() if self._all_touched else self._at.keys() - self._touched

    def forget(self, workflow_id: str) -> None:
        """Another host runs this workflow."""
        self._at.pop(workflow_id, None)

    async def to_look(self, everything: Callable[[], Awaitable[list[str]]], now_ms: int) -> list[str]:
        """The workflows that may be due now. `everything` is asked for only if all must be looked at."""
        went_back, self._seen_ms = now_ms < self._seen_ms, now_ms
        at_all = self._all_touched or went_back or now_ms - self._all_ms >= LONGEST_SLEEP_S * 1000
        touched, self._touched, self._all_touched = self._touched, set(), False  # what is touched from here on waits
        if at_all:
            self._all_ms = now_ms
            return await everything()
        found = [w for w, at in self._at.items() if w in touched or (at is not None and at <= now_ms)]
        return found + [w for w in touched if w not in self._at]

    def sleep_s(self, now_ms: int) -> float:
        """How long nothing can become due by itself."""
        longest = int(LONGEST_SLEEP_S * 1000)
        soonest = min((at for at in self._at.values() if at is not None), default=now_ms + longest)
        return min(max(soonest - now_ms, 1), longest) / 1000
