"""Deploying versions, and what people do to a workflow as a whole. Every act is kept in `action`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...model.codec import Json, encode, stored
from ...model.errors import Refused
from ...model.permissions import Grant
from ...model.records import Approval, Mutation, Run
from ...model.states import (
    UNFINISHED,
    WORKFLOW,
    ApprovalStatus,
    IllegalMove,
    InputStatus,
    ItemStatus,
    MutationStatus,
    Phase,
    ProposalStatus,
    Status,
    Waiting,
    WorkflowStatus,
    check,
)
from ..base import Behind, Row, Tx
from . import approvals, events, items, mutations, runs
from .mutations import Doubt
from .runs import Carry, Stop


@dataclass(frozen=True)
class Version:
    """A script version that is about to be stored and activated."""

    name: str
    source: str
    hash: str
    manifest: str
    author: str
    impact: str
    topics: Mapping[str, str | None]  # topic → the consumer that subscribes to it
    handlers: Mapping[str, str]  # handler → kind
    due: Mapping[str, int] = field(default_factory=dict)  # handler → when it is due; every other keeps its due time
    grants: Mapping[str, Grant] = field(default_factory=dict)  # by capability
    actor: str = "person"
    waiting: Waiting | None = None  # what keep.toml says of what goes on while a run waits for a person


def deploy(
    tx: Tx, workflow_id: str | None, version: Version, number: tuple[int, int], before: tuple[int, int] | None = None,
) -> str:
    """Store a version and make it the active one after `before`: topics, handlers, grants, all in one step."""
    major, minor = number
    if workflow_id is None:
        workflow_id = tx.new_id("wf")
        tx.run("workflow_insert", workflow_id=workflow_id, name=version.name, major=major, minor=minor, now=tx.now)
        tx.tell(workflow_id, "workflow", workflow_id, None, WorkflowStatus.ACTIVE, version.name)
    else:
        assert before is not None, "a workflow that exists has a version"
        tx.expect(
            "workflow_activate", f"{version.name!r} is no longer at version {before[0]}.{before[1]}",
            workflow_id=workflow_id, major=major, minor=minor, before_major=before[0], before_minor=before[1],
            now=tx.now,
        )
    tx.run(
        "script_insert", workflow_id=workflow_id, major=major, minor=minor, source=version.source, hash=version.hash,
        manifest=version.manifest, author=version.author, impact=version.impact, now=tx.now,
    )
    overtake_proposals(tx, version.name, f"made before version {major}.{minor} was deployed")
    _declare(tx, workflow_id, version)
    allow(tx, workflow_id, version.grants)
    if version.waiting is not None:
        set_waiting(tx, workflow_id, version.waiting, version.actor, configured=True)
    note(tx, workflow_id, "deploy", f"{workflow_id} {major}.{minor}", version.actor, {"hash": version.hash})
    return workflow_id


def overtake_proposals(tx: Tx, name: str, note: str, proposer: str | None = None) -> None:
    """What is proposed for a workflow, by one proposer or by all, is for what was there before."""
    for row in tx.all("proposal_supersede", name=name, note=note, proposer=proposer, now=tx.now):
        where = row["workflow_id"] or ""
        tx.tell(where, "proposal", row["id"], ProposalStatus.WAITING, ProposalStatus.SUPERSEDED, note)


def _declare(tx: Tx, workflow_id: str, version: Version) -> None:
    tx.run("topic_unsubscribe_all", workflow_id=workflow_id)
    tx.run("handler_absent_all", workflow_id=workflow_id, now=tx.now)
    for topic, subscriber in version.topics.items():
        tx.run("topic_upsert", workflow_id=workflow_id, name=topic, subscriber=subscriber)
    for handler, kind in version.handlers.items():
        tx.run(
            "handler_upsert", workflow_id=workflow_id, handler=handler, kind=kind, now=tx.now,
            due_at=version.due.get(handler),
        )
    tx.run("handler_forget_absent", workflow_id=workflow_id)


def allow(tx: Tx, workflow_id: str, grants: Mapping[str, Grant]) -> None:
    """Set what a workflow may do."""
    before = {row["capability"]: row for row in tx.all("grant_all", workflow_id=workflow_id)} if grants else {}
    for capability, rule in grants.items():
        said, was = {"mode": rule.mode, "rule": rule.to_text(), "account": rule.account}, before.get(capability)
        hit = tx.hits(
            "grant_upsert", workflow_id=workflow_id, capability=capability, configured=int(rule.configured),
            seq=tx.tick(workflow_id), now=tx.now, **said,
        )
        if hit and (was is None or any(was[name] != value for name, value in said.items())):
            tx.tell(workflow_id, "grant", capability, was["mode"] if was else None, rule.mode, said["rule"])


def grant_all(
    tx: Tx, workflow_id: str, rules: Mapping[str, Grant], actor: str, waiting: Waiting | None = None,
) -> None:
    """A person sets several capabilities at once, and keep.toml what goes on while a run waits."""
    if waiting is not None:
        set_waiting(tx, workflow_id, waiting, actor, configured=True)
    for capability, rule in rules.items():
        grant(tx, workflow_id, capability, rule, actor)


def grant(tx: Tx, workflow_id: str, capability: str, rule: Grant, actor: str) -> None:
    """A person allows, asks to be asked for, or denies one capability."""
    allow(tx, workflow_id, {capability: rule})
    note(tx, workflow_id, "grant", capability, actor, stored(rule.on_record()))


def move(tx: Tx, workflow_id: str, target: WorkflowStatus, act: str, actor: str) -> None:
    """A person pauses, resumes or stops a workflow."""
    row = tx.one("workflow_by_id", workflow_id=workflow_id)
    assert row is not None, f"workflow {workflow_id} was looked up before"
    source = WorkflowStatus(row["status"])
    try:
        check(WORKFLOW, source, target)
    except IllegalMove:
        raise Refused(f"{act} does not fit: the workflow {row['name']!r} is {source}.") from None
    tx.expect(
        "workflow_move", f"workflow {row['name']!r} is no longer {source}", workflow_id=workflow_id,
        source=source, target=target, now=tx.now,
    )
    tx.tell(workflow_id, "workflow", workflow_id, source, target)
    note(tx, workflow_id, act, workflow_id, actor, None)


def set_waiting(tx: Tx, workflow_id: str, waiting: Waiting, actor: str, *, configured: bool = False) -> None:
    """What else of a workflow goes on while a run of it waits: a person says so, or keep.toml where no person did."""
    before = tx.row("workflow_by_id", f"there is no workflow {workflow_id}", workflow_id=workflow_id)
    hit = tx.hits(
        "workflow_set_waiting", workflow_id=workflow_id, waiting=waiting, configured=int(configured), now=tx.now)
    if configured and (not hit or before["waiting"] == waiting):
        return
    tx.tick(workflow_id)  # whoever has decided something decides it anew
    tx.tell(workflow_id, "waiting", workflow_id, before["waiting"], waiting)
    if not configured:
        note(tx, workflow_id, "set", workflow_id, actor, {"waiting": str(waiting)})


def run_now(tx: Tx, workflow_id: str, actor: str) -> list[str]:
    """Queue every producer and routine."""
    queued = _queue(tx, workflow_id)
    note(tx, workflow_id, "run_now", workflow_id, actor, {"queued": list(queued)})
    return queued


def arrive(tx: Tx, workflow_id: str, handlers: Sequence[str], since: int | None = None) -> None:
    """Something came in that these producers and routines read: they are due now, unless they began after `since`.
    Whoever runs the workflow is told."""
    queued = [tx.hits("handler_arrived", workflow_id=workflow_id, handler=handler, since=since, now=tx.now)
              for handler in handlers]
    if any(queued) and tx.one("workflow_here", workflow_id=workflow_id, epoch=tx.epoch) is None:
        tx.run("nudge_insert", workflow_id=workflow_id)
        tx.one("nudge_others")


def _queue(tx: Tx, workflow_id: str, handler: str | None = None) -> list[str]:
    rows = tx.all("handler_queue", workflow_id=workflow_id, handler=handler, now=tx.now)
    return [str(row["handler"]) for row in rows]


def skip_event(tx: Tx, workflow_id: str, event_id: str, actor: str) -> None:
    """A person skips a waiting event."""
    if not events.skip(tx, workflow_id, event_id):
        event = tx.one("event_by_id", event_id=event_id)
        assert event is not None
        raise Refused(f"Event {event_id} cannot be skipped: {_held(event)}")
    note(tx, workflow_id, "skip_event", event_id, actor, None)


def reprocess_event(tx: Tx, workflow_id: str, event_id: str, actor: str) -> None:
    """A person has an ended event processed once more; what came of it before stays on record."""
    if not events.reprocess(tx, workflow_id, event_id):
        event = tx.one("event_by_id", event_id=event_id)
        assert event is not None, f"event {event_id} was looked up before"
        raise Refused(f"Event {event_id} cannot be reprocessed: {_held(event)}")
    note(tx, workflow_id, "reprocess", event_id, actor, None)


def reprocess_item(tx: Tx, item: Row, actor: str) -> None:
    """A person has an item worked on once more; its routine is queued, what was done before stays on record."""
    routine = items.reprocess(tx, item)
    queued = _queue(tx, item["workflow_id"], routine)
    if not queued:
        raise Refused(
            f"Item {item['id']} cannot be reprocessed: the active version has no routine {routine!r} to do it."
        )
    note(tx, item["workflow_id"], "reprocess", item["id"], actor, {"queued": list(queued)})


def _held(event: Row) -> str:
    if event["reserved_by"]:
        return f"run {event['reserved_by']} has reserved it. Skip that run, or wait until it has ended."
    return f"it is {event['status']} already."


def skip_input(tx: Tx, workflow_id: str, input_id: str, actor: str) -> list[str]:
    """A person skips an input; returns the events skipped with it."""
    where = {"workflow_id": workflow_id, "input_id": input_id}
    held = tx.one("event_reserved_of_input", **where)
    if held is not None:
        raise Refused(
            f"Input {input_id} cannot be skipped: run {held['reserved_by']} has reserved its event {held['id']}. "
            "Skip that run, or wait until it has ended."
        )
    if tx.one("input_done", input_id=input_id) is not None:
        raise Refused(f"Input {input_id} cannot be skipped: it is done already, and nothing of it waits.")
    if not tx.hits("input_skip", input_id=input_id, now=tx.now):
        raise Refused(f"Input {input_id} is skipped already.")
    tx.tell(workflow_id, "input", input_id, InputStatus.ACTIVE, InputStatus.SKIPPED)
    skipped = [str(row["id"]) for row in tx.all("event_of_skipped_inputs", **where)]
    for event_id in skipped:
        events.skip(tx, workflow_id, event_id)
    _skip_item_of(tx, input_id)
    note(tx, workflow_id, "skip_input", input_id, actor, {"events": list(skipped)})
    return skipped


def _skip_item_of(tx: Tx, input_id: str) -> None:
    """An input that stands for an item takes it along; one that a run has in hand is that run's question."""
    item = tx.one("item_of_input", input_id=input_id)
    if item is None:
        return
    held = tx.one("item_held", item_id=item["id"])
    if held is not None and item["status"] in UNFINISHED:
        raise Refused(f"Input {input_id} cannot be skipped: run {held['held_by']} has its item in hand. Skip that run.")
    if item["status"] in UNFINISHED:
        items.skip(tx, item["id"])


