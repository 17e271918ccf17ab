"""`keep agent` and `keep user`: who may come in with a token, and the PIN for people once there are agents."""

from __future__ import annotations

from contextlib import suppress

import click

from ...engine import tokens_and_pins
from ...model.acts import ACTS
from ...model.clock import iso
from ...model.errors import NotFound
from ...model.principals import LET_IN, ROLES, PrincipalKind, Role
from ...reading.wording import ago
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session
from .secret_input import ask_at_terminal
from .text import echo, echo_json, plain, say, table

_SCOPES = sorted(each.value for each in ROLES[PrincipalKind.AGENT])
_ROLES = [Role.VIEWER.value, Role.OPERATOR.value, Role.OWNER.value]


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
    _told(PrincipalKind.AGENT, name, scope, let_in(session, name, scope),
          "Start the agent with KEEP_AGENT_TOKEN set to it.", as_json)


def let_in(session: CommandSession, name: str, scope: str) -> str:
    """Register an agent; gives its token. If there is no PIN yet, a person chooses one first."""
    if _pin_kept(session) is None:
        _new_pin(session)
    return str(ask_host(session, "agent_add", name=name, role=scope))


@agent.command("list")
@with_json
@with_session
def list_(session: CommandSession, as_json: bool) -> None:
    """Every agent, and who let it in."""
    _list(session, PrincipalKind.AGENT, as_json)


@agent.command()
@click.argument("name", metavar="NAME")
@with_json
@with_session
def remove(session: CommandSession, name: str, as_json: bool) -> None:
    """Let an agent in no more: its token is worth nothing."""
    _remove(session, PrincipalKind.AGENT, name, as_json)


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


@click.group()
def user() -> None:
    """Which people may come in at the API, and what they may do."""


@user.command("add")
@click.argument("name", metavar="NAME")
@click.option("--role", type=click.Choice(_ROLES), default="viewer", show_default=True,
              help="viewer: looks. operator: also answers questions, pauses and retries. owner: has every act.")
@with_json
@with_session
def add_user(session: CommandSession, name: str, role: str, as_json: bool) -> None:
    """Let a person in, with a token and a role.

    The token is printed once; Keep has only its hash. With it the person, or a program of theirs, uses the API that
    `keep serve --api ADDRESS:PORT` opens. The account names them in what they do.
    """
    token = str(ask_host(session, "user_add", name=name, role=role))
    _told(PrincipalKind.PERSON, name, role, token, "Send it to the API as `Authorization: Bearer TOKEN`.", as_json)


@user.command("list")
@with_json
@with_session
def list_users(session: CommandSession, as_json: bool) -> None:
    """Every user, and who let them in."""
    _list(session, PrincipalKind.PERSON, as_json)


@user.command("remove")
@click.argument("name", metavar="NAME")
@with_json
@with_session
def remove_user(session: CommandSession, name: str, as_json: bool) -> None:
    """Let a person in no more: their token is worth nothing."""
    _remove(session, PrincipalKind.PERSON, name, as_json)


def _told(kind: PrincipalKind, name: str, role: str, token: str, then: str, as_json: bool) -> None:
    if as_json:
        echo_json({LET_IN[kind]: name, "role": role, "token": token})
        return
    echo(token)
    say(f"This is the token of {plain(name)}, shown this once. {then}")


def _list(session: CommandSession, kind: PrincipalKind, as_json: bool) -> None:
    word = LET_IN[kind]
    with session.look() as look:
        rows = [dict(row) for row in look.read.all("principal_all", kind=str(kind))]
        if as_json:
            echo_json([{**row, **{at: iso(row[at]) for at in ("added_at", "removed_at") if row[at]}} for row in rows])
        elif rows:
            echo(*table((word.upper(), "ROLE", "ADDED BY", "ADDED", "REMOVED BY"), [
                (row["name"], row["role"], plain(row["added_by"]), ago(row["added_at"], look.now_ms),
                 plain(row["removed_by"] or "–")) for row in rows], flexible=2))
        else:
            echo(f"There are no {word}s. `keep {word} add NAME` lets one in.")


def _remove(session: CommandSession, kind: PrincipalKind, name: str, as_json: bool) -> None:
    act = f"{LET_IN[kind]}_remove"
    ask_host(session, act, name=name)
    if as_json:
        echo_json({"act": act, "subject": name, "result": None})
    else:
        echo(plain(ACTS[act].said.format(name)))


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
