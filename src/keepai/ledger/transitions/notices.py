"""Keeping who was told what: a message is noted before it leaves and after it was taken, or was not.

Nothing that runs depends on these rows, and no state moves with them, so they are no part of the account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..base import Row, Tx


def know_channels(tx: Tx, digests: Mapping[str, bool]) -> None:
    """Have a row for exactly these channels, each with whether it gets digests; one that failed is tried at once."""
    for row in tx.all("channel_all"):
        if row["name"] not in digests:
            tx.run("channel_remove", name=row["name"])
    for name, wanted in digests.items():
        tx.run("channel_add", name=name)
        tx.run("channel_retry_now", name=name)
        row = tx.row("channel_get", f"channel {name} was just added", name=name)
        if wanted is not (row["digest_at"] is not None):
            tx.run("channel_digests", name=name, digest_at=tx.now if wanted else None)


def begin_notice(tx: Tx, channel: Row, retry_at: int) -> None:
    """A message is about to leave by a channel that was seen so; if this host dies now, it waits until `retry_at`."""
    tx.expect(
        "channel_begin", f"another host tells by {channel['name']}", name=channel["name"],
        attempts=channel["attempts"], tried_at=channel["tried_at"] or 0, retry_at=retry_at, now=tx.now,
    )


def end_notice(
    tx: Tx, channel: str, told: Sequence[tuple[str, str]], digest_until: int | None, remark: str | None,
) -> None:
    """A message was taken: these questions, each with its mark, are told, and a digest reaches until then."""
    tx.run("channel_told", name=channel, now=tx.now, remark=remark)
    for question, mark in told:
        tx.run("notice_set", channel=channel, question=question, mark=mark, now=tx.now)
    if digest_until is not None:
        tx.run("channel_digests", name=channel, digest_at=digest_until)


def fail_notice(tx: Tx, channel: str, error: str, retry_at: int) -> None:
    """A message was not taken."""
    tx.run("channel_failed", name=channel, error=error, retry_at=retry_at, now=tx.now)


def forget_notices(tx: Tx, questions: Iterable[str]) -> None:
    """These questions are no longer open."""
    for question in questions:
        tx.run("notice_forget", question=question)
