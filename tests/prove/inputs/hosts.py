"""What scripts and connectors hand to a host: anything at all, through the real sandbox, gate and ledger."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from keepai import Call, Connector, Keep, Page, Policy, Verdict, mutation, read
from keepai.engine.outside import DEFINITE
from keepai.ledger.invariants import check_invariants
from keepai.model import errors
from keepai.model.codec import encode
from keepai.model.errors import KeepError, ScriptError
from keepai.model.records import Mutation, Run
from keepai.testing import ManualClock
from tests.harness import consumer, producer, workflow
from tests.prove.inputs.property import Holds, Property, shown
from tests.prove.inputs.pure import ANYTHING, JSON, TEXT

POLICY = Policy(call_s=0.05, reconcile_s=0.05, settle_s=1, reconciles_max=3, script_s=2, prepare_bytes_max=4000)


class Bench:
    """A host that lives as long as a seed; each input gets a workflow of its own."""

    def __init__(self, folder: Path, connector: Connector) -> None:
        self.clock = ManualClock()
        self.keep = Keep(folder / "keep.db", connectors=[connector], policy=POLICY, clock=self.clock)
        self._count, self.said = 0, list[str]()

    async def deploy(self, **handlers: Any) -> str:
        """A new workflow."""
        self._count += 1
        done = await self.keep.deploy(workflow(f"w{self._count}", topics=("in", "other"), **handlers), grants="all")
        return str(done.workflow_id)

    async def run(self, *, minutes: float = 0) -> None:
        """Let time pass and run what is due; a lane that crashes raises here."""
        self.clock.advance(minutes=minutes)
        await self.keep.run_until_idle()

    def sound(self) -> None:
        """Nothing in the file that must never be."""
        broken = check_invariants(self.keep.parts.ledger.reads)
        assert not broken, str(broken[0])


@contextmanager
def _benched(connector: Connector, holds: Any) -> Iterator[Holds]:
    """One event loop and one host; whatever nobody caught is caught here."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        loop = runner.get_loop()
        bench = Bench(Path(folder), connector)
        loop.set_exception_handler(lambda _, context: bench.said.append(str(context.get("exception") or context)))
        runner.run(bench.keep.__aenter__())

        def one(value: Any) -> None:
            bench.said.clear()
            runner.run(holds(bench, value))
            assert bench.said == [], bench.said
            bench.sound()

        try:
            yield one
        finally:
            runner.run(bench.keep.close())


# PrepareResult

_EVENTS = ("e1", "e2", "e3")


class Oracle(Connector):
    """Tells `prepare` what to return."""

    input_types = ("thing",)

    def __init__(self) -> None:
        super().__init__()
        self.says: Any = None

    @read
    async def say(self, params: dict[str, Any], call: Call) -> Any:
        return {"says": self.says}


#: What only a script can return: written out in it.
_EXPRESSIONS = (
    "undefined",
    "() => 1",
    "Symbol('x')",
    "10n",
    "new Date(NaN)",
    "new Map([[1, 2]])",
    "NaN",
    "-Infinity",
    "(() => { const a = {}; a.a = a; return a; })()",
    "({ toJSON() { throw new Error('no'); } })",
    "'\\ud800'",
    "({ reservations: [], data: {}, get ui() { throw 1; } })",
    "({ reservations: [], data: undefined })",
    "new Proxy({}, { ownKeys() { throw new Error('no'); } })",
    "'x'.repeat(5000)",
    "Promise.reject(null)",
    "({ reservations: Array.from({ length: 1001 }, (_, n) => ({ topic: 'in', ids: ['e' + n] })), data: {} })",
    "({ reservations: [], data: { toJSON: () => 10n } })",
    "({ __proto__: { reservations: [], data: {} } })",
)
_ID = st.sampled_from(_EVENTS) | st.sampled_from(["e9", "", "\0", "x" * 600]) | JSON
_RESERVATION = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["in", "in", "in", "other", "nowhere", "__proto__"]) | JSON,
        "ids": st.lists(_ID, max_size=4) | JSON,
        "more": JSON,
    },
)
_RESULT = st.fixed_dictionaries(
    {"reservations": st.lists(_RESERVATION, max_size=3) | JSON, "data": JSON},
    optional={
        "ui": st.fixed_dictionaries({"title": JSON}) | JSON,
        "wakeAt": JSON
        | st.datetimes().map(str)
        | st.sampled_from(["9999-12-31T23:59:59Z", "0001-01-01", "+1", "2026-02-30"]),
    },
)
_PREPARED = st.one_of(
    st.tuples(st.just("json"), _RESULT),
    st.tuples(st.just("json"), JSON),
    st.tuples(st.just("js"), st.sampled_from(_EXPRESSIONS)),
)


