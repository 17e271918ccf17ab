"""Writes the pages of docs/ that are derived from the code: `python docs/generate.py`, or `--check` to compare only.

What a state, an error, a finding, a setting or a command means is said once, in the code; these pages repeat it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import click

import keepai
from keepai.app import Keep
from keepai.config import table as settings_table
from keepai.connectors import NOT_SETTINGS, TYPES
from keepai.connectors import load as load_type
from keepai.connectors.base import Connector, OperationSpec
from keepai.connectors.typescript import type_of
from keepai.doors.cli.help_texts import EXAMPLES
from keepai.doors.cli.json_shapes import SHAPES, Shape
from keepai.doors.cli.json_shapes import shown as shown_shape
from keepai.doors.cli.main import keep
from keepai.ledger.invariants import RULES
from keepai.ledger.queries import load as load_statements
from keepai.model import errors, states
from keepai.model.acts import ACTS, ANSWERS, REQUESTS, Act
from keepai.model.errors import OUTCOMES, Consequence, KeepError
from keepai.model.ids import KINDS
from keepai.model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from keepai.model.policy import settings as policy_settings
from keepai.model.principals import Role
from keepai.model.records import Error, Escalation, Event, Input, Item, Mutation, Output, Record, Run, Workflow
from keepai.model.states import MACHINES, REASONS, Machine, as_mermaid, shown
from keepai.notices import TYPES as CHANNELS
from keepai.notices import load as load_channel
from keepai.notices.base import Channel
from keepai.reading.graph_svg import svg
from keepai.reading.offered_acts import command
from keepai.script.check import check
from keepai.script.findings import CODES
from keepai.script.topic_graph import graph
from keepai.testing import ManualClock

HERE = Path(__file__).parent
TEMPLATE = HERE.parent / "src/keepai/doors/cli/template"
HEAD = "<!-- Written by docs/generate.py; change the code, then run `make docs`. -->\n\n"

#: What each machine is about, for people.
ABOUT = {
    "phase": "How far a run has come. It only moves forward; a failure changes the status and leaves the phase.",
    "status": "How a run is doing. `active`, `paused` and `failed` hold the workflow: nothing else of it starts.",
    "mutation": "What is known about one side effect. Only evidence or a person resolves an unknown outcome.",
    "event": "What became of a message in a topic. While a run holds it, people see `reserved`.",
    "input": "What became of something that came from outside. People see `pending`, `done` or `skipped`.",
    "item": "What became of one unit of a routine's work. Unfinished items are replayed, skipped or asked about.",
    "workflow": "Whether a workflow runs. Only people change it. \"Blocked\" means that its open run waits.",
    "approval": "What became of the question whether one exact call may be made.",
    "repair": "What became of one attempt to correct a script that failed.",
    "proposal": "What became of a script that somebody proposed. Only a person's yes deploys it.",
}
TITLES = {name: name.capitalize() for name in MACHINES} | {"phase": "Phase of a run", "status": "Status of a run"}


def meanings(kind: type[StrEnum]) -> dict[str, str]:
    """Value → its `#:` comment."""
    found = re.findall(r'^\s+\w+ = "([^"]+)"\s+#: (.+)$', inspect.getsource(kind), re.MULTILINE)
    assert {value for value, _ in found} == set(kind), f"every value of {kind.__name__} needs a #: line"
    return dict(found)


def sentence(text: str) -> str:
    """A remark as a sentence."""
    first = text if text.startswith(("`", "(")) else text[:1].upper() + text[1:]
    return first if first.endswith((".", "?", "!")) else first + "."


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def rows(head: Iterable[str], body: Iterable[Iterable[object]]) -> str:
    """A table."""
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(cell(each) for each in row) + " |" for row in body]
    return "\n".join(lines) + "\n"


# States


def states_page() -> str:
    """Every machine: diagram, states, moves."""
    parts = [
        "# States\n\nEverything that the ledger records is in exactly one state, and every move between two states is "
        "in one of the tables below. Python refuses any other move, and so does the database itself. Every move is "
        "kept, with its time.\n",
    ]
    parts += [_machine(machine) for machine in MACHINES.values()]
    parts.append(_reasons())
    return "\n".join(parts)


def _machine(machine: Machine) -> str:
    said = meanings(machine.states)
    listed = [(f"`{state}`", sentence(said[state]), _where(machine, state)) for state in machine.states]
    moves = [(f"`{s}`", f"`{t}`", why) for s, targets in machine.moves.items() for t, why in targets.items()]
    return (
        f"## {TITLES[machine.name]}\n\n{ABOUT[machine.name]}\n\n```mermaid\n{as_mermaid(machine)}\n```\n\n"
        + rows(("State", "Meaning", ""), listed) + "\n" + rows(("From", "To", "When"), moves)
    )


def _where(machine: Machine, state: StrEnum) -> str:
    words = {"first": state in machine.initial, "last": state in machine.terminal}
    return ", ".join(word for word, fits in words.items() if fits)


def _reasons() -> str:
    said = meanings(states.Reason)
    body = [
        (f"`{shown(status, reason)}`", sentence(said[reason]))
        for status, reasons in REASONS.items() for reason in states.Reason if reason in reasons
    ]
    text = "A run that waits or failed has a reason, which people see after the status.\n\n"
    return "## Reason of a run\n\n" + text + rows(("Shown as", "Meaning"), body)


# Phases


def phases_page() -> str:
    """Which step may ask for what."""
    steps, kinds = meanings(Step), meanings(Kind)
    matrix = [(f"`{kind}`", *(_allowed(step, kind) for step in Step)) for kind in Kind]
    return (
        "# What each step may ask for\n\nA script reaches the outside world only through `ctx`, and what `ctx` has "
        "depends on the step. Any other call ends the run as a logic failure; the script cannot catch it.\n\n"
        + rows(("Operation", *(f"`{step}`" for step in Step)), matrix)
        + "\n¹ only where the policy `mutate_reads` is `by_id`.\n\n## Steps\n\n"
        + rows(("Step", "Meaning"), ((f"`{step}`", sentence(steps[step])) for step in Step))
        + "\n## Operations\n\n`read`, `read_by_id` and `mutation` stand for the operations of connectors, such as "
        "`ctx.gmail.search`; `log` is `console.log` and `ctx.log`.\n\n"
        + rows(("Operation", "Meaning"), ((f"`{kind}`", sentence(kinds[kind])) for kind in Kind))
    )


def _allowed(step: Step, kind: Kind) -> str:
    if kind in ALLOWED[step]:
        return "✓"
    return "¹" if step is Step.MUTATE and kind in MUTATE_BY_ID else ""


# Errors


def errors_page() -> str:
    """The tree, and what each leads to."""
    consequences = meanings(Consequence)
    return (
        "# Errors\n\nEvery error has a code, which is kept with the run it stopped, and a consequence, which decides "
        "what becomes of that run. Connectors raise the ones below `ConnectorError`; anything else that a mutation "
        "raises means that its outcome is unknown.\n\n"
        + rows(("Error", "Code", "Meaning", "Leads to"), (_error(kind, depth) for kind, depth in tree()))
        + "\n## Consequences\n\n"
        + rows(("Consequence", "The run becomes", "Meaning"), (
            (f"`{each}`", f"`{shown(*OUTCOMES[each])}`", sentence(consequences[each])) for each in Consequence
        ))
    )


def tree(kind: type[KeepError] = KeepError, depth: int = 0) -> Iterator[tuple[type[KeepError], int]]:
    """Every error with its depth, parents first."""
    yield kind, depth
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child, depth + 1)


def _error(kind: type[KeepError], depth: int) -> tuple[str, str, str, str]:
    first = (kind.__doc__ or "").strip().splitlines()[0]
    return ("&emsp;" * depth + f"`{kind.__name__}`", f"`{kind.code}`", first, f"`{kind.consequence}`")


# Findings, settings, statements


def findings_page() -> str:
    """What `check` can say."""
    parts = [
        "# Findings\n\n`keep check` reads a script without running it. Each finding has a code, a place, a sentence "
        "and a fix. An error keeps the script from being deployed; a warning does not.\n",
    ]
    for severity, title in (("error", "Errors"), ("warning", "Warnings")):
        body = ((f"`{code}`", each.sentence) for code, each in CODES.items() if each.severity == severity)
        parts.append(f"## {title}\n\n" + rows(("Code", "Meaning"), body))
    return "\n".join(parts)


def settings_page() -> str:
    """Every setting with its default."""
    body = (
        (f"`{s.name}`", "" if s.default is None else f"`{_value(s.default)}`", s.meaning, ", ".join(
            f"`{word}`" for word in (s.flag, s.variable) if word)) for s in settings_table()
    )
    return (
        "# Settings\n\nSettings stand in `keep.toml`. A flag wins over an environment variable, the variable over the "
        "file, and the file over the default. The policy settings are also the arguments of `keepai.Policy`. Names end "
        "in their unit: `_s` is seconds, `_days` days, `_bytes` bytes, `_max` a greatest number.\n\n"
        + rows(("Setting", "Default", "Meaning", "Flag or variable"), body)
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


#: What the limits are about, and their settings in the order in which one meets them.
LIMITS: Mapping[str, str] = {
    "One step of a script": "script_s script_memory_bytes script_calls_max script_log_bytes_max message_bytes_max "
                            "peek_default peek_max peek_bytes_max",
    "One value": "payload_bytes_max state_bytes_max prepare_bytes_max",
    "One run": "events_per_run_max run_bytes_max reservations_max items_per_run_max trace_bytes_max "
               "trace_bytes_per_run_max chain_max recording_bytes_max",
    "One workflow": "workflow_bytes_max revisions_max stale_s parked_max recordings_max",
    "Calls to outside systems": "call_s retry_first_s retry_longest_s retries_max settle_s reconcile_s "
                                "reconcile_first_s reconcile_longest_s reconciles_max reconcile_total_s",
    "Schedules": "producer_interval_s wake_soonest_s wake_latest_s recheck_s",
    "People and repairs": "approval_s notify_s notify_retry_first_s notify_retry_longest_s notify_remind_s "
                          "repairs_max repair_s proposal_s",
    "One host": "runs_at_once_max workers_max crashes_max connections_max connections_per_address_max request_s "
                "retention_days",
}
NO_LIMITS = {"certified", "mutate_reads", "recordings", "repairs", "speculate"}  # settings that limit nothing


def limits_page() -> str:
    """Every limit with its default in plain units."""
    known = {name: (default, meaning) for name, default, meaning in policy_settings()}
    listed = {name for names in LIMITS.values() for name in names.split()}
    assert listed | NO_LIMITS == set(known), f"place these in LIMITS: {listed ^ (set(known) - NO_LIMITS)}"
    parts = [
        "# Limits at a glance\n\nEverything has a limit. A script that exceeds one of its limits ends as a logic "
        "failure that names the limit and the size. Each default below can be changed in `keep.toml` under `[policy]`; "
        "[settings](settings.md) has all of them.\n\nFixed, and no setting: values are JSON with at most 64 levels and "
        "integers within ±(2^53−1); one run at a time per workflow; one host per ledger.\n",
    ]
    for title, names in LIMITS.items():
        body = ((known[name][1], _plainly(name, known[name][0]), f"`{name}`") for name in names.split())
        parts.append(f"## {title}\n\n" + rows(("What", "Default", "Setting"), body))
    return "\n".join(parts)


def _plainly(name: str, value: object) -> str:
    """A setting's value with the largest unit in which it is a whole number."""
    units = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)) if "_bytes" in name else (
        ("days", 86_400), ("h", 3_600), ("min", 60)) if name.endswith("_s") else ()
    last = " bytes" if "_bytes" in name else " s" if name.endswith("_s") else " days" if name.endswith("_days") else ""
    assert isinstance(value, int | float), name
    for unit, size in units:
        if value >= size and value % size == 0:
            return f"{value / size:g} {unit}".replace("1 days", "1 day")
    return f"{value:,g}{last}"


