"""`keep propose`, `proposals`, `accept` and `decline`: a script goes live only if a person accepts what was shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ...model.acts import ACTS
from ...model.clock import iso
from ...model.errors import ScriptInvalid
from ...model.ids import typed_name
from ...reading.look import Look
from ...reading.proposal_card import ProposalCard, Touch, proposal_card
from ...reading.wording import ago, count
from . import names
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session, with_shown
from .completion import IdParam
from .script_files import cases_of, read_script, say_refused
from .text import echo, echo_json, exact, field, line, plain, say, table

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)
LISTED_MAX = 100


@click.command()
@click.argument("file", type=_FILE)
@click.option("--why", required=True, help="Why, in a sentence that a person reads.")
@click.option("--cases", metavar="FILE", type=_FILE,
              help="Its cases; the file beside it with the ending .test.toml, if this is not given.")
@click.option("--grant", "grants", multiple=True, metavar="all|CAPABILITY[=MODE]",
              help="What it would like to be granted. A person sees that, and decides otherwise or not.")
@with_json
@with_session
def propose(
    session: CommandSession, file: str, why: str, cases: str | None, grants: Sequence[str], as_json: bool,
) -> None:
    """Propose a script: a person must accept it before it is deployed.

    It is checked as a deploy is, and nothing runs. It takes the place of what you proposed before for this workflow.
    """
    try:
        made = ask_host(
            session, "propose", source=read_script(file), why=why, grants=_modes(grants),
            cases=read_script(cases) if cases else cases_of(file))
    except ScriptInvalid as error:
        say_refused(file, error, as_json)
        sys.exit(3)
    if as_json:
        echo_json(made)
        return
    echo(f"{plain(made['name'])} is proposed as {made['id']}.",
         f"A person decides: keep accept {made['id']}, or keep decline {made['id']}.")


@click.command()
@click.argument("id", metavar="[ID]", type=IdParam("proposal"), required=False)
@click.option("--all", "every", is_flag=True, help="Also those that are decided.")
@with_json
@with_session
def proposals(session: CommandSession, id: str | None, every: bool, as_json: bool) -> None:
    """What was proposed and waits for a person; with ID, all that is known of one."""
    with session.look() as look:
        if id is not None:
            card = _card(look, names.thing(look, id, ("proposal",))[1])
            echo_json([card.to_json()]) if as_json else echo(*card_lines(card, look.now_ms))
            return
        found = [proposal_card(look.read, each, look.now_ms) for each in look.views.proposals(limit=LISTED_MAX)]
        shown = [each for each in found if every or each.status == "waiting"]
        if as_json:
            echo_json([each.to_json() for each in shown])
            return
        rows = [(each.proposal.id, each.status, ago(each.proposal.created_at, look.now_ms), line(each.heading),
                 line(each.proposal.why)) for each in shown]
        if rows:
            echo(*table(("ID", "STATE", "PROPOSED", "WHAT", "IN ITS WORDS"), rows, 4))
        repairs = len(look.read.all("repair_waiting"))
    if not shown:
        say("No proposal waits." + ("" if every else " --all shows those that are decided."))
    if repairs:
        say(f"{count(repairs, 'repair')} of failed runs waits too: `keep todo` shows them.")


@click.command()
@click.argument("id", metavar="ID", type=IdParam("proposal"))
@click.option("--grant", "grants", multiple=True, metavar="CAPABILITY=MODE",
              help="What it may do: allow, ask, deny, or keep for the rule that is there. Without it reads are allowed "
                   "and every mutation asks.")
@click.option("--shown", metavar="DIGEST", help="The digest that you were shown. A terminal shows it all and asks.")
@with_json
@with_session
def accept(session: CommandSession, id: str, grants: Sequence[str], shown: str | None, as_json: bool) -> None:
    """Accept a proposal, exactly as it was shown: it becomes the active version.

    If anything of it has changed since it was shown, nothing is done, and it is shown anew.
    """
    with session.look() as look:
        card = _card(look, names.thing(look, id, ("proposal",))[1])
        if shown is None:
            shown = _agreed(card, look.now_ms)
    done = ask_host(session, "accept", id=card.proposal.id, grants=_modes(grants), shown=shown)
    if as_json:
        echo_json({"act": "accept", "subject": card.proposal.id, "result": done})
        return
    name = typed_name(done["name"], done["workflow_id"])
    echo(f"{plain(done['name'])} {done['version']} is the active version  ({done['workflow_id']})",
         *(f"  must ask     {each}" for each in done["must_ask"]),
         *(f"  not granted  {each}: keep grant {name} {each}" for each in done["not_granted"]))


@click.command()
@click.argument("id", metavar="ID", type=IdParam("proposal"))
@click.option("--why", default="", help="Why, for whoever proposed it.")
@with_shown
@with_json
@with_session
def decline(session: CommandSession, id: str, why: str, shown: int | None, as_json: bool) -> None:
    """Decline a proposal."""
    with session.look() as look:
        whole = names.thing(look, id, ("proposal",))[1]
    ask_host(session, "decline", id=whole, why=why, shown=shown)
    if as_json:
        echo_json({"act": "decline", "subject": whole, "result": None})
    else:
        echo(f"{whole} is declined: {ACTS['decline'].comes}.")


def _card(look: Look, id: str) -> ProposalCard:
    return proposal_card(look.read, look.views.proposal(id), look.now_ms)


def _agreed(card: ProposalCard, now_ms: int) -> str:
    """The digest of what a person at a terminal has just been shown and agreed to."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("Say with --shown which digest you were shown; `keep proposals ID` shows it.")
    for each in card_lines(card, now_ms):
        say(each)
    click.confirm("Accept exactly this?", abort=True, err=True)
    return card.proposal.digest


