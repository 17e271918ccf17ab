"""The one place where the parts are put together: `Keep`, a host on one ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from .connectors import redacted_logs
from .connectors.base import Connector, surface
from .connectors.redacted import redacted, redactor_of
from .connectors.webhook.inbox import Inbox
from .engine import certificate, reconcile, retention
from .engine.call_ends import CallEnds
from .engine.certificate import Certification, Certifier
from .engine.commands import Commands
from .engine.deploy import Configured, Deployment, GrantRule, Grants, foresee
from .engine.deploy import deploy as deploy_script
from .engine.host import Host
from .engine.host_parts import Parts
from .engine.proposal import recertified
from .engine.remedies import OfferedAct, Remedy, stopped_run, try_remedies
from .engine.repair import Evidence, RepairHook
from .engine.retention import Pruned
from .engine.shadow import ShadowReport, shadow
from .engine.telling import Teller
from .engine.tried_verdict import tried
from .engine.verdict import DeployVerdict
from .ledger.base import Reader
from .ledger.opening import open_deliveries, open_ledger
from .model.acts import has
from .model.clock import Clock, SystemClock
from .model.codec import Json
from .model.errors import NotFound, Refused
from .model.ledger_address import is_address
from .model.policy import Policy
from .model.principals import OWNER, Principal
from .model.records import Escalation, Event, InboxEntry, Input, Item, Mutation, Output, Proposal, Rows, Run, Workflow
from .notices.base import Channel
from .reading.blast import Blast, Moment, moment
from .reading.digest import Digest, digest
from .reading.explain import Explanation
from .reading.inbox_entries import inbox_entries
from .reading.notice_texts import NoticeWriter
from .reading.offered_acts import offered
from .reading.unknown_outcome import CallFacts
from .reading.views import Views
from .runtime.base import Runtime
from .runtime.javascript.runtime import JavaScriptRuntime

T = TypeVar("T")
P = ParamSpec("P")


def place_deliveries(connectors: Iterable[Connector], ledger: str | Path, clock: Clock) -> None:
    """Have what others send kept in the database of the ledger, if that is where the ledger is."""
    for each in connectors:
        if isinstance(each, Inbox) and is_address(ledger):
            each.keep_in(open_deliveries(str(ledger), each.name, each.most, clock))


@dataclass
class _Shared:
    """What there is while a `Keep` is open; everybody who acts through it shares this."""

    parts: Parts | None = None
    host: Host | None = None
    page: str | None = None  # where people can look, if this host has a page


class Keep:
    """A host: executes the workflows of one ledger. Use it with `async with`."""

    def __init__(
        self, path: str | Path = "keep.db", *, connectors: Iterable[Connector] = (), policy: Policy | None = None,
        clock: Clock | None = None, principal: Principal | None = None, repair: RepairHook | None = None,
        accept_older: bool = False, channels: Iterable[Channel] = (), works: bool = True,
        runtime: Runtime | None = None, certifier: Certifier | None = None,
    ) -> None:
        """`works` is for a ledger that several hosts share: without it, this one runs no workflow, and others do what
        people say here. A `runtime` that is given serves many hosts, and stays open when this one ends. Acts are those
        of the `principal`; `acting_as` gives the same host for another."""
        self._path, self._connectors = path if is_address(path) else Path(path), list(connectors)
        self._policy, self._clock, self.principal = policy or Policy(), clock or SystemClock(), principal or OWNER
        self._repair, self._accept_older, self._works = repair, accept_older, works
        self._channels, self._runtime, self._certifier = list(channels), runtime, certifier
        self._surface = surface(self._connectors)
        self._shared = _Shared()

    async def __aenter__(self) -> Keep:
        redactor = redactor_of(self._connectors)
        place_deliveries(self._connectors, self._path, self._clock)
        ledger = open_ledger(self._path, self._clock, accept_older=self._accept_older, works=self._works)
        parts = self._shared.parts = Parts(
            ledger=ledger,
            runtime=self._runtime or JavaScriptRuntime(
                workers_max=self._policy.workers_max, speculate=self._policy.speculate),
            connectors={c.name: redacted(c, redactor) for c in self._connectors}, surface=self._surface,
            policy=self._policy, clock=self._clock, ids=ledger.ids, repair=self._repair, redactor=redactor,
            call_ends=CallEnds(self._clock.steady_ms()), place=self._path,
            inboxes={each.name: each for each in self._connectors if isinstance(each, Inbox)},
        )
        if redactor is not None:
            redacted_logs.cover(redactor)
        letters = NoticeWriter(ledger, self.views, self._path, lambda: self.page)
        self._shared.host = Host(parts, Teller(parts, self._channels, letters))
        try:
            if ledger.accepted:
                await self.commands.accept_older(str(self.principal))
            await self.host.join()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let runs end, then let go of the ledger."""
        parts, host = self._shared.parts, self._shared.host
        if parts is None or host is None:
            return
        self._shared.parts = self._shared.host = None
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_let_go, parts)
            for each in self._connectors:
                stack.push_async_callback(each.shut_down)
            for each in self._connectors:
                if isinstance(each, Inbox):
                    stack.callback(each.close)
            if parts.runtime is not self._runtime:
                stack.push_async_callback(parts.runtime.close)
            stack.push_async_callback(host.close)

    # -- acting for somebody else ------------------------------------------------------------------

    def acting_as(self, principal: Principal) -> Keep:
        """The same open host for somebody else: every act is kept as theirs, and there are only those of their role."""
        same = copy(self)
        same.principal = principal
        return same

    def _by(self, act: str, on: str = "") -> str:
        """Who an act, on what has this id, is kept as. An act that their role does not have is not there."""
        if not has(self.principal.role, act, on):
            raise NotFound(f"There is no act {act!r}{f' on {on}' if on else ''} for {self.principal}.")
        return str(self.principal)

    # -- running -----------------------------------------------------------------------------------

    async def deploy(
        self, source: str, *, workflow_id: str | None = None, grants: Grants = None, author: str = "person",
        strand: bool = False, configured: Configured = None, cases: str | None = None,
    ) -> Deployment:
        """Store and activate a script; runs nothing. Raises `ScriptInvalid` with the findings.

        `configured` is what keep.toml grants, by workflow: it counts where no person has granted otherwise. `cases` is
        the text of the script's file of cases: a certificate that was made with others does not count."""
        by = self._by("deploy")
        done = await deploy_script(
            self.parts, source, workflow_id=workflow_id, grants=grants, author=author, strand=strand, actor=by,
            configured=configured, cases=cases,
        )
        if self.parts.ledger.sharing is not None:
            await self.host.join()  # a new workflow is nobody's yet
        self.host.wake()
        return done

    async def verdict(
        self, source: str, *, workflow_id: str | None = None, grants: Grants = None, configured: Configured = None,
        cases: str | None = None, rehearse: bool = False,
    ) -> DeployVerdict:
        """What a deploy of this script would do to everything that is open; nothing of it stays. Raises what the deploy
        would, but for events that it would strand: those are named.

        What the new version can take is tried on a copy, with nothing sent; with `rehearse`, reads are real."""
        foreseen = await foresee(
            self.parts, source, workflow_id=workflow_id, grants=grants, author="person", actor=self._by("deploy"),
            configured=configured, cases=cases,
        )
        return await tried(self.parts, source, foreseen, grants=grants, rehearse=rehearse)

    async def propose(
        self, source: str, *, why: str, cases: str | None = None, grants: Grants = None,
        workflow_id: str | None = None, work: Json = None,
    ) -> Proposal:
        """Propose a script: it is deployed if a person accepts it. `grants` is what it would like to be granted, `why`
        what people read, `cases` the text of its file of cases, and `work` how a model came to it: only shown, all of
        them. What is shown beside that, the host finds out itself."""
        return await self.commands.propose(source, cases, grants, why, workflow_id, work, self._by("propose"))

    async def proposals(self, wf: str | None = None, *, limit: int | None = None) -> list[Proposal]:
        """What was proposed, for a workflow (by its name) or for all, newest first."""
        return await self._look(Views.proposals, wf, limit)

    async def proposal(self, id: str) -> Proposal:
        """One proposal, however it stands."""
        return await self._look(Views.proposal, id)

    async def certify(self, source: str, *, cases: str | None = None, script: str = "the script") -> Certification:
        """Try a script with everything that can go wrong, in a process of its own; keep a certificate if it passes."""
        self._by("certify")
        if self._certifier is None:
            raise Refused("This host cannot certify scripts: it was not made from a keep.toml. Use `keep certify`.")
        tried = await self._certifier(source, cases, script)
        await self.keep_certificate(source, cases, tried)
        return tried

    async def keep_certificate(self, source: str, cases: str | None, tried: Certification) -> bool:
        """Keep the certificate that this process itself has found right; no door leads here."""
        kept = await certificate.keep(self.parts, source, cases, tried, self._by("certify"))
        await recertified(self.parts, source)
        return kept

    async def run_until_idle(self) -> None:
        """Run all that is due now and what it causes; never waits for time or people."""
        await self.host.run_until_idle()

    async def serve(self) -> None:
        """Run for ever, with real time."""
        await self.host.serve()

    # -- looking -----------------------------------------------------------------------------------

    async def workflows(self) -> list[Workflow]:
        """Every workflow and how it stands."""
        return await self._look(Views.workflows, self._clock.now_ms())

    # Lists are oldest first, at most 100,000 entries or `limit`; if more follow, `cursor` is the id to give as `after`.

    async def inputs(
        self, wf: str, status: str | None = None, search: str | None = None, *, limit: int | None = None,
        after: str | None = None,
    ) -> Rows[Input]:
        """What came in."""
        return await self._look(Views.inputs, wf, status, search, limit, after)

    async def input(self, id: str) -> Input:
        """One input, with its outputs and events."""
        return await self._look(Views.input, id)

    async def outputs(self, wf: str, *, limit: int | None = None, after: str | None = None) -> Rows[Output]:
        """What went out, with the inputs behind it; `after` is the id of a mutation."""
        return await self._look(Views.outputs, wf, limit, after)

    async def events(
        self, wf: str, topic: str | None = None, status: str | None = None, *, limit: int | None = None,
        after: str | None = None,
    ) -> Rows[Event]:
        """Events, in the order in which they came."""
        return await self._look(Views.events, wf, topic, status, limit, after)

    async def event(self, id: str) -> Event:
        """One event, with the payloads that came too late for it."""
        return await self._look(Views.event, id)

    async def runs(self, wf: str, *, limit: int | None = None, after: str | None = None) -> Rows[Run]:
        """Every attempt at every handler."""
        return await self._look(Views.runs, wf, limit, after)

    async def run(self, id: str) -> Run:
        """One run."""
        return await self._look(Views.run, id)

    async def mutations(self, wf: str, *, limit: int | None = None, after: str | None = None) -> Rows[Mutation]:
        """Every side effect."""
        return await self._look(Views.mutations, wf, limit, after)

    async def items(self, wf: str, *, limit: int | None = None, after: str | None = None) -> Rows[Item]:
        """The units of the routines' work."""
        return await self._look(Views.items, wf, limit, after)

    async def needs_you(self, wf: str | None = None) -> list[Escalation]:
        """Every question that only a person can answer, oldest first."""
        return await self._look(Views.needs_you, self._clock.now_ms(), wf)

    async def page_origin(self) -> str | None:
        """Where the page of this host is, if it has one."""
        return self.page

    async def confirm_presence(self) -> None:
        """Nothing more: the door through which it is asked for has judged whether a person is there."""

    async def explain(self, id: str) -> Explanation:
        """Why anything stands where it stands, and who or what can move it."""
        return await self._look(Views.explain, id, self._clock.now_ms())

    async def remedies(self, id: str) -> tuple[Remedy, ...]:
        """What a person could do about something that stands still, each act tried on a copy with nothing sent."""
        found = await self.explain(id)
        acts = [OfferedAct(act, step.subject, step.capability) for step in found.moved_by if step.subject
                for act in offered(step.acts)]
        run_id = await self.parts.ledger.look(stopped_run, found.workflow_id, found.id)
        return await try_remedies(self.parts, found.workflow_id, run_id, acts)

    async def blast(
        self, wf: str, version: str | None = None, since: Moment | None = None, until: Moment | None = None,
    ) -> Blast:
        """What the runs of a version touched, or those that began in [since, until); else those of the active one."""
        return await self._look(Views.blast, wf, version, since, until)

    async def shadow(
        self, wf: str, source: str, *, last: int | None = None, since: Moment | None = None,
    ) -> ShadowReport:
        """What a script would do otherwise than the last recorded runs of a workflow, or those since a moment.

        Nothing is called and nothing is written."""
        return await shadow(self.parts, wf, source, last=last, since_ms=moment(since, "since"))

    async def digest(self, since: int, until: int | None = None) -> Digest:
        """What came in, went out and failed in [since, until), in milliseconds since 1970 UTC, and what waits now."""
        now = self._clock.now_ms()
        waiting = await self.needs_you()
        return await self.parts.ledger.look(digest, waiting, since, now if until is None else until)

    async def version(self) -> int:
        """The version of everything: read it before what is shown, and give it to the acts on that as `shown`."""
        return await self._look(Views.version)

    async def state(self, wf: str, handler: str) -> Json:
        """A handler's durable state."""
        return await self._look(Views.state, wf, handler)

    # -- acting: an act with the version that was `shown` is refused if what it is about has moved since --

    async def accept(
        self, id: str, *, grants: Mapping[str, GrantRule] | None = None, shown: str | None = None,
    ) -> Deployment:
        """Accept a proposal as it was shown, by its digest: it is deployed. `grants` says what it may do: a mode or a
        rule, or "keep" for the rule that is there. Unless it says otherwise, reads are allowed and mutations ask."""
        return await self.commands.accept(id, grants, self._by("accept"), shown)

    async def decline(self, id: str, *, why: str = "", shown: int | None = None) -> None:
        """Decline a proposal."""
        await self.commands.decline(id, why, self._by("decline"), shown)

    async def withdraw(self, id: str, *, shown: int | None = None) -> None:
        """Take back what this actor has proposed."""
        await self.commands.withdraw(id, self._by("withdraw"), shown)

    async def pause(self, wf: str, *, shown: int | None = None) -> None:
        """Start nothing more of a workflow."""
        await self.commands.pause(wf, self._by("pause"), shown)

    async def resume(self, wf: str, *, shown: int | None = None) -> None:
        """Let a paused or stopped workflow run again."""
        await self.commands.resume(wf, self._by("resume"), shown)

    async def stop(self, wf: str, *, shown: int | None = None) -> None:
        """End a workflow."""
        await self.commands.stop(wf, self._by("stop"), shown)

    async def set(self, wf: str, waiting: str, *, shown: int | None = None) -> None:
        """Say what else of a workflow goes on while a run of it waits for a person: "stop", "intake" or "others"."""
        await self.commands.set(wf, waiting, self._by("set"), shown)

    async def run_now(self, wf: str, *, shown: int | None = None) -> list[str]:
        """Queue every producer and routine of a workflow."""
        return await self.commands.run_now(wf, self._by("run_now"), shown)

    async def send(
        self, to: str, data: Json, *, id: str | None = None, title: str | None = None, shown: int | None = None,
    ) -> dict[str, Json]:
        """Send something in by hand: into a topic (`TOPIC` or `WORKFLOW/TOPIC`) as an input and an event, or into an
        inbox as a delivery. With the same `id` it is there once. Gives what it became."""
        return await self.commands.send(to, data, id, title, self._by("send"), shown)

    async def deliveries(self, inbox: str | None = None, *, limit: int = 50) -> list[InboxEntry]:
        """The newest deliveries of an inbox, or of all, oldest first."""
        return await asyncio.to_thread(inbox_entries, self.parts.inboxes, inbox, limit)

    async def replay(self, delivery: str, inbox: str | None = None) -> dict[str, Json]:
        """Put a delivery in once more, by its id or cursor. Gives the new one's id."""
        return await self.commands.replay(delivery, inbox, self._by("replay"))

    async def grant(
        self, wf: str, capability: str, mode: GrantRule = "allow", *, shown: int | None = None,
    ) -> None:
        """Allow, ask or deny a capability; `{"mode": …, "match": …, "per_run": …, "per_day": …}` narrows it."""
        await self.commands.grant(wf, capability, mode, self._by("grant"), shown)

    async def skip_event(self, id: str, *, shown: int | None = None) -> None:
        """Skip a waiting event."""
        await self.commands.skip_event(id, self._by("skip_event"), shown)

    async def reprocess(self, id: str, *, shown: int | None = None) -> None:
        """Process an ended event, or a finished item, once more, as a new attempt."""
        await self.commands.reprocess(id, self._by("reprocess"), shown)

    async def skip_input(self, id: str, *, shown: int | None = None) -> list[str]:
        """Skip an input: nothing more is done for it."""
        return await self.commands.skip_input(id, self._by("skip_input"), shown)

    async def skip_run(self, id: str, *, shown: int | None = None) -> None:
        """Give up what a stopped run wanted to do."""
        await self.commands.skip_run(id, self._by("skip_run"), shown)

    async def finish(self, run_id: str, *, shown: int | None = None) -> None:
        """End a run whose mutation happened and whose `next` cannot run."""
        await self.commands.finish(run_id, self._by("finish"), shown)

    async def retry(self, run_id: str, *, shown: int | None = None) -> str:
        """Try a stopped run again now."""
        return await self.commands.retry(run_id, self._by("retry"), shown)

    async def fix(self, wf: str, source: str, *, impact: str | None = None, note: str = "") -> str:
        """Offer a repair for the run that failed; if it keeps the rules, it waits to be approved. Gives its id."""
        return await self.commands.fix(wf, source, impact, note, self._by("fix"))

    async def evidence(self, wf: str) -> Evidence:
        """What is known about the run of a workflow that failed by a fault of its script."""
        return await self.commands.evidence(wf)

    async def resolve(
        self, mutation_id: str, answer: str, result: Json = None, *, shown: int | None = None,
    ) -> None:
        """Say what became of a mutation that nobody could verify."""
        await self.commands.resolve(mutation_id, answer, result, self._by("resolve"), shown)

    async def approve(self, id: str, *, shown: int | None = None) -> None:
        """Allow exactly the call that was shown."""
        await self.commands.approve(id, self._by("approve", id), shown)

    async def reject(self, id: str, *, shown: int | None = None) -> None:
        """Refuse the call that was shown."""
        await self.commands.reject(id, self._by("reject"), shown)

    async def host_dead(self, host: str) -> None:
        """Say of a host that was cut off that it is dead, and will never send anything again."""
        await self.commands.host_dead(host, self._by("host_dead"))

    async def host_drain(self, host: str) -> None:
        """Have a host hand over its work, and end."""
        await self.commands.host_drain(host, self._by("host_drain"))

    async def agent_add(self, name: str, role: str = "look") -> str:
        """Let an agent in, to look or to propose. Gives its token, which is not kept and cannot be shown again."""
        return await self.commands.agent_add(name, role, self._by("agent_add"))

    async def agent_remove(self, name: str) -> None:
        """Let an agent in no more."""
        await self.commands.agent_remove(name, self._by("agent_remove"))

    async def user_add(self, name: str, role: str = "viewer") -> str:
        """Let a person in: a viewer, an operator or an owner. Gives their token, which is not kept and cannot be shown
        again."""
        return await self.commands.user_add(name, role, self._by("user_add"))

    async def user_remove(self, name: str) -> None:
        """Let a person in no more."""
        await self.commands.user_remove(name, self._by("user_remove"))

    async def set_pin(self, pin: str) -> None:
        """Set the PIN that acts of people need at the terminal while there are agents."""
        await self.commands.set_pin(pin, self._by("set_pin"))

    async def prune(self, *, days: int | None = None, dry_run: bool = False) -> Pruned:
        """Throw away the content of work that ended longer ago than `days`, or than the policy says."""
        by = self._by("prune")
        if days is not None and days < 1:
            raise Refused(f"prune takes 1 day or more, not {days}. Nothing was thrown away.")
        before = retention.before_ms(self._clock.now_ms(), days or self._policy.retention_days)
        if dry_run:
            return await self.parts.ledger.look(retention.measure, before)
        return await retention.prune(self.parts, before, by)

    # -- parts -------------------------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """What this host is made of."""
        if self._shared.parts is None:
            raise RuntimeError("This Keep is not open. Use it inside `async with Keep(…) as keep:`.")
        return self._shared.parts

    @property
    def host(self) -> Host:
        """The part that runs workflows."""
        assert self._shared.host is not None, self.parts
        return self._shared.host

    @property
    def page(self) -> str | None:
        """Where people can look, if this host has a page."""
        return self._shared.page

    @page.setter
    def page(self, origin: str | None) -> None:
        self._shared.page = origin

    def views(self, read: Reader) -> Views:
        """The part that looks."""
        return Views(read, self._policy, self)

    async def _look(self, view: Callable[Concatenate[Views, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.parts.ledger.look(lambda read: view(self.views(read), *args, **kwargs))

    def known(self, mutation: Mutation) -> CallFacts:
        """What this host knows of a mutation in doubt; views know no connectors, so it is told to them."""
        spec = reconcile.spec_of(self.parts, mutation)
        left = self.host.settles_in_ms(mutation)  # the very measure by which acts are judged
        return CallFacts(
            configured=spec is not None, looks_up=spec is not None and spec.can_reconcile,
            key_window_s=spec.key_window_s if spec else None,
            settles_at=None if left is None else self._clock.now_ms() + left, settled=left == 0,
        )

    @property
    def commands(self) -> Commands:
        """The part that acts."""
        return Commands(self.parts, self.host)


async def _let_go(parts: Parts) -> None:
    """Close the ledger; a call that still goes on keeps its lock, which is the proof that it has not ended."""
    if parts.redactor is not None:
        redacted_logs.uncover(parts.redactor)
    await parts.ledger.close(keep_lock=bool(parts.calls or parts.call_ends.under_way))
