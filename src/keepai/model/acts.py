"""Every act, in one table: who has it, what it is done to, its parameters, and the words that people read.

All doors use it. A program asks a host for an act by its name, which is a method of `Keep` with these parameters. The
answers that `resolve` takes are acts too: questions offer them, and the account names them. An act that a role does not
have is not there for it: no door offers it, and `Keep` does not know it. `tests/test_acts.py` checks all doors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .principals import Role


@dataclass(frozen=True)
class Param:
    """One parameter of an act."""

    types: tuple[type, ...]
    required: bool = False


@dataclass(frozen=True)
class Act:
    """Something that a person or a program does. Without a label it has no button."""

    roles: frozenset[Role]  # who has it
    on: tuple[str, ...]  # what its first parameter names: a workflow, or something with an id
    params: Mapping[str, Param]
    help: str  # one sentence
    typed: str  # the command; {0} is the subject, {wf} its workflow
    said: str = ""  # what the command line prints afterwards; {0} is the subject, {1} the result
    label: str = ""
    comes: str = ""  # what it leads to
    done: str = ""  # what is shown once it is done
    risk: str | None = None  # what goes wrong if it is the wrong act; if given, a person must confirm
    answers: str | None = None  # for an answer that `resolve` takes: the kind of question
    permits: bool = False  # it can change what a workflow may do
    brings: tuple[tuple[str, str], ...] = ()  # machine and target of the moves of its subject that it causes
    lets_in: str | None = None  # the prefix of those among its subjects that are scripts: for them it needs an owner

    @property
    def command(self) -> str:
        """The command that does it."""
        return self.typed.split()[1]


_OWNER = frozenset({Role.OWNER})
_PEOPLE = _OWNER | {Role.OPERATOR}  #: people who act
_AGENTS_TOO = _PEOPLE | {Role.PROPOSE}
_TEXT = Param((str,), required=True)
_SHOWN = {"shown": Param((int, type(None)))}
_WORKFLOW, _ID, _RUN = {"wf": _TEXT, **_SHOWN}, {"id": _TEXT, **_SHOWN}, {"run_id": _TEXT, **_SHOWN}
_RESOLVE = {"mutation_id": _TEXT, "answer": _TEXT, "result": Param((object,)), **_SHOWN}


def _answer(name: str, label: str, comes: str, done: str, risk: str | None = None, *, to: str = "unknown_outcome",
            more: str = "", brings: tuple[tuple[str, str], ...] = ()) -> Act:
    typed = f"keep resolve {{0}} {name}{more}"
    return Act(_PEOPLE, ("mutation",), _RESOLVE, comes, typed, "", label, comes, done, risk, to, brings=brings)


#: Name of an act → what it is.
ACTS: Mapping[str, Act] = MappingProxyType({
    "deploy": Act(
        _OWNER, (),
        {"source": _TEXT, "grants": Param((str, dict, type(None))), "strand": Param((bool,)),
         "configured": Param((dict,)), "cases": Param((str, type(None)))},
        "Store a script and make it the active version.", "keep deploy FILE",
        comes="with the script mended: the run goes on with the new version", permits=True),
    "fix": Act(
        _AGENTS_TOO, ("workflow",),
        {"wf": _TEXT, "source": _TEXT, "impact": Param((str, type(None))), "note": Param((str,))},
        "Offer a repair for the run that failed.", "keep fix {wf} FILE"),
    "propose": Act(
        _AGENTS_TOO, (),
        {"source": _TEXT, "why": _TEXT, "cases": Param((str, type(None))),
         "grants": Param((str, dict, type(None))), "workflow_id": Param((str, type(None))), "work": Param((object,))},
        "Propose a script: a person must accept it before it is deployed.", "keep propose FILE"),
    "pause": Act(
        _AGENTS_TOO, ("workflow",), _WORKFLOW, "Start nothing more of a workflow for now.", "keep pause {wf}",
        "{0} is paused: it starts nothing until `keep resume`.", "Pause",
        "it starts nothing until somebody resumes it", "It starts nothing until somebody resumes it.",
        brings=(("workflow", "paused"),)),
    "resume": Act(
        _PEOPLE, ("workflow",), _WORKFLOW, "Let a paused or stopped workflow run again.", "keep resume {wf}",
        "{0} is active.",
        "Resume the workflow", "let the workflow run again", "The workflow runs again.",
        brings=(("workflow", "active"),)),
    "stop": Act(
        _PEOPLE, ("workflow",), _WORKFLOW, "End a workflow.", "keep stop {wf}",
        "{0} is stopped. What it did stays on record.",
        "Stop this workflow", "end it; what it did stays on record", "The workflow is stopped.",
        "It starts nothing until somebody resumes it. What is under way may end; what was done stays done.",
        brings=(("workflow", "stopped"),)),
    "set": Act(
        _PEOPLE, ("workflow",), {"wf": _TEXT, "waiting": _TEXT, **_SHOWN},
        "Say what else of a workflow goes on while a run of it waits for a person.",
        "keep set {wf} waiting=others", "", "Set it",
        "while a run of the workflow waits for a person, this much of it goes on",
        "From now on, this much goes on while a run waits for a person."),
    "run_now": Act(
        _PEOPLE, ("workflow",), _WORKFLOW, "Queue every producer and routine of a workflow.", "keep run-now {wf}", "",
        "Run now", "have its producers and routines run now", "Its producers and routines run as soon as they can."),
    "send": Act(
        _PEOPLE, (), {"to": _TEXT, "data": Param((object,), required=True), "id": Param((str, type(None))),
             "title": Param((str, type(None))), **_SHOWN},
        "Send something in by hand: into a topic, or into an inbox.", "keep send {0} --data JSON", "",
        "Send it in", "put it in, as if it had come by itself", "It was sent in."),
    "replay": Act(
        _PEOPLE, (), {"delivery": _TEXT, "inbox": Param((str, type(None)))}, "Put a delivery into its inbox once more.",
        "keep replay {0}"),
    "grant": Act(
        _OWNER, ("workflow",), {"wf": _TEXT, "capability": _TEXT, "mode": Param((str, dict)), **_SHOWN},
        "Allow a workflow a capability, such as sheets.appendRow.", "keep grant {wf} {capability}", "",
        "Allow it", "the workflow may do it from now on, and the run goes on",
        "The workflow may do it from now on, and the run goes on.", permits=True),
    "approve": Act(
        _PEOPLE, ("approval", "repair"), _ID, "Allow exactly the call, or the repair, that `keep todo` shows.",
        "keep approve {0}", "{0} is approved: exactly what was shown is done, once.",
        "Approve", "exactly this is done, once", "Exactly this is done, once.", permits=True,
        brings=(("approval", "approved"),), lets_in="fix"),
    "reject": Act(
        _PEOPLE, ("approval", "repair"), _ID, "Refuse the call, or the repair, that `keep todo` shows.",
        "keep reject {0}",
        "{0} is rejected: nothing of it is done.",
        "Reject", "it is not done; a held call ends its events as skipped", "It is not done.",
        "What was to be done is given up, and nothing asks for it again.", brings=(("approval", "rejected"),)),
    "accept": Act(
        _OWNER, ("proposal",), {"id": _TEXT, "grants": Param((dict, type(None))), "shown": Param((str, type(None)))},
        "Accept a proposal, exactly as it was shown: it becomes the active version.", "keep accept {0}", "",
        "Accept", "exactly this becomes the active version", "It is the active version now.",
        permits=True, brings=(("proposal", "accepted"),)),
    "decline": Act(
        _PEOPLE, ("proposal",), {**_ID, "why": Param((str,))}, "Decline a proposal.", "keep decline {0}", "",
        "Decline", "nothing is deployed; its proposer may propose another", "It was declined.",
        brings=(("proposal", "declined"),)),
    "withdraw": Act(
        _AGENTS_TOO, ("proposal",), _ID, "Take back what you have proposed.", "keep withdraw {0}", "{0} is withdrawn.",
        brings=(("proposal", "withdrawn"),)),
    "retry": Act(
        _PEOPLE, ("run",), _RUN, "Try a stopped run again now.", "keep retry {0}", "{1} carries on.",
        "Try again", "try it again now", "It is tried again.", brings=(("status", "superseded"),)),
    "skip_run": Act(
        _PEOPLE, ("run",), _ID, "Give up what a stopped run wanted to do.", "keep skip {0}", "",
        "Give it up",
        "give it up: a consumer is told and its events end as skipped, a routine goes on without the item",
        "It was given up.", "What was to be done here is not done, and nothing asks for it again.",
        brings=(("status", "active"), ("status", "abandoned"))),
    "skip_event": Act(
        _PEOPLE, ("event",), _ID, "Skip a waiting event.", "keep skip {0}", "",
        "Skip this event", "nothing is done for it", "It was skipped.", "No run takes it after that.",
        brings=(("event", "skipped"),)),
    "skip_input": Act(
        _PEOPLE, ("input",), _ID, "Skip an input: nothing more is done for it.", "keep skip {0}", "",
        "Skip this input", "nothing more is done for it; what was applied stays",
        "Nothing more starts because of this input.", "What waits because of it is given up.",
        brings=(("input", "skipped"),)),
    "reprocess": Act(
        _PEOPLE, ("event", "item"), _ID, "Have an event that has ended, or an item, processed once more.",
        "keep reprocess {0}",
        "{0} waits again. What came of it before stays on record.",
        "Work on it once more", "have it processed once more; what came of it before stays on record",
        "It is worked on once more.", "What was done for it before may be done a second time.",
        brings=(("event", "pending"), ("item", "processing"))),
    "finish": Act(
        _PEOPLE, ("run",), _RUN, "End a run whose mutation happened and whose `next` cannot run.", "keep finish {0}",
        "{0} is finished: its events are consumed, nothing was published.",
        "End it here", "end it: what happened stays, and nothing more is published",
        "It has ended. What happened stays.", "What should follow from it does not follow.",
        brings=(("status", "committed"),)),
    "resolve": Act(
        _PEOPLE, ("mutation",), _RESOLVE, "Answer for a mutation that nobody could verify.", "keep resolve {0} ANSWER"),
    "host_dead": Act(
        _OWNER, (), {"host": _TEXT}, "Say of a silent host that it is dead, and will never send anything again.",
        "keep host dead {0}", "{0} counts as dead: other hosts find out what became of its calls."),
    "host_drain": Act(
        _OWNER, (), {"host": _TEXT}, "Have a host hand over its work to others, and end.", "keep host drain {0}",
        "{0} hands over its work, and ends."),
    "certify": Act(
        _AGENTS_TOO, (), {"source": _TEXT, "cases": Param((str, type(None))), "script": Param((str,))},
        "Try a script with everything that can go wrong.", "keep certify [FILE]…"),
    "prune": Act(
        _OWNER, (), {"days": Param((int, type(None)))}, "Throw away the content of old work.", "keep db prune"),
    "agent_add": Act(
        _OWNER, (), {"name": _TEXT, "role": Param((str,))},
        "Let an agent in, with a token of its own.", "keep agent add {0}"),
    "agent_remove": Act(
        _OWNER, (), {"name": _TEXT}, "Let an agent in no more: its token is worth nothing.", "keep agent remove {0}",
        "{0} was removed: its token is worth nothing."),
    "user_add": Act(
        _OWNER, (), {"name": _TEXT, "role": Param((str,))},
        "Let a person in, with a token and a role.", "keep user add {0}"),
    "user_remove": Act(
        _OWNER, (), {"name": _TEXT}, "Let a person in no more: their token is worth nothing.", "keep user remove {0}",
        "{0} was removed: their token is worth nothing."),
    "set_pin": Act(
        _OWNER, (), {"pin": _TEXT}, "Set the PIN that acts of people need while there are agents.", "keep agent pin"),
    "try_again": _answer(
        "try_again", "Look again", "the outside system is asked once more, from the start",
        "The outside system is asked once more.", brings=(("mutation", "needs_reconcile"),)),
    "did_not_happen": _answer(
        "did_not_happen", "It didn’t happen", "you looked, and it is not there: it is sent again", "It is sent again.",
        "If it did happen, it will have happened twice.", brings=(("mutation", "failed"),)),
    "happened": _answer(
        "happened", "It happened",
        "you looked, and it is there: the script goes on with the result that you give, or with none",
        "It counts as done, and the script goes on.", "If it is not there, it will never be done.",
        more=" --result JSON", brings=(("mutation", "applied"),)),
    "skip": _answer(
        "skip", "Skip it", "go on without knowing: the script is told, its events end as skipped",
        "It was given up without knowing, and the script was told.",
        "Nobody looks after it any more, whether it happened or not."),
    "keep": _answer(
        "keep", "Keep what was done",
        "what was applied counts, and the script goes on with its result; nothing is sent",
        "What was applied counts, and the script goes on.", "What the script wants now is not sent.", to="difference"),
    "seen": _answer(
        "seen", "I have seen it", "you have looked, and done what was to be done; what is on record stays",
        "Noted. What is on record stays.", to="contradiction"),
})

#: What `resolve` takes → what it answers.
ANSWERS: Mapping[str, str] = MappingProxyType({name: act.answers for name, act in ACTS.items() if act.answers})

#: What a host is asked for by name.
REQUESTS: Mapping[str, Act] = MappingProxyType({name: act for name, act in ACTS.items() if not act.answers})


@dataclass(frozen=True)
class LookRequest:
    """Something that a host is asked to tell: a method of `Keep` with these parameters."""

    roles: frozenset[Role]
    params: Mapping[str, Param]


#: Name of a look → who has it, and its parameters. These need what only a host knows.
LOOKS: Mapping[str, LookRequest] = MappingProxyType({
    "needs_you": LookRequest(frozenset(Role), {"wf": Param((str,))}),
    "explain": LookRequest(frozenset(Role), {"id": _TEXT}),
    "page_origin": LookRequest(frozenset(Role), {}),
    "shadow": LookRequest(frozenset(Role), {
        "wf": _TEXT, "source": _TEXT, "last": Param((int, type(None))), "since": Param((int, str, type(None)))}),
    "evidence": LookRequest(frozenset(Role), {"wf": _TEXT}),
    "remedies": LookRequest(frozenset(Role), {"id": _TEXT}),
    "proposals": LookRequest(frozenset(Role), {"wf": Param((str, type(None))), "limit": Param((int, type(None)))}),
    "proposal": LookRequest(frozenset(Role), {"id": _TEXT}),
    "confirm_presence": LookRequest(_OWNER, {}),
    # It runs a script that nobody has let in yet, and reads for real if that is wanted: for those who may deploy it.
    "verdict": LookRequest(ACTS["deploy"].roles, {
        **{name: param for name, param in ACTS["deploy"].params.items() if name != "strand"},
        "rehearse": Param((bool,))}),
})


def has(role: Role | None, act: str, on: str = "") -> bool:
    """Whether a role has an act, on what has this id: only an owner lets a script in, whatever the act is called."""
    known = ACTS[act]
    lets_in = known.lets_in is not None and on.partition("_")[0] == known.lets_in
    return role in (_OWNER if lets_in else known.roles)


def requests_of(role: Role | None) -> Mapping[str, Mapping[str, Param]]:
    """The acts and looks that a role has, each with its parameters. For anybody else there are no others."""
    found: dict[str, Act | LookRequest] = {**REQUESTS, **LOOKS}
    return {name: each.params for name, each in found.items() if role in each.roles}