def retry_run(tx: Tx, run: Run, how: Carry, actor: str) -> Run:
    """A person has a stopped run tried again."""
    new = runs.carry_on(tx, run, how)
    note(tx, run.workflow_id, "retry", run.id, actor, {"was": run.status, "run": new.id})
    return new


def skip_run(
    tx: Tx, run: Run, mutation: Mutation | None, outcome: str, actor: str, again_at: int | None = None,
) -> None:
    """A person gives up what a run wanted to do."""
    note(tx, run.workflow_id, "skip_run", run.id, actor, {"was": run.status})
    if mutation is not None and mutation.status is MutationStatus.INDETERMINATE:
        mutations.resolve(tx, mutation, MutationStatus.SKIPPED, f"skipped by {actor}")
    _go_without(tx, run, outcome, again_at)


def _go_without(tx: Tx, run: Run, outcome: str, again_at: int | None = None) -> None:
    """A consumer's `next` is told, its events end as skipped; a routine is replayed without the item it stopped in."""
    item_id = items.of_run(tx, run)
    if item_id is not None:
        items.skip(tx, item_id)
        own = run.item_id is not None
        runs.carry_on(tx, run, Carry(Status.SUPERSEDED, run.number, run.phase, keep=own, trigger="person"))
    elif run.phase in (Phase.PREPARING, Phase.EXECUTING):
        runs.abandon(tx, run)
        runs.look_later(tx, run, again_at)
    else:
        runs.void(tx, run)
        runs.resume(tx, run, Phase.EMITTING, outcome)


