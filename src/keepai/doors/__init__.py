"""How people and programs come in. A door shows what `reading/` finds and acts through `engine/commands.py`.

No door imports another.

`cli/`             the command `keep`
`web/`             the page that `keep dev` shows
`hooks.py`         the port that takes webhooks
`control.py`       the socket through which commands reach a running host
`peers.py`         who is at the other end of that socket
`http_server.py`   HTTP for the page and the webhook port
`connections.py`   accepting connections, with limits, for all of them
`repeats.py`       log lines that repeat are counted, not repeated
"""