def statements_page() -> str:
    """Every named statement with its purpose."""
    purposes = {name: text.splitlines()[0].removeprefix("--").strip() for name, text in load_statements().items()}
    body = ((f"`{name}`", purpose) for name, purpose in sorted(purposes.items()))
    return (
        "# Statements\n\nEvery statement that Keep runs on its ledger, by the name under which it stands in "
        "`src/keepai/ledger/queries/`.\n\n" + rows(("Name", "Purpose"), body)
    )


def checks_page() -> str:
    """What `keep db check` looks for."""
    body = ((f"`{name}`", sentence(found)) for name, found in RULES.items())
    return (
        "# What keep db check looks for\n\n`keep db check` reads the whole ledger, changes nothing, and may run beside "
        "a host. It has four checks:\n\n"
        "- `pages`: the database finds every index and constraint in order. SQLite looks at every page too; "
        "PostgreSQL does that itself, by checksums.\n"
        "- `references`: every row that refers to another finds it.\n"
        "- `account`: each entry of the [account](../operating/ledger.md#the-account) follows from the one before.\n"
        "- `invariants`: every row came to its present state by [allowed moves](../concepts/states.md), all of them in "
        "the account; and none of the things below is there.\n\n" + rows(("Rule", "What must never be there"), body)
    )


