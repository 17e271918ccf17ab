# ruff: noqa: E501 (a script is read best on one line)
"""No clock that a script can reach is finer than a millisecond, and it reaches no name that nobody has looked at."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keepai.model.operations import Step
from keepai.runtime.javascript.step import StepRun
from keepai.runtime.javascript.vm import Vm
from tests.runtime.script_world import job, value

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLOCKS = {
    "Date.now": "Date.now()",
    "a new date": "new Date().getTime()",
    "a date as a text": "Date.parse(new Date().toISOString())",
    "a date as a number": "+new Date()",
    "Date as a function of another": "Reflect.construct(Date, []).valueOf()",
}


@pytest.mark.parametrize("read", CLOCKS.values(), ids=CLOCKS.keys())
@pytest.mark.parametrize("step", [Step.PRODUCER, Step.PREPARE, Step.NEXT])
async def test_a_clock_of_a_script_moves_by_whole_milliseconds(runtime, host, step, read) -> None:
    body = (
        f"const read = () => {read}; const seen = new Set([read()]);"
        " while (seen.size < 4) seen.add(read()); return [...seen];"
    )
    seen = value((await runtime.run(job(body, step, state="1" if step is Step.NEXT else None), host)).value)
    assert all(type(each) is int for each in seen), seen


@pytest.mark.parametrize("real_ns", [1, 999_999, 1_234_567_890_123])
async def test_the_clock_that_the_interpreter_itself_reads_moves_by_whole_milliseconds(real_ns: int, monkeypatch) -> None:
    """Whatever an interpreter may offer as a clock (performance.now, say) is made of this one."""
    monkeypatch.setattr("time.clock_gettime_ns", lambda _clock: real_ns)
    written: list[bytes] = []
    vm, step = object.__new__(Vm), object.__new__(StepRun)
    step._fixed, step._ahead_ms = None, 0
    vm._step, vm.guest = step, SimpleNamespace(write=lambda _at, data: written.append(data))
    vm.clock(0)
    assert int.from_bytes(written[0], "little") == real_ns // 1_000_000 * 1_000_000


#: All that a script finds: whatever a new interpreter brings must be looked at first, and is no clock.
GLOBALS = """
    AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array BigUint64Array Boolean
    DOMException DataView Date DisposableStack Error EvalError Float16Array Float32Array Float64Array Function
    Infinity Int16Array Int32Array Int8Array InternalError Iterator JSON Keep Map Math NaN Number Object Promise
    Proxy RangeError ReferenceError Reflect RegExp Set String SuppressedError Symbol SyntaxError TextDecoder
    TextEncoder TypeError URIError URL URLSearchParams Uint16Array Uint32Array Uint8Array Uint8ClampedArray
    WeakMap WeakSet atob btoa console decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval
    globalThis isFinite isNaN parseFloat parseInt queueMicrotask structuredClone undefined unescape
"""


async def test_a_script_finds_no_name_that_nobody_has_looked_at(runtime, host) -> None:
    names = value((await runtime.run(job("return Object.getOwnPropertyNames(globalThis);"), host)).value)
    assert set(names) == set(GLOBALS.split())
