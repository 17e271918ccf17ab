"""What `keep demo --ui` adds to the page: three buttons on Home, and what became of each e-mail.

Only a server with a `DemoPage` has it, so it is not in pages/. The host of a demo is meant to be killed and
started again; its parent gives each one the same listeners, name and session, so that open pages keep working.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ...model.records import Mutation
from ...model.states import MutationStatus
from ...reading import lists
from ...reading.look import Look
from ...testing.crash import kill_self_at
from ..demo_folder import WORKFLOW, ForgetfulSheets, deliver, rows_by_subject
from .pages.workflow_pages import glance_at
from .sessions import HandedSession
from .site import show, site

#: At this point the row is on disk, and the host does not know it yet.
MID_CALL = "local.sheets.synced"

SHOWN = 6

#: Senders and subjects, used in turn.
LETTERS = (
    ("Fay <fay@example.com>", "Invoice {}"), ("Gus <gus@example.com>", "Order {}, please"),
    ("Hana <hana@example.com>", "Receipt {}"), ("Ivo <ivo@example.com>", "Offer {}"),
)


@dataclass(frozen=True)
class DemoEmail:
    """One e-mail and what came of it, in a sentence."""

    title: str
    input_id: str
    state: str
    sentence: str
    rows: int  # in the sheet's own file


class DemoPage:
    """The living example in `folder`."""

    def __init__(
        self, folder: Path, sheets: ForgetfulSheets, listeners: list[socket.socket], handed: HandedSession,
    ) -> None:
        self._folder, self._sheets = folder, sheets
        self.listeners, self.handed = listeners, handed

    def routes(self) -> list[Route]:
        """Home with the buttons, and what the buttons do."""
        return [
            Route("/", self._home),
            Route("/demo/mail", self._mail, methods=["POST"]),
            Route("/demo/plug", self._plug, methods=["POST"]),
            Route("/demo/lose", self._lose, methods=["POST"]),
        ]

    async def _home(self, request: Request) -> Response:
        glance = glance_at(request)
        return await show(request, "demo.html", lambda look, it: {**glance(look, it), **self._read(look, it)})

    async def _mail(self, request: Request) -> Response:
        """An e-mail arrives."""
        return await self._send(request, "An e-mail is on its way.")

    async def _plug(self, request: Request) -> Response:
        """An e-mail arrives; as soon as its row is written, this process is killed."""
        if await site(request).keep.needs_you():
            return _busy()
        kill_self_at(MID_CALL)
        return await self._send(request, "An e-mail is on its way. The host dies as soon as it has written the row.")

    async def _lose(self, request: Request) -> Response:
        """An e-mail arrives; its row is written, and the answer gets lost."""
        if await site(request).keep.needs_you():
            return _busy()
        self._sheets.lose_next()
        return await self._send(request, "An e-mail is on its way. The answer of the sheet will be lost.")

    async def _send(self, request: Request, told: str) -> Response:
        number = sum(1 for _ in (self._folder / "mail" / "new").iterdir()) + 2039
        sender, subject = LETTERS[number % len(LETTERS)]
        deliver(self._folder / "mail", [(sender, subject.format(number))])
        await site(request).keep.run_now(WORKFLOW)
        return PlainTextResponse(told)

    def _read(self, look: Look, request: Request) -> Mapping[str, Any]:
        rows = rows_by_subject(self._folder / "sheets")
        workflow = look.views.workflow_row(WORKFLOW)
        listed = lists.inputs(look.read, workflow["id"], lists.ListFilter(), SHOWN)
        hosts = look.read.all("look_hosts", limit=SHOWN)
        return {
            "rows": sum(rows.values()),
            "emails": sum(row["total"] for row in look.read.all("look_inputs_by_kind", workflow_id=workflow["id"])),
            "told": [_told(look, each, rows) for each in listed.rows],
            "hosts": hosts, "died": [host["pid"] for host in hosts[1:] if not host["ended_at"]],
        }


def _busy() -> Response:
    """While a person is asked, the workflow makes no call that could go wrong."""
    return PlainTextResponse("Not now: the workflow waits for your answer. Give it first.")


def _told(look: Look, came: lists.InputRow, rows: Counter[str]) -> DemoEmail:
    subject = came.input.title.rpartition(': "')[2].removesuffix('"')
    state, sentence = _sentence(look, came.outputs[-1]) if came.outputs else ("waiting", "It has just come in.")
    return DemoEmail(came.input.title, came.input.id, state, sentence, rows[subject])


def _sentence(look: Look, output: Mutation) -> tuple[str, str]:
    """What became of the row, from the account of its mutation."""
    moves = [row["target"] for row in look.views.history(output.workflow_id, output.id) if row["machine"] == "mutation"]
    doubted = MutationStatus.NEEDS_RECONCILE in moves
    if output.status is MutationStatus.INDETERMINATE:
        return "needs you", "The answer was lost, and the sheet cannot be asked. Did this happen?"
    if output.resolution:
        return "applied", "You said what became of it, and the work went on."
    if output.status is MutationStatus.APPLIED and doubted:
        return "applied", "The host died before it knew. The next one checked the sheet: it had happened."
    if output.status is MutationStatus.APPLIED:
        return "applied", "Its row was written."
    return output.status.value, "Its row is under way."
