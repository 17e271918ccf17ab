"""Writes the messages to people: questions from the facts of their cards, and the digest. Reads only.

Everything from outside is made visible and cut; what a script chose is marked as the script's words. No message holds a
link that answers anything: mail scanners open links, and a person to whom a message is forwarded could answer in
another's name.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ..engine.telling import Asked
from ..ledger import account, shown_version
from ..ledger.base import Ledger, Reader
from ..ledger.opening import open_reader
from ..model.clock import iso
from ..model.codec import Json
from ..model.records import Escalation
from ..notices.base import Message
from .digest import Digest, digest
from .offered_acts import commands, heading, meaning, workflow_name
from .views import Views, about
from .wording import one_line

FACT_MAX = 400  #: characters of one fact
SUMMARY_MAX = 20  #: questions that one message names when there are many
TITLE_MAX = 120

_NO_CLICK = "Opening or forwarding this message answers nothing."

#: Entries of the account that move no state and bring no evidence: no reason to tell people again.
_UNASKED = ("act", "host", "reconcile", "grant", "phase")


class NoticeWriter:
    """Letters about one ledger; `page` says where the host's page is, if it has one."""

    def __init__(
        self, ledger: Ledger, views: Callable[[Reader], Views], path: str | Path, page: Callable[[], str | None],
    ) -> None:
        self._ledger, self._views, self._path, self._page = ledger, views, path, page
        self._questions: dict[str, Escalation] = {}

    def asked(self, read: Reader, now_ms: int) -> list[Asked]:
        """Every question that only a person can answer, the oldest first."""
        found = self._waiting(read, now_ms)
        self._questions = {each.id: each for each in found}
        return [Asked(each.id, self._mark(read, each), each.kind, each.run_id) for each in found]

    def letter(self, read: Reader, asked: Sequence[Asked], now_ms: int, *, again: bool) -> Message:
        """One question, or several in short."""
        found = [self._questions[each.id] for each in asked]
        names = {str(row["id"]): str(row["name"]) for row in read.all("workflow_all")}
        told = [_QuestionText(each, workflow_name(each, names), self._link(each)) for each in found]
        title, text = _single(told[0]) if len(told) == 1 else _several(told)
        word = "Still unanswered: " if again else ""
        return Message(
            kind="reminder" if again else "question", title=one_line(word + title, TITLE_MAX), text=text, at=now_ms,
            key=_key(str(again), *(part for each in asked for part in (each.id, each.mark)),
                     *([iso(now_ms)] if again else [])),
            link=told[0].link if len(told) == 1 else self._link(), data={"questions": [each.data() for each in told]},
        )

    async def digest(self, since_ms: int, until_ms: int) -> Message:
        """What was done. It may read much of the ledger, so it reads in a thread of its own."""
        waiting = await self._ledger.look(self._waiting, until_ms)
        found = await asyncio.to_thread(self._digested, waiting, since_ms, until_ms)
        return Message(
            kind="digest", title=one_line(found.title, TITLE_MAX), text="\n".join(found.lines()), at=until_ms,
            key=_key("digest", str(since_ms)), link=self._link(), data={"digest": found.to_json()},
        )

    def _digested(self, waiting: Sequence[Escalation], since_ms: int, until_ms: int) -> Digest:
        with closing(open_reader(self._path)) as read:
            return digest(read, waiting, since_ms, until_ms)

    def _waiting(self, read: Reader, now_ms: int) -> list[Escalation]:
        return self._views(read).needs_you(now_ms)

    def _mark(self, read: Reader, question: Escalation) -> str:
        """A text that changes whenever a state of what is asked about has moved: then it is another question."""
        subject = about(question)
        ids = (subject,) if question.id == f"ask_{subject}" else shown_version.things(read, subject)
        own = [each for each in ids if each == question.id or each.startswith(("run_", "mut_", "apr_", "itm_"))]
        moves = [account.last_of(read, question.workflow_id, each, but=_UNASKED) for each in own]
        return f"{question.kind} {max((int(row['seq']) for row in moves if row), default=0)}"

    def _link(self, question: Escalation | None = None) -> str | None:
        page = self._page()
        where = f"/workflows/{question.workflow_id}/needs-you" if question and question.workflow_id else "/needs-you"
        where = f"/proposals/{question.id}" if question and question.kind == "proposal" else where
        return f"{page}{where}" if page else None


class _QuestionText:
    """One question in the words of its card."""

    def __init__(self, question: Escalation, name: str, link: str | None) -> None:
        self.question, self.name, self.link = question, one_line(name, TITLE_MAX), link
        self.heading = heading(question)
        self.typed = commands(question, name)
        self.facts = {label: one_line(str(text), FACT_MAX) for label, text in self._facts(name) if text}

    def _facts(self, name: str) -> list[tuple[str, object]]:
        facts: Mapping[str, Any] = self.question.facts
        why, target, called = facts.get("why"), facts.get("target"), facts.get("title_by_script")
        inputs = facts.get("inputs")
        return [
            ("what", facts.get("attempted")), ("in the script's words", called and f"“{called}”"),
            ("wanted now", facts.get("wanted_preview")),
            ("where", f"{facts['connector']}: {target}" if target else facts.get("connector")),
            ("account", facts.get("account")),
            ("handler", None if facts.get("attempted") else facts.get("handler")),
            ("why", str(why) if why else None),
            ("in the proposer's words", facts.get("why_by_proposer") and f"“{facts['why_by_proposer']}”"),
            ("may change", ", ".join(map(str, facts["changes"])) if facts.get("changes") else None),
            ("look at", " ".join(map(str, facts["warnings"])) if facts.get("warnings") else None),
            ("because of", ", ".join(map(str, inputs)) if isinstance(inputs, list) else None),
            ("verify", facts.get("verifying")), ("check", facts.get("check_by_hand")),
            ("on record", facts.get("recorded")), ("repair", facts.get("note")), ("expires", facts.get("expires_at")),
        ]

    def data(self) -> Json:
        """For programs."""
        question = self.question
        return {
            "id": question.id, "version": question.version, "kind": question.kind, "workflow": self.name,
            "workflow_id": question.workflow_id, "run_id": question.run_id, "heading": self.heading,
            "facts": dict(self.facts), "commands": [typed for _, typed in self.typed], "link": self.link,
        }


def _single(told: _QuestionText) -> tuple[str, str]:
    lines = [f"{told.heading} ({told.name}, {told.question.id})", ""]
    lines += [f"{label}: {text}" for label, text in told.facts.items()]
    lines += ["", "Answer on the machine where Keep runs, with one of:"] if told.typed else []
    lines += [f"  {typed}\n    {meaning(act, told.question).comes}" for act, typed in told.typed]
    lines += ["", f"Look at it: {told.link}" if told.link else "`keep todo` shows everything about it.", "", _NO_CLICK]
    return f"{told.name}: {told.heading}", "\n".join(lines)


def _several(told: Sequence[_QuestionText]) -> tuple[str, str]:
    facts = ((each, each.facts.get("what") or each.facts.get("why") or each.facts.get("handler") or "")
             for each in told[:SUMMARY_MAX])
    lines = [f"{each.name}: {each.heading} {one_line(about, TITLE_MAX)}\n  {each.question.id}" for each, about in facts]
    more = len(told) - SUMMARY_MAX
    lines += [f"… and {more:,} more."] if more > 0 else []
    lines += ["", "`keep todo` shows each with what to answer.", "", _NO_CLICK]
    return f"{len(told):,} questions wait for you", "\n".join(lines)


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
