"""What a shell offers while somebody types: names of workflows and ids from the ledger. It prints nothing else.

`keep completion SHELL` prints the code that a shell needs for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from ...model.errors import KeepError
from ...reading.look import Look
from . import names
from .command_session import CommandSession, with_json
from .text import echo, echo_json, line

if TYPE_CHECKING:
    Kind = click.ParamType[str]
else:
    Kind = click.ParamType  # older releases of click do not say of what

OFFERED_MAX = 40  #: ids of one kind
HELP_CELLS = 50
_SHOWN = ("status", "title", "topic", "handler", "capability")


class IdParam(Kind):
    """An id of one of these kinds; the kind `workflow` means a workflow's name."""

    name = "id"

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The newest ids, and the names of workflows, that begin with what was typed."""
        told = ctx.find_root().params
        try:
            with CommandSession(told.get("config"), told.get("db")).look() as look:
                return [CompletionItem(value, help=line(what, HELP_CELLS)) for value, what in self._every(look)
                        if value.startswith(incomplete)]
        except (KeepError, OSError):
            return []  # a shell is no place for complaints

    def _every(self, look: Look) -> Iterator[tuple[str, str]]:
        if "workflow" in self._kinds:
            yield from ((str(row["name"]), str(row["status"])) for row in look.read.all("workflow_all"))
        for kind, _, _, listing in names.KINDS.values():
            if kind in self._kinds:
                yield from _things(look, listing)


#: The ways in which commands take an id.
WORKFLOW = IdParam("workflow")
ANYTHING = IdParam("workflow", *(kind for kind, *_ in names.KINDS.values()))


def _things(look: Look, listing: str) -> Iterator[tuple[str, str]]:
    for row in look.read.all("workflow_all"):
        more = names.LISTING_PARAMS.get(listing, {})
        for found in look.read.all(listing, workflow_id=row["id"], limit=OFFERED_MAX, **more):
            told = dict(found)
            yield str(told["id"]), " ".join(str(told[name]) for name in _SHOWN if told.get(name))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@with_json
def completion(shell: str, as_json: bool) -> None:
    """Print what a shell needs to complete workflows and ids.

    Put its output where your shell reads it: in bash and zsh by `eval "$(keep completion bash)"` in ~/.bashrc or
    ~/.zshrc, in fish in ~/.config/fish/completions/keep.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = click.get_current_context().find_root()
    name = root.info_name or "keep"  # or `keepai`, if that was typed
    code = click.shell_completion.ShellComplete.source(kind(root.command, {}, name, f"_{name.upper()}_COMPLETE"))
    if as_json:
        echo_json({"shell": shell, "script": code})
    else:
        echo(code)
