"""`keep db`: the ledger itself, wherever it is."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ...config import Settings, typed_place
from ...engine.retention import before_ms, measure
from ...ledger.checks import check as checked
from ...ledger.opening import backup as backed_up
from ...ledger.opening import move as moved
from ...ledger.opening import vacuum as vacuumed
from ...model.clock import Clock, SystemClock
from ...model.errors import LedgerOlder
from ...model.ledger_address import is_address, shown
from ...reading.everything_shown import everything_shown
from ...reading.wording import count, size
from ..host_process import new_host
from ..webhooks import carry_deliveries
from .ask_host import ask_host, require_presence
from .command_session import CommandSession, with_json, with_session
from .text import echo, echo_json, field, plain, say
from .wiring import secrets_file

PROGRESS_MS = 2_000


@click.group()
def db() -> None:
    """The ledger itself."""


@db.command()
@with_json
@with_session
def check(session: CommandSession, as_json: bool) -> None:
    """Check that the ledger is whole and its account unchanged.

    It only reads, and may run beside a host. Exit code 1 if something is wrong.
    """
    settings = session.settings()
    with session.look() as look:
        found = checked(look.read)
    sound = all(each.sound for each in found)
    if as_json:
        echo_json({"path": shown(settings.ledger), "sound": sound, "checks": [each.to_json() for each in found]})
    else:
        said = [(each.name, f"{'ok' if each.sound else 'BROKEN'}: {each.said}") for each in found]
        echo(plain(shown(settings.ledger)), *(line for name, text in said for line in field(name, text)))
    sys.exit(0 if sound else 1)


def _present(session: CommandSession) -> str | Path:
    """Where the ledger is; a file is looked into first."""
    path = session.settings().ledger
    if not is_address(path):
        with session.look():
            pass
    return path


@db.command()
@click.argument("file", type=click.Path(dir_okay=False))
@with_json
@with_session
def backup(session: CommandSession, file: str, as_json: bool) -> None:
    """Copy the ledger into a new FILE, as it is at one moment.

    A host may run meanwhile. The copy is checked like `keep db check` does before it gets its name; it overwrites
    nothing. A restored backup does not know what happened since: look at the outside systems before you let it run.
    It is for a ledger in a file; PostgreSQL has tools of its own.
    """
    path = _present(session)
    found = backed_up(path, Path(file))
    taken = Path(file).stat().st_size
    if as_json:
        echo_json({"path": str(path), "file": file, "bytes": taken, "checks": [each.to_json() for each in found]})
    else:
        echo(f"{plain(file)} is a copy of {plain(str(path))}: {size(taken)}, checked and whole.")


@db.command()
@with_json
@with_session
def vacuum(session: CommandSession, as_json: bool) -> None:
    """Rewrite the file without its unused space.

    `keep db prune` leaves unused space. No host may run meanwhile, and the disk needs as much free space as the
    ledger takes. PostgreSQL does this by itself.
    """
    path = _present(session)
    before, after = vacuumed(path)
    if as_json:
        echo_json({"path": str(path), "bytes_before": before, "bytes": after})
    else:
        echo(f"{plain(str(path))}: {size(before)} before, {size(after)} now.")


@db.command()
@click.option("--to", required=True, metavar="PLACE", help="A file, or an address (postgresql://…), with no ledger.")
@click.option("--dry-run", is_flag=True, help="Move nothing; check the ledger and say what would be moved.")
@with_json
@with_session
def move(session: CommandSession, to: str, dry_run: bool, as_json: bool) -> None:
    """Move the whole ledger to another PLACE.

    It moves from a file to PostgreSQL, or back. No host may run at either place. Everything is copied, read again and
    compared, row by row and as it is shown; only then the old place is marked, so that no host begins there, and the
    new one becomes the ledger. If it is cut off at any moment, exactly one of the two is the ledger: type the same
    again. Nothing is deleted at the old place. Deliveries of webhooks are carried along; secrets stay where they are.
    """
    if not dry_run:
        require_presence(session)
    settings, target = session.settings(connectors=True), typed_place(to)
    clock = SystemClock()
    now = clock.now_ms()
    done = moved(
        settings.ledger, target, clock, lambda read: everything_shown(read, settings.policy, now),
        _Progress(clock).rows, lambda: carry_deliveries(settings.connectors, settings.ledger, target, clock),
        dry_run=dry_run,
    )
    if as_json:
        echo_json({**done.to_json(), "rows": done.rows})
        return
    rows = f"{count(done.rows, 'row')} in {count(len(done.tables), 'table')}"
    if done.state == "would_move":
        echo(f"{plain(done.source)} is whole. {rows} would be moved to {plain(done.target)}, which holds no ledger.")
        return
    what = "had been moved" if done.state == "finished" else f"was moved, {rows}, compared and checked"
    named = f'{"ledger" if is_address(target) else "path"} = "{plain(done.target)}"'
    echo(f"{plain(done.source)} {what}: {plain(done.target)} is the ledger now.",
         f"Name it under [keep] in keep.toml: {named}. No host begins at {plain(done.source)} any more.")
    old, new = secrets_file(settings), secrets_file(replace(settings, ledger=target))
    if old.exists() and old != new:
        echo(f"The secrets stayed where they were. Copy {plain(str(old))} to {plain(str(new))}.")


class _Progress:
    """Says on stderr how far a long move is, every few seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._said_ms = clock, clock.steady_ms()

    def rows(self, does: str, table: str, rows: int) -> None:
        """So many rows of a table were copied, or compared."""
        if self._clock.steady_ms() - self._said_ms > PROGRESS_MS:
            self._said_ms = self._clock.steady_ms()
            say(f"{does} {table}: {count(rows, 'row')}")


