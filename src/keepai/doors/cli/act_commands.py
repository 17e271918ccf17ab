"""What a person does, one command each. Every act goes through the host, or through the engine's own door."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any, TextIO

import click

from ...app import Keep
from ...model.acts import ACTS, ANSWERS, Act
from ...model.codec import decode
from ...model.errors import KeepError
from ...model.permissions import grant_of, matches_of
from ...model.states import Waiting
from ...reading.look import Look
from ...reading.parked_runs import GOES_ON
from ...reading.wording import count
from . import names
from .answer_many import answering
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session, with_shown
from .completion import WORKFLOW, IdParam
from .proposal_commands import accept, decline
from .text import echo, echo_json, plain, progress, say

_SKIPS = {act.on[0]: name for name, act in ACTS.items() if act.typed == "keep skip {0}"}


def _done(as_json: bool, act: str, subject: str, sentence: str, result: Any = None) -> None:
    if as_json:
        echo_json({"act": act, "subject": subject, "result": result})
    else:
        echo(plain(sentence))


def _made(name: str, act: Act) -> click.Command:
    """The command of an act that takes nothing but what it is done to."""
    argument = act.on[0] if act.on in (("workflow",), ("run",)) else "id"
    kind = WORKFLOW if argument == "workflow" else IdParam(*act.on)

    def run(session: CommandSession, /, shown: int | None, as_json: bool, **typed: str) -> None:
        with session.look() as look:
            if argument == "workflow":
                row = names.workflow(look, typed[argument])
                subject, called = str(row["id"]), str(row["name"])
            else:
                _, subject = names.thing(look, typed[argument], act.on)
                called = subject
        params: dict[str, Any] = {next(iter(act.params)): subject, "shown": shown}
        result = ask_host(session, name, **params)
        _done(as_json, name, subject, act.said.format(called, result), result)

    run.__doc__ = act.help
    takes = click.argument(argument, metavar=argument.upper(), type=kind)
    return click.command(act.command)(takes(with_shown(with_json(with_session(run)))))


@click.command("run-now")
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@with_shown
@with_json
@with_session
def run_now(session: CommandSession, workflow: str, shown: int | None, as_json: bool) -> None:
    """Queue every producer and routine of a workflow."""
    with session.look() as look:
        row = names.workflow(look, workflow)
    queued = ask_host(session, "run_now", wf=row["id"], shown=shown)
    told = f"Queued: {', '.join(queued)}." if queued else f"{row['name']} has no producers and no routines."
    _done(as_json, "run_now", row["id"], told, queued)


@click.command("set")
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@click.argument(
    "setting", metavar="waiting=stop|intake|others", type=click.Choice([f"waiting={each}" for each in Waiting]))
@with_shown
@with_json
@with_session
def set_(session: CommandSession, workflow: str, setting: str, shown: int | None, as_json: bool) -> None:
    """Say what else of a workflow goes on while a run of it waits for a person.

    waiting=stop: nothing. waiting=intake: its producers. waiting=others: whatever does not depend on that run.
    """
    with session.look() as look:
        row = names.workflow(look, workflow)
    waiting = setting.partition("=")[2]
    ask_host(session, "set", wf=row["id"], waiting=waiting, shown=shown)
    told = f"While a run of {row['name']} waits for a person, {GOES_ON[Waiting(waiting)]}."
    _done(as_json, "set", row["id"], told, {"waiting": waiting})


@click.command()
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@click.argument("capability")
@click.option("--mode", type=click.Choice(["allow", "ask", "deny"]), default="allow", show_default=True,
              help="Allow it, have a person approve every call, or refuse it.")
@click.option("--match", "matches", metavar="PARAM=PATTERN", multiple=True,
              help="Only calls whose PARAM (such as recipients or row.name) is like PATTERN, with * and ?. Repeatable.")
@click.option("--ask-when", metavar="CONDITION", multiple=True,
              help="Ask a person when the call fits CONDITION, such as 'values[2] > 1000'. Repeatable.")
@click.option("--deny-when", metavar="CONDITION", multiple=True,
              help="Refuse calls that fit CONDITION, such as 'channel != C01'. Repeatable.")
@click.option("--per-run", metavar="N", type=click.IntRange(min=1), help="At most N calls in one run.")
@click.option("--per-day", metavar="N", type=click.IntRange(min=1), help="At most N mutations in 24 hours.")
@with_shown
@with_json
@with_session
def grant(
    session: CommandSession, workflow: str, capability: str, mode: str, matches: tuple[str, ...],
    ask_when: tuple[str, ...], deny_when: tuple[str, ...], per_run: int | None, per_day: int | None,
    shown: int | None, as_json: bool,
) -> None:
    """Allow a workflow a capability, such as sheets.appendRow. A run that waited for it goes on.

    This replaces what was granted before, with all its limits.
    """
    given = {"mode": mode, "match": matches_of(matches), "ask_when": list(ask_when), "deny_when": list(deny_when)}
    wanted = grant_of({**given, "per_run": per_run, "per_day": per_day}, capability)
    rule = wanted.to_json()
    with session.look() as look:
        row = names.workflow(look, workflow)
    ask_host(session, "grant", wf=row["id"], capability=capability, mode=mode if len(rule) == 1 else rule, shown=shown)
    verb = {"allow": "may use", "ask": "must ask before it uses", "deny": "may not use"}[mode]
    told = f"{row['name']} {verb} {capability}{''.join(f', {each}' for each in wanted.limits)}."
    _done(as_json, "grant", row["id"], told, {"capability": capability, **rule})


@click.command()
@click.argument("id", metavar="ID", type=IdParam(*_SKIPS, "item"))
@with_shown
@with_json
@with_session
def skip(session: CommandSession, id: str, shown: int | None, as_json: bool) -> None:
    """Give up a run, an event, an input or an item.

    It is not processed any further. If a run stopped in an item, skipping the item also answers that run's question,
    and the routine goes on without the item.
    """
    with session.look() as look:
        kind, whole = names.thing(look, id, (*_SKIPS, "item"))
        if kind == "item":
            kind, whole = _of_item(look, whole)
    result = ask_host(session, _SKIPS[kind], id=whole, shown=shown)
    also = f", and {count(len(result), 'event')} with it" if result else ""
    _done(as_json, _SKIPS[kind], whole, f"{whole} is skipped{also}.", result)


def _of_item(look: Look, item_id: str) -> tuple[str, str]:
    """What is skipped for an item: the run that stopped in it, else its input."""
    item = look.read.one("look_item", item_id=item_id)
    assert item is not None, "it was just found"
    held = item["held_by"]
    at_work = look.read.one("item_of_run", workflow_id=item["workflow_id"], run_id=held) if held else None
    stopped_in_it = at_work is not None and at_work["id"] == item_id and item["status"] not in ("done", "skipped")
    return ("run", str(held)) if stopped_in_it else ("input", str(item["input_id"]))


@click.command()
@click.argument("to", metavar="TOPIC|INBOX")
@click.option("--data", metavar="JSON", help="What is sent in.")
@click.option("--file", metavar="FILE", type=click.File("r", encoding="utf-8"),
              help="Read it from a file; - is the standard input.")
@click.option("--id", "id_", metavar="ID",
              help="Its messageId, or the id of the delivery. Sent twice with the same one, it is there once.")
@click.option("--title", help="What people read for it.")
@with_shown
@with_json
@with_session
def send(
    session: CommandSession, to: str, data: str | None, file: TextIO | None, id_: str | None, title: str | None,
    shown: int | None, as_json: bool,
) -> None:
    """Send something in by hand: into a topic, or into an inbox.

    For trying, and for work that came by phone. Into a topic it is an input of the source manual and an event, as a
    producer would publish it; write WORKFLOW/TOPIC if several workflows have that topic. Into an inbox it is a
    delivery, as if somebody had sent it.
    """
    if (data is None) == (file is None):
        raise click.UsageError("Give either --data JSON or --file FILE.")
    value = _data(file.read() if file is not None else str(data), "--data" if file is None else "--file")
    sent = ask_host(session, "send", to=to, data=value, id=id_, title=title, shown=shown)
    place = f"the inbox {sent['inbox']}" if "inbox" in sent else f"{sent['topic']} ({sent['event']})"
    _done(as_json, "send", to, _BECAME[sent["became"]].format(sent["id"], place), sent)


#: What became of something that was sent in → how people are told.
_BECAME = {
    "new": "{0} is in {1}.", "known": "{0} was there already, with the same data: nothing was changed in {1}.",
    "changed": "{0} was waiting in {1}, and has the new data now.",
    "late": "{0} was taken before from {1}: the new data is kept beside it, and `keep reprocess` has it worked on.",
}


def _data(text: str, option: str) -> Any:
    try:
        return decode(text)
    except KeepError as error:
        raise click.BadParameter(f"this cannot be sent in: {error.message}", param_hint=option) from None


@click.command()
@click.argument("mutation", metavar="MUTATION", type=IdParam("mutation"))
@click.argument("answer", type=click.Choice(list(ANSWERS)))
@click.option("--result", metavar="JSON", help="With happened: what the outside system answered.")
@click.option("--no-wait", is_flag=True, help="With did_not_happen: do not wait; fail if the request may still arrive.")
@with_shown
@with_json
@with_session
def resolve(
    session: CommandSession, mutation: str, answer: str, result: str | None, no_wait: bool, shown: int | None,
    as_json: bool,
) -> None:
    """Answer for a mutation that nobody could verify.

    try_again asks the outside system once more. did_not_happen has it sent again. happened goes on with RESULT. skip
    goes on without it. keep goes on with what was applied, although the script now wants other content. seen says that
    you have read evidence that came later and contradicts the record.

    did_not_happen is accepted only when the request can no longer arrive. A running host knows how long that takes;
    without one, this command waits that long.
    """
    value = _json(result, answer)
    with session.look() as look:
        _, whole = names.thing(look, mutation, ("mutation",))
    first = partial(_until_settled, mutation_id=whole) if answer == "did_not_happen" and not no_wait else None
    ask_host(session, "resolve", first=first, mutation_id=whole, answer=answer, result=value, shown=shown)
    after = "what is on record stays" if answer == "seen" else "the run goes on from there"
    _done(as_json, "resolve", whole, f"{whole}: {answer.replace('_', ' ')}. Noted; {after}.")


async def _until_settled(keep: Keep, mutation_id: str) -> None:
    """Wait until the call can no longer arrive. Ctrl-C leaves everything as it is."""
    mutation = await keep.parts.ledger.look(lambda read: keep.views(read).mutation(mutation_id))
    left = keep.host.settles_in_ms(mutation) if mutation.status.value == "indeterminate" else None
    if not left:
        return
    say(f"The request may still arrive, and no running host has measured for how long: waiting {left / 1000:.0f} s, "
        "then it is noted. Ctrl-C leaves everything as it is.")
    while left := keep.host.settles_in_ms(mutation):
        progress(f"{left / 1000:.0f} s left")
        await asyncio.sleep(min(left / 1000, 1.0))
    progress("")


def _json(text: str | None, answer: str) -> Any:
    if text is None:
        return None
    if answer != "happened":
        raise click.BadParameter(f"it belongs to happened, not to {answer}.", param_hint="--result")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"this is not JSON: {error}.", param_hint="--result") from None


#: Command → itself: those above, and one for each other act.
COMMANDS: dict[str, click.Command] = {
    **{act.command: _made(name, act) for name, act in ACTS.items() if act.said and act.on},
    **{name: answering(name) for name in ("approve", "reject")},
    **{str(each.name): each for each in (
        run_now, set_, grant, skip, send, resolve, accept, decline)},
}
