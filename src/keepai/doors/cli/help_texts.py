"""What `keep --help` says of each command, and an example for each; tests compare them with the commands."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ...model.acts import ACTS, REQUESTS

_SAMPLES = {
    "workflow": "invoices", "run": "run_01m7", "approval": "apr_01m7", "event": "evt_01m7", "input": "inp_01m7",
    "mutation": "mut_01m7",
    "proposal": "prp_01m7",
}

#: Command → what somebody would type, with what it is for.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "demo": ("keep demo --ui               # on a page, with buttons",
             "keep demo --cluster          # two hosts on one PostgreSQL, one of which is killed",
             "keep demo --keep demo        # and leave it there to look at"),
    "init": ("keep init invoices           # then: cd invoices, keep test, keep dev",
             "keep init reports --template daily-report",
             "keep init --connector tickets   # here; then: keep test-connector tickets.py",),
    "check": ("keep check                   # every script here", "keep check invoices.js --json"),
    "plan": ('keep plan "add a row to the sheet for every mail with an invoice"',
             'keep plan --continue prp_01m7 "also leave out those from the tax office"'),
    "repair": ("keep repair invoices",),
    "types": ("keep types keep.d.ts",),
    "test-connector": ("keep test-connector tickets.py",),
    "test": ("keep test                    # every case here", "keep test invoices.js -k lost"),
    "certify": ("keep certify                 # every script here",
                "keep certify invoices.js --only 1/death:after:apply"),
    "deploy": (
        "keep deploy invoices.js --grant gmail.search --grant sheets.appendRow=ask",
        "keep deploy invoices.js --dry-run",
    ),
    "fix": ('keep fix invoices mended.js --note "an empty subject"',),
    "propose": ('keep propose invoices.js --why "invoices without a number are filed too"',),
    "proposals": ("keep proposals", "keep proposals prp_01m7      # all of one"),
    "rollback": ("keep rollback invoices       # to the text before", "keep rollback invoices 1.0"),
    "graph": ("keep graph invoices", "keep graph invoices.js --svg > invoices.svg"),
    "connect": (
        "keep connect sheets local.sheets --set path=sheets --set create=true",
        "keep connect gmail local.mail --set path=mail",
        'keep connect notes mcp --set command="npx -y @acme/notes-mcp"',
    ),
    "secrets": ("keep secrets list",),
    "secrets list": ("keep secrets list",),
    "secrets set": ("keep secrets set gmail password            # asks for it, unseen",
                    "keep secrets set gmail password --from file:password.txt"),
    "secrets rotate": ("keep secrets rotate --to keyring",),
    "secrets delete": ("keep secrets delete gmail password",),
    "dev": ("keep dev", "keep dev --once              # run what is due now, then end"),
    "serve": ("keep serve 2>> keep.log",),
    "status": ("keep status --watch",),
    "watch": ("keep watch                  # q ends it",),
    "open": ("keep open invoices", "keep open run_01m7"),
    "todo": ("keep todo", "keep todo --json | jq '.[].commands'"),
    "digest": ("keep digest --since 7d",),
    "inputs": ("keep inputs invoices --status pending", 'keep inputs invoices --search "invoice 2041"'),
    "outputs": ("keep outputs invoices --last 10",),
    "items": ("keep items reminders --status failed",),
    "runs": ("keep runs invoices --last 20",),
    "show": ("keep show run_01m7             # the beginning of an id is enough",),
    "why": ("keep why inp_01m7",),
    "shadow": ("keep shadow invoices invoices.js", "keep shadow invoices invoices.js --last 50"),
    "blast": ("keep blast invoices --version 1.3",),
    "logs": ("keep logs invoices -f",),
    "deliveries": ("keep deliveries orders --last 10",),
    **{act.command: (f"keep {act.command} {_SAMPLES[act.on[0]]}",) for act in ACTS.values()
       if "shown" in act.params and act.on},
    "accept": ("keep accept prp_01m7         # shows it all, then asks",
               "keep accept prp_01m7 --grant sheets.appendRow=allow"),
    "decline": ('keep decline prp_01m7 --why "it writes to the wrong sheet"',),
    "set": ("keep set invoices waiting=others",),
    "send": (
        """keep send orders --data '{"customer": "Ann", "total": 120}' --title "Ann, by phone\"""",
        "keep send shop/orders --id 4711 --file order.json", "some-program | keep send orders --file -",
    ),
    "replay": ("keep replay msg_2KWPBgLl",),
    "grant": (
        "keep grant invoices sheets.appendRow",
        "keep grant invoices gmail.send --mode ask --match 'recipients=*@example.com' --per-day 20",
    ),
    "approve": ("keep approve apr_01m7        # exactly what `keep todo` showed",
                "keep approve --workflow orders --where 'values[2] <= 2000'   # shows them, then asks"),
    "reject": ("keep reject apr_01m7", "keep reject --all --yes"),
    "skip": ("keep skip evt_01m7",),
    "resolve": ("keep resolve mut_01m7 did_not_happen", "keep resolve mut_01m7 happened --result '{\"rowId\": \"7\"}'"),
    "notify": ("keep notify test",),
    "hosts": ("keep hosts --watch",),
    "service": ("keep service show",),
    "service show": ("keep service show --page",),
    "service install": ("keep service install --page",
                        "keep service install --system --user keep --probes 127.0.0.1:7790"),
    "service uninstall": ("keep service uninstall",),
    "agent": ("keep agent list",),
    "agent add": ("keep agent add claude --scope propose",),
    "agent list": ("keep agent list",),
    "agent remove": ("keep agent remove claude",),
    "agent pin": ("keep agent pin",),
    "user": ("keep user list",),
    "user add": ("keep user add ann --role operator",),
    "user list": ("keep user list",),
    "user remove": ("keep user remove ann",),
    "mcp": ("keep mcp",),
    "mcp install": ("keep mcp install --target claude-code", "keep mcp install --target codex --scope look"),
    "host": ("keep host drain hst_01m7",),
    "host dead": ("keep host dead hst_01m7",),
    "host drain": ("keep host drain hst_01m7",),
    "notify test": ("keep notify test phone",),
    "db": ("keep db check",),
    "db check": ("keep db check",),
    "db backup": ("keep db backup keep-monday.db",),
    "db move": ("keep db move --to postgresql://keep@db.example.com/keep", "keep db move --to keep.db"),
    "db accept-older": ("keep db accept-older",),
    "db vacuum": ("keep db vacuum",),
    "db prune": ("keep db prune --days 90 --dry-run",),
    "doctor": ("keep doctor",),
    "help": ("keep help deploy", "keep help look               # the commands of a group"),
    "version": ("keep version",),
    "completion": ('eval "$(keep completion bash)"',),
}


