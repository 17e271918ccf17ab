"""The base of connectors whose outside system is one folder on this machine."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from ..base import Connector
from .blocking import in_thread
from .disk import check_writable, nothing_happened


class FolderConnector(Connector):
    """A connector for the folder `path`, which it makes if `create` says so."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False, name: str | None = None) -> None:
        super().__init__(name=name)
        self.path = Path(path).expanduser().absolute()
        self.account = str(self.path)
        if create:
            self.path.mkdir(parents=True, exist_ok=True)

    async def check(self) -> None:
        """Check that the folder exists and can be written."""
        def look() -> None:
            with nothing_happened("The folder cannot be used"), self._alone():
                check_writable(self.path)
        await in_thread(look)

    def _alone(self) -> AbstractContextManager[object]:
        """Keep every other process of Keep out of the folder."""
        raise NotImplementedError
