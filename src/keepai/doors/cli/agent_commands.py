"""`keep agent`: which agents may come in, and the PIN that acts of people need from then on."""

from __future__ import annotations

from contextlib import suppress

import click

from ...engine import tokens_and_pins
from ...model.acts import ACTS
from ...model.clock import iso
from ...model.errors import NotFound
from ...model.principals import ROLES, PrincipalKind
from ...reading.wording import ago
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session
from .secret_input import ask_at_terminal
from .text import echo, echo_json, plain, say, table

_SCOPES = sorted(each.value for each in ROLES[PrincipalKind.AGENT])


@click.group()
def agent() -> None:
    """Which agents may come in, and what they may do."""


@agent.command()
@click.argument("name", metavar="NAME")
@click.option("--scope", type=click.Choice(_SCOPES), default="look", show_default=True,
              help="look: it only looks. propose: it also certifies, proposes, offers repairs and pauses.")
@with_json
@with_session
def add(session: CommandSession, name: str, scope: str, as_json: bool) -> None:
    """Let an agent in, with a token of its own.

    The token is printed once; Keep has only its hash. Give it to the agent in the variable KEEP_AGENT_TOKEN. From then
    on, acts of people need the PIN or the page, and scripts that are saved are proposed and no longer deployed. If
    there is no PIN yet, this asks for one.
    """
    if _pin_kept(session) is None:
        _new_pin(session)
    token = ask_host(session, "agent_add", name=name, role=scope)
    if as_json:
        echo_json({"agent": name, "role": scope, "token": token})
        return
    echo(str(token))
    say(f"This is the token of {plain(name)}, shown this once. Start the agent with KEEP_AGENT_TOKEN set to it.")


@agent.command("list")
@with_json
@with_session
def list_(session: CommandSession, as_json: bool) -> None:
    """Every agent, and who let it in."""
    with session.look() as look:
        rows = [dict(row) for row in look.read.all("principal_agents")]
        if as_json:
            echo_json([{**row, **{at: iso(row[at]) for at in ("added_at", "removed_at") if row[at]}} for row in rows])
        elif rows:
            echo(*table(("AGENT", "SCOPE", "ADDED BY", "ADDED", "REMOVED BY"), [
                (row["name"], row["role"], plain(row["added_by"]), ago(row["added_at"], look.now_ms),
                 plain(row["removed_by"] or "–")) for row in rows], flexible=2))
        else:
            echo("There are no agents. `keep agent add NAME` lets one in.")


@agent.command()
@click.argument("name", metavar="NAME")
@with_json
@with_session
def remove(session: CommandSession, name: str, as_json: bool) -> None:
    """Let an agent in no more: its token is worth nothing."""
    ask_host(session, "agent_remove", name=name)
    if as_json:
        echo_json({"act": "agent_remove", "subject": name, "result": None})
    else:
        echo(plain(ACTS["agent_remove"].said.format(name)))


@agent.command()
@with_json
@with_session
def pin(session: CommandSession, as_json: bool) -> None:
    """Set the PIN that acts of people need while there are agents.

    It is typed at the terminal, and never taken from an argument, a variable or a pipe. If there are agents, the PIN
    before is asked for too.
    """
    _new_pin(session)
    if as_json:
        echo_json({"act": "set_pin", "subject": "person", "result": None})
    else:
        echo("The PIN is set.")


def _pin_kept(session: CommandSession) -> str | None:
    with suppress(NotFound), session.look() as look:  # without a ledger there is no PIN
        return tokens_and_pins.pin_kept(look.read)
    return None


def _new_pin(session: CommandSession) -> None:
    say("While agents are registered, acts of people at a terminal need a PIN.")
    chosen = ask_at_terminal(f"New PIN ({tokens_and_pins.PIN_LEAST} characters or more)")
    if ask_at_terminal("The same once more") != chosen:
        raise click.ClickException("These were two different PINs. Nothing was kept.")
    ask_host(session, "set_pin", pin=chosen)
