"""What each command does, in the words of its own help; a test compares them.

The list in `keep --help` is made from this, so that it needs not load every command.
"""

from __future__ import annotations

SUMMARIES = {
    "demo": "Kill a host in mid-mutation, and see nothing lost or doubled.",
    "init": "Make a folder with a workflow that works at once.",
    "check": "Find mistakes in scripts without running anything.",
    "types": "Declare `ctx` as TypeScript, for editors and language models.",
    "test": "Run the workflows' own cases.",
    "test-connector": "Break a connector's outside in every way, and count.",
    "deploy": "Store a script and make it the active version.",
    "fix": "Offer a repair for the run that failed.",
    "rollback": "Make the text of an earlier version active again.",
    "graph": "Who publishes to which topic, and who takes from it.",
    "connect": "Connect ctx.NAME with an outside system, and try it.",
    "secrets": "What the connectors are entrusted with.",
    "dev": "Run the workflows here, with a page to look at, until Ctrl-C.",
    "serve": "Run the workflows here for a service manager.",
    "status": "How every workflow stands.",
    "todo": "What waits for you: questions that only a person can answer.",
    "inputs": "What came in, and what came of each.",
    "outputs": "What went out, and which inputs caused it.",
    "items": "What the routines worked on, and how far each has come.",
    "runs": "Every attempt at every handler, oldest first.",
    "show": "Everything about one thing, by its id or the beginning of it.",
    "why": "Why something stands where it stands, and what would move it.",
    "blast": "What a script version touched: its inputs, items, mutations.",
    "logs": "What a workflow's runs did, line by line.",
    "pause": "Start nothing more of a workflow for now.",
    "resume": "Let a paused or stopped workflow run again.",
    "stop": "End a workflow.",
    "run-now": "Queue every producer and routine of a workflow.",
    "grant": "Allow a workflow a capability, such as sheets.appendRow.",
    "approve": "Allow exactly the call, or the repair, that `keep todo` shows.",
    "reject": "Refuse the call, or the repair, that `keep todo` shows.",
    "retry": "Try a stopped run again now.",
    "skip": "Give up a run, an event, an input or an item.",
    "reprocess": "Have an event that has ended, or an item, processed once more.",
    "finish": "End a run whose mutation happened and whose `next` cannot run.",
    "resolve": "Answer for a mutation that nobody could verify.",
    "db": "The ledger's file.",
    "doctor": "See what is missing or wrong here, and what to do about it.",
    "completion": "Print what a shell needs to complete workflows and ids.",
}
