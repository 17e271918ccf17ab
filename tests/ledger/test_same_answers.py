"""What one store answers to a random sequence of verbs, the other answers too, and then both show the same.

Every verb runs in both with the same choices, on what its own ledger holds. Ids differ between two ledgers, so each id
is named by its place among all that came up before answers are compared. At the end every table is compared, and every
statement that only looks is asked with values that stand in the tables. KEEP_BUDGET (seconds, or "10m") buys further
programs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepai.ledger import stored_ids
from keepai.ledger.base import Ledger, Tx
from keepai.ledger.queries import load, reading
from keepai.ledger.rows import approval_record, mutation_record
from keepai.ledger.transitions import approvals, events, items, mutations, notices, pruning, repairs, runs, workflows
from keepai.ledger.transitions.approvals import Ask
from keepai.ledger.transitions.events import Publication
from keepai.ledger.transitions.mutations import Doubt, LateEvidence
from keepai.ledger.transitions.recordings import Recorded
from keepai.ledger.transitions.runs import Begin, Carry, ConsumerEnd, Prepared, Stop
from keepai.model.errors import KeepError
from keepai.model.ids import KINDS
from keepai.model.permissions import Grant, Mode
from keepai.model.records import Approval, Mutation, Run, Traced
from keepai.model.states import (
    ItemStatus,
    MutationStatus,
    Phase,
    Reason,
    RepairStatus,
    Status,
    WorkflowStatus,
)
from keepai.testing import ManualClock
from tests.ledger import rows
from tests.ledger.stores import STORES, Raw, columns, new_store, reads
from tests.limits import budget_s

VERBS = 250  #: in one program
WORDS = ("a", "B", "b", "é", "É", "100%", "a_b", "a'b", "\\", "z" * 40, "ß", "𝄞")
TEXTS = ('{"n":1}', '{"n":2}', '{"t":"é\\u0000"}', "[]", '{"big":"' + "x" * 300 + '"}')

Choose = Callable[[Tx, Random], Any]
OPEN = (Status.ACTIVE, Status.PAUSED, Status.FAILED)
ACTIVE, STOPPED = (Status.ACTIVE,), (Status.PAUSED, Status.FAILED)


# -- verbs with random choices -------------------------------------------------------------------------------


class NothingThere(Exception):
    """The ledger holds nothing that the verb could be tried on."""


def some(chance: Random, found: Sequence[Any]) -> Any:
    """One of these."""
    if not found:
        raise NothingThere
    return chance.choice(found)


def workflow(tx: Tx, chance: Random) -> str:
    return str(some(chance, tx.all("workflow_all"))["id"])


def run_of(tx: Tx, chance: Random, *phases: Phase, state: Sequence[Status] = OPEN) -> Run:
    """An open run, mostly one in such a phase and state; now and then any run."""
    found = [runs.get(tx, row["id"]) for row in tx.all("run_open_all")]
    fits = [run for run in found if (run.phase in phases or not phases) and run.state in state]
    if not found or chance.random() < 0.05:
        rows_ = tx.all("look_runs", workflow_id=workflow(tx, chance), limit=20)
        return runs.get(tx, some(chance, rows_)["id"])
    return some(chance, fits if fits or chance.random() < 0.8 else found)  # type: ignore[no-any-return]


def mutation_of(tx: Tx, chance: Random, run: Run) -> Mutation:
    """Mostly one of the run; or any of its workflow."""
    found = tx.all("look_mutations", workflow_id=run.workflow_id, limit=20)
    own = [row for row in found if row["run_id"] == run.id]
    chosen = some(chance, own if own and chance.random() < 0.95 else found)
    return mutation_record(tx.row("mutation_by_id", "it is there", mutation_id=chosen["id"]))


def approval_of(tx: Tx, chance: Random, workflow_id: str) -> Approval:
    return approval_record(some(chance, tx.all("approval_all", workflow_id=workflow_id)))


def event_of(tx: Tx, chance: Random, workflow_id: str) -> str:
    found = tx.all("page_events", workflow_id=workflow_id, topic=None, status=None, after=0, limit=30)
    return str(some(chance, found)["id"])


def publications(chance: Random, topic: str, causes: tuple[str, ...] = ()) -> list[Publication]:
    return [Publication(topic, chance.choice(WORDS), chance.choice(TEXTS), causes) for _ in range(chance.randint(0, 3))]


def stop_for(tx: Tx, chance: Random, *reasons: Reason) -> Stop:
    reason = chance.choice(reasons or (Reason.TRANSIENT, Reason.LOGIC, Reason.APPROVAL))
    status = Status.FAILED if reason in (Reason.LOGIC, Reason.INTERNAL) else Status.PAUSED
    return Stop(status, reason, '{"code":"x","message":"é"}', retry_at=chance.choice([None, tx.now + 30_000]),
                failures=chance.randint(0, 2), exhausted=chance.random() < 0.2,
                item=chance.choice([None, ItemStatus.FAILED]))


def line(run: Run, chance: Random) -> list[Traced]:
    return [Traced(run.id, chance.randint(1, 99), "prepare", chance.choice(("call", "log")), "peek", '["in"]',
                   chance.choice(TEXTS), None, 0, 7) for _ in range(chance.randint(0, 1))]


def deploy(tx: Tx, chance: Random) -> str:
    known = tx.all("workflow_all")
    if len(known) < 3:
        return workflows.deploy(tx, None, rows.version(chance.choice(WORDS)), (1, 0))
    chosen = some(chance, known)
    number = (chosen["major"], chosen["minor"] + chance.randint(0, 1))
    return workflows.deploy(tx, chosen["id"], rows.version(chosen["name"]), number)


def produce(tx: Tx, chance: Random) -> Run:
    return rows.produce(tx, workflow(tx, chance), *(chance.choice(WORDS) for _ in range(chance.randint(0, 3))))


def publish(tx: Tx, chance: Random) -> None:
    run = run_of(tx, chance)
    events.publish(tx, run.workflow_id, run.id, publications(chance, "in"))


def begin(tx: Tx, chance: Random) -> Run:
    busy = {row["workflow_id"] for row in tx.all("run_open_all")}
    free = [row["id"] for row in tx.all("workflow_all") if row["id"] not in busy]
    workflow_id = some(chance, free if chance.random() < 0.9 else [row["id"] for row in tx.all("workflow_all")])
    row = tx.row("workflow_by_id", "it is there", workflow_id=workflow_id)
    kind, phase = chance.choice([("consumer", Phase.PREPARING), ("consumer", Phase.PREPARING),
                                 ("routine", Phase.EXECUTING), ("producer", Phase.EXECUTING)])
    handler = {"consumer": "take", "producer": "poll", "routine": "go"}[kind]
    return runs.begin(tx, Begin(workflow_id, handler, kind, (row["major"], row["minor"]), phase, "event"))


def prepare(tx: Tx, chance: Random) -> Any:
    run = run_of(tx, chance, Phase.PREPARING, state=ACTIVE)
    waiting = tx.all("event_peek", workflow_id=run.workflow_id, topic="in", after=0, limit=9)
    wanted = [("in", row["message_id"]) for row in waiting if chance.random() < 0.5]
    wanted += [("in", chance.choice(WORDS))] if chance.random() < 0.1 else []
    given = Recorded("prepare", "{}", {"h": "é"} if chance.random() < 0.5 else {}, chance.choice([0, 0, 1]))
    return runs.prepare(tx, run, Prepared(tx.now, chance.choice(TEXTS), wanted, recorded=given), line(run, chance),
                        chance.choice([Phase.PREPARED, Phase.MUTATING]))


def prepare_and_send(tx: Tx, chance: Random) -> Any:
    run = run_of(tx, chance, Phase.PREPARING, state=ACTIVE)
    waiting = tx.all("event_peek", workflow_id=run.workflow_id, topic="in", after=0, limit=1)
    wanted = [("in", row["message_id"]) for row in waiting]
    return mutations.prepare_and_send(tx, run, Prepared(tx.now, "{}", wanted), [], rows.intent(chance.choice(KEYS)))


KEYS = ("one", "two", "0123456789abcdef" * 4)


def advance(tx: Tx, chance: Random) -> Run:
    run = run_of(tx, chance, Phase.PREPARED, Phase.MUTATING, state=ACTIVE)
    fits = Phase.MUTATING if run.phase is Phase.PREPARED else Phase.EMITTING
    target = fits if chance.random() < 0.8 else chance.choice(list(Phase))
    return runs.advance(tx, run, target, chance.choice([None, '{"status":"none"}']), line(run, chance))


def send(tx: Tx, chance: Random) -> Mutation:
    run = run_of(tx, chance, Phase.MUTATING, state=ACTIVE)
    return mutations.send(tx, run, rows.intent(chance.choice(KEYS)), line(run, chance))


def apply(tx: Tx, chance: Random) -> Run:
    run = run_of(tx, chance, Phase.MUTATING, Phase.EXECUTING)
    mutation = mutation_of(tx, chance, run)
    if mutation.status is MutationStatus.IN_FLIGHT:
        return mutations.apply(tx, run, mutation, chance.choice(TEXTS), '{"status":"applied"}', line(run, chance))
    return mutations.confirm_applied(tx, run, mutation, "{}", '{"status":"applied"}', chance.choice([None, "ann"]))


def refuse(tx: Tx, chance: Random) -> None:
    run = run_of(tx, chance, Phase.MUTATING, Phase.EXECUTING)
    mutation, why = mutation_of(tx, chance, run), stop_for(tx, chance, Reason.TRANSIENT, Reason.LOGIC)
    if mutation.status is MutationStatus.IN_FLIGHT:
        mutations.refuse(tx, run, mutation, why, [])
    else:
        mutations.confirm_absent(tx, run, mutation, why, chance.choice([None, "person: it did not happen"]))


def doubt(tx: Tx, chance: Random) -> None:
    run = run_of(tx, chance, Phase.MUTATING, Phase.EXECUTING)
    mutation = mutation_of(tx, chance, run)
    becomes = chance.choice([MutationStatus.NEEDS_RECONCILE, MutationStatus.INDETERMINATE])
    told = Doubt(becomes, stop_for(tx, chance, Reason.RECONCILIATION), closed=chance.random() < 0.5,
                 attempts=chance.randint(0, 3), evidence=chance.choice([None, '"odd"']))
    (mutations.doubt if mutation.status is MutationStatus.IN_FLIGHT else mutations.still_doubt)(
        tx, run, mutation, told, line(run, chance))


def hear(tx: Tx, chance: Random) -> bool:
    mutation = mutation_of(tx, chance, run_of(tx, chance))
    sign = LateEvidence(chance.choice(TEXTS), chance.choice([None, True, False]), chance.choice([None, "{}"]),
                        '{"status":"applied"}')
    return chance.choice([mutations.hear, mutations.close])(tx, mutation.id, sign)


def finish(tx: Tx, chance: Random) -> Any:
    run = run_of(tx, chance, Phase.PREPARED, Phase.EMITTING, Phase.EXECUTING, state=ACTIVE)
    if run.kind == "routine":
        return runs.commit_routine(tx, run, chance.choice([None, '{"n":1}']), tx.now + 60_000, line(run, chance))
    if run.phase in (Phase.PREPARED, Phase.MUTATING):
        run = runs.advance(tx, run, Phase.EMITTING, '{"status":"none"}')
    return runs.commit_consumer(tx, run, ConsumerEnd(
        tuple(publications(chance, "out")), state=chance.choice([None, '{"n":1}']), wake_at=chance.choice([None, 5]),
        trace=line(run, chance)))


def stop(tx: Tx, chance: Random) -> None:
    run = run_of(tx, chance, state=ACTIVE)
    runs.stop(tx, run, stop_for(tx, chance), line(run, chance))


def go_on(tx: Tx, chance: Random) -> Any:
    run = run_of(tx, chance, state=STOPPED)
    match chance.randint(0, 4):
        case 0:
            return runs.abandon(tx, run)
        case 1:
            return runs.resume(tx, run, run.phase)
        case 2:
            return runs.adopt(tx, run)
    keep = chance.random() < 0.7
    major, _, minor = run.version.partition(".")
    leaves = Status.CRASHED if run.state is Status.ACTIVE else Status.SUPERSEDED
    phase = run.phase if keep else Phase.PREPARING
    return runs.carry_on(tx, run, Carry(leaves, (int(major), int(minor)), phase, keep, "retry"))


def ask(tx: Tx, chance: Random) -> Approval:
    run = run_of(tx, chance, Phase.MUTATING, Phase.EXECUTING, state=ACTIVE)
    asked = Ask(rows.intent(chance.choice(KEYS)), "", "a rule", "digest", tx.now + 90_000)
    if chance.random() < 0.3:
        return approvals.ask_afresh(tx, run, approval_of(tx, chance, run.workflow_id), asked)
    return approvals.ask(tx, run, asked, stop_for(tx, chance, Reason.APPROVAL), line(run, chance))


def decide(tx: Tx, chance: Random) -> Any:
    workflow_id = workflow(tx, chance)
    approval = approval_of(tx, chance, workflow_id)
    run = runs.get(tx, approval.run_id)
    match chance.randint(0, 2):
        case 0:
            return workflows.approve(tx, approval, "ann")
        case 1:
            return workflows.reject(tx, run, approval, '{"status":"skipped"}', "ann")
    return approvals.send(tx, run, approval, rows.intent(chance.choice(KEYS)))


def item(tx: Tx, chance: Random) -> Any:
    run = run_of(tx, chance, Phase.EXECUTING, state=ACTIVE)
    match chance.randint(0, 5):
        case 0 | 1:
            return items.begin_item(tx, run, chance.choice(WORDS), chance.choice(WORDS))
        case 2:
            found = tx.row("item_of_run", "there is none", workflow_id=run.workflow_id, run_id=run.id)
            return items.end_item(tx, run, found["id"])
        case 3:
            found = some(chance, tx.all("look_items", workflow_id=run.workflow_id, limit=9))
            return workflows.reprocess_item(tx, tx.row("item_by_id", "it is there", item_id=found["id"]), "ann")
        case 4:
            return items.skip(tx, some(chance, tx.all("look_items", workflow_id=run.workflow_id, limit=9))["id"])
    found = tx.row("item_of_run", "there is none", workflow_id=run.workflow_id, run_id=run.id)
    return mutations.send(tx, run, replaced(rows.intent(chance.choice(KEYS)), item_id=found["id"]), [])


def replaced(intent: Any, **changed: Any) -> Any:
    return type(intent)(**{**vars(intent), **changed})


def of_person(tx: Tx, chance: Random) -> Any:
    workflow_id = workflow(tx, chance)
    match chance.randint(0, 9):
        case 0 | 1:
            target = chance.choice([*WorkflowStatus, *[WorkflowStatus.ACTIVE] * 6])
            return workflows.move(tx, workflow_id, target, target.value, "ann")
        case 2:
            return workflows.grant(tx, workflow_id, chance.choice(WORDS), Grant(chance.choice(list(Mode))), "bob")
        case 3:
            return workflows.note(tx, chance.choice([None, workflow_id]), "test", chance.choice(WORDS), "ann", {"é": 1})
        case 4:
            return workflows.run_now(tx, workflow_id, "ann")
        case 5:
            return workflows.skip_event(tx, workflow_id, event_of(tx, chance, workflow_id), "ann")
        case 6:
            return workflows.reprocess_event(tx, workflow_id, event_of(tx, chance, workflow_id), "ann")
        case 7:
            found = tx.all("look_inputs", workflow_id=workflow_id, limit=9)
            return workflows.skip_input(tx, workflow_id, some(chance, found)["id"], "ann")
        case 8:
            return workflows.skip_run(tx, run_of(tx, chance), None, '{"status":"skipped"}', "ann")
    run = run_of(tx, chance)
    mutation = mutation_of(tx, chance, run)
    match chance.randint(0, 3):
        case 0:
            return workflows.happened(tx, run, mutation, "{}", '{"status":"applied"}', "ann")
        case 1:
            return workflows.did_not_happen(tx, run, mutation, stop_for(tx, chance, Reason.TRANSIENT), "ann")
        case 2:
            return workflows.seen(tx, mutation, "ann")
    return workflows.finish_run(tx, run, "ann")


def repair(tx: Tx, chance: Random) -> Any:
    run = run_of(tx, chance)
    known = tx.all("look_repairs", workflow_id=run.workflow_id, limit=5)
    match chance.randint(0, 3) if known else 0:
        case 0:
            return repairs.ask_repair(tx, run)
        case 1:
            return repairs.end_repair(tx, some(chance, known)["id"], RepairStatus.DECLINED, "no")
        case 2:
            impact = chance.choice([None, "safe"])
            return repairs.offer_repair(
                tx, some(chance, known)["id"], run, repairs.Offer("source", impact, "é", "{}"))
    return repairs.reject_repair(tx, run.workflow_id, some(chance, known)["id"], "ann")


def notice(tx: Tx, chance: Random) -> Any:
    channel = chance.choice(("mail", "Mail", "chat"))
    match chance.randint(0, 3):
        case 0:
            return notices.know_channels(tx, {"mail": chance.random() < 0.5, "Mail": True})
        case 1:
            seen = tx.row("channel_get", "no such channel", name=channel)
            return notices.begin_notice(tx, {**seen, "attempts": seen["attempts"] + chance.randint(0, 1)}, tx.now + 5)
        case 2:
            return notices.end_notice(tx, channel, [(chance.choice(WORDS), "1")], chance.choice([None, 7]), None)
    return notices.fail_notice(tx, channel, chance.choice(WORDS), tx.now + 9)


def prune(tx: Tx, chance: Random) -> Any:
    window = some(chance, pruning.windows(tx, tx.now - chance.choice([0, 60_000])))
    found = pruning.to_prune(tx, window)
    pruning.prune(tx, window, found, "ann")
    return found


#: How often each is chosen.
PROGRAM: Mapping[Choose, int] = {
    deploy: 3, produce: 8, publish: 4, begin: 14, prepare: 12, prepare_and_send: 8, advance: 10, send: 8, apply: 8,
    refuse: 4, doubt: 6, hear: 4, finish: 14, stop: 6, go_on: 10, ask: 4, decide: 5, item: 10, of_person: 14,
    repair: 4, notice: 3, prune: 1,
}


# -- answers without what two ledgers never share ------------------------------------------------------------

_ID = re.compile(rf"\b(?:{'|'.join(KINDS)})_[0-9a-z]{{12}}\b")


@dataclass
class Answers:
    """One ledger, and the names of its ids: how many came up before."""

    ledger: Ledger
    clock: ManualClock
    tables: Raw
    names: dict[str, str] = field(default_factory=dict)

    def plain(self, value: Any) -> Any:
        """A value without ids, hosts and the words of a database."""
        if isinstance(value, str):
            return _ID.sub(self._name, value)
        if isinstance(value, Mapping):
            unshared = UNSHARED | {"seq"} if "act" in value else UNSHARED  # refused acts leave gaps in PostgreSQL
            return {str(name): self.plain(each) for name, each in value.items() if name not in unshared}
        if isinstance(value, (list, tuple)):
            return [self.plain(each) for each in value]
        return self.plain(vars(value)) if hasattr(value, "__dict__") and not callable(value) else value

    def _name(self, found: re.Match[str]) -> str:
        return self.names.setdefault(found[0], f"{found[0].partition('_')[0]} {len(self.names)}")

    async def run(self, verb: Choose, seed: str) -> Any:
        """What a verb answers, or how it is refused."""
        def chosen(tx: Tx) -> Any:
            return verb(tx, Random(seed))

        chosen.__name__ = verb.__name__
        try:
            return "done", self.plain(await self.ledger.write(chosen))
        except KeepError as error:
            said = error.message.partition(" (")[0]
            return type(error).__name__, self.plain(said)
        except NothingThere:
            return "nothing", None
        except (AssertionError, KeyError) as error:  # not meant to be asked: no engine would
            return type(error).__name__, None

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table, as everybody sees it who is given rows."""
        names = [name for name, _, _ in columns(self.tables, table)]
        if table == "account_subject":  # a word is there as its hash, and some words have ids in them
            names, found = ["entry"], self.tables.execute("select entry from account_subject order by 1")
            return stored_ids.rows(tuple(names))([tuple(each) for each in found])
        order = ", ".join(str(place) for place in range(1, len(names) + 1))
        found = self.tables.execute(f"select * from {table} order by {order}")
        return stored_ids.rows(tuple(names))([tuple(each) for each in found])


