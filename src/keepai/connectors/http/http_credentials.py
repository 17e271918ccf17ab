"""How a connector over HTTP signs in: what the owner says in keep.toml, and the header that is made from a secret."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...model.errors import ConfigError
from ..base import Connector

#: Secret → what to ask for.
SECRETS: Mapping[str, str] = MappingProxyType({
    "token": "The token (auth bearer), or the value of the header (auth header)",
    "password": "The password (auth basic)",
})
_KINDS = {"": None, "bearer": "token", "header": "token", "basic": "password"}


@dataclass(frozen=True)
class Credentials:
    """The settings `auth`, `user` and `header`."""

    auth: str = ""
    user: str = ""
    header: str = "Authorization"

    def __post_init__(self) -> None:
        if self.auth not in _KINDS:
            raise ConfigError(f"auth must be bearer, basic or header, not {self.auth!r}.")

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets that this needs."""
        secret = _KINDS[self.auth]
        return {secret: SECRETS[secret]} if secret else {}

    def headers(self, connector: Connector) -> dict[str, str]:
        """The header with the connector's secret, for immediate use."""
        if self.auth == "bearer":
            return {"Authorization": f"Bearer {connector.secret('token')}"}
        if self.auth == "basic":
            login = f"{self.user}:{connector.secret('password')}".encode()
            return {"Authorization": f"Basic {base64.b64encode(login).decode()}"}
        return {self.header: connector.secret("token")} if self.auth == "header" else {}
