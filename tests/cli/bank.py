"""A type that only tests know: it has settings of every kind, secrets, and a check that says them when it fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from keepai import Connector, PermissionDenied

RIGHT = "canary-5ecret-8f14e45f"
RENEWED = "renewed-7oken-1b2c3d4e"


class Bank(Connector):
    """Answers to one password, and renews a token when it is checked."""

    secrets: ClassVar[Mapping[str, str]] = {"password": "the password of the account", "token": "made by itself"}

    def __init__(
        self, url: str, *, port: int = 25, tls: bool = True, folder: str | Path | None = None, name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.url, self.port, self.tls, self.folder = url, port, tls, folder
        self.account = url

    async def check(self) -> None:
        """Whether the password is right."""
        given = self.secret("password")
        if given != RIGHT:
            raise PermissionDenied(f"{self.url} does not know {given!r}")
        self._vault["token"] = RENEWED