# Acts and commands


def acts_page() -> str:
    """Every act, as a method of `Keep` and as a command."""
    head = (
        "# Acts\n\nWhat people and programs do. Each act is a method of `Keep` with these parameters, a command, and "
        "where it has a button, what the page says. `shown` is the version of what the person saw: if anything of it "
        "has changed since, the act is refused. Acts marked * can change what a workflow may do. For a role that does "
        "not have an act there is no such act: no door offers it.\n\n"
    )
    asked = ((f"`{name}({', '.join(act.params)})`{' *' if act.permits else ''}", act.help, _roles(act),
              _typed(name), act.label or "–") for name, act in REQUESTS.items())
    answers = ((f"`{name}`", ACTS[name].comes, _roles(ACTS[name]), _typed(name),
                ACTS[name].label) for name in ANSWERS)
    columns = ("Roles", "Command", "Button")
    return head + rows(("Act", "Does", *columns), asked) + "\n## Answers that `resolve` takes\n\n" + rows(
        ("Answer", "What comes of it", *columns), answers)


def _roles(act: Act) -> str:
    lets_in = f"; for a {KINDS[act.lets_in][1]} only owner" if act.lets_in else ""
    return ", ".join(each for each in Role if each in act.roles) + lets_in


def _typed(act: str) -> str:
    return f"`{command(act, 'ID', 'WORKFLOW', 'CAPABILITY')}`"