async def _prepared(bench: Bench, drawn: tuple[str, Any]) -> None:
    """Accepted, with exactly what was reserved taken; or an error of the script. Never the host's fault."""
    kind, value = drawn
    oracle = bench.keep.parts.connectors["oracle"]
    assert isinstance(oracle, Oracle)
    oracle.says = value
    body = "return (await ctx.oracle.say({})).says;" if kind == "json" else f"return {value};"
    wf = await bench.deploy(producers={"poll": producer(_THREE)}, consumers={"take": consumer(body)})
    await bench.run()
    runs = [run for run in await bench.keep.runs(wf) if run.handler == "take"]
    taken = {e.message_id for e in await bench.keep.events(wf, "in", "consumed")}
    _judge(runs[0], value, taken)  # a second run is told the same, and reserves what the first one has taken
    await bench.keep.stop(wf)


_THREE = """
  for (const id of ["e1", "e2", "e3"]) {
    const inputId = ctx.registerInput({ source: "oracle", type: "thing", id, title: id });
    await ctx.publish("in", { messageId: id, inputId, payload: {} });
  }
"""
_SCRIPT_CODES = {"script", *(kind.code for kind in ScriptError.__subclasses__())}


def _judge(run: Run, value: Any, taken: set[str]) -> None:
    if run.status == "committed":
        wanted = {i for r in value["reservations"] for i in r["ids"]} if isinstance(value, dict) else set()
        assert taken <= set(_EVENTS)
        assert not taken or taken <= wanted, f"{taken} were taken, {wanted} were wanted"
        assert all(r["topic"] == "in" for r in value["reservations"] if isinstance(value, dict)), value
        return
    assert run.status == "failed:logic", f"{run.status}: {run.error}"
    assert run.error is not None
    assert run.error.code in _SCRIPT_CODES, run.error
    assert taken == set()


PREPARED = Property("prepare results", _PREPARED, lambda: _benched(Oracle(), _prepared), 25)


# Connectors


class Nasty(Exception):
    """An exception that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Hostile(dict[str, Any]):
    """An object that breaks when it is looked into."""

    def items(self) -> Any:
        raise RuntimeError("do not look")

    __iter__ = keys = values = items


@dataclass(frozen=True)
class Act:
    """What a connector's method does: return, raise, hang or cancel itself."""

    does: str
    what: Any = None

    async def do(self) -> Any:
        """Do it."""
        match self.does:
            case "return":
                return self.what
            case "raise":
                raise self.what
            case "hang":
                await asyncio.sleep(3600)
            case "cancel":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
        return None


@dataclass
class Plan:
    """What becomes of a read, a send, and a question about it."""

    read: Act = field(default_factory=lambda: Act("return", []))
    send: Act = field(default_factory=lambda: Act("return", {}))
    find: Act = field(default_factory=lambda: Act("return", Verdict.failed()))


class Moody(Connector):
    """Does what the plan says."""

    input_types = ("thing",)
    plan = Plan()

    @read
    async def look(self, params: dict[str, Any], call: Call) -> Any:
        return await self.plan.read.do()

    @mutation(identity=("id",), target="id")
    async def put(self, params: dict[str, Any], call: Call) -> Any:
        return await self.plan.send.do()

    @put.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Any:
        return await self.plan.find.do()


_BUILT_IN = (
    ValueError,
    TypeError,
    KeyError,
    OSError,
    ConnectionResetError,
    TimeoutError,
    MemoryError,
    RecursionError,
    StopIteration,
    StopAsyncIteration,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    EOFError,
    BrokenPipeError,
    InterruptedError,
    UnicodeError,
    asyncio.InvalidStateError,
    asyncio.IncompleteReadError,
    GeneratorExit,
    SystemExit,
    Exception,
    BaseException,
)
_KEEPS = sorted(
    (v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, KeepError)), key=lambda v: v.__name__
)
_MESSAGE = TEXT | st.just("") | st.just("x" * 100_000) | st.sampled_from(["\ud800", "\0", "a\nb"])


def _raised(kind: type[BaseException], message: str) -> BaseException:
    if kind is asyncio.IncompleteReadError:
        return kind(b"", 3)  # type: ignore[call-arg]
    if kind is errors.ScriptInvalid:
        return errors.ScriptInvalid([])
    if not issubclass(kind, KeepError):
        return kind(message)
    named = inspect.signature(kind).parameters.values()
    return kind(*[message] * max(1, sum(each.default is inspect.Parameter.empty for each in named)))