def _modes(grants: Sequence[str]) -> dict[str, Any] | None:
    split = [text.partition("=") for text in grants]
    return {capability: mode or "allow" for capability, _, mode in split} or None


def card_lines(card: ProposalCard, now_ms: int) -> Iterator[str]:
    """Everything about one proposal."""
    proposal = card.proposal
    yield f"{click.style(plain(card.heading), fg='red' if card.status == 'waiting' else None)}  {proposal.id}"
    yield from field("stands", f"{card.status}: {proposal.note}" if proposal.note else card.status)
    yield from field("in its words", f"“{proposal.why}”")
    yield from field("does", *card.does)
    yield from field("may change", *(_touch(each) for each in card.touches if each.changes))
    yield from field("may read", *(_touch(each) for each in card.touches if not each.changes))
    yield from field("cases", *(card.cases or ("none: nobody wrote down what must come of it",)))
    yield from field("proof", *card.proof)
    for each in card.warnings:
        yield from (click.style(told, fg="yellow") for told in field("warning", each))
    if card.base:
        yield from exact(f"from {card.base}", *(_diff_lines(card) or ("the same text",)))
    else:
        yield from exact("script", proposal.source)
    if proposal.work is not None:
        yield from field("made by", line(json.dumps(proposal.work, ensure_ascii=False), 400))
    if card.status == "waiting":
        yield from field("expires", f"{ago(proposal.expires_at, now_ms)} ({iso(proposal.expires_at)})")
    yield from field("digest", proposal.digest)


def _diff_lines(card: ProposalCard) -> tuple[str, ...]:
    signs = {"new": "+", "gone": "-", "same": " ", "cut": "…"}
    return tuple(f"{signs[each.kind]} {each.text}" for each in card.changes)


def _touch(each: Touch) -> str:
    told = [each.capability, *(["NEW"] if each.new else []), f"now: {each.now or 'not granted'}"]
    told += [f"as {each.account}"] if each.account else []
    return f"{each.words} ({', '.join(told + ([f'asks for: {each.wanted}'] if each.wanted else []))})"
