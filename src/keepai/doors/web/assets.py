"""Style and script of the page, read once: served with their hash in the address, so that they never grow old."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...model.errors import ConfigError

FOLDER = Path(__file__).parent / "static"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FOR_EVER = "public, max-age=31536000, immutable"
FOR_NOW = "no-cache"


@dataclass(frozen=True)
class Asset:
    """One file."""

    content: bytes
    kind: str
    version: str


class Assets:
    """Every file of the folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {path.name: _asset(path) for path in sorted(folder.iterdir()) if path.suffix in KINDS}

    def address(self, name: Any) -> str:
        """Where a page finds a file in the version of today."""
        if name not in self._files:
            raise ConfigError(f"The page lacks its file {name}. In a clone of Keep, `make setup` brings it.")
        return f"/static/{name}?v={self._files[name].version}"

    async def serve(self, request: Request) -> Response:
        """One file."""
        asset = self._files.get(request.path_params["name"])
        if asset is None:
            raise HTTPException(404)
        tag = f'"{asset.version}"'
        lasting = FOR_EVER if request.query_params.get("v") == asset.version else FOR_NOW
        headers = {"etag": tag, "cache-control": lasting}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.kind, headers=headers)


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, KINDS[path.suffix], hashlib.sha256(content).hexdigest()[:16])
