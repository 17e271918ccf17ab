"""Slack and ntfy: each message is one request with the HTTP client and its egress rules.

Text from outside is escaped, so that a title can neither notify a whole channel nor look like a link.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..connectors.egress import Client, Response, Rules
from ..connectors.values import Call
from ..model.errors import ConfigError, ConnectorError
from .base import Channel, Message, Undelivered, fitting

SLACK_BYTES_MAX = 30_000
NTFY_BYTES_MAX = 3_800  #: a longer message would become a file
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class SlackChannel(Channel):
    """Posts to an incoming webhook of Slack, or of a service that accepts the same requests.

    networks: private networks in which the webhook may be, such as 10.1.0.0/16
    certificates: a file of authorities to trust besides the public ones
    """

    secrets = MappingProxyType({"url": "the address of the incoming webhook, which is itself a secret"})

    def __init__(self, name: str, networks: list[str] | None = None, certificates: str | None = None) -> None:
        super().__init__(name)
        self._networks, self._certificates = networks or [], certificates

    async def send(self, message: Message) -> None:
        """Post it."""
        url = self.secret("url")
        text = f"{message.title}\n\n{message.text}".translate(_ESCAPED)
        body = {"text": fitting(text, SLACK_BYTES_MAX), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}
        await _post(url, _client(self, url, self._networks, self._certificates), body)


class Ntfy(Channel):
    """Publishes to a topic of an ntfy server.

    topic: the topic; on a public server everybody who knows it can read along
    url: the server
    networks: private networks in which the server may be, such as 10.1.0.0/16
    certificates: a file of authorities to trust besides the public ones
    signed_in: whether the server needs an access token, which is then a secret of this channel
    """

    secrets = MappingProxyType({"token": "the access token"})

    def __init__(
        self, topic: str, name: str, url: str = "https://ntfy.sh", signed_in: bool = False,
        networks: list[str] | None = None, certificates: str | None = None,
    ) -> None:
        super().__init__(name)
        self._topic, self._url, self._signed_in = topic, url.rstrip("/") + "/", signed_in
        self._networks, self._certificates = networks or [], certificates
        Rules.under([self._url], self._networks)  # raises if they are wrong

    async def send(self, message: Message) -> None:
        """Publish it."""
        credentials = {"Authorization": f"Bearer {self.secret('token')}"} if self._signed_in else {}
        body = {"topic": self._topic, "title": message.title, "message": fitting(message.text, NTFY_BYTES_MAX)}
        if message.link:
            body["click"] = message.link
        await _post(self._url, _client(self, self._url, self._networks, self._certificates), body, credentials)


def _client(channel: Channel, url: str, networks: list[str], certificates: str | None) -> Client:
    trusted = str(channel.folder / certificates) if certificates else None
    try:
        return Client(Rules.under([url], networks, certificates=trusted))
    except ConfigError as error:
        raise Undelivered(error.message) from None


async def _post(url: str, client: Client, body: object, credentials: Mapping[str, str] = MappingProxyType({})) -> None:
    try:
        answer: Response = await client.send("POST", url, Call(), json=body, credentials=credentials)
    except ConnectorError as error:  # its message names the host, never the rest of the address
        raise Undelivered(error.message) from None
    if not answer.ok:
        raise Undelivered(f"The server answered with status {answer.status}.")
