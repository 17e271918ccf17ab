"""The HTTP client of all connectors: where it may connect to, and what is known if no complete answer arrives.

    client = Client(Rules.under(["https://api.example.com/v1/"]))
    answer = await client.get(url, call, credentials={"Authorization": "Bearer …"})
    answer = await client.send("POST", url, call, json={"a": 1})

An address is looked up once and checked, and exactly that address is connected to. An error says what is known:
`Transient`, `PermissionDenied`, `PreconditionFailed` and `Rejected` are raised only while no byte of the request can
have left. After that, everything except a complete answer is `OutcomeUnknown`. The connector judges the status. No
error contains a path, a query, a header or a credential.

In reading order: `client` (requests and responses), `url_rules` (allowed URLs), `dns` (looks up hosts), `networks`
(allowed addresses), `checked_connection` (connects, and knows whether anything was sent).
"""

from .client import Client, Response
from .dns import reachable
from .networks import Network, forbidden
from .url_rules import Rules

__all__ = ["Client", "Network", "Response", "Rules", "forbidden", "reachable"]
