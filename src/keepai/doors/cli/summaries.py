"""What each command does, in the words of its own help; a test compares them.

The list in `keep --help` is made from this, so that it needs not load every command.
"""

from __future__ import annotations

from ...model.acts import REQUESTS

SUMMARIES = {
    **{act.command: act.help for act in REQUESTS.values() if act.command != "db"},
    "skip": "Give up a run, an event, an input or an item.",
    "demo": "Kill a host in mid-mutation, and see nothing lost or doubled.",
    "init": "Make a folder with a workflow that works at once.",
    "check": "Find mistakes in scripts without running anything.",
    "types": "Declare `ctx` as TypeScript, for editors and language models.",
    "test": "Run the workflows' own cases.",
    "test-connector": "Break a connector's outside in every way, and count.",
    "rollback": "Make the text of an earlier version active again.",
    "graph": "Who publishes to which topic, and who takes from it.",
    "connect": "Connect ctx.NAME with an outside system, and try it.",
    "secrets": "What connectors and channels are entrusted with.",
    "dev": "Run the workflows here, with a page to look at, until Ctrl-C.",
    "serve": "Run the workflows here for a service manager.",
    "status": "How every workflow stands.",
    "todo": "What waits for you: questions that only a person can answer.",
    "digest": "What came in, went out and failed lately, and what waits.",
    "inputs": "What came in, and what came of each.",
    "outputs": "What went out, and which inputs caused it.",
    "items": "What the routines worked on, and how far each has come.",
    "runs": "Every attempt at every handler, oldest first.",
    "show": "Everything about one thing, by its id or the beginning of it.",
    "why": "Why something stands where it stands, and what would move it.",
    "blast": "What a script version touched: its inputs, items, mutations.",
    "logs": "What a workflow's runs did, line by line.",
    "notify": "The channels by which people are told.",
    "db": "The ledger's file.",
    "doctor": "See what is missing or wrong here, and what to do about it.",
    "completion": "Print what a shell needs to complete workflows and ids.",
}