def commands_page() -> str:
    """Every command with its help."""
    context = click.Context(keep, info_name="keep")
    parts = [f"# Commands\n\n{_help(keep)}\n\n" + rows(("Option", "Meaning"), _options(keep, context))]
    for name in keep.list_commands(context):
        command = keep.get_command(context, name)
        assert command is not None, name
        parts += _command(command, click.Context(command, info_name=name, parent=context), f"keep {name}")
    return "\n".join(parts)


def _command(command: click.Command, context: click.Context, name: str) -> Iterator[str]:
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    options = rows(("Option", "Meaning"), _options(command, context))
    example = "\n".join(f"$ {each}" for each in EXAMPLES[name.removeprefix("keep ")])
    yield f"## {name}\n\n```\n{usage}\n```\n\n{_help(command)}\n\n```\n{example}\n```\n\n{options}"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None, inner
            yield from _command(found, click.Context(found, info_name=inner, parent=context), f"{name} {inner}")


def _help(command: click.Command) -> str:
    assert command.help, f"the command {command.name} says nothing of itself"
    return inspect.cleandoc(command.help).replace("\b\n", "").strip()


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1] and "--help" not in parameter.opts:
            yield f"`{record[0]}`", record[1]


def json_page() -> str:
    """What every command prints for programs."""
    head = (
        "# JSON\n\nWhat each command prints with `--json`. `text?` may be null; `time` is ISO 8601 in UTC. A list is "
        "one JSON document; where it says lines, each line is one. Messages for people are on stderr. New members "
        "may be added; none of these is removed.\n"
    )
    parts = [f"## keep {name}\n\n" + "\n".join(_shape(case, shape) for case, shape in cases.items())
             for name, cases in SHAPES.items()]
    return "\n".join([head, *parts])


