"""Scripts: real ones with pieces cut out, doubled, swapped and put in; `check` must answer every text, and soon."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import strategies as st

from keepai.model.operations import SYSTEM_INPUTS, Kind, Surface
from keepai.script.check import check
from keepai.script.manifest import from_text
from tests.prove import soak_host, torture_host
from tests.prove.inputs.property import Holds, Property
from tests.prove.inputs.pure import TEXT

EXAMPLES = Path(__file__).parents[3] / "examples"
CPU_S_MAX = 10.0  # for one script of a few kilobytes, where a hundredth of that is usual: it does not end
SURFACE = Surface(
    {
        "gmail": {"search": Kind.READ, "get": Kind.READ_BY_ID, "send": Kind.MUTATION},
        "sheets": {"appendRow": Kind.MUTATION, "updateRow": Kind.MUTATION, "getRow": Kind.READ_BY_ID},
    },
    {"gmail": ("email",), **SYSTEM_INPUTS},
)
SOURCES = [
    *(path.read_text("utf-8") for path in sorted(EXAMPLES.glob("*.js"))),
    *torture_host.scripts(apart=True),
    *(f'export default Keep.workflow({{ name: "{name}", {body} }});' for name, body in soak_host.SCRIPTS.items()),
]
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
TOKENS = [_TOKEN.findall(source) for source in SOURCES]
WORDS = sorted({token for tokens in TOKENS for token in tokens})
ODD = [
    "`${",
    "}`",
    "=>",
    "...",
    "/*",
    "*/",
    "//",
    "/(a+)+$/",
    "await",
    "async",
    "function*",
    "class A { #x = 1 }",
    "import('x')",
    "import x from 'x';",
    "export",
    "default",
    "with",
    "eval",
    "new Function('')",
    "ctx",
    "ctx.peek",
    "Keep",
    "Keep.workflow",
    "Keep.consumer",
    "__proto__",
    "[ctx.x]",
    "?.",
    "??=",
    "0x",
    "1n",
    "'\\u{110000}'",
    "\u2028",
    "\u202e",
    "\ud800",
    "\0",
    "for(;;)",
    "const [a, ...b] =",
    "({ ...c })",
    "label:",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<!--",
    "#!x",
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A real script after a few cuts, or a pile of its words."""
    if draw(st.integers(0, 9)) == 0:
        return "".join(draw(st.lists(st.sampled_from(WORDS + ODD) | TEXT, max_size=60)))
    tokens = list(draw(st.sampled_from(TOKENS)))
    for _ in range(draw(st.integers(1, 5))):
        _mutate(draw, tokens)
    return "".join(tokens)


def _mutate(draw: st.DrawFn, tokens: list[str]) -> None:
    at = draw(st.integers(0, max(len(tokens) - 1, 0)))
    piece = tokens[at : at + draw(st.sampled_from([1, 1, 2, 5, 20, 100]))]
    match draw(st.integers(0, 6)):
        case 0:
            del tokens[at : at + len(piece)]
        case 1:
            tokens[at:at] = piece * draw(st.sampled_from([1, 2, 50]))
        case 2:
            tokens[at : at + 1] = [draw(st.sampled_from(WORDS + ODD))]
        case 3:
            tokens.insert(at, draw(st.sampled_from(ODD) | TEXT))
        case 4:
            to = draw(st.integers(0, max(len(tokens) - 1, 0)))
            tokens[to:to] = piece
        case 5:
            tokens[at : at + len(piece)] = [*["("] * 40, *piece, *[")"] * 40]
        case _:
            del tokens[at:]


def _holds(source: str) -> None:
    """Findings with a place and a way out, or a manifest that can be kept and read again."""
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        checked = check(source, SURFACE)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    lines = source.count("\n") + source.count("\r") + source.count("\u2028") + source.count("\u2029") + 1
    for finding in checked.findings:
        assert 1 <= finding.line <= lines, finding
        assert finding.column >= 1, finding
        assert finding.message, finding
        str(finding).encode()
    assert checked.errors or checked.manifest is not None, "no error, and no manifest"
    if checked.manifest is not None:
        assert from_text(checked.manifest.to_text()) == checked.manifest


@contextmanager
def _watched() -> Iterator[Holds]:
    """A check that does not end is interrupted after so much CPU time; only the main thread can be."""

    def too_slow(number: int, frame: FrameType | None) -> Any:
        raise TimeoutError(f"check took more than {CPU_S_MAX:.0f} s of CPU")

    before = signal.signal(signal.SIGVTALRM, too_slow)
    try:
        yield _holds
    finally:
        signal.signal(signal.SIGVTALRM, before)


SCRIPTS = Property("scripts", mutated(), _watched, 60)