def with_example(command: click.Command, name: str) -> click.Command:
    """The command with its example below its help, and so for the commands within it."""
    if name in EXAMPLES and not command.epilog:
        lines = "\n".join(f"  $ {each}" for each in EXAMPLES[name])
        command.epilog = f"\b\nExample:\n{lines}"
    for inner, each in command.commands.items() if isinstance(command, click.Group) else ():
        with_example(each, f"{name} {inner}")
    return command


#: Command → what it does, in the words of its own help; a test compares them. The list in `keep --help` is made from
#: this, so that it does not load every command.
SUMMARIES = {
    **{act.command: act.help for act in REQUESTS.values() if act.command not in ("agent", "user", "db", "host")},
    "skip": "Give up a run, an event, an input or an item.",
    "demo": "Kill a host in mid-mutation, and see nothing lost or doubled.",
    "init": "Make a folder with a workflow that works at once.",
    "check": "Find mistakes in scripts without running anything.",
    "plan": "Have a model write an automation from your words.",
    "repair": "Have a model mend the script of a workflow whose run failed.",
    "types": "Declare `ctx` as TypeScript, for editors and language models.",
    "test": "Run the workflows' own cases.",
    "test-connector": "Test a connector against every injectable fault.",
    "rollback": "Make the text of an earlier version active again.",
    "graph": "Who publishes to which topic, and who takes from it.",
    "connect": "Connect ctx.NAME with an outside system, and try it.",
    "secrets": "The secrets of connectors and channels.",
    "dev": "Run the workflows here, with a page to look at, until Ctrl-C.",
    "serve": "Run the workflows here for a service manager.",
    "status": "The state of every workflow.",
    "watch": "All workflows, what waits for you, and what happens, live.",
    "open": "Open the page in a browser, at a workflow or at anything with an id.",
    "todo": "What waits for you: questions that only a person can answer.",
    "proposals": "What was proposed and waits for a person; with ID, all that is known of one.",
    "digest": "What came in, went out and failed lately, and what waits.",
    "inputs": "What came in, and what came of each.",
    "outputs": "What went out, and which inputs caused it.",
    "items": "What the routines worked on, and how far each has come.",
    "deliveries": "What others sent to the inboxes, or people put in.",
    "runs": "Every attempt at every handler, oldest first.",
    "show": "Everything about one thing, by its id or the beginning of it.",
    "why": "Why something is in its state, and what would move it on.",
    "shadow": "What a new script would do otherwise than the recorded runs.",
    "blast": "What a script version touched: its inputs, items, mutations.",
    "logs": "What a workflow's runs did, line by line.",
    "notify": "The channels through which people are told.",
    "service": "Run the folder here as a service of systemd.",
    "agent": "Which agents may come in, and what they may do.",
    "user": "Which people may come in at the API, and what they may do.",
    "mcp": "Give an agent its tools over the Model Context Protocol, on stdin and stdout.",
    "hosts": "Which hosts work on the ledger.",
    "host": "What becomes of one host of several.",
    "db": "The ledger itself.",
    "doctor": "See what is missing or wrong here, and what to do about it.",
    "help": "Explain a command, or list a group of commands: begin, write, run, look, act, operate.",
    "version": "Show the version of Keep.",
    "completion": "Print what a shell needs to complete workflows and ids.",
}