@db.command()
@with_json
@with_session
def accept_older(session: CommandSession, as_json: bool) -> None:
    """Go on with a ledger that is older, or another one.

    Keep refuses a ledger that was restored from a backup, or that lost its log. What was sent since is not on record in
    it and would be sent again. If there is a newer file, put that one back. After this command, each call is looked up
    outside before it is sent, until the workflow has caught up. Where a look-up cannot tell, a person is asked.

    Keep also refuses a new or different ledger in the place of one that was in use. It knows nothing of what that one
    sent, so nothing can be looked up: look in the outside systems yourself, and skip what must not happen again. Every
    workflow's account records who accepted it.
    """
    require_presence(session)
    settings = session.settings(connectors=True)
    was_older = asyncio.run(_accepted(settings))
    if as_json:
        echo_json({"path": shown(settings.ledger), "was_older": was_older})
    elif was_older:
        echo(f"{plain(shown(settings.ledger))} is the ledger from now on. Nothing has run yet.")
    else:
        echo(f"{plain(shown(settings.ledger))} has come as far as it ever had: there is nothing to accept.")


async def _accepted(settings: Settings) -> bool:
    try:
        async with new_host(settings):
            return False
    except LedgerOlder:
        async with new_host(settings, accept_older=True):
            return True


@db.command()
@click.option("--days", type=click.IntRange(min=1), metavar="N",
              help="Throw away what ended more than N days ago, instead of what policy.retention_days says.")
@click.option("--dry-run", is_flag=True, help="Throw nothing away; say how much it would be.")
@with_json
@with_session
def prune(session: CommandSession, days: int | None, dry_run: bool, as_json: bool) -> None:
    """Throw away the content of work that ended long ago.

    A host does it by itself once a day. Traces, PrepareResults and the payloads of ended events go. Every input,
    event, run and mutation stays on record, with what was sent outside and the whole account, and nothing that was
    done is done again. An event whose payload is gone cannot be reprocessed.
    """
    done = _measured(session, days) if dry_run else ask_host(session, "prune", days=days)
    if as_json:
        echo_json({"dry_run": dry_run, **done})
        return
    verb = "Would throw away" if dry_run else "Threw away"
    traces = f"{count(done['traces'], 'line')} of traces"
    what = f"{count(done['runs'], 'run')}, {count(done['events'], 'event')} and {traces}"
    if done["before_at"].startswith("1970"):
        echo("The policy retention_days keeps everything. --days N says otherwise for once.")
    elif not done["runs"] and not done["events"]:
        echo(f"Nothing that ended before {done['before_at']} has content left to throw away.")
    else:
        echo(f"{verb} the content of {what}, {size(done['bytes'])}: all ended before {done['before_at']}.")


def _measured(session: CommandSession, days: int | None) -> dict[str, Any]:
    kept = days or session.settings().policy.retention_days
    with session.look() as look:
        return dict(measure(look.read, before_ms(look.now_ms, kept)).to_json())
