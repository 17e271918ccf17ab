"""What `keep watch` shows, as one screen: workflows, questions with the answers to the chosen one, the newest runs.

It is drawn from a `SeenLedger` alone, so that the same can be tested without a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...model.acts import ACTS, Act
from ...model.records import Escalation
from ...reading.activity import NOTHING, Activity
from ...reading.call_sentences import output_sentence, sentence_of
from ...reading.lists import RunRow
from ...reading.offered_acts import heading, meaning, offered
from ...reading.overview import WorkflowGlance
from ...reading.wording import ago, count
from .text import COLOURS, line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORKFLOWS_SHOWN, QUESTIONS_SHOWN, RUNS_SHOWN = 14, 6, 8
_BLOCKS = " ▁▂▃▄▅▆▇█"
_KEYS = "j k choose a question · 1-9 answer it · q ends"


@dataclass(frozen=True)
class SeenLedger:
    """One look at the ledger."""

    now_ms: int
    glances: Sequence[WorkflowGlance]
    lately: Mapping[str, Activity]
    questions: Sequence[Escalation]
    runs: Sequence[RunRow]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Hand:
    """What the person at the keys has in hand."""

    chosen: str = ""  # the id of a question
    warned: tuple[str, str] | None = None  # a question and an answer that may do harm: it is not confirmed yet
    note: str = ""  # what came of the last answer

    def question(self, seen: SeenLedger) -> Escalation | None:
        """The chosen question; the first, if it is gone."""
        return next((each for each in seen.questions if each.id == self.chosen), next(iter(seen.questions), None))


def answers(question: Escalation) -> list[tuple[str, Act]]:
    """The acts that answer a question, in the order of their keys. A proposal is accepted where all of it is shown."""
    acts = [act for act in offered(question.actions) if act != "accept"]
    return [(act, meaning(act, question)) for act in acts if ACTS[act].label]


def screen(seen: SeenLedger, hand: Hand) -> RenderableType:
    """The whole screen."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_workflows(seen), Text()]
    parts += _questions(seen, hand)
    parts += [Text(), _runs(seen), Text()]
    return Group(*parts, Text(hand.note or _KEYS, style="bold" if hand.note else "dim"))


def _workflows(seen: SeenLedger) -> Table:
    table = _table("WORKFLOW", "STATE", "WAITING", "IN 24 H", "OUT 24 H", "FAILED", "NEXT")
    for each in seen.glances[:WORKFLOWS_SHOWN]:
        lately, due = seen.lately.get(each.workflow.id, NOTHING), each.workflow.next_due_at
        rate = lately.failure_rate
        table.add_row(
            line(each.workflow.name), _state(each.standing), f"{each.workflow.pending:,}",
            f"{_spark(lately.inputs)} {sum(lately.inputs):,}", f"{_spark(lately.outputs)} {sum(lately.outputs):,}",
            "–" if rate is None else f"{rate:.1%}",
            "after your answer" if each.held else "–" if due is None else ago(max(due, seen.now_ms), seen.now_ms))
    if len(seen.glances) > WORKFLOWS_SHOWN:
        table.add_row(f"and {len(seen.glances) - WORKFLOWS_SHOWN} more")
    return table


def _questions(seen: SeenLedger, hand: Hand) -> list[RenderableType]:
    from rich.text import Text

    chosen = hand.question(seen)
    if chosen is None:
        return [Text("Nothing waits for you.", style="green")]
    parts: list[RenderableType] = [Text(f"{count(len(seen.questions), 'question')} for you", style="bold")]
    first = max(0, list(seen.questions).index(chosen) - QUESTIONS_SHOWN // 2)
    for each in seen.questions[first:first + QUESTIONS_SHOWN]:
        said = sentence_of(each.facts) or str(each.facts.get("why") or each.title)
        mark, style = ("▸ ", "bold") if each is chosen else ("  ", "")
        told = mark + line(f"{said} ({seen.names.get(each.workflow_id, '')})")
        parts.append(Text(told, style=style, no_wrap=True, overflow="ellipsis"))
        if each is chosen:
            parts += [Text(f"    {line(heading(each))}", style="red")]
            parts += [Text(f"    {number}  {act.label}: {act.comes}", no_wrap=True)
                      for number, (_, act) in enumerate(answers(each), 1)]
    if hand.warned and hand.warned[0] == chosen.id:
        parts.append(Text(f"{meaning(hand.warned[1], chosen).risk} Press y if you are sure.", style="red"))
    return parts


def _runs(seen: SeenLedger) -> Table:
    table = _table("NEWEST RUNS", "STATE", "WORKFLOW", "WHAT IT DID")
    for each in seen.runs:
        did = "; ".join(map(output_sentence, each.outputs))
        table.add_row(f"{ago(each.run.created_at, seen.now_ms)}  {line(each.run.handler)}", _state(each.run.state),
                      line(seen.names.get(each.run.workflow_id, "")), line(did or each.title or ""))
    return table


def _table(*header: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in header:
        table.add_column(name, no_wrap=True, justify="right" if name in ("WAITING", "FAILED") else "left")
    return table


def _state(word: str) -> RenderableType:
    from rich.text import Text

    style = {"needs you": "red", "watching": "green", "running": "cyan"}.get(word, COLOURS.get(word, ""))
    return Text(word, style=style)


def _spark(numbers: Sequence[int]) -> str:
    most = max(numbers, default=0) or 1
    return "".join(_BLOCKS[-(-number * 8 // most)] for number in numbers)