#: What differs between two ledgers: hashes over ids, and where the host is.
UNSHARED = {"chain", "pid", "machine", "ledger", "subject_id"}
NO_TABLES = {"ledger", "heartbeat", "owner", "nudge", "late_mark"}


def known_values(made: Answers, tables: Sequence[str]) -> dict[str, list[Any]]:
    """By column, everything that stands in it, in the order of the tables."""
    found: dict[str, list[Any]] = {}
    for table in tables:
        for row in made.rows(table):
            for name, value in row.items():
                values = found.setdefault(f"{table}_id" if name == "id" else name, [])
                if value not in values:
                    values.append(value)
    found["lineage"] = found.get("run_id", [])
    found["subject_id"] = [value for values in (found.get(f"{kind}_id", []) for kind in ("run", "event", "mutation"))
                           for value in values]
    return found


#: What a statement is asked with that names no column.
CHOICES: Mapping[str, Sequence[Any]] = {
    "limit": (1, 2, 3, 50), "after": (0, 3, 20), "before": (5, 40, 1 << 40), "first": (0, 5), "until": (20, 1 << 50),
    "floor": (0,), "span": (10, 1_000), "since": (0, 1_767_603_600_000), "since_at": (0,), "until_at": (1 << 50,),
    "status": (None, "pending", "consumed", "committed", "paused", "applied", "active", "done"),
    "text": (None, "a", "é", "%", "_b", "z"), "text_id": (None,), "lower": (None, "a", "é"), "upper": (None, "A", "É"),
    "topic": ("in", "out"), "seq": (0, 4, 30), "position": (0,), "old": (1 << 50,), "later": (1 << 50,), "runs": (5,),
    "kind": tuple(number for number, _ in KINDS.values()), "shown": (1, 5), "number": (0, 1), "handler": ("take", "go"),
    "newer": (0, 1), "most": (0, 1), "hash": ("h", "i"),
    "revision": (1, 2), "attempt": (1, 2), "epoch": (1, 2), "channel": ("mail", "Mail"), "minor": (0, 1), "major": (1,),
}


