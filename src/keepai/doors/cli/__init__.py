"""The command `keep`. A module is imported when its command is used, so that `keep --help` is quick.

In reading order:

`main.py`              the entry: global options, the table of commands, what errors become
`command_session.py`   what every command starts from: settings, a look at the ledger, what a running host says
`ask_host.py`          how a command acts: through the running host, or as the host for one act
`wiring.py`            connectors, channels and secrets that keep.toml describes
`text.py`              aligned text for a terminal, JSON for programs
`names.py`             from what a person typed to the thing that is meant
`completion.py`        what a shell offers while somebody types: `keep completion`
`help_texts.py`        what `keep --help` says of each command, and its examples
`json_shapes.py`       the shape of what each command prints with `--json`

What is looked at: `status.py`, `list_commands.py` (inputs, outputs, items, runs) with `paging.py` and `watch.py`,
`show.py`, `why.py` and `todo.py` with `stopped_runs.py`, `logs.py`, `digest_command.py`, `blast_command.py`,
`graph_command.py`.
What people do: `act_commands.py`.
Scripts: `script_commands.py` (check, deploy, fix) with `script_files.py`, `rehearse.py` (deploy --dry-run),
`cases_command.py` (test), `contract.py` (test-connector), `types.py`, `rollback.py`.
Setting up: `init.py`, `connect.py` with `signing.py`, `toml_edit.py` and `secret_input.py`, `secrets.py`, `notify.py`,
`doctor.py`, `db.py`.
Hosts: `dev.py` with `auto_deploy.py`, `serve.py`, both with `narrator.py`; `demo.py` with `demo_play.py`.
"""
