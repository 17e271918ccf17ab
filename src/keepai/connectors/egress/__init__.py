"""The one way by which connectors speak HTTP: where they may go, and what is known when no whole answer comes.

    client = Client(Rules.under(["https://api.example.com/v1/"]))
    answer = await client.get(url, call, credentials={"Authorization": "Bearer …"})
    answer = await client.send("POST", url, call, json={"a": 1})

An address is looked up once, checked, and exactly that address is connected to. An error says what is known:
`Transient`, `PermissionDenied`, `PreconditionFailed` and `Rejected` come only while no byte of the request could have
left; from then on everything but a whole answer is `OutcomeUnknown`. Statuses are for the connector to judge. No error
names a path, a query, a header or a credential.
"""

from .client import Client, Response
from .dns import reachable
from .networks import Network, forbidden
from .url_rules import Rules

__all__ = ["Client", "Network", "Response", "Rules", "forbidden", "reachable"]