def given(query: str, made: Answers, known: Mapping[str, Sequence[Any]], chance: Random) -> dict[str, Any]:
    """Values for the parameters of a statement."""
    text = re.sub(r"--.*", "", load()[query])
    names = list(dict.fromkeys(re.findall(r"(?<!:):(\w+)", text)))
    values = {name: chance.choice(CHOICES.get(name) or known.get(name) or (None,)) for name in names}
    if "first_id" in values:
        values["first_id"], values["last_id"] = known["run_id"][0], known["run_id"][-1]
    return values


def shown(made: Answers, query: str, values: dict[str, Any]) -> Any:
    """What a statement finds. Where it says no order there is none, nor is it said what a limit leaves out."""
    ordered = re.search(r"order by [^)]*$", load()[query].strip())
    if not ordered and "limit" in values:
        values["limit"] = 1_000
    found = made.plain(reads(made.ledger).all(query, **values))
    return found if ordered else sorted(found, key=repr)


#: Statements that are not asked: what they say is about the store, or their answer has an end of its own making.
#: Which host is known to be dead is told in another way in each.
UNASKED = {
    "check_pages", "check_references", "look_begin", "look_end", "mutation_unclosed", "host_over", "workflow_here",
    "never_two_hosts_at_once",
}


async def compare(seed: str, folder: Path) -> None:
    """Run one program on both stores."""
    both = []
    stores = [new_store(name, folder) for name in STORES]
    clocks = [ManualClock(), ManualClock()]
    opened = [store.open(clock) for store, clock in zip(stores, clocks, strict=True)]
    try:
        with stores[0].raw() as first, stores[1].raw() as second:
            both = [Answers(*each) for each in zip(opened, clocks, (first, second), strict=True)]
            for made in both:
                made.plain(made.ledger.host)
            chance, did = Random(seed), list[str]()
            step = 0
            while len(did) < VERBS:
                step += 1
                verb = chance.choices(list(PROGRAM), list(PROGRAM.values()))[0]
                passes = chance.choice((0, 1, 30_000))
                told = []
                for made in both:
                    made.clock.advance(ms=passes)
                    if made.ledger.sharing:
                        await made.ledger.sharing.share(())  # it runs every workflow, as in a file
                    told.append(await made.run(verb, f"{seed}.{step}"))
                did += [f"{verb.__name__}: {told[0][0]}"] if told[0][0] != "nothing" else []
                assert told[0] == told[1], (seed, step, did[-5:])
            done = {each.partition(": ")[0] for each in did if each.endswith(": done")}
            assert len(done) > len(PROGRAM) * 3 / 4, f"the program {seed} tries little: {sorted(done)}"
            judge(both, seed)
    finally:
        for ledger in opened:
            await ledger.close()


def judge(both: Sequence[Answers], seed: str) -> None:
    """Every table, and every statement that only looks."""
    found = both[0].tables.execute("select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'")
    tables = sorted({name for (name,) in found} - NO_TABLES)
    for table in tables:
        one, other = [made.plain(made.rows(table)) for made in both]
        assert one == other, (seed, table)
    known, differ = [known_values(made, tables) for made in both], list[Any]()
    for query in sorted(reading() - UNASKED):
        for nth in range(4):
            asked = [given(query, made, values, Random(f"{seed}.{query}.{nth}"))
                     for made, values in zip(both, known, strict=True)]
            one, other = [shown(made, query, values) for made, values in zip(both, asked, strict=True)]
            if one != other:
                differ.append((query, asked[0], one, other))
    assert differ == [], seed


@pytest.mark.parametrize("seed", range(3))
async def test_both_stores_answer_the_same_to_any_verbs_and_show_the_same(tmp_path: Path, seed: int) -> None:
    until, number = time.monotonic() + budget_s() / 2, 0
    while number == 0 or time.monotonic() < until:
        (folder := tmp_path / str(number)).mkdir()
        await compare(f"{seed}.{number}", folder)
        number += 1