def _shape(case: str, shape: Shape) -> str:
    lead = f"{case[:1].upper()}{case[1:]}:\n\n".replace("; with", "With") if case else ""
    return f"{lead}```\n{shown_shape(shape)}\n```\n"


# Python


def python_page() -> str:
    """The public names of the package: the host, its records, what a connector is made of."""
    head = (
        "# Python API\n\n`from keepai import …` gives these names and no others: "
        + ", ".join(f"`{name}`" for name in keepai.__all__) + ". Everything else is internal and may change.\n"
    )
    kinds = (Workflow, Input, Output, Event, Run, Mutation, Item, Escalation, Error)
    authors = "\n".join(_member(name) for name in ("Connector", "read", "mutation", "Call", "Verdict", "Page"))
    raised = ((f"`{name}`", first_line(getattr(keepai, name))) for name in keepai.__all__
              if isinstance(getattr(keepai, name), type) and issubclass(getattr(keepai, name), KeepError))
    return "\n".join([
        head, _host(), "## Records\n\nWhat the lists give. A time is in milliseconds since 1970 UTC, and `to_json()` "
        "gives the record as plain JSON with ISO times.\n", *map(_record, kinds),
        "## Connectors\n\nWhat a connector is written with; see [writing a connector](../guides/connectors.md).\n",
        authors, "## Errors\n\nWhat connectors and `deploy` raise; [errors](errors.md) has all of them.\n",
        rows(("Error", "Meaning"), raised),
        "## Policy\n\n`Policy(retries_max=3)` changes single [settings](settings.md); the names are those after "
        "`policy.`.\n",
        "## Testing\n\n`from keepai.testing import ManualClock` gives a clock that stands still until a test "
        "moves it.\n",
        rows(("Method", "Does"), _methods(ManualClock)),
    ])


def first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _host() -> str:
    """`Keep`, its methods in the groups in which they stand."""
    source = inspect.getsource(Keep)
    parts = re.split(r"^    # -- (\w+).* -+$", source, flags=re.MULTILINE)
    text = f"## Keep\n\n`{_signature(Keep, 'Keep')}`\n\n{inspect.getdoc(Keep)} Every method is a coroutine, except "
    text += "`acting_as(principal)`: it gives the same open host for somebody else, with the acts of their role.\n\n"
    groups = []
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        names = re.findall(r"^    async def ([a-z]\w*)\(", body, re.MULTILINE)
        if names:
            groups.append(f"### {title.capitalize()}\n\n" + rows(("Method", "Gives", "Does"), (
                (f"`{_signature(getattr(Keep, name), name)}`", f"`{_returned(getattr(Keep, name))}`",
                 first_line(getattr(Keep, name))) for name in names)))
    return text + "\n".join(groups)