def keep_applied(tx: Tx, run: Run, mutation: Mutation, payload_hash: str, how: Carry, actor: str) -> None:
    """A person keeps what was applied, though the script wants another content now: the run goes on with it."""
    note(tx, run.workflow_id, "keep", mutation.id, actor, {"payload": payload_hash})
    tx.expect("mutation_keep", f"mutation {mutation.id} is not applied", mutation_id=mutation.id, kept=payload_hash)
    items.stop(tx, run, ItemStatus.FAILED)
    runs.carry_on(tx, run, how)


def approve(tx: Tx, approval: Approval, actor: str) -> None:
    """A person says yes to exactly this call."""
    approvals.decide(tx, approval, ApprovalStatus.APPROVED, actor)
    note(tx, approval.workflow_id, "approve", approval.id, actor, {"digest": approval.digest})


def reject(tx: Tx, run: Run, approval: Approval, outcome: str, actor: str) -> None:
    """A person says no: the run goes on without the call."""
    approvals.decide(tx, approval, ApprovalStatus.REJECTED, actor)
    note(tx, approval.workflow_id, "reject", approval.id, actor, {"digest": approval.digest})
    _go_without(tx, run, outcome)


def happened(tx: Tx, run: Run, mutation: Mutation, result: str, outcome: str | None, actor: str) -> None:
    """A person says that a mutation happened: the run goes on with that."""
    note(tx, run.workflow_id, "happened", mutation.id, actor, {"result": result})
    mutations.confirm_applied(tx, run, mutation, result, outcome, f"{actor}: it happened")


