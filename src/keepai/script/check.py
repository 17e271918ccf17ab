"""Static analysis of a script: what it declares, and what is wrong with it. It never runs the script.

The stages, each in its own module: syntax, isolation, declaration, topics, calls on `ctx`, mutations, items, values for
the host. If the text cannot be parsed, the analysis ends after the first stage; otherwise all findings are reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.errors import Finding
from ..model.operations import Step, Surface
from .call_rules import capabilities, check_call, check_state, makes_mutation, reads
from .calls import CallSite, FollowedStep, follow
from .catch_rules import check_catches
from .declaration import Declaration, find_workflow, read_workflow
from .findings import ERROR, START, At, FindingReport
from .globals import check_globals
from .handlers import read_handlers
from .isolation import check_imports, check_shared_state
from .item_rules import check_items
from .literals import Literals
from .manifest import Manifest
from .message_ids import MessageIds, message_ids
from .message_rules import check_dialect_of_handlers, check_message
from .mutation_rules import check_mutations
from .param_rules import ParamRules
from .prepare_rules import check_prepare
from .promise_rules import check_promises
from .scope import Scopes
from .script_reading import ScriptReading
from .syntax import check_dialect, check_syntax
from .topic_rules import check_cycles, check_topics
from .tree import DEPTH_MAX, build, parse, place
from .volatile_ids import check_volatile_ids

SOURCE_BYTES_MAX = 1_000_000


@dataclass(frozen=True)
class Checked:
    """What `check` found. Without errors there is always a manifest."""

    manifest: Manifest | None  # None if the declaration cannot be read
    findings: tuple[Finding, ...]
    message_ids: MessageIds = field(default_factory=dict)  # how the script names its events

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that prevent a deploy."""
        return tuple(f for f in self.findings if f.severity == ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that do not prevent a deploy."""
        return tuple(f for f in self.findings if f.severity != ERROR)


def check(source: str, surface: Surface | None = None, *, mutate_reads: bool = False) -> Checked:
    """Analyse a script. Without a surface, operations of connectors are not judged. It accepts any text."""
    report = FindingReport()
    reading = read_script(source, report)
    manifest, names = (None, {}) if reading is None else _check_module(reading, surface, mutate_reads)
    return Checked(manifest, report.sorted(), names)


def read_script(source: str, report: FindingReport) -> ScriptReading | None:
    """The script as a tree; None if it cannot be parsed."""
    data = source.encode("utf-8", "replace")
    if len(data) > SOURCE_BYTES_MAX:
        report.add("too-large", START, f"The script has {len(data)} bytes; the limit is {SOURCE_BYTES_MAX}.",
                   "Move data out of the script.")
        return None
    tree, given_up = parse(data)
    if given_up is not None:
        report.add("too-slow", At(*place(data, given_up)), "Reading the script was given up here.",
                   "Correct the syntax errors above this place.")
        return None
    check_syntax(tree, data, report)
    if report.failed:
        return None
    root = build(tree, data)
    if root is None:
        report.add("too-deep", START, f"The script is nested deeper than {DEPTH_MAX} levels.", "Flatten it.")
        return None
    check_dialect(root, report)
    scopes = Scopes(root)
    return ScriptReading(root, scopes, Literals(scopes), report)


def _check_module(
    reading: ScriptReading, surface: Surface | None, mutate_reads: bool,
) -> tuple[Manifest | None, MessageIds]:
    check_imports(reading)
    check_globals(reading)
    node = find_workflow(reading)
    if node is None:
        return None, {}
    declaration, members = read_workflow(reading, node)
    read_handlers(reading, declaration, members)
    readable = not reading.report.failed
    check_topics(reading, declaration)
    calls = _check_steps(reading, declaration, surface, mutate_reads)
    check_cycles(reading, declaration, calls)
    check_dialect_of_handlers(reading, declaration, calls)
    manifest = declaration.to_manifest(capabilities(calls, surface), reads(calls, surface)) if readable else None
    return manifest, message_ids(reading, calls)


def _check_steps(
    reading: ScriptReading, declaration: Declaration, surface: Surface | None, mutate_reads: bool,
) -> list[CallSite]:
    steps = [follow(reading, handler, step, function)
             for handler in declaration.handlers for step, function in handler.steps.items()]
    params = ParamRules(reading, surface)
    for followed in steps:
        check_state(reading, followed)
        for call in followed.calls:
            if check_call(reading, declaration, call, surface, mutate_reads=mutate_reads):
                params.check(call)
            check_message(reading, call, surface)
    check_promises(reading, steps, surface, mutate_reads=mutate_reads)
    check_catches(reading, steps, surface, mutate_reads=mutate_reads)
    check_volatile_ids(reading, steps, surface)
    _check_consumers(reading, steps, surface, mutate_reads)
    check_items(reading, steps, surface)
    check_shared_state(reading, [followed.function for followed in steps])
    return [call for followed in steps for call in followed.calls]


def _check_consumers(
    reading: ScriptReading, steps: list[FollowedStep], surface: Surface | None, mutate_reads: bool,
) -> None:
    mutating = set()
    for followed in steps:
        if followed.step is Step.MUTATE:
            mutations = [call.node for call in followed.calls
                         if makes_mutation(call, surface, mutate_reads=mutate_reads)]
            check_mutations(followed, mutations, reading.report)
            if mutations:
                mutating.add(followed.handler.name)
    for followed in steps:
        if followed.step is Step.PREPARE:
            check_prepare(reading, followed.handler, has_mutation=followed.handler.name in mutating)
