"""Gmail, Sheets and Calendar by REST.

`api` speaks, `signing` earns the access and `access` renews it, `errors` says what an answer proves.
"""