def did_not_happen(tx: Tx, run: Run, mutation: Mutation, why: Stop, actor: str) -> None:
    """A person says that a mutation did not happen: the work is tried again at once."""
    note(tx, run.workflow_id, "did_not_happen", mutation.id, actor, None)
    mutations.confirm_absent(tx, run, mutation, why, f"{actor}: it did not happen")


def try_again(tx: Tx, run: Run, mutation: Mutation, doubt: Doubt, actor: str) -> None:
    """A person wants the outside system asked once more, from the start."""
    note(tx, run.workflow_id, "try_again", mutation.id, actor, None)
    mutations.still_doubt(tx, run, mutation, doubt)


def seen(tx: Tx, mutation: Mutation, actor: str) -> None:
    """A person has seen what contradicts the outcome of a mutation; the outcome and the evidence stay."""
    tx.expect(
        "mutation_seen", f"what contradicts mutation {mutation.id} has changed", mutation_id=mutation.id,
        contradicted_at=mutation.contradicted_at,
    )
    note(tx, mutation.workflow_id, "seen", mutation.id, actor, {"evidence": mutation.evidence})


def finish_run(tx: Tx, run: Run, actor: str) -> None:
    """A person ends a run whose `next` cannot: events consumed, result kept, nothing published."""
    note(tx, run.workflow_id, "finish", run.id, actor, {"was": run.status})
    runs.commit_consumer(tx, runs.resume(tx, run, Phase.EMITTING), runs.ConsumerEnd())


def certify(tx: Tx, script_hash: str, facts: str, actor: str) -> None:
    """Keep a certificate: Keep itself has tried this script and found no fault."""
    tx.run("certificate_put", script_hash=script_hash, facts=facts, actor=actor, now=tx.now)
    note(tx, None, "certify", script_hash, actor, stored(facts))


def note(tx: Tx, workflow_id: str | None, act: str, subject: str, actor: str, detail: Json) -> None:
    """Keep what a person did, in the transaction that does it."""
    said = encode(detail)
    tx.run(
        "action_insert", workflow_id=workflow_id, act=act, subject=subject, subject_id=subject, actor=actor,
        detail=said, now=tx.now, shown=tx.shown, entry=tx.entry,
    )
    tx.tell(workflow_id or "", "act", subject, None, act, facts=said, actor=actor)


def accept_older(tx: Tx, actor: str, behind: Behind | None) -> None:
    """A person goes on with a ledger that was put back or moved, or with another; every workflow's account says so."""
    moved, rows = tx.one("moved_mark"), tx.all("workflow_all")
    if moved is not None:
        tx.run("moved_forget", mover=moved["mover"])
    for row in rows:
        note(tx, row["id"], "accept_older", row["id"], actor, None)
        if behind is not None:
            tx.run("put_back_insert", workflow_id=row["id"], seq=tx.tick(row["id"]), now=tx.now, **vars(behind))
    if not rows:
        note(tx, None, "accept_older", tx.host, actor, None)


def end_host(tx: Tx) -> None:
    """This host ends in order: nothing of it was cut off."""
    tx.run("host_end", epoch=tx.epoch, now=tx.now)


def reschedule(
    tx: Tx, workflow_id: str, handler: str, next_run_at: int | None, wake_at: int | None, recheck_at: int | None,
) -> None:
    """The wall clock was set back: bring due times near again."""
    tx.run(
        "handler_reschedule", workflow_id=workflow_id, handler=handler, next_run_at=next_run_at, wake_at=wake_at,
        recheck_at=recheck_at, now=tx.now,
    )


def rest_but(tx: Tx, workflow_id: str) -> None:
    """On a copy on which something is tried: no other workflow runs, and in this one nothing begins by the clock."""
    tx.run("workflow_rest_others", workflow_id=workflow_id, now=tx.now)
    tx.run("handler_rest_timed", workflow_id=workflow_id, now=tx.now)
