"""The command `keep`. A module is imported when its command is used, so that `keep --help` is quick.

In reading order:

`main.py`              the entry: global options, the table of commands, what errors become
`command_session.py`   what every command starts from: settings, the ledger, what a running host says
`ask_host.py`          how a command acts: through the running host, or as the host for one act
`wiring.py`            connectors, channels and secrets that keep.toml describes
`text.py`              aligned text for a terminal, JSON for programs
`names.py`             from what a person typed to the thing that is meant
`completion.py`        what a shell offers while somebody types: `keep completion`
`help_texts.py`        what `keep --help` says of each command, and its examples
`help_command.py`      `keep help` and `keep version`
`json_shapes.py`       the shape of what each command prints with `--json`

Looking: `status.py` (also digest), `list_commands.py` (inputs, outputs, items, runs), `show.py`, `why.py`, `todo.py`,
`logs.py`, `blast_command.py`, `graph_command.py`, `watch.py` with `watch_screen.py`, `open_command.py`.
Acting: `act_commands.py`, `answer_many.py` (approve, reject); `deliveries_command.py` (deliveries, replay);
`proposal_commands.py` (propose, proposals, accept, decline).
Scripts: `script_commands.py` (check, deploy, fix) with `script_files.py`, `cases_command.py` (test),
`certify_command.py` with `script_worker.py` (certify), `shadow_command.py`, `rollback.py`,
`contract.py` (test-connector), `plan_command.py` (plan, repair).
Setting up: `init.py` (also types) with `init_templates.py`, `connect.py` with `connect_tools.py`, `connect_api.py`,
`signing.py` and `secret_input.py`, `secrets.py`, `notify.py`, `doctor.py`, `db.py`.
Hosts: `dev.py` with `auto_deploy.py`, `serve.py`, both with `narrator.py`; `demo.py` and `demo_cluster.py`, both on
`demo_stage.py`; `hosts.py` (hosts, host); `service_command.py` (service).
Who may act: `principal_commands.py` (agent, user), `mcp_command.py` (mcp).
"""
