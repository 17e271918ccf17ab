"""The real engine as a machine that can be put into any state it was in before, and moved by one step.

Everything that decides is Keep's own: the host, the commands, recovery, reconciliation, approval, the verbs, the SQL
and the triggers, on a ledger of its own. Only three things are stand-ins: the script (a constant), the outside world
(each answer is a step of its own) and time (it passes in units). A host's step ends after one commit, so that a crash,
a person or a new version may come between any two commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from keepai import (
    Call,
    Connector,
    Keep,
    OutcomeUnknown,
    PermissionDenied,
    Policy,
    Rejected,
    Transient,
    Verdict,
    mutation,
)
from keepai.connectors.base import surface
from keepai.engine import late_evidence, outside, relaunch, runner
from keepai.engine import mutation as sending
from keepai.engine.call_ends import CallEnds
from keepai.engine.host import Host
from keepai.engine.host_parts import Parts
from keepai.engine.recovery import recover
from keepai.engine.run_context import RunContext
from keepai.engine.telling import Teller
from keepai.ledger.rows import mutation_record, run_record
from keepai.ledger.transitions import events, mutations, workflows
from keepai.ledger.transitions.events import Publication
from keepai.ledger.transitions.workflows import Version
from keepai.model.clock import Ids
from keepai.model.errors import NotFound, Refused, ScriptThrew
from keepai.model.ids import text_of
from keepai.model.operations import Kind, Step
from keepai.model.permissions import grant_of
from keepai.model.records import Mutation, Run
from keepai.model.states import DOUBTFUL
from keepai.runtime.base import Ended, Job, Operation
from keepai.script.manifest import Handler, HandlerKind, Manifest
from keepai.testing import ManualClock
from tests.explore.databases import DATABASES, Database

UNIT_S = 60  #: time passes in these; every wait of the policy is one or two of them
POLICY = Policy(
    retry_first_s=UNIT_S, retry_longest_s=UNIT_S, retries_max=1, approval_s=2 * UNIT_S, settle_s=UNIT_S,
    reconcile_first_s=UNIT_S, reconcile_longest_s=UNIT_S, reconciles_max=3, crashes_max=2,
    recheck_s=UNIT_S,
)


@dataclass(frozen=True)
class Setting:
    """What stays the same in one exploration."""

    can_reconcile: bool = True
    honours_keys: bool = False
    grant: str = "allow"
    races: bool = False  # acts and steps that are overtaken between their decision and their commit
    versions: bool = True  # a new version, with or without the handler, may come
    throws: bool = True  # scripts may throw
    grants: bool = False  # the grant may change
    pauses: bool = False  # a person may pause the workflow
    ends: bool = True  # a host may end in order
    foreseen: bool = True  # the call of `mutate` is known with the result of `prepare`, as of most scripts


class Paused(BaseException):
    """The step has made its commit; what would follow is another step."""


class Nothing(BaseException):
    """The step committed nothing."""


Rows = tuple[tuple[tuple[Any, ...], ...], ...]


@dataclass(frozen=True)
class Moment:
    """A whole state: what is in the ledger, and what only the process knows."""

    rows: Rows
    now_ms: int
    steady_ms: int
    host: str
    epoch: int
    alive: bool = True
    at: str = "idle"  # "run": between two commits of a run; "call": the request is recorded, its answer is not
    live: frozenset[str] = frozenset()  # calls that were given up and have not ended
    started_ms: int = 0  # when this process started, by the steady clock
    seen: tuple[tuple[str, int], ...] = ()  # since when this process knows that a call has ended


class Memory:
    """A ledger whose every commit can be the last one of this life."""

    sharing = None

    def __init__(self, database: Database) -> None:
        self._database, self.tx = database, database.tx
        self.host, self.epoch = "", 0
        self.lock_fd: int | None = None
        self.pause_at = 0
        self.commits: list[str] = []
        self.overtake: Callable[[], Awaitable[None]] | None = None

    async def write(self, verb: Callable[..., Any], *args: Any, barrier: bool = False, **kwargs: Any) -> Any:
        if self.overtake is not None:
            other, self.overtake = self.overtake, None
            await other()
        execute = self._database.connection.execute
        execute("savepoint verb")
        try:
            result = verb(self.tx, *args, **kwargs)
        except Exception as error:
            execute("rollback to verb; release verb")
            raise self._database.translated(error) from error
        execute("release verb")
        self.commits.append(verb.__name__)
        if len(self.commits) == self.pause_at:
            raise Paused
        return result

    async def barrier(self) -> None:
        return None

    async def look(self, question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return question(self.tx, *args, **kwargs)

    async def one(self, query: str, **params: object) -> Any:
        return self.tx.one(query, **params)

    async def all(self, query: str, **params: object) -> Any:
        return self.tx.all(query, **params)

    def under_way(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def kept_bytes(self, workflow_id: str) -> int:
        return 0  # there is always room

    def check(self) -> None:
        return None

    def stopped(self) -> None:
        return None

    async def close(self, *, keep_lock: bool = False) -> None:
        return None


class Outside(Connector):
    """`out.send`; what a reconcile says is chosen by the exploration."""

    name = "out"
    verdict: Verdict | None = None
    asked = False

    @mutation(identity=("to",), target="to")
    async def send(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        raise AssertionError("the answer of a call is a step of its own")

    @send.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        return self.answered()

    def answered(self) -> Verdict:
        """What a reconcile says now."""
        self.asked = True
        if self.verdict is None:
            raise ConnectionError("nobody there")
        return self.verdict


class Blind(Connector):
    """`out.send` that cannot be looked up."""

    name = "out"

    @mutation(identity=("to",), target="to")
    async def send(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        raise AssertionError("the answer of a call is a step of its own")


class Keyed(Outside):
    """`out.send` of an outside system that refuses a second effect with the same key for a while."""

    @mutation(identity=("to",), target="to", key_window=3 * UNIT_S)
    async def send(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        raise AssertionError("the answer of a call is a step of its own")

    @send.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        return self.answered()


#: The one call that the script makes.
CALLED = Operation("out.send", Kind.MUTATION, ({"to": "ann"},), None)

#: With what it looks for its event.
LOOKED = Operation("peek", Kind.PEEK, ("in", {"limit": 1}), None)


class Script:
    """Takes the event, sends, ends; throws where the exploration says so."""

    def __init__(self, foreseen: bool) -> None:
        self._foreseen = foreseen
        self.throw = False
        self.ran = False

    async def run(self, job: Job, host: Any) -> Ended:
        self.ran = True
        if self.throw:
            raise ScriptThrew("The script threw.")
        if job.step is Step.PREPARE:
            free = (await host.answer(LOOKED)).value
            reserved = '{"topic":"in","ids":["a"]}' if free else ""
            ahead = CALLED if free and self._foreseen else None
            return Ended(f'{{"reservations":[{reserved}],"data":{{}},"ui":{{"title":"t"}}}}', ahead=ahead)
        if job.step is Step.MUTATE:
            return Ended(mutation=CALLED)
        return Ended(None)

    async def load(self, *script: Any) -> None:
        """There is nothing to load."""

    async def close(self) -> None:
        return None


WF = "wf_000000000001"

#: What a call may come back with → the answer as `outside` reads it.
RAISED: dict[str, Exception] = {
    "transient": Transient("Come later."),
    "permission": PermissionDenied("The login has expired."),
    "rejected": Rejected("This is wrong."),
    "unknown": OutcomeUnknown("lost"), "odd": ValueError("Transient: it did not happen"),
}


class _Done:
    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self._result, self._error = result, error

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        return self._result


def answer_of(kind: str) -> outside.Answer:
    """The real reading of what a call came back with."""
    if kind == "ok":
        return outside._answer(_Done({"id": "1"}), "out.send")  # type: ignore[arg-type]
    if kind == "hangs":
        return outside.Answer(unknown=OutcomeUnknown("out.send did not answer"), closed=False)
    return outside._answer(_Done(error=RAISED[kind]), "out.send")  # type: ignore[arg-type]


#: What a call may say that ends after it was given up.
LATE = {"ok": _Done({"id": "1"}), "transient": _Done(error=RAISED["transient"]), "odd": _Done(error=RAISED["odd"])}

VERDICTS: dict[str, Verdict | None] = {
    "applied": Verdict.applied({"id": "1"}), "failed": Verdict.failed(), "retry": Verdict.retry(),
    "unknown": Verdict.unknown("no record"), "raises": None,
}


async def _nothing_follows(leaves: object, published: object) -> None:
    return None


def _handler(name: str) -> Handler:
    return Handler(name, HandlerKind.CONSUMER, (), subscribe=("in",), has_mutate=True, has_next=True)


def version(gone: bool = False) -> Version:
    """A version of the script, with the consumer or without it."""
    handlers = () if gone else (_handler("act"),)
    manifest = Manifest("w", ("in",), handlers, ("out.send",))
    return Version("w", "", "hash", manifest.to_text(), "person", "safe", {"in": None if gone else "act"},
                   {} if gone else {"act": "consumer"})


class Machine:
    """One engine, in one state at a time."""

    def __init__(self, setting: Setting, store: str = "sqlite") -> None:
        self.setting = setting
        self.clock = ManualClock()
        ids = Ids(self.clock)
        self.database: Database = DATABASES[store](ids)
        self.connection, self.tx = self.database.connection, self.database.tx
        self.ledger = Memory(self.database)
        self.connector: Any = (Keyed if setting.honours_keys else Outside if setting.can_reconcile else Blind)()
        self.script = Script(setting.foreseen)
        self.parts = Parts(
            ledger=self.ledger, runtime=self.script, connectors={"out": self.connector},  # type: ignore[arg-type]
            surface=surface([self.connector]), policy=POLICY, clock=self.clock, ids=ids,
            call_ends=CallEnds(self.clock.steady_ms()),
        )
        self.host = Host(self.parts, Teller(self.parts, (), None))  # nobody is told
        self.keep = Keep(":memory:", connectors=[self.connector], policy=POLICY, clock=self.clock)
        self.keep._shared.parts, self.keep._shared.host = self.parts, self.host
        self.commands = self.keep.commands
        self.alive, self.at, self.live = True, "idle", frozenset[str]()

    # -- states --------------------------------------------------------------------------------------

    async def first(self) -> Moment:
        """A workflow with one waiting event."""
        self._new_host()
        self._pass_time()
        self.tx.now = self.clock.now_ms()
        fresh, self.tx.new_id = self.tx.new_id, lambda prefix: WF  # type: ignore[method-assign]
        workflows.deploy(self.tx, None, version(), (1, 0))
        self.tx.new_id = fresh  # type: ignore[method-assign]
        workflows.allow(self.tx, WF, {"out.send": grant_of(self.setting.grant, "out.send")})
        events.publish(self.tx, WF, "run_setup", [Publication("in", "a", "{}")])
        self.database.host_begins(WF)
        return self.save()

    def save(self) -> Moment:
        """This state."""
        execute = self.connection.execute
        rows = tuple(tuple(execute(f"select * from {table} order by 1").fetchall()) for table in self.database.tables)
        return Moment(
            rows, self.clock.now_ms(), self.clock.steady_ms(), self.ledger.host, self.ledger.epoch, self.alive, self.at,
            self.live, self.parts.call_ends.started_ms, tuple(sorted(self.parts.call_ends.seen_ms.items())),
        )

    def load(self, moment: Moment) -> None:
        """Be in a state again."""
        execute = self.connection.execute
        for table in self.database.emptied:
            execute(f"delete from {table}")
        for table, rows in zip(self.database.tables, moment.rows, strict=True):
            if rows:
                self.database.insert(table, rows)
        self.database.loaded()
        self.alive, self.at, self.live = moment.alive, moment.at, moment.live
        self._be(moment.host, moment.epoch)
        self._set_clock(moment.now_ms, moment.steady_ms)
        self.parts.call_ends = CallEnds(moment.started_ms, dict(moment.seen))

    @contextmanager
    def attempt(self, moment: Moment) -> Iterator[None]:
        """Try a step from the loaded state and take it back afterwards."""
        self.connection.execute("savepoint attempt")
        try:
            yield
        finally:
            self.connection.execute("rollback to attempt; release attempt")
            self.alive, self.at, self.live = moment.alive, moment.at, moment.live
            self._be(moment.host, moment.epoch)
            self._set_clock(moment.now_ms, moment.steady_ms)
            self.parts.call_ends = CallEnds(moment.started_ms, dict(moment.seen))
            self.ledger.overtake = None

    def _set_clock(self, now_ms: int, steady_ms: int) -> None:
        self.clock._now_ms, self.clock._steady_ms = now_ms, steady_ms
        self.tx.now = now_ms

    def _be(self, host: str, epoch: int) -> None:
        self.ledger.host = self.tx.host = host
        self.ledger.epoch = self.tx.epoch = epoch

    def _new_host(self) -> None:
        host = self.parts.ids.new("hst") if hasattr(self, "parts") else "hst_1"
        row = self.tx.one("host_insert", id=host, machine="m", pid=1, now=self.clock.now_ms())
        assert row is not None
        self._be(host, int(row["epoch"]))
        self.database.host_begins(WF)
        self.parts.call_ends = CallEnds(self.clock.steady_ms())

    def _pass_time(self) -> None:
        self.clock.advance(seconds=UNIT_S)
        self.tx.now = self.clock.now_ms()

    # -- looking -------------------------------------------------------------------------------------

    def open_run(self) -> Run | None:
        row = self.tx.one("run_open", workflow_id=WF)
        return run_record(row) if row else None

    def last_mutation(self) -> Mutation | None:
        row = self.connection.execute("select id from mutation order by seq desc limit 1").fetchone()
        found = self.tx.one("mutation_by_id", mutation_id=text_of(row[0])) if row else None
        return mutation_record(found) if found else None

    def last_id(self, table: str) -> str:
        row = self.connection.execute(f"select id from {table} order by seq desc limit 1").fetchone()
        return text_of(row[0]) if row else "none"

    # -- steps ---------------------------------------------------------------------------------------

    async def _committing(self, doing: Awaitable[Any]) -> str:
        """Go as far as the next commit; gives its verb."""
        self.ledger.commits, self.ledger.pause_at = [], 1
        try:
            await doing
        except Paused:
            pass
        finally:
            self.ledger.pause_at = 0
        if not self.ledger.commits:
            raise Nothing
        return self.ledger.commits[0]

    async def go_on(self) -> None:
        """The host's next commit."""
        if self.at == "run":
            run = self.open_run()
            assert run is not None
            verb = await self._committing(runner.execute(self.parts, run, self.host._follow(run)))
        else:
            verb = await self._committing(self.host._advance(WF))
        self._arrive(verb)

    def _arrive(self, verb: str) -> None:
        follows = verb == "commit_consumer" and self.open_run() is not None
        run = self.open_run()
        sends = verb == "send" or (verb == "prepare_and_send" and run is not None and self._has_sent(run))
        executing = follows or verb in ("begin", "carry_on", "prepare", "prepare_and_send", "advance", "apply")
        self.at = "call" if sends else "run" if executing else "idle"

    def _has_sent(self, run: Run) -> bool:
        """Whether the intent was recorded with what it follows from; otherwise it is looked at by itself."""
        return relaunch.in_flight(self.tx, run) is not None

    async def answered(self, kind: str) -> None:
        """The call comes back, or is given up."""
        run = self.open_run()
        assert run is not None
        found = relaunch.in_flight(self.tx, run)
        assert found is not None, "a call is under way that the ledger does not know of"
        loaded = self.parts.script(self.tx, WF, run.number)
        context = RunContext(
            self.parts, run, loaded, _handler("act"), _nothing_follows, state=None, grants={}, reserved=(), traced=0)
        answer = answer_of(kind)
        if answer.closed:
            self.parts.call_ends.seen(found.id, self.clock.steady_ms())
        verb = await self._committing(sending._record(context, found, answer))
        self._arrive(verb)
        if kind == "hangs":
            self.live |= {found.id}

    async def call_ends(self, kind: str) -> None:
        """A call that was given up ends."""
        for mutation_id in sorted(self.live):
            before = self._mutation(mutation_id)
            self.parts.call_ends.seen(mutation_id, self.clock.steady_ms())
            sign = await late_evidence._of_call(self.parts, before, LATE[kind])  # type: ignore[arg-type]
            await self.ledger.write(mutations.close, mutation_id, sign)
            self._check_heard(kind, before, self._mutation(mutation_id))
        self.live = frozenset()

    def _check_heard(self, kind: str, before: Mutation, after: Mutation) -> None:
        assert "ended_late" in str(after.evidence), "I10: what a call said that ended late was dropped"
        assert after.closed_at is not None, "I5: a call that has ended is closed"
        ends_doubt = kind == "ok" and before.status in DOUBTFUL
        assert after.status == ("applied" if ends_doubt else before.status), "I10: a late sign changed an outcome"
        against = {"failed": "ok", "skipped": "ok", "applied": "transient"}.get(before.status)
        assert (after.contradicted_at is not None) == (kind == against), "I10: a contradiction is raised, nothing else"

    def _mutation(self, mutation_id: str) -> Mutation:
        row = self.tx.one("mutation_by_id", mutation_id=mutation_id)
        assert row is not None
        return mutation_record(row)

    async def crash(self) -> None:
        """The process dies, with its calls."""
        self.alive, self.at, self.live = False, "idle", frozenset()
        self.parts.call_ends.seen_ms.clear()

    async def start(self, commits: int = 0) -> None:
        """A new host starts; with `commits`, it dies after so many."""
        self._new_host()
        self.alive, self.at = True, "idle"
        self.ledger.commits, self.ledger.pause_at = [], commits
        try:
            await recover(self.parts)
        except Paused:
            await self.crash()
        else:
            if commits:
                raise Nothing
        finally:
            self.ledger.pause_at = 0

    async def end(self) -> None:
        """The host ends in order."""
        await self.ledger.write(workflows.end_host)
        await self.crash()

    async def time(self) -> None:
        """One unit passes."""
        self._pass_time()

    async def deploy(self, gone: bool) -> None:
        """A new version becomes active."""
        row = self.tx.one("workflow_by_id", workflow_id=WF)
        assert row is not None
        self.ledger.commits = []
        before, number = (1, row["minor"]), (1, row["minor"] + 1 + gone)
        await self.ledger.write(workflows.deploy, WF, version(gone), number, before)

    async def act(self, name: str, subject: str | None = None) -> None:
        """What a person does, on the newest thing of its kind or on a given one."""
        self.ledger.commits = []
        who = "ann"
        match name:
            case "approve":
                await self.commands.approve(subject or self.last_id("approval"), who)
            case "reject":
                await self.commands.reject(subject or self.last_id("approval"), who)
            case "try_again" | "did_not_happen" | "happened" | "skip":
                await self.commands.resolve(subject or self.last_id("mutation"), name, None, who)
            case "retry":
                await self.commands.retry(subject or self.last_id("run"), who)
            case "skip_run":
                await self.commands.skip_run(subject or self.last_id("run"), who)
            case "finish":
                await self.commands.finish(subject or self.last_id("run"), who)
            case "pause" | "resume":
                await getattr(self.commands, name)(WF, who)
            case "allow" | "ask" | "deny":
                await self.commands.grant(WF, "out.send", name, who)
            case _:
                raise AssertionError(name)


RUN_ACTS = ("retry", "skip_run", "finish")
MUTATION_ACTS = ("try_again", "did_not_happen", "happened", "skip")
APPROVAL_ACTS = ("approve", "reject")
NOT_NOW = (Refused, NotFound)

__all__ = [
    "APPROVAL_ACTS", "LATE", "MUTATION_ACTS", "NOT_NOW", "POLICY", "RUN_ACTS", "UNIT_S", "VERDICTS", "WF", "Machine",
    "Moment", "Nothing", "Setting", "replace",
]
