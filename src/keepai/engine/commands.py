"""The only door for what people do. Every act is checked against the present state and kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from ..ledger.base import Row, Sharing
from ..ledger.rows import approval_record, mutation_record, open_runs, run_record
from ..ledger.transitions import by_hand, proofs, proposals, repairs, runs, shown_acts, workflows
from ..ledger.transitions.runs import Carry
from ..ledger.transitions.shown_acts import Repeated, ShownAct
from ..model.acts import ANSWERS
from ..model.codec import Json, encode
from ..model.errors import Conflict, NotFound, OutcomeUnknown, Refused, Transient
from ..model.operations import Step
from ..model.permissions import grant_of
from ..model.principals import LET_IN, ROLES, Principal, PrincipalKind, Role
from ..model.records import Approval, Mutation, Proposal, Run
from ..model.states import (
    DOUBTFUL,
    ApprovalStatus,
    MutationStatus,
    Phase,
    Reason,
    RepairStatus,
    Status,
    Waiting,
    WorkflowStatus,
)
from . import approval, failure, permission, proposal, reconcile, repair, scheduler, sent_in, tokens_and_pins
from .approval import Standing
from .deploy import Deployment, Grants, bound
from .host import Host
from .host_parts import Parts
from .outcome import SKIPPED, outcome_of
from .relaunch import carry, last_mutation

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")

T = TypeVar("T")
P = ParamSpec("P")

def _once(act: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """The same act, sent once more for what was shown, does nothing and gives what it gave."""

    @wraps(act)
    async def done(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await act(*args, **kwargs)
        except Repeated as before:
            return cast("T", before.result)

    return done


class Commands:
    """Acts on workflows, runs, events and inputs; `shown` is the version that the person was looking at."""

    def __init__(self, parts: Parts, host: Host) -> None:
        self._parts, self._host = parts, host

    async def accept_older(self, actor: str) -> None:
        """A person says that the ledger, which is older than it was, or another, is the one to go on with."""
        await self._parts.ledger.write(workflows.accept_older, actor, self._parts.ledger.behind, barrier=True)

    async def host_dead(self, host: str, actor: str) -> None:
        """A person says of a host that was cut off that it is dead: nothing of its calls can leave any more."""
        await self._sharing().end_host(host, actor, dead=True)
        self._host.wake()

    async def host_drain(self, host: str, actor: str) -> None:
        """A person wants a host to hand over its work and end."""
        await self._sharing().end_host(host, actor, dead=False)

    def _sharing(self) -> Sharing:
        sharing = self._parts.ledger.sharing
        if sharing is None:
            raise Refused("This ledger is a file, and has one host at a time: end its process, and start another.")
        return sharing

    async def propose(
        self, source: str, cases: str | None, grants: Grants, why: str, workflow_id: str | None, work: Json, actor: str,
    ) -> Proposal:
        """Have a script wait for a person."""
        return await self._unless_overtaken(proposal.propose(
            self._parts, source, cases, grants, why, workflow_id, work, actor))

    async def accept(
        self, id: str, grants: Mapping[str, object] | None, actor: str, shown: str | None = None,
    ) -> Deployment:
        """Deploy a proposal exactly as it was shown; `shown` is its digest."""
        row = await self._proposal(id)
        if shown is None:
            raise Refused(f"Say which {id} you were shown, by its digest: `keep proposals {id}` shows both.")
        done = await self._unless_overtaken(proposal.accept(self._parts, row, grants, shown, actor))
        if self._parts.ledger.sharing is not None:
            await self._host.join()  # a new workflow is nobody's yet
        return done

    @_once
    async def decline(self, id: str, why: str, actor: str, shown: int | None = None) -> None:
        """Say no to a proposal."""
        row = await self._proposal(id)
        act = await self._judged(ShownAct("decline", row["workflow_id"] or "", id, actor, shown))
        await proposal.check_waits(self._parts, row)
        await self._act(act, proposals.decline, row, proposal.words(why), actor)

    @_once
    async def withdraw(self, id: str, actor: str, shown: int | None = None) -> None:
        """Take back a proposal of one's own."""
        row = await self._proposal(id)
        act = await self._judged(ShownAct("withdraw", row["workflow_id"] or "", id, actor, shown))
        await proposal.check_waits(self._parts, row)
        if row["proposer"] != actor:
            raise Refused(f"{id} was proposed by {row['proposer']}, and you are {actor}. `keep decline` declines it.")
        await self._act(act, proposals.withdraw, row, actor)

    async def _proposal(self, id: str) -> Row:
        row = await self._parts.ledger.one("proposal_by_id", proposal_id=id)
        if row is None:
            raise NotFound(f"There is no proposal {id}. `keep proposals` lists them.")
        return row

    async def agent_add(self, name: str, role: str, actor: str) -> str:
        """A person lets an agent in; gives its token, of which only the hash is kept."""
        if await self._parts.ledger.look(tokens_and_pins.pin_kept) is None:
            raise Refused("There is no PIN yet. Once an agent is here, acts of people need one: set it first, with "
                          "`keep agent pin`.")
        return await self._let_in(PrincipalKind.AGENT, name, role, actor)

    async def agent_remove(self, name: str, actor: str) -> None:
        """A person lets an agent in no more."""
        await self._unless_overtaken(self._parts.ledger.write(
            proofs.remove, PrincipalKind.AGENT, name, actor, barrier=True))

    async def user_add(self, name: str, role: str, actor: str) -> str:
        """An owner lets a person in; gives their token, of which only the hash is kept."""
        return await self._let_in(PrincipalKind.PERSON, name, role, actor)

    async def user_remove(self, name: str, actor: str) -> None:
        """An owner lets a person in no more."""
        await self._unless_overtaken(self._parts.ledger.write(
            proofs.remove, PrincipalKind.PERSON, name, actor, barrier=True))

    async def _let_in(self, kind: PrincipalKind, name: str, role: str, actor: str) -> str:
        if not _NAME.fullmatch(name):
            raise Refused(f"{name[:80]!r} is no name: those of {LET_IN[kind]}s have 1 to 40 of a-z, 0-9, `.`, `_` and "
                          "`-`, and begin with a letter or a digit.")
        if role not in ROLES[kind]:
            raise Refused(f"The roles of {LET_IN[kind]}s are {', '.join(sorted(ROLES[kind]))}; {role[:80]!r} is none.")
        token = tokens_and_pins.new_token(kind)
        await self._unless_overtaken(self._parts.ledger.write(
            proofs.add, Principal(kind, name, Role(role)), tokens_and_pins.token_hash(token), actor, barrier=True))
        return token

    async def set_pin(self, pin: str, actor: str) -> None:
        """A person chooses the PIN."""
        made = await asyncio.to_thread(tokens_and_pins.pin_hash, pin)
        await self._parts.ledger.write(proofs.set_pin, made, actor, barrier=True)

    @_once
    async def pause(self, workflow: str, actor: str, shown: int | None = None) -> None:
        """Start nothing more of a workflow; a run that is under way ends."""
        await self._move(workflow, WorkflowStatus.PAUSED, "pause", actor, shown)

    @_once
    async def resume(self, workflow: str, actor: str, shown: int | None = None) -> None:
        """Let a paused or stopped workflow run again."""
        await self._move(workflow, WorkflowStatus.ACTIVE, "resume", actor, shown)

    @_once
    async def stop(self, workflow: str, actor: str, shown: int | None = None) -> None:
        """End a workflow; what it did stays on record."""
        await self._move(workflow, WorkflowStatus.STOPPED, "stop", actor, shown)

    @_once
    async def set(self, workflow: str, waiting: str, actor: str, shown: int | None = None) -> None:
        """Say what else of a workflow goes on while a run of it waits for a person."""
        if waiting not in [*Waiting]:
            raise Refused(f"waiting is {', '.join(Waiting)}, not {waiting!r}.")
        row = await self._workflow(workflow)
        said = encode({"waiting": waiting})
        act = await self._judged(ShownAct("set", row["id"], row["id"], actor, shown, detail=said))
        await self._act(act, workflows.set_waiting, row["id"], Waiting(waiting), actor)

    @_once
    async def run_now(self, workflow: str, actor: str, shown: int | None = None) -> list[str]:
        """Queue every producer of a workflow; gives their names."""
        row = await self._workflow(workflow)
        act = await self._judged(ShownAct("run_now", row["id"], row["id"], actor, shown))
        if row["status"] != WorkflowStatus.ACTIVE:
            raise Refused(f"The workflow {row['name']!r} is {row['status']}; resume it first.")
        return await self._act(act, workflows.run_now, row["id"], actor)

    @_once
    async def grant(
        self, workflow: str, capability: str, rule: object, actor: str, shown: int | None = None,
    ) -> None:
        """Allow, ask or deny a capability; a run that waited for it goes on."""
        row = await self._workflow(workflow)
        wanted = bound(self._parts, capability, grant_of(rule, capability))
        waiting = await self._parts.ledger.look(permission.waiting_for, row["id"], capability)
        if not waiting:  # what waited for it when it was shown has moved, and is the open run now
            run = await self._parts.ledger.one("run_open", workflow_id=row["id"])
            waiting = [run["id"]] if run else []
        about = (row["id"], capability, *waiting)
        act = await self._judged(ShownAct("grant", row["id"], capability, actor, shown, about, wanted.on_record()))
        await self._act(act, workflows.grant, row["id"], capability, wanted, actor)

    async def send(
        self, to: str, data: Json, id: str | None, title: str | None, actor: str, shown: int | None = None,
    ) -> dict[str, Json]:
        """Put something into a topic, or into an inbox, by hand; gives what it became."""
        meant = await self._parts.ledger.look(sent_in.topic_of, self._parts, to)
        if meant is None:
            sent = await sent_in.deliver(self._parts, to, data, id, actor)
            return await self._put_in(to, sent, "send", actor)
        row, topic = meant
        wanted = sent_in.checked(self._parts, row, topic, data, id, title)
        act = await self._judged(ShownAct("send", row["id"], row["id"], actor, shown))
        return await self._act(act, by_hand.send, row["id"], wanted, actor)

    async def replay(self, delivery: str, inbox: str | None, actor: str) -> dict[str, Json]:
        """Put a delivery in once more; gives the id of the new one."""
        sent = await sent_in.replay(self._parts, delivery, inbox, actor)
        return await self._put_in(str(sent["inbox"]), sent, "replay", actor)

    async def _put_in(self, inbox: str, sent: dict[str, Json], act: str, actor: str) -> dict[str, Json]:
        await self._parts.ledger.write(by_hand.send_to_inbox, inbox, sent, act, actor, barrier=True)
        self._parts.inboxes[inbox].tell_arrival()
        self._host.wake()
        return sent

    @_once
    async def skip_event(self, event_id: str, actor: str, shown: int | None = None) -> None:
        """Skip a waiting event."""
        row = await self._parts.ledger.one("event_by_id", event_id=event_id)
        if row is None:
            raise NotFound(f"There is no event {event_id}.")
        act = await self._judged(ShownAct("skip_event", row["workflow_id"], event_id, actor, shown))
        await self._act(act, workflows.skip_event, row["workflow_id"], event_id, actor)

    @_once
    async def reprocess(self, event_id: str, actor: str, shown: int | None = None) -> None:
        """Process an ended event, or a finished item, once more, as a new attempt."""
        item = await self._parts.ledger.one("item_by_id", item_id=event_id)
        if item is not None:
            act = await self._judged(ShownAct("reprocess", item["workflow_id"], event_id, actor, shown))
            await self._act(act, workflows.reprocess_item, item, actor)
            return
        row = await self._parts.ledger.one("event_by_id", event_id=event_id)
        if row is None:
            raise NotFound(f"There is no event or item {event_id}.")
        act = await self._judged(ShownAct("reprocess", row["workflow_id"], event_id, actor, shown))
        await self._act(act, workflows.reprocess_event, row["workflow_id"], event_id, actor)

    @_once
    async def skip_input(self, input_id: str, actor: str, shown: int | None = None) -> list[str]:
        """Skip an input; gives the events skipped with it."""
        row = await self._parts.ledger.one("input_by_id", input_id=input_id)
        if row is None:
            raise NotFound(f"There is no input {input_id}.")
        act = await self._judged(ShownAct("skip_input", row["workflow_id"], input_id, actor, shown))
        return await self._act(act, workflows.skip_input, row["workflow_id"], input_id, actor)

    @_once
    async def retry(self, run_id: str, actor: str, shown: int | None = None) -> str:
        """Try a stopped run again now; gives the id of the run that carries on."""
        run = await self._run(run_id)
        act = await self._judged(ShownAct("retry", run.workflow_id, run_id, actor, shown))
        if run.state not in (Status.PAUSED, Status.FAILED):
            raise Refused(f"Run {run_id} cannot be retried: it is {run.status}.")
        new = await self._act(act, workflows.retry_run, run, await self._how(run), actor)
        return new.id

    @_once
    async def skip_run(self, run_id: str, actor: str, shown: int | None = None) -> None:
        """Give up what a stopped run wanted to do; `next` is told so."""
        run = await self._run(run_id)
        act = await self._judged(ShownAct("skip_run", run.workflow_id, run_id, actor, shown))
        mutation = await self._parts.ledger.look(last_mutation, run)
        if run.state not in (Status.PAUSED, Status.FAILED):
            raise Refused(f"Run {run_id} cannot be skipped: it is {run.status}.")
        self._check_skippable(run, mutation)
        await self._act(act, workflows.skip_run, run, mutation, SKIPPED, actor, await self._again_at(run))

    @_once
    async def finish(self, run_id: str, actor: str, shown: int | None = None) -> None:
        """End a run whose mutation is applied and whose `next` cannot run: events consumed, nothing published."""
        run = await self._run(run_id)
        act = await self._judged(ShownAct("finish", run.workflow_id, run_id, actor, shown))
        if run.state not in (Status.PAUSED, Status.FAILED) or run.phase not in (Phase.MUTATED, Phase.EMITTING):
            raise Refused(
                f"Run {run_id} cannot be finished: it is {run.status} in {run.phase}. "
                "Only a run that stopped after its mutation can."
            )
        await self._act(act, workflows.finish_run, run, actor)

    @_once
    async def resolve(
        self, mutation_id: str, answer: str, result: Json, actor: str, shown: int | None = None,
    ) -> None:
        """A person says what became of a mutation that nobody could verify, or has seen what contradicts it."""
        if answer not in ANSWERS:
            raise Refused(f"resolve takes {', '.join(ANSWERS)}, not {answer!r}.")
        mutation = await self._mutation(mutation_id)
        held = self._parts.redactor.found_in(result) if self._parts.redactor is not None else None
        if held:
            raise Refused(f"The result holds the secret {held}, and nothing was kept. Leave it out.")
        text = encode(result, what="the result")
        act = await self._judged(_answering(mutation, answer, text, actor, shown))
        if ANSWERS[answer] == "difference":
            await self._keep_applied(act, mutation)
            return
        if ANSWERS[answer] == "contradiction":
            await self._seen(act, mutation)
            return
        if mutation.status is not MutationStatus.INDETERMINATE:
            raise Refused(f"Mutation {mutation_id} is {mutation.status}; there is nothing to resolve.")
        run = await self._run(mutation.run_id)
        match answer:
            case "try_again":
                await self._try_again(act, run, mutation)
            case "did_not_happen":
                await self._did_not_happen(act, run, mutation)
            case "happened":
                await self._act(act, workflows.happened, run, mutation, text, outcome_of(run, text), actor)
            case _:
                await self._act(act, workflows.skip_run, run, mutation, SKIPPED, actor)

    async def _keep_applied(self, act: ShownAct, mutation: Mutation) -> None:
        run = await self._parts.ledger.look(runs.asking_about, mutation)
        if run is None or run.differs is None:
            raise Refused(f"Mutation {mutation.id} is {mutation.status}, and no run asks whether to keep it.")
        wanted = str(run.differs["wanted_payload"])
        await self._act(act, workflows.keep_applied, run, mutation, wanted, await self._how(run), act.actor)

    async def _seen(self, act: ShownAct, mutation: Mutation) -> None:
        if mutation.contradicted_at is None:
            raise Refused(
                f"Mutation {mutation.id} is {mutation.status}, and nothing that waits to be seen contradicts it."
            )
        await self._act(act, workflows.seen, mutation, act.actor)

    async def _try_again(self, act: ShownAct, run: Run, mutation: Mutation) -> None:
        spec = reconcile.spec_of(self._parts, mutation)
        if spec is None or not spec.can_reconcile:
            raise Refused(f"{mutation.connector}.{mutation.operation} has no way to look up what became of it.")
        unknown = OutcomeUnknown("A person asked to look again.")
        doubt = reconcile.doubt(self._parts, run, mutation, unknown, closed=False)
        await self._act(act, workflows.try_again, run, mutation, doubt, act.actor)

    async def _did_not_happen(self, act: ShownAct, run: Run, mutation: Mutation) -> None:
        self._host.check_settled(mutation)
        now = self._parts.clock.now_ms()
        said = Transient(f"{act.actor} says that “{mutation.preview}” did not happen. It is tried again.")
        why = failure.stop(said, run, Step.MUTATE, self._parts.policy, now)
        at_once = replace(why, retry_at=now, failures=0, exhausted=False)
        await self._act(act, workflows.did_not_happen, run, mutation, at_once, act.actor)

    @_once
    async def approve(self, approval_id: str, actor: str, shown: int | None = None) -> None:
        """Allow exactly the call that was shown; it is sent without running the script again."""
        act = await self._judged(ShownAct("approve", await self._asked_in(approval_id), approval_id, actor, shown))
        if approval_id.startswith("fix_"):
            row, run = await self._waiting_repair(approval_id)
            await self._unless_overtaken(repair.approve(self._parts, run, row, act))
            return
        approval_, _ = await self._to_decide(approval_id)
        await self._act(act, workflows.approve, approval_, actor)

    @_once
    async def reject(self, approval_id: str, actor: str, shown: int | None = None) -> None:
        """Refuse the call that was shown; the run goes on without it and its events end as skipped."""
        act = await self._judged(ShownAct("reject", await self._asked_in(approval_id), approval_id, actor, shown))
        if approval_id.startswith("fix_"):
            row, run = await self._waiting_repair(approval_id)
            await self._act(act, repairs.reject_repair, run.workflow_id, row["id"], actor)
            return
        approval_, run = await self._to_decide(approval_id)
        await self._act(act, workflows.reject, run, approval_, SKIPPED, actor)

    async def fix(self, workflow: str, source: str, impact: str | None, note: str, actor: str) -> str:
        """Offer a repair for the run that failed; if it keeps the rules it waits for a person. Gives its id."""
        run = await self._failed((await self._workflow(workflow))["id"])
        if run is None:
            raise Refused(f"The workflow {workflow!r} has no failed run. Use deploy for a new version.")
        offered = repair.Fix(source, impact, note)
        return await self._unless_overtaken(repair.fix(self._parts, run, offered, actor))

    async def evidence(self, workflow: str) -> repair.Evidence:
        """What is known about the run that failed, for whoever wants to offer a repair."""
        run = await self._failed((await self._workflow(workflow))["id"])
        if run is None or run.reason is not Reason.LOGIC:
            raise Refused(f"The workflow {workflow!r} has no run that failed by a fault of its script.")
        tried = await self._parts.ledger.one("repair_of_run", run_id=run.id)
        if tried is not None and tried["status"] == RepairStatus.WAITING:
            raise Refused(f"A repair of the run {run.id} waits for you: `keep show {tried['id']}`.")
        return await self._parts.ledger.look(repair.evidence, self._parts, run)

    async def _failed(self, workflow_id: str) -> Run | None:
        """The first run of a workflow that failed by a fault of the script; if none did, the run that holds it."""
        found = await self._parts.ledger.look(open_runs, workflow_id)
        holds = next((run for run in found if not run.parked), None)
        return next((run for run in found if run.reason is Reason.LOGIC), holds)

    async def _asked_in(self, id: str) -> str:
        """The workflow of an approval or a repair."""
        kind, query = ("repair", "repair_by_id") if id.startswith("fix_") else ("approval", "approval_by_id")
        row = await self._parts.ledger.one(query, **{f"{kind}_id": id})
        if row is None:
            raise NotFound(f"There is no {kind} {id}. `keep todo` lists what waits for you.")
        return str(row["workflow_id"])

    async def _waiting_repair(self, repair_id: str) -> tuple[Row, Run]:
        row = await self._parts.ledger.one("repair_by_id", repair_id=repair_id)
        assert row is not None, f"{repair_id} was looked up before"
        run = await self._run(row["run_id"])
        if row["status"] != RepairStatus.WAITING or run.state is not Status.FAILED:
            raise Refused(f"Repair {repair_id} is {row['status']}, its run {run.status}; there is nothing to decide.")
        return row, run

    async def _to_decide(self, approval_id: str) -> tuple[Approval, Run]:
        row = await self._parts.ledger.one("approval_by_id", approval_id=approval_id)
        assert row is not None, f"{approval_id} was looked up before"
        found = approval_record(row)
        if found.status is not ApprovalStatus.PENDING:
            by = f" by {found.decided_by}" if found.decided_by else ""
            raise Refused(f"Approval {approval_id} is {found.status}{by}; there is nothing to decide.")
        run = await self._run(found.run_id)
        row, now = await self._workflow(run.workflow_id), self._parts.clock.now_ms()
        active = (row["major"], row["minor"])
        standing = await self._parts.ledger.look(approval.standing, run, found, now, active, self._parts)
        if standing is Standing.EXPIRED:
            raise Refused(f"Approval {approval_id} has expired; Keep asks again.")
        if standing is Standing.UNFIT:
            raise Refused(
                f"Approval {approval_id} no longer fits: since it was asked, another version was deployed, or the "
                "account or the permission of the call was changed. The run goes on under what holds now; if it must, "
                "it asks again."
            )
        return found, run

    # -- looking up --------------------------------------------------------------------------------

    async def _workflow(self, name_or_id: str) -> Row:
        """A workflow by its id or its name."""
        ledger = self._parts.ledger
        row = await ledger.one("workflow_by_id", workflow_id=name_or_id) or await ledger.one(
            "workflow_by_name", name=name_or_id)
        if row is None:
            raise NotFound(f"There is no workflow {name_or_id!r}. `keep status` lists them.")
        return row

    async def _run(self, run_id: str) -> Run:
        """A run by its id."""
        row = await self._parts.ledger.one("run_by_id", run_id=run_id)
        if row is None:
            raise NotFound(f"There is no run {run_id}. `keep runs WORKFLOW` lists them.")
        return run_record(row)

    async def _mutation(self, mutation_id: str) -> Mutation:
        """A mutation by its id."""
        row = await self._parts.ledger.one("mutation_by_id", mutation_id=mutation_id)
        if row is None:
            raise NotFound(f"There is no mutation {mutation_id}.")
        return mutation_record(row)

    # -- shared ------------------------------------------------------------------------------------

    async def _judged(self, act: ShownAct) -> ShownAct:
        """The act, unless what was shown has moved already; its transaction judges once more."""
        await self._parts.ledger.look(shown_acts.judge, act)
        return act

    async def _act(self, act: ShownAct, verb: Callable[..., T], *args: Any) -> T:
        """Do it, on disk, or refuse it because somebody or something was quicker."""
        write = self._parts.ledger.write(shown_acts.as_shown(verb), act, *args, barrier=True)
        return await self._unless_overtaken(write)

    async def _unless_overtaken(self, act: Awaitable[T]) -> T:
        try:
            return await act
        except Conflict as error:
            raise Refused(f"{error.message} Look at how it stands now.") from error
        finally:
            self._host.wake()  # also if whoever asked went away meanwhile: it may have been done

    async def _move(self, workflow: str, target: WorkflowStatus, name: str, actor: str, shown: int | None) -> None:
        workflow_id = (await self._workflow(workflow))["id"]
        act = await self._judged(ShownAct(name, workflow_id, workflow_id, actor, shown))
        await self._act(act, workflows.move, workflow_id, target, name, actor)

    async def _how(self, run: Run) -> Carry:
        """How a person has a stopped run carried on, or why that cannot be."""
        row, ledger = await self._workflow(run.workflow_id), self._parts.ledger
        active = row["major"], row["minor"]
        how = carry(run, await ledger.look(last_mutation, run), active, Status.SUPERSEDED, "person")
        if how is None:
            raise Refused(
                f"Run {run.id} cannot be retried: nobody knows yet whether its mutation happened. Resolve that first."
            )
        if (await ledger.look(self._parts.script, run.workflow_id, how.version)).manifest.handler(run.handler) is None:
            raise Refused(f"Run {run.id} cannot be retried: the active version has no handler {run.handler!r}.")
        return how

    async def _again_at(self, run: Run) -> int:
        """When a handler whose run is given up before it pinned anything looks again by itself."""
        parts, now = self._parts, self._parts.clock.now_ms()
        loaded = await parts.ledger.look(parts.script, run.workflow_id, run.number)
        handler = loaded.manifest.handler(run.handler)
        if handler is None or run.phase is not Phase.EXECUTING:
            return now + int(parts.policy.recheck_s * 1000)
        ran = await parts.ledger.look(scheduler.taken, run.workflow_id, handler, now)
        return scheduler.next_run_at(handler, now, parts.policy, ran)

    def _check_skippable(self, run: Run, mutation: Mutation | None) -> None:
        ends_it = run.phase is not Phase.EXECUTING  # a routine's item keeps what was applied for it, and only ends
        if ends_it and mutation is not None and mutation.status is MutationStatus.APPLIED:
            raise Refused(
                f"Run {run.id} cannot be skipped: its mutation has happened. Mend the script, or `finish` the run."
            )
        if mutation is not None and mutation.status in DOUBTFUL - {MutationStatus.INDETERMINATE}:
            raise Refused(f"Run {run.id} cannot be skipped yet: Keep is finding out whether its mutation happened.")


def _answering(mutation: Mutation, answer: str, result: str, actor: str, shown: int | None) -> ShownAct:
    """An answer as it is kept: to skip is an act on the run, and two results are two answers."""
    about, same = (mutation.id,), encode({"result": result}) if answer == "happened" else None
    if answer == "skip":
        return ShownAct("skip_run", mutation.workflow_id, mutation.run_id, actor, shown, about)
    return ShownAct(answer, mutation.workflow_id, mutation.id, actor, shown, about, same)
