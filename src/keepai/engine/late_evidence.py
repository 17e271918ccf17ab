"""What becomes known of a mutation out of turn: a call that ends after it was given up, a question answered too late.

Evidence that it happened ends the doubt, if there still is one. Anything else that comes late is kept beside the
outcome on record and never changes it; where it contradicts that outcome, a person is asked to look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..connectors.base import Verdict
from ..ledger.rows import run_record
from ..ledger.transitions import mutations
from ..ledger.transitions.mutations import LateEvidence
from ..model.clock import iso
from ..model.codec import encode, sound, stored
from ..model.errors import Conflict, KeepError, LedgerStopped
from ..model.records import Mutation
from . import outside
from .host_parts import Parts
from .outcome import outcome_of


def watch_call(parts: Parts, mutation: Mutation, pending: outside.Pending) -> None:
    """A call that was given up but goes on: when it ends it is closed, and what it said is heard."""

    async def close() -> None:
        await asyncio.wait({pending})
        parts.call_ends.seen(mutation.id, parts.clock.steady_ms())
        await _tell(parts, mutation, lambda: _of_call(parts, mutation, pending))

    _keep(parts.calls, close())


def keep_answer(parts: Parts, mutation: Mutation, answer: outside.Answer) -> None:
    """What a call said could not be recorded, because this host had lost its place: it is heard from its next one."""
    if parts.ledger.sharing is None or not answer.closed:
        return  # nothing is written any more; or it goes on, and is heard when it has ended

    async def of_answer() -> LateEvidence:
        error = answer.refused or answer.unknown
        words = "the call returned " + answer.result if answer.result is not None else f"the call raised {error}"
        said = encode({"at": iso(parts.clock.now_ms()), "ended_late": sound(words)})
        if answer.result is not None:
            return await _happened(parts, mutation, said, stored(answer.result))
        return LateEvidence(said, happened=False if answer.refused is not None else None)

    _keep(parts.calls, _tell(parts, mutation, of_answer))


async def _tell(parts: Parts, mutation: Mutation, evidence: Callable[[], Awaitable[LateEvidence]]) -> None:
    """Close a call with what it said; a host that has lost its place does so when it has another."""
    sharing = parts.ledger.sharing
    while True:
        try:
            if await parts.ledger.write(mutations.close, mutation.id, await evidence(), barrier=True):
                parts.wake(mutation.workflow_id)
            return
        except LedgerStopped:
            if sharing is None or parts.ledger.stopped() is not None:
                raise
        except Conflict:  # the run is just being taken over
            if sharing is None:
                raise
            await asyncio.sleep(_AGAIN_S)
        while sharing.lost() is not None:  # noqa: ASYNC110 -- a thread of the store knows it first
            await asyncio.sleep(_AGAIN_S)


def watch_question(parts: Parts, mutation: Mutation, pending: outside.Question, *, proves: bool) -> None:
    """A question that was given up but goes on: an answer is heard also if it comes late."""

    async def listen() -> None:
        await asyncio.wait({pending})
        if not pending.cancelled() and pending.exception() is None:
            await hear(parts, mutation, pending.result(), proves=proves)

    _keep(parts.questions, listen())


async def hear(parts: Parts, mutation: Mutation, verdict: Verdict, *, proves: bool) -> None:
    """What the outside system said of a mutation, after somebody or something was quicker."""
    evidence = await _of_verdict(parts, mutation, verdict, proves=proves)
    if evidence is not None and await parts.ledger.write(mutations.hear, mutation.id, evidence, barrier=True):
        parts.wake(mutation.workflow_id)


def of_found(verdict: Verdict) -> str:
    """What a look-up found that cannot be used as a result, as it is kept."""
    return encode({_FOUND: sound(verdict.why), "result": verdict.result})


def was_found(mutation: Mutation) -> bool:
    """Whether a look-up has found it before, without a result that can be used."""
    return f'"{_FOUND}":' in (mutation.evidence or "")


_FOUND = "found_unusable"
_AGAIN_S = 0.2


async def _of_call(parts: Parts, mutation: Mutation, ended: outside.Pending) -> LateEvidence:
    """What a call says that ended late."""
    said = encode({"at": iso(parts.clock.now_ms()), "ended_late": sound(outside.said_late(ended))})
    if ended.cancelled():
        return LateEvidence(said)
    error = ended.exception()
    if error is not None:
        return LateEvidence(said, happened=False if isinstance(error, outside.DEFINITE) else None)
    return await _happened(parts, mutation, said, ended.result())


async def _of_verdict(parts: Parts, mutation: Mutation, verdict: Verdict, *, proves: bool) -> LateEvidence | None:
    """What a late answer says; that it is not there says something only if nothing could arrive any more."""
    if verdict.found:
        return LateEvidence(of_found(verdict), happened=True)
    words = {"applied": "it is there", "failed": "it is not there"}.get(verdict.status)
    if words is None:
        return None
    said = encode({"at": iso(parts.clock.now_ms()), "found_late": words})
    if verdict.status == "applied":
        return await _happened(parts, mutation, said, verdict.result)
    return LateEvidence(said, happened=False if proves else None)


async def _happened(parts: Parts, mutation: Mutation, said: str, result: object) -> LateEvidence:
    try:
        text = encode(result, what="the late result")
    except KeepError:  # it happened, but there is nothing that a script could be given
        return LateEvidence(said, happened=True)
    row = await parts.ledger.one("run_by_id", run_id=mutation.run_id)
    assert row is not None, f"{mutation.run_id} is never deleted"
    return LateEvidence(said, happened=True, result=text, outcome=outcome_of(run_record(row), text))


def _keep(where: set[asyncio.Task[None]], watching: Awaitable[None]) -> None:
    task = asyncio.ensure_future(watching)
    where.add(task)
    task.add_done_callback(where.discard)
