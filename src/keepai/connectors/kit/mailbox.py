"""The contract of a mailbox: params and results that the local, the IMAP and the Gmail mailbox share.

A connector that offers more extends these types with its own members.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from .params import AddressList


class SearchMail(TypedDict):
    """What to look for; every member is optional."""

    query: NotRequired[str | None]
    after: NotRequired[str | None]  # a `lastCursor`
    limit: NotRequired[int | None]


class GetMail(TypedDict):
    """Which message; in a mailbox with threads, also which thread."""

    id: str


class SendMail(TypedDict):
    """A message to send."""

    to: AddressList
    subject: str
    body: str
    cc: NotRequired[AddressList | None]
    inReplyTo: NotRequired[str | None]


class OutgoingMail(TypedDict):
    """A message whose subject may be left out: a reply, or a message of a mailbox that needs no subject."""

    to: AddressList
    body: str
    cc: NotRequired[AddressList | None]


class SentMail(TypedDict):
    """The message that was sent."""

    id: str


FoundMail = TypedDict("FoundMail", {
    "id": str, "from": str, "to": str, "subject": str, "date": str, "snippet": str,
})


class FullMail(FoundMail):
    """A message with its text."""

    body: str
    truncated: bool


class LabelledMail(TypedDict):
    """The message, and the labels that it has now."""

    id: str
    labels: list[str]