def _signature(thing: Callable[..., object], name: str) -> str:
    """Names and defaults, without types."""
    given = [each.replace(annotation=each.empty) for each in inspect.signature(thing).parameters.values()
             if each.name not in ("self", "cls")]
    return name + str(inspect.Signature(given))


def _returned(thing: Callable[..., object]) -> str:
    return str(inspect.signature(thing).return_annotation)


def _record(kind: type[Record]) -> str:
    """A record's fields, and what is remarked on some of them."""
    names = [each.name for each in dataclasses.fields(kind) if each.name not in kind.hidden()]  # type: ignore[arg-type]
    told = _remarks(kind) | {name: first_line(getattr(kind, name)) for name in kind.shown_too()}
    names += kind.shown_too()
    text = f"### {kind.__name__}\n\n{first_line(kind)}\n\n" + ", ".join(f"`{name}`" for name in names) + "\n"
    notes = [f"- `{name}`: {sentence(told[name])}" for name in names if name in told]
    return text + ("\n" + "\n".join(notes) + "\n" if notes else "")


def _remarks(kind: type) -> dict[str, str]:
    """Field → the comment behind it."""
    return dict(re.findall(r"^    (\w+): .*?  # (.+)$", inspect.getsource(kind), re.MULTILINE))


def _member(name: str) -> str:
    """One name that a connector's author uses."""
    thing = getattr(keepai, name)
    text = f"### {name}\n\n{inspect.getdoc(thing)}\n"
    if name == "Call":
        told = _remarks(thing)
        fields = ((f"`{each.name}`", sentence(told[each.name]) if each.name in told else "")
                  for each in dataclasses.fields(thing))
        text += "\n" + rows(("Field", "Meaning"), fields)
    elif name == "Verdict":
        text += "\n" + rows(("Verdict", "Meaning"), _methods(thing))
    return text


def _methods(kind: type) -> Iterator[tuple[str, str]]:
    for name, each in vars(kind).items():
        plain = each.__func__ if isinstance(each, classmethod) else each
        if inspect.isfunction(plain) and not name.startswith("_"):
            yield f"`{_signature(plain, name)}`", first_line(plain)


# Connectors


def connectors_page() -> str:
    """Every type of connector: settings, secrets, operations."""
    head = (
        "# Connectors\n\nWhat `type` in a table `[connectors.NAME]` of keep.toml may say; `ctx.NAME` then has the "
        "operations. A type of your own is `module:Class`: see [writing a connector](../guides/connectors.md).\n\n"
        "A mutation's class says what can be found out when its outcome is unknown. A: the outside system takes each "
        "idempotency key once. B: it can be looked up. C: neither, so a person is asked.\n"
    )
    return "\n".join([head, *(_type(name, load_type(name)) for name in sorted(TYPES))])


def _type(name: str, kind: type[Connector]) -> str:
    bare = kind.__new__(kind)  # no settings are needed to say what there is
    bare.name = "NAME"
    specs = [marked.spec(bare, each) for each, marked in kind._marked.items()]
    taken = [parameter for key, parameter in inspect.signature(kind).parameters.items() if key not in NOT_SETTINGS]
    prose = re.sub(r"\n(?:\w+: .+\n?)+$", "", inspect.getdoc(kind) or "")
    told = dict(re.findall(r"^(\w+): (.+)$", inspect.getdoc(kind) or "", re.MULTILINE))
    settings = [(f"`{each.name}`", _kind(str(each.annotation)), "required" if each.default is each.empty else
                 "" if each.default is None else f"`{_toml(each.default)}`", sentence(told.get(each.name, "")) if
                 each.name in told else "") for each in taken]
    secrets = [(f"`{each}`", sentence(what)) for each, what in kind.secrets.items()]
    operations = [
        (f"`{spec.name}`", _class(spec), sentence(spec.doc.splitlines()[0]), f"`{type_of(spec.params_schema)}`",
         f"`{type_of(spec.result_schema)}`") for spec in specs
    ]
    parts = [f"## {name}\n\n{prose.strip()}\n", rows(("Setting", "Type", "Default", "Meaning"), settings)]
    if secrets:
        parts.append(rows(("Secret", "Meaning"), secrets))
    return "\n".join([*parts, rows(("Operation", "Class", "Meaning", "Params", "Result"), operations)])


