"""`keep deliveries` and `keep replay`: what is kept in the inboxes, and one of these put in once more."""

from __future__ import annotations

import click

from ...model.clock import SystemClock
from ...model.codec import text_of
from ...model.records import InboxEntry
from ...reading.inbox_entries import inbox_entries
from ...reading.wording import ago
from ..webhooks import deliveries_placed
from ..webhooks import inboxes as inboxes_of
from .ask_host import ask_host
from .command_session import CommandSession, with_json, with_session
from .list_commands import LAST
from .text import cut, echo, echo_json, plain, say, table

_BODY_SHOWN = 200  # characters of a body in the list


@click.command()
@click.argument("inbox", required=False)
@click.option("--last", metavar="N", type=click.IntRange(min=1), default=LAST, show_default=True,
              help="How many of the newest.")
@with_json
@with_session
def deliveries(session: CommandSession, inbox: str | None, last: int, as_json: bool) -> None:
    """What others sent to the inboxes, or people put in.

    The newest come last. An inbox is a connector of the type webhook.inbox.
    """
    settings = session.settings(connectors=True)
    with deliveries_placed(settings.connectors, settings.ledger):
        found = inbox_entries(inboxes_of(settings), inbox, last)
    if as_json:
        echo_json([each.to_json() for each in found])
        return
    now = SystemClock().now_ms()
    rows = [[each.inbox, each.id, ago(each.received_at, now), _came(each), _short(each)] for each in found]
    for each in table(("INBOX", "ID", "RECEIVED", "FROM", "BODY"), rows, 4) if rows else ():
        echo(each)
    if not rows:
        say("Nothing has come in yet." if inboxes_of(settings) else
            "There is no inbox: no connector has the type webhook.inbox.")


def _came(delivery: InboxEntry) -> str:
    if delivery.by is None:
        return "outside" if delivery.signed_with in (None, "secret") else f"outside, with {delivery.signed_with}"
    return f"{delivery.by}, again {delivery.repeats}" if delivery.repeats else f"{delivery.by}, by hand"


def _short(delivery: InboxEntry) -> str:
    body = delivery.body if isinstance(delivery.body, str) else text_of(delivery.body)
    return cut(body, _BODY_SHOWN)


@click.command()
@click.argument("delivery")
@click.option("--inbox", metavar="NAME", help="In which inbox it is, if several have one with this id.")
@with_json
@with_session
def replay(session: CommandSession, delivery: str, inbox: str | None, as_json: bool) -> None:
    """Put a delivery into its inbox once more.

    DELIVERY is its id or its cursor; `keep deliveries --json` lists both. The new delivery has an id of its own, so a
    script that works on each delivery once works on it again.
    """
    result = ask_host(session, "replay", delivery=delivery, inbox=inbox)
    if as_json:
        echo_json({"act": "replay", "subject": delivery, "result": result})
        return
    echo(plain(f"{result['repeats']} is in {result['inbox']} once more, as {result['id']}."))
