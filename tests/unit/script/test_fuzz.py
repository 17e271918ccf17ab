"""`check` accepts any text: it never raises and never takes long."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepai.script.check import Checked, check
from keepai.script.findings import CODES
from keepai.script.topic_graph import as_mermaid, graph
from tests.unit.script.samples import CLEAN, EXAMPLES, SURFACE, example

WHOLE = [*(example(path.name) for path in sorted(EXAMPLES.glob("*.js"))), CLEAN]
PIECES = [
    "ctx",
    ".",
    "gmail",
    "send",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ";",
    ",",
    "=>",
    "async ",
    "await ",
    "const ",
    "let ",
    "...",
    "`",
    "${",
    '"',
    "'",
    "\\",
    "\\u",
    "\n",
    "export default ",
    "Keep.workflow(",
    "Keep.consumer(",
    "return ",
    "if (a) ",
    "else ",
    "for (;;) ",
    "switch (a) { case 1: ",
    "default:",
    "try ",
    "catch ",
    "finally ",
    "function f",
    "class A ",
    "a",
    "1",
    "/",
    "*",
    "//",
    "/*",
    "?.",
    "??",
    "=",
    ":",
    "publishes",
    "topics",
    "😀",
    "\0",
    "<a>",
    "#x",
    "import ",
    "get ",
    "yield ",
    "new ",
    "delete ",
    "`${a}`",
    "({ ...a })",
    "([a, ...b])",
    "@",
    "ctx.gmail.send({});",
    "routines",
    "await ctx.withItem('1', 't', async (ctx) => {",
    "ctx.withItem(",
    "ctx.item.isDone",
    "const { isDone } = ctx.item;",
    "});",
    "fetch(",
    "globalThis.",
    "Date.now()",
    "new Date()",
    "{ messageId: ",
    "{ subkey: ",
    "ctx.state",
    "const p = ctx.peek('mail.in');",
    "p.length",
    "ctx.crm.find({ table: ",
    "ctx.crm.add({ key: ",
    "async () => ",
    ".forEach(",
    "while (a) { try { ",
    " } catch { ",
    "let c = [];",
    "c.push(",
    "[c] = ",
]
MODEST = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def answered(source: str) -> Checked:
    checked = check(source, SURFACE)
    lines = source.split("\n")
    for finding in checked.findings:
        assert finding.code in CODES
        assert 1 <= finding.line <= len(lines)
        assert 1 <= finding.column <= len(lines[finding.line - 1]) + 1
    if not checked.errors:
        assert checked.manifest is not None
        as_mermaid(graph(checked.manifest))
        checked.manifest.to_text()
    return checked


@MODEST
@given(st.text(max_size=300))
def test_any_text_is_answered(source: str) -> None:
    answered(source)


@MODEST
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_heap_of_javascript_is_answered(source: str) -> None:
    answered(source)


@MODEST
@given(st.data())
def test_any_mutation_of_a_good_script_is_answered(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(WHOLE))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(source)))
        end = min(len(source), start + data.draw(st.sampled_from([0, 1, 2, 5, 20, 200])))
        piece = data.draw(st.sampled_from([*PIECES, source[end : end + 40], ""]))
        source = source[:start] + piece + source[end:]
    answered(source)


@MODEST
@given(
    st.sampled_from(["// PRODUCER", "// MUTATE", "// PREPARE", "// MODULE", "// ROUTINE"]),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
)
def test_anything_inside_a_handler_is_answered(slot: str, code: str) -> None:
    answered(CLEAN.replace(slot, code))
