"""`keep hosts`: which hosts work on the ledger. `keep host`: what a person says of one of them."""

from __future__ import annotations

import click

from ...model.acts import ACTS
from ...model.errors import NotFound
from ...reading.shared_hosts import heard, state
from ...reading.wording import ago
from ..control import is_running
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session, with_watch
from .text import did_you_mean, echo, echo_json, plain, table


@click.command()
@with_json
@with_watch
@with_session
def hosts(session: CommandSession, as_json: bool) -> None:
    """Which hosts work on the ledger.

    A file has one at a time. A database may have several, and each runs a part of the workflows. Others take over from
    one that is silent for 15 seconds. It may still be alive: `keep host dead` says that it is not.
    """
    with session.look() as look:
        found = look.read.hosts()
        if as_json:
            echo_json([{**each.to_json(), "state": state(each)} for each in found])
            return
        if found:
            rows = [(each.id, state(each), str(each.workflows), f"{each.pid} on {each.machine}",
                     ago(each.started_at, look.now_ms), heard(each)) for each in found]
            echo(*table(("HOST", "STATE", "WORKFLOWS", "PROCESS", "SINCE", "HEARD"), rows, flexible=3))
        elif is_running(session.settings().ledger):
            [row] = look.read.all("look_hosts", limit=1)
            echo(f"One is running: process {row['pid']} on {plain(row['machine'])}, since "
                 f"{ago(row['started_at'], look.now_ms)}.")
        else:
            echo("None is running: nothing happens until `keep dev` or `keep serve` starts one.")


@click.group()
def host() -> None:
    """What becomes of one host of several."""


@host.command()
@click.argument("host", metavar="HOST")
@with_json
@with_session
def dead(session: CommandSession, host: str, as_json: bool) -> None:
    """Say of a silent host that it is dead, and will never send anything again.

    Say so only of a machine that is off and stays off, or cannot reach anything any more. Others then look up what
    became of its last calls, and may send what is not there. A host on this machine needs no such word: others see that
    it has ended. HOST is an id that `keep hosts` shows, or its beginning.
    """
    _act(session, "host_dead", host, as_json)


@host.command()
@click.argument("host", metavar="HOST")
@with_json
@with_session
def drain(session: CommandSession, host: str, as_json: bool) -> None:
    """Have a host hand over its work to others, and end.

    Runs under way have three seconds. HOST is an id that `keep hosts` shows, or its beginning.
    """
    _act(session, "host_drain", host, as_json)


def _act(session: CommandSession, act: str, typed: str, as_json: bool) -> None:
    with session.look() as look:
        known = [each.id for each in look.read.hosts() if each.works]
    found = [each for each in known if each == typed] or [each for each in known if each.startswith(typed)]
    if len(found) != 1:
        raise NotFound(f"No host of several is {typed!r}. {did_you_mean(typed, known) if known else 'None is there.'} "
                       "`keep hosts` lists them.")
    ask_host(session, act, host=found[0])
    if as_json:
        echo_json({"act": act, "subject": found[0], "result": None})
    else:
        echo(plain(ACTS[act].said.format(found[0])))
