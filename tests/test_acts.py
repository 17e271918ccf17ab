"""One table of acts serves every door: each door has every act of the table, no other, with the same parameters."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

from keepai import Keep
from keepai.doors import control
from keepai.doors.cli import act_commands as typed
from keepai.doors.cli.main import COMMANDS, keep
from keepai.doors.cli.names import KINDS
from keepai.engine.commands import Commands
from keepai.model.acts import ACTS, REQUESTS, requests_of
from keepai.model.principals import OWNER, Role
from keepai.model.states import MACHINES
from keepai.reading.left_items import LEFT_ACTIONS
from keepai.reading.offered_acts import act_request, command
from keepai.reading.questions import ACTIONS
from keepai.reading.story import ON_WORKFLOW

SRC = Path(__file__).parents[1] / "src/keepai"

#: What a host does without `Commands`: each writes more than one thing.
ELSEWHERE = {"certify", "deploy", "prune"}

#: What questions offer; the last two depend on how far a run has come, and on what contradicts its mutation.
OFFERED = {act for acts in ACTIONS.values() for act in acts} | {*LEFT_ACTIONS, "finish", "seen"}


@pytest.mark.parametrize("name", REQUESTS)
def test_an_act_is_a_method_of_keep_with_the_parameters_of_the_table(name: str) -> None:
    known = inspect.signature(getattr(Keep, name)).parameters
    assert {each for each in known if known[each].default is inspect.Parameter.empty} - {"self"} == {
        each for each, param in REQUESTS[name].params.items() if param.required}
    assert set(REQUESTS[name].params) <= set(known)
    assert ("shown" in known) == ("shown" in REQUESTS[name].params)


def test_every_method_of_keep_that_says_what_was_shown_is_an_act() -> None:
    acting = {name for name, each in vars(Keep).items() if callable(each)
              and "shown" in inspect.signature(each).parameters}
    assert acting == {name for name, act in REQUESTS.items() if "shown" in act.params}


def test_the_engine_does_every_act_of_the_table_and_no_other() -> None:
    done = {name for name, each in vars(Commands).items() if inspect.iscoroutinefunction(each) and name[0] != "_"}
    assert done - {"accept_older", "evidence"} == set(REQUESTS) - ELSEWHERE
    named = set(re.findall(r'\bShownAct\("(\w+)"', (SRC / "engine/commands.py").read_text("utf-8")))
    assert {"skip_event", "grant"} <= named <= set(ACTS)


def test_the_control_socket_takes_every_act_and_ten_looks() -> None:
    owned = requests_of(Role.OWNER)
    assert set(owned) == set(REQUESTS) | {"needs_you", "explain", "page_origin", "shadow", "evidence",
                               "verdict", "remedies", "proposals", "proposal", "confirm_presence"}
    assert all(owned[name] == act.params for name, act in REQUESTS.items())


@pytest.mark.parametrize("name", ACTS)
def test_what_is_typed_for_an_act_is_a_command_with_these_arguments(name: str) -> None:
    act = ACTS[name]
    words = command(name, "THING", "WORKFLOW", "a.b").split()[1:]
    context = click.Context(keep)
    found = keep.get_command(context, words[0])
    assert found is not None
    if isinstance(found, click.Group):
        found, words = found.get_command(context, words[1]), words[1:]
        assert found is not None
    arguments = [each for each in found.params if isinstance(each, click.Argument)]
    options = {option for each in found.params for option in each.opts}
    given = [word for word in words[1:] if not word.startswith("--") and word != "JSON"]
    assert len(given) == len(arguments)
    assert {word for word in words if word.startswith("--")} <= options
    assert ("--shown" in options) == ("shown" in act.params)
    if not act.answers and not isinstance(keep.get_command(context, act.command), click.Group) and name[:5] != "skip_":
        assert inspect.cleandoc(found.help or "").partition("\n")[0].startswith(act.help)


def test_the_command_line_offers_no_act_that_is_not_in_the_table() -> None:
    assert set(typed.COMMANDS) == {name for name, module in COMMANDS.items() if module == "act_commands:COMMANDS"}
    assert set(typed.COMMANDS) == {act.command for act in ACTS.values() if "shown" in act.params}


@pytest.mark.parametrize("name", [name for name, act in ACTS.items() if act.label and act.on])
def test_a_button_sends_what_the_act_takes(name: str) -> None:
    request, params = act_request(name, "x_1", "wf_1", "gmail.send")
    control.check(OWNER, request, params)
    assert ACTS[name].comes
    assert ACTS[name].done


def test_the_page_has_a_form_for_every_act_with_a_label_and_for_no_other() -> None:
    pages = "".join(path.read_text("utf-8") for path in (SRC / "doors/web/templates").glob("*.html"))
    named = set(re.findall(r'ui\.act\("(\w+)"', pages))
    assert named | OFFERED == {"deploy"} | {name for name, act in ACTS.items() if act.label}, "a script is a file"


def test_stories_name_acts_of_the_table() -> None:
    assert {*ON_WORKFLOW} - {"accept_older"} <= set(ACTS)
    for name, act in ACTS.items():
        assert all(target in {*MACHINES[machine].states} for machine, target in act.brings), name


def test_an_act_is_done_to_a_workflow_or_to_something_with_an_id() -> None:
    kinds = {"workflow", *(kind for kind, *_ in KINDS.values())}
    assert all(set(act.on) <= kinds for act in ACTS.values())
