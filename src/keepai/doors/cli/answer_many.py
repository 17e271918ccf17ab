"""`keep approve` and `keep reject`: one thing by its id, or with `--where` many calls, each answered by itself.

What many would do is shown first. Each is answered at the version in which it was shown, so one that changed
meanwhile is refused alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from ...model.acts import ACTS
from ...model.errors import KeepError
from ...model.permissions import Condition, condition_of, surely
from ...model.records import Escalation
from ...reading.call_sentences import sentence_of
from ...reading.offered_acts import in_bulk
from ...reading.wording import count
from . import names
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session, with_shown
from .completion import WORKFLOW, IdParam
from .status import questions
from .text import echo, echo_json, plain, say, table


def answering(name: str) -> click.Command:
    """The command of an act that answers a call which waits for approval."""
    act = ACTS[name]

    def answer(
        session: CommandSession, /, id: str | None, where: tuple[str, ...], workflow: str | None, every: bool,
        yes: bool, shown: int | None, as_json: bool,
    ) -> None:
        is_many = bool(where or workflow or every)
        if (id is None) != is_many or (is_many and shown is not None):
            raise click.UsageError("Give an ID, or choose many calls with --where, --workflow or --all; not both.")
        if id is None:
            _answer_many(session, name, where, workflow, yes, as_json)
            return
        with session.look() as look:
            _, subject = names.thing(look, id, act.on)
        result = ask_host(session, name, id=subject, shown=shown)
        if as_json:
            echo_json({"act": name, "subject": subject, "result": result})
        else:
            echo(plain(act.said.format(subject, result)))

    answer.__doc__ = f"""{act.help}

    With --where, --workflow or --all it is done to each call that waits for approval and fits. They are listed first,
    and a terminal asks; a program gives --yes. Each is answered by itself, exactly as it was shown.
    """
    made = with_shown(with_json(with_session(answer)))
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask; do it to all that fit."),
        click.option("--all", "every", is_flag=True, help="All calls that wait for approval."),
        click.option("--workflow", metavar="WORKFLOW", type=WORKFLOW, help="Only calls of this workflow."),
        click.option("--where", metavar="CONDITION", multiple=True,
                     help="Only calls that surely fit CONDITION, such as 'values[2] <= 2000'. Repeatable."),
        click.argument("id", metavar="[ID]", type=IdParam(*act.on), required=False),
    ):
        made = option(made)
    return click.command(act.command)(made)


def _answer_many(
    session: CommandSession, name: str, where: Sequence[str], workflow: str | None, yes: bool, as_json: bool,
) -> None:
    conditions = [condition_of(text) for text in where]
    with session.look() as look:
        flows = {row["id"]: str(row["name"]) for row in names.workflows(look, workflow)}
        chosen = [each for each in questions(session, look)
                  if in_bulk(each) and each.workflow_id in flows and _fits(each, conditions)]
    shown = [{"id": each.id, "workflow": flows[each.workflow_id], "version": each.version,
              "what": sentence_of(each.facts)} for each in chosen]
    if chosen and not as_json:
        rows = [(each.id, flows[each.workflow_id], sentence_of(each.facts)) for each in chosen]
        echo(*table(("ID", "WORKFLOW", "WHAT IS SENT"), rows, 2))
    agreed = bool(chosen) and (yes or (not as_json and _agreed(name, len(chosen))))
    done, refused = _each(session, name, chosen) if agreed else ([], [])
    if as_json:
        echo_json({"act": name, "chosen": shown, "done": done, "refused": refused})
    elif agreed:
        echo(f"{count(len(done), 'call')} {'approved' if name == 'approve' else 'rejected'}.")
        for each in refused:
            say(f"{each['id']} was not answered: {plain(each['message'])}")
    elif chosen:
        say("Nothing was done. --yes does it without being asked.")
    else:
        say("No call that waits for approval fits.")
    sys.exit(1 if refused else 0)


def _agreed(name: str, number: int) -> bool:
    """What a person at a terminal says; elsewhere nobody does."""
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    return asks and click.confirm(f"{name.capitalize()} {'this' if number == 1 else f'these {number}'}?", err=True)


def _each(
    session: CommandSession, name: str, chosen: Sequence[Escalation],
) -> tuple[list[str], list[dict[str, Any]]]:
    done, refused = list[str](), list[dict[str, Any]]()
    for each in chosen:
        try:
            ask_host(session, name, id=each.id, shown=each.version)
            done.append(each.id)
        except KeepError as error:
            refused.append({"id": each.id, "message": error.message})
    return done, refused


def _fits(question: Escalation, conditions: Sequence[Condition]) -> bool:
    return all(surely(each, question.facts["params"]) for each in conditions)