_ERROR = st.one_of(
    st.builds(_raised, st.sampled_from(_BUILT_IN), _MESSAGE),
    st.builds(_raised, st.sampled_from(_KEEPS), _MESSAGE),
    st.builds(_raised, st.sampled_from(list(DEFINITE)), _MESSAGE),
    st.builds(Nasty),
    st.builds(lambda m: ExceptionGroup("several", [ValueError(m), errors.Rejected(m)]), _MESSAGE),
    st.builds(
        lambda after: errors.Transient("later", retry_after=after), st.floats() | st.integers() | TEXT | st.none()
    ),
)
_PAGE = st.builds(lambda items, field: Page(items, after=field), st.lists(ANYTHING, max_size=3), ANYTHING)
_VALUE = ANYTHING | _PAGE | st.builds(Hostile) | st.builds(Nasty) | st.just(Nasty)
_ACT = st.one_of(
    st.builds(Act, st.just("return"), _VALUE),
    st.builds(Act, st.just("raise"), _ERROR),
    st.just(Act("cancel")),
    st.sampled_from([Act("hang")] + [Act("return", {"id": 1})] * 4),
)
_AFTER = st.none() | st.floats(0, allow_infinity=False, allow_nan=False) | st.integers(0)
_VERDICT = st.one_of(
    st.sampled_from([Verdict.failed(), Verdict.retry(), Verdict.unknown("nobody knows")]),
    st.builds(Verdict.applied, _VALUE),
    st.builds(Verdict, st.sampled_from(["applied", "failed", "retry", "unknown"]), _VALUE, _AFTER, TEXT),
)
_FIND = st.builds(Act, st.just("return"), _VERDICT) | _ACT
_PLAN = st.one_of(
    st.builds(Plan, read=_ACT),
    st.builds(Plan, send=_ACT, find=_FIND),
    st.builds(Plan, send=st.just(Act("raise", OSError("cut"))), find=_FIND),
)
_LOOK = """
  await ctx.moody.look({});
  const inputId = ctx.registerInput({ source: "moody", type: "thing", id: "e1", title: "e1" });
  await ctx.publish("in", { messageId: "e1", inputId, payload: {} });
"""


async def _answered(bench: Bench, plan: Plan) -> None:
    """The lane goes on, and what is on record is what the table says of the answer."""
    moody = bench.keep.parts.connectors["moody"]
    assert isinstance(moody, Moody)
    moody.plan = plan
    take = consumer(mutate='await ctx.moody.put({ id: "e1" });')
    wf = await bench.deploy(producers={"poll": producer(_LOOK, interval="1d")}, consumers={"take": take})
    await bench.run()
    made = await bench.keep.mutations(wf)
    _judge_read(plan.read, (await bench.keep.runs(wf))[0]) if not made else _judge_send(plan, made[0])
    for _ in range(4):
        await bench.run(minutes=45)
    _judge_end(plan, (await bench.keep.mutations(wf))[:1])
    await bench.keep.stop(wf)


def _keepable(value: object) -> bool:
    """Whether a result can be kept; of a page, its fields too."""
    try:
        for part in (list(value), dict(value.fields)) if isinstance(value, Page) else (value,):
            encode(part)
    except (KeepError, RecursionError, RuntimeError):
        return False
    return True


def _judge_read(act: Act, run: Run) -> None:
    """A read that fails stops its run as its error says; one that nobody declared is the connector's fault."""
    expected = {"failed:internal"}
    if act.does == "hang" or isinstance(act.what, errors.Transient | errors.OutcomeUnknown | OSError):
        expected = {"paused:transient"}
    elif isinstance(act.what, errors.PermissionDenied | errors.PreconditionFailed):
        expected = {"paused:approval"}
    elif isinstance(act.what, errors.Rejected | ScriptError):
        expected = {"failed:logic"}
    elif act.does == "return":
        expected |= {"committed", "failed:logic"}  # an answer can be too large, too
    assert run.status in expected, f"{run.status} after {shown(act)}: {run.error}"


def _judge_send(plan: Plan, sent: Mutation) -> None:
    act = plan.send
    if act.does == "raise" and isinstance(act.what, DEFINITE):
        assert sent.status == "failed", f"{sent.status} after {shown(act)}"
    elif act.does == "return" and _keepable(act.what):
        assert sent.status == "applied", f"{sent.status} after {shown(act)}"
    else:
        doubted = sent.doubted_at is not None or sent.status == "applied"
        assert doubted, f"{sent.status} after {shown(act)}, never in doubt"


def _judge_end(plan: Plan, made: list[Mutation]) -> None:
    """An unknown outcome became `failed` only by the outside system's own word."""
    for sent in made:
        absent = (
            plan.find.does == "return" and isinstance(plan.find.what, Verdict) and plan.find.what.status == "failed"
        )
        definite = plan.send.does == "raise" and isinstance(plan.send.what, DEFINITE)
        assert sent.status != "failed" or absent or definite, f"failed after {shown(plan)}"
        assert sent.status != "in_flight", f"still in flight after {shown(plan)}"


ANSWERS = Property("connector answers", _PLAN, lambda: _benched(Moody(), _answered), 25)