def _kind(annotation: str) -> str:
    """A setting's type in the words of TOML."""
    plain = annotation.removesuffix(" | None")
    words = {"bool": "true or false", "int": "whole number", "float": "number", "list[str]": "list of strings",
             "dict[str, str]": "table of strings", "list[dict[str, Any]]": "list of tables", "dict[str, Any]": "table"}
    return words.get(plain, "path" if "Path" in plain else "string")


def _class(spec: OperationSpec) -> str:
    return spec.safety if spec.kind is Kind.MUTATION else "read"


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


# Channels


def channels_page() -> str:
    """Every type of channel: settings and secrets."""
    head = (
        "# Channels\n\nWhat `type` in a table `[notify.NAME]` of keep.toml may say; see "
        "[notifications](../guides/notifications.md). Every type takes `digest` as well.\n"
    )
    return "\n".join([head, *(_channel(name, load_channel(name)) for name in sorted(CHANNELS))])


def _channel(name: str, kind: type[Channel]) -> str:
    told = dict(re.findall(r"^(\w+): (.+)$", inspect.getdoc(kind) or "", re.MULTILINE))
    taken = [each for key, each in inspect.signature(kind).parameters.items() if key not in NOT_SETTINGS]
    settings = [(f"`{each.name}`", _kind(str(each.annotation)), "required" if each.default is each.empty else
                 "" if each.default is None else f"`{_toml(each.default)}`", sentence(told[each.name]))
                for each in taken]
    parts = [f"## {name}\n\n{(inspect.getdoc(kind) or '').splitlines()[0]}\n"]
    if settings:
        parts.append(rows(("Setting", "Type", "Default", "Meaning"), settings))
    if kind.secrets:
        secrets = ((f"`{each}`", sentence(what)) for each, what in kind.secrets.items())
        parts.append(rows(("Secret", "Meaning"), secrets))
    return "\n".join(parts)


# Pictures


def invoices_picture() -> str:
    """The topic graph of the workflow that `keep init` makes."""
    manifest = check((TEMPLATE / "invoices.js").read_text("utf-8")).manifest
    assert manifest is not None
    return svg(graph(manifest))


PAGES: Mapping[str, Callable[[], str]] = {
    "concepts/states.md": states_page,
    "images/invoices.svg": invoices_picture,
    "reference/phases.md": phases_page,
    "reference/errors.md": errors_page,
    "reference/findings.md": findings_page,
    "reference/connectors.md": connectors_page,
    "reference/channels.md": channels_page,
    "reference/settings.md": settings_page,
    "reference/limits.md": limits_page,
    "reference/python.md": python_page,
    "reference/statements.md": statements_page,
    "reference/checks.md": checks_page,
    "reference/acts.md": acts_page,
    "reference/commands.md": commands_page,
    "reference/json.md": json_page,
}


def stale() -> dict[Path, str]:
    """Pages whose file is not what the code says, with what it says."""
    found = {}
    for name, write in PAGES.items():
        path, text = HERE / name, HEAD + write()
        if not path.exists() or path.read_text("utf-8") != text:
            found[path] = text
    return found


def main(arguments: list[str]) -> int:
    """Write what is stale, or with `--check` only say so."""
    old = stale()
    for path, text in old.items():
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        print(("stale: " if "--check" in arguments else "wrote ") + path.relative_to(HERE.parent).as_posix())
    return 1 if old and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
