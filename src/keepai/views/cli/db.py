"""`keep db`: the ledger's file itself."""

from __future__ import annotations

import sys

import click

from .session import Session, with_json, with_session
from .text import echo, echo_json, field, plain


@click.group()
def db() -> None:
    """The ledger's file."""


@db.command()
@with_json
@with_session
def check(session: Session, as_json: bool) -> None:
    """Whether the ledger is whole and its account as it was written.

    It only reads, and may run beside a host. Exit code 1 if something is wrong.
    """
    from ...ledger.checks import check as checked

    with session.look() as look:
        found = checked(look.read)
    sound = all(each.sound for each in found)
    if as_json:
        echo_json({"path": str(look.path), "sound": sound, "checks": [each.to_json() for each in found]})
    else:
        said = [(each.name, f"{'ok' if each.sound else 'BROKEN'}: {each.said}") for each in found]
        echo(plain(str(look.path)), *(line for name, text in said for line in field(name, text)))
    sys.exit(0 if sound else 1)
