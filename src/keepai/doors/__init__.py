"""How people and programs come in. A door shows what `reading/` finds and acts through `engine/commands.py`.

In reading order:

`cli/`               the command `keep`
`web/`               the page that `keep dev` shows
`webhooks.py`        the port that takes webhooks
`control.py`         the socket through which commands of people reach a running host
`api/`               the API: what commands and page do, over HTTP with JSON, for programs with a token
`live.py`            tells open pages, and programs at the API, that something was committed
`agents.py`          the socket for agents, who come in with a token
`presence.py`        whether a person is there who acts, once there are agents
`peers.py`           who is at the other end of these sockets
`http_server.py`     HTTP for the page, the API, the probes and the webhook port
`connections.py`     accepting connections, with limits, for all of them
`log_repeats.py`     log lines that repeat are counted, not repeated
`health_checks.py`   whether what Keep needs is there and works, for `keep doctor` and the page
`script_process.py`  how a host has a script tried, in a process of its own
`agent_tools.py`     what agents can use: to look, to try, and to offer
`mcp_server.py`      these tools over the Model Context Protocol: `keep mcp`
`mcp_install.py`     how the program of an agent is told where Keep is
`model_plans.py`     the loop in which a model writes scripts, put together for the doors
`host_process.py`    a host made from the settings, and how it is told to end
`dev_host.py`        a host in the foreground with its doors open: `keep dev`
`service_host.py`    a host for a service manager, with the doors that it is told to open: `keep serve`
`probe_port.py`      the port for machines that watch a host: health, readiness, metrics
`example_files.py`   where the scripts of examples/ are
`demo_folder.py`     the folder that `keep demo` works on
`demo_postgres.py`   a PostgreSQL of its own, for `keep demo --cluster`
`demo_host.py`       `keep demo --ui`: a host with its page that is started again each time it is killed

No door imports another. Only `dev_host.py`, `service_host.py` and `demo_host.py` open several.
"""
