"""`keep rollback`: the text of an earlier version becomes a new one, by the same rules as any deploy."""

from __future__ import annotations

import click

from ...ledger.base import Row
from ...model.clock import iso
from ...model.errors import NotFound, Refused
from ...reading.look import Look
from ...reading.wording import ago
from . import names
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session
from .completion import WORKFLOW
from .script_commands import deploy_lines
from .text import did_you_mean, echo, echo_json, plain


@click.command()
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@click.argument("version", metavar="[VERSION]", required=False)
@click.option("--list", "listed", is_flag=True, help="Only list the versions, the newest last.")
@click.option("--strand", is_flag=True, help="Do it even if events wait in topics that nobody takes any more.")
@with_json
@with_session
def rollback(
    session: CommandSession, workflow: str, version: str | None, listed: bool, strand: bool, as_json: bool,
) -> None:
    """Make the text of an earlier version active again.

    Without VERSION, it is the one before the active version. The old text becomes a new version; nothing is removed
    from the record. It is deployed by the same rules as any script, and gets no grants that the workflow does not have
    now. What was done outside stays done.
    """
    with session.look() as look:
        row = names.workflow(look, workflow)
        versions = look.read.all("script_all", workflow_id=row["id"])
        if listed:
            _list(look, row, versions, as_json)
            return
        chosen = _chosen(row, versions, version)
    done = ask_host(session, "deploy", source=chosen["source"], strand=strand)
    if as_json:
        echo_json({**done, "rolled_back_to": _number(chosen)})
        return
    echo(*deploy_lines(done), f"  its text     is that of {_number(chosen)}")


def _chosen(row: Row, versions: list[Row], wanted: str | None) -> Row:
    """The version that is meant, which must have another text than the active one."""
    active = next(each for each in versions if (each["major"], each["minor"]) == (row["major"], row["minor"]))
    others = [each for each in versions if each["hash"] != active["hash"]]
    if wanted is None:
        before = [each for each in others if (each["major"], each["minor"]) < (row["major"], row["minor"])]
        if not before:
            raise Refused(f"{plain(row['name'])} {_number(active)} has no earlier version with another text.")
        return before[-1]
    found = next((each for each in versions if _number(each) == wanted), None)
    if found is None:
        raise NotFound(f"{plain(row['name'])} has no version {wanted!r}. "
                       f"{did_you_mean(wanted, [_number(each) for each in versions])}")
    if found["hash"] == active["hash"]:
        raise Refused(f"The text of {wanted} is active already, as {_number(active)}. Nothing was changed.")
    return found


def _number(script: Row) -> str:
    return f"{script['major']}.{script['minor']}"


def _list(look: Look, row: Row, versions: list[Row], as_json: bool) -> None:
    active = f"{row['major']}.{row['minor']}"
    if as_json:
        echo_json([{"version": _number(each), "active": _number(each) == active, "author": each["author"],
                    "hash": each["hash"], "activated_at": iso(each["activated_at"])} for each in versions])
        return
    for each in versions:
        mark = "  active" if _number(each) == active else ""
        echo(f"{_number(each):<6} {ago(each['activated_at'], look.now_ms):<12} by {each['author']}{mark}")
