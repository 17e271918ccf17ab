"""`keep demo`: plays `play` in a folder of its own, which it leaves behind only if it is told to."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..demo_folder import WORKFLOW
from ..demo_host import run_demo_page
from .command_session import with_json
from .demo_play import DemoPlay
from .text import echo, echo_json


@click.command()
@click.option("--keep", "folder", metavar="DIR", help="Do it in this new folder, and leave it there to look at.")
@click.option("--ui", is_flag=True, help="On a page, with buttons: send an e-mail, pull the plug, lose the answer.")
@click.option("--port", type=click.IntRange(0, 65535), help="The page's port; without it 7777, or the next free one.")
@click.option("--host", "address", type=click.Choice(["127.0.0.1", "::1", "localhost"]), metavar="ADDRESS",
              help="The page's address, such as 127.0.0.1; without it a name of its own.")
@with_json
def demo(folder: str | None, ui: bool, port: int | None, address: str | None, as_json: bool) -> None:
    """Kill a host in mid-mutation, and see nothing lost or doubled.

    In the terminal it plays by itself and ends. With --ui it prints the address of a page, on which you send the
    e-mails and kill the host, until Ctrl-C.
    """
    if ui and as_json:
        raise click.UsageError("--ui and --json do not go together: a page is for people.")
    with _place(folder) as place:
        if ui:
            run_demo_page(place, address, port)
            ok = True
        else:
            result = DemoPlay(place, quiet=as_json).play()
            ok = bool(result["ok"])
            if as_json:
                echo_json(result)
        if folder and not as_json:
            echo(f"\nIt is all in {folder}: cd there and try keep status, keep outputs {WORKFLOW}, keep dev.")
    sys.exit(0 if ok else 1)


@contextmanager
def _place(folder: str | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="keep-demo-") as made:
            yield Path(made)
        return
    try:
        Path(folder).mkdir(parents=True)
    except OSError as error:
        told = "it exists already" if isinstance(error, FileExistsError) else str(error.strerror)
        raise click.BadParameter(f"{folder} cannot be made: {told}.", param_hint="--keep") from None
    yield Path(folder).resolve()
